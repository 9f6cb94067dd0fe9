#!/usr/bin/env python3
"""ckvc.vllm_plugin without vLLM: settings, what is refused, blocks that stay, and that a configuration without the setting stays as it is. What needs vLLM is
in tests/outside/vllm_engine.py."""
import math
import os
import sys
import tempfile
import types
from unittest import mock

from common import golden, put, run_tests
from test_ckvc import refused

import numpy as np

import ckvc
from ckvc import vllm_plugin as plugin
from ckvc.exchange import table_bytes

LEARNED = golden("learned2")


def lengths_table(path, mode=3):
    """A golden table with its one layer four times, of two classes, and what its first block recommends: mode 3 is `lengths`."""
    t, L = ckvc.Table.read(LEARNED), 4
    a = {k: x for k, x in t.sections.items() if k not in ckvc.table.EVIDENCE and k[0] != "s" and k != "hSIG"}
    a = {k: np.concatenate([x] * L) if ckvc.table.SPECS[k][1:2] == "L" else x.copy() for k, x in a.items()}
    a["SHAPE"][0], a["SCORE"][0, 5] = L, mode
    a["SHARELEN"] = np.tile(np.array([[1.5], [0.5], [1.5], [0.5]]), (1, t.n_budgets))
    a["META"] = np.frombuffer(t.text["META"].replace(b'"n_layers":1', b'"n_layers":%d' % L), "u1")
    return put(path, table_bytes(path, a | {"FLAGS": np.array([t.flags], "<u8")}))


def settings(table=LEARNED, budget=0.5, **more):
    return plugin.settings_of({"ckvc": {"table": table, "budget": budget, **more}})


def config(**changed):
    """A configuration that ckvc serves, as far as it reads one."""
    c = types.SimpleNamespace(
        model_config=types.SimpleNamespace(use_mla=False, is_hybrid=False, has_inner_state=False, is_encoder_decoder=False, uses_mrope=False,
                                           runner_type="generate", hf_config="the model's"),
        parallel_config=types.SimpleNamespace(decode_context_parallel_size=1, prefill_context_parallel_size=1, pipeline_parallel_size=1, data_parallel_size=1,
                                              use_ubatching=False, worker_cls="vllm.v1.worker.cpu_worker.CPUWorker"),
        scheduler_config=types.SimpleNamespace(scheduler_cls=None, async_scheduling=False, disable_hybrid_kv_cache_manager=False),
        cache_config=types.SimpleNamespace(cache_dtype="auto"), speculative_config=None, kv_transfer_config=None, additional_config={})
    for name, value in changed.items():
        holder = next((h for h in vars(c).values() if hasattr(h, name)), c)
        setattr(holder, name, value)
    return c


def fake_vllm(version="0.32.0"):
    """Modules in vLLM's place, with an EngineArgs whose create_engine_config returns `made`; and in place of those of the package that need torch, which
    tests/outside/transformers_tables.py tests."""
    def check_files(table, model):
        if model != "the model's":
            raise ckvc.Error(f"{table.name}: was made for another model than {model}")

    class EngineArgs:
        def __init__(self, additional_config, made):
            self.additional_config, self.made, self.enable_prefix_caching = additional_config, made, None

        def create_model_config(self):
            return self.made.model_config

        def create_engine_config(self, usage=None):
            self.made.additional_config = self.additional_config
            return self.made

    say = lambda text, *args: said.append(text % args)  # noqa: E731
    log = types.SimpleNamespace(info=say, warning=say)
    modules = {"vllm": types.ModuleType("vllm"), "vllm.logger": types.ModuleType("vllm.logger"), "vllm.engine": types.ModuleType("vllm.engine"),
               "vllm.engine.arg_utils": types.ModuleType("vllm.engine.arg_utils"), "ckvc.fingerprint": types.ModuleType("ckvc.fingerprint"),
               "ckvc.shipped": types.ModuleType("ckvc.shipped")}
    modules["ckvc.fingerprint"].check_files, modules["ckvc.shipped"].path_without_attention = check_files, {"the model's": LENGTHS}.get
    modules["vllm"].__version__, modules["vllm.logger"].init_logger, modules["vllm.engine.arg_utils"].EngineArgs = version, lambda name: log, EngineArgs
    return mock.patch.dict(sys.modules, modules), EngineArgs


