"""Serves a table in an unmodified vLLM: the prompt of a request gives most of its cache back when its first token is there. docs/vllm.md has an example, and
ckvc.vllm_plugin says how an engine comes to use these classes.

A prompt of T tokens lies in blocks of bs slots. In the step that computes the second token of the answer, before the forward pass, each (layer, KV head) keeps
n = nb * bs + T % bs positions of its own choice. Their keys and values go to the prompt's last n slots, behind which the token of position T is written as ever.
Keys carry their rotation, so any slot may hold any token of its layer and head. The T // bs - nb blocks before these slots are the gap, which is freed one step
later, as that before a sliding window is. From then on attention reads a block table without the gap, and lengths that are smaller by its slots. Positions,
slots of new tokens and the scheduler's counts stay as they are.

Nothing is ever written into the gap after the prompt was computed. So vLLM's prefix cache may hold the blocks of the gap, and requests share the beginnings of
their prompts as far as that. The blocks behind the gap belong to one request alone.

Shapes: G KV heads of this worker, T prompt tokens, n kept positions, D head_dim."""
from __future__ import annotations

import contextlib
import functools
import math
import os
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Dict, List, NamedTuple, Optional, Set, Tuple

import torch
from vllm.config import VllmConfig
from vllm.distributed import get_tensor_model_parallel_rank
from vllm.logger import init_logger
from vllm.model_executor.layers.rotary_embedding import RotaryEmbedding
from vllm.model_executor.layers.rotary_embedding.llama3_rope import Llama3RotaryEmbedding
from vllm.platforms import current_platform
from vllm.v1.attention.backends import cpu_attn, flash_attn
from vllm.v1.core.sched import async_scheduler, scheduler
from vllm.v1.core.single_type_kv_cache_manager import FullAttentionManager
from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheSpec, replace_as
from vllm.v1.kv_cache_spec_registry import KVCacheSpecRegistry

from .files import Error, refuse
from .fit import fit_chosen
from .prefill import Geometry, attention_of, kept_of_layer, reference_queries
from .table import Table
from .vllm_plugin import Settings, block_of, gap_blocks, layer_refusal, length_class, read_table, shareable, shared_cache

if current_platform.is_cpu():  # the CPU's worker changes modules as it is imported
    from vllm.v1.worker.cpu_worker import CPUWorker as VllmWorker
else:
    from vllm.v1.worker.gpu_worker import Worker as VllmWorker  # type: ignore[assignment]

logger = init_logger("vllm.ckvc")
KeysValues = Tuple[torch.Tensor, torch.Tensor]


@dataclass(frozen=True, kw_only=True)
class CompactedSpec(FullAttentionSpec):
    """The cache of layers whose prompts are compacted. Layers of one length are one KV cache group. row: as length_class gives it."""
    settings: Settings
    row: Optional[int]

    @classmethod
    def merge(cls, specs: List[CompactedSpec]) -> CompactedSpec:
        if len({(spec.settings, spec.row) for spec in specs}) > 1:
            raise AssertionError("layers of one KV cache group are of one length")  # vLLM makes groups where it catches this
        return replace_as(FullAttentionSpec.merge(specs), cls, settings=specs[0].settings, row=specs[0].row)

    def is_uniform_with_collection(self, kv_cache_specs: Dict[str, KVCacheSpec]) -> bool:
        return all(isinstance(spec, CompactedSpec) and spec.row == self.row for spec in kv_cache_specs.values())


class CompactedManager(FullAttentionManager):
    """Frees the gap of a prompt, and shares no block behind it."""

    def cache_blocks(self, request: Any, num_tokens: int, *rest: Any, **more: Any) -> None:
        """Lets other requests find the blocks of the first num_tokens, but only those that may be shared."""
        super().cache_blocks(request, min(num_tokens, shareable(self.kv_cache_spec.settings, self.block_size, request.num_prompt_tokens)), *rest, **more)

    def remove_skipped_blocks(self, request_id: str, processed_computed_tokens: int, num_prompt_tokens: Optional[int] = None) -> None:
        """Frees them when the step that compacted the prompt is done, which is the one that read the first token of the answer. Freed earlier, they could be
        zeroed for another request before that step reads them."""
        if num_prompt_tokens is not None and processed_computed_tokens > num_prompt_tokens:
            self._remove_blocks_in_range(request_id, 0, gap_blocks(self.kv_cache_spec.settings, self.kv_cache_spec.row, self.block_size, num_prompt_tokens))


