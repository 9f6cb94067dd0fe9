#!/usr/bin/env python3
"""Lets a model of transformers continue a text from its full cache and from a compressed one, and prints both continuations and the sizes of both caches. It
takes seconds on the model that comes with the repository.

    python3 python/examples/generate_transformers.py MODEL-DIR TABLE.ckvt TEXT-FILE [BUDGET [MODE]]
"""
import sys
import time

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

import ckvc.hf

if len(sys.argv) < 4:
    sys.exit(__doc__)
folder, table, text = sys.argv[1:4]
budget, mode = float(sys.argv[4]) if len(sys.argv) > 4 else 0.25, sys.argv[5] if len(sys.argv) > 5 else None
tokenizer = AutoTokenizer.from_pretrained(folder)
model = AutoModelForCausalLM.from_pretrained(folder).eval()
with open(text, encoding="utf-8") as f:
    ids = torch.tensor([tokenizer(f.read())["input_ids"][:1000]])


def go_on() -> str:
    start = time.perf_counter()
    out = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=40, do_sample=False)[0, ids.shape[1] :]
    return f"{time.perf_counter() - start:.2f} s: {tokenizer.decode(out)!r}"


print(f"full cache, {go_on()}")
with ckvc.hf.compress(model, table, budget, mode) as c:
    print(f"{c.table.name}, {go_on()}")
kept = c.kept[0]
print(f"mode {kept.mode}, {c.holds}: {kept.entries} entries, {c.kept_bytes} of {c.full_bytes} bytes of cache ({c.kept_bytes / c.full_bytes:.1%})")
