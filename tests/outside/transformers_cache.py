#!/usr/bin/env python3
"""The contract of transformers' Cache, and one call at a time: what `ckvc.hf.compress` does with wrapped and compiled models, copies of a cache, threads,
and ways of attending that it does not know. Then transformers' own tests of cache classes (tests/utils/test_cache_utils.py of its repository, which its
package has not: TRANSFORMERS_SOURCE=DIR names a clone at the installed version's tag; they also want `parameterized` and `pytest`), with DynamicCache and
DynamicLayer replaced by a layer of ckvc's: the first tokens it is given are a prompt that is kept whole, and those behind it are new. NOT_OURS says which tests do
not apply.
"""
import collections
import contextlib
import copy
import importlib.util
import os
import pathlib
import pickle
import re
import threading
import unittest
import warnings
from unittest import mock

import outside
from outside import missed

a, (torch, transformers, *_), tok, ids = outside.by_torch()
import ckvc.hf  # noqa: E402  (its folder was added above)
import ckvc.score  # noqa: E402
from transformers.cache_utils import DynamicCache, DynamicLayer, StaticCache  # noqa: E402

MODEL, T, tmp = outside.ROOT / "models/ckvc-tiny-8l", 200, outside.scratch()
fitted = outside.manifest({"id": f"f{i}", "tokens": ids[10000 + 300 * i : 10300 + 300 * i]} for i in range(4))
outside.run(a.ckvc, "calibrate", "--model", MODEL, "--manifest", fitted.name, "--side", "demand", "--window", 32, "--continuation", 32, "--budget", 0.25, "-q", "--out", tmp / "demand")
outside.run(a.ckvc, "fit", tmp / "demand", "--ranking", "window", "-q", "--out", tmp / "t.ckvt")
model = transformers.AutoModelForCausalLM.from_pretrained(MODEL, dtype=torch.float32).eval()
table, prompt, other = ckvc.Table.read(tmp / "t.ckvt"), torch.tensor([ids[:T]]), torch.tensor([ids[3000:3260]])
plain_state = (dict(vars(model)), dict(vars(model.model)), model.config._attn_implementation)


def compress(of=model):
    return ckvc.hf.compress(of, table, 0.25)


def write(of=model, inputs=prompt, n=12, **more):
    return of.generate(input_ids=inputs, max_new_tokens=n, do_sample=False, **more)[0, inputs.shape[1] :].tolist()


def prefill(inputs=prompt, cache=None):
    with torch.no_grad():
        return model(inputs, use_cache=True, **ckvc.hf_model.with_cache(model, cache or DynamicCache(config=model.config))).past_key_values


def positions(kept):
    return [[p.tolist() for p in layer] for layer in kept.positions]


def in_inference_mode():
    """Whether tokens differ that are written outside inference mode behind a prompt that was read inside it; more of them than a layer has room for at first."""
    n, rows = ckvc.hf.KeptLayer.SPARE + 8, []
    for mode in (torch.inference_mode, torch.no_grad):
        with compress(), torch.no_grad():
            with mode():
                cache = prefill()
            row, text = prompt[:, -1:], []
            for _ in range(n):
                row = model(row, use_cache=True, **ckvc.hf_model.with_cache(model, cache)).logits[:, -1:].argmax(dim=-1)
                text.append(int(row))
        rows.append(text)
    return int(rows[0] != rows[1])


full = write()
with compress() as c:
    own, sets = write(), positions(c.kept[0])
with compress():
    of_other = write(inputs=other)


def as_before():
    """1 where the model is not as it was before any block."""
    return int((dict(vars(model)), dict(vars(model.model)), model.config._attn_implementation) != plain_state or bool(model.model._forward_pre_hooks) or write() != full)


