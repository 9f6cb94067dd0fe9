#!/usr/bin/env python3
"""code_completion.py OUT [--items N] [--tokens N]: the next line of a source file behind other files of its repository, as RepoBench asks (arXiv 2306.03091),
in LongBench's form for `ckvc eval --tasks repobench-p --longbench OUT`.
code_completion.py --count ANSWERS.jsonl OUT: of what eval wrote, exact match and edit similarity by policy and budget.

Repositories are the sources of data-manifests/fresh-code.json, on which nothing was chosen. A line is asked for that is the first in its file to use a name that
one other file defines (RepoBench's "cross file, first"). Before it stand pieces of other files, the definition among them (three fifths of the bytes), then its own
file up to that line: one item a file at most, drawn by --seed. The prompt is the code alone, without LongBench's sentence around it."""
import argparse
import collections
import difflib
import json
import os
import random
import re

import corpora

DEFINES = {".py": r"^(?:def|class) (\w+)", ".go": r"^(?:func (?:\([^)]*\) )?|type )(\w+)", ".c": r"^(?:\w[\w *]*?)\b(\w+)\([^;]*$"}
NOT_CODE = re.compile(r"\s*(#|//|/\*|\*|import |from |package |\"\"\"|$)")
PIECE, BYTES = 2400, 3.3  # bytes of a piece of another file; of a token, about


def repository(source, folder):
    """A source's files but tests: path -> text."""
    found = {}
    for name in sorted(corpora.taken(folder, source["take"])):
        if "test" not in name:
            with open(f"{folder}/{name}", encoding="utf-8") as f:
                found[name] = f.read()
    return found


def questions(files, ending):
    """(file, line number, defining file, where the name is defined) of every line that may be asked for."""
    define = re.compile(DEFINES[ending], re.M)
    where = collections.defaultdict(list)
    for name, text in files.items():
        for m in define.finditer(text):
            where[m[1]].append((name, m.start()))
    for name, text in files.items():
        seen = set()
        for i, line in enumerate(text.splitlines()):
            words = set(re.findall(r"[A-Za-z_]\w{3,}", line))
            new = sorted(w for w in words - seen if len(where.get(w, ())) == 1 and where[w][0][0] != name and re.search(rf"\b{w}[(.]", line))
            if not NOT_CODE.match(line):
                seen |= words
                if new and i >= 20 and 16 <= len(line.strip()) <= 100 and ">>>" not in line:
                    yield name, i, *where[new[0]][0]


def item(files, asked, mark, size, rng):
    name, i, other, at = asked
    lines = files[name].splitlines(keepends=True)
    rest = [x for x in sorted(files) if x not in (name, other)]
    rng.shuffle(rest)
    pieces, room = [(other, files[other][files[other].rfind("\n", 0, at) + 1:][:PIECE])], int(0.6 * size)
    for x in rest:
        if sum(len(p) for _, p in pieces) + PIECE <= room:
            pieces.append((x, files[x][:PIECE]))
    rng.shuffle(pieces)
    context = "".join(f"{mark} {x}\n{p[:p.rfind(chr(10)) + 1]}\n" for x, p in pieces)
    own = "".join(lines[:i])
    own = own[max(0, len(own) - (size - len(context))):]
    return {"context": context, "input": f"{mark} {name}\n{own[own.find(chr(10)) + 1 if len(own) < len(''.join(lines[:i])) else 0:]}",
            "answers": [lines[i].strip()], "_id": f"{name}:{i + 1}"}


def make(out, n, tokens, seed):
    recipe, rng, drawn = corpora.recipe("fresh-code"), random.Random(seed), []
    packages = {p["deb"].split("_")[0]: corpora.unpacked(corpora.deb(p, "data-manifests/fresh-code.json", False)[0]) for p in recipe["packages"]}
    for source in recipe["sources"]:
        files = repository(source, f"{packages[source['package']]}/{source['path']}")
        ending = os.path.splitext(next(iter(files)))[1]
        by_file = collections.defaultdict(list)
        for q in questions(files, ending):
            by_file[q[0]].append(q)
        names = sorted(by_file)
        rng.shuffle(names)
        drawn.append([item(files, rng.choice(by_file[x]), "#" if ending == ".py" else "//", int(tokens * BYTES), rng) for x in names])
    items = [x for row in zip(*[d + [None] * n for d in drawn]) for x in row if x][:n]  # a repository after the other
    os.makedirs(out, exist_ok=True)
    with open(f"{out}/repobench-p.jsonl", "w") as f:
        f.writelines(json.dumps(x) + "\n" for x in items)
    with open(f"{out}/dataset2prompt.json", "w") as f:
        json.dump({"repobench-p": "{context}{input}"}, f)
    print(f"wrote {out}: {len(items)} items of {len(drawn)} repositories")


def count(answers, out):
    with open(f"{out}/repobench-p.jsonl") as f:
        wanted = [json.loads(line)["answers"][0] for line in f]
    same, near = collections.defaultdict(list), collections.defaultdict(list)
    with open(answers) as f:
        for row in map(json.loads, f):
            got, want = next((x for x in row["answer"].split("\n") if x.strip()), "").strip(), wanted[int(row["id"].rsplit("/", 1)[1])]
            same[row["policy"], row["budget"] or 1].append(got.split() == want.split())
            near[row["policy"], row["budget"] or 1].append(difflib.SequenceMatcher(None, got, want, autojunk=False).ratio())
    for key in sorted(same, key=lambda k: (-k[1], -sum(near[k]))):
        print(f"{key[0]:20} {key[1]:7g}  exact {sum(same[key]) / len(same[key]):.3f}  similarity {sum(near[key]) / len(near[key]):.3f}  of {len(same[key])}")


if __name__ == "__main__":
    p = argparse.ArgumentParser(description=__doc__.split("\n\n")[0], formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("out")
    p.add_argument("--items", type=int, default=60)
    p.add_argument("--tokens", type=int, default=3800)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--count", metavar="ANSWERS")
    a = p.parse_args()
    count(a.count, a.out) if a.count else make(a.out, a.items, a.tokens, a.seed)
