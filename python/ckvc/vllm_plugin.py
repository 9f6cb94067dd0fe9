"""What `ckvc` in vLLM's additional_config asks for, what is refused when an engine starts, and how many blocks of a prompt stay. ckvc.vllm has the rest.

`register` is an entry point of vLLM's plugins (vllm.general_plugins). It replaces EngineArgs.create_engine_config by a function that does the same, and
prepares a configuration for ckvc where additional_config has the key `ckvc`. Nothing else in vLLM is changed: worker and scheduler are subclasses that the
configuration names, and attention backends are subclasses that the worker gives to a model's layers. docs/vllm.md has an example.

This module needs neither torch nor vLLM until `register` is called."""
from __future__ import annotations

import difflib
import functools
import math
import os
import re
from typing import Any, Callable, Container, List, NamedTuple, Optional

from .files import Error, plain, refuse
from .hub import table_file, without_attention
from .table import Table, budget_tokens

TESTED = ("0.32",)  # minor versions of vLLM for which tests/outside/vllm_engine.py has passed
WORKERS = ("vllm.v1.worker.cpu_worker.CPUWorker", "vllm.v1.worker.gpu_worker.Worker")  # those that ckvc.vllm.Worker can be
PLAIN_CACHES = ("auto", "float16", "bfloat16", "float32", "half", "float")  # types of a cache that is not quantised
KINDS = {"table": ((str,), "a path, a name that `ckvc tables` lists, or org/name of a model hub"), "budget": ((int, float), "a number"), "fit": ((bool,), "true or false"),
         "lengths": ((bool, type(None)), "true or false"), "untested": ((bool,), "true or false")}


class Settings(NamedTuple):
    """The settings of an engine. table: the path of a .ckvt. budget: the tokens that each head keeps of a prompt, or a share of the prompt below 1. fit:
    whether entries are fitted where the table has a bank. lengths: whether layers have lengths of their own, those of the table's mode `lengths`; otherwise
    all heads keep equally many. None asks for what the table recommends. untested: whether versions of vLLM run that were not tested."""
    table: str
    budget: float
    fit: bool = True
    lengths: Optional[bool] = None
    untested: bool = False


@functools.lru_cache(maxsize=8)
def read_table(path: str) -> Table:
    """The table of a file, which is read once in each process."""
    try:
        return Table.read(path)
    except OSError as problem:
        raise Error(f"{path}: {problem.strerror}; additional_config has it as ckvc.table")


def settings_of(additional_config: Any, model_config: Optional[Callable[[], Any]] = None) -> Optional[Settings]:
    """The settings that an additional_config asks for, with `lengths` decided and the table's path made absolute. None if it has no key `ckvc`. If no table is
    named, it is the one that comes with ckvc for the model; model_config returns the model's PretrainedConfig. An Error says which setting is wrong, or that the
    table cannot be served."""
    asked = additional_config.get("ckvc") if isinstance(additional_config, dict) else None
    if asked is None:
        return None
    refuse(not isinstance(asked, dict), f"additional_config: ckvc is {plain(asked)}, want an object such as {{\"table\": \"t.ckvt\", \"budget\": 0.25}}")
    for name, value in asked.items():
        refuse(name not in KINDS, f"additional_config: ckvc.{plain(name)} is no setting; they are {', '.join(KINDS)}")
        kind, want = KINDS[name]
        refuse(not isinstance(value, kind) or (isinstance(value, bool) and bool not in kind), f"additional_config: ckvc.{name} is {plain(value)}, want {want}")
    refuse("budget" not in asked, "additional_config: ckvc.budget is missing")
    if "table" not in asked:
        refuse(not model_config, "additional_config: ckvc.table is missing")
        from .shipped import path_without_attention
        asked = {**asked, "table": path_without_attention(model_config())}
    settings = Settings(**{**asked, "table": os.path.abspath(table_file(asked["table"]))})
    table = read_table(settings.table)
    _check_table(table, settings.budget)
    lengths = settings.lengths
    if lengths is None:
        lengths = settings.budget in table.budgets and table.score[table.budget_index(settings.budget)].mode == "lengths"
    if lengths:
        table.budget_index(settings.budget)  # refuses another budget, whose classes of layers would depend on the prompt
        refuse(table.length_share is None, f"{table.name}: no shares for mode lengths; make a table by `ckvc fit --mode lengths --classes K`")
    return settings._replace(lengths=lengths)


def near_names(additional_config: Any) -> List[str]:
    """The keys of an additional_config that may be a misspelt `ckvc`."""
    names = additional_config if isinstance(additional_config, dict) else ()
    return [name for name in names if isinstance(name, str) and difflib.get_close_matches(name.lower(), ["ckvc"], cutoff=0.7)]


