"""Kept sets in transformers: a context manager that prefills, keeps, and lets `generate` go on.

    model = AutoModelForCausalLM.from_pretrained(folder)
    with ckvc.hf.compress(model, ckvc.Table.read("tables.ckvt"), budget=0.25) as c:
        out = model.generate(**tokenizer(text, return_tensors="pt"), max_new_tokens=100)
    print(c.holds, c.kept[0].entries, c.kept_bytes, c.full_bytes)

The prompt is what fills an empty cache. What is kept of it is decided when its last layer is there; new tokens attend to that and to
each other, at positions T, T + 1, ... as ever. Shapes: B sequences, H query heads, G KV heads, T prompt tokens, D head_dim.
"""
from __future__ import annotations

import functools
import os
import sys
from typing import Any, Callable, List, Optional, Tuple, Union

import torch
from transformers import AttentionInterface, PreTrainedModel
from transformers.cache_utils import Cache, DynamicLayer
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS, AttentionMaskInterface
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from .prefill import Geometry, Kept, Prefill
from .scores import Error
from .table import Table

IMPLEMENTATIONS = ("sdpa", "eager")  # those that take a mask by head


def geometry_of(model: PreTrainedModel) -> Geometry:
    """The part of a model's configuration that tables depend on."""
    config = model.config.get_text_config()
    H = config.num_attention_heads
    rotary = getattr(model.base_model, "rotary_emb", None)
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // H
    return Geometry(config.num_hidden_layers, H, getattr(config, "num_key_value_heads", None) or H, head_dim, getattr(rotary, "inv_freq", None))


