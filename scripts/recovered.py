#!/usr/bin/env python3
"""recovered.py [--kl] NAME=SCORES.jsonl[.xz][,SCORES.jsonl...] ...: what tables recover of the loss that compression costs, as a Markdown
table

There is a row for each argument and budget, over held-out prompts. It has the loss over the full cache (nats per token; with --kl the
divergence of the next token's distribution from the full cache's) of the first table, of the best reference that reads the prompt once,
of window attention pooled (one set a layer), of KVzap in its linear form (scripts/kvzap.py), and of KVzip, which reads the prompt twice;
and 1 - table / best. (a to b) is a 95% interval over prompts by a percentile bootstrap, in which the prompts of one document are drawn
together. A reference that keeps fewer entries than the table (1% in the mean) is left out. Lines of a prompt whose continuations differ in
length cannot be compared, and are refused."""
import collections
import itertools
import json
import lzma
import random
import sys

DRAWS = 2000
ALONE = "window-pooled", "KVzapPress", "kvzip"
NAMES = {"adakv": "AdaKV", "cake": "CAKE", "snapkv": "SnapKV", "tova": "TOVA", "h2o": "H2O", "pyramidkv": "PyramidKV", "streamingllm": "StreamingLLM",
         "expected-attention": "Expected Attention", "keydiff": "KeyDiff", "top-k": "paper's score", "dynamickv": "DynamicKV", "chunkkv": "ChunkKV",
         "fastkv": "FastKV", "rocketkv": "RocketKV", "vatp": "VATP", "zigzagkv": "ZigZagKV"}


def mean(x):
    return sum(x) / len(x)


def draws(documents):
    """DRAWS lists of prompts, each drawn with replacement from all prompts, for the bootstrap. documents {prompt: document}: the prompts of one document are
    drawn together."""
    of = collections.defaultdict(list)
    for prompt, document in documents.items():
        of[document].append(prompt)
    rng, groups = random.Random(1), list(of.values())
    return [list(itertools.chain.from_iterable(rng.choices(groups, k=len(groups)))) for _ in range(DRAWS)]


def lines_of(path):
    """The open file of score lines, unpacked if its name ends in .xz."""
    return lzma.open(path, "rt") if path.endswith(".xz") else open(path)


def rows(name, paths, kl):
    """Yields the table's row of each budget, as texts. name: of the argument. paths: its score files. kl: whether the KL is compared, and not the loss. Only
    prompts count that every policy was scored on."""
    loss, entries, documents, lengths, first = collections.defaultdict(dict), collections.defaultdict(dict), {}, {}, None
    for r in map(json.loads, itertools.chain.from_iterable(map(lines_of, paths))):
        first = first or (r["table"] if r["policy"] == "table" else None)
        if r["policy"] in NAMES or r["policy"] in ALONE or r["policy"] == "table":
            if lengths.setdefault(r["id"], r["C"]) != r["C"]:
                sys.exit(f'{name}: prompt "{r["id"]}" was scored on {lengths[r["id"]]} tokens, and by {r["policy"]} on {r["C"]}: score it with one --continuation')
            key = (r["table"] or "") + r["policy"], r["budget"]
            loss[key][r["id"]] = r["kl"] if kl else r["loss_comp"] - r["loss_full"]
            entries[key][r["id"]] = r["entries"]
            documents[r["id"]] = r.get("document") or r["id"]
    table = first + "table"
    for budget in sorted({b for _, b in loss}):
        ours = loss[table, budget]
        ids = [i for i in ours if all(i in by for (_, b), by in loss.items() if b == budget)]
        kept = {p: mean([entries[p, b][i] for i in ids]) for p, b in loss if b == budget}
        cost = {p: mean([loss[p, budget][i] for i in ids]) for p in kept if kept[p] > 0.99 * kept[table]}
        best = min((p for p in cost if p in NAMES), key=cost.get)
        again = sorted(mean([ours[i] for i in d]) for d in draws({i: documents[i] for i in ids}))
        size = f"{budget:g}" if budget >= 1 else f"T/{1 / budget:g}"
        yield [f"{name}, {len(ids)}", size, f"**{cost[table]:.3f}** ({again[DRAWS // 40]:.3f} to {again[-DRAWS // 40]:.3f})", f"{NAMES[best]} {cost[best]:.3f}",
               *(f"{cost[p]:.3f}" if p in cost else "" for p in ALONE), f"{1 - cost[table] / cost[best]:.0%}"]


lines = [["prompts", "B", "table", "best rule that reads the prompt once", "pooled window", "KVzap, linear", "KVzip, reads it twice", "recovered"]]
kl = sys.argv[1] == "--kl"
for argument in sys.argv[1 + kl:]:
    name, paths = argument.split("=", 1)
    lines += rows(name, paths.split(","), kl)
lines = list(zip(*(c for c in zip(*lines) if any(c[1:]))))  # without what was not scored
widths = [max(map(len, column)) for column in zip(*lines)]
lines.insert(1, ["-" * w for w in widths])
for line in lines:
    print("| " + " | ".join(text.ljust(w) for text, w in zip(line, widths))+ " |")
