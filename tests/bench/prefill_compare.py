#!/usr/bin/env python3
"""Prefill speed of ckvc and of transformers on torch, side by side: one process, A B A B, the same model, threads and number of tokens.

    prefill_compare.py --model DIR [--ckvc-model FILE] [--tokens 512,2048,8192] [--repeats 5] [--threads N] > prefill.csv

Both sides run every layer in float32 on the CPU, keep the whole KV cache and compute the logits of `window` rows. ckvc besides takes its
statistics (the window's attention mass, value norms, the window's losses) and leaves the last layer's rows at keys and values where nothing
reads them; transformers runs them all, with its fused attention (sdpa). Both are run once before the clock starts.
"""
import statistics
import sys
import time

import bench_csv


def main():
    args = bench_csv.arguments(__doc__, tokens=(str, "512,2048,8192"), repeats=(int, 5))
    torch, _, model, versions = bench_csv.other_side(args, "sdpa")
    context = model.config.max_position_embeddings

    def other(n):
        ids = torch.randint(0, model.config.vocab_size, (1, n), generator=torch.Generator().manual_seed(1))
        with torch.inference_mode():
            start = time.perf_counter()
            out = model(ids, use_cache=True, logits_to_keep=args.window)
            seconds = time.perf_counter() - start
        assert out.logits.shape[1] == args.window and bool(torch.isfinite(out.logits).all())
        return seconds

    rows = []
    for n in sorted(int(t) for t in args.tokens.split(",")):
        if n > context:
            print(f"{n} tokens: left out, the model's context is {context}", file=sys.stderr)
            continue
        ours, theirs = [], []
        if n <= 2048:
            other(n)  # warms up; beyond, a run is long enough to do so itself
        for _ in range(args.repeats):
            got, _ = bench_csv.ckvc_rows([args.ckvc + "-bench", "--model", args.ckvc_model, "--stage", "prefill",
                                          "--max-tokens", str(n), "--window", str(args.window), "--threads", str(args.threads),
                                          "--repeats", "1", "--quiet"])
            ours.append(float(got[0]["seconds_median"]))
            theirs.append(other(n))
        ratio = statistics.median_high(theirs) / statistics.median_high(ours)
        best = min(theirs) / min(ours)
        rows.append(bench_csv.row("ckvc", "prefill", f"T={n}", n, "tokens", ours, gflop=got[0]["gflop"],
                                  note=f"{ratio:.2f} times as fast as transformers (best runs: {best:.2f})"))
        rows.append(bench_csv.row("transformers", "prefill", f"T={n}", n, "tokens", theirs, note=f"{versions}; sdpa"))
    bench_csv.write(sys.stdout, rows)


main()
