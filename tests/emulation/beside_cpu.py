#!/usr/bin/python3
"""A model calibrated, compiled and scored by `--backend cuda` beside the CPU in float32: rewards, tables, kept sets, demand shares.

usage: beside_cpu.py CKVC [MODEL] [PROMPTS]   (the program, built with CUDA or emulated; Debian's python3 with numpy)

Bounds are for models/ckvc-tiny-4l and -8l on prompts of this script (text of the repository; losses of about 3 nats). float32 differs by the order
of sums alone. With bf16 a logit errs by about 1e-2, a reward (a mean over the continuation) by a few 1e-3; where two entries' scores are closer
than their rounding the kept sets differ by one of them (a fifth of the sets do here), which moves a mean over 16 tokens by up to a few 1e-2, and
an action is chosen whose reward is about as good. So the share of equal choices is printed
with what the other choice costs, by the CPU's own rewards: of a prompt, and of the table's actions, which are fitted to two prompts here, by the
mean over them. A layer's gate is tried under the CPU's head table, and sets are kept by the CPU's tables, so that a difference is counted once.
A set is equal if all its entries are.
"""
import collections
import json
import os
import subprocess
import sys
import tempfile

import numpy as np

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
sys.path.insert(0, os.path.join(ROOT, "python"))
from ckvc.table import Table  # noqa: E402

# Largest reward difference; shares of equal choices of prompts and of actions in tables, cost of another one; shares of equal kept entries and
# sets; rank correlation of demand shares.
Bounds = collections.namedtuple("Bounds", "reward choices actions cost entries sets rho")
BOUNDS = {"f32": Bounds(1e-5, 0.99, 0.99, 1e-5, 0.999, 0.95, 0.9999), "bf16": Bounds(0.1, 0.6, 0.7, 0.06, 0.99, 0.6, 0.99)}
Measured = collections.namedtuple("Measured", "rewards rows shares heads gates")

ckvc = sys.argv[1]
model = sys.argv[2] if len(sys.argv) > 2 else os.path.join(ROOT, "models", "ckvc-tiny-4l")
n_prompts = sys.argv[3] if len(sys.argv) > 3 else "2"


def run(*args):
    done = subprocess.run([ckvc, *args, "-q"], capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"beside_cpu: ckvc {' '.join(args)}: exit {done.returncode}\n{done.stderr}")
    return done.stdout


def records(folder, grid):
    """(prompt, side, budget, layer, head, action) -> reward"""
    lines = map(json.loads, subprocess.check_output([ckvc, "inspect", folder, "--records"]).splitlines())
    return {(x["prompt_id"], int(x["kind"] == "gate"), x["budget"], x["layer"], x.get("kv_head", x.get("head", 65535)),
             int(np.abs(grid - x["action"]).argmin())): x["reward"] for x in lines}


def measure(folder, manifest, backend, compute):
    at, reference = os.path.join(folder, f"{backend}-{compute}"), os.path.join(folder, "cpu-f32")
    common = ["--model", model, "--manifest", manifest, "--limit", n_prompts, "--window", "16", "--backend", backend, "--compute", compute,
              "--continuation", "16"]
    rewards = ["--budget", "0.5", "--min-cell", "1", "--variants", "all"]
    run("calibrate", *common, *rewards, "--side", "head", "--head-grid", "0.5:1.5:0.5", "--gate-grid", "0.3:0.9:0.2", "--bins", "1,1", "--out", at + "-h")
    run("fit", at + "-h", "--out", at + "-h.ckvt", "--bootstrap", "0")
    run("calibrate", *common, *rewards, "--side", "gate", "--tables", reference + "-h.ckvt", "--out", at + "-g")
    run("fit", at + "-g", "--tables", reference + "-h.ckvt", "--out", at + "-g.ckvt", "--bootstrap", "0")
    run("calibrate", *common, "--budget", "0.25", "--side", "demand", "--out", at + "-d")
    run("fit", at + "-d", "--out", at + ".ckvt", "--bootstrap", "0")
    scores = run("score", *common, "--table", reference + "-g.ckvt", "--policy", "full,snapkv,kvzip", "--budget", "0.5", "--sets")
    rows = [json.loads(line) for line in scores.splitlines()]
    shares = np.concatenate([np.ravel(x) for x in Table.read(at + ".ckvt").capacities(0, 4096, "heads")])
    head, gate = Table.read(at + "-h.ckvt"), Table.read(at + "-g.ckvt")
    return Measured(records(at + "-h", head.head_grid) | records(at + "-g", gate.gate_grid), rows, shares, head.head_action, gate.gate_action)


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


