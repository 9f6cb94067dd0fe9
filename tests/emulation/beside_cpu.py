#!/usr/bin/python3
"""A model calibrated and scored by `--backend cuda` beside the CPU in float32: rewards, choices, kept sets, demand shares.

usage: beside_cpu.py CKVC [MODEL] [PROMPTS]   (the program, built with CUDA or emulated; Debian's python3 with h5py and numpy)

Bounds are for models/ckvc-tiny-4l and -8l on prompts of this script (text of the repository; losses of about 3 nats). float32 differs by the order
of sums alone. With bf16 a logit errs by about 1e-2, a reward (a mean over the continuation) by a few 1e-3; where two entries' scores are closer
than their rounding the kept sets differ by one of them, and an action is chosen whose reward is as good. So the share of equal choices is printed
with what the other choice costs, by the CPU's own rewards.
"""
import json
import os
import subprocess
import sys
import tempfile

os.environ.setdefault("HDF5_PLUGIN_PATH", os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../build/release"))
import h5py  # noqa: E402
import numpy as np

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
sys.path.insert(0, os.path.join(ROOT, "python"))
from ckvc.table import Table  # noqa: E402

# Largest reward difference, shares of equal kept entries and of equal choices, cost of another choice, rank correlation of demand shares.
BOUNDS = {"f32": (1e-5, 0.999, 0.99, 1e-5, 0.9999), "bf16": (0.05, 0.99, 0.6, 0.02, 0.99)}

ckvc = sys.argv[1]
model = sys.argv[2] if len(sys.argv) > 2 else os.path.join(ROOT, "models", "ckvc-tiny-4l")
n_prompts = sys.argv[3] if len(sys.argv) > 3 else "2"


def run(*args):
    done = subprocess.run([ckvc, *args, "-q"], capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"beside_cpu: ckvc {' '.join(args)}: exit {done.returncode}\n{done.stderr}")
    return done.stdout


def records(folder):
    """(prompt, side, budget, layer, head, action) -> reward"""
    rewards = {}
    for base, _, files in os.walk(folder):
        for name in files:
            if name.endswith(".h5") and "pass" in base:
                with h5py.File(os.path.join(base, name)) as f:
                    r = {k: f["record/" + k][:] for k in ("prompt", "side", "budget", "layer", "head", "action", "reward")}
                for i in range(len(r["reward"])):
                    rewards[tuple(int(r[k][i]) for k in ("prompt", "side", "budget", "layer", "head", "action"))] = r["reward"][i]
    return rewards


def measure(folder, manifest, backend, compute):
    at = os.path.join(folder, f"{backend}-{compute}")
    common = ["--model", model, "--manifest", manifest, "--limit", n_prompts, "--window", "16", "--backend", backend, "--compute", compute]
    run("calibrate", *common, "--continuation", "16", "--budget", "0.25", "--bins", "1,1", "--min-cell", "1", "--variants", "8", "--out", at + "-r")
    run("calibrate", *common, "--continuation", "16", "--budget", "0.25", "--side", "demand", "--out", at + "-d")
    run("fit", at + "-d", "--out", at + ".ckvt", "--bootstrap", "0")
    scores = run("score", *common, "--continuation", "16", "--policy", "full,snapkv,kvzip", "--budget", "0.25", "--sets")
    rows = [json.loads(line) for line in scores.splitlines()]
    shares = np.concatenate([np.ravel(x) for x in Table.read(at + ".ckvt").capacities(0, 4096, "heads")])
    return records(at + "-r"), rows, shares


def heads(row):
    return [s for layer in row["sets"] for s in (layer if layer and isinstance(layer[0], list) else [layer])]


def ranks(x):
    return np.argsort(np.argsort(x, kind="stable"), kind="stable").astype(float)


def best(rewards):
    chosen = {}
    for key, reward in sorted(rewards.items()):
        if key[:-1] not in chosen or reward > rewards[key[:-1] + (chosen[key[:-1]],)]:
            chosen[key[:-1]] = key[-1]
    return chosen


def compare(compute, cpu, cuda):
    difference = max([abs(cpu[0][k] - r) for k, r in cuda[0].items() if k in cpu[0]] + [abs(a["reward"] - b["reward"]) for a, b in zip(cpu[1], cuda[1])])
    mine, theirs = best(cpu[0]), best(cuda[0])
    other = [k for k in mine if theirs.get(k) != mine[k]]
    cost = max([cpu[0][k + (mine[k],)] - cpu[0].get(k + (theirs[k],), -np.inf) for k in other] or [0.0])
    pairs = [(set(s), set(t)) for a, b in zip(cpu[1], cuda[1]) for s, t in zip(heads(a), heads(b))]
    kept = sum(len(s & t) for s, t in pairs) / sum(len(s) for s, _ in pairs)
    rho = float(np.corrcoef(ranks(cpu[2]), ranks(cuda[2]))[0, 1])
    equal = 1 - len(other) / len(mine)
    reward_bound, kept_bound, equal_bound, cost_bound, rho_bound = BOUNDS[compute]
    print(f"{compute}: {len(cuda[0])} rewards, {len(set(cpu[0]) & set(cuda[0]))} of the same actions; largest difference {difference:.2g} of {reward_bound:g}; "
          f"equal choices {equal:.4f} of {equal_bound:g}, another costs {cost:.2g} at most, of {cost_bound:g}; "
          f"equal kept entries {kept:.4f} of {kept_bound:g}; demand shares' rho {rho:.4f} of {rho_bound:g}")
    assert len(mine) == len(theirs) and len(cpu[1]) == len(cuda[1])
    assert difference <= reward_bound and equal >= equal_bound and cost <= cost_bound and kept >= kept_bound and rho >= rho_bound


with tempfile.TemporaryDirectory() as folder:
    prompts = os.path.join(folder, "prompts.jsonl")
    with open(os.path.join(ROOT, "docs", "method.md"), encoding="utf-8") as text, open(prompts, "w", encoding="utf-8") as out:
        page = text.read()
        for i in range(int(n_prompts)):
            out.write(json.dumps({"id": f"p{i}", "source": "method", "text": page[2000 * i:2000 * i + 420]}) + "\n")
    reference = measure(folder, prompts, "cpu", "f32")
    for how in ("f32", "bf16"):
        compare(how, reference, measure(folder, prompts, "cuda", how))
