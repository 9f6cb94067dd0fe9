#!/usr/bin/env python3
"""SmolLM2-135M: alpha, rho and the sets that identity tables keep, from `ckvc score`, against the same worked out here from the
attention weights and values of transformers on torch, in float32, by docs/method.md sections 1 and 2.

A position may differ where its u lies within 1e-4 (relative) of the cut, and at most 0.5% of those kept.
"""
import json
import tempfile

import outside

torch, transformers, np, h5py = outside.modules("torch", "transformers", "numpy", "h5py")
a = outside.arguments(tokens=(int, 1024, "prompt tokens"), prompts=(int, 2, "pieces of the book"), threads=(int, 2, "of ckvc and torch"))
torch.set_num_threads(a.threads)
WINDOW, BUDGETS, TAU = 64, (32, 96, 256), 0.90
directory = outside.directory(a, "f32", "bf16")
model_path = a.gguf if directory.name == "f32" else directory
prompts = outside.pieces(a, transformers.AutoTokenizer.from_pretrained(directory), a.prompts)

with outside.manifest([{"id": f"p{i}", "tokens": p} for i, p in enumerate(prompts)]) as m, tempfile.TemporaryDirectory() as tmp:
    out = outside.run(a.ckvc, "score", "--model", model_path, "--manifest", m.name, "--policy", "identity", "--sets", "--vectors",
                      f"{tmp}/v.h5", "--continuation", 0, "--window", WINDOW, "--budget", ",".join(map(str, BUDGETS)), "-q", "-t",
                      a.threads)
    with h5py.File(f"{tmp}/v.h5") as f:
        vectors = [(f[k]["alpha"][()], f[k]["rho"][()]) for k in sorted(f)]
lines = [json.loads(x) for x in out.splitlines()]

model = transformers.AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32, attn_implementation="eager").eval()
L, H, G = (getattr(model.config, k) for k in ("num_hidden_layers", "num_attention_heads", "num_key_value_heads"))
D = model.config.head_dim
mass, norms = None, {}


def attention_hook(module, args, output):
    global mass
    rows = output[1][0, :, -WINDOW:].double().sum(dim=(0, 1))  # [H, T, T] -> over heads and window rows
    mass = rows if mass is None else mass + rows


def value_hook(layer):
    def hook(module, args, output):
        norms[layer] = output[0].double().reshape(-1, G, D).norm(dim=-1).T  # [G, T]
    return hook


for i, layer in enumerate(model.model.layers):
    layer.self_attn.register_forward_hook(attention_hook)
    layer.self_attn.v_proj.register_forward_hook(value_hook(i))

worst_alpha = worst_rho = 0.0
n_kept = n_differ = n_far = 0
for i, prompt in enumerate(prompts):
    mass, T = None, len(prompt)
    with torch.no_grad():
        model(torch.tensor([prompt]))
    alpha = (T / WINDOW * mass / (L * H)).numpy()
    v = torch.stack([norms[l] for l in range(L)]).numpy()  # [L, G, T]
    rho = v / (v.mean(axis=2, keepdims=True) + 1e-6)
    worst_alpha = max(worst_alpha, np.abs(vectors[i][0] - alpha).max() / alpha.max())
    worst_rho = max(worst_rho, np.abs(vectors[i][1] - rho).max() / rho.max())
    u = (alpha.astype(np.float32).astype(float) * rho.astype(np.float32).astype(float)).max(axis=1)  # [L, T]
    for budget in BUDGETS:
        line = next(x for x in lines if x["id"] == f"p{i}" and x["budget"] == budget)
        for l in range(L):
            candidates = np.flatnonzero(u[l] >= TAU)
            order = candidates[np.lexsort((candidates, u[l][candidates]))][::-1]  # by u, of equals the later position first
            want = set(order[:budget].tolist())
            # The cut: the threshold, or the smallest u kept where the budget decides.
            cut = TAU if len(candidates) <= budget else u[l][order[budget - 1]]
            differ = want ^ set(line["sets"][l])
            n_kept += len(want)
            n_differ += len(differ)
            n_far += sum(abs(u[l][t] / cut - 1) > 1e-4 for t in differ)
print(f"{a.prompts} prompts of {a.tokens} tokens, {model_path.name}: {n_kept} positions kept, {n_differ} differ")
outside.at_most("alpha: largest difference, of the largest alpha", worst_alpha, 1e-4)
outside.at_most("rho: largest difference, of the largest rho", worst_rho, 1e-4)
outside.at_most("positions that differ with u farther than 1e-4 from the cut", n_far, 0)
outside.at_most("positions that differ near the cut, of those kept", n_differ / max(n_kept, 1), 0.005)
outside.done()
