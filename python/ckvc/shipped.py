"""The tables that come with this package: tables/tables.json says what each is (docs/results/README.md explains its members)."""
from __future__ import annotations

import json
import os
import sys
from typing import Any, Dict, List

from transformers import PreTrainedModel

from .files import Error, read, refuse
from .fingerprint import same_model, sketch
from .hf_model import geometry_of
from .table import Table

FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "tables")


def descriptions() -> List[Dict[str, Any]]:
    """What FOLDER's tables.json says of each table. An empty list if there is no such file."""
    path = os.path.join(FOLDER, "tables.json")
    return json.loads(read(path, 1 << 20)) if os.path.exists(path) else []


def table_for(model: PreTrainedModel) -> Table:
    """The first of these tables that is known to be for this model, by its shape and by the sketch of its weights; a line on stderr says which. An Error of
    one line if none is."""
    g, but = geometry_of(model), ""
    for entry in descriptions():
        table = Table.read(os.path.join(FOLDER, entry["name"], "table.ckvt"))
        refuse(table.content_id != entry["content_id"], f"{table.name}: is not the table that tables.json describes; install the package again")
        try:
            table.check_model(g.n_layers, g.n_query_heads, g.n_kv_heads, g.head_dim)
        except Error:
            continue
        same, why = same_model(table, sketch(model))
        if same:
            print(f"ckvc: takes its own table {entry['name']}, which was made for {entry['model']}", file=sys.stderr)
            return table
        but += f"; {entry['name']} has its shape, but {why}"
    source = model.config._name_or_path or "DIR"
    raise Error(f"no table that comes with ckvc is known to be for the model {source}{but}; make one with `ckvc compile --model {source} --out run` "
                "and give run/table.ckvt")