def wrapped():
    """Models in models: how many write another text, keep other sets, or are spoilt for good."""
    wrong = 0
    ways = [torch.nn.DataParallel(model, device_ids=[]), torch.compile(copy.deepcopy(model), backend="eager")]
    with contextlib.suppress(ImportError):
        import peft
        adapted = peft.get_peft_model(copy.deepcopy(model), peft.LoraConfig(target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM"))  # whose update is 0 yet
        ways.append(adapted.eval())
    for way in ways:
        with compress(way) as c:
            got = write(getattr(way, "module", way) if isinstance(way, torch.nn.DataParallel) else way)
        wrong += got != own or positions(c.kept[0]) != sets
    compiled = copy.deepcopy(model)
    compiled.forward = torch.compile(compiled.forward, backend="eager")
    for more in ({}, {"cache_implementation": "static"}):
        with compress(compiled) as c:
            wrong += write(compiled, **more) != own or positions(c.kept[0]) != sets
    by_layer = copy.deepcopy(model)
    for layer in by_layer.model.layers:
        layer.forward = torch.compile(layer.forward, backend="eager")
    with compress(by_layer) as c:
        wrong += write(by_layer, n=4) != own[:4] or positions(c.kept[0]) != sets
    return wrong + missed(lambda: compress(torch.nn.Linear(1, 1)), "want a model of transformers") + as_before()


def by_hand(inputs):
    """The layers one after the other, past the decoder's forward: a way that nobody foresaw."""
    base = model.model
    hidden, at = base.embed_tokens(inputs), torch.arange(inputs.shape[1])[None]
    with torch.no_grad():
        for layer in base.layers:
            hidden = layer(hidden, attention_mask=None, position_ids=at, position_embeddings=base.rotary_emb(hidden, at))
            hidden = hidden[0] if isinstance(hidden, tuple) else hidden


def unserved():
    """What cannot be compressed: how often it is not refused at the call, or not said at the block's end; what ends with an error that should not."""
    def block(action):
        with compress(), torch.no_grad():
            action()

    said, wrong = f"read {T} tokens at once, more than the table's window of 32, and no prompt was compressed", 0
    filled = prefill()
    for action, words in ((lambda: model.generate_batch([ids[:T]]), "continuous batching"), (lambda: write(cache_implementation="paged"), "continuous batching"),
                          (lambda: write(use_cache=False), "use_cache=False leaves no cache"), (lambda: copy.deepcopy(model), "a copy of the model"),
                          (lambda: prefill(other, copy.deepcopy(filled)), "a cache that was not filled inside this block"),
                          (lambda: model(prompt, use_cache=False), said), (lambda: by_hand(prompt), said), (lambda: by_hand(prompt), said)):
        wrong += missed(lambda: block(action), words)
    wrong += missed(lambda: ckvc.hf.compress(model, table, "0.25"), "a budget of '0.25': want a number")
    block(lambda: by_hand(prompt[:, :32]))  # no longer than the window
    block(lambda: (by_hand(prompt), write(n=1)))
    try:
        block(lambda: (by_hand(prompt), 1 / 0))
    except ZeroDivisionError:  # not masked
        return wrong + as_before()
    return wrong + 1


def never_entered():
    """How often it is not said, with the caller's place, that a block was never entered, or said though one was, or none was made."""
    def said(action):
        with warnings.catch_warnings(record=True) as out:
            warnings.simplefilter("always")
            action()
        return [(w.category, pathlib.Path(w.filename).name) for w in out if "never entered, so nothing was compressed" in str(w.message)]

    def entered():
        with compress():
            pass

    wrong = said(lambda: compress() and write(n=1)) != [(RuntimeWarning, "transformers_cache.py")]
    with compress():
        wrong += said(lambda: missed(entered, "compressed by another")) != []
    return wrong + (said(entered) != []) + (said(lambda: missed(lambda: compress(torch.nn.Linear(1, 1)), "want a model")) != [])


def copies():
    """One prefill, many questions: how often a copy of the cache spoils another, or differs from what a prefill of its own gives; reset, batches."""
    wrong, questions = 0, [torch.tensor([ids[5000 + 40 * i : 5006 + 40 * i]]) for i in range(3)]

    def answer(question, cache):
        return write(inputs=torch.cat([prompt, question], dim=1), **ckvc.hf_model.with_cache(model, cache))

    with compress() as c:
        wrong += "budget 0.25, 0 of 0 bytes kept, holds None" not in repr(c)
        cache, want = prefill(), [answer(q, prefill()) for q in questions]
        got = [answer(q, copy.deepcopy(cache)) for q in questions]
        wrong += got != want or cache.get_seq_length() != T or positions(c.kept[0]) != sets
        wrong += f"{c.kept_bytes:,} of {c.full_bytes:,} bytes kept, holds ragged" not in repr(c) or not 0 < c.kept_bytes < c.full_bytes
        grown = copy.deepcopy(cache)
        answer(questions[0], grown)
        c.recompress(grown)
        wrong += answer(questions[1], cache) != want[1] or grown.get_seq_length() != T + 6 + 11
        static = prefill(cache=StaticCache(config=model.config, max_cache_len=300))
        wrong += [answer(q, copy.deepcopy(static)) for q in questions] != want or c.holds != "masked"
        prefill(other, StaticCache(config=model.config, max_cache_len=300))
        wrong += answer(questions[2], static) != want[2]  # hidden by its own prompt's sets
        for inputs, text in ((prompt, own), (other, of_other)):
            cache.reset()
            wrong += cache.get_seq_length() != 0 or write(inputs=inputs, **ckvc.hf_model.with_cache(model, cache)) != text or not isinstance(cache.layers[0], ckvc.hf.KeptLayer)
        cache = prefill()
        wrong += sum(missed(action, "holds each head's own positions") for action in (lambda: cache.layers[0].keys, lambda: list(cache), cache.layers[0].offload))
        wrong += missed(lambda: pickle.dumps(cache), "cannot be pickled") + missed(lambda: cache.layers[0].crop(-1), "cannot be cropped")
        wrong += cache.get_mask_sizes(5 if "query_length" in str(DynamicLayer.get_mask_sizes.__code__.co_varnames[:2]) else torch.arange(5), 0) != (T + 5, 0)
        wrong += any(cache.is_sliding) or len(cache) != 8
        cache.batch_repeat_interleave(2)
        cache.reorder_cache(torch.tensor([1, 0]))
        cache.batch_select_indices((1,))
        wrong += answer(questions[0], cache) != want[0]
    return wrong + as_before()


def together(*work):
    """What threads give, or the one line of their error."""
    out = [None] * len(work)

    def go(i):
        try:
            out[i] = work[i]()
        except ckvc.Error as problem:
            out[i] = str(problem)
    threads = [threading.Thread(target=go, args=(i,)) for i in range(len(work))]
    for thread in threads:
        thread.start()
    return threads, out


class Begun(transformers.generation.streamers.BaseStreamer):
    """Says when the first token is there, and when all are."""
    def __init__(self):
        self.there, self.ended = threading.Event(), False

    def put(self, value):
        self.there.set()

    def end(self):
        self.ended = True


def threads():
    """Threads on one model: how often it goes otherwise than said, or the model is not as it was."""
    wrong, begun = 0, Begun()
    with compress():  # the block's end waits
        running, out = together(lambda: write(n=60, streamer=begun))
        begun.there.wait()
    wrong += (not begun.ended) + as_before()
    running[0].join()
    wrong += out[0][:12] != own
    begun, stop = Begun(), KeyError("the block's own")
    try:
        with compress():  # by an exception it does not wait for all
            running, out = together(lambda: write(n=1500, streamer=begun))
            begun.there.wait()
            raise stop
    except KeyError as problem:
        wrong += problem is not stop
    wrong += begun.ended + as_before()
    running[0].join()
    wrong += "has been left" not in str(out[0])
    with compress() as c:  # a second call is refused, the first goes on; then one after the other
        begun = Begun()
        first, one = together(lambda: write(n=60, streamer=begun))
        begun.there.wait()
        second, two = together(write, lambda: prefill() and None, lambda: c.recompress(DynamicCache()))
        for thread in first + second:
            thread.join()
        wrong += one[0][:12] != own or any("another thread is in a call" not in str(x) for x in two)
        third, three = together(write)
        third[0].join()
        wrong += three[0] != own
        wrong += missed(lambda: compress().__enter__(), "compressed by another `with` block") + missed(lambda: compress(torch.nn.Sequential(model)).__enter__(), "compressed by another")
        late = model.generate
    wrong += missed(lambda: late(prompt, max_new_tokens=1), "has been left")
    with compress():  # as transformers' documentation streams
        streamer = transformers.TextIteratorStreamer(tok, skip_prompt=True)
        thread = threading.Thread(target=model.generate, kwargs=dict(input_ids=prompt, max_new_tokens=12, do_sample=False, streamer=streamer))
        thread.start()
        text = "".join(streamer)
        thread.join()
    wrong += text != tok.decode(own)
    entered, stay = [], threading.Event()

    def enter():
        with compress():
            entered.append(1)
            stay.wait(60)
    running, out = together(*[enter] * 8)
    while sum(thread.is_alive() for thread in running) > 1:
        stay.wait(0.01)
    stay.set()
    for thread in running:
        thread.join()
    return wrong + (len(entered) != 1) + as_before()


NOT_OURS = {
    "CacheTest": "static caches, linear attention and offloading, which ckvc leaves as they are",
    "CacheIntegrationTest": "a model of the hub; transformers_generate.py and `copies` here do the same with the embedded one",
    "CacheHardIntegrationTest": "models of the hub, most of them on a GPU",
    "CacheExportIntegrationTest": "torch.export, which traces a model without hooks and threads: no `with` block can be in it",
    "SyntheticCacheTest.test_(static|sliding|hybrid)": "caches of other classes, which are masked and not cut",
    "CacheCroppingTests.test_crop_outside_range": "crops a prompt that was compressed as a whole, which is refused (`copies` here)",
}


class Ours(DynamicLayer):
    """The first update is a prompt, but for its last tokens: those are new."""
    NEW = 5

    def update(self, keys, values, *args, **kwargs):
        B, G, n = keys.shape[:3]
        first, inside.starts = max(n - self.NEW, 1), [(0, 0)] * B
        vars(self).clear()
        self.__class__ = ckvc.hf.KeptLayer
        queries = keys.new_zeros(B, G, 0, keys.shape[3])
        ckvc.hf.KeptLayer.__init__(self, keys[:, :, :first], values[:, :, :first], [torch.arange(first)] * (B * G), queries, inside)
        return self.update(keys[:, :, first:], values[:, :, first:]) if first < n else (keys, values)


class OurCache(DynamicCache):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.layer_class_to_replicate = Ours


def theirs():
    """transformers' own tests: how many fail."""
    global inside
    source = os.environ.get("TRANSFORMERS_SOURCE")
    path = pathlib.Path(source or ".") / "tests/utils/test_cache_utils.py"
    if source is None or not path.is_file():
        outside.skip("TRANSFORMERS_SOURCE names no clone of github.com/huggingface/transformers at the installed version's tag: its own tests were not run")
    outside.modules("parameterized", "pytest")
    version = re.search(r'__version__ = "([^"]*)"', (path.parents[2] / "src/transformers/__init__.py").read_text())[1]
    print(f"transformers {transformers.__version__}, tests of {version}")
    spec = importlib.util.spec_from_file_location("test_cache_utils", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    changed = {"DynamicCache": OurCache, "DynamicLayer": Ours, "ALL_DYNAMIC_LAYERS": (Ours,)}
    changed, failed, others = {k: v for k, v in changed.items() if hasattr(module, k)}, 0, collections.Counter()

    def problem(case):
        result = unittest.TestResult()
        case.run(result)
        bad = result.failures + result.errors
        return bad[0][1].strip().splitlines()[-1] if bad else f"skipped: {result.skipped[0][1]}" if result.skipped else None

    with compress() as inside:
        for case in (case for of_class in unittest.defaultTestLoader.loadTestsFromModule(module) for case in of_class):
            name = case.id().split(".", 1)[1]
            pattern = next((pattern for pattern in NOT_OURS if re.match(pattern, name)), None)
            others[pattern] += 1
            if pattern is None:
                with mock.patch.multiple(module, **changed):
                    why = problem(case)
                own = why and problem(case)
                failed += bool(why and not own)
                print(f"  {name}: {f'of another version: transformers alone fails, too: {own}' if own else f'FAIL: {why}' if why else 'passes'}")
    for pattern, n in others.items():
        print(f"  {n} of {pattern}: do not apply: {NOT_OURS[pattern]}" if pattern else f"  {n} apply")
    return failed


outside.at_most("wrapped and compiled models: another text or other sets, or not as before", wrapped(), 0)
outside.at_most("what is not compressed: not refused, not said at the block's end, or said wrongly", unserved(), 0)
outside.at_most("a block that is never entered: not said, or said of others", never_entered(), 0)
outside.at_most("a cache that is copied, reset, reordered: another text; what is not refused", copies(), 0)
outside.at_most("a prompt that was read in inference mode, and goes on outside it: another text", in_inference_mode(), 0)
outside.at_most("threads on one model: another text, not refused, or the model is not as before", threads(), 0)
if outside.failed == 0:
    outside.at_most("transformers' own tests of caches that fail", theirs(), 0)
outside.done()
