#!/usr/bin/env python3
"""coverage.py BUILD: says which share of the product's lines the tests run, by room, from gcov's counts below BUILD."""
import collections
import json
import pathlib
import subprocess
import sys

ROOMS = ("lib", "formats", "corpus", "calib", "cql", "budgets", "fit", "judge", "compile", "report", "cmd")
build = pathlib.Path(sys.argv[1]).resolve()
hits = collections.defaultdict(int)  # (file, line) -> times run
for data in build.rglob("*.gcda"):
    out = subprocess.run(["gcov", "--json-format", "--stdout", str(data)], capture_output=True, check=True).stdout
    for document in out.splitlines():
        for source in json.loads(document)["files"]:
            if source["file"].split("/")[0] in ROOMS:
                for line in source["lines"]:
                    hits[source["file"], line["line_number"]] += line["count"]
total, run = collections.Counter(), collections.Counter()
for (name, _), count in hits.items():
    for room in (name.split("/")[0], "all"):
        total[room] += 1
        run[room] += count > 0
for room in ROOMS + ("all",):
    if total[room]:
        print(f"{room:8} {run[room]:6} of {total[room]:6} lines run  {100 * run[room] / total[room]:5.1f}%")
