#!/usr/bin/env python3
"""A producer of shards that shares no code with ckvc: h5py and the description of the format (formats/shard/shard.md) alone.

    write_bare_shard.py OUT.h5 [--prompts N] [--first I] [--uniform] [--continuation C]
    write_bare_shard.py --check T.ckvt     # after `ckvc fit OUT.h5`: did it find the world's best actions?

The world: every prompt has a large loss of its own, an action's effect is a parabola around its state's best action. Only what the format
requires of other producers is written.
"""
import argparse
import os
import sys

import h5py
import numpy as np

L, G, H, E, P = 3, 2, 4, 2, 2
BUDGETS = np.array([64.0, 0.25])
HEAD = np.array([(32 + a) / 40 for a in range(29)])
GATE = np.array([(80 + a) / 100 for a in range(21)])

# The world's best actions, [L][G][budgets] and [L][E][P][budgets].
BEST_HEAD = np.fromfunction(lambda l, g, b: (7 * l + 11 * g + 5 * b + 3) % len(HEAD), (L, G, 2), dtype=int)
BEST_GATE = np.fromfunction(lambda l, e, p, b: (5 * l + 9 * e + 3 * p + 13 * b + 2) % len(GATE), (L, E, P, 2), dtype=int)


def records(first, n, uniform):
    """Rows (prompt, side, layer, head, budget, action, reward, baseline, loss) and baselines (prompt, budget, loss)."""
    rows, baselines, bins = [], [], []
    for i in range(n):
        rng = np.random.default_rng(first + i)
        e, p = (first + i) // 2 % E, (first + i) % P
        bins.append((e, p))
        full = 3.0 + 0.5 * rng.standard_normal()
        for b in range(len(BUDGETS)):
            base = full + abs(0.5 * rng.standard_normal())
            baselines.append((i, b, base))
            for side in (0, 1):
                grid, stay = (HEAD, 8) if side == 0 else (GATE, 10)
                for layer in range(L):
                    for head in range(G) if side == 0 else (65535,):
                        best = int(BEST_HEAD[layer, head, b] if side == 0 else BEST_GATE[layer, e, p, b])
                        for a in rng.integers(0, len(grid), len(grid)) if uniform else range(len(grid)):
                            gain = 0.001 * ((stay - best) ** 2 - (a - best) ** 2) + 0.002 * rng.standard_normal() * (a != stay)
                            loss = base - gain
                            rows.append((i, side, layer, head, b, a, -(loss - full), -(base - full), loss))
    return rows, baselines, bins


def write(args):
    rows, baselines, bins = records(args.first, args.prompts, args.uniform)
    columns, base = list(zip(*rows)), list(zip(*baselines))
    ids = [f"prompt-{args.first + i}" for i in range(args.prompts)]
    with h5py.File(args.out, "w", libver=("v110", "v110")) as f:
        attributes = dict(
            format="ckvc-shard", version=np.uint32(1), ckvc_version="other", plan="0" * 64, fingerprint="1" * 64, model_name="world",
            family="llama", n_layers=np.uint32(L), n_heads=np.uint32(H), n_kv_heads=np.uint32(G), window=np.uint32(16),
            continuation=np.uint32(args.continuation), behaviour="uniform" if args.uniform else "balanced", alpha_kind="paper",
            seed=np.uint64(1), manifest="2" * 64, budgets=BUDGETS, head_actions=HEAD, gate_actions=GATE,
            edges_entropy=np.array([5.0]), edges_perplexity=np.array([9.0]),
            start_weight=np.ones((L, G, len(BUDGETS)), np.float32), start_tau=np.full((L, E, P, len(BUDGETS)), 0.9, np.float32),
        )
        for name, value in {**attributes, "pass": "both", "lambda": np.float64(1.0)}.items():
            if isinstance(value, str):
                f.attrs.create(name, np.bytes_(value), dtype=h5py.string_dtype("utf-8", max(1, len(value))))
            else:
                f.attrs[name] = value

        def column(path, data, dtype):
            data = np.asarray(data, dtype)
            chunk = (max(1, min(65536, len(data))),)
            f.create_dataset(path, data=data, chunks=chunk, compression="gzip", shuffle=True, fletcher32=True)

        f.create_dataset("prompt/id", data=np.array([i.encode() for i in ids], dtype="S32").astype(h5py.string_dtype("utf-8", 32)))
        column("prompt/bin_entropy", [e for e, _ in bins], "<u2")
        column("prompt/bin_perplexity", [p for _, p in bins], "<u2")
        for name, data, dtype in zip(("prompt", "budget", "loss"), base, ("<u4", "<u2", "<f8")):
            column(f"baseline/{name}", data, dtype)
        names = ("prompt", "side", "layer", "head", "budget", "action", "reward", "baseline", "loss")
        for name, data, dtype in zip(names, columns, ("<u4", "u1", "<u2", "<u2", "<u2", "u1", "<f8", "<f8", "<f8")):
            column(f"record/{name}", data, dtype)
    return 0


def check(args):
    sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "python"))
    import ckvc

    table = ckvc.Table.read(args.table)
    off_head = abs(np.rint(table.weight * 40 - 32).astype(int) - BEST_HEAD)
    off_tau = abs(np.rint(table.tau * 100 - 80).astype(int) - BEST_GATE)
    print(f"head: {np.mean(off_head == 0):.2f} right, worst {off_head.max()} steps; "
          f"gate: {np.mean(off_tau == 0):.2f} right, worst {off_tau.max()} steps")
    return 0 if np.mean(off_head == 0) >= 0.8 and off_head.max() <= 1 and np.mean(off_tau == 0) >= 0.6 and off_tau.max() <= 2 else 1


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", nargs="?")
    parser.add_argument("--prompts", type=int, default=60)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--uniform", action="store_true")
    parser.add_argument("--continuation", type=int, default=32)
    parser.add_argument("--check", dest="table")
    args = parser.parse_args()
    if (args.out is None) == (args.table is None):
        parser.error("either OUT.h5 or --check T.ckvt")
    return write(args) if args.out else check(args)


if __name__ == "__main__":
    sys.exit(main())
