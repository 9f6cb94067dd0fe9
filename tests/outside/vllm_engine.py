#!/usr/bin/env python3
"""ckvc.vllm in an unmodified vLLM: kept sets, entries, tokens and their log probabilities beside those of ckvc.hf in the same mode, and losses beside those of
`ckvc score`; the same bits as plain vLLM where nothing is dropped; chunked prefills, preemption, cancelled requests, LoRA; what is refused; and vLLM's server
by openai's client. `make test-vllm` runs it.

    vllm_engine.py                                          # the embedded model, with tables that are made here
    vllm_engine.py --model DIR --table T.ckvt [--lengths T.ckvt] [--prompts p.jsonl] [--budget 0.5,0.25]

    vllm_engine.py --dtype bfloat16 --device cuda --eager 0 --gpus 2 ...    # see vllm_gpu.sh
    vllm_engine.py --only sets,losses,chunks,whole,sessions,prefix,storm,kinds,lora,memory,shipped,refused,serve      # some parts
"""
import asyncio
import contextlib
import copy
import dataclasses
import json
import os
import pathlib
import random
import sys
import threading
import time
import urllib.request
from unittest import mock

os.environ.update(VLLM_ENABLE_V1_MULTIPROCESSING="0", VLLM_CPU_OMP_THREADS_BIND="nobind", VLLM_LOGGING_LEVEL="ERROR", VLLM_NO_USAGE_STATS="1",
                  PYTHONUNBUFFERED="1")
os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")

import outside  # noqa: E402  (vLLM reads the variables above)

(torch, transformers, np, safetensors, _, vllm) = outside.modules("torch", "transformers", "numpy", "safetensors", "safetensors.torch", "vllm")
import ckvc.hf  # noqa: E402
import ckvc.prefill  # noqa: E402
import ckvc.vllm  # noqa: E402
import ckvc.vllm_plugin as plugin  # noqa: E402
from vllm import LLM, AsyncEngineArgs, SamplingParams  # noqa: E402
from vllm.engine.protocol import StreamingInput  # noqa: E402
from vllm.lora.request import LoRARequest  # noqa: E402
from vllm.sampling_params import RequestOutputKind  # noqa: E402
from vllm.v1.core.sched import scheduler as vllm_scheduler  # noqa: E402
from vllm.v1.engine.async_llm import AsyncLLM  # noqa: E402
from vllm.v1.sample.logits_processor import AdapterLogitsProcessor  # noqa: E402

a = outside.arguments(smollm2=False, model=(pathlib.Path, outside.ROOT / "models/ckvc-tiny-8l", ""), table=(pathlib.Path, None, "a table for --model"),
                      lengths=(pathlib.Path, None, "a table of mode lengths"), prompts=(pathlib.Path, None, "a manifest with tokens"),
                      budget=(str, "0.5,0.25", ""), dtype=(str, "float32", ""), device=(str, "cpu", ""), eager=(int, 1, "0: with CUDA graphs"),
                      gpus=(int, 1, ""), block=(int, 32, "slots of a block"),
                      close=(float, 1e-4, "the bound of log probabilities"), tie=(float, 2e-4, "the bound of scores, which are logarithms"),
                      apart=(float, 1e-4, "the share of kept positions that may be others, because scores are nearly equal"),
                      wait=(int, 900, "seconds for the server to start"), requests=(int, 200, "of random lengths, arrivals and cancellations"),
                      minutes=(float, 0, "for how long these requests come, in place of --requests"),
                      only=(str, "", "names of parts"))
tmp, BLOCK, NEW = outside.scratch(), a.block, 40
SAMPLING = SamplingParams(temperature=0, max_tokens=NEW, logprobs=1, ignore_eos=True)


def prose_ids():
    tok = transformers.AutoTokenizer.from_pretrained(a.model)
    return tok(outside.prose(a), add_special_tokens=False, verbose=False)["input_ids"]


def make_tables():
    """Tables of the embedded model: with a bank, without, with two lengths, and one whose score reads attention."""
    fitted = outside.manifest([{"id": f"f{i}", "tokens": ids[10000 + 300 * i : 10300 + 300 * i]} for i in range(8)])
    common = ["--model", a.model, "--manifest", fitted.name, "--window", 32, "--continuation", 32, "--budget", "0.125,0.25", "-q"]
    for side, *more in (("demand", "--queries", 16), ("score",)):
        outside.run(a.ckvc, "calibrate", "--side", side, *common, *more, "--out", tmp / side)
    for name, *options in (("plain", "--features", 2), ("bank", "--features", 2, "--bank", 16, "--ridge", 0.3),
                           ("lengths", "--features", 2, "--mode", "lengths", "--classes", 2), ("attention",),
                           ("one", "--features", 2, "--bank", 16, "--ridge", 0.3, "--kept-floor", 1)):
        outside.run(a.ckvc, "fit", tmp / "demand", tmp / "score", *options, "-q", "--out", tmp / f"{name}.ckvt")
    longer = outside.manifest([{"id": f"g{i}", "tokens": ids[10000 + 900 * i : 10900 + 900 * i]} for i in range(8)])
    common[3], common[-2] = longer.name, 256
    outside.run(a.ckvc, "calibrate", "--side", "demand", *common, "--out", tmp / "of-256")
    outside.run(a.ckvc, "fit", tmp / "of-256", "--features", 2, "--mode", "lengths", "--classes", 2, "-q", "--out", tmp / "of-256.ckvt")
    return {name: str(tmp / f"{name}.ckvt") for name in ("plain", "bank", "lengths", "attention", "one", "of-256")}


