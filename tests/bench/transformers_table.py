#!/usr/bin/env python3
"""A table in transformers (python/, ckvc.hf): losses of continuations, bytes of the cache and speed, beside the full cache and beside what
`ckvc score` says of the same prompts.

    PYTHONPATH=python tests/bench/transformers_table.py --hf build/models/smollm2/f32 --gguf build/models/smollm2/*.gguf \
        --table t.ckvt --budget 0.125 --manifest p.jsonl --scores s.jsonl [--prompts 8] [--threads 1] [--generate 64]

The manifest's prompts are those that the scores name; ids come from `ckvc tokenize`, so both programs see the same. Losses: mean over the
continuation's tokens in nats, the first from the prompt's last row. One warm-up, then each prompt once; times are medians.
"""
import argparse
import contextlib
import json
import os
import statistics
import subprocess
import time

import torch
import transformers

import ckvc
import ckvc.hf

p = argparse.ArgumentParser()
for name in "hf", "gguf", "table", "manifest", "scores":
    p.add_argument("--" + name, required=True)
p.add_argument("--budget", type=float, required=True)
p.add_argument("--prompts", type=int, default=8)
p.add_argument("--threads", type=int, default=1)
p.add_argument("--generate", type=int, default=64)
p.add_argument("--ckvc", default=os.environ.get("CKVC", "build/release/ckvc"))
a = p.parse_args()
torch.set_num_threads(a.threads)

content_id = json.loads(subprocess.run([a.ckvc, "inspect", a.table, "--json"], capture_output=True, check=True).stdout)["content_id"]
scores = {}
for line in open(a.scores):
    s = json.loads(line)
    if s["table"] == content_id and s["budget"] == a.budget:
        scores[s["id"]] = s
prompts = [e for e in map(json.loads, open(a.manifest)) if e["id"] in scores][: a.prompts]
transformers.utils.logging.disable_progress_bar()
model = transformers.AutoModelForCausalLM.from_pretrained(a.hf, dtype=torch.float32).eval()
table = ckvc.Table.read(a.table)


def ids(text, *options):
    done = subprocess.run([a.ckvc, "tokenize", "--model", a.gguf, *options], input=text.encode(), capture_output=True, check=True)
    return [int(i) for i in done.stdout.split()]


@torch.no_grad()
def measure(prompt, more, table):
    """(loss, seconds of the prefill, seconds a generated token, bytes of the prompt's cache, what holds them)"""
    with ckvc.hf.compress(model, table, budget=a.budget) if table else contextlib.nullcontext() as c:
        begin = time.perf_counter()
        out = model(prompt, use_cache=True, logits_to_keep=1)
        first = time.perf_counter() - begin
        cache = out.past_key_values
        size = c.kept_bytes if table else sum(x.keys.nbytes + x.values.nbytes for x in cache.layers)
        rest = model(more[:, :-1], past_key_values=cache, use_cache=True)
        logits = torch.cat([out.logits[:, -1:], rest.logits], dim=1)[0]
        loss = torch.nn.functional.cross_entropy(logits.double(), more[0]).item()
        token = logits[-1:].argmax(-1)[None]
        begin = time.perf_counter()
        for _ in range(a.generate):
            token = model(token, past_key_values=cache, use_cache=True).logits[:, -1].argmax(-1)[None]
        return loss, first, (time.perf_counter() - begin) / a.generate, size, c.holds if table else "all"


rows = []
for i, e in enumerate(prompts[:1] + prompts):
    s = scores[e["id"]]
    prompt, more = ids(e["text"])[: s["T"]], ids(e["continuation"], "--no-special")[: s["C"]]
    assert len(prompt) == s["T"] and len(more) == s["C"], (e["id"], len(prompt), len(more))
    prompt, more = torch.tensor([prompt]), torch.tensor([more])
    full, kept = measure(prompt, more, None), measure(prompt, more, table)
    if i:
        rows.append((full, kept, s))
        print(f"{e['id']}: T {s['T']}, full {full[0]:.4f} (ckvc {s['loss_full']:.4f}), table {kept[0]:.4f} (ckvc {s['loss_comp']:.4f}), {kept[4]}", flush=True)
mean = lambda xs: statistics.fmean(xs)
print(f"torch {torch.__version__}, {a.threads} thread(s), {len(rows)} prompts of {min(s['T'] for *_, s in rows)} to {max(s['T'] for *_, s in rows)} tokens")
print("| cache | loss | loss, ckvc | bytes a prompt | first token, ms | tokens/s |\n| --- | --- | --- | --- | --- | --- |")
for name, k, key in ("full", 0, "loss_full"), (rows[0][1][4], 1, "loss_comp"):
    print(f"| {name} | {mean(r[k][0] for r in rows):.4f} | {mean(r[2][key] for r in rows):.4f} | {mean(r[k][3] for r in rows):,.0f} "
          f"| {1000 * statistics.median(r[k][1] for r in rows):.0f} | {1 / statistics.median(r[k][2] for r in rows):.1f} |")
print(f"largest difference of a prompt's loss to ckvc's: full {max(abs(r[0][0] - r[2]['loss_full']) for r in rows):.2g}, "
      f"table {max(abs(r[1][0] - r[2]['loss_comp']) for r in rows):.2g}")