said = []


def test_settings():
    assert plugin.settings_of({}) is None and plugin.settings_of({"other": 1}) is None and plugin.settings_of(object()) is None
    s = settings()
    assert s == plugin.Settings(LEARNED, 0.5, True, False, False) and settings(fit=False, untested=True)[2:] == (False, False, True)
    assert settings(LENGTHS, 0.25).lengths is True and settings(LENGTHS, 0.25, lengths=False).lengths is False
    assert settings(LENGTHS, 64).lengths is False and settings(LENGTHS, 64, lengths=True).lengths is True and settings(LENGTHS, 0.3).lengths is False
    for wrong, words in ((3, "ckvc is 3, want an object"), ({"budget": 0.5}, "ckvc.table is missing"), ({"table": LEARNED}, "ckvc.budget is missing"),
                         ({"table": LEARNED, "budget": True}, "ckvc.budget is True, want a number"),
                         ({"table": 7, "budget": 0.5}, "ckvc.table is 7, want a path"),
                         ({"table": LEARNED, "budget": 0.5, "fit": 1}, "ckvc.fit is 1, want true or false"),
                         ({"table": LEARNED, "budget": 0.5, "bug\n": 1}, "ckvc.bug  is no setting; they are table, budget, fit, lengths, untested"),
                         ({"table": "/none.ckvt", "budget": 0.5}, "/none.ckvt: No such file or directory"),
                         ({"table": LEARNED, "budget": 1.0}, "a budget of 1.0"), ({"table": LEARNED, "budget": -1}, "a budget of -1"),
                         ({"table": LEARNED, "budget": float("nan")}, "a budget of nan"), ({"table": LEARNED, "budget": 8}, "the least is 9"),
                         ({"table": golden("learned"), "budget": 0.5}, "its score (learned, features of version 1) reads attention"),
                         ({"table": golden("one-layer"), "budget": 0.5}, "its score (paper) reads attention"),
                         ({"table": LEARNED, "budget": 0.5, "lengths": True}, "no budget 0.5"),
                         ({"table": LEARNED, "budget": 0.25, "lengths": True}, "no shares")):
        refused(words, plugin.settings_of, {"ckvc": wrong})


def test_names_that_are_near():
    """A misspelt `ckvc` is found, and other settings are left alone."""
    assert plugin.near_names({"ckcv": {}, "CKVC": {}, "ckv": 1, "cache": 1, "lora": 2, 3: 4}) == ["ckcv", "CKVC", "ckv"] and plugin.near_names(None) == []


def test_shareable():
    """Of several lengths of layers the shortest gap counts; a prompt that stays whole in all of them is shared with its answer."""
    s = settings(LENGTHS, 64)._replace(lengths=True)
    rows = range(plugin.read_table(s.table).n_layers)
    kinds = set()
    for T in range(10, 400, 10):
        gaps = sorted({16 * plugin.gap_blocks(s, plugin.length_class(s, row), 16, T) for row in rows})
        kinds.add(tuple(gap > 0 for gap in gaps))
        assert plugin.shareable(s, 16, T) == (gaps[0] or (gaps[1] if len(gaps) > 1 else math.inf)), (T, gaps)
    assert {(False,), (False, True), (True, True)} <= kinds, kinds  # whole in all layers, in some, in none


def test_tables_of_the_package_that_read_attention():
    for name, words in (("ckvc-tiny-8l", "take ckvc-tiny-8l-lengths, which comes with ckvc, or compile a table with --features 2"),
                        (golden("learned"), "does not hold: compile a table with --features 2")):
        refused(words, plugin.settings_of, {"ckvc": {"table": name, "budget": 0.25}})


