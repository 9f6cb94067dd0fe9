#!/usr/bin/env python3
"""What serving with a table brings: the time to the first token, the time of each later one, and how many requests fit into a given memory.

    PYTHONPATH=python tests/bench/serving.py --text BOOK --hf DIR --table T.ckvt --tenth T10.ckvt     # transformers with ckvc.hf; both are tables of DIR
    PYTHONPATH=python tests/bench/serving.py --text BOOK --gguf M.gguf --llama-table L.ckvt           # llama.cpp with ckvc.llama, a table of --features 2

Three ways are measured in turn, each in a process of its own: the whole cache, a quarter of its entries, and about a tenth of its bytes. With --tenth the last
is `compress(..., bytes=0.1)`. Without it, and always in llama.cpp, it is a quarter of the entries, with keys in q8_0 and values in q4_0. A request reads the
first --tokens tokens of the text and answers with --answer tokens. First one request runs alone, behind another that pays for what is made once; the time to
its first token includes cutting. Then as many copies of it run together as fit into the memory of --whole requests that are not cut, each with a cache of its
own (llama.cpp has at most 256). Their tokens a second are those of steps, in which no prompt is read.

Bytes are counted against a whole cache of 16 bits, which llama.cpp has. Where transformers holds numbers in float32 (--dtype), they count as 16 bits. All
layers of the model must see every token. Needs torch and transformers, or llama-cpp-python and libckvc_policy (CKVC_LIBRARY names it). Nothing else may run on
the machine."""
import argparse
import contextlib
import ctypes
import json
import math
import statistics
import subprocess
import sys
import time

p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
for name in "text", "hf", "table", "tenth", "gguf", "llama-table":
    p.add_argument("--" + name, required=name == "text")
for name, value in (("tokens", 1000), ("answer", 64), ("whole", 4), ("rounds", 2), ("threads", 2)):
    p.add_argument("--" + name, type=int, default=value)
p.add_argument("--dtype", default="float32")
p.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
a = p.parse_args()
WAYS, WARM = ("whole", "a quarter", "a tenth"), 4  # WARM: the first steps, which pay for what is made once
if not (a.hf and a.table or a.gguf and a.llama_table):
    p.error("give --hf with --table, --gguf with --llama-table, or all four")
if a.answer <= WARM:
    p.error(f"--answer: got {a.answer}, wanted more than {WARM}")


def timed(what):
    """The seconds that what() takes, and what it returns."""
    begin = time.perf_counter()
    out = what()
    return time.perf_counter() - begin, out


def prompt_of(tokenize):
    """The first tokens of the text."""
    with open(a.text, errors="replace") as f:
        ids = tokenize(f.read(16 * a.tokens))[: a.tokens]
    assert len(ids) == a.tokens, f"{a.text} has {len(ids)} tokens"
    return ids


def step_of(step):
    """The median of the seconds that step(k) takes for token k of the answer."""
    return statistics.median([timed(lambda: step(k))[0] for k in range(a.answer)][WARM:])


def in_transformers(way):
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    import ckvc.hf
    from ckvc.hf_model import geometry_of

    torch.set_num_threads(a.threads)
    model = AutoModelForCausalLM.from_pretrained(a.hf, dtype=a.dtype).eval()
    ids, g = torch.tensor([prompt_of(lambda text: AutoTokenizer.from_pretrained(a.hf)(text)["input_ids"])]), geometry_of(model)
    assert g.n_layers == model.config.num_hidden_layers, "some layers do not see every token"
    tenth = dict(table=a.tenth, bytes=0.1) if a.tenth else dict(table=a.table, budget=0.25, formats="q8_0/q4_0+rot")
    compressed = contextlib.nullcontext() if way == "whole" else ckvc.hf.compress(model, **(tenth if way == "a tenth" else dict(table=a.table, budget=0.25)))

    def steps(out, n):
        """The median of the seconds that a step of n requests takes, whose caches are those of a prompt's output."""
        cache, token = out.past_key_values, out.logits[:, -1:].argmax(-1).expand(n, 1)
        if n > 1:
            cache.batch_repeat_interleave(n)

        def step(k):
            nonlocal token
            token = model(token, past_key_values=cache, use_cache=True).logits[:, -1:].argmax(-1)

        return step_of(step)

    with torch.no_grad(), compressed as c:
        model(ids, use_cache=True, logits_to_keep=1)
        first, out = timed(lambda: model(ids, use_cache=True, logits_to_keep=1))
        share = 1.0 if c is None else c.kept_bytes / c.full_bytes * (1 if way == "a quarter" else model.dtype.itemsize / 2)
        n, of_token = int(a.whole * (a.tokens + a.answer) / (share * a.tokens + a.answer)), 2 * 2 * g.n_layers * g.n_kv_heads * g.head_dim
        alone = steps(out, 1)
        return {"first": first, "alone": alone, "share": share, "bytes": share * a.tokens * of_token, "at_once": n, "cut": math.nan,
                "step": steps(model(ids, use_cache=True, logits_to_keep=1), n)}