KVCacheSpecRegistry._ensure_registered()  # the built-in ones come first, because vLLM registers them only where there are none
KVCacheSpecRegistry.register(CompactedSpec, CompactedManager, FullAttentionSpec)


class _SplitAtPrompt:
    """The part that schedulers share."""

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        for part, base in (_SplitAtPrompt, scheduler.Scheduler), (CompactedManager, FullAttentionManager), (Worker, VllmWorker):
            unknown = [name for name in vars(part) if not name.startswith("__") and name != "_get_local_prefix_cache_hit" and not hasattr(base, name)]
            refuse(unknown, f"ckvc does not know this vLLM, whose {base.__name__} has no {', '.join(unknown)}")
        refuse(not hasattr(self, "need_mamba_block_aligned_split"), "ckvc does not know how this vLLM splits prompts into chunks")
        self.need_mamba_block_aligned_split = True
        # a scheduler that asks in another place would let requests share blocks that are written
        refuse(self.cache_config.enable_prefix_caching and not hasattr(scheduler.Scheduler, "_get_local_prefix_cache_hit"),
               "ckvc does not know how this vLLM looks for prefixes that it has cached: --no-enable-prefix-caching serves without them")

    def _get_local_prefix_cache_hit(self, request: Any) -> Tuple[Any, int, int, bool]:
        """The blocks of the prefix cache that hold the beginning of a request, and of how many tokens. None of them lies behind the gap that the request itself
        will have: it would be written while others read it."""
        blocks, n, *rest = super()._get_local_prefix_cache_hit(request)
        first = self.kv_cache_manager.coordinator.single_type_managers[0]
        own = min(n, shareable(first.kv_cache_spec.settings, first.block_size, request.num_prompt_tokens))
        return (self.kv_cache_manager.truncate_computed_blocks(blocks, own) if own < n else blocks, own, *rest)

    def _mamba_block_aligned_split(self, request: Any, num_new_tokens: int, num_new_local_computed_tokens: int = 0,
                                   num_external_computed_tokens: int = 0) -> int:
        """How many tokens of a request are computed in this step. When a request that was preempted is computed again, its prompt and its tokens so far go into
        separate chunks, so that the latter read the compacted prompt, as they did the first time. vLLM asks this method where it splits chunks for Mamba layers,
        which ckvc refuses."""
        start = request.num_computed_tokens + num_new_local_computed_tokens + num_external_computed_tokens
        left = request.num_prompt_tokens - start
        return min(num_new_tokens, left) if left > 0 else num_new_tokens

    def _update_request_as_session(self, session: Any, update: Any) -> None:
        """Goes on with a session whose text streams in: its prompt so far, the answer and what came now are one longer prompt. It is computed anew, except for
        what the prefix cache holds, since what was kept of the shorter prompt is not all that the longer one reads."""
        super()._update_request_as_session(session, update)
        self._free_request_blocks(session)
        session.num_computed_tokens = 0


class Scheduler(_SplitAtPrompt, scheduler.Scheduler):
    pass


class AsyncScheduler(_SplitAtPrompt, async_scheduler.AsyncScheduler):
    pass


class Served(NamedTuple):
    """What a worker's layers share. geometry: of the whole model. first_head: the first of its KV heads that this worker has. runner: the worker's model
    runner, which knows the lengths of prompts."""
    settings: Settings
    table: Table
    geometry: Geometry
    first_head: int
    runner: Any

    def compacted(self, row: int, keys: torch.Tensor, values: torch.Tensor, n: int, scale: float) -> KeysValues:
        """The keys and values [G, n, D] that the heads of a layer keep, fitted if the table says so. keys, values [G, T, D]: of the prompt, as they are cached.
        row: the layer's in the table. scale: what a product of query and key is multiplied with."""
        t, (G, T, D) = self.table, keys.shape
        b, queries, seen = block_of(self.settings, T), None, (None, None)
        ridge = float(t.ridge[row, b]) if self.settings.fit and t.bank is not None else 0.0
        if ridge or t.score[b].kind == "bank":
            queries = scale * reference_queries(t, b, self.geometry, row, T, device=keys.device)[self.first_head : self.first_head + G]
            seen = attention_of(queries, keys)
        at = kept_of_layer(t, b, self.geometry, row, keys, values, n, seen[0], self.first_head)
        if ridge:
            return fit_chosen(queries, *seen, keys, values, at, ridge)
        return keys.gather(1, at[..., None].expand(-1, -1, D)), values.gather(1, at[..., None].expand(-1, -1, D))


