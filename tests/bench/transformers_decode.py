#!/usr/bin/env python3
"""What a table saves while transformers decodes: seconds a step and resident memory, full cache and compressed one in processes of their own, in turn.

    PYTHONPATH=python tests/bench/transformers_decode.py --hf build/models/smollm2/f32 --table t.ckvt --budget 0.125 --text BOOK [--batch 1] [--tokens 1800] [--steps 64] [--threads 2] [--rounds 3]

One prompt is prefilled; a batch of several is that prompt's cache repeated, as beams have it, so that a step costs what any batch's does. Times are medians over the steps; memory is
resident memory once the prompt is there and after the steps, and the highest that there was. A quiet machine, please."""
import argparse
import json
import resource
import statistics
import subprocess
import sys
import time

p = argparse.ArgumentParser()
for name in "hf", "table", "text":
    p.add_argument("--" + name, required=True)
p.add_argument("--budget", type=float, required=True)
p.add_argument("--child", choices=("full", "table"))
for name, value in (("batch", 1), ("tokens", 1800), ("steps", 64), ("threads", 2), ("rounds", 3)):
    p.add_argument("--" + name, type=int, default=value)
a = p.parse_args()


def resident():
    with open("/proc/self/status") as f:
        return next(int(line.split()[1]) for line in f if line.startswith("VmRSS")) / 1024


def child():
    """One process: prefill, steps; a line of JSON."""
    import contextlib

    import torch
    import transformers

    import ckvc.hf

    torch.set_num_threads(a.threads)
    model = transformers.AutoModelForCausalLM.from_pretrained(a.hf, dtype=torch.float32).eval()
    with open(a.text, errors="replace") as f:
        ids = torch.tensor([transformers.AutoTokenizer.from_pretrained(a.hf)(f.read(8 * a.tokens))["input_ids"][: a.tokens]])
    assert ids.shape[1] == a.tokens
    with torch.no_grad(), ckvc.hf.compress(model, a.table, a.budget) if a.child == "table" else contextlib.nullcontext():
        before, begin = resident(), time.perf_counter()
        out = model(ids, use_cache=True, logits_to_keep=1)
        first = time.perf_counter() - begin
        cache, token = out.past_key_values, out.logits[:, -1:].argmax(-1).expand(a.batch, 1)
        if a.batch > 1:
            cache.batch_repeat_interleave(a.batch)
        del out
        held, steps = resident(), []
        for _ in range(a.steps + 4):
            begin = time.perf_counter()
            token = model(token, past_key_values=cache, use_cache=True).logits[:, -1:].argmax(-1)
            steps.append(time.perf_counter() - begin)
        print(json.dumps({"first": first, "step": statistics.median(steps[4:]), "before": before, "held": held, "after": resident(),
                          "most": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}))


if a.child:
    child()
    sys.exit()
rows = {"full": [], "table": []}
for _ in range(a.rounds):
    for which in rows:
        done = subprocess.run([sys.executable, *sys.argv, "--child", which], stdout=subprocess.PIPE, check=True)
        rows[which].append(json.loads(done.stdout))
print(f"batch {a.batch}, T = {a.tokens}, budget {a.budget:g}, {a.threads} thread(s), {a.rounds} rounds in turn, medians; memory in MiB")
print("| cache | first token, s | step, ms | tokens/s | model | with the prompt | after the steps | highest |\n| --- | --- | --- | --- | --- | --- | --- | --- |")
median = {which: {key: statistics.median(r[key] for r in of) for key in of[0]} for which, of in rows.items()}
for which, m in median.items():
    print(f"| {which} | {m['first']:.2f} | {1000 * m['step']:.1f} | {a.batch / m['step']:.1f} | {m['before']:.0f} | {m['held']:.0f} | {m['after']:.0f} | {m['most']:.0f} |")
print(f"full / table: step {median['full']['step'] / median['table']['step']:.2f}, resident {median['full']['after'] - median['table']['after']:.0f} MiB less")