class KeptLayer(DynamicLayer):
    """A cache layer that holds the kept keys and values of a prompt, each head's own number of them, and all new ones.

    To transformers it is as long as the whole sequence, so that positions go on at T. keys, values [B, G, new, D]: the new ones."""

    def __init__(self, keys: torch.Tensor, values: torch.Tensor, positions: List[List[torch.Tensor]], owner: Compression):
        """keys, values [B, G, T, D] of the whole prompt, whose kept rows are copied; positions [B][G]: ascending."""
        super().__init__()
        self.lazy_initialization(keys, values)
        self.keys, self.values = keys[:, :, :0].clone(), values[:, :, :0].clone()
        self.owner, self.n_prompt = owner, keys.shape[2]
        lengths = [[len(p) for p in of_sequence] for of_sequence in positions]
        self._hold(torch.tensor(lengths, device=keys.device),
                   *(torch.cat([x[b, g, p.to(x.device)] for b, of in enumerate(positions) for g, p in enumerate(of)]) for x in (keys, values)))

    def _hold(self, lengths: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> None:
        self.lengths, self.kept_keys, self.kept_values = lengths, keys, values  # [B, G]; [sum of lengths, D], sequence by sequence, head by head
        slots = torch.arange(int(lengths.max()), device=lengths.device) < lengths[..., None]
        self.slots = None if bool(slots.all()) else slots  # [B, G, longest]: which are filled; None: all

    def _padded(self, kept: torch.Tensor) -> torch.Tensor:
        """[B, G, longest, D], for the attention that is computed now."""
        if self.slots is None:
            return kept.view(*self.lengths.shape, -1, kept.shape[1])
        out = kept.new_zeros(*self.slots.shape, kept.shape[1])
        out[self.slots] = kept
        return out

    def update(self, key_states: torch.Tensor, value_states: torch.Tensor, cache_kwargs: Any = None) -> Tuple[torch.Tensor, torch.Tensor]:
        """Takes new keys and values [B, G, n, D]; all that new queries attend to, padded, [B, G, longest + new, D]."""
        if not self.owner.active:
            raise Error("a compressed cache is used inside `with ckvc.hf.compress(...)`, where it was made")
        super().update(key_states, value_states)
        self.owner.check_context(self.get_seq_length())
        keys, values = (torch.cat([self._padded(kept), new], dim=2) for kept, new in ((self.kept_keys, self.keys), (self.kept_values, self.values)))
        keys.ckvc_layer = self  # for the attention, which sees no cache
        return keys, values

    def mask(self, n_queries: int, n_query_heads: int) -> Optional[torch.Tensor]:
        """What the last new tokens see, [B, H, n_queries, longest + new], True: seen; None: all."""
        if self.slots is None and n_queries == 1:
            return None
        (B, G), new = self.lengths.shape, self.keys.shape[2]
        slots = self.slots if self.slots is not None else self.lengths.new_ones((B, G, int(self.lengths[0, 0])), dtype=torch.bool)
        t = torch.arange(new, device=slots.device)
        seen = (t <= t[new - n_queries :, None]).expand(B, G, n_queries, new)
        out = torch.cat([slots[:, :, None].expand(-1, -1, n_queries, -1), seen], dim=3)
        return out.repeat_interleave(n_query_heads // G, dim=1)

    def nbytes(self) -> int:
        """Of keys and values that are held, new ones included."""
        return sum(x.numel() * x.element_size() for x in (self.kept_keys, self.kept_values, self.keys, self.values))

    def get_seq_length(self) -> int:
        return self.n_prompt + self.keys.shape[2]

    def get_mask_sizes(self, cache_position: torch.Tensor) -> Tuple[int, int]:
        return self.get_seq_length() + cache_position.shape[0], 0

    def crop(self, max_length: int) -> None:
        n = max_length + self.get_seq_length() if max_length < 0 else max_length
        if n < self.n_prompt:
            raise Error(f"a compressed prompt of {self.n_prompt} tokens cannot be cropped to {n}")
        self.keys, self.values = self.keys[:, :, : n - self.n_prompt], self.values[:, :, : n - self.n_prompt]

    def batch_select_indices(self, indices: torch.Tensor) -> None:
        of_sequence = self.lengths.sum(dim=1).tolist()
        chosen = torch.arange(len(of_sequence), device=self.lengths.device)[indices.to(self.lengths.device)]
        self._hold(self.lengths[chosen], *(torch.cat([x.split(of_sequence)[b] for b in chosen.tolist()]) for x in (self.kept_keys, self.kept_values)))
        self.keys, self.values = self.keys[chosen], self.values[chosen]

    reorder_cache = batch_select_indices

    def batch_repeat_interleave(self, repeats: int) -> None:
        self.batch_select_indices(torch.arange(len(self.lengths)).repeat_interleave(repeats))


class Compression:
    """What `compress` gives. Inside its `with` block every prefill of the model is compressed; after one:

    kept: a Kept for each sequence of the batch; holds: `cut` (kept keys and values alone, all heads of a layer alike), `ragged` (the same,
    each head its own number) or `masked` (the cache class cannot be cut, so nothing is saved: evicted positions are hidden);
    kept_bytes, full_bytes: of the prompt's keys and values, as held and before."""

    def __init__(self, model: PreTrainedModel, table: Table, budget: Optional[float] = None, mode: Optional[str] = None):
        self.model, self.table, self.budget, self.mode = model, table, budget, mode
        self.geometry, self.active = geometry_of(model), False
        g = self.geometry
        table.check_model(g.n_layers, g.n_query_heads, g.n_kv_heads, g.head_dim)
        if table.theta is not None and g.inv_freq is not None and len(g.inv_freq) != g.head_dim // 2:
            raise Error(f"the model rotates {2 * len(g.inv_freq)} of its keys' {g.head_dim} values: the learned score wants all")
        self.kept: List[Kept] = []
        self.holds: Optional[str] = None
        self.kept_bytes = self.full_bytes = 0
        self._collecting: Optional[List[Prefill]] = None
        self._hidden: Optional[torch.Tensor] = None  # [L, B, G, T] where masked: True: kept
        self._context = getattr(model.config.get_text_config(), "max_position_embeddings", None)

    # ---- the with block ----

    def __enter__(self) -> Compression:
        self._name, self._before = f"ckvc_{id(self):x}", self.model.config.get_text_config()._attn_implementation
        if self._before not in IMPLEMENTATIONS:
            raise Error(f"attention implementation {self._before}: want {' or '.join(IMPLEMENTATIONS)} (attn_implementation of from_pretrained)")
        AttentionInterface.register(self._name, self._attention)
        AttentionMaskInterface.register(self._name, ALL_MASK_ATTENTION_FUNCTIONS[self._before])
        self.model.set_attn_implementation(self._name)
        base = self.model.base_model
        self._hooks = [base.register_forward_pre_hook(self._begin, with_kwargs=True), base.register_forward_hook(self._end, with_kwargs=True)]
        self._own_generate = vars(self.model).get("generate")
        self.model.generate = self._whole_prefill(self.model.generate)
        self.active = True
        return self

    def __exit__(self, *exception: Any) -> None:
        self.active, self._collecting = False, None
        for hook in self._hooks:
            hook.remove()
        del self.model.generate
        if self._own_generate is not None:
            self.model.generate = self._own_generate
        self.model.set_attn_implementation(self._before)
        AttentionInterface._global_mapping.pop(self._name)
        AttentionMaskInterface._global_mapping.pop(self._name)

    def _whole_prefill(self, generate: Callable[..., Any]) -> Callable[..., Any]:
        """The model's generate, which no forward pass tells that its prompt is one of several chunks."""
        @functools.wraps(generate)
        def checked(*args: Any, **kwargs: Any) -> Any:
            config = kwargs.get("generation_config") or (args[1] if len(args) > 1 else None) or self.model.generation_config
            if kwargs.get("prefill_chunk_size", getattr(config, "prefill_chunk_size", None)) is not None:
                raise Error("a prefill in chunks (prefill_chunk_size): the first would be taken for the prompt; want one prefill")
            return generate(*args, **kwargs)
        return checked

    def check_context(self, n_tokens: int) -> None:
        """Error where a sequence of n_tokens does not fit the model."""
        if self._context is not None and n_tokens > self._context:
            raise Error(f"{n_tokens} tokens are more than the model's context of {self._context} (config.json, max_position_embeddings)")

    # ---- a prefill ----

    def _begin(self, module: torch.nn.Module, args: Any, kwargs: Any) -> None:
        cache, ids = kwargs.get("past_key_values"), kwargs.get("input_ids", args[0] if args else None)
        shape = (ids if ids is not None else kwargs["inputs_embeds"]).shape
        if (cache is None and kwargs.get("use_cache") is False) or (cache is not None and cache.get_seq_length() > 0):
            self._collecting = None
            return
        self._ids, self._hidden = ids, None
        self._first = [0] * shape[0]  # of each sequence's prompt: behind what pads it on the left
        padding = kwargs.get("attention_mask")
        if padding is not None and padding.ndim == 2:
            self._first = (padding != 0).int().argmax(dim=1).tolist()
            if not all(bool(row[first:].all()) for row, first in zip(padding, self._first)):
                raise Error("a batch that is padded on the right: want padding_side='left'")
        self._width = shape[1]
        self.check_context(self._width)
        self._collecting = [Prefill(self.table, self.geometry, self._width - first, self.budget, self.mode) for first in self._first]

    @torch.no_grad()
    def _end(self, module: torch.nn.Module, args: Any, kwargs: Any, output: Any) -> None:
        collected, self._collecting = self._collecting, None
        cache = output.past_key_values if collected else None
        if cache is None:
            return
        r_sem = self._perplexities(output.last_hidden_state) if collected[0].needs_r_sem else [None] * len(collected)
        self.kept = [p.keep(r) for p, r in zip(collected, r_sem)]
        if any(layer.is_sliding for layer in cache.layers):
            raise Error("a cache with a sliding window has lost positions by itself: want full attention in every layer")
        self.install(cache)

    def _perplexities(self, hidden: torch.Tensor) -> List[float]:
        """exp of the mean loss of the last W prompt tokens."""
        if self._ids is None:
            raise Error("the table has perplexity bins, which need token ids: call the model with input_ids")
        W = self.table.window
        logits = self.model.get_output_embeddings()(hidden[:, -W - 1 : -1]).float()
        loss = -logits.log_softmax(dim=-1).gather(2, self._ids[:, -W:, None].to(logits.device)).squeeze(2)
        return [float(x) for x in loss.mean(dim=1, dtype=torch.float64).exp()]

    def install(self, cache: Cache) -> None:
        """Cuts the cache of the prompts to what is kept, or hides the rest where its class cannot be cut."""
        layers = cache.layers
        positions = [[[torch.from_numpy(p.astype("int64")) + first for p in k.positions[l]] for k, first in zip(self.kept, self._first)]
                     for l in range(len(layers))]  # [L][B][G]
        of_token = [2 * x.keys.shape[1] * x.keys.shape[3] * x.keys.element_size() for x in layers] if layers[0].keys.ndim == 4 else []
        self.full_bytes = self.kept_bytes = sum(b * self._width * len(self.kept) for b in of_token)
        if getattr(cache, "offloading", False) or any(type(layer) is not DynamicLayer for layer in layers):
            self.holds = "masked"
            self._hidden = torch.zeros(len(layers), len(self.kept), self.geometry.n_kv_heads, self._width, dtype=torch.bool)
            for l, b, g in ((l, b, g) for l in range(len(layers)) for b in range(len(self.kept)) for g in range(self.geometry.n_kv_heads)):
                self._hidden[l, b, g, positions[l][b][g]] = True
            return
        cache.layers = [KeptLayer(layer.keys, layer.values, positions[l], self) for l, layer in enumerate(layers)]
        self.kept_bytes = sum(layer.nbytes() for layer in cache.layers)
        self.holds = "cut" if all(layer.slots is None for layer in cache.layers) else "ragged"

    # ---- attention ----

    def _attention(self, module: torch.nn.Module, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor,
                   attention_mask: Optional[torch.Tensor], **kwargs: Any) -> Any:
        layer, n = getattr(key, "ckvc_layer", None), query.shape[2]
        window = kwargs.get("sliding_window")
        if kwargs.get("softcap") or kwargs.get("s_aux") is not None or (window and window < (layer.get_seq_length() if layer else key.shape[2])):
            raise Error("attention with a sliding window shorter than the sequence, a cap on its logits or sinks of its own: want plain softmax attention")
        if self._collecting is not None:
            scaling = kwargs.get("scaling") or query.shape[3] ** -0.5
            for b, (p, first) in enumerate(zip(self._collecting, self._first)):
                p.layer(query[b, :, max(n - p.rows, 0) :], key[b, :, first:n], value[b, :, first:n], scaling)
        elif layer is not None:
            attention_mask = self._as_wanted(layer.mask(n, query.shape[1]), query)
        elif self._hidden is not None:
            attention_mask = self._merged(module.layer_idx, query, key, attention_mask)
        return self._original(module)(module, query, key, value, attention_mask, **kwargs)

    def _original(self, module: torch.nn.Module) -> Callable[..., Any]:
        if self._before == "eager":  # each model file has its own
            return sys.modules[type(module).__module__].eager_attention_forward
        return ALL_ATTENTION_FUNCTIONS[self._before]

    def _as_wanted(self, seen: Optional[torch.Tensor], query: torch.Tensor) -> Optional[torch.Tensor]:
        """sdpa takes a mask of bool, eager one that is added."""
        if seen is None or self._before == "sdpa":
            return seen
        return torch.zeros_like(seen, dtype=query.dtype).masked_fill(~seen, torch.finfo(query.dtype).min)

    def _merged(self, layer: int, query: torch.Tensor, key: torch.Tensor, mask: Optional[torch.Tensor]) -> torch.Tensor:
        """What is hidden, on top of the model's own mask."""
        kept = self._hidden[layer].to(key.device)
        seen = torch.cat([kept, kept.new_ones((*kept.shape[:2], key.shape[2] - kept.shape[2]))], dim=2)
        seen = seen.repeat_interleave(query.shape[1] // kept.shape[1], dim=1)[:, :, None].expand(-1, -1, query.shape[2], -1)
        if mask is None:
            return self._as_wanted(seen, query)
        mask = mask[..., : key.shape[2]]
        return mask & seen if mask.dtype == torch.bool else mask.masked_fill(~seen, torch.finfo(mask.dtype).min)


def compress(model: PreTrainedModel, table: Union[Table, str, os.PathLike], budget: Optional[float] = None,
             mode: Optional[str] = None) -> Compression:
    """A context manager: inside it, prompts that fill an empty cache are compressed by the table, and `generate` goes on from what is kept.

    budget: mean positions a head keeps: tokens from 1 up, a share of the prompt below 1; None: the table's only one. mode: `heads`, `layers`
    or `shared` in place of the one that the table recommends. Error (one line) where the table is for another model, has no shares for the
    mode, or the attention implementation is neither sdpa nor eager; at the prefill, where the prompt is too short or the budget too low."""
    return Compression(model, table if isinstance(table, Table) else Table.read(table), budget, mode)
