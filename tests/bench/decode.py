#!/usr/bin/env python3
"""Steps of decoding, from the full cache and from a table's: ckvc, transformers with ckvc.hf, llama.cpp, each in processes of its own, in turn.

    PYTHONPATH=python tests/bench/decode.py --model M.gguf --table t.ckvt --text BOOK [--budget 0.125] [--batch 1] [--tokens 1000] [--steps 64] [--threads 2] [--rounds 3] [--of ckvc,transformers,llama]

The model is a GGUF file: ckvc and transformers compute with its values in float32, llama.cpp with the file's own blocks (information, no comparison). ckvc prefills a batch of equal
prompts one by one; the others repeat one prompt's cache, so that a step costs what any batch's does. A step is the median of the others' steps and ckvc's mean. Bytes a step are the weights
that it reads and the caches; the memory's rate is that of a sum over 1 GB. Needs torch, transformers and gguf, and llama-cpp-python for `llama`. A quiet machine, please."""
import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time

p = argparse.ArgumentParser()
for name in "model", "table", "text":
    p.add_argument("--" + name, required=True)
for name, value in (("batch", 1), ("tokens", 1000), ("steps", 64), ("threads", 2), ("rounds", 3)):
    p.add_argument("--" + name, type=int, default=value)
p.add_argument("--budget", type=float, default=0.125)
p.add_argument("--ckvc", default="build/release/ckvc")
p.add_argument("--of", default="ckvc,transformers,llama")
p.add_argument("--child", choices=("transformers-full", "transformers-table", "llama-full", "rate"))
a = p.parse_args()
WARM = 4  # steps that are not counted


def hf():
    """-> what transformers' from_pretrained takes to read the file."""
    return os.path.dirname(os.path.abspath(a.model)), {"gguf_file": os.path.basename(a.model)}


def resident():
    with open("/proc/self/status") as f:
        return next(int(line.split()[1]) for line in f if line.startswith("VmRSS")) / 1024


def the_ids():
    from transformers import AutoTokenizer

    where, gguf = hf()
    with open(a.text, errors="replace") as f:
        ids = AutoTokenizer.from_pretrained(where, **gguf)(f.read(8 * a.tokens))["input_ids"][: a.tokens]
    assert len(ids) == a.tokens, f"{a.text} has {len(ids)} tokens"
    return ids


def in_transformers(table):
    import contextlib

    import torch
    import transformers

    import ckvc.hf

    torch.set_num_threads(a.threads)
    where, gguf = hf()
    model = transformers.AutoModelForCausalLM.from_pretrained(where, dtype=torch.float32, **gguf).eval()
    ids = torch.tensor([the_ids()])
    with torch.no_grad(), ckvc.hf.compress(model, a.table, a.budget) if table else contextlib.nullcontext():
        before, begin = resident(), time.perf_counter()
        out = model(ids, use_cache=True, logits_to_keep=1)
        first = time.perf_counter() - begin
        cache, token = out.past_key_values, out.logits[:, -1:].argmax(-1).expand(a.batch, 1)
        if a.batch > 1:
            cache.batch_repeat_interleave(a.batch)
        del out
        steps = []
        for _ in range(a.steps + WARM):
            begin = time.perf_counter()
            token = model(token, past_key_values=cache, use_cache=True).logits[:, -1:].argmax(-1)
            steps.append(time.perf_counter() - begin)
        kept = sum(layer.keys.nbytes + layer.values.nbytes for layer in cache.layers) if not table else None
        return {"first": first, "step": statistics.median(steps[WARM:]), "model": before, "after": resident(), "cache": kept}


def in_llama():
    import ctypes

    import llama_cpp as L

    L.llama_backend_init()
    model = L.llama_model_load_from_file(a.model.encode(), L.llama_model_default_params())
    params = L.llama_context_default_params()
    params.n_ctx = (a.tokens + a.steps + WARM + 2) * a.batch
    params.n_batch, params.n_seq_max = 512, a.batch
    params.n_threads = params.n_threads_batch = a.threads
    params.type_k = params.type_v = 0  # F32, as the others' caches
    params.flash_attn_type = 1
    context = L.llama_init_from_model(model, params)
    assert context, "llama.cpp: no context"
    batch = L.llama_batch_init(512, 0, a.batch)

    def decode(rows):  # (token, position, sequences, whether logits are wanted)
        batch.n_tokens = len(rows)
        for i, (token, position, sequences, logits) in enumerate(rows):
            batch.token[i], batch.pos[i], batch.n_seq_id[i], batch.logits[i] = token, position, len(sequences), logits
            for j, s in enumerate(sequences):
                batch.seq_id[i][j] = s
        assert L.llama_decode(context, batch) == 0

    ids, vocab = the_ids(), L.llama_vocab_n_tokens(L.llama_model_get_vocab(model))
    before, begin = resident(), time.perf_counter()
    for s in range(a.batch):  # a cache of its own each: shared cells would be read once
        for i in range(0, a.tokens, 512):
            part = ids[i : i + 512]
            decode([(t, i + k, [s], i + k == a.tokens - 1) for k, t in enumerate(part)])
        first = time.perf_counter() - begin if s == 0 else first
    token, steps = ids[-1], []
    for k in range(a.steps + WARM):
        begin = time.perf_counter()
        decode([(token, a.tokens + k, [s], True) for s in range(a.batch)])
        logits = ctypes.cast(L.llama_get_logits_ith(context, 0), ctypes.POINTER(ctypes.c_float * vocab)).contents
        token = max(range(0, vocab, 997), key=lambda i: logits[i])  # any token will do
        steps.append(time.perf_counter() - begin)
    return {"first": first, "step": statistics.median(steps[WARM:]), "model": before, "after": resident(), "cache": None}


