"""Reads tables of ckvc (.ckvt) and keeps sets with them, in numpy; see README.md beside the package's sources.

    import ckvc
    table = ckvc.Table.read("tables.ckvt")            # checks every sum; raises ckvc.Error
    print(table.info())                               # or: python3 -m ckvc tables.ckvt
    e, p = table.bins(r_struct=5.1, r_sem=12.0)       # the prompt's risk bins
    b = table.budget_index(512)
    for layer in range(table.n_layers):               # alpha [T], rho [L, G, T] from your prefill
        keep, n_candidates = table.keep(layer, e, p, b, alpha, rho[layer])
        print(layer, n_candidates, keep)              # ascending positions of the tokens to keep

A table with budgets for heads says how many positions each (layer, KV head) keeps, and by which score they are ranked:

    b = table.nearest_budget(256, n_tokens)
    print(table.score[b])                             # Score(kind='window', window=32, pool=7, norm=True, ..., mode='heads')
    sets = table.sets(b, scores, budget=256)          # of log scores [L][G][T]: [L][G] ascending positions; in mode `layers` [L]

The scores of a prefill come from ckvc.hf (torch) or ckvc.library (the C library): both take queries, keys and values, and give the sets.

Evidence sections (QHEAD ...) are packed with zstd: they are read when the `zstandard` module can be imported and left out otherwise
(table.skipped names them).
"""
from .scores import FEATURES, Error, bin_index, budget_tokens, capacities, count_above, head_floor, head_sets, retain, retain_head, score_paper, utility
from .table import Score, Table

__version__ = "0.1.0"
__all__ = ["FEATURES", "Error", "Score", "Table", "bin_index", "budget_tokens", "capacities", "count_above", "head_floor", "head_sets", "retain",
           "retain_head", "score_paper", "utility"]
