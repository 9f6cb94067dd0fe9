"""Reads tables of ckvc (.ckvt), in numpy, and keeps sets with them; see README.md beside the package's sources.

    import ckvc
    table = ckvc.Table.read("tables.ckvt")            # checks every sum; raises ckvc.Error
    print(table.info())                               # or: python3 -m ckvc tables.ckvt
    b = table.nearest_budget(256, n_tokens)           # the block of the table that serves this budget
    print(table.score[b])                             # Score(kind='window', window=32, pool=7, norm=True, ..., mode='heads')
    print(table.capacities(b, n_tokens, budget=256))  # [L, G]: how many positions each (layer, KV head) keeps
    print(table.bins(r_struct=5.1, r_sem=12.0))       # a prompt's risk bins

The kept sets of a prompt come from ckvc.hf (torch) or ckvc.library (the C library): both take queries, keys and values.

Evidence sections (QHEAD ...) are packed with zstd: they are read when the `zstandard` module can be imported and left out otherwise
(table.skipped names them).
"""
from .table import FEATURES, Error, Score, Table, bin_index, budget_tokens, capacities, head_floor

__version__ = "0.1.0"
__all__ = ["FEATURES", "Error", "Score", "Table", "bin_index", "budget_tokens", "capacities", "head_floor"]
