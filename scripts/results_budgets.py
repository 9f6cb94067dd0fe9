#!/usr/bin/env python3
"""Makes tables of docs/results.md and docs/findings.md, in Markdown, with 95% intervals over prompts (percentile bootstrap; prompts of one
document are drawn together).

results_budgets.py [--quarter] [--names NAME,...] [--only TEXT] SCORES.jsonl[,SCORES.jsonl...] ...
    Makes a table for each argument (of files joined by commas, from the prompts that all of them have): policies by budgets. It has the
    first table's loss over the full cache and, for each other policy, its loss and the paired difference to the first table's. --names
    are the tables' names, in the order of the file. --only takes prompts whose source holds TEXT (!TEXT: whose source does not).
    --quarter compares with the first table at a quarter of each budget, where it was scored there.
results_budgets.py --spearman RUN RUN
    Prints rho of the shares that two demand runs give, by budget, with an interval by resampling the prompts of both; and beside it the
    rho of single prompts of one run, as a mean over pairs (the program is $CKVC, or `ckvc`)."""
import collections
import itertools
import json
import os
import random
import subprocess
import sys

DRAWS = 2000
NAMES = {"kvzip": "KVzip, a second prefill a prompt", "cake": "CAKE", "adakv": "AdaKV", "snapkv": "SnapKV", "pyramidkv": "PyramidKV", "h2o": "H2O",
         "streamingllm": "StreamingLLM", "expected-attention": "Expected Attention", "tova": "TOVA", "keydiff": "KeyDiff", "headkv": "HeadKV, our shares",
         "duoattention": "DuoAttention, our shares", "pooled": "our score, pooled over all heads", "identity": "the paper's score and thresholds, no table",
         "matched": "the paper's score, one threshold, as many in the mean", "top-k": "the paper's score", "window-pooled": "pooled window attention"}
ALIKE = "top-k", "random", "window-pooled"


def interval(x, documents):
    """The mean of the values x {id: value}, and the ends of its 95% interval by a percentile bootstrap over documents {id: document}."""
    rng, parts = random.Random(1), collections.defaultdict(list)
    for i, value in x.items():
        parts[documents[i]].append(value)
    parts = [(sum(p), len(p)) for p in parts.values()]
    draws = (rng.choices(parts, k=len(parts)) for _ in range(DRAWS))
    means = sorted(sum(total for total, _ in d) / sum(n for _, n in d) for d in draws)
    return sum(x.values()) / len(x), means[int(0.025 * DRAWS)], means[int(0.975 * DRAWS) - 1]


def spearman(a, b):
    """Spearman's rank correlation of two arrays [n]; equal values share their mean rank."""
    import numpy as np

    def ranks(x):
        _, group, count = np.unique(x, return_inverse=True, return_counts=True)
        return (np.cumsum(count) - (count - 1) / 2)[group]
    return float(np.corrcoef(ranks(a), ranks(b))[0, 1])


def demand_shares(run):
    """The demand that a run logged, {budget: array [prompts, heads of all layers]}: how many entries a head asks for, divided by the budget in tokens. The
    program $CKVC reads the run."""
    import numpy as np
    with open(run + "/run.json") as f:
        budgets = json.load(f)["budget"]
    records = subprocess.check_output([os.environ.get("CKVC", "ckvc"), "inspect", run, "--records"])
    lines = [r for r in map(json.loads, records.splitlines()) if r["kind"] == "demand"]
    heads = len({(r["layer"], r.get("kv_head", r.get("head"))) for r in lines})
    shares = np.array([r["entries"] / r["budget"] for r in lines]).reshape(-1, len(budgets), heads)
    return {b: shares[:, k] for k, b in enumerate(budgets)}


def rho_table(runs):
    """Prints the table of --spearman for two runs."""
    import numpy as np
    a, b = (demand_shares(r) for r in runs)
    rng = np.random.default_rng(1)
    print("| budget | ρ of the two | single prompts of the first; of the second |\n| --- | --- | --- |")
    for k in a:
        x, y = a[k], b[k]
        draws = sorted(spearman(*(z[rng.integers(len(z), size=len(z))].mean(0) for z in (x, y))) for _ in range(DRAWS))
        single = [sum(p) / len(p) for p in ([spearman(u, v) for u, v in itertools.combinations(z, 2)] for z in (x, y))]
        print(f"| {k:g} | {spearman(x.mean(0), y.mean(0)):.3f} ({draws[DRAWS // 40]:.3f} to {draws[-DRAWS // 40]:.3f}), {len(x)} and {len(y)} prompts "
              f"| {single[0]:.3f}; {single[1]:.3f} |")


