#!/usr/bin/env python3
"""Sets of one prompt by torch (ckvc.prefill) against the C library's (ckvc.library): the golden tables, and others with --tables, each in all its modes,
on made-up queries, keys and values. And sets of one length by `kept_of_layer` against the library's under a floor of 1. A position may differ where two
float32 sums are rounded otherwise: at most 0.5% of the sets."""
import os
from unittest import mock

import outside

torch, np = outside.modules("torch", "numpy")
outside.sys.path.insert(0, str(outside.ROOT / "python"))
import ckvc.library  # noqa: E402  (its folder was added above)
import ckvc.prefill  # noqa: E402

os.environ.setdefault("CKVC_LIBRARY", str(outside.ROOT / "build/release/libckvc_policy.so"))
a = outside.arguments(smollm2=False, tables=(str, "", "files, with commas between"))
torch.manual_seed(0)
n_sets = n_differ = n_even = 0


def of_one_length(t, kind, T, budget, D, inv_freq):
    """(torch's set, the library's) of each head, of one length, by a ranking that reads no attention: `learned` or `bank`."""
    n, block, scale = ckvc.table.budget_tokens(budget, T), t.nearest_budget(budget, T), D**-0.5
    score = ckvc.Score(kind, 0, 0, False, 2, "heads")
    its = ckvc.library.Prefill(t, t.n_query_heads, D, T, budget, inv_freq.double().numpy(), scale, score=score, floor=1.0)
    mine, geometry = [], ckvc.prefill.Geometry(t.n_layers, t.n_query_heads, t.n_heads, D, inv_freq)
    for layer in range(t.n_layers):
        keys, values = torch.randn(2, t.n_heads, T, D)

        def kept_from(first):  # as a worker chooses that has the heads from the first on
            seen = None
            if kind == "bank":
                seen, _ = ckvc.prefill.attention_of(scale * ckvc.prefill.reference_queries(t, block, geometry, layer, T)[first:], keys[first:])
            return ckvc.prefill.kept_of_layer(t, block, geometry, layer, keys[first:], values[first:], n, seen, first_head=first).tolist()

        with mock.patch.object(t, "score", [score] * len(t.score)):
            mine += kept_from(0)
            assert kept_from(1) == mine[len(mine) - t.n_heads + 1 :]
        for g in range(t.n_heads):
            its.cache(layer, g, keys[g].numpy(), values[g].numpy())
    return list(zip(mine, (x.tolist() for of_layer in its.keep() for x in of_layer)))


for path in [*map(str, sorted(outside.ROOT.glob("tests/golden/table/*.ckvt"))), *filter(None, a.tables.split(","))]:
    t = ckvc.library.Table.read(path)
    if t.operator != "paper" and not t.has_shares:
        continue  # a probe's
    D = t.theta.shape[2] - ckvc.FEATURES[t.score[0].features][0] if t.theta is not None else 8
    H, G, inv_freq = t.n_query_heads, t.n_heads, torch.rand(D // 2)
    for T in (100, 250, 1400):  # the last beyond the end of two features
        for budget in (x if x < 1 else int(x) for x in t.budgets.tolist()):
            kinds = () if t.theta is None or t.score[0].features != 2 else ("learned",) if t.bank is None else ("learned", "bank")
            pairs = [x for kind in kinds for x in of_one_length(t, kind, T, budget, D, inv_freq)]
            n_sets, n_even, n_differ = n_sets + len(pairs), n_even + len(pairs), n_differ + sum(x != y for x, y in pairs)
            for mode in ckvc.table.MODES:
                if {"heads": t.share, "layers": t.layer_share, "lengths": t.length_share, "shared": t.tau}[mode] is None:
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
outside.at_most(f"sets that differ, of {n_sets}, {n_even} of them of one length", n_differ / n_sets, 0.005)
outside.done()
