"""Compresses caches in transformers. Inside the context manager `compress` a prompt's cache is cut after its prefill, and `generate` goes on from what is
kept. README.md has an example.

The prompt is what fills an empty cache. What is kept of it is decided when its last layer is computed. New tokens attend to what is kept and to each other;
their positions are T, T + 1, ... as without compression. Shapes: B sequences, H query heads, G KV heads, T prompt tokens, D head_dim."""
from __future__ import annotations

import contextlib
import ctypes
import functools
import inspect
import sys
import threading
import warnings
import weakref
from typing import Any, Callable, Dict, Iterable, Iterator, List, NamedTuple, Optional, Sequence, Tuple, Union

import torch
import torch.nn.functional as F
from torch.nn.utils.rnn import pad_sequence
from transformers import PreTrainedModel
from transformers.cache_utils import Cache, DynamicLayer, DynamicSlidingWindowLayer

from .fingerprint import check_model
from .fit import Rounding, fit_kept
from .held import Format, Packed, entry_bytes, formats_of, rotated, rotated_by_matrix, within
from .hf_model import IMPLEMENTATIONS, attention_of, check_attention, geometry_of, original_attention
from .prefill import Geometry, Kept, Prefill, log_softmax
from .shipped import table_for
from .table import Error, FilePath, Table, format_names, refuse

REFUSED = {"prefill_chunk_size": "a prefill in chunks, of which the first would be taken for the prompt,", "assistant_model": "assisted generation",
           "assistant_early_exit": "assisted generation", "use_mtp": "assisted generation", "prompt_lookup_num_tokens": "prompt lookup"}


class _Group(NamedTuple):
    """Heads that keep nearly equally many positions. Their keys are one tensor and their values another, which attention reads without a copy unless what is
    kept is held in few bits."""
    heads: List[int]  # b * G + g
    at: slice  # where these heads stand when the heads of all groups are listed, group after group
    longest: int  # rows for kept positions; the rows of new tokens follow them
    filled: Optional[torch.Tensor]  # [n, 1, 1, longest]: which rows hold a kept position; None if all do
    keys: torch.Tensor  # [n, rows, D]; the rows behind those of new tokens are for tokens to come
    values: torch.Tensor
    packed: Optional[Tuple[Packed, Packed]]  # kept keys and values [n, longest, D] in few bits; `keys` and `values` then hold only the rows of new tokens,
    # rotated as the formats rotate what is kept
    mean: Optional[MeanKeys]  # of these heads, and
    columns: Optional[torch.Tensor]  # [n, longest] where they keep positions; both only if formats take the mean out of keys

    @property
    def first(self) -> int:
        """The row of `keys` and `values` at which new tokens begin."""
        return 0 if self.packed else self.longest


class MeanKeys(NamedTuple):
    """The mean keys of a table's row before rotation, [B * G, D] float64 in the order of Geometry.before_rotation. shifts [B * G]: what is added to a cache's
    column to get the position there."""
    geometry: Geometry
    row: int
    means: torch.Tensor
    shifts: torch.Tensor

    def of(self, heads: Sequence[int]) -> MeanKeys:
        """Those of some heads, or of a batch whose heads are `heads` of this one's."""
        heads = torch.as_tensor(list(heads), device=self.means.device)
        return self._replace(means=self.means[heads], shifts=self.shifts[heads])

    def at(self, columns: torch.Tensor) -> torch.Tensor:
        """The means as keys at columns [B * G, S] of the cache, [B * G, S, D] float32."""
        means = self.means[:, None].expand(-1, columns.shape[1], -1)
        return self.geometry.rotated(self.row, means, columns + self.shifts[:, None]).float()

    def products(self, queries: torch.Tensor, columns: torch.Tensor) -> torch.Tensor:
        """The products of queries [B * G, N, D], as the model rotated them, with the means as keys at columns [B * G, S] of the cache: [B * G, N, S] float32."""
        return self.geometry.products(self.row, queries, self.means, columns + self.shifts[:, None])


