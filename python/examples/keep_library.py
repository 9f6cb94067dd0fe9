#!/usr/bin/env python3
"""Shows what a table keeps of a prompt, without torch and without a model: hands the numbers of a made-up prefill to the C library, and prints how many
positions each head keeps, and some of them. It takes seconds.

    CKVC_LIBRARY=build/release/libckvc_policy.so python3 python/examples/keep_library.py TABLE.ckvt [BUDGET]
"""
import sys

import numpy as np

import ckvc.library

if len(sys.argv) < 2:
    sys.exit(__doc__)
table = ckvc.library.Table.read(sys.argv[1])
print(table.info())
T, budget = 1000, float(sys.argv[2]) if len(sys.argv) > 2 else 0.25
score = table.score[table.nearest_budget(budget, T)]
print(f"{budget:g} of {T} tokens: mode {score.mode}, score {score.kind}")
rng, H, G = np.random.default_rng(0), table.n_query_heads, table.n_heads
D = table.theta.shape[2] - ckvc.FEATURES[score.features][0] if table.theta is not None else 64
p = ckvc.library.Prefill(table, H, D, T, budget, inv_freq=np.ones(D // 2), query_scale=D**-0.5)
for layer in range(table.n_layers):  # an engine hands over the queries, keys and values that its model's prefill computes
    for h in range(H):
        p.queries(layer, h, rng.standard_normal((p.rows, D)))
    for g in range(G):
        p.cache(layer, g, *rng.standard_normal((2, T, D)))
sets = p.keep(r_sem=9.0)
print("positions that each keeps:\n", np.array([[len(s) for s in of_layer] for of_layer in sets]))
print(f"layer 0: {len(sets[0][0])} kept, the last {sets[0][0][-5:]}")
