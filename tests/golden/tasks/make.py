#!/usr/bin/env python3
"""Golden numbers of lib/stats/task_scores, from NumPy, SciPy and statsmodels: make.py > tasks.json

Needs numpy, scipy, statsmodels, and some minutes. Shares no code with the C program."""
import itertools
import json

import numpy as np
from scipy import stats
from statsmodels.stats.contingency_tables import mcnemar

ENDS = (0.025, 0.975)


def macro(tasks):
    return float(np.mean([np.mean(t) for t in tasks]))


def tail(tasks):
    return float(np.percentile([np.mean(t) for t in tasks], 10))


def exact(a, b):
    """Ends of the whole distribution of two-level resamples of a small sample: (macro of a, tail of a, macro of a - b)."""
    n, atoms = len(a), ({}, {}, {})
    for drawn in itertools.product(range(n), repeat=n):
        lists = [list(itertools.product(range(len(a[t])), repeat=len(a[t]))) for t in drawn]
        weight = 1 / n**n / np.prod([len(x) for x in lists])
        for items in itertools.product(*lists):
            of = [[[x[t][i] for i in rows] for t, rows in zip(drawn, items)] for x in (a, b)]
            for k, v in enumerate((macro(of[0]), tail(of[0]), macro(of[0]) - macro(of[1]))):
                atoms[k][round(v, 12)] = atoms[k].get(round(v, 12), 0) + weight
    out = []
    for of in atoms:
        values, p = zip(*sorted(of.items()))
        below = np.cumsum(p)
        # 40,000 replicates find the atom where no step is within 0.0033 (four standard errors) of an end
        if any(abs(c - q) < 0.0033 for c in below for q in ENDS):
            return None
        out.append([values[int(np.searchsorted(below, q))] for q in ENDS])
    return out


def drawn(rng, a, b, n=100000):
    """The same by NumPy's own draws."""
    rows = np.empty((n, 3))
    for k in range(n):
        tasks = rng.integers(len(a), size=len(a))
        items = [rng.integers(len(a[t]), size=len(a[t])) for t in tasks]
        of = [[np.asarray(x[t])[i] for t, i in zip(tasks, items)] for x in (a, b)]
        rows[k] = macro(of[0]), tail(of[0]), macro(of[0]) - macro(of[1])
    return [list(np.quantile(rows[:, k], ENDS)) for k in range(3)], list(rows.std(axis=0))


def main():
    rng = np.random.default_rng(17)
    small = []
    while len(small) < 3:
        a, b = ([[float(v) for v in rng.integers(9, size=n) / 8] for n in (2, 3, 2)[: 2 + len(small) % 2]] for _ in "ab")
        ends = exact(a, b)
        if ends:
            small.append({"a": a, "b": b, "macro": macro(a), "tail": tail(a), "difference": macro(a) - macro(b), "ends": ends})
    a = [list((rng.random(n) < p).astype(float)) for n, p in zip((12, 20, 8, 16, 10, 9), (0.9, 0.5, 0.7, 0.2, 1.0, 0.6))]
    b = [[float(x * (rng.random() < 0.8)) for x in t] for t in a]
    ends, deviation = drawn(rng, a, b)
    large = {"a": a, "b": b, "macro": macro(a), "tail": tail(a), "difference": macro(a) - macro(b), "ends": ends,
             "deviation": deviation}
    one = [float(x) for x in np.round(rng.random(25), 6)]
    interval = stats.bootstrap((one,), np.mean, n_resamples=200000, method="percentile", rng=np.random.default_rng(5))
    single = {"a": one, "ends": list(interval.confidence_interval), "deviation": float(interval.standard_error)}
    pairs = []
    for x, y in [(0, 0), (1, 0), (0, 5), (0, 6), (3, 3), (2, 9), (10, 25), (40, 60), (120, 80), (1000, 1100), (0, 60)]:
        p = float(mcnemar([[7, x], [y, 11]], exact=True).pvalue)
        assert x + y == 0 or abs(p - stats.binomtest(x, x + y).pvalue) < 1e-12
        pairs.append({"b": x, "c": y, "p": p})
    print(json.dumps({"small": small, "large": large, "single": single, "mcnemar": pairs}))


main()
