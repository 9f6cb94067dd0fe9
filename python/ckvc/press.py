"""A press for kvpress: `CompilerKVPress(table, compression_ratio=0.75)`, for pipelines and for `with press(model)`.

What a table keeps depends on all layers of the prompt. So the cache is compressed when the last layer is computed, and not layer by layer."""
from __future__ import annotations

import contextlib
import dataclasses
import json
import pathlib
from typing import Any, Iterator, Optional, Union

import torch
from kvpress import BasePress
from transformers import PreTrainedModel
from transformers.cache_utils import Cache, DynamicLayer

from .files import Error, FilePath, publish, read, refuse
from .hf import Compression
from .json_text import json_object
from .prefill import Kept
from .table import BY_HEAD, FILE_MAX, Table

TABLE, CONFIG, CONFIG_MAX = "table.ckvt", "press_config.json", 1 << 20


class _Pressing(Compression):
    """Leaves a cache as kvpress's presses do: its tensors are cut, or `masked_key_indices` tell kvpress's patched attention which keys to hide."""

    def install(self, cache: Cache) -> None:
        refuse(len(self.kept) > 1, f"a batch of {len(self.kept)}: CompilerKVPress takes one prompt at a time")
        refuse(self.starts[0][0], "a prompt that is padded: CompilerKVPress takes one without padding")
        (kept,) = self.kept
        self.fit_in_place(cache)
        attention = {m.layer_idx: m for m in self.model.base_model.modules() if hasattr(m, "layer_idx") and hasattr(m, "num_key_value_groups")}
        lengths = {len(p) for of_layer in kept.positions for p in of_layer}
        if len(lengths) == 1 and (kept.mode not in BY_HEAD or kept.whole) and all(type(cache.layers[l]) is DynamicLayer for l in self._rows):
            self.holds = "cut"
            for layer, of_layer in zip((cache.layers[l] for l in self._rows), kept.positions):
                t = torch.from_numpy(of_layer[0].astype("int64")).to(layer.keys.device)
                layer.keys, layer.values = layer.keys[:, :, t], layer.values[:, :, t]
            return
        self.holds = "masked"
        for index, row in self._rows.items():
            hidden = torch.ones(self.geometry.n_kv_heads, kept.n_tokens, dtype=torch.bool)
            for of_head, p in zip(hidden, kept.positions[row]):
                of_head[torch.from_numpy(p.astype("int64"))] = False
            heads, positions = hidden.nonzero(as_tuple=True)
            attention[index].masked_key_indices = (torch.zeros_like(heads), heads, positions)


@dataclasses.dataclass
class CompilerKVPress(BasePress):
    """Keeps what a compiled table says.

    table: a Table, or the path of a .ckvt file. compression_ratio: the share of entries that is dropped, as in every press. The rest is the budget, and the
    table's nearest block serves it. mode: `heads`, `layers`, `lengths` or `shared`, in place of the one that the table recommends. fit: False keeps
    entries as they are, also where the table has a bank by which they are fitted.

    After a prefill, kept is a Kept with positions [L][G]. holds is `cut` if all sets have one size: the cache's tensors then hold only what is kept. Otherwise
    it is `masked`: kvpress's patched attention hides the evicted keys, as for its AdaKV press, and they stay in memory."""

    table: Union[Table, FilePath]
    compression_ratio: float = 0.0
    mode: Optional[str] = None
    fit: bool = True
    kept: Optional[Kept] = dataclasses.field(default=None, init=False, repr=False)
    holds: Optional[str] = dataclasses.field(default=None, init=False)

    def __post_init__(self) -> None:
        if not isinstance(self.table, Table):
            self.table = Table.read(self.table)

    @classmethod
    def from_pretrained(cls, folder: FilePath, **fields: Any) -> CompilerKVPress:
        """A press by a folder that holds table.ckvt, such as `python3 -m ckvc export --format safetensors` writes. If the folder has a press_config.json, it
        gives compression_ratio, mode and fit; `fields` take precedence over it."""
        config = pathlib.Path(folder) / CONFIG
        try:
            said = json_object(read(config, CONFIG_MAX)) if config.exists() else {}
        except (ValueError, RecursionError) as why:
            raise Error(f"{config}: {why}: want a JSON object, such as save_pretrained writes") from None
        return cls(str(pathlib.Path(folder) / TABLE), **{**{k: said[k] for k in ("compression_ratio", "mode", "fit") if k in said}, **fields})

    def save_pretrained(self, folder: FilePath) -> None:
        """Writes a folder that from_pretrained reads."""
        pathlib.Path(folder).mkdir(parents=True, exist_ok=True)
        said = {"compression_ratio": self.compression_ratio, "mode": self.mode, "fit": self.fit}
        for name, data in (TABLE, read(self.table.name, FILE_MAX)), (CONFIG, json.dumps(said).encode() + b"\n"):
            publish(pathlib.Path(folder) / name, data, force=True)

    def compress(self, *args: Any, **kwargs: Any) -> Any:
        raise Error("CompilerKVPress decides when all layers are there: it cannot be wrapped by presses that call it layer by layer")

    @contextlib.contextmanager
    def __call__(self, model: PreTrainedModel) -> Iterator[None]:
        """A context manager inside which the prompt that fills an empty cache is compressed. It must be a single sequence."""
        if self.compression_ratio == 0:
            yield
            return
        refuse(model.config.get_text_config()._attn_implementation != "sdpa", "CompilerKVPress wants attn_implementation='sdpa', kvpress patches it")
        pressing = _Pressing(model, self.table, 1 - self.compression_ratio, self.mode, self.fit)
        with pressing:
            yield
        if pressing.kept:
            (self.kept,), self.holds = pressing.kept, pressing.holds