def _cores() -> Set[int]:
    """The cores that the threads of this process compute on. OpenMP may have tied each of its threads, also the one that asks, to a core of its own; threads
    that it did not tie then do not count."""
    masks = []
    for thread in os.listdir("/proc/self/task") if sys.platform == "linux" else ():
        with contextlib.suppress(OSError):  # the thread has ended
            masks.append(os.sched_getaffinity(int(thread)))
    fewest = min(map(len, masks), default=0)
    return {core for mask in masks if len(mask) == fewest for core in mask}


@functools.lru_cache(maxsize=None)
def threads() -> ThreadPoolExecutor:
    """The pool of threads in which layers are compacted at once on a CPU: as many as torch has in the thread that asks first, but at most eight, because more
    would wait for Python, and each holds the attention of a layer. In each of them torch computes with one thread: a layer's tensors are so small that torch's
    own threads would mostly wait for each other."""
    n, of_torch, cores = min(torch.get_num_threads(), 8), torch.get_num_threads(), _cores()
    started = threading.Barrier(n)

    def prepare() -> None:
        if cores:
            with contextlib.suppress(OSError):
                os.sched_setaffinity(0, cores)
        torch.get_num_threads()  # torch sets a thread's number at its first call; made here, it does not undo the next line
        torch._C.set_num_threads(1)  # not torch.set_num_threads, which vLLM's worker replaces by a function that does nothing

    pool = ThreadPoolExecutor(n, "ckvc", prepare)
    list(pool.map(lambda _: started.wait(), range(n)))
    torch._C.set_num_threads(of_torch)  # the pool's threads have changed the number of threads that begin later, too
    return pool


def prompt_lengths(runner: Any, metadata: Any) -> List[int]:
    """The lengths of the prompts of a batch's requests, in the order of its rows. Rows that only pad the batch have none."""
    if metadata.req_idx is not None:  # vLLM's model runner V2
        return runner.req_states.prompt_len.np[metadata.req_idx].tolist()
    return runner.input_batch.num_prompt_tokens[: runner.input_batch.num_reqs].tolist()