def test_blocks():
    """As many blocks as the budget has room for, and never fewer than a head's floor."""
    t = plugin.read_table(LEARNED)
    for budget in (0.5, 0.25, 0.01, 64, 9, 5000):
        s = settings(budget=budget)
        for T in [*range(0, 200), 1023, 1024, 1025]:
            full, tail = divmod(T, 16)
            nb = plugin.blocks_kept(s, None, 16, T)
            assert plugin.gap_blocks(s, None, 16, T) == full - nb
            if T <= t.window:
                assert nb == full
                continue
            n, want = nb * 16 + tail, max(int(budget if budget >= 1 else budget * T), 9)
            assert 0 <= nb <= full and n >= min(9, T), (budget, T, nb)
            assert nb == full or n + 16 > want, (budget, T, nb)  # a block more would be beyond the budget
            assert n <= want or nb == 0 or n - 16 < 9, (budget, T, nb)
    assert t.window == 16 and [plugin.blocks_kept(settings(budget=0.25), None, 4, T) for T in (16, 20)] == [4, 3]  # the window stays whole; then the floor of 9


def test_lengths():
    """Layers of equal share are a class, whose length is the table's in whole blocks."""
    t, s, T = plugin.read_table(LENGTHS), settings(LENGTHS, 0.25), 1000
    classes = [plugin.length_class(s, row) for row in range(4)]
    assert classes == [0, 1, 0, 1] and plugin.length_class(s._replace(lengths=False), 3) is None
    want = t.capacities(0, T, "lengths", 250)
    assert want[0] == want[2] > want[1]
    for row, c in enumerate(classes):
        n = plugin.blocks_kept(s, c, 16, T) * 16 + T % 16
        assert n <= want[row] < n + 16, (row, n, want)
    refused("no budget 0.3", settings, LENGTHS, 0.3, lengths=True)
    assert plugin.blocks_kept(s, 1, 16, 20) * 16 + 20 % 16 >= 9  # 5 tokens of 20 are below the floor


def test_refusals():
    assert plugin.refusal(config()) == ""
    for words, changed in (("MLA", dict(use_mla=True)), ("Mamba", dict(is_hybrid=True)), ("Mamba", dict(has_inner_state=True)),
                           ("M-RoPE", dict(uses_mrope=True)), ("writes no text (--runner pooling)", dict(runner_type="pooling")),
                           ("an encoder and a decoder", dict(is_encoder_decoder=True)), ("speculative decoding", dict(speculative_config=object())),
                           ("a KV connector", dict(kv_transfer_config=object())), ("context parallelism", dict(decode_context_parallel_size=2)),
                           ("context parallelism", dict(prefill_context_parallel_size=2)), ("pipeline parallelism", dict(pipeline_parallel_size=2)),
                           ("data parallelism", dict(data_parallel_size=2)), ("micro-batches", dict(use_ubatching=True)),
                           ("a quantised cache (--kv-cache-dtype fp8)", dict(cache_dtype="fp8")),
                           ("a scheduler of your own (--scheduler-cls mine.S)", dict(scheduler_cls="mine.S")),
                           ("the worker mine.W", dict(worker_cls="mine.W"))):
        assert words in plugin.refusal(config(**changed)), words


def test_layers():
    class Full(types.SimpleNamespace):
        pass

    spec = dict(sliding_window=None, attention_chunk_size=None, non_causal=False, head_size=64, head_size_v=64, kv_quant_mode=0)
    impl = dict(logits_soft_cap=None, alibi_slopes=None, sinks=None)

    def said_of(kind=Full, name="CPU_ATTN", **changed):
        backend = types.SimpleNamespace(get_name=lambda: name)
        layer = types.SimpleNamespace(impl=types.SimpleNamespace(**{k: changed.get(k, x) for k, x in impl.items()}), get_attn_backend=lambda: backend)
        return plugin.layer_refusal(layer, kind(**{k: changed.get(k, x) for k, x in spec.items()}), Full, [backend] if name == "CPU_ATTN" else [])

    assert said_of() == ""
    for words, changed in (("a sliding window", dict(sliding_window=4096)), ("attention in chunks", dict(attention_chunk_size=8192)),
                           ("a cache of the kind SimpleNamespace", dict(kind=types.SimpleNamespace)), ("not causal", dict(non_causal=True)),
                           ("keys and values of other widths", dict(head_size_v=128)), ("a quantised cache", dict(kv_quant_mode=1)),
                           ("the attention backend TRITON_ATTN", dict(name="TRITON_ATTN")), ("logits that are capped", dict(logits_soft_cap=50.0)),
                           ("ALiBi", dict(alibi_slopes=[1.0])), ("attention sinks", dict(sinks=[0.0]))):
        assert words in said_of(**changed), words
    assert plugin.shared_cache(types.SimpleNamespace()) == plugin.shared_cache(types.SimpleNamespace(kv_sharing_target_layer_name=None)) == ""
    assert plugin.shared_cache(types.SimpleNamespace(kv_sharing_target_layer_name="layers.0.attn")) == "the cache of layers.0.attn"