@contextlib.contextmanager
def engine(settings=None, **options):
    """An LLM, and the scheduler in it. settings: ckvc's."""
    options = {**dict(model=str(a.model), dtype=a.dtype, block_size=BLOCK, enforce_eager=bool(a.eager), tensor_parallel_size=a.gpus, max_model_len=2048,
                        max_num_seqs=16, seed=0), **options}
    llm = LLM(**options, **({"additional_config": {"ckvc": settings}} if settings else {}))
    yield llm, llm.llm_engine.engine_core.engine_core.scheduler
    llm.llm_engine.engine_core.shutdown()


def resident_mb():
    """The resident memory of this process."""
    return int(pathlib.Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


def free_blocks(scheduler):
    return scheduler.kv_cache_manager.block_pool.get_num_free_blocks()


def answers(llm, asked, sampling=SAMPLING, adapters=None):
    """The tokens and their log probabilities of each prompt's answer. adapters: a LoRARequest or None for each prompt."""
    out = [x.outputs[0] for x in llm.generate([{"prompt_token_ids": x} for x in asked], sampling, use_tqdm=False, lora_request=adapters)]
    return [(list(x.token_ids), [at[t].logprob for at, t in zip(x.logprobs, x.token_ids)]) for x in out]


@contextlib.contextmanager
def spied():
    """What compactions choose: {(T, row): (positions [G, n], the scores [G, T] that they were ranked by)}, of prompts whose lengths differ."""
    sets, real, largest, ranked = {}, ckvc.vllm.kept_of_layer, ckvc.prefill._largest, threading.local()  # layers are compacted at once

    def kept_of_layer(table, block, geometry, row, keys, *rest):
        kept = real(table, block, geometry, row, keys, *rest)
        sets[keys.shape[1], row] = kept.cpu(), ranked.scores.cpu()
        return kept

    def spied_largest(scores, *rest):
        ranked.scores = scores
        return largest(scores, *rest)

    with mock.patch.object(ckvc.vllm, "kept_of_layer", kept_of_layer), mock.patch.object(ckvc.prefill, "_largest", spied_largest):
        yield sets


def kept_lengths(settings, T):
    """How many positions each head of each layer keeps, [L]."""
    rows = range(plugin.read_table(settings.table).n_layers)
    return np.array([plugin.blocks_kept(settings, plugin.length_class(settings, row), BLOCK, T) * BLOCK + T % BLOCK for row in rows])


@dataclasses.dataclass
class Beside:
    """How sets that vLLM chose compare with those of ckvc.hf. kept: how many positions. other: how many of them ckvc.hf drops. apart: the largest difference
    of two scores of one position. swap: how far ckvc.hf's scores of two positions are apart at most, of which it keeps one and vLLM the other."""
    kept: int = 0
    other: int = 0
    apart: float = 0.0
    swap: float = 0.0

    def add(self, ours, scores, theirs, their_scores):
        """Adds one head: its positions by vLLM, and by ckvc.hf, with the scores [T] that they were ranked by."""
        dropped, taken = np.setdiff1d(theirs, ours), np.setdiff1d(ours, theirs)
        self.kept, self.other = self.kept + len(ours), self.other + len(taken)
        self.apart = max(self.apart, float((scores - their_scores).abs().max()))
        if len(taken):
            self.swap = max(self.swap, float(their_scores[dropped].max() - their_scores[taken].min()))


def by_transformers(settings, prompt, given, sets, beside, of=None):
    """The logits [len(given), V] of what follows the prompt and the tokens given, by ckvc.hf. Each layer has the lengths that vLLM's blocks have room for. What
    ckvc.hf would keep is added to `beside`; then it keeps the sets that vLLM chose, where `sets` has them, so that logits are of the same positions."""
    table, of, real = ckvc.Table.read(settings.table), of or model, ckvc.prefill.Prefill.keep
    lengths = kept_lengths(settings, len(prompt))

    def keep(prefill, r_sem=None):
        own = real(prefill, r_sem)
        if own.whole or not sets:
            return own
        chosen = [sets[len(prompt), row] for row in range(len(own.positions))]
        for row, (positions, scores) in enumerate(chosen):
            for args in zip(positions.numpy(), scores, own.positions[row], prefill._finished(row, None).cpu()):
                beside.add(*args)
        return dataclasses.replace(own, positions=[list(positions.numpy()) for positions, _ in chosen])

    with mock.patch.object(table, "capacities", lambda *rest: lengths), mock.patch.object(ckvc.prefill.Prefill, "keep", keep), torch.no_grad():
        whole = (lengths == len(prompt)).all()
        with contextlib.nullcontext() if whole else ckvc.hf.compress(of, table, budget=settings.budget, mode="lengths", fit=settings.fit):
            first = of(torch.tensor([prompt], device=a.device), use_cache=True)
            rest = of(torch.tensor([given[:-1]], device=a.device), past_key_values=first.past_key_values).logits[0]
            return torch.cat([first.logits[0, -1:], rest]).cpu()


def compare(name, settings, asked, got, sets, groups, of=None):
    """Sets, tokens and log probabilities of answers to the prompts asked, beside those of ckvc.hf with the model `of`."""
    settings, beside, tokens, furthest = plugin.settings_of({"ckvc": settings}), Beside(), 0, 0.0
    for prompt, (tokens_here, logprobs) in zip(asked, got):
        logits = by_transformers(settings, prompt, tokens_here, sets, beside, of)
        theirs = logits.double().log_softmax(dim=1)[range(NEW), tokens_here]
        tokens += sum(logits.argmax(dim=1).tolist()[i] != t and float(logits[i].max() - logits[i, t]) > a.close for i, t in enumerate(tokens_here))
        furthest = max(furthest, float((theirs - torch.tensor(logprobs)).abs().max()))
    outside.at_most(f"{name}: scores of {len(sets)} layers ({groups} groups) beside ckvc.hf's", beside.apart, a.tie)
    outside.at_most(f"{name}: {beside.other} of {beside.kept} positions are others than ckvc.hf's; how far their scores are apart",
                    beside.swap, 2 * beside.apart)
    outside.at_most(f"{name}: of {beside.kept} positions those that are others", beside.other, a.apart * beside.kept)
    outside.at_most(f"{name}: {len(asked) * NEW} greedy tokens that ckvc.hf would not choose", tokens, 0)
    outside.at_most(f"{name}: their log probabilities beside ckvc.hf's", furthest, a.close)


def beside_transformers(name, settings):
    """Sets, tokens and log probabilities of prompts that are decoded together."""
    with spied() as sets, engine(settings) as (llm, scheduler):
        before = free_blocks(scheduler)
        got = answers(llm, prompts)
        outside.at_most(f"{name}: blocks that are not free at the end", before - free_blocks(scheduler), 0)
        groups = len(scheduler.kv_cache_config.kv_cache_groups)
        if a.device == "cpu":
            pool, n = ckvc.vllm.threads(), min(torch.get_num_threads(), 8)
            together = threading.Barrier(n)  # so that each task has a thread of its own

            def of_torch(_):
                together.wait(60)
                torch.ones(1 << 20).sum()
                return torch.get_num_threads()

            outside.at_most(f"{name}: threads of the pool in which torch has more than one, of {n}", sum(x != 1 for x in pool.map(of_torch, range(n))), 0)
    compare(name, settings, prompts, got, sets if a.gpus == 1 else {}, groups)  # of several GPUs each worker has its own sets, in another process


def pair():
    """The names of a table of one length and, where there is one, of a table of the mode lengths."""
    return [name for name in ("bank", "lengths") if name in tables]


def longest():
    """The tokens of the longest prompt and its answer, in whole blocks."""
    return -(-(max(map(len, prompts)) + 3 * NEW) // BLOCK) * BLOCK


def part_sets():
    with engine() as (llm, scheduler):
        plain = answers(llm, prompts)
        outside.at_most("without the setting: the scheduler and specs are not vLLM's own", type(scheduler).__module__.startswith("ckvc"), 0)
    with engine({"table": tables["bank"], "budget": 100000}) as (llm, _):
        outside.at_most("whole prompts: tokens and log probabilities are not plain vLLM's bits", answers(llm, prompts) != plain, 0)
    for budget in map(float, a.budget.split(",")):
        for name in tables:
            if name not in ("attention", "one") and (name != "lengths" or budget == 0.25):
                beside_transformers(f"{name}, {budget:g}", {"table": tables[name], "budget": budget})
    beside_transformers("bank, 0.25, not fitted", {"table": tables["bank"], "budget": 0.25, "fit": False})


class Forced(AdapterLogitsProcessor):
    """Makes requests answer with the tokens `given` of their extra arguments. Their log probabilities are those that vLLM takes before."""
    def is_argmax_invariant(self):
        return False

    def new_req_logits_processor(self, params):
        given = (params.extra_args or {}).get("given")

        def force(output, logits):
            token = given[len(output)]
            chosen = torch.full_like(logits, -torch.inf)
            chosen[token] = 0
            return chosen
        return force if given else None


def part_losses():
    """Losses of true continuations beside those of `ckvc score`. Prompts have 1,024 tokens, so that a quarter is whole blocks, and tables one length."""
    name, T = tables.get("one", tables["bank"]), 1024
    table, pieces = plugin.read_table(name), [p[: T + NEW] for p in long_prompts if len(p) >= T + NEW][:4]
    if (table.c_min[:, 0] < 1).any() or 0.25 not in table.budgets or not pieces or a.dtype != "float32":
        return print(f"     losses: not compared: want float32, prompts of {T + NEW} tokens and a table of one length (--kept-floor 1) with budget 0.25")
    with outside.manifest([{"id": str(i), "tokens": p} for i, p in enumerate(pieces)]) as m:
        lines = outside.run(a.ckvc, "score", "--model", a.model, "--manifest", m.name, "--table", name,
                            "--window", table.window, "--continuation", NEW, "-q")
    want = {int(x["id"]): (x["loss_full"], x["loss_comp"]) for x in map(json.loads, lines.splitlines()) if x["budget"] == 0.25 and x["table"]}
    with engine({"table": name, "budget": 0.25}, logits_processors=[Forced]) as (llm, _):
        out = llm.generate([{"prompt_token_ids": p[:T]} for p in pieces], [
            SamplingParams(max_tokens=NEW, logprobs=0, ignore_eos=True, extra_args={"given": p[T:]}) for p in pieces], use_tqdm=False)
    for i, (p, x) in enumerate(zip(pieces, out)):
        assert list(x.outputs[0].token_ids) == p[T:]
        loss = -float(np.mean([at[t].logprob for at, t in zip(x.outputs[0].logprobs, p[T:])]))
        outside.at_most(f"losses, prompt {i}: {loss:.5f} beside {want[i][1]:.5f} of ckvc score (whole cache: {want[i][0]:.5f})", abs(loss - want[i][1]), 2e-3)


def part_chunks():
    """Chunks and mixtures, preemption, and both at once give the same texts."""
    for name in pair():
        settings, preempted = {"table": tables[name], "budget": 0.25}, []
        many, sampling = prompts + [ids[97 * i : 97 * i + 260] for i in range(14)], SamplingParams(temperature=0, max_tokens=3 * NEW, ignore_eos=True)

        def preempt(self, request, *rest, **more):
            preempted.append(request.num_output_tokens)
            return super(ckvc.vllm._SplitAtPrompt, self)._preempt_request(request, *rest, **more)

        with engine(settings, max_model_len=longest()) as (llm, scheduler):
            groups = len(scheduler.kv_cache_config.kv_cache_groups)
            small = dict(num_gpu_blocks_override=groups * (longest() // BLOCK + 9))
            want = [list(x.outputs[0].token_ids) for x in llm.generate([{"prompt_token_ids": x} for x in many], sampling, use_tqdm=False)]
        for what, options in (("chunks of 160", dict(max_num_batched_tokens=160)), ("a small pool", small),
                              ("chunks in a small pool", dict(max_num_batched_tokens=160, **small)),
                              ("priorities in a small pool", dict(scheduling_policy="priority", **small)),
                              ("async scheduling in a small pool", dict(async_scheduling=True, **small))):
            preempted.clear()
            options["max_model_len"] = longest()
            with mock.patch.object(ckvc.vllm._SplitAtPrompt, "_preempt_request", preempt, create=True), engine(settings, **options) as (llm, scheduler):
                before = free_blocks(scheduler)
                priority = dict(priority=[len(many) - i for i in range(len(many))]) if "priorit" in what else {}
                out = llm.generate([{"prompt_token_ids": x} for x in many], sampling, use_tqdm=False, **priority)
                got = [list(x.outputs[0].token_ids) for x in out]
                outside.at_most(f"{name}, {what}: texts that differ ({len(preempted)} preempted, {sum(n > 0 for n in preempted)} with an answer begun)",
                                sum(x != y for x, y in zip(got, want)), 0)
                outside.at_most(f"{name}, {what}: blocks that are not free at the end", before - free_blocks(scheduler), 0)
                if "pool" in what:
                    outside.at_most(f"{name}, {what}: nothing was preempted", not any(preempted), 0)


def gaps_of(settings, T):
    """The slots of the gap of each layer."""
    return [plugin.gap_blocks(settings, plugin.length_class(settings, row), BLOCK, T) * BLOCK for row in range(plugin.read_table(settings.table).n_layers)]


def part_whole():
    """Some layers keep a prompt whole that is compacted in others. What they hold of its answer was computed from what the others kept, so no request finds it.
    The third prompt goes on behind that answer, as the second, whose gaps are longer, has done before it."""
    if "of-256" not in tables:
        return
    settings, sampling = {"table": tables["of-256"], "budget": 256}, SamplingParams(temperature=0, max_tokens=180, ignore_eos=True, logprobs=1)
    gaps = gaps_of(plugin.settings_of({"ckvc": settings}), 300)
    outside.at_most("a prompt of 300 tokens is not whole in some layers and compacted in others", not min(gaps) == 0 < max(gaps), 0)

    def asking(**options):
        with engine(settings, **options) as (llm, _):
            first = answers(llm, [ids[:300]], sampling)[0]
            return [first, *(answers(llm, [ids[:300] + first[0] + ids[5000 + 2000 * i : 5500 + 2000 * i]])[0] for i in range(2))]

    for i, (x, y) in enumerate(zip(asking(enable_prefix_caching=True), asking(enable_prefix_caching=False))):
        outside.at_most(f"prompt {i + 1}: tokens that differ from those without prefix caching", sum(s != t for s, t in zip(x[0], y[0])), 0)
        outside.at_most(f"prompt {i + 1}: their log probabilities beside those without", float(np.abs(np.subtract(x[1], y[1])).max()), 1e-5)


def part_sessions():
    """A session whose text streams in: each of its turns has the answer of one prompt of all that came before it. (vLLM leaves the last token of an answer out.)"""
    chunks = [ids[:600], ids[2000:2020], ids[3000:3300]]
    sampling = SamplingParams(temperature=0, max_tokens=12, ignore_eos=True, logprobs=1, output_kind=RequestOutputKind.DELTA)

    async def talk(name, caching):
        options = dict(model=str(a.model), dtype=a.dtype, block_size=BLOCK, enforce_eager=bool(a.eager), max_model_len=2048, seed=0)
        llm = AsyncLLM.from_engine_args(AsyncEngineArgs(**options, enable_prefix_caching=caching, additional_config={"ckvc": {"table": tables[name], "budget": 0.25}}))
        said, ready = [], [asyncio.Event() for _ in chunks[1:]]

        async def stream():
            for chunk, after in zip(chunks, [None, *ready]):
                if after:
                    await after.wait()
                yield StreamingInput(prompt={"prompt_token_ids": list(chunk)})

        async def answer(prompt, request):
            async for out in llm.generate(prompt, sampling, request):
                one = out.outputs[0]
                yield [(t, at[t].logprob) for at, t in zip(one.logprobs or [], one.token_ids)]

        async for more in answer(stream(), "session"):
            said += more
            for i, event in enumerate(ready):
                if len(said) >= 12 * (i + 1):
                    event.set()
        prompt, alone = [], []
        for i, chunk in enumerate(chunks):
            prompt = prompt + [t for t, _ in said[12 * i - 12 : 12 * i - 1]] + chunk if i else chunk
            async for more in answer({"prompt_token_ids": prompt}, f"turn {i}"):
                alone += more
        llm.shutdown()
        return said, alone

    for name in pair():
        for caching in (False, True):
            with mock.patch.dict(os.environ, VLLM_ENABLE_V1_MULTIPROCESSING="1"):
                said, alone = asyncio.run(talk(name, caching))
            what = f"{name}, {'with' if caching else 'without'} prefix caching, a session of {len(chunks)} turns"
            outside.at_most(f"{what}: tokens that differ from those of one prompt for each turn", sum(x[0] != y[0] for x, y in zip(said, alone)) + abs(len(said) - 36), 0)
            outside.at_most(f"{what}: their log probabilities beside those", max(abs(x[1] - y[1]) for x, y in zip(said, alone)), a.close)


def part_prefix():
    """Requests share the beginnings of prompts as far as compaction leaves them as they are, one after another and at once. Their texts are those that they have
    where nothing is shared: prompts that go on behind another's, that end within it, that are the same, that hold another's answer, and that stay whole."""
    sampling = SamplingParams(temperature=0, max_tokens=NEW, ignore_eos=True)

    def shared(settings, T):
        """How many tokens of a prompt may be shared: of each length of layers the gap, if it has one."""
        return min((gap for gap in gaps_of(settings, T) if gap), default=T - 1)

    def common(x, y):
        return next((i for i, (s, t) in enumerate(zip(x, y)) if s != t), min(len(x), len(y)))

    def asking(llm, asked):
        return llm.generate([{"prompt_token_ids": x} for x in asked], sampling, use_tqdm=False)

    for name in pair():
        settings = {"table": tables[name], "budget": 0.25}
        of, text = plugin.settings_of({"ckvc": settings}), ids[: 1400 + BLOCK]
        asked = [text[:1200], text[:700], text[:1200] + ids[-200:], text[:1200], text[:300] + ids[-900:], text[:33], text[:50], text[:1400], text[:800], text[:1216]]
        with engine(settings, enable_prefix_caching=False) as (llm, _):
            asked += [p + list(x.outputs[0].token_ids) + ids[-300:-200] for p, x in zip(asked[:2], asking(llm, asked[:2]))]  # a second turn
            want = [list(x.outputs[0].token_ids) for p in asked for x in asking(llm, [p])]
        with engine(settings, enable_prefix_caching=True) as (llm, scheduler):
            before, out = free_blocks(scheduler), [x for p in asked for x in asking(llm, [p])]
            expected = [max((min(common(p, q), shared(of, len(q)), shared(of, len(p)), len(p) - 1) // BLOCK * BLOCK for q in asked[:i]), default=0)
                        for i, p in enumerate(asked)]
            outside.at_most(f"{name}, one after another: tokens that are shared ({sum(expected)} of {sum(map(len, asked))}) beside those that may be",
                            max(abs(x.num_cached_tokens - n) for x, n in zip(out, expected)), 0)
            outside.at_most(f"{name}, one after another: texts that differ", sum(list(x.outputs[0].token_ids) != y for x, y in zip(out, want)), 0)
            out = asking(llm, asked[::-1] + asked)
            outside.at_most(f"{name}, at once: texts that differ ({sum(x.num_cached_tokens for x in out)} tokens were shared)",
                            sum(list(x.outputs[0].token_ids) != y for x, y in zip(out, want[::-1] + want)), 0)
            outside.at_most(f"{name}: blocks that are not free at the end", before - free_blocks(scheduler), 0)
        with engine(settings, enable_prefix_caching=True, max_model_len=longest() + 256, num_gpu_blocks_override=len(scheduler.kv_cache_config.kv_cache_groups)
                    * ((longest() + 256) // BLOCK + 9), max_num_batched_tokens=256) as (llm, scheduler):
            before, out = free_blocks(scheduler), asking(llm, asked + asked[::-1])
            outside.at_most(f"{name}, in chunks and a small pool: texts that differ ({sum(x.num_cached_tokens for x in out)} tokens were shared)",
                            sum(list(x.outputs[0].token_ids) != y for x, y in zip(out, want + want[::-1])), 0)
            outside.at_most(f"{name}, in chunks and a small pool: blocks that are not free at the end", before - free_blocks(scheduler), 0)


def part_storm():
    """Requests of random lengths that come and are cancelled at random, for --minutes or until there were --requests. Many begin alike and share that in the
    prefix cache. The last that end have the texts that they have alone. The resident memory of this process is printed; that of plain vLLM grows as well in the first thousands of requests."""
    rng = random.Random(5)
    for name in pair():
        small = dict(num_gpu_blocks_override=300 if name == "lengths" else 100, max_num_batched_tokens=512, max_model_len=1184)
        with engine({"table": tables[name], "budget": 0.25}, **small) as (llm, scheduler):
            before, core, alive, ended, n, n_ended = free_blocks(scheduler), llm.llm_engine, {}, {}, 0, 0
            begin, resident = time.monotonic(), []

            def more_come():
                return time.monotonic() < begin + 60 * a.minutes if a.minutes else n < a.requests

            while more_come() or alive:
                if time.monotonic() > begin + 60 * len(resident):
                    resident.append(resident_mb())
                while more_come() and len(alive) < 64 and rng.random() < 0.5:
                    at, T = rng.choice((rng.randrange(len(ids) - 1200), 0, 600)), rng.choice((1, 20, rng.randrange(2, 300), rng.randrange(300, 1100)))
                    alive[str(n)] = ids[at : at + T]
                    core.add_request(str(n), {"prompt_token_ids": ids[at : at + T]},
                                     SamplingParams(temperature=0, max_tokens=rng.randrange(1, 30), ignore_eos=True))
                    n += 1
                for x in core.step():
                    if x.finished:
                        ended[x.request_id], n_ended = (alive.pop(x.request_id), list(x.outputs[0].token_ids)), n_ended + 1
                        if len(ended) > 500:
                            ended.pop(next(iter(ended)))
                if alive and rng.random() < 0.1:
                    core.abort_request([gone := rng.choice(sorted(alive))])
                    alive.pop(gone)
            print(f"     {name}: {n} requests, {n - n_ended} cancelled, {time.monotonic() - begin:.0f} s")
            print(f"     {name}: MB of resident memory, minute for minute: {' '.join(f'{x:.0f}' for x in resident)}")
            outside.at_most(f"{name}: blocks that are not free at the end", before - free_blocks(scheduler), 0)
            some = rng.sample(sorted(ended), 12)
            alone = [llm.generate([{"prompt_token_ids": p}], SamplingParams(temperature=0, max_tokens=len(out), ignore_eos=True), use_tqdm=False)[0]
                     for p, out in (ended[x] for x in some)]
            other = sum(list(x.outputs[0].token_ids) != ended[i][1] for x, i in zip(alone, some))
            outside.at_most(f"{name}: of 12 texts those that are others alone", other, 0)


def part_kinds():
    """Kinds of requests: several answers, beams, structured output."""
    from vllm.sampling_params import BeamSearchParams, StructuredOutputsParams
    with engine({"table": tables["bank"], "budget": 0.25}) as (llm, scheduler):
        before, prompt = free_blocks(scheduler), {"prompt_token_ids": prompts[0]}
        alone = llm.generate([prompt], SamplingParams(temperature=1, seed=3, max_tokens=12), use_tqdm=False)[0].outputs[0].token_ids
        three = llm.generate([prompt], SamplingParams(temperature=1, seed=3, n=3, max_tokens=12), use_tqdm=False)[0].outputs
        outside.at_most("n = 3: the first answer is not that of n = 1", list(three[0].token_ids) != list(alone), 0)
        outside.at_most("n = 3: fewer than 3 answers", 3 - len({tuple(x.token_ids) for x in three}), 0)
        beams = llm.beam_search([prompt], BeamSearchParams(beam_width=3, max_tokens=6))[0].sequences
        outside.at_most("beams: fewer than 3", 3 - len(beams), 0)
        choice = SamplingParams(temperature=0, max_tokens=20, structured_outputs=StructuredOutputsParams(choice=["table", "budget"]))
        text = llm.get_tokenizer().decode(llm.generate([prompt], choice, use_tqdm=False)[0].outputs[0].token_ids, skip_special_tokens=True)
        outside.at_most(f"structured output: {text!r} is not one of the choices", text not in ("table", "budget"), 0)
        outside.at_most("kinds of requests: blocks that are not free at the end", before - free_blocks(scheduler), 0)


def part_lora():
    """An adapter of random numbers on the projections of attention: requests with it and without, decoded together. transformers has its product added. vLLM's
    kernels for CPUs give a request without an adapter the last slot of adapters, with or without ckvc, so there is a second slot here, which stays empty."""
    r, alpha, adapted, weights = 4, 8, copy.deepcopy(model), {}
    draw = torch.Generator().manual_seed(7)
    for i, layer in enumerate(adapted.model.layers):
        for name in ("q_proj", "k_proj", "v_proj", "o_proj"):
            w = getattr(layer.self_attn, name).weight
            x, y = torch.randn(r, w.shape[1], generator=draw) * 0.03, torch.randn(w.shape[0], r, generator=draw) * 0.03
            weights |= {f"base_model.model.model.layers.{i}.self_attn.{name}.lora_{k}.weight": z for k, z in (("A", x), ("B", y))}
            w.data += alpha / r * (y @ x).to(w)
    (tmp / "lora").mkdir()
    safetensors.torch.save_file(weights, tmp / "lora/adapter_model.safetensors")
    (tmp / "lora/adapter_config.json").write_text(json.dumps(dict(
        peft_type="LORA", task_type="CAUSAL_LM", r=r, lora_alpha=alpha, bias="none", base_model_name_or_path=str(a.model),
        target_modules=["q_proj", "k_proj", "v_proj", "o_proj"])))
    settings, adapter = {"table": tables["bank"], "budget": 0.25}, LoRARequest("random", 1, str(tmp / "lora"))
    asked = [p + p[:1] for p in prompts]  # of other lengths, so that their sets are told apart
    with spied() as sets, engine(settings, enable_lora=True, max_lora_rank=8, max_loras=2) as (llm, scheduler):
        before = free_blocks(scheduler)
        got = answers(llm, prompts + asked, SAMPLING, [None] * len(prompts) + [adapter] * len(asked))
        outside.at_most("LoRA: blocks that are not free at the end", before - free_blocks(scheduler), 0)
    for name, of, those, out in (("without the adapter", model, prompts, got[: len(prompts)]), ("LoRA", adapted, asked, got[len(prompts) :])):
        with mock.patch.object(ckvc.hf, "check_model"):  # which refuses the model with the adapter's product added
            compare(f"LoRA: {name}", settings, those, out, sets, 1, of)
    other = sum(x[0] != y[0] for x, y in zip(got, got[len(prompts) :]))
    outside.at_most("LoRA: the adapter changes no answer", not other, 0)


def part_memory():
    """How many requests decode at once where memory is what binds: prompts of 1,000 tokens and answers of 128 in a pool that holds eight prompts."""
    most, name = {}, "bank"
    for budget in (100000, 0.25, 0.125):
        with engine({"table": tables[name], "budget": budget}, num_gpu_blocks_override=8 * 32, max_model_len=1184, max_num_seqs=64) as (llm, scheduler):
            core, decoding, begin = llm.llm_engine, [], time.monotonic()
            for i in range(40):
                core.add_request(str(i), {"prompt_token_ids": ids[500 * i : 500 * i + 1000]}, SamplingParams(temperature=0, max_tokens=128, ignore_eos=True))
            while core.has_unfinished_requests():
                core.step()
                decoding.append(sum(r.num_computed_tokens >= r.num_prompt_tokens for r in scheduler.running))
            most[budget] = max(decoding)
            print(f"     budget {budget:g}: of 40 requests at most {max(decoding)} decode at once, on average {np.mean(decoding):.1f}; "
                  f"{len(decoding)} steps, {time.monotonic() - begin:.0f} s")
    outside.at_most("a quarter: times as many requests at once that it is short of 3", 3 - most[0.25] / most[100000], 0)


def part_shipped():
    """Where no table is named, the one that comes along for the model is served, as if its path were given."""
    if a.table:
        return
    got = []
    for settings in ({"budget": 0.25}, {"budget": 0.25, "table": str(outside.ROOT / "docs/results/ckvc-tiny-8l-lengths/table.ckvt")}, None):
        with engine(settings) as (llm, _):
            got.append(answers(llm, prompts))
    outside.at_most("no table named: answers that differ from those with the table that comes along", sum(x != y for x, y in zip(*got[:2])), 0)
    outside.at_most("no table named: answers are the same as without ckvc", got[0] == got[2], 0)


def part_refused():
    """What is refused when an engine starts, by name."""
    good = {"table": tables["bank"], "budget": 0.25}
    cases = [("is no setting", {**good, "bugdet": 1}, {}), ("a quantised cache (--kv-cache-dtype fp8)", good, dict(kv_cache_dtype="fp8")),
             ("speculative decoding", good, dict(speculative_config={"method": "ngram", "num_speculative_tokens": 2})),
             ("a scheduler of your own", good, dict(scheduler_cls="vllm.v1.core.sched.scheduler.Scheduler"))]
    if a.table is None:
        cases += [("reads attention", {**good, "table": tables["attention"]}, {}), ("which has a sliding window", good, dict(model=other_model("sliding"))),
                  ("which has logits that are capped", good, dict(model=other_model("capped"))),
                  ("the model has", good, dict(model=str(outside.ROOT / "models/ckvc-tiny-4l"))),
                  ("none that comes with ckvc is known to be for the model", {"budget": 0.25}, dict(model=other_model("trained anew"))),
                  ("and their norms differ", good, dict(model=other_model("trained anew"))),
                  ("a length per layer needs KV cache groups", {**good, "table": tables["lengths"]}, dict(disable_hybrid_kv_cache_manager=True))]
    real = vllm_scheduler.Scheduler._get_local_prefix_cache_hit
    del vllm_scheduler.Scheduler._get_local_prefix_cache_hit  # as if vLLM looked for cached prefixes elsewhere
    try:
        for on, words in ((True, "ckvc does not know how this vLLM looks for prefixes"), (False, "")):
            said = ""
            try:
                with engine(good, enable_prefix_caching=on):
                    pass
            except Exception as problem:
                said = str(problem)
            outside.at_most(f"refused: another way to look for cached prefixes, with prefix caching {'on' if on else 'off'} (said: {said[-200:]!r})",
                            words not in said or bool(said) != on, 0)
    finally:
        vllm_scheduler.Scheduler._get_local_prefix_cache_hit = real
    # What is refused of another model behind the check by its files, which can only be told for some families and files.
    of_layers = "which has a sliding window", "the model has"
    for words, settings, options in cases:
        said = ""
        by_files = mock.patch("ckvc.fingerprint.check_files") if words in of_layers else contextlib.nullcontext()
        try:
            with by_files, engine(settings, **options):
                pass
        except Exception as problem:  # vLLM wraps some
            said = str(problem)
        outside.at_most(f"refused: {words}{'' if words in said else f' (said: {said[-300:]})'}", words not in said, 0)


def other_model(kind):
    """The folder of a small random model that ckvc does not serve."""
    common = dict(hidden_size=192, intermediate_size=256, num_hidden_layers=2, num_attention_heads=6, num_key_value_heads=3, head_dim=32, vocab_size=4096)
    if kind == "trained anew":  # the same model, with other weights
        config = transformers.AutoConfig.from_pretrained(a.model)
    elif kind == "sliding":
        config = transformers.MistralConfig(**common, sliding_window=64)
    else:
        config = transformers.Gemma2Config(**common, sliding_window=4096, layer_types=["full_attention"] * 2)
    transformers.AutoModelForCausalLM.from_config(config).save_pretrained(tmp / kind)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (tmp / kind / name).write_bytes((a.model / name).read_bytes())
    return str(tmp / kind)


@contextlib.contextmanager
def server(settings):
    """vLLM's server with its engine in another process and async scheduling: openai's client for it, and its address. None if it does not start."""
    import openai
    options = ["--model", a.model, "--dtype", a.dtype, "--block-size", BLOCK, "--max-model-len", 2048, "--max-num-seqs", 16, "--served-model-name", "m",
               "--return-tokens-as-token-ids", "--async-scheduling", "--chat-template", "{% for m in messages %}{{ m.content }}{% endfor %}",
               "--additional-config", json.dumps({"ckvc": settings}), *["--enforce-eager"] * a.eager]
    with outside.vllm_server(options, a.wait) as (address, log):
        yield address and openai.OpenAI(base_url=f"{address}/v1", api_key="none", max_retries=0), address
    outside.at_most("server: the log does not say that the table is served", "ckvc keeps of each prompt what" not in log.read_text(), 0)


def part_serve():
    """vLLM's server, asked by openai's client: prompts of all stages at once, streamed, and some of them cancelled; log probabilities; several answers;
    structured output; chats."""
    settings = {"table": tables["bank"], "budget": 0.25}
    with engine(settings) as (llm, _):
        want = answers(llm, prompts)
    with server(settings) as (client, address):
        if not client:
            return outside.at_most("server: it does not start", 1, 0)

        def ask(prompt, **more):
            return client.completions.create(model="m", prompt=prompt, **{"max_tokens": NEW, "temperature": 0, "logprobs": 1, **more})

        def gauge(name):
            text = urllib.request.urlopen(f"{address}/metrics").read().decode()
            return sum(float(line.split()[-1]) for line in text.splitlines() if line.startswith(f"vllm:{name}{{"))

        whole = {"extra_body": {"ignore_eos": True}}
        gone = [ask(p, stream=True, max_tokens=900, **whole) for p in prompts[:3]]
        streams, got = [ask(p, stream=True, **whole) for p in prompts], []
        for stream in gone:
            next(iter(stream))
            stream.close()  # a cancelled request, whose prompt is compacted or about to be
        for stream in streams:
            events = [event.choices[0].logprobs for event in stream]
            got.append(([int(t.split(":")[1]) for e in events for t in e.tokens], [x for e in events for x in e.token_logprobs]))
        outside.at_most("server: texts that differ from those of one process", sum(x[0] != y[0] for x, y in zip(got, want)), 0)
        outside.at_most("server: their log probabilities beside those of one process", max(
            float(np.abs(np.subtract(x[1], y[1])).max()) for x, y in zip(got, want)), a.close)
        three = ask(prompts[0], temperature=2, n=3, max_tokens=12).choices  # no seed: docs/vllm.md says why
        outside.at_most("server, n = 3: answers that are missing or the same", 3 - len({tuple(x.logprobs.tokens) for x in three}), 0)
        # a prompt that ends inside a character of several tokens would come back with the answer, which is how vLLM decodes it
        newline = transformers.AutoTokenizer.from_pretrained(a.model)("\n", add_special_tokens=False)["input_ids"]
        text = ask(prompts[1] + newline, extra_body={"structured_outputs": {"regex": "[0-9]{4}"}}).choices[0].text
        outside.at_most(f"server, structured output: {text!r} is not four digits", not (len(text) == 4 and text.isdecimal()), 0)
        chat = client.chat.completions.create(model="m", messages=[{"role": "user", "content": "What is a table? " * 60}], max_tokens=8, logprobs=True)
        outside.at_most("server: a chat has not 8 tokens", 8 - len(chat.choices[0].logprobs.content), 0)
        end = time.monotonic() + 30
        while gauge("num_requests_running") and time.monotonic() < end:
            time.sleep(0.2)
        outside.at_most("server: requests that run at the end", gauge("num_requests_running"), 0)
        outside.at_most("server: the share of blocks that are not free at the end", gauge("kv_cache_usage_perc"), 0)


if __name__ == "__main__":
    transformers.logging.set_verbosity_error()
    torch.set_num_threads(1)
    model = transformers.AutoModelForCausalLM.from_pretrained(a.model, dtype=getattr(torch, a.dtype)).eval().to(a.device)
    if a.prompts:
        long_prompts = [json.loads(line)["tokens"] for line in a.prompts.read_text().splitlines()]
        prompts = [p[: 1500 - 97 * i] for i, p in enumerate(long_prompts[:6])]
        ids = sum(prompts, [])
    else:
        ids = prose_ids()
        prompts = [ids[700 * i : 700 * i + n] for i, n in enumerate((900, 257, 1111, 40, 20, 512))]
        long_prompts = [ids[1100 * i : 1100 * (i + 1)] for i in range(4)]
    tables = make_tables() if a.table is None else {"bank": str(a.table)} | ({"lengths": str(a.lengths)} if a.lengths else {})
    for part in [f for name, f in list(globals().items()) if name.startswith("part_") and (not a.only or name[5:] in a.only.split(","))]:
        part()
    outside.done()