class _Compacting:
    """The part that builders of attention metadata share. Before a forward pass it compacts the prompts whose first token came of the last step, and hides
    the gaps of all prompts that were compacted. It keeps no state of requests: T and the number of computed tokens say what is to be done."""
    _said = -math.inf  # when a compaction was last said in the log
    supports_update_block_table = False  # groups of one spec have block tables of their own, and each must be rewritten

    def __init__(self, kv_cache_spec: Any, layer_names: List[str], vllm_config: VllmConfig, device: torch.device):
        super().__init__(kv_cache_spec, layer_names, vllm_config, device)
        self._layers = [vllm_config.compilation_config.static_forward_context[name] for name in layer_names]
        self._table: Optional[torch.Tensor] = None  # what attention reads lies in two buffers that stay, as CUDA graphs want it
        self._lengths: Optional[torch.Tensor] = None

    def build(self, common_prefix_len: int, common_attn_metadata: Any, fast_build: bool = False) -> Any:
        m = common_attn_metadata
        gaps = torch.zeros(m.num_reqs, dtype=torch.int64)  # how many slots each request's gap has
        starts, ends = m.query_start_loc_cpu.tolist(), m.seq_lens_cpu_upper_bound.tolist()
        spec, block_size = self.kv_cache_spec, self.vllm_config.cache_config.block_size  # of the scheduler; kernels may have smaller blocks
        for i, T in enumerate(prompt_lengths(self._layers[0].ckvc.runner, m)[: m.num_reqs]):
            computed = ends[i] - (starts[i + 1] - starts[i])
            gap = gap_blocks(spec.settings, spec.row, block_size, T) * block_size
            refuse(gap and computed < T < ends[i], "ckvc: this vLLM computes the end of a prompt and tokens of its answer in one chunk, of which nothing is compacted")
            if computed >= T and gap:
                gaps[i] = gap
                if computed == T:
                    self._compact(m.block_table_tensor[i].long(), T, gap)
                    self._say(T, T - gap)
        table, lengths = self._without(gaps.to(m.seq_lens.device, non_blocking=True), m.block_table_tensor, m.seq_lens)
        return super().build(common_prefix_len, m.replace(block_table_tensor=table, seq_lens=lengths), fast_build)

    def _say(self, n_tokens: int, kept: int) -> None:
        """Says in vLLM's log that a prompt was compacted, in each process at most every ten seconds."""
        if time.monotonic() >= _Compacting._said + 10:
            _Compacting._said = time.monotonic()
            logger.info("ckvc: %d layers keep %d of a prompt's %d tokens. (The next such line comes after ten seconds at the earliest.)", len(self._layers), kept,
                        n_tokens)

    def _without(self, gaps: torch.Tensor, table: torch.Tensor, lengths: torch.Tensor) -> KeysValues:
        """The block table [rows, width] without the blocks of the gaps, and lengths [rows] that are smaller by their slots. gaps [rows]: their slots."""
        if self._table is None:
            config = self.vllm_config
            rows = max(config.scheduler_config.max_num_seqs, config.compilation_config.max_cudagraph_capture_size or 0, len(lengths))
            self._table, self._lengths = table.new_zeros(rows, table.shape[1]), lengths.new_zeros(rows)
        at = torch.arange(table.shape[1], device=table.device) + gaps[:, None] // self.kv_cache_spec.block_size
        at = at.clamp(max=table.shape[1] - 1)
        new = self._table[: len(table)], self._lengths[: len(lengths)]
        new[0].copy_(table.gather(1, at))
        new[1].copy_(lengths - gaps)
        return new

    def _compact(self, blocks: torch.Tensor, n_tokens: int, gap: int) -> None:
        """Moves what is kept of a prompt behind its gap, in all layers of the group. blocks [width]: the request's. gap: how many slots it has."""
        size, slot = self.kv_cache_spec.block_size, torch.arange(gap, n_tokens, device=blocks.device)
        slot = blocks[slot // size] * size + slot % size

        def compact(layer: Any) -> None:
            with torch.inference_mode():  # the pool's threads are not in the caller's
                keys, values = self.read(layer.kv_cache, blocks[: -(-n_tokens // size)], n_tokens)
                kept = layer.ckvc.compacted(layer.ckvc_row, keys, values, len(slot), layer.impl.scale)
                layer.impl.do_kv_cache_update(layer, *(x.transpose(0, 1).contiguous() for x in kept), layer.kv_cache, slot)

        at_once = threads().map if blocks.device.type == "cpu" else map
        list(at_once(compact, self._layers))

    def read(self, cache: torch.Tensor, blocks: torch.Tensor, n_tokens: int) -> KeysValues:
        """The keys and values [G, n_tokens, D] of the first tokens in the blocks [k] of a layer's cache."""
        raise NotImplementedError


class _CPUBuilder(_Compacting, cpu_attn.CPUAttentionMetadataBuilder):
    def read(self, cache: torch.Tensor, blocks: torch.Tensor, n_tokens: int) -> KeysValues:
        """cache [blocks, G, bs, 2 D]: in a block, each head has its keys transposed, [D, bs], and behind them its values [bs, D]."""
        k, G, bs, width = len(blocks), *cache.shape[1:]
        rows = cache[blocks].view(k, G, 2 * bs, width // 2)
        keys = rows[:, :, :bs].reshape(k, G, width // 2, bs).transpose(2, 3)
        return tuple(x.transpose(0, 1).reshape(G, k * bs, -1)[:, :n_tokens] for x in (keys, rows[:, :, bs:]))


class _FlashBuilder(_Compacting, flash_attn.FlashAttentionMetadataBuilder):
    def read(self, cache: torch.Tensor, blocks: torch.Tensor, n_tokens: int) -> KeysValues:
        """cache [blocks, G, bs, 2 D]: in a slot, each head has its key and behind it its value."""
        rows = cache[blocks].transpose(0, 1).flatten(1, 2)[:, :n_tokens]
        return rows.chunk(2, dim=-1)


class _CPUBackend(cpu_attn.CPUAttentionBackend):
    @staticmethod
    def get_builder_cls() -> type:
        return _CPUBuilder


class _FlashBackend(flash_attn.FlashAttentionBackend):
    @staticmethod
    def get_builder_cls() -> type:
        return _FlashBuilder


BACKENDS = {cpu_attn.CPUAttentionBackend: _CPUBackend, flash_attn.FlashAttentionBackend: _FlashBackend}
BACKENDS |= {ours: ours for ours in BACKENDS.values()}  # vLLM may ask a worker for its specs more than once


def inv_freq_of(model: torch.nn.Module, name: str) -> Tuple[torch.Tensor, bool]:
    """The frequencies by which the attention layer of this name rotates its keys, and whether it rotates them in pairs (2 i, 2 i + 1)."""
    rotary = getattr(model.get_submodule(name.rpartition(".")[0]), "rotary_emb", None)
    if type(rotary) not in (RotaryEmbedding, Llama3RotaryEmbedding):
        raise Error(f"ckvc does not serve {name}, whose keys are rotated by {type(rotary).__name__}: want a plain rotation, or one scaled as Llama 3's")
    return rotary._compute_inv_freq(rotary.base), not rotary.is_neox_style


def geometry_of(config: VllmConfig, model: torch.nn.Module, names: List[str]) -> Geometry:
    """The Geometry of a model whose attention layers have these names, in order."""
    rotations = [inv_freq_of(model, name) for name in names]
    other = next((name for name, r in zip(names, rotations) if r[1] != rotations[0][1] or not torch.equal(r[0], rotations[0][0])), "")
    refuse(other, f"ckvc does not serve {other}, whose keys are rotated by other frequencies than those of {names[0]}")
    m = config.model_config
    return Geometry(len(names), m.hf_text_config.num_attention_heads, m.get_total_num_kv_heads(), m.get_head_size(), rotations[0][0],
                    interleaved=rotations[0][1])


def serve(config: VllmConfig, runner: Any, specs: Dict[str, KVCacheSpec]) -> Dict[str, KVCacheSpec]:
    """Makes a worker's attention layers ones whose prompts are compacted, and returns their specs. specs: by the layer's name, in the order of layers."""
    settings, layers = Settings(**config.additional_config["ckvc"]), config.compilation_config.static_forward_context
    for name, layer in layers.items():
        what = layer_refusal(layer, specs[name], FullAttentionSpec, BACKENDS) if name in specs else shared_cache(layer)
        refuse(what, f"ckvc does not serve {name}, which has {what}")
    table, geometry = read_table(settings.table), geometry_of(config, runner.get_model(), list(specs))
    table.check_model(geometry.n_layers, geometry.n_query_heads, geometry.n_kv_heads, geometry.head_dim)
    table.note_formats(range(table.n_budgets))
    first_head = get_tensor_model_parallel_rank() * geometry.n_kv_heads // config.parallel_config.tensor_parallel_size
    served = Served(settings, table, geometry, first_head, runner)
    for row, name in enumerate(specs):
        layers[name].attn_backend, layers[name].ckvc, layers[name].ckvc_row = BACKENDS[layers[name].get_attn_backend()], served, row
    return {name: replace_as(spec, CompactedSpec, settings=settings, row=length_class(settings, row)) for row, (name, spec) in enumerate(specs.items())}


def check_layout(builder: _Compacting) -> None:
    """An Error if what a layer writes to its cache is not what `read` finds there, because the cache has another layout. Block 0, which no request
    gets, is written and restored."""
    layer = builder._layers[0]
    cache, (G, size, width) = layer.kv_cache, layer.kv_cache.shape[1:]
    before = cache[:1].clone()
    keys, values = torch.randn(2, size, G, width // 2, generator=torch.Generator().manual_seed(1)).to(cache)
    layer.impl.do_kv_cache_update(layer, keys, values, cache, torch.arange(size, device=builder.device))
    found = builder.read(cache, torch.zeros(1, dtype=torch.int64, device=builder.device), size)
    same = all(torch.equal(x.transpose(0, 1), y) for x, y in zip(found, (keys, values)))
    cache[:1].copy_(before)
    isa = getattr(layer, "isa", "")
    refuse(not same, f"ckvc does not know the layout of this cache ({layer.attn_backend.get_name()}{f', instructions {isa}' if isa else ''})")


class Worker(VllmWorker):
    """The platform's worker, whose layers compact prompts."""

    def get_kv_cache_spec(self) -> Dict[str, KVCacheSpec]:
        """The specs of the layers' caches, by which vLLM makes groups. The model is loaded then, and its layers are prepared here."""
        return serve(self.vllm_config, self.model_runner, super().get_kv_cache_spec())

    def initialize_from_config(self, kv_cache_config: Any) -> None:
        """Makes the cache, and checks that its layout is known."""
        super().initialize_from_config(kv_cache_config)
        for groups in self.model_runner.attn_groups:
            for group in groups:
                check_layout(group.get_metadata_builder(0))
