#!/usr/bin/env python3
"""Rewards as a user of transformers would get them: prefill once, and for every action copy the cache, keep each layer's positions of it,
run the continuation and take its loss.

    rollouts_pytorch.py --model DIR --manifest FILE --budget 256 [--max-tokens 2048] [--sample 20] > rollouts.csv

The prompt is the manifest's first, tokenised by `ckvc tokenize`; the kept sets are those of the retention operator (paper.md section 2) under
the start table (weights 1.0, thresholds 0.9) with the action's one change, computed here from torch's own attention. --sample actions at equal
distances are timed (0: all) and stand for all; sets are made before the clock starts. Fails where losses with the full cache or without any
action are not within 1e-4 nats of those of `ckvc score`, or a layer keeps another number of positions.
"""
import argparse
import json
import os
import subprocess
import sys
import time

HEAD = [(32 + a) / 40 for a in range(29)]
GATE = [(80 + a) / 100 for a in range(21)]


def tokenize(args, text, special):
    command = [args.ckvc, "tokenize", "--model", args.ckvc_model, "--json"] + ([] if special else ["--no-special"])
    return json.loads(subprocess.run(command, input=text.encode(), check=True, capture_output=True).stdout)


def first_prompt(args):
    """Ids of prompt and continuation, cut in the middle and at the end as ckvc cuts them."""
    with open(args.manifest, encoding="utf-8") as f:
        entry = json.loads(f.readline())
    ids = entry["tokens"] if "tokens" in entry else tokenize(args, entry["text"], True)
    if "continuation_tokens" in entry or "continuation" in entry:
        rest = entry["continuation_tokens"] if "continuation_tokens" in entry else tokenize(args, entry["continuation"], False)
        rest = rest[: args.continuation]
    else:
        ids, rest = ids[: -args.continuation], ids[-args.continuation :]
    if args.max_tokens and len(ids) > args.max_tokens:
        head = (args.max_tokens + 1) // 2
        ids = ids[:head] + ids[len(ids) - (args.max_tokens - head) :]
    return ids, rest


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True)
    parser.add_argument("--manifest", required=True)
    parser.add_argument("--ckvc-model", help="the same weights as ckvc takes them, if not --model (a GGUF file)")
    for name, value in {"ckvc": "build/release/ckvc", "budget": 0.25, "max-tokens": 0, "continuation": 128, "window": 64, "sample": 20,
                        "threads": os.cpu_count()}.items():
        parser.add_argument("--" + name, type=type(value), default=value)
    args = parser.parse_args()
    args.ckvc_model = args.ckvc_model or args.model
    if os.getloadavg()[0] > 0.5:  # torch's threads wait for each other by spinning
        print("other work is running, these numbers are worth nothing", file=sys.stderr)
    os.environ.setdefault("OMP_NUM_THREADS", str(args.threads))
    import numpy as np
    import torch
    import transformers

    torch.set_num_threads(args.threads)
    transformers.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    model = transformers.AutoModelForCausalLM.from_pretrained(args.model, dtype=torch.float32, attn_implementation="sdpa").eval()
    W = args.window
    mass = []  # of each layer, in order: [T] attention of the window's rows, summed over rows and heads

    def sdpa(module, q, k, v, scaling):
        """Causal from the bottom right: rows are the newest positions, whatever was pruned before them."""
        rows, keys = q.shape[2], k.shape[2]
        mask = None if rows == keys else torch.ones(rows, keys, dtype=torch.bool).tril(keys - rows)
        out = torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=mask is None, scale=scaling,
                                                               enable_gqa=True)
        return out.transpose(1, 2).contiguous(), None

    def observed(module, q, k, v, attention_mask, scaling=None, **kwargs):
        scores = q[:, :, -W:] @ k.repeat_interleave(q.shape[1] // k.shape[1], 1).transpose(2, 3) * scaling
        hidden = torch.ones(W, k.shape[2], dtype=torch.bool).tril(k.shape[2] - W).logical_not()
        mass.append(scores.masked_fill(hidden, -torch.inf).softmax(-1).sum((0, 1, 2), dtype=torch.float64))
        return sdpa(module, q, k, v, scaling)

    def pruned(module, q, k, v, attention_mask, scaling=None, **kwargs):
        return sdpa(module, q, k, v, scaling)

    transformers.AttentionInterface.register("observed", observed)
    transformers.AttentionInterface.register("pruned", pruned)
    config = model.config
    if getattr(config, "sliding_window", None) and getattr(config, "use_sliding_window", True):
        sys.exit("rollouts_pytorch.py: models with a sliding window are not compared")
    L, H, G = config.num_hidden_layers, config.num_attention_heads, config.num_key_value_heads
    prompt, continuation = first_prompt(args)
    T, C = len(prompt), len(continuation)
    B = int(args.budget) if args.budget >= 1 else int(args.budget * T)
    targets = torch.tensor(continuation)

    def prefill():
        mass.clear()
        model.set_attn_implementation("observed")
        start = time.perf_counter()
        cache = transformers.DynamicCache()
        logits = model(torch.tensor([prompt]), past_key_values=cache, use_cache=True, logits_to_keep=1).logits[0, -1]
        alpha = (sum(mass) * T / (W * L * H)).float().numpy()
        norms = [layer.values[0].norm(dim=-1) for layer in cache.layers]
        rho = [(n / (n.mean(1, keepdim=True) + 1e-6)).numpy() for n in norms]
        seconds = time.perf_counter() - start
        model.set_attn_implementation("pruned")
        return cache, torch.log_softmax(logits, -1)[continuation[0]].neg(), alpha, rho, seconds

    def keep(layer, weights, tau):
        """Method section 2: of the candidates the B largest, of equals the later."""
        u = (alpha.astype(np.float64) * rho[layer].astype(np.float64) * np.asarray(weights)[:, None]).max(0)
        candidates = np.flatnonzero(u >= tau)
        if len(candidates) > B:
            candidates = candidates[np.lexsort((-candidates, -u[candidates]))[:B]]
        return torch.from_numpy(np.sort(candidates))

    def rollout(cache, first, sets):
        """Mean loss of the continuation; sets None: the whole cache."""
        own = transformers.DynamicCache()
        for i, layer in enumerate(cache.layers):
            k, v = (layer.keys, layer.values) if sets is None else (layer.keys[:, :, sets[i]], layer.values[:, :, sets[i]])
            own.update(k.clone() if sets is None else k, v.clone() if sets is None else v, i)
        positions = torch.arange(T, T + C - 1)[None]
        logits = model(targets[None, :-1], past_key_values=own, position_ids=positions, use_cache=True).logits[0]
        losses = torch.log_softmax(logits, -1).gather(1, targets[1:, None]).neg()
        return float((first + losses.sum()) / C)

    with torch.inference_mode():
        prefill()
        cache, first, alpha, rho, prefill_seconds = prefill()
        start_sets = [keep(l, [1.0] * G, 0.9) for l in range(L)]
        actions = [(l, [HEAD[a] if h == g else 1.0 for h in range(G)], 0.9) for l in range(L) for g in range(G) for a in range(29)]
        actions += [(l, [1.0] * G, tau) for l in range(L) for tau in GATE]
        n = min(args.sample, len(actions)) if args.sample else len(actions)
        loss_full, loss_base = rollout(cache, first, None), rollout(cache, first, start_sets)
        total = 0.0
        for i in range(n):
            layer, weights, tau = actions[i * len(actions) // n]
            sets = start_sets[:layer] + [keep(layer, weights, tau)] + start_sets[layer + 1 :]
            start = time.perf_counter()
            rollout(cache, first, sets)
            total += time.perf_counter() - start

    shape = f"T={T} B={B} C={C}"
    how = "all actions" if n == len(actions) else f"extrapolated from {n} of {len(actions)} actions"
    versions = f"torch {torch.__version__}; transformers {transformers.__version__}"
    print("program,stage,shape,work,unit,runs,seconds_median,seconds_min,rate,gflop,share,note")
    whole = total * len(actions) / n + prefill_seconds
    for stage, of, work, unit, seconds, note in (("prefill-observed", f"T={T}", T, "tokens", prefill_seconds, versions),
                                                 ("rollout-plain", shape, n, "rollouts", total, versions),
                                                 ("rewards-plain", shape, len(actions), "rewards", whole, f"{how}; {versions}")):
        print(f"transformers,{stage},{of},{work},{unit},1,{seconds:.6g},{seconds:.6g},{work / seconds:.6g},,,{note}")
    print(f"loss with the full cache {loss_full:.6f}, without an action {loss_base:.6f}, layers keep "
          f"{min(map(len, start_sets))} to {max(map(len, start_sets))} positions", file=sys.stderr)
    line = subprocess.run([args.ckvc, "score", "--model", args.ckvc_model, "--manifest", args.manifest, "--limit", "1",
                           "--policy", "identity", "--budget", f"{args.budget:g}", "--window", str(W), "--continuation",
                           str(args.continuation), "--max-tokens", str(args.max_tokens), "--quiet"],
                          check=True, capture_output=True, text=True).stdout.splitlines()[0]
    want = json.loads(line)
    off = max(abs(want["loss_full"] - loss_full), abs(want["loss_comp"] - loss_base))
    print(f"ckvc score: {want['loss_full']:.6f}, {want['loss_comp']:.6f}; off by {off:.2g} nats", file=sys.stderr)
    return 0 if off <= 1e-4 and want["n_kept"] == [len(s) for s in start_sets] else 1


if __name__ == "__main__":
    sys.exit(main())