def _check_table(table: Table, budget: float) -> None:
    """An Error if the table's ranking reads attention, which vLLM's cache does not hold, or if the budget is none."""
    table.check_budget(budget)
    table.begin(budget, table.window, "shared")  # refuses what is no budget
    if table.reads_attention:
        features = table.score[0].features if table.theta is not None else 0
        raise Error(f"{table.name}: its score ({table.score[0].kind}{f', features of version {features}' if features else ''}) reads attention, which vLLM's "
                    f"cache does not hold: {without_attention(table.content_id)}")
    for b in range(table.n_budgets):
        least = int(table.c_min[b][1]) + 1
        refuse(budget >= 1 and budget < least, f"{table.name}: a budget of {budget:g} tokens is below what every head must keep; the least is {least}")


def length_class(settings: Settings, row: int) -> Optional[int]:
    """A number that is the same for all layers of one class: the first row of the table whose share, and so whose length, is that of `row`. None if all layers
    keep equally many positions (the setting `lengths` is false)."""
    if not settings.lengths:
        return None
    table = read_table(settings.table)
    share = table.length_share[:, table.budget_index(settings.budget)].tolist()
    return share.index(share[row])


def block_of(settings: Settings, n_tokens: int) -> int:
    """The index of the table's block that serves a prompt of n_tokens under the engine's budget."""
    return read_table(settings.table).nearest_budget(settings.budget, n_tokens)


