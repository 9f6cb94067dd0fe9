"""Which of the tables that come with this package is for a model."""
from __future__ import annotations

import os
import sys
from typing import Callable, Optional, Tuple

from transformers import PretrainedConfig, PreTrainedModel

from .files import Error, refuse
from .fingerprint import same_sketch, sketch, sketch_of_files
from .hf_model import geometry_of
from .hub import FOLDER, descriptions
from .table import Table


def _known_for(ours: str, suits: Callable[[Table], bool]) -> Tuple[Optional[Tuple[str, Table]], str]:
    """The path of the first of these tables that suits and is known to be for the model with the sketch `ours`, and the table; a line on stderr says which.
    None if none is; the text then says why those that suit are not. An Error says that a table is not the one that is described."""
    but = ""
    for entry in descriptions():
        path = os.path.join(FOLDER, entry["name"], "table.ckvt")
        table = Table.read(path)
        refuse(table.content_id != entry["content_id"], f"{table.name}: is not the table that tables.json describes; install the package again")
        if suits(table):
            same, why = same_sketch(table, ours)
            if same:
                print(f"ckvc: takes its own table {entry['name']}, which was made for {entry['model']}", file=sys.stderr)
                return (path, table), ""
            but += f"; {entry['name']}: {why}"
    return None, but


def table_for(model: PreTrainedModel, share: Optional[float] = None) -> Table:
    """The first of these tables that is known to be for this model, by its shape and by the sketch of its weights; a line on stderr says which. An Error of
    one line if none is. share: of the bytes, for which a table was compiled that counts bytes; None: a table that counts entries."""
    g = geometry_of(model)

    def suits(table: Table) -> bool:
        if (table.byte_share is None) != (share is None):
            return False
        try:
            table.check_model(g.n_layers, g.n_query_heads, g.n_kv_heads, g.head_dim)
        except Error:
            return False
        return True

    found, but = _known_for(sketch(model), suits)
    source, which, option = model.config._name_or_path, "no table that comes with ckvc", ""
    whose, make = (f"the model {source}", "make") if source else ("this model", "save the model as DIR, make")
    if share is not None:
        which, option = "no table that comes with ckvc and counts bytes", f" --bytes {share:.10g}"
    refuse(not found, f"{which} is known to be for {whose}{but}; {make} one with `ckvc compile --model {source or 'DIR'}{option} --out run` and give "
                      "run/table.ckvt")
    return found[1]


def path_without_attention(config: PretrainedConfig) -> str:
    """The path of the first of these tables that reads no attention, and is known to be for the model in the folder of this configuration; a line on stderr
    says which. An Error of one line if none is, or if the folder's weights are not there."""
    ours, source = sketch_of_files(config), config._name_or_path
    refuse(not ours, f"which table is for the model {source} is told from its safetensors files, which are not there or are of a family that is not known: name "
                     "a table; files of a hub are there after `hf download`")
    found, but = _known_for(ours, lambda table: not table.reads_attention)
    refuse(not found, f"vLLM needs a table that reads no attention, and none that comes with ckvc is known to be for the model {source}{but}; make one with "
                      f"`ckvc compile --model {source} --features 2 --mode lengths --classes 2 --out run`, and give run/table.ckvt")
    return found[0]