def mean_reward(rewards, side, layer, head, action):
    return np.mean([r for k, r in rewards.items() if (k[1], *k[3:]) == (side, layer, head, action)])


def table_actions(cpu, cuda):
    """Whether each action of the tables is the CPU's, and what one that is not costs."""
    equal = np.concatenate([np.ravel(a == b) for a, b in zip(cpu[3:], cuda[3:])])
    costs = [0.0]
    for side, (mine, theirs) in enumerate(zip(cpu[3:], cuda[3:])):
        for at in np.argwhere(mine != theirs):
            layer, head = int(at[0]), int(at[1]) if side == 0 else 65535  # a gate is of no head
            costs.append(mean_reward(cpu.rewards, side, layer, head, mine[tuple(at)]) - mean_reward(cpu.rewards, side, layer, head, theirs[tuple(at)]))
    return equal, max(costs)


def compare(compute, cpu, cuda):
    difference = max([abs(cpu.rewards[k] - r) for k, r in cuda.rewards.items()] + [abs(a["reward"] - b["reward"]) for a, b in zip(cpu.rows, cuda.rows)])
    mine, theirs = best(cpu.rewards), best(cuda.rewards)
    other = [k for k in mine if theirs.get(k) != mine[k]]
    cost = max([cpu.rewards[k + (mine[k],)] - cpu.rewards.get(k + (theirs[k],), -np.inf) for k in other] or [0.0])
    actions, table_cost = table_actions(cpu, cuda)
    pairs = [(set(s), set(t)) for a, b in zip(cpu.rows, cuda.rows) for s, t in zip(heads(a), heads(b))]
    got = Bounds(difference, 1 - len(other) / len(mine), float(np.mean(actions)), max(cost, table_cost),
                 sum(len(s & t) for s, t in pairs) / sum(len(s) for s, _ in pairs), sum(s == t for s, t in pairs) / len(pairs),
                 float(np.corrcoef(ranks(cpu.shares), ranks(cuda.shares))[0, 1]))
    of = BOUNDS[compute]
    print(f"{compute}: {len(cuda.rewards)} rewards, largest difference {got.reward:.2g} of {of.reward:g}; "
          f"equal choices {got.choices:.4f} of {of.choices:g}, {len(actions)} actions of tables {got.actions:.4f} of {of.actions:g}, "
          f"another costs {got.cost:.2g} at most, of {of.cost:g}; equal kept entries {got.entries:.4f} of {of.entries:g}, "
          f"{len(pairs)} sets {got.sets:.4f} of {of.sets:g}; demand shares' rho {got.rho:.4f} of {of.rho:g}")
    assert set(cpu.rewards) == set(cuda.rewards) and len(mine) == len(theirs) and len(cpu.rows) == len(cuda.rows) and len(actions) > 0
    assert got.reward <= of.reward and got.choices >= of.choices and got.actions >= of.actions and got.cost <= of.cost
    assert got.entries >= of.entries and got.sets >= of.sets and got.rho >= of.rho


with tempfile.TemporaryDirectory() as folder:
    prompts = os.path.join(folder, "prompts.jsonl")
    with open(os.path.join(ROOT, "docs", "method.md"), encoding="utf-8") as text, open(prompts, "w", encoding="utf-8") as out:
        page = text.read()
        for i in range(int(n_prompts)):
            out.write(json.dumps({"id": f"p{i}", "source": "method", "text": page[2000 * i:2000 * i + 420]}) + "\n")
    reference = measure(folder, prompts, "cpu", "f32")
    for how in ("f32", "bf16"):
        compare(how, reference, measure(folder, prompts, "cuda", how))
