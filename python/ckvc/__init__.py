"""Reads tables of ckvc (.ckvt), in numpy: `ckvc.Table.read`. README.md beside the package's sources has examples. The kept sets of a prompt come
from ckvc.hf (torch) or ckvc.library (the C library): both take queries, keys and values. Evidence sections (QHEAD ...) are packed with zstd: they are
read where the module `zstandard` can be imported, and else left out (table.skipped names them)."""
from .table import FEATURES, Error, Score, Table, bin_index, budget_tokens, capacities, head_floor

__version__ = "0.1.0"
__all__ = ["FEATURES", "Error", "Score", "Table", "bin_index", "budget_tokens", "capacities", "head_floor"]