def rate():
    import torch

    torch.set_num_threads(a.threads)
    x = torch.ones(1 << 28)
    best = 0
    for _ in range(8):
        begin = time.perf_counter()
        x.sum()
        best = max(best, x.nbytes / (time.perf_counter() - begin))
    return {"rate": best}


if a.child:
    print(json.dumps(in_llama() if a.child == "llama-full" else rate() if a.child == "rate" else in_transformers(a.child.endswith("table"))))
    sys.exit()


def child(which):
    return json.loads(subprocess.run([sys.executable, *sys.argv, "--child", which], stdout=subprocess.PIPE, check=True).stdout.splitlines()[-1])


def in_ckvc(manifest):
    """-> the full cache's row, the table's: one process prefills each prompt once for both."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    command = [a.ckvc, "generate", "--model", a.model, "--manifest", manifest, "--table", a.table, "--budget", str(a.budget), "--compare", "--json", "--batch", str(a.batch),
               "--max-new", str(a.steps), "--threads", str(a.threads), "--max-tokens", str(a.tokens)]
    lines = [json.loads(line) for line in subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True).stdout.splitlines()]
    most = max(before, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss) / 1024
    ways = []
    for full in True, False:
        rows = [r for r in lines if (r["budget"] is None) == full]
        steps = max(len(r["nll"]) for r in rows) - 1
        ways.append({"first": rows[0]["first_token_s"], "step": rows[0]["decode_s"] / steps, "after": most, "cache": sum(r["cache_bytes"] for r in rows)})
    return ways


systems, rows = a.of.split(","), {}
with tempfile.TemporaryDirectory() as folder:
    manifest = os.path.join(folder, "prompts.jsonl")
    with open(a.text, errors="replace") as f, open(manifest, "w") as m:
        text = f.read(8 * a.tokens)
        m.writelines(json.dumps({"id": f"p{i}", "text": text}) + "\n" for i in range(a.batch))
    for _ in range(a.rounds):
        for system in systems:
            if system == "ckvc":
                for which, row in zip(("ckvc-full", "ckvc-table"), in_ckvc(manifest)):
                    rows.setdefault(which, []).append(row)
            else:
                for which in (system + "-full", system + "-table")[: 1 + (system == "transformers")]:
                    rows.setdefault(which, []).append(child(which))
median = {which: {key: statistics.median(r[key] for r in of) for key in of[0] if of[0][key] is not None} for which, of in rows.items()}
info = json.loads(subprocess.run([a.ckvc, "inspect", a.model, "--json"], stdout=subprocess.PIPE, check=True).stdout)
bandwidth = child("rate")["rate"]
print(f"{os.path.basename(a.model)}, batch {a.batch}, T = {a.tokens}, budget {a.budget:g}, {a.threads} thread(s), {a.rounds} rounds in turn, medians; the memory gives {bandwidth / 1e9:.1f} GB/s")
print("| program, cache | first token, s | step, ms | tokens/s | MB a step | GB/s | resident, MiB |\n| --- | --- | --- | --- | --- | --- | --- |")
for which, m in median.items():
    cache = median.get("ckvc-" + which.split("-")[1], m).get("cache", 0)
    read = (os.path.getsize(a.model) if which.startswith("llama") else 4 * info["parameters"]) + cache
    print(f"| {which} | {m['first']:.2f} | {1000 * m['step']:.1f} | {a.batch / m['step']:.1f} | {read / 1e6:.0f} | {read / m['step'] / 1e9:.1f} | {m['after']:.0f} |")
for x, y in (("transformers-full", "ckvc-full"), ("transformers-table", "ckvc-table"), ("ckvc-full", "ckvc-table"), ("transformers-full", "transformers-table")):
    if x in median and y in median:
        print(f"{x} / {y}: step {median[x]['step'] / median[y]['step']:.2f}")
