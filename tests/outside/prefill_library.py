#!/usr/bin/env python3
"""Sets of one prompt by torch (ckvc.prefill) against the C library's (ckvc.library): the golden tables, and others with --tables, each in all its modes,
on made-up queries, keys and values. A position may differ where two float32 sums are rounded otherwise: at most 0.5% of the sets."""
import os

import outside

torch, np = outside.modules("torch", "numpy")
outside.sys.path.insert(0, str(outside.ROOT / "python"))
import ckvc.library  # noqa: E402  (its folder was added above)
import ckvc.prefill  # noqa: E402

os.environ.setdefault("CKVC_LIBRARY", str(outside.ROOT / "build/release/libckvc_policy.so"))
a = outside.arguments(smollm2=False, tables=(str, "", "files, with commas between"))
torch.manual_seed(0)
n_sets = n_differ = 0
for path in [*map(str, sorted(outside.ROOT.glob("tests/golden/table/*.ckvt"))), *filter(None, a.tables.split(","))]:
    t = ckvc.library.Table.read(path)
    if t.operator != "paper" and not t.has_shares:
        continue  # a probe's
    D = t.theta.shape[2] - ckvc.FEATURES[t.score[0].features][0] if t.theta is not None else 8
    H, G, inv_freq = t.n_query_heads, t.n_heads, torch.rand(D // 2)
    for T in (100, 250, 1400):  # the last beyond the end of two features
        for budget in (x if x < 1 else int(x) for x in t.budgets.tolist()):
            for mode in ckvc.table.MODES:
                if {"heads": t.share, "layers": t.layer_share, "shared": t.tau}[mode] is None:
                    continue
                asked = t.score[t.nearest_budget(budget, T)]._replace(mode=mode)
                mine = ckvc.prefill.Prefill(t, ckvc.prefill.Geometry(t.n_layers, H, G, D, inv_freq), T, budget, mode)
                its = ckvc.library.Prefill(t, H, D, T, budget, inv_freq.double().numpy(), D**-0.5, score=asked)
                for layer in range(t.n_layers):
                    queries, keys, values = 2 * torch.randn(H, T, D), torch.randn(G, T, D), torch.randn(G, T, D)
                    mine.layer(queries, keys, values, D**-0.5)
                    for h in range(H if its.rows else 0):
                        its.queries(layer, h, queries[h, -its.rows :].numpy())
                    for g in range(G):
                        its.cache(layer, g, keys[g].numpy(), values[g].numpy())
                pairs = [x for of_layer in zip(mine.keep(9.0).positions, its.keep(9.0)) for x in zip(*of_layer)]
                n_sets, n_differ = n_sets + len(pairs), n_differ + sum(x.tolist() != y.tolist() for x, y in pairs)
outside.at_most(f"sets that differ, of {n_sets}", n_differ / n_sets, 0.005)
outside.done()
