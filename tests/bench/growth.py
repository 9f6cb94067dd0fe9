#!/usr/bin/env python3
"""How the cost of a prompt's rewards grows: one picture each over T, B, C, L and the number of actions.

    growth.py --out tests/bench/growth [--tools build/release/tools] [--points FILE.csv]

Runs `ckvc-bench` (stages prefill, variants, sweep, rewards-sweep) on random ids while one size moves and the others stay; models of one width
and of 2 to 32 layers are made by tests/tools/make_model.c, so that anyone gets the same. Writes OUT.csv and OUT-<size>.svg: seconds of
each stage, and the counted operations of the sweep beside them, each over its value at the smallest size. --points draws from a CSV that is there.
"""
import argparse
import csv
import os
import subprocess
import sys
import tempfile

import bench_csv

# Of each size: where it stays while another moves, where it goes, and its name.
SIZES = {
    "T": (1024, [256, 512, 1024, 2048, 4096], "prompt tokens T"),
    "B": (128, [32, 64, 128, 256, 512], "tokens kept per layer B"),
    "C": (64, [16, 32, 64, 128, 256], "continuation tokens C"),
    "L": (8, [2, 4, 8, 16, 32], "layers L"),
    "actions": (128, [16, 32, 64, 128, 256, 512], "distinct rollouts per side"),
}
BASE = {name: base for name, (base, _, _) in SIZES.items()}
STAGES = ["prefill", "variants", "sweep", "rewards-sweep"]


def measure(args):
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for name, (_, values, _) in SIZES.items():
            for value in values:
                size = dict(BASE, **{name: value})
                model = os.path.join(folder, f"layers-{size['L']}")
                if not os.path.isdir(model):  # 8 heads, 4 KV heads of 32, width 256, MLP 704, vocabulary 2,048
                    subprocess.run([os.path.join(args.tools, "make_model"), model, str(size["L"]), "8", "4", "32", "256", "704", "2048"],
                                   check=True, stdout=subprocess.DEVNULL)
                command = [args.ckvc + "-bench", "--model", model, "--stage", ",".join(STAGES), "--repeats", str(args.repeats), "--threads",
                           str(args.threads), "--max-tokens", str(size["T"]), "--budget", str(size["B"]), "--continuation", str(size["C"]),
                           "--variants", str(size["actions"])]
                for row in bench_csv.ckvc_rows(command)[0]:
                    rows.append({"size": name, "value": value, **{k: row[k] for k in ("stage", "work", "unit", "seconds_min", "gflop", "note")}})
                print(f"{name}={value}", file=sys.stderr)
    return rows


def draw(rows, out):
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams.update({"svg.hashsalt": "ckvc", "font.size": 9})
    import matplotlib.pyplot as plt

    for name, (_, values, title) in SIZES.items():
        mine = [r for r in rows if r["size"] == name]
        figure, axis = plt.subplots(figsize=(5, 3.4))
        for stage in STAGES:
            points = [(float(r["value"]), float(r["seconds_min"])) for r in mine if r["stage"] == stage]
            axis.plot(*zip(*points), marker="o", markersize=3, label="all of a prompt" if stage == "rewards-sweep" else stage)
        sweep = [[float(r[k]) for k in ("value", "gflop", "seconds_min")] for r in mine if r["stage"] == "sweep"]
        axis.plot([x for x, *_ in sweep], [f / sweep[0][1] * sweep[0][2] for _, f, _ in sweep], "k:", linewidth=1,
                  label="sweep, as its counted operations grow")
        axis.set_xscale("log", base=2)
        axis.set_xticks([float(v) for v in values], [str(v) for v in values])
        axis.set(yscale="log", xlabel=title, ylabel="seconds")
        axis.set_title(", ".join(f"{k} = {v}" for k, v in BASE.items() if k != name), fontsize=8)
        axis.grid(True, which="major", linewidth=0.3)
        axis.legend(fontsize=7)
        figure.tight_layout()
        figure.savefig(f"{out}-{name}.svg", metadata={"Date": None, "Creator": None})
        plt.close(figure)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", required=True)
    parser.add_argument("--ckvc", default="build/release/ckvc")
    parser.add_argument("--tools", default="build/release/tools")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--points")
    args = parser.parse_args()
    if args.points:
        rows = list(csv.DictReader(open(args.points, encoding="utf-8")))
    else:
        bench_csv.warn_if_busy()
        rows = measure(args)
        with open(args.out + ".csv", "w", encoding="utf-8", newline="") as f:
            bench_csv.write(f, rows, rows[0].keys())
    draw(rows, args.out)


if __name__ == "__main__":
    main()
