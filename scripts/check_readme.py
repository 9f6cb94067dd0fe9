#!/usr/bin/env python3
"""check_readme.py DEMO: does README say what `make demo` has found in the folder DEMO?

Held against it: README's first table (DEMO/recovered.md), the rho of the two tables' shares below it (DEMO/report/report.json) and docs/demo.svg (DEMO/demo.svg),
word by word. Another kind of CPU rounds otherwise and may choose otherwise where choices are near: a number may be off by a tenth of itself and two of its last
digit, and the answer says so. Exit 1: what README says is not what the demo finds."""
import json
import re
import sys

NUMBER = re.compile(r"[-−]?\d+(?:\.\d+)?")


def near(said, found):
    a, b = (float(x.replace("−", "-")) for x in (said, found))
    digits = len(said.partition(".")[2])
    return abs(a - b) <= 0.1 * abs(b) + 2.01 * 10**-digits


def compare(what, said, found):
    """False: they differ beyond rounding."""
    said, found = (" ".join(re.sub(r"<[^>]*>", " ", x).replace("-", "−").split()) for x in (said, found))
    words = NUMBER.sub("#", said) == NUMBER.sub("#", found)
    numbers = list(zip(NUMBER.findall(said), NUMBER.findall(found)))
    other = [f"{a} for {b}" for a, b in numbers if a != b]
    ok = words and all(near(a, b) for a, b in numbers)
    print(f"check-readme: {what}: {len(numbers)} numbers, " + (
        "the same" if said == found else f"{len(other)} otherwise rounded" if ok else "NOT what the demo finds" if words else "other words than the demo's"))
    if not ok:
        print(f"  said:  {said}\n  found: {found}")
    return ok


def rows(text):
    """The first table's, without its ruler and the room in its columns."""
    table = text[text.index("| prompts"):].split("\n\n")[0].splitlines()
    return " ".join(re.sub(r" +", " ", line) for line in table if not line.startswith("| -"))


demo, readme = sys.argv[1], open("README.md").read()
shares = json.load(open(demo + "/report/report.json"))["pairs"][0]["shares"]
rho = [f"{s['overall']:.3f} ({s['lo']:.2f} to {s['hi']:.2f})" for s in shares]
sentence = re.search(r"Spearman's ρ = (\S+ \([^)]*\) and \S+ \([^)]*\))", readme)
ok = [compare("README's table", rows(readme), rows(open(demo + "/recovered.md").read())),
      compare("README's rho", sentence[1] if sentence else "", " and ".join(rho)),
      compare("docs/demo.svg", *(open(path).read().partition("</style>")[2] for path in ("docs/demo.svg", demo + "/demo.svg")))]
sys.exit(not all(ok))
