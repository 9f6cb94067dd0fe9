#!/usr/bin/env python3
"""results_budgets.py SCORES.jsonl ...: the loss over the full cache by policy and budget, and its paired difference to the first table's, with 95%
intervals over prompts. results_budgets.py --spearman CKVC A.ckvt B.ckvt: rho of two tables' shares, by budget."""
import collections
import json
import math
import random
import subprocess
import sys


def interval(x, draws=2000):
    """Mean and percentile bootstrap over prompts."""
    rng = random.Random(1)
    means = sorted(sum(rng.choices(x, k=len(x))) / len(x) for _ in range(draws))
    return sum(x) / len(x), means[int(0.025 * draws)], means[int(0.975 * draws) - 1]


def ranks(x):
    order, out = sorted(range(len(x)), key=x.__getitem__), [0.0] * len(x)
    i = 0
    while i < len(order):
        j = i
        while j + 1 < len(order) and x[order[j + 1]] == x[order[i]]:
            j += 1
        for k in order[i:j + 1]:
            out[k] = (i + j) / 2
        i = j + 1
    return out


def spearman(a, b):
    a, b = ranks(a), ranks(b)
    ma, mb = sum(a) / len(a), sum(b) / len(b)
    cov = sum((x - ma) * (y - mb) for x, y in zip(a, b))
    return cov / math.sqrt(sum((x - ma) ** 2 for x in a) * sum((y - mb) ** 2 for y in b))


if sys.argv[1] == "--spearman":
    a, b = (json.loads(subprocess.run([sys.argv[2], "inspect", t, "--json"], check=True, capture_output=True).stdout) for t in sys.argv[3:5])
    for k, budget in enumerate(a["budgets"]):
        x, y = ([h[k] for layer in t["shares"] for h in layer] for t in (a, b))
        print(f"budget {budget:g}: rho of {len(x)} shares {spearman(x, y):.3f}")
    sys.exit()
for path in sys.argv[1:]:
    loss, entries, tables = collections.defaultdict(dict), collections.defaultdict(list), []
    for line in open(path):
        r = json.loads(line)
        name = r["policy"]
        if name == "table":
            if r["table"] not in tables:
                tables.append(r["table"])
            name = f"table {tables.index(r['table']) + 1} ({r.get('score', 'paper')})"
        elif r["table"]:
            name += f" of {r['table'][:6]}"
        loss[r["budget"], name][r["id"]] = r["loss_comp"] - r["loss_full"]
        entries[r["budget"], name].append(r["entries"])
    print(path)
    for budget in sorted({b for b, _ in loss}):
        rows = sorted(((sum(x.values()) / len(x), name) for (b, name), x in loss.items() if b == budget))
        first = next(x for (b, name), x in loss.items() if b == budget and name.startswith("table 1"))
        print(f"  budget {budget:g}, {len(first)} prompts: entries, loss over the full cache [95%], difference to table 1 [95%]")
        for _, name in rows:
            x = loss[budget, name]
            mean, lo, hi = interval(list(x.values()))
            d, dlo, dhi = interval([x[i] - first[i] for i in x])
            print(f"    {name:20} {sum(entries[budget, name]) / len(x):8.0f}  {mean:7.3f} [{lo:.3f}, {hi:.3f}]  {d:+7.3f} [{dlo:+.3f}, {dhi:+.3f}]")