def in_llama(way):
    import llama_cpp as L

    import ckvc.llama

    quiet = L.llama_log_callback(lambda *what: None)
    L.llama_log_set(quiet, None)
    L.llama_backend_init()
    model = L.llama_model_load_from_file(a.gguf.encode(), L.llama_model_default_params())
    vocab, shape, table = L.llama_model_get_vocab(model), ckvc.llama.model_of(a.gguf), ckvc.library.Table.read(a.llama_table)
    formats = "q8_0/q4_0" if way == "a tenth" else "f16"
    types = [ckvc.llama.KINDS[t] for t in ckvc.llama.types_of(formats, shape)]

    def context(cells, sequences, types):
        params = L.llama_context_default_params()
        params.n_ctx, params.n_batch, params.n_seq_max, params.n_threads, params.n_threads_batch = cells, 512, sequences, a.threads, a.threads
        params.type_k, params.type_v, params.flash_attn_type, params.kv_unified = *types, 1, True
        out = L.llama_init_from_model(model, params)
        assert out, f"llama.cpp makes no context of {cells} cells"
        return out

    batch = L.llama_batch_init(512, 0, 1)

    def decode(of, rows):  # rows: (token, position, sequence, whether logits are wanted)
        batch.n_tokens = len(rows)
        for i, (token, position, sequence, logits) in enumerate(rows):
            batch.token[i], batch.pos[i], batch.n_seq_id[i], batch.logits[i], batch.seq_id[i][0] = token, position, 1, logits, sequence
        assert L.llama_decode(of, batch) == 0

    def tokenize(text):
        data = text.encode()
        ids = (L.llama_token * len(data))()
        return ids[: L.llama_tokenize(vocab, data, len(data), ids, len(data), True, False)]

    ids = prompt_of(tokenize)

    def read():
        for i in range(0, len(ids), 512):
            decode(source, [(t, i + k, 0, i + k == len(ids) - 1) for k, t in enumerate(ids[i : i + 512])])

    def steps(of, n):
        """The median of the seconds that a step of n requests takes. Each step is given the same token: its time does not depend on which one it is."""
        return step_of(lambda k: decode(of, [(ids[-1], len(ids) + k, s, True) for s in range(n)]))

    source, one = context(len(ids) + a.answer, 1, (1, 1)), context(len(ids) + a.answer, 1, types)
    read()
    L.llama_memory_clear(L.llama_get_memory(source), True)
    first = timed(read)[0]
    budget = len(ids) if way == "whole" else 0.25
    cut, said = timed(lambda: ckvc.llama.compact(source, 0, table, budget, model=shape, into=one, formats=formats))
    of_cell = said.kept_bytes / said.n_cells / (said.full_bytes / said.n_tokens)  # of a cell that is held in F16
    n = min(int(a.whole * (len(ids) + a.answer) / of_cell / (said.n_cells + a.answer)), 256)
    state = (ctypes.c_uint8 * L.llama_state_seq_get_size(one, 0))()
    L.llama_state_seq_get_data(one, state, len(state), 0)
    many = context(n * (said.n_cells + a.answer), n, types)
    for s in range(n):
        assert L.llama_state_seq_set_data(many, state, len(state), s) == len(state)
    return {"first": first + (0 if way == "whole" else cut), "alone": steps(one, 1), "share": said.kept_bytes / said.full_bytes, "bytes": said.kept_bytes,
            "at_once": n, "cut": cut if way != "whole" else 0, "step": steps(many, n)}


if a.child:
    system, way = a.child
    print(json.dumps({"hf": in_transformers, "gguf": in_llama}[system](way)))
    sys.exit()
for system in (x for x in ("hf", "gguf") if getattr(a, x)):
    runs = {way: [] for way in WAYS}
    for _ in range(a.rounds):
        for way in WAYS:
            out = subprocess.run([sys.executable, *sys.argv, "--child", system, way], stdout=subprocess.PIPE, check=True).stdout
            runs[way].append(json.loads(out.splitlines()[-1]))
    median = {way: {key: statistics.median(r[key] for r in of) for key in of[0]} for way, of in runs.items()}
    print(f"{getattr(a, system)}: {a.tokens} tokens, answers of {a.answer}, the memory of {a.whole} whole requests, {a.threads} threads, {a.rounds} rounds in "
          "turn, medians")
    print("| what is kept | whole | a quarter of the entries | a tenth of the bytes |\n| --- | --- | --- | --- |")
    for title, form in (("bytes, of 16 bits", lambda m: f"{100 * m['share']:.1f}%"), ("MB of a prompt", lambda m: f"{m['bytes'] / 1e6:.1f}"),
                        ("seconds to the first token, alone", lambda m: f"{m['first']:.2f}"),
                        ("seconds of cutting, where they are known apart", lambda m: "" if math.isnan(m["cut"]) else f"{m['cut']:.2f}"),
                        ("milliseconds of a token, alone", lambda m: f"{1000 * m['alone']:.0f}"),
                        ("requests at once in that memory", lambda m: f"{m['at_once']:.0f}"),
                        ("milliseconds of a token, all at once", lambda m: f"{1000 * m['step']:.0f}"),
                        ("tokens a second, all at once", lambda m: f"{m['at_once'] / m['step']:.1f}")):
        print(f"| {title} | " + " | ".join(form(median[way]) for way in WAYS) + " |")