def test_plugin():
    """Without the setting the configuration is the one that vLLM made, untouched. With it, worker and scheduler are ckvc's, and prefix caching stays
    as it was asked for."""
    modules, EngineArgs = fake_vllm()
    with modules:
        made = config()
        before = repr(made)
        plugin.register()
        plugin.register()  # vLLM may load plugins more than once
        for asked in ({}, {"other": 1}):
            args = EngineArgs(asked, made)
            assert args.create_engine_config() is made and args.enable_prefix_caching is None
            made.additional_config = {}
            assert repr(made) == before and not said
        EngineArgs({"ckcv": {"budget": 0.5}}, made).create_engine_config()
        assert [text[:45] for text in said] == ["additional_config has ckcv; did you mean ckvc"], said
        said.clear()
        args = EngineArgs({"ckvc": {"table": LEARNED, "budget": 0.5}}, made)
        assert args.create_engine_config("usage") is made and args.enable_prefix_caching is None
        assert made.parallel_config.worker_cls == "ckvc.vllm.Worker" and made.scheduler_config.scheduler_cls == "ckvc.vllm.Scheduler"
        assert plugin.settings_of(made.additional_config) == settings() and "for a budget of 0.5." in said[0]
        args = EngineArgs({"ckvc": {"table": LEARNED, "budget": 0.5}}, config(async_scheduling=True, worker_cls="vllm.v1.worker.gpu_worker.Worker"))
        assert args.create_engine_config().scheduler_config.scheduler_cls == "ckvc.vllm.AsyncScheduler"
        assert args.made.parallel_config.worker_cls == "ckvc.vllm.Worker"
        args = EngineArgs({"ckvc": {"budget": 0.25}}, config())  # the table that comes along for this model
        assert args.create_engine_config().additional_config["ckvc"]["table"] == os.path.abspath(LENGTHS)
        args = EngineArgs({"ckvc": {"table": LEARNED, "budget": 0.5}}, config(hf_config="another"))
        refused("was made for another model than another", args.create_engine_config)
        args = EngineArgs({"ckvc": {"table": LEARNED, "budget": 0.5}}, config(cache_dtype="fp8"))
        refused("ckvc does not serve a quantised cache", args.create_engine_config)
        args = EngineArgs({"ckvc": {"table": LENGTHS, "budget": 0.25}},
                          config(disable_hybrid_kv_cache_manager=True))
        refused("a length per layer needs KV cache groups", args.create_engine_config)


def test_versions():
    for version, tested in (("0.32.0", True), ("0.32.1+cpu", True), ("0.33.0", False), ("1.32.0", False), ("0.320.0", False)):
        modules, _ = fake_vllm(version)
        with modules:
            if tested:
                plugin.prepare(config(), settings())
                continue
            refused(f"vLLM {version}: ckvc was tested with 0.32", plugin.prepare, config(), settings())
            said.clear()
            plugin.prepare(config(), settings(untested=True))
            assert f"ckvc was not tested with vLLM {version}" in said


with tempfile.TemporaryDirectory() as folder:
    LENGTHS = lengths_table(os.path.join(folder, "lengths.ckvt"))
    run_tests(globals())
