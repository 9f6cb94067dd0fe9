#!/usr/bin/env python3
"""SmolLM2-135M on a book: ckvc's token losses from the GGUF file and from converted directories against transformers on torch.

The directories are compared where scripts/convert-gguf.py has made them (bf16, and f32 for the exact one). transformers runs
in float32 on the bfloat16 or float32 weights, as ckvc does.
"""
import outside

torch, transformers, np = outside.modules("torch", "transformers", "numpy")
a = outside.arguments(tokens=(int, 2000, "of the book"), threads=(int, 2, "of ckvc and torch"))
torch.set_num_threads(a.threads)

ids, = outside.pieces(a, transformers.AutoTokenizer.from_pretrained(outside.directory(a, "bf16")), 1)


def ours(model):
    return np.array(outside.losses(a, model, ids, "-t", a.threads))


nll = {"gguf": ours(a.gguf)}
ref = {}
for kind in ("bf16", "f32"):
    if (a.models / kind).is_dir():
        nll[kind], ref[kind] = ours(a.models / kind), outside.their_losses(a.models / kind, ids)
print(f"{len(ids)} tokens of {a.text.name}; mean loss in nats, ckvc / transformers:")
for kind in nll:
    print(f"  {kind}: {nll[kind].mean():.9f} / {ref[kind].mean() if kind in ref else float('nan'):.9f}")


def relative(x, y):
    return abs(np.exp(x.mean()) / np.exp(y.mean()) - 1)


for kind in ref:
    outside.at_most(f"{kind}: perplexity, relative difference to transformers", relative(nll[kind], ref[kind]), 1e-3)
    outside.at_most(f"{kind}: loss of one token, largest difference in nats", np.abs(nll[kind] - ref[kind]).max(), 1e-3)
if "f32" in nll:
    outside.at_most("gguf and f32 directory: largest difference of a token's loss", np.abs(nll["gguf"] - nll["f32"]).max(), 0.0)
outside.at_most("gguf and bf16 directory: perplexity, relative difference (weights rounded to bfloat16)",
               relative(nll["gguf"], nll["bf16"]), 5e-3)
outside.done()
