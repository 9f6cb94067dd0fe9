#!/usr/bin/env python3
"""kvzap_answers.py MODEL --items I.jsonl --answers A.jsonl[.xz] --kvzap FOLDER -B 0.25,0.125 --out Z.jsonl: KVzap on tasks, beside `ckvc eval`.

I has the items of `ckvc eval --items`, and A the answers to them that `ckvc eval --query seen` wrote. --each takes only so many items of each task, the first
ones. KVzap keeps a part of each prompt, by the model FOLDER of scripts/kvzap.py, and from this part the model answers greedily, as in `ckvc eval`: the first
token comes from the whole prompt, and there are at most as many tokens as the item allows.

Z gets answer lines (formats/lines/answers.md): for each item the full cache's, which is copied from A, and then one of the policy KVzapPress for each budget.
As a check, the full cache answers the first item of each task here, too; at the end a line says how many of these answers are those of A. Items must have the
metric match-all."""
import argparse
import copy
import json
import lzma
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.realpath(__file__))), "python"))
try:
    import torch
    from ckvc.calibrate import loaded
    from ckvc.manifest_prompts import Prompt
    from ckvc.score import Scoring, check_recent, kvzap_model
    from ckvc.table import Error, budget_tokens
except ImportError as missing:
    sys.exit(f"kvzap_answers.py: no Python module {missing.name}: pip install './python[hf,kvpress]'")


def lines_of(path):
    """The JSON objects of a file's lines, which may be packed as .xz."""
    with lzma.open(path, "rt", encoding="utf-8") if path.endswith(".xz") else open(path, encoding="utf-8") as f:
        return [json.loads(line) for line in f]


def answer(c, kept, most, stops):
    """The tokens of the greedy answer from what is kept of the prompt that the Scoring c has read, with the token that ends it, and the mean of their losses.
    most: how many there may be. stops: the tokens that end an answer."""
    cache, ids, loss, row, queries = copy.copy(c.cache), [], 0.0, c.first[-1], c._queries
    cache.layers, c.kept = [copy.copy(x) for x in c.cache.layers], [kept]
    if not kept.whole:
        c._cut(cache, ((k[None], v[None]) for _, k, v, *_ in c._layers()))
    while True:
        ids.append(int(row.argmax()))
        loss -= float(row[ids[-1]])
        if len(ids) == most or ids[-1] in stops:
            c._queries = queries
            return ids, loss / len(ids)
        row = c.feed(ids[-1:], cache)[-1]


def main():
    p = argparse.ArgumentParser(prog="kvzap_answers.py", description=__doc__.split("\n\n")[0])
    p.add_argument("model")
    for name in ("items", "answers", "kvzap", "out"):
        p.add_argument("--" + name, required=True)
    p.add_argument("-B", "--budget", type=lambda x: [float(b) for b in x.split(",")], required=True)
    p.add_argument("--each", type=int, default=sys.maxsize)
    p.set_defaults(dtype="float32", device=None)
    a = p.parse_args()
    model, tokenizer = loaded(a)
    kvzap = kvzap_model(a.kvzap, model)
    check_recent(kvzap.config.ckvc, (), a.budget, 64)
    full, items, done, same = {x["id"]: x for x in lines_of(a.answers) if x["policy"] == "full" and x["query"] == "seen"}, lines_of(a.items), {}, []
    stops = model.generation_config.eos_token_id
    stops = set(stops if isinstance(stops, list) else [stops])
    with torch.no_grad(), Scoring(model.eval(), 64, kvzap) as c, open(a.out, "x", encoding="utf-8") as out:
        for item in items:
            n = done[item["task"]] = done.get(item["task"], 0) + 1
            if n > a.each:
                continue
            if item["metric"] != "match-all" or item["id"] not in full:
                raise Error(f"item {item['id']}: want the metric match-all, and the full cache's answer in {a.answers}")
            whole, ids = full[item["id"]], tokenizer(item["prompt"]).input_ids
            if len(ids) != whole["length"]:
                raise Error(f"item {item['id']}: has {len(ids)} tokens, in {a.answers} {whole['length']}")
            c.prefill(Prompt(line=n, id=item["id"], source="", document="", split="", tokens=[*ids, 0], n_tokens=len(ids), n_continuation=1, cut=False,
                             token_hash=0, heldout=False, select=False))
            lines, T = [whole], len(ids)
            for b in [None, *a.budget] if n == 1 else a.budget:
                kept = c._by_kvzap("KVzapPress", b, budget_tokens(b, T)) if b else c._by_head("snapkv", T, "heads")  # of T: all
                said, nll = answer(c, kept, item["max_new"], stops)
                text = tokenizer.decode(said, skip_special_tokens=True)
                if not b:
                    same.append(text == whole["answer"])
                    continue
                score = sum(x.lower() in text.lower() for x in item["answers"]) / len(item["answers"])
                lines.append({**{k: v for k, v in whole.items() if k != "reference_nll"}, "policy": "KVzapPress", "budget": b, "answer": text, "score": score,
                              "tokens": len(said), "nll": nll, "end": "stop" if said[-1] in stops else "length", "entries": kept.entries,
                              "share": kept.entries / whole["entries"], "bytes": whole["bytes"] * kept.entries // whole["entries"]})
            out.writelines(json.dumps(x, sort_keys=True, ensure_ascii=False) + "\n" for x in lines)
            out.flush()
            print(f"kvzap_answers: {item['id']}: {[round(x['score'], 3) for x in lines]}", file=sys.stderr, flush=True)
    print(f"wrote {a.out}; of {len(same)} answers of the full cache {sum(same)} are those of {a.answers}")


if __name__ == "__main__":
    try:
        main()
    except (Error, OSError) as why:
        sys.exit(f"kvzap_answers.py: {why}")
