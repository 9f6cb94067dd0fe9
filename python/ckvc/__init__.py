"""Reads tables of ckvc (.ckvt), in numpy: `ckvc.Table.read`. README.md beside the package's sources has examples. The kept sets of a prompt come
from ckvc.hf (torch) or ckvc.library (the C library): both take queries, keys and values.

Evidence sections (QHEAD ...) are packed with zstd: they are read when the `zstandard` module can be imported and left out otherwise
(table.skipped names them)."""
from .table import FEATURES, Error, Score, Table, bin_index, budget_tokens, capacities, head_floor

__version__ = "0.1.0"
__all__ = ["FEATURES", "Error", "Score", "Table", "bin_index", "budget_tokens", "capacities", "head_floor"]
