#!/usr/bin/env python3
"""Every reference of `ckvc score` on SmolLM2: kept sets with those of tests/golden/policies/policies.py, which runs kvpress, and the originals' formulas where it has none.

A position may differ where two programs round float32 differently: at most 0.5% of those kept. headkv, evolkv and duoattention, whose capacities are a table's, are compared on tiny models
(tests/unit/judge/policies/test_published_sets.c).
"""
import json
import subprocess
import sys
import tempfile

import outside

transformers, kvpress = outside.modules("transformers", "kvpress")
a = outside.arguments(tokens=(int, 384, "prompt tokens"), prompts=(int, 2, "pieces of the book"), threads=(int, 1, "of ckvc"), budget=(int, 48, "tokens a head"))
directory = outside.directory(a, "f32")
tok = transformers.AutoTokenizer.from_pretrained(directory)
prompts = outside.pieces(a, tok, a.prompts, a.tokens)
instruction, later = (tok(f"\n\nRepeat the {text}", add_special_tokens=False)["input_ids"] for text in ("previous context exactly.", "part of the previous context exactly, starting with"))
with tempfile.NamedTemporaryFile("w", suffix=".json") as f:
    json.dump({"instruction": instruction, "later": later, "prompts": prompts, "budgets": [a.budget]}, f)
    f.flush()
    script = [sys.executable, "tests/golden/policies/policies.py", str(directory), f.name]
    theirs = json.loads(subprocess.run(script, check=True, stdout=subprocess.PIPE, cwd=outside.ROOT).stdout)
names = [n for n in theirs["prompts"][0]["kept"] if n not in ("headkv", "evolkv", "duoattention")]
with outside.manifest([{"id": f"p{i}", "tokens": p} for i, p in enumerate(prompts)]) as m:
    out = outside.run(a.ckvc, "score", "--model", directory, "--manifest", m.name, "--policy", ",".join(names), "--sets", "--continuation", 0, "--budget", a.budget, "-q", "-t",
                      a.threads)
sets, equal, n_kept, n_differ = ({n: 0 for n in names} for _ in range(4))
for line in map(json.loads, out.splitlines()):
    name = line["policy"]
    for ours, want in zip(line["sets"], theirs["prompts"][int(line["id"][1:])]["kept"][name][str(a.budget)], strict=True):
        by_head = isinstance(want[0], list)
        for x, y in zip(ours if by_head else [ours], want if by_head else [want], strict=True):
            sets[name] += 1
            equal[name] += x == y
            n_kept[name] += len(y)
            n_differ[name] += len(set(x) ^ set(y))
print(f"SmolLM2, {a.prompts} prompts of {a.tokens} tokens, {a.budget} kept; least gap of a score that decides {theirs['least_gap']:.1e}")
for n in names:
    print(f"{n}: {equal[n]} of {sets[n]} sets equal, {n_differ[n]} of {n_kept[n]} positions differ")
    outside.at_most(f"{n}: positions that differ, of those kept", n_differ[n] / n_kept[n], 0.005)
outside.done()
