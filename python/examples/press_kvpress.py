#!/usr/bin/env python3
"""Runs kvpress's pipeline without a press, with SnapKV, and with a compiled table at the same compression ratio, and prints the three answers. It takes seconds
on the model that comes with the repository.

    python3 python/examples/press_kvpress.py MODEL-DIR TABLE.ckvt TEXT-FILE [COMPRESSION-RATIO]
"""
import sys

from kvpress import SnapKVPress
from transformers import AutoModelForCausalLM, AutoTokenizer, pipeline

from ckvc.press import CompilerKVPress

if len(sys.argv) < 4:
    sys.exit(__doc__)
folder, table, text = sys.argv[1:4]
ratio = float(sys.argv[4]) if len(sys.argv) > 4 else 0.75
model = AutoModelForCausalLM.from_pretrained(folder, attn_implementation="sdpa").eval()
pipe = pipeline("kv-press-text-generation", model=model, tokenizer=AutoTokenizer.from_pretrained(folder))
with open(text, encoding="utf-8") as f:
    context = f.read()[:3000]
for press in (None, SnapKVPress(ratio), CompilerKVPress(table, ratio)):
    print(f"{type(press).__name__}: {pipe(context, question=' ', press=press, max_new_tokens=30)['answer']!r}")
print(f"{press.kept.entries} entries kept, {press.holds}")