def loss_table(paths, only, quarter, given):
    """Prints the table of policies by budgets for the score lines of these files. only, quarter: the options. given: titles by `table 1`, `table 2` and so
    on."""
    loss, entries, full, tables, documents = collections.defaultdict(dict), collections.defaultdict(dict), {}, [], {}
    scores = collections.defaultdict(dict)
    for line in itertools.chain.from_iterable(map(open, paths)):
        r = json.loads(line)
        if (only.removeprefix("!") in r["source"]) == only.startswith("!"):
            continue
        if r["table"] and r["table"] not in tables:
            tables.append(r["table"])
        number = tables.index(r["table"]) + 1 if r["table"] else 0
        name = f"table {number}" if r["policy"] == "table" else f"{r['policy']}@{number}" if number else r["policy"]
        scores[name] |= {r.get("score") or "paper": None}
        loss[name, r["budget"]][r["id"]] = r["loss_comp"] - r["loss_full"]
        entries[name, r["budget"]][r["id"]] = r["entries"] / r["T"]
        full[r["id"]], documents[r["id"]] = (r["loss_full"], r["T"]), r.get("document", r["id"])
    names = list(dict.fromkeys(n for n, _ in loss))
    budgets = sorted({b for _, b in loss}, key=lambda b: sum(entries[names[0], b].values()))
    full = {i: x for i, x in full.items() if all(i in by for by in loss.values())}
    loss = {key: {i: by[i] for i in full} for key, by in loss.items()}
    first = "table 1"
    if quarter:
        budgets = [b for b in budgets if (first, b / 4) in loss]
    lengths = [t for _, t in full.values()]
    if not lengths:
        print(f"{', '.join(paths)}: no such prompts\n")
        return
    of = f" of {len({documents[i] for i in full})} documents" if any(documents[i] != i for i in full) else ""
    print(f"{', '.join(paths)}: {len(full)} prompts{of}, T {min(lengths)} to {max(lengths)}, "
          f"loss of the full cache {sum(x for x, _ in full.values()) / len(full):.3f}\n")
    print("| | " + " | ".join(f"{b:g}" if b >= 1 else f"T/{1 / b:g}" for b in budgets) + " |\n|" + " --- |" * (len(budgets) + 1))
    for name in sorted(names, key=lambda n: (not n.startswith("table"), sum(sum(loss[n, b].values()) for b in budgets))):
        cells = []
        for b in budgets:
            x, base = loss[name, b], loss[first, b / 4 if quarter else b]
            mean, low, high = interval(base if name == first else x, documents)
            more = sum(entries[name, b][i] for i in x) / sum(entries[first, b][i] for i in x) - 1
            if name != first:
                difference, low, high = interval({i: x[i] - base[i] for i in x}, documents)
            cells.append(f"{mean:.3f} ({low:.3f} to {high:.3f})" if name == first else
                         f"{mean:.3f}, {difference:+.3f} ({low:.3f} to {high:.3f})" + (f" [{100 * more:+.0f}% entries]" if abs(more) > 0.005 else ""))
        policy, _, number = name.partition("@")
        beside = f"table {number}"
        title = f"{given.get(name, name)}, by score {' and '.join(scores[name])}" if name.startswith("table") else NAMES.get(policy, policy)
        if number:  # a control of a table, or a reference that keeps as many
            title += (", as many in each layer or head" if policy in ALIKE else "") + (f" ({given.get(beside, beside)})" if len(tables) > 1 else "")
        print(f"| {title} | " + " | ".join(cells).replace("-", "−") + " |")
    print()


arguments, options = sys.argv[1:], {}
if arguments[0] == "--spearman":
    rho_table(arguments[1:3])
else:
    while arguments[0].startswith("--"):
        key = arguments.pop(0)
        options[key] = True if key == "--quarter" else arguments.pop(0)
    given = {f"table {i + 1}": name for i, name in enumerate(options.get("--names", "").split(",")) if name}
    for paths in arguments:
        loss_table(paths.split(","), options.get("--only", ""), "--quarter" in options, given)
