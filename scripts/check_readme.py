#!/usr/bin/env python3
"""check_readme.py [--write] DEMO: do README and docs/results.md say what `make demo` has found in the folder DEMO?

Held against it: the table of docs/results.md (DEMO/recovered.md) and the rho of the two tables' shares below it (DEMO/report/report.json), README's table of the rows of
both domains, and docs/demo.svg (DEMO/demo.svg), word by word. What README says of SmolLM2 is held against that model's table in docs/results.md. Another kind of CPU rounds
otherwise and may choose otherwise where choices are near: a number may be off by a tenth of itself and two of its last digit, and the answer says so. Exit 1: what they say
is not what the demo finds. --write: they say it from now on, and show its texts."""
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
    """The first table's that begins with `prompts`, as a page has them: without the room in its columns."""
    table = text[text.index("| prompts"):].split("\n\n")[0].splitlines()
    return [re.sub(r"-(?=\d)", "−", re.sub(r"---+", "---", re.sub(r" +", " ", line))) for line in table]


def cells(lines, budget):
    """Of both domains: the prompts, the table's loss, the best rule and its loss."""
    line = next(x for x in lines if x.startswith("| both") and f"| {budget} |" in x)
    prompts, _, table, rule = [x.strip() for x in line.split("|")[1:5]]
    return NUMBER.search(prompts)[0], NUMBER.search(table)[0], *rule.split(" ")


def hold(what, path, pattern, *found):
    """What the pattern's groups match in the file against what was found; --write: put there."""
    match = re.search(pattern, texts[path], re.S)
    if write and match:
        for group, value in reversed(list(enumerate(found, 1))):
            begin, end = match.span(group)
            texts[path] = texts[path][:begin] + value + texts[path][end:]
        return True
    return compare(what, " ".join(match.groups()) if match else "", " ".join(found))


write = "--write" in sys.argv
demo = sys.argv[-1]
README, RESULTS, SVG = "README.md", "docs/results.md", "docs/demo.svg"
texts = {path: open(path).read() for path in (README, RESULTS, SVG)}
found, svg, sample = (open(f"{demo}/{name}").read() for name in ("recovered.md", "demo.svg", "sample.txt"))
of_demo, of_smollm2 = rows(found), rows(texts[RESULTS][texts[RESULTS].index("### SmolLM2-135M"):])
shares = json.load(open(demo + "/report/report.json"))["pairs"][0]["shares"]
rho = [f"{s['overall']:.3f} ({s['lo']:.2f} to {s['hi']:.2f})" for s in shares]
table = r"\| {} \| \*\*(\S+)\*\* \| (\S+) \((.*?)\) \|"
ok = [hold("README's prompts", README, r"(\d+) prompts that the table was not made from", cells(of_demo, "T/8")[0])]
for words, budget in ("a quarter", "T/4"), ("an eighth", "T/8"):
    _, loss, rule, of_rule = cells(of_demo, budget)
    ok.append(hold(f"README's {words}", README, table.format(words), loss, of_rule, rule))
ok += [hold("README's SmolLM2", README, r"an eighth costs (\S+), where the best such rule costs (\S+) ", *cells(of_smollm2, "T/8")[1::2]),
       hold("docs/results.md's table", RESULTS, r"(\| prompts .*?)\n\n", "\n".join(of_demo)),
       hold("docs/results.md's rho", RESULTS, r"Spearman's ρ = (\S+ \([^)]*\)) and (\S+ \([^)]*\))", *rho),
       hold("docs/demo.svg", SVG, r"(.*)", svg)]
if write:
    hold("docs/results.md's sample", RESULTS, r"```text\n(.*?)```", sample)  # its seconds are another's
    for path, text in texts.items():
        open(path, "w").write(text)
sys.exit(not all(ok))
