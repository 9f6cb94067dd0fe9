#!/usr/bin/env python3
"""SmolLM2-135M on a book, beside transformers on torch in float32:

- token losses from the GGUF file and from the directories that scripts/convert-gguf.py makes (bf16, and f32, which is exact);
- alpha and rho of `ckvc score --vectors`, worked out here from attention weights and values by docs/paper.md section 1;
- what `ckvc generate` writes from full and compressed caches, and its losses, beside greedy decoding with caches pruned by hand to the sets
  of `ckvc score --sets` (tests/golden/decode/make.py). Where two tokens' logits lie closer together than 1e-3, rounding decides: from
  there on a text is no longer compared, and that is said.
"""
import json
import sys

import outside

torch, transformers, np, h5py = outside.modules("torch", "transformers", "numpy", "h5py")
sys.path.insert(0, str(outside.ROOT / "tests/golden/decode"))
from make import Pruned  # noqa: E402

a = outside.arguments(threads=(int, 2, "of ckvc and torch"))
torch.set_num_threads(a.threads)
bf16, f32 = (outside.directory(a, kind) for kind in ("bf16", "f32"))
tok, tmp = transformers.AutoTokenizer.from_pretrained(f32), outside.scratch()
model = transformers.AutoModelForCausalLM.from_pretrained(f32, dtype=torch.float32, attn_implementation="eager").eval()


def compare_losses(ids):
    nll = {path.name: np.array(outside.losses(a, path, ids, "-t", a.threads)) for path in (bf16, f32, a.gguf)}
    def relative(x, y):
        return abs(np.exp(x.mean()) / np.exp(y.mean()) - 1)
    for path in (bf16, f32):
        ours, theirs = nll[path.name], outside.their_losses(path, ids)
        print(f"{path.name}, {len(ids)} tokens of {a.text.name}: mean loss in nats, ckvc {ours.mean():.9f}, transformers {theirs.mean():.9f}")
        outside.at_most(f"{path.name}: perplexity, relative difference to transformers", relative(ours, theirs), 1e-3)
        outside.at_most(f"{path.name}: loss of one token, largest difference in nats", np.abs(ours - theirs).max(), 1e-3)
    gguf = nll[a.gguf.name]
    outside.at_most("gguf and f32 directory: largest difference of a token's loss", np.abs(gguf - nll["f32"]).max(), 0.0)
    outside.at_most("gguf and bf16 directory: perplexity, relative difference (weights rounded to bfloat16)", relative(gguf, nll["bf16"]), 5e-3)


def compare_vectors(prompts, window=64):
    with outside.manifest([{"id": f"p{i}", "tokens": p} for i, p in enumerate(prompts)]) as m:
        outside.run(a.ckvc, "score", "--model", a.gguf, "--manifest", m.name, "--policy", "identity", "--budget", 96, "--vectors", tmp / "v.h5",
                    "--continuation", 0, "--window", window, "-q", "-t", a.threads)
    G, D, mass, norms = model.config.num_key_value_heads, model.config.head_dim, [], []
    hooks = []
    for layer in model.model.layers:
        hooks += [layer.self_attn.register_forward_hook(lambda module, args, out: mass.append(out[1][0, :, -window:].double().sum(dim=(0, 1)))),
                  layer.self_attn.v_proj.register_forward_hook(lambda module, args, out: norms.append(out[0].double().reshape(-1, G, D).norm(dim=-1).T))]
    worst_alpha = worst_rho = 0.0
    with h5py.File(tmp / "v.h5") as f, torch.no_grad():
        for prompt, name in zip(prompts, sorted(f), strict=True):
            mass.clear(), norms.clear()
            model(torch.tensor([prompt]))
            alpha = (len(prompt) / window * sum(mass) / (len(mass) * model.config.num_attention_heads)).numpy()
            v = torch.stack(norms).numpy()  # [L, G, T]
            rho = v / (v.mean(axis=2, keepdims=True) + 1e-6)
            worst_alpha = max(worst_alpha, np.abs(f[name]["alpha"][()] - alpha).max() / alpha.max())
            worst_rho = max(worst_rho, np.abs(f[name]["rho"][()] - rho).max() / rho.max())
    for hook in hooks:
        hook.remove()
    outside.at_most("alpha: largest difference, of the largest alpha", worst_alpha, 1e-4)
    outside.at_most("rho: largest difference, of the largest rho", worst_rho, 1e-4)


def compare_texts(prompts, new=40):
    stops = model.generation_config.eos_token_id
    stops = [stops] if isinstance(stops, int) else stops or []
    both = ["--model", f32, "-q", "-t", a.threads]
    compared, unlike, worst = 0, 0, 0.0
    with outside.manifest([{"id": f"p{i}", "tokens": p} for i, p in enumerate(prompts)]) as m:
        for policy in (None, "streamingllm", "pyramidkv", "adakv"):
            sets, chosen = [None] * len(prompts), ["--policy", policy, "--budget", 0.25, "--window", 32] if policy else []
            if policy:
                lines = outside.run(a.ckvc, "score", *both, *chosen, "--manifest", m.name, "--continuation", 0, "--sets").splitlines()
                # one set a layer, or one a head
                sets = [[x if isinstance(x[0], list) else [x] for x in json.loads(line)["sets"]] for line in lines]
            made = outside.run(a.ckvc, "generate", *both, *chosen, "--manifest", m.name, "--max-new", new, "--batch", 1, "--json").splitlines()
            for prompt, kept, got in zip(prompts, sets, map(json.loads, made)):
                tokens, nll, leads = Pruned(model, prompt, kept).greedy(new, stops)
                n = next((i for i, lead in enumerate(leads) if lead < 1e-3), len(tokens))
                if n < len(tokens):
                    print(f"{policy or 'full'}: {len(tokens) - n} tokens behind a lead of {leads[n]:.1e} are not compared")
                compared += n
                unlike += sum(x != y for x, y in zip(tokens[:n], got["tokens"])) + (n == len(tokens) != len(got["tokens"]))
                worst = max([worst] + [abs(x - y) for x, y in zip(nll[:n], got["nll"])])
    outside.at_most(f"tokens that differ, of {compared}", unlike, 0)
    outside.at_most("largest difference of a token's loss", worst, 1e-3)


compare_losses(*outside.pieces(a, tok, 1, 2000))
compare_vectors(outside.pieces(a, tok, 2, 1024))
compare_texts(outside.pieces(a, tok, 2, 500))
outside.done()