@functools.lru_cache(maxsize=1 << 16)
def blocks_kept(settings: Settings, row: Optional[int], block_size: int, n_tokens: int) -> int:
    """How many of the full blocks of a prompt stay. The scheduler and the worker both ask here.

    A prompt of T tokens fills T // block_size blocks, and T % block_size slots of one more. When nb full blocks stay, each head keeps
    nb * block_size + T % block_size positions. This is the largest such number within the budget, but at least the positions that a head always keeps, and
    never less than T % block_size, which may be above a budget that is smaller than a block. row: the table's row whose length is kept, as length_class gives
    it. A prompt that is no longer than the table's window stays whole."""
    table, (full, tail) = read_table(settings.table), divmod(n_tokens, block_size)
    if n_tokens <= table.window:
        return full
    b = block_of(settings, n_tokens)
    least = int(table.c_min[b][1]) + 1
    n = max(budget_tokens(settings.budget, n_tokens), least)
    if row is not None:
        n = int(table.capacities(b, n_tokens, "lengths", n)[row])
    return min(full, max((n - tail) // block_size, -((tail - least) // block_size), 0))


def gap_blocks(settings: Settings, row: Optional[int], block_size: int, n_tokens: int) -> int:
    """How many blocks at the beginning of a prompt become free when it is compacted. row: as length_class gives it."""
    return n_tokens // block_size - blocks_kept(settings, row, block_size, n_tokens)


@functools.lru_cache(maxsize=1 << 16)
def shareable(settings: Settings, block_size: int, n_tokens: int) -> float:
    """How many of the first tokens of a request, whose prompt has n_tokens, lie in blocks that other requests may share: those before the shortest gap of all
    layers, or all (infinity) where the prompt stays whole in every layer. The blocks behind the gap are written by compaction. Those of layers that keep the
    whole prompt are not, but what follows in them was computed from what other layers kept."""
    rows = {length_class(settings, row) for row in range(read_table(settings.table).n_layers)}
    gaps = [gap_blocks(settings, row, block_size, n_tokens) for row in rows]
    return min((gap * block_size for gap in gaps if gap), default=math.inf)


def refusal(config: Any) -> str:
    """What of an engine's configuration (a VllmConfig) ckvc does not serve, by the option's name. "" if it serves it."""
    model, parallel = config.model_config, config.parallel_config
    unserved = {
        "MLA: its cache has no keys and values of KV heads": model.use_mla,
        "Mamba layers or others with a state": model.is_hybrid or model.has_inner_state,
        "an encoder and a decoder": model.is_encoder_decoder,
        f"a model that writes no text (--runner {model.runner_type})": model.runner_type != "generate",
        "M-RoPE, whose positions are more than a number": model.uses_mrope,
        "speculative decoding (--speculative-config)": config.speculative_config,
        "a KV connector (--kv-transfer-config)": config.kv_transfer_config,
        "context parallelism (--decode-context-parallel-size, --prefill-context-parallel-size)":
            parallel.decode_context_parallel_size > 1 or parallel.prefill_context_parallel_size > 1,
        "pipeline parallelism (--pipeline-parallel-size)": parallel.pipeline_parallel_size > 1,
        "data parallelism (--data-parallel-size)": parallel.data_parallel_size > 1,
        "micro-batches (--enable-dbo, --ubatch-size)": parallel.use_ubatching,
        f"a quantised cache (--kv-cache-dtype {config.cache_config.cache_dtype})": config.cache_config.cache_dtype not in PLAIN_CACHES,
        f"a scheduler of your own (--scheduler-cls {config.scheduler_config.scheduler_cls})": config.scheduler_config.scheduler_cls,
        f"the worker {parallel.worker_cls}": parallel.worker_cls not in WORKERS,
    }
    return next((what for what, found in unserved.items() if found), "")


def layer_refusal(layer: Any, spec: Any, full_attention: type, backends: Container[Any]) -> str:
    """What of an attention layer and its cache's spec ckvc does not serve. "" if it serves it. full_attention: the class of specs that it serves. backends: the
    attention backends."""
    backend = layer.get_attn_backend()
    unserved = {
        "a sliding window": getattr(spec, "sliding_window", None),
        "attention in chunks": getattr(spec, "attention_chunk_size", None),
        f"a cache of the kind {type(spec).__name__}": type(spec) is not full_attention,
        "attention that is not causal": getattr(spec, "non_causal", False),
        "keys and values of other widths": getattr(spec, "head_size", 0) != getattr(spec, "head_size_v", 0),
        "a quantised cache": getattr(spec, "kv_quant_mode", 0),
        f"the attention backend {backend.get_name()}": backend not in backends,
        "logits that are capped": getattr(layer.impl, "logits_soft_cap", None),
        "ALiBi": getattr(layer.impl, "alibi_slopes", None) is not None,
        "attention sinks": getattr(layer.impl, "sinks", None) is not None,
    }
    return next((what for what, found in unserved.items() if found), "")


def shared_cache(layer: Any) -> str:
    """What ckvc does not serve of an attention layer that has no cache spec of its own, as layer_refusal says it: that the layer reads another layer's cache.
    "" if it reads no other's."""
    target = getattr(layer, "kv_sharing_target_layer_name", None)
    return f"the cache of {target}" if target else ""


def prepare(config: Any, settings: Settings) -> None:
    """Makes an engine's configuration (a VllmConfig) one that serves the table. An Error says what stands against it."""
    import vllm
    from vllm.logger import init_logger

    from .fingerprint import check_files

    say = init_logger("vllm.ckvc")
    minor = ".".join(re.split(r"[.+-]", vllm.__version__)[:2])
    refuse(minor not in TESTED and not settings.untested, f"vLLM {vllm.__version__}: ckvc was tested with {', '.join(TESTED)}; "
           "\"untested\": true in additional_config's ckvc tries it nevertheless")
    if minor not in TESTED:
        say.warning("ckvc was not tested with vLLM %s", vllm.__version__)
    what = refusal(config)
    refuse(what, f"ckvc does not serve {what}")
    hybrid_off = settings.lengths and config.scheduler_config.disable_hybrid_kv_cache_manager
    refuse(hybrid_off, "ckvc: a length per layer needs KV cache groups: leave --disable-hybrid-kv-cache-manager out, or set \"lengths\": false")
    check_files(read_table(settings.table), config.model_config.hf_config)
    scheduler = config.scheduler_config
    scheduler.scheduler_cls = f"ckvc.vllm.{'AsyncScheduler' if scheduler.async_scheduling else 'Scheduler'}"
    config.parallel_config.worker_cls = "ckvc.vllm.Worker"
    config.additional_config["ckvc"] = settings._asdict()
    say.info("ckvc keeps of each prompt what %s says for a budget of %g%s.", settings.table, settings.budget,
             ", with a length per layer" if settings.lengths else "")


def register() -> None:
    """Lets engines that are made from now on serve a table if their additional_config asks for it. vLLM calls it in each of its processes."""
    from vllm.engine.arg_utils import EngineArgs
    from vllm.logger import init_logger

    create = EngineArgs.create_engine_config
    if getattr(create, "__module__", "") == __name__:  # vLLM may load plugins more than once
        return

    def create_engine_config(self: Any, *args: Any, **kwargs: Any) -> Any:
        settings = settings_of(self.additional_config, lambda: self.create_model_config().hf_config)
        if settings is None:
            for name in near_names(self.additional_config):
                init_logger("vllm.ckvc").warning("additional_config has %s; did you mean ckvc? Without that nothing is compacted", plain(name))
            return create(self, *args, **kwargs)
        config = create(self, *args, **kwargs)
        prepare(config, settings)
        return config

    EngineArgs.create_engine_config = create_engine_config
