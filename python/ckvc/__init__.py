"""Reads tables of ckvc (.ckvt) in numpy, by `ckvc.Table.read`. README.md, beside the package's sources, has examples.

What a table keeps of a prompt is computed by ckvc.hf (in torch) or ckvc.library (the C library) from the prompt's queries, keys and values. A table's evidence
(sections QHEAD ...) is packed with zstd. It is read if the module `zstandard` can be imported; if not, it is left out, and table.skipped names it."""
from .table import FEATURES, Error, Score, Table, bin_index, budget_tokens, capacities, head_floor

__version__ = "0.1.0"
__all__ = ["FEATURES", "Error", "Score", "Table", "bin_index", "budget_tokens", "capacities", "head_floor"]
