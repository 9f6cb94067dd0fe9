#!/usr/bin/env python3
"""What a table keeps of a prompt, in numpy alone: reads a table, makes up a prefill of one layer, prints sizes and sets. Seconds, no model.

    python3 python/examples/keep_numpy.py TABLE.ckvt [BUDGET]
"""
import sys

import numpy as np

import ckvc

if len(sys.argv) < 2:
    sys.exit(__doc__)
table = ckvc.Table.read(sys.argv[1])
print(table.info())
T, budget = 1000, float(sys.argv[2]) if len(sys.argv) > 2 else 0.25
block = table.nearest_budget(budget, T)
score = table.score[block]
print(f"{budget:g} of {T} tokens: block {table.budgets[block]:g}, mode {score.mode}, score {score.kind}")
rng = np.random.default_rng(0)
if not table.has_shares:  # the paper's: one set for a layer
    alpha, rho = rng.exponential(size=T), rng.gamma(9, 1 / 9, size=(table.n_heads, T))
    kept, candidates = table.keep(0, *table.bins(4.0, 9.0), block, alpha / alpha.mean(), rho, budget=budget)
    print(f"layer 0: {candidates} candidates, {len(kept)} kept, the last {kept[-5:]}")
else:  # of its own length for each head, or each layer; log scores [L, G, T] come from your prefill
    scores = np.log(rng.exponential(size=(table.n_layers, table.n_heads, T)))
    print("positions that each keeps:\n", table.capacities(block, T, budget=budget))
    sets = table.sets(block, scores, budget=budget)
    first = sets[0][0] if score.mode == "heads" else sets[0]
    print(f"layer 0: {len(first)} kept, the last {first[-5:]}")