class KeptLayer(DynamicLayer):
    """A cache layer that holds a prompt's kept keys and values, a different number for each head, and all those of new tokens. It tells transformers that it
    is as long as the whole sequence."""

    SPARE = 32  # rows that a group has for tokens to come

    def __init__(self, keys: torch.Tensor, values: torch.Tensor, positions: List[torch.Tensor], queries: torch.Tensor, owner: Compression,
                 mean: Optional[MeanKeys] = None):
        """keys, values [B, G, T, D] of the whole prompt, of which the kept rows are copied, or packed in the owner's formats. positions [B * G]: the kept ones of
        each head, ascending. queries [B, H, rows, D]: those of the prompt's last tokens. mean: of the prompt's keys, where the formats take it out."""
        self.is_initialized, self.dtype, self.device, self.mean = True, keys.dtype, keys.device, mean
        self.shape, self.owner, self.starts, self.queries, self.read = keys.shape, owner, owner.starts, queries, 0
        self._hadamard = [form.rotation for form in owner.formats] if owner.formats else [1, 1]  # how many numbers of keys, and of values, are held rotated together
        self._lay(positions, *([x[p] for x, p in zip(of.flatten(0, 1), positions)] for of in (keys, values)), new=0)

    @torch.inference_mode(False)  # what is prefilled in inference mode may go on outside it, where tensors of inference mode cannot be written to
    @torch.no_grad()
    def _lay(self, positions: List[torch.Tensor], keys: List[torch.Tensor], values: List[torch.Tensor], new: int) -> None:
        """Makes the groups, of heads that keep nearly equally many positions. keys, values [B * G][kept + new, D]."""
        self.positions, self.new, self.groups, start = positions, new, [], 0
        kept = [len(p) for p in positions]
        order = sorted(range(len(kept)), key=lambda head: -kept[head])
        while start < len(order):
            longest = kept[order[start]]
            heads = [head for head in order[start:] if kept[head] >= longest - longest // 8]
            lying = [of[0].new_zeros(len(heads), longest + new + self.SPARE, self.shape[3]) for of in (keys, values)]
            for of, out in zip((keys, values), lying):
                for head, rows in zip(heads, out):
                    rows[: kept[head]], rows[longest : longest + new] = of[head][: kept[head]], of[head][kept[head] :]
            lengths = torch.tensor([kept[head] for head in heads], device=self.device)
            filled = None if kept[heads[-1]] == longest else torch.arange(longest, device=self.device) < lengths[:, None, None, None]
            packed = mean = columns = None
            if self.mean:
                mean, columns = self.mean.of(heads), pad_sequence([positions[head] for head in heads], batch_first=True)
            if self.owner.formats:
                means = mean.at(columns) if mean else None, None
                packed = tuple(form.pack(x[:, :longest], m) for form, x, m in zip(self.owner.formats, lying, means))
                lying = [self._as_held(x[:, longest:], of).clone() for of, x in enumerate(lying)]
            self.groups.append(_Group(heads, slice(start, start + len(heads)), longest, filled, *lying, packed, mean, columns))
            start += len(heads)
        self._order = torch.tensor(order, device=self.device)  # numbers of heads, group by group
        self._place = self._order.argsort()

    def _as_held(self, x: torch.Tensor, of: int) -> torch.Tensor:
        """Rows of new tokens' keys (of = 0) or values (of = 1) [..., D] as groups hold them: in the model's type, and rotated as what is kept is."""
        return within(rotated_by_matrix(x, self._hadamard[of]), self.dtype)

    def _rows(self, group: _Group, of: int, less_mean: bool = False) -> torch.Tensor:
        """The keys (of = 0) or values (of = 1) of a group, [n, longest + new, D], in the model's type. If they are packed they stay rotated. less_mean: in
        float32, with kept keys less their mean."""
        rows = (group.keys, group.values)[of][:, : group.first + self.new]
        if group.packed is None:
            return rows
        numbers, dtype = self.owner.formats[of].numbers(group.packed[of]), torch.float32 if less_mean else rows.dtype
        if group.mean and of == 0 and not less_mean:
            numbers = numbers + rotated_by_matrix(group.mean.at(group.columns), self._hadamard[0])
        return torch.cat([within(numbers, dtype), rows.to(dtype)], dim=1)

    def _heads(self, of: int) -> List[torch.Tensor]:
        """The keys (of = 0) or values (of = 1) of each head, [B * G][kept + new, D]. If they are packed they are in float32, rotated back and with their mean, so
        that packing again what is kept changes nothing."""
        out = {}
        for group in self.groups:
            rows = (group.keys, group.values)[of][:, : group.first + self.new]
            if group.packed:
                form, mean = self.owner.formats[of], group.mean.at(group.columns) if group.mean and of == 0 else None
                kept = form.unpack(group.packed[of], torch.float32, mean)
                rows = torch.cat([kept, rotated(rows.float(), form.rotation)], dim=1)
            out.update((head, torch.cat([x[: len(self.positions[head])], x[group.longest :]])) for head, x in zip(group.heads, rows))
        return [out[head] for head in range(len(out))]

    @torch.compiler.disable
    def update(self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any) -> Tuple[torch.Tensor, torch.Tensor]:
        """Stores new keys and values [B, G, n, D] and returns them as they came. What the layer holds is read by `attend` alone."""
        refuse(not self.owner.active, "a compressed cache is used inside `with ckvc.hf.compress(...)`, where it was made")
        n = key_states.shape[2]
        self.owner.check_new(self.owner._collecting is None)
        self.owner.check_context(self.get_seq_length() + n)
        keys, values = (self._as_held(x.flatten(0, 1)[self._order], of) for of, x in enumerate((key_states, value_states)))
        for i, group in enumerate(self.groups):
            at = group.first + self.new
            if at + n > group.keys.shape[1]:
                room = (len(group.heads), n + self.SPARE, self.shape[3])
                with torch.inference_mode(False), torch.no_grad():
                    more = [torch.cat([x[:, :at], x.new_zeros(room)], dim=1) for x in (group.keys, group.values)]
                self.groups[i] = group = group._replace(keys=more[0], values=more[1])
            group.keys[:, at : at + n], group.values[:, at : at + n] = keys[group.at], values[group.at]
        self.new += n
        key_states.ckvc_layer = self  # the attention function gets no cache, and finds this layer by the keys
        return key_states, value_states

    def attend(self, query: torch.Tensor, scaling: Optional[float], sinks: Optional[torch.Tensor] = None) -> torch.Tensor:
        """Attention of the last n new tokens, query [B, H, n, D], to all that the layer holds, and to sinks [H]. Returns [B, n, H, D]."""
        (B, H, n, D), self.read = query.shape, self.new
        if self.owner.rows:
            self.queries = torch.cat([self.queries, query], dim=2)[:, :, -self.owner.rows :]
        rows = query.reshape(len(self.positions), -1, n, D)[self._order]  # [heads, H / G, n, D]
        rows = rows.transpose(1, 2) if n == 1 else rows  # the query heads of a KV head see the same keys, so that they become the rows of one product
        scaling, as_held, out = scaling or D**-0.5, rotated_by_matrix(rows, self._hadamard[0]), []
        # For one token the mean's logits cost less than the mean key at each position. They are large, and a half-precision type is too coarse for them.
        less_mean = self.mean is not None and n == 1
        for group in self.groups:
            keys, values = (self._rows(group, of, less_mean)[:, None].expand(-1, rows.shape[1], -1, -1) for of in (0, 1))
            queries, mask = as_held[group.at].to(keys.dtype), self._seen(group, n)
            if less_mean or sinks is not None:
                of_mean = scaling * group.mean.products(rows[group.at].flatten(1, 2), group.columns) if less_mean else None
                mask = self._added(group, queries, mask, of_mean, sinks)
            if sinks is not None:
                keys, values = F.pad(keys, (0, 0, 0, 1)), F.pad(values, (0, 0, 0, 1))
            out.append(F.scaled_dot_product_attention(queries, keys, values, mask, scale=scaling))
        attended = within(rotated_by_matrix(torch.cat(out)[self._place], self._hadamard[1]), query.dtype)
        return attended.view(B, H, n, D).transpose(1, 2).contiguous()

    def _added(self, group: _Group, queries: torch.Tensor, seen: Optional[torch.Tensor], of_mean: Optional[torch.Tensor], sinks: Optional[torch.Tensor]) -> torch.Tensor:
        """What is added to the logits of a group's queries [heads, ., ., D], in their shape: -inf where a row is not `seen`; the logits of_mean
        [heads, ., longest] of the mean, where kept keys are read without it; and for sinks [H] one more column, for a key of zeros."""
        added = queries.new_zeros(*queries.shape[:3], group.longest + self.new)
        if of_mean is not None:
            added[..., : group.longest] = of_mean.view(*queries.shape[:3], -1)
        if seen is not None:
            added.masked_fill_(~seen, -torch.inf)
        if sinks is not None:
            of_head = sinks.to(added).view(self.shape[1], -1)[self._order[group.at] % self.shape[1]]
            of_head = of_head[:, None] if queries.shape[1] == 1 else of_head[..., None]
            added = torch.cat([added, of_head[..., None].expand(*queries.shape[:3], 1)], dim=3)
        return added

    def _seen(self, group: _Group, n: int) -> Optional[torch.Tensor]:
        """Which of a group's rows the last n new tokens see, [heads or 1, 1, n, rows] with True for those seen; None if they see all."""
        if group.filled is None and n == 1:
            return None
        t = torch.arange(self.new, device=self.device)
        kept = group.filled if group.filled is not None else t.new_ones((1, 1, 1, group.longest), dtype=torch.bool)
        new = t <= t[self.new - n :, None]
        return torch.cat([kept.expand(-1, -1, n, -1), new.expand(len(kept), 1, -1, -1)], dim=3)

    def spread(self) -> Tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """keys and values [B, G, length, D], with 0 where a position was dropped, and a mask [B, G, length] of the positions that are held."""
        B, G, T, D = self.shape
        keys = self.groups[0].keys.new_zeros(B * G, T + self.new, D)
        values, held = torch.zeros_like(keys), torch.zeros(keys.shape[:2], dtype=torch.bool, device=self.device)
        for head, (p, k, v) in enumerate(zip(self.positions, self._heads(0), self._heads(1))):
            at = torch.cat([p, torch.arange(T, T + self.new, device=self.device)])
            keys[head, at], values[head, at], held[head, at] = within(k, keys.dtype), within(v, keys.dtype), True
        return keys.unflatten(0, (B, G)), values.unflatten(0, (B, G)), held.unflatten(0, (B, G))

    def _one(self, of: int, *written: torch.Tensor) -> torch.Tensor:
        """keys (of = 0) or values (of = 1) [B, G, length, D], for code that reads them without `attend`. That works only if nothing was dropped. written: what
        a caller tried to set, which is refused."""
        spread = self.spread()
        refuse(written or not spread[2].all(), "a layer of a compressed cache holds each head's own positions, not one tensor of keys and one of values")
        return spread[of]

    keys = property(lambda self: self._one(0), lambda self, x: self._one(0, x))
    values = property(lambda self: self._one(1), lambda self, x: self._one(1, x))

    def reset(self) -> None:
        """Becomes a plain, empty layer, so that what fills it next is a prompt. (Before transformers 5.24 its own layers keep their length, filled with
        zeros.)"""
        vars(self).clear()
        self.__class__ = DynamicLayer  # type: ignore[assignment]
        DynamicLayer.__init__(self)

    def get_seq_length(self) -> int:
        return self.shape[2] + self.new

    def get_mask_sizes(self, query: Any) -> Tuple[int, int]:
        """The length and the offset of masks. query: how many tokens come; before transformers 5.5, their positions."""
        return self.get_seq_length() + (query if isinstance(query, int) else len(query)), 0

    def crop(self, *by: int) -> None:
        """Crops new tokens. What the argument means differs between versions of transformers, so a plain layer of the same length is cropped to find out."""
        plain, length = DynamicLayer(), self.get_seq_length()
        plain.update(*[torch.empty(1, 1, length, 1)] * 2)
        plain.crop(*by)
        gone = length - plain.get_seq_length()
        refuse(gone > self.new, f"a compressed prompt of {self.shape[2]} tokens cannot be cropped to {length - gone}")
        self.new, self.queries = self.new - gone, self.queries[:, :, : max(self.queries.shape[2] - gone, 0)]

    def batch_select_indices(self, indices: torch.Tensor) -> None:
        B, G = self.shape[:2]
        chosen = torch.arange(B)[torch.as_tensor(indices).cpu()].tolist()
        if chosen == list(range(B)):
            return
        heads = [b * G + g for b in chosen for g in range(G)]
        self.shape, self.queries = torch.Size((len(chosen), *self.shape[1:])), self.queries[chosen]
        lying = [[of[h] for h in heads] for of in (self.positions, self._heads(0), self._heads(1))]
        self.starts, self.mean = [self.starts[b] for b in chosen], self.mean and self.mean.of(heads)
        self._lay(*lying, new=self.new)

    reorder_cache = batch_select_indices

    def batch_repeat_interleave(self, repeats: int) -> None:
        self.batch_select_indices(torch.arange(self.shape[0]).repeat_interleave(repeats))


class Compression:
    """What `compress` returns. Inside its `with` block every prefill of the model is compressed. After a prefill, it has these attributes:

    kept: a Kept for each sequence of the batch, which is `whole` if the prompt was too short to cut. holds: `cut` (only kept keys and values are there,
    equally many for all heads of a layer), `ragged` (the same, but each head has its own number) or `masked` (evicted positions are hidden, and no memory is
    saved, because this class of cache cannot be cut). kept_bytes, full_bytes: the size of the prompt's keys and values as they are held, and before. formats: how
    the prompt's kept keys and values are stored; None: in the model's type. Those of later tokens are always in the model's type. `repr` shows the budget, both
    sizes and `holds`.

    The model runs one call at a time, and another thread's call is refused. The end of the block waits for a call that still runs; if an exception ends the
    block, that call ends at its next token. The end of the block is an Error if more tokens than the table's window were read at once and no prompt was
    compressed."""

    def __init__(self, model: torch.nn.Module, table: Optional[Table], budget: Optional[float] = None, mode: Optional[str] = None, fit: bool = True,
                 formats: Optional[str] = None, bytes: Optional[float] = None):
        models = [m for m in model.modules() if isinstance(m, PreTrainedModel)]  # the model itself, or one that PEFT, torch.compile or others have wrapped
        refuse(not models, f"{type(model).__name__}: want a model of transformers, or one that holds such a model")
        table = table_for(models[0], bytes) if table is None else table
        if bytes is not None:
            refuse(budget is not None, "bytes counts bytes and budget entries: want one of them")
            block = table.byte_block(bytes)
            budget, formats = float(table.budgets[block]), table.holds(block) if formats is None else formats
        if budget is not None:
            table.check_budget(budget)
        self.model, self.table, self.budget, self.mode, self.fit, self.active = models[0], table, budget, mode, fit, False
        self.geometry = g = geometry_of(self.model)
        table.check_model(g.n_layers, g.n_query_heads, g.n_kv_heads, g.head_dim)
        check_model(table, self.model)
        self.formats: Optional[Tuple[Format, Format]] = None if formats is None else formats_of(formats, g.head_dim)
        blocks = [b for b in range(table.n_budgets) if table.budgets[b] == budget] or range(table.n_budgets)
        table.note_budget(budget)
        table.note_formats(blocks, format_names(formats) if formats else None)
        self.kept: List[Kept] = []
        self.holds: Optional[str] = None
        self.kept_bytes = self.full_bytes = 0
        self.rows = 0  # how many of the newest queries a layer remembers, for recompress
        self.starts: List[Tuple[int, int]] = []  # for each sequence, the column of the prompt's first token, and that token's position
        self._collecting: Optional[List[Prefill]] = None
        self._rows = {layer: row for row, layer in enumerate(g.layers)}
        self._queries: List[torch.Tensor] = []  # [L] tensors [B, H, rows, D] of the prompt's last queries
        self._sinks: Dict[int, Optional[torch.Tensor]] = {}  # by the table's row, [H]
        # [L, B, G, T] bool, if the cache of the current call is masked: True for positions that are kept, False for those that are hidden
        self._hidden: Optional[torch.Tensor] = None
        self._lock, self._restored = threading.RLock(), contextlib.ExitStack()  # held during a call; what the block's end undoes
        self._context = getattr(self.model.config.get_text_config(), "max_position_embeddings", None)
        self._unused: Optional[weakref.finalize] = None  # warns, when what `compress` returned is dropped, that its block was never entered
        self._attends, self._before = contextlib.ExitStack(), ""  # the implementation that `_attention` replaces; "" while it replaces none
        self._scaling = next((m.scaling for m in self.model.modules() if hasattr(m, "scaling") and hasattr(m, "layer_idx")), g.head_dim**-0.5)

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: budget {self.budget}, {self.kept_bytes:,} of {self.full_bytes:,} bytes kept, holds {self.holds}>"

    def __deepcopy__(self, memo: Any) -> Compression:
        return self  # a copy of a cache belongs to the same block

    def __reduce__(self) -> Any:
        raise Error("a compressed cache is used inside its `with` block: it cannot be pickled")

    def __enter__(self) -> Compression:
        if self._unused:
            self._unused.detach()
        base, (first, *_) = self.model.base_model, self.geometry.layers
        uncopied = self._refused("a copy of the model")
        refuse(vars(base).setdefault("__deepcopy__", uncopied) is not uncopied, "the model is compressed by another `with` block already: leave that first")
        self._restored.callback(delattr, base, "__deepcopy__")
        self._restored.callback(self._attend_by, None)
        self._put(base, "forward", torch.compiler.disable(self._passing(base.forward)))
        if hasattr(self.model, "generate"):
            self._put(self.model, "generate", self._whole_prefill(self.model.generate))
            self._put(self.model, "init_continuous_batching", self._refused("continuous batching (generate_batch, cache_implementation='paged')"))
        for layer in [m for m in base.modules() if getattr(m, "layer_idx", None) == first][:1]:
            self._restored.callback(layer.register_forward_pre_hook(self._notice, with_kwargs=True).remove)
        self.active, self._read, self._served = True, 0, False  # most tokens that were read at once; whether a prompt was compressed
        return self

    def __exit__(self, *exception: Any) -> None:
        self.active = exception[0] is None
        with self._lock:
            self.active = False
            self._restored.close()
        if exception[0] is None and self._read > self.table.window and not self._served:
            raise Error(f"{type(self.model).__name__} read {self._read} tokens at once, more than the table's window of {self.table.window}, and no prompt was "
                        "compressed: want one that fills an empty cache by the model's own generate or forward")

    def _put(self, module: torch.nn.Module, name: str, value: Any) -> None:
        """Sets an attribute of one of the model's modules. The end of the block restores what it was, or removes it if there was none."""
        before = vars(module).get(name)
        self._restored.callback(lambda: delattr(module, name) if before is None else setattr(module, name, before))
        setattr(module, name, value)

    def _refused(self, what: str) -> Callable[..., None]:
        """A function that stands in for one of the model's and refuses its call."""
        return lambda *args, **kwargs: refuse(True, f"{what} does not go inside `with ckvc.hf.compress(...)`: leave the block first")

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        """A context manager around one call of the model. It refuses the call of a second thread, and one that begins after the block."""
        refuse(not self._lock.acquire(blocking=False), "another thread is in a call of the compressed model: want one call at a time")
        read = self._read
        try:
            refuse(not self.active, "the `with ckvc.hf.compress(...)` in which this call was made has been left: want the call to begin inside it")
            yield
        except BaseException:
            self._read = read  # the caller knows that the call failed, so the block's end need not say it
            raise
        finally:
            self._collecting = self._hidden = None
            self._lock.release()

    @torch.compiler.disable
    def _notice(self, module: torch.nn.Module, args: Any, kwargs: Any) -> None:
        """A hook that notes how many tokens are read at once, in whatever way a caller goes through the layers."""
        hidden = kwargs.get("hidden_states", args[0] if args else None)
        self._read = max(self._read, 0 if hidden is None else hidden.shape[-2])

    def _passing(self, forward: Callable[..., Any]) -> Callable[..., Any]:
        """The decoder's forward, with `_begin` before it and `_end` after it."""
        @functools.wraps(forward)
        def checked(*args: Any, **kwargs: Any) -> Any:
            with self._alone():
                self._begin(args, kwargs)
                output = forward(*args, **kwargs)
                self._end(output)
                return output
        return checked

    def _attend_by(self, among: Optional[Sequence[str]]) -> None:
        """From now on the model attends by `_attention`, which replaces one of the implementations `among` (any, if the list is empty). None: it attends as it
        did before."""
        if among is None:
            self._attends.close()
            self._before = ""
        elif not self._before:
            self._before = self._attends.enter_context(attention_of(self.model, self._attention, among))
        elif among and self._before not in among:  # any implementation may prefill a cache that can be cut, and was replaced then
            raise Error(f"attention implementation {self._before}: want {' or '.join(among)}, for the score reads attention, or the cache cannot be cut")

    def _whole_prefill(self, generate: Callable[..., Any]) -> Callable[..., Any]:
        """The model's generate, with a check of its options. Some of them make it feed a prompt in chunks, or feed guessed tokens, which forward passes alone
        do not show."""
        signature = inspect.signature(generate)

        @functools.wraps(generate)
        def checked(*args: Any, **kwargs: Any) -> Any:
            given = {**kwargs, **signature.bind_partial(*args).arguments}
            config = given.get("generation_config") or self.model.generation_config
            for k, why in REFUSED.items():
                refuse(given.get(k, getattr(config, k, None)) not in (None, False), f"{why} ({k}) does not go with a compressed cache: leave it out")
            refuse(given.get("use_cache", getattr(config, "use_cache", None)) is False, "use_cache=False leaves no cache to compress: leave it out")
            with self._alone():
                return generate(*args, **kwargs)
        return checked

    def check_context(self, n_tokens: int) -> None:
        """An Error if a sequence of n_tokens does not fit the model's context."""
        if self._context is not None and n_tokens > self._context:
            raise Error(f"{n_tokens} tokens are more than the model's context of {self._context} (config.json, max_position_embeddings)")

    def check_new(self, holds: bool) -> None:
        """An Error if `holds` is False. A call in which `_begin` found no cache, or an empty one, is taken for a prompt. If its tokens turn out to follow
        others, the cache came in by an argument whose name `_begin` does not know. holds: whether what was found then agrees with what `_begin` took the call
        for."""
        refuse(not holds, f"{type(self.model).__name__}: it takes its cache by a name that is not known: want cache, or past_key_values")

    def _begin(self, args: Any, kwargs: Any) -> None:
        """Says before a call of the decoder what it is, by the cache that it was given, and prepares it. If the cache is empty, the call is a prompt: its
        padding and positions are checked, and its layers will be collected. Otherwise its tokens go on behind a prompt. An Error says what is refused."""
        cache, ids = kwargs.get("cache", kwargs.get("past_key_values")), kwargs.get("input_ids", args[0] if args else None)
        shape, padding = (ids if ids is not None else kwargs["inputs_embeds"]).shape, kwargs.get("attention_mask")
        padding = padding if isinstance(padding, torch.Tensor) and padding.ndim == 2 else None
        if (cache is None and kwargs.get("use_cache") is False) or (cache is not None and cache.get_seq_length() > 0):
            if cache is not None:
                refuse(getattr(cache, "ckvc", None) is not self, "a cache that was not filled inside this block: want an empty one, or one that was")
                self._hidden = getattr(cache, "ckvc_hidden", None)
                self._attend_by(IMPLEMENTATIONS if self.rows else ())
            layer = cache.layers[self.geometry.layers[0]] if cache is not None else None
            refuse(padding is not None and isinstance(layer, KeptLayer) and not bool(padding[:, layer.shape[2] :].all()),
                   "a later turn that is padded: want turns of equal length, or one sequence at a time")
            return
        self._ids, self._queries = ids, []
        first = [0] * shape[0]  # for each sequence, the column where its prompt begins, behind the padding on its left
        if padding is not None:
            first = (padding != 0).int().argmax(dim=1).tolist()
            refuse(not padding[:, -1].all(), "a batch that is padded on the right: want padding_side='left'")
            refuse(not all(row[start:].all() for row, start in zip(padding, first)), "an attention mask with a hole: want its zeros on the left alone")
        self._width = shape[1]
        self.check_context(self._width)
        positions, at = kwargs.get("position_ids"), first  # the position of each prompt's first token, by which its key was rotated
        if positions is not None:
            rows = [row[start:] for row, start in zip(positions.expand(len(first), -1), first)] if positions.ndim == 2 else []
            refuse(not rows or any((row.diff() != 1).any() for row in rows),
                   "position_ids that leave gaps, or padding in a mask by layer (static caches): want each prompt's ascending by one")
            at = [int(row[0]) for row in rows]
        self.starts = list(zip(first, at))
        self._collecting = self._prefills(self._width)
        dynamic = all(type(x) in (DynamicLayer, DynamicSlidingWindowLayer) for x in getattr(cache, "layers", ()))
        if self.rows or getattr(cache, "offloading", False) or not dynamic:
            return self._attend_by(IMPLEMENTATIONS)
        self._attend_by(None)  # `_attention` will see new tokens only, so the configuration must say whether attention is plain
        config = self.model.config.get_text_config()
        slide = not {"full_attention", "attention"}.intersection(getattr(config, "layer_types", None) or ())
        check_attention(self.model, self._width, {"sliding_window": getattr(config, "sliding_window", None) if slide else None,
                                                  "softcap": getattr(config, "attn_logit_softcapping", None)})

    def _prefills(self, width: int) -> List[Prefill]:
        """A Prefill for each sequence of a batch of `width` columns, its padding left out. Sets self.rows to the number of last queries that they read."""
        out = [Prefill(self.table, self.geometry, width - first, self.budget, self.mode, offset) for first, offset in self.starts]
        self.rows = max(p.rows for p in out)
        return out

    @torch.no_grad()
    def _end(self, output: Any) -> None:
        """Compresses the cache after a prompt. After later tokens it checks that each compressed layer was read by `_attention`. output: what the decoder
        returned."""
        collected, self._collecting, cache = self._collecting, None, getattr(output, "cache" if hasattr(output, "cache") else "past_key_values", None)
        if collected is None or cache is None:
            if cache is not None and any(isinstance(x, KeptLayer) and x.read != x.new for x in cache.layers):
                raise Error(f"{type(self.model).__name__}: a layer that sees every token does not use transformers' AttentionInterface")
            return
        self.compress(cache, collected, output)
        cache.ckvc, self._served = self, True

    def compress(self, cache: Cache, collected: List[Prefill], output: Any) -> None:
        """Decides by the table what is kept of the prompts that have just filled a cache, and cuts the cache to it."""
        self.check_new(cache.get_seq_length() == self._width)
        self.check_rows(cache)
        if not self._before:
            for row, layer in enumerate(cache.layers[l] for l in self.geometry.layers):
                self._collect(collected, row, layer.keys[:, :, :0], layer.keys, layer.values)
        r_sem: List[Optional[float]] = [None] * len(collected)
        if any(p.needs_r_sem for p in collected):  # the perplexity: exp of the mean loss of the last W prompt tokens
            refuse(self._ids is None, "the table has perplexity bins, which need token ids: call the model with input_ids")
            W = self.table.window
            logits = self.model.get_output_embeddings()(output.last_hidden_state[:, -W - 1 : -1])
            loss = [-log_softmax(rows).gather(1, ids[-W:, None].to(rows.device)) for rows, ids in zip(logits, self._ids)]
            r_sem = [float(x.mean(dtype=torch.float64).exp()) for x in loss]
        self.kept = [p.keep(r) for p, r in zip(collected, r_sem)]
        self.install(cache)

    def check_rows(self, cache: Cache) -> None:
        """An Error if a layer that sees every token did not call `_attention`, or may keep less than the whole prompt. A layer with a sliding window that
        holds the whole prompt becomes a plain layer; `_attention` refuses sequences that outgrow the window."""
        if self._before and len(self._queries) != len(self._rows):
            raise Error(f"{type(self.model).__name__}: {len(self._queries)} of its {len(self._rows)} layers that see every token use transformers' AttentionInterface")
        window = getattr(self.model.config.get_text_config(), "sliding_window", None) or 0
        for l, layer in [(l, cache.layers[l]) for l in self._rows]:
            if type(layer) is DynamicSlidingWindowLayer and layer.keys.shape[2] == self._width:
                cache.layers[l] = DynamicLayer()
                cache.layers[l].update(layer.keys, layer.values)
            elif layer.is_sliding and getattr(layer, "max_cache_len", window) >= window:
                raise Error(f"{type(self.model).__name__}: layer {l} slides: the prompt of {self._width} tokens fills its window of {window}, or a static cache may")

    def install(self, cache: Cache) -> None:
        """Cuts the cache to what is kept of the prompts. If its class cannot be cut, hides the rest."""
        layers, (L, B, G) = [cache.layers[l] for l in self._rows], (len(self._rows), len(self.kept), self.geometry.n_kv_heads)
        of_token = [2 * x.keys.shape[1] * x.keys.shape[3] * x.keys.element_size() for x in layers] if layers[0].keys.ndim == 4 else []
        self.full_bytes = self.kept_bytes = sum(b * self._width * B for b in of_token)
        if getattr(cache, "offloading", False) or any(type(layer) is not DynamicLayer for layer in layers):
            refuse(self.formats, "formats: this class of cache cannot be cut, and so is not held in other formats: want a DynamicCache that is not offloaded, or no formats")
            self.holds = "masked"
            self.fit_in_place(cache)
            cache.ckvc_hidden = hidden = torch.zeros(L, B, G, self._width, dtype=torch.bool)
            for row, of_row in enumerate(hidden.flatten(1, 2)):
                for of_head, p in zip(of_row, self._positions(row)):
                    of_head[p] = True
            return
        self._cut(cache, ((layer.keys, layer.values) for layer in layers))

    def _positions(self, row: int) -> List[torch.Tensor]:
        """Where the kept tokens of a table's row are in the cache, for each of B * G heads."""
        return [torch.from_numpy(p.astype("int64")) + first for kept, (first, _) in zip(self.kept, self.starts) for p in kept.positions[row]]

    def _mean_keys(self, row: int, keys: torch.Tensor, held: Optional[torch.Tensor] = None) -> Optional[MeanKeys]:
        """The mean keys of a table's row, where the formats take them out. keys and held are as in _fitted."""
        if self.formats is None or not self.formats[0].mean:
            return None
        means, G = [], keys.shape[1]
        for b, (first, at) in enumerate(self.starts):
            before = self.geometry.before_rotation(row, keys[b, :, first:], at)
            there = before.new_ones(before.shape[:2]) if held is None else held[b, :, first:].double()
            means.append(torch.einsum("gtd,gt->gd", before, there) / there.sum(dim=1, keepdim=True).clamp(min=1))
        shifts = torch.tensor([at - first for first, at in self.starts], device=keys.device).repeat_interleave(G)
        return MeanKeys(self.geometry, row, torch.cat(means), shifts)

    def _fitted(self, row: int, keys: torch.Tensor, values: torch.Tensor, held: Optional[torch.Tensor] = None,
                mean: Optional[MeanKeys] = None) -> Tuple[torch.Tensor, torch.Tensor]:
        """The keys and values [B, G, length, D] of a table's row, with those that are kept fitted where the table says so (fit.py). held [B, G, length]: the
        positions that are there; None: all. mean: as in KeptLayer."""
        out = keys, values
        for b, (kept, (first, at)) in enumerate(zip(self.kept, self.starts) if self.fit else ()):
            k, v = keys[b, :, first:], values[b, :, first:]
            rounds = self._rounding(range(b * keys.shape[1], (b + 1) * keys.shape[1]), first, mean)
            fitted = fit_kept(kept, self.geometry, row, k, v, self._scaling, at, None if held is None else held[b, :, first:], rounds)
            if fitted[0] is not k and len(keys) == 1 and first == 0:
                return fitted[0][None], fitted[1][None]
            if fitted[0] is not k:
                out = (keys.clone(), values.clone()) if out[0] is keys else out  # the model's own tensors stay as they are
                out[0][b, :, first:], out[1][b, :, first:] = fitted
        return out

    def _rounding(self, heads: Sequence[int], first: int, mean: Optional[MeanKeys]) -> Optional[Rounding]:
        """The function `rounds` of fit_entries, which rounds keys as the formats hold them; None if there are no formats. heads: the numbers b * G + g of the
        heads. first: the column of the cache from which the positions that it is given are counted. mean: of all heads, as in KeptLayer."""
        if self.formats is None:
            return None
        form, mean = self.formats[0], mean and mean.of(heads)
        return lambda keys, index, queries: form.round_by(keys, queries, None if mean is None else mean.at(index + first))

    def fit_in_place(self, cache: Cache) -> None:
        """Writes fitted entries over what is kept in layers that stay whole. Offloaded caches, and layers that hold no plain tensors (quantized ones), stay as
        they are."""
        for layer, row in [(cache.layers[l], row) for l, row in self._rows.items()]:
            if not getattr(cache, "offloading", False) and layer.keys.ndim == 4 and layer.keys.shape[2] >= self._width:
                whole = [x[:, :, : self._width] for x in (layer.keys, layer.values)]
                for x, fitted in zip(whole, self._fitted(row, *whole)):
                    if fitted is not x:
                        x.copy_(fitted)

    def _cut(self, cache: Cache, whole: Iterable[Sequence[torch.Tensor]]) -> None:
        """Replaces the cache's layers by KeptLayers that hold what `self.kept` says. whole: for each of the table's rows its keys and values [B, G, length, D]
        and, if positions were dropped before, the mask `held` of _fitted."""
        for (l, row), of_row in zip(self._rows.items(), whole):
            keys, values, *held = of_row
            mean = self._mean_keys(row, keys, *held)
            keys, values = self._fitted(row, keys, values, *held, mean=mean)
            positions = [p.to(keys.device) for p in self._positions(row)]
            cache.layers[l] = KeptLayer(keys, values, positions, self._queries[row], self, mean)
        layers = [cache.layers[l] for l in self._rows]
        of_entry = [2 * x.shape[3] * x.groups[0].keys.element_size() for x in layers]
        self.full_bytes = sum(n * x.shape[:3].numel() for n, x in zip(of_entry, layers))
        if self.formats:
            of_entry = [entry_bytes(self.formats, x.shape[3]) for x in layers]
        self.kept_bytes = sum(n * sum(map(len, x.positions)) for n, x in zip(of_entry, layers))
        self._queries = []
        if sys.platform == "linux" and cache.layers[0].device.type == "cpu":  # without this, glibc's allocator would keep the memory of what was dropped
            getattr(ctypes.CDLL(None), "malloc_trim", int)(0)
        self.holds = "cut" if all(len({len(p) for p in layer.positions}) == 1 for layer in layers) else "ragged"

    @torch.no_grad()
    def recompress(self, cache: Cache) -> List[Kept]:
        """Cuts a cache once more between turns, after it was cut in this block and has grown. The budget is the same, of the whole length that it has now.
        What was dropped stays dropped. What is held, later turns included, is ranked by the newest queries and fitted again, as if it had just been
        prefilled. Returns the new `kept`. An Error says that the cache was not cut here, that a crop removed the newest queries, or that the table has bins of perplexity, which only a
        prefill knows."""
        with self._alone():
            layers = [cache.layers[l] for l in self._rows if l < len(cache.layers)]
            refuse(not layers or any(getattr(x, "owner", None) is not self for x in layers), "recompress: want a cache that was cut inside this block")
            self.starts, n = layers[0].starts, cache.get_seq_length()
            prefills = self._prefills(n)
            refuse(any(layer.queries.shape[2] < min(self.rows, n) for layer in layers), "recompress: the queries that rank were cropped away; feed the next turn first")
            refuse(any(p.needs_r_sem for p in prefills), "recompress: the table has bins of perplexity, which a prefill alone knows; start again from an empty cache")
            for row, layer in enumerate(layers):
                keys, values, held = layer.spread()
                for b, (p, (first, _)) in enumerate(zip(prefills, self.starts)):
                    p.layer(layer.queries[b], keys[b, :, first:], values[b, :, first:], self._scaling, held[b, :, first:], self._sinks.get(row))
            self.kept, self._queries = [p.keep() for p in prefills], [layer.queries for layer in layers]
            self._cut(cache, (layer.spread() for layer in layers))
            return self.kept

    def _collect(self, prefills: List[Prefill], row: int, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> None:
        """Takes the queries, keys and values of one layer while a prompt fills an empty cache."""
        n = self._width
        self._queries.append(query[:, :, max(n - self.rows, 0) :].clone())
        for b, (p, (first, _)) in enumerate(zip(prefills, self.starts)):
            p.layer(query[b, :, max(n - p.rows, first) :], key[b, :, first:n], value[b, :, first:n], self._scaling, None, self._sinks.get(row))

    def _attention(self, module: torch.nn.Module, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor,
                   attention_mask: Optional[torch.Tensor], **kwargs: Any) -> Any:
        """The attention function by which the model attends inside the block. query [B, H, n, D]; key, value [B, G, all, D]. During a prompt it collects them
        and attends as the model did before; behind a compressed prompt it attends to what is kept."""
        layer, row, sinks = getattr(key, "ckvc_layer", None), self._rows.get(getattr(module, "layer_idx", -1)), kwargs.get("s_aux")
        if row is None:  # this layer does not see every token, and is left alone
            return original_attention(self._before, module, query, key, value, attention_mask, **kwargs)
        check_attention(module, layer.get_seq_length() if layer else key.shape[2], kwargs)
        if self._collecting is not None:
            self._scaling, self._sinks[row] = kwargs.get("scaling") or query.shape[3] ** -0.5, sinks
            self._collect(self._collecting, row, query, key, value)
        elif layer is not None:
            return layer.attend(query, kwargs.get("scaling"), sinks), None
        elif self._hidden is not None:
            attention_mask = self._merged(row, query, key, attention_mask)
        return original_attention(self._before, module, query, key, value, attention_mask, **kwargs)

    def _merged(self, row: int, query: torch.Tensor, key: torch.Tensor, mask: Optional[torch.Tensor]) -> torch.Tensor:
        """The model's own mask, in which evicted positions are hidden as well. sdpa takes a mask of bool, eager one that is added to the logits."""
        kept = self._hidden[row].to(key.device)
        seen = torch.cat([kept, kept.new_ones((*kept.shape[:2], key.shape[2] - kept.shape[2]))], dim=2)
        seen = seen.repeat_interleave(query.shape[1] // kept.shape[1], dim=1)[:, :, None].expand(-1, -1, query.shape[2], -1)
        mask = mask[..., : key.shape[2]] if mask is not None else seen if self._before == "sdpa" else query.new_zeros(1)
        return mask & seen if mask.dtype == torch.bool else mask.masked_fill(~seen, torch.finfo(mask.dtype).min)


def compress(model: torch.nn.Module, table: Union[Table, FilePath, None] = None, budget: Optional[float] = None, mode: Optional[str] = None,
             fit: bool = True, formats: Optional[str] = None, bytes: Optional[float] = None) -> Compression:
    """A context manager. Inside it, prompts that fill an empty cache are compressed by the table, and `generate` goes on from what is kept. What comes after
    the prompt, a second turn's text included, is kept whole until `recompress`.

    table: a table, its file, the name of one that comes with this package, such as "smollm2-135m" (`ckvc tables` lists them), or `org/name` of a model hub
    (hub.table_file). None: the one of the tables that come with this package that is known to be for the model, and counts what `bytes` or `budget` counts; a
    line on stderr says which.

    budget: how many positions a head keeps on average: tokens from 1 up, or a share of the prompt below 1. None: the only budget of the table. mode: `heads`,
    `layers`, `lengths` or `shared`, in place of the one that the table recommends. fit: False keeps entries as they are, also where the table has a bank by
    which they are fitted. formats: hold keys and values of what is kept in these formats, such as "q8_0/q4_0+rot" (ckvc.table.FORMATS; one name sets both;
    "q4_0+mean+rot" is for models whose keys have a bias). Each step then unpacks them, layer by layer, into the model's type, or into float32 where the mean
    is taken out. None: they are held in the model's type.

    bytes: in place of a budget, a share of the bytes that a whole cache takes in 16 bits, one of those that the table was compiled for (`ckvc compile
    --bytes`). The table says how many entries that is and, unless `formats` is given, in which formats they are held.

    An Error of one line says that the table is for another model, that none of the package's is known to be for this one, or that it has no shares for the
    mode. During the prefill it says that the budget is too low, or that the model's attention implementation is neither sdpa nor eager.
    If the table's score reads no attention (`ckvc fit --features 2`), any implementation may prefill a DynamicCache; new tokens then attend by `_attention`.
    What is returned does nothing without `with`: a RuntimeWarning says so when it is dropped, or at the program's end."""
    refuse(isinstance(table, (int, float)), f"the second argument is the table, and got {table}: write budget={table}")
    out, caller = Compression(model, table if table is None or isinstance(table, Table) else Table.read(table), budget, mode, fit, formats, bytes), sys._getframe(1)
    # Unlike __del__, finalize also runs before modules are torn down, and can name the caller's line.
    out._unused = weakref.finalize(out, warnings.warn_explicit, "the block of this ckvc.hf.compress(...) was never entered, so nothing was compressed: write "
                                   "`with ckvc.hf.compress(...) as c:`", RuntimeWarning, caller.f_code.co_filename, caller.f_lineno)
    return out


def calibrate(model: PreTrainedModel, tokenizer: Any, manifest: FilePath, budgets: Sequence[float], out: FilePath, **options: Any) -> None:
    """Runs `ckvc.calibrate.calibrate`, which logs what each head of the model asks for. budgets and options are the members of its `Options`."""
    from .calibrate import Options, calibrate as run  # imported here because it needs h5py, which compressing does not
    run(model, tokenizer, manifest, Options(budgets=tuple(budgets), **options), out)
