#!/usr/bin/env python3
"""check_readme.py DEMO: do README and docs/results.md say what `make demo` has found in the folder DEMO?

Held against it: the table of docs/results.md (DEMO/recovered.md) and the rho of the two tables' shares below it (DEMO/report/report.json), README's table of the rows of
both domains, and docs/demo.svg (DEMO/demo.svg), word by word. What README says of SmolLM2 is held against that model's table in docs/results.md. Another kind of CPU rounds
otherwise and may choose otherwise where choices are near: a number may be off by a tenth of itself and two of its last digit, and the answer says so. Exit 1: what they say
is not what the demo finds."""
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
    """The first table's that begins with `prompts`, without its ruler and the room in its columns."""
    table = text[text.index("| prompts"):].split("\n\n")[0].splitlines()
    return [re.sub(r" +", " ", line) for line in table if not line.startswith("| -")]


def cells(lines, budget):
    """Of both domains: the prompts, the table's loss, the best rule and its loss."""
    line = next(x for x in lines if x.startswith("| both") and f"| {budget} |" in x)
    prompts, _, table, rule = [x.strip() for x in line.split("|")[1:5]]
    return NUMBER.search(prompts)[0], NUMBER.search(table)[0], *rule.split(" ")


def said(text, pattern):
    found = re.search(pattern, text)
    return " ".join(found.groups()) if found else ""


demo = sys.argv[1]
readme, results, found = (open(path).read() for path in ("README.md", "docs/results.md", demo + "/recovered.md"))
of_demo, of_smollm2 = rows(found), rows(results[results.index("### SmolLM2-135M"):])
shares = json.load(open(demo + "/report/report.json"))["pairs"][0]["shares"]
rho = [f"{s['overall']:.3f} ({s['lo']:.2f} to {s['hi']:.2f})" for s in shares]
table = r"\| {} \| \*\*(\S+)\*\* \| (\S+) \((.*?)\) \|"
ok = [compare("README's prompts", said(readme, r"(\d+) prompts that the table was not made from"), cells(of_demo, "T/8")[0])]
for words, budget in ("a quarter", "T/4"), ("an eighth", "T/8"):
    _, loss, rule, of_rule = cells(of_demo, budget)
    ok.append(compare(f"README's {words}", said(readme, table.format(words)), f"{loss} {of_rule} {rule}"))
ok += [compare("README's SmolLM2", said(readme, r"an eighth costs (\S+), where the best such rule costs (\S+) "), " ".join(cells(of_smollm2, "T/8")[1::2])),
       compare("docs/results.md's table", " ".join(rows(results)), " ".join(of_demo)),
       compare("docs/results.md's rho", said(results, r"Spearman's ρ = (\S+ \([^)]*\) and \S+ \([^)]*\))"), " and ".join(rho)),
       compare("docs/demo.svg", *(open(path).read() for path in ("docs/demo.svg", demo + "/demo.svg")))]
sys.exit(not all(ok))
