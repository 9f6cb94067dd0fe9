"""Holds the statistics of a report against the table that `fit --bootstrap` wrote with the same seed and number of replicates.

check_statistics.py TABLE.json REPORT.json: the output of `inspect --json --cells` and of `report`, T1 being that table.
"""
import json
import math
import sys


def flat(x):
    return [v for row in x for v in flat(row)] if isinstance(x, list) else [x]


table = json.load(open(sys.argv[1]))
report = json.load(open(sys.argv[2]))
statistics = report["tables"][0]["statistics"]
for side, shares, grid, entries, counts, neutral in (
    ("head", "sHEAD", "GRIDHEAD", "WEIGHT", "NHEAD", 1.0),
    ("gate", "sGATE", "GRIDGATE", "TAU", "NGATE", 0.9),
):
    got = statistics[side]
    assert got["missing"] is None, got["missing"]
    grid, values, share, n = table[grid], flat(table[entries]), flat(table[shares]), flat(table[counts])
    actions = len(grid)
    supported = 0
    for s, value in enumerate(values):
        chosen = min(range(actions), key=lambda a: abs(grid[a] - value))
        mine = got["entries"]["agree"][s]
        if sum(n[s * actions : (s + 1) * actions]) == 0:
            assert mine is None and got["entries"]["verdict"][s] == "no records", (side, s, mine)
            continue
        supported += 1
        assert abs(mine - share[s * actions + chosen]) < 1e-6, (side, s, mine, share[s * actions + chosen])
        assert (got["entries"]["verdict"][s] == "neutral") == (abs(grid[chosen] - neutral) < 1e-9), (side, s)
    assert got["decided"] + got["undecided"] + got["neutral"] == supported, side
    assert got["records"] == sum(n), side
    sizes = [p["prompts"] for p in got["curve"]]
    assert sizes[0] == 1 and sizes == sorted(set(sizes)) and sizes[-1] == got["prompts"], sizes
    whole = got["curve"][-1]["to_full"]["mean"]  # all prompts against all prompts
    assert whole is None or abs(whole - 1) < 1e-9, whole
    assert got["left_out"][0]["prompts"] == 1 and got["left_out"][-1]["prompts"] < got["prompts"]
    for p in got["left_out"]:
        for key in ("records", "rollouts"):
            assert abs(p[key] - got[key] * p["prompts"] / got["prompts"]) < 1e-6 * got[key] and got[key] > 0, (side, key, p)
    assert [row["alpha"] for row in got["alpha"]] == [0, 0.1, 0.25, 0.5, 0.75, 1, 2, 5]
    assert got["even_counts"] and all(row["changed_from_0"] == 0 for row in got["alpha"])  # balanced logging: vacuous
    bound, columns = got["bound"], ("n_prompts", "n_actions", "width", "uniform", "excess", "spread")
    for s in range(len(values)):  # in the order of the entries
        here, row = n[s * actions : (s + 1) * actions], [bound[c][s] for c in columns]
        if sum(here) == 0:
            assert row == [None] * len(columns), (side, s, row)
            continue
        prompts, logged, width, uniform, excess, spread = row
        assert prompts == min(c for c in here if c) and logged == sum(c > 0 for c in here), (side, s, row)  # one record a prompt
        assert abs(uniform - width * math.sqrt(math.log(2 * logged / 0.05) / (2 * prompts))) < 1e-12, (side, s, row)
        assert abs(excess - 2 * uniform) < 1e-12, (side, s, row)
        assert 0 <= spread <= width, (side, s, row)
    assert bound["states"] == supported
    assert bound["informative"] == sum(e is not None and e < d for e, d in zip(bound["excess"], bound["spread"]))
    if len(report["pairs"]):
        assert report["pairs"][0]["head"][0]["interval_missing"] is None
