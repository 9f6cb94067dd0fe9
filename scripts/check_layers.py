#!/usr/bin/env python3
"""Compares every #include with the table of rooms in docs/architecture.md, folder by folder.

A row of the table is a folder. Its third column names what the folder's sources may include beside their own folder: folders (with
everything below them) or single headers; `all` stands for every room. The check fails on a folder without a row, on an include that no
row allows, on a row or a permission that nothing uses, on a circle of files by what they include (x.c and x.h are one file) or by what
they call (lib/backend's factory, which names its backends, does not count), and on a folder of more than 30 sources.
"""
import collections
import os
import re
import subprocess
import sys

os.chdir(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
FACTORY = "lib/backend/backend_create.c"
listed = ["git", "ls-files", "-co", "--exclude-standard", "--", "*.c", "*.h", "*.cu", "*.cuh"]
sources = [f for f in subprocess.run(listed, capture_output=True, text=True, check=True).stdout.split() if os.path.exists(f)]
product = [f for f in sources if not f.startswith("tests/")]
findings = []

allowed = {}
with open("docs/architecture.md", encoding="utf-8") as page:
    for line in page:
        row = re.match(r"\| `([\w/]+)/` \|[^|]*\|([^|]*)\|", line)
        if row:
            allowed[row[1]] = re.findall(r"`([\w/.]+)`", row[2])

includes = collections.defaultdict(set)  # file -> files
for name in product:
    with open(name, encoding="utf-8") as text:
        for target in re.findall(r'^[ \t]*#[ \t]*include[ \t]*"([^"]+)"', text.read(), re.M):
            includes[name].add(target)
            if not os.path.exists(target):
                findings.append(f"{name}: includes {target}, which is not there")

used = set()
for name, targets in includes.items():
    folder = os.path.dirname(name)
    if folder not in allowed:
        findings.append(f"{name}: docs/architecture.md has no row for {folder}/")
        continue
    for target in targets:
        if os.path.dirname(target) == folder or name == FACTORY:
            continue
        by = [a for a in allowed[folder] if a in ("all", target) or target.startswith(a.rstrip("/") + "/")]
        used.update((folder, a) for a in by)
        if not by:
            findings.append(f"{name}: must not include {target}")
# Two ways from records to a table: neither is built on the other, whatever the table of rooms allows.
WAYS = ("budgets", "cql")
findings += [f"{name}: {ours}/ and {theirs}/ are two ways, and neither includes the other: {target}"
             for ours, theirs in (WAYS, WAYS[::-1]) for name, targets in includes.items() for target in targets
             if name.startswith(ours + "/") and target.startswith(theirs + "/")]
for folder in allowed:
    n = sum(os.path.dirname(f) == folder for f in product)
    if not n:
        findings.append(f"docs/architecture.md: {folder}/ has a row and no source")
    if n > 30:
        findings.append(f"{folder}/: {n} sources, 30 are the most that a folder may hold")
    for a in allowed[folder]:
        if (folder, a) not in used:
            findings.append(f"docs/architecture.md: {folder}/ may include {a}, and does not")


def unit(name):
    """A file's path without its ending: x.c and x.h are one unit."""
    return re.sub(r"\.(c|h|cu|cuh)$", "", name)


def code(name):
    """A source without comments, strings and includes."""
    with open(name, encoding="utf-8") as text:
        return re.sub(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|^#include.*?$', " ", text.read(), flags=re.S | re.M)


def circles(arrows):
    """The circles of a graph {node: set of nodes}, each as a sorted tuple of the nodes that reach each other."""
    def reach(start):
        seen, todo = set(), [start]
        while todo:
            for to in arrows[todo.pop()] - seen:
                seen.add(to)
                todo.append(to)
        return seen

    reachable = {u: reach(u) for u in list(arrows)}
    return sorted({tuple(sorted(v for v in reachable[u] if u in reachable.get(v, ()))) for u in reachable if u in reachable[u]})


included = collections.defaultdict(set)
for name, targets in includes.items():
    if name != FACTORY:
        included[unit(name)].update(unit(t) for t in targets if unit(t) != unit(name))
findings += [f"circle: {' <-> '.join(c)}" for c in circles(included)]

sources_of = {name: code(name) for name in product if name.endswith(".c") and name != FACTORY}
FUNCTION = r"^(static )?(?!typedef|return|else)[A-Za-z_][\w \t*]*?\b(\w+)\([^;{}]*\)\s*\{"
statics, home = {}, {}
for name, text in sources_of.items():
    found = re.findall(FUNCTION, text, re.M)
    statics[name] = {f for static, f in found if static}
    home.update((f, name) for static, f in found if not static)
calls = collections.defaultdict(set)
for name, text in sources_of.items():
    calls[name] = {home[f] for f in set(re.findall(r"\b(\w+)\(", text)) & home.keys() if f not in statics[name]} - {name}
findings += [f"circle of calls: {' <-> '.join(c)}" for c in circles(calls)]

# What thread sanitizer's tests stand on (TSAN_UNIT of the Makefile).
findings += [f"{name}: tasks of threads lie in lib/base, lib/backend and lib/model" for name, text in sources_of.items()
             if re.search(r"\b(ckvc_pool_run|pthread_create)\(", text) and not re.match(r"lib/(base|backend|model)/|cmd/main\.c", name)]
names = collections.Counter(os.path.basename(f) for f in sources)
findings += [f"{n}: {k} files have this name" for n, k in names.items() if k > 1]
print("\n".join(findings) if findings else f"check-layers: {sum(map(len, includes.values()))} includes of {len(product)} sources")
sys.exit(bool(findings))
