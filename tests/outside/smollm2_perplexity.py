#!/usr/bin/env python3
"""SmolLM2-135M on a book: ckvc's token losses from the GGUF file and from converted directories against transformers on torch.

The directories are compared where scripts/convert-smollm2.py has made them (bf16, and f32 for the exact one). transformers runs
in float32 on the bfloat16 or float32 weights, as ckvc does.
"""
import json

import outside

torch, transformers, np = outside.modules("torch", "transformers", "numpy")
a = outside.arguments(tokens=(int, 2000, "of the book"), threads=(int, 2, "of ckvc and torch"))
checks = outside.Checks()
torch.set_num_threads(a.threads)

tok = transformers.AutoTokenizer.from_pretrained(a.models / "bf16") if (a.models / "bf16").is_dir() else None
if tok is None:
    outside.skip(f"{a.models / 'bf16'} is not there: make model-smollm2 in an environment with torch and transformers")
ids = tok(a.text.read_text(errors="replace")[: 8 * a.tokens], add_special_tokens=False)["input_ids"][: a.tokens]


def ours(model):
    with outside.manifest([{"id": "book", "tokens": ids}]) as m:
        line = outside.run(a.ckvc, "perplexity", "--model", model, "--manifest", m.name, "--json", "--tokens", "-q", "-t", a.threads)
    return np.array(json.loads(line.splitlines()[0])["nll"])


def theirs(path):
    model = transformers.AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32).eval()
    with torch.no_grad():
        x = torch.tensor([ids])
        logits = model(x).logits[0].double()
    return torch.nn.functional.cross_entropy(logits[:-1], x[0, 1:], reduction="none").numpy()


nll = {"gguf": ours(a.gguf)}
ref = {}
for kind in ("bf16", "f32"):
    if (a.models / kind).is_dir():
        nll[kind], ref[kind] = ours(a.models / kind), theirs(a.models / kind)
print(f"{len(ids)} tokens of {a.text.name}; mean loss in nats, ckvc / transformers:")
for kind in nll:
    print(f"  {kind}: {nll[kind].mean():.9f} / {ref[kind].mean() if kind in ref else float('nan'):.9f}")


def relative(x, y):
    return abs(np.exp(x.mean()) / np.exp(y.mean()) - 1)


for kind in ref:
    checks.at_most(f"{kind}: perplexity, relative difference to transformers", relative(nll[kind], ref[kind]), 1e-3)
    checks.at_most(f"{kind}: loss of one token, largest difference in nats", np.abs(nll[kind] - ref[kind]).max(), 1e-3)
if "f32" in nll:
    checks.at_most("gguf and f32 directory: largest difference of a token's loss", np.abs(nll["gguf"] - nll["f32"]).max(), 0.0)
checks.at_most("gguf and bf16 directory: perplexity, relative difference (weights rounded to bfloat16)",
               relative(nll["gguf"], nll["bf16"]), 5e-3)
checks.done()
