#!/usr/bin/env python3
"""check_readme.py [--write] DEMO: do README and docs/results.md say what was measured?

README's table and docs/losses.svg (of the first of MODELS), and each model's tables in docs/results.md, are compared to the letter with
the score lines of docs/results/MODEL, which scripts/results-real.sh made on fresh prompts; those of fitted entries are fitted-CORPUS there. The line of docs/results.md about the demo is
compared with what `make demo` has found in the folder DEMO (DEMO/recovered.md). Another kind of CPU rounds the demo's numbers otherwise,
and may choose otherwise where choices are near: so a number may be off by a tenth of itself and two of its last digit, and the answer
says so. Exit code 1 means that the pages do not say what was found. With --write they say it from then on."""
import json
import lzma
import os
import re
import subprocess
import sys
import tempfile

MODELS = {"qwen2.5-coder-0.5b": "## Qwen2.5-Coder-0.5B", "qwen2.5-coder-1.5b": "## Qwen2.5-Coder-1.5B",
          "smollm2-135m": "## SmolLM2-135M"}  # of docs/results, and where docs/results.md has them
FIRST = next(iter(MODELS))
FRONT = "technical", "narrative", "code"  # whose prompts README's numbers are of: chat's continuations are of another length
COUNT = {1: "one", 2: "two", 3: "three", 4: "four", 5: "five"}
PICTURE = "table", "cake", "dynamickv", "adakv", "snapkv", "expected-attention", "tova", "chunkkv", "kvzip"  # docs/losses.svg has these
HOME = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))
CKVC = os.environ.get("CKVC", HOME + "/build/release/ckvc")

NUMBER = re.compile(r"[-−]?\d+(?:\.\d+)?")


def near(said, found):
    a, b = (float(x.replace("−", "-")) for x in (said, found))
    digits = len(said.partition(".")[2])
    return abs(a - b) <= 0.1 * abs(b) + 2.01 * 10**-digits


def compare(what, said, found, rounded):
    """False: they differ; rounded: beyond rounding."""
    said, found = (" ".join(re.sub(r"<[^>]*>", " ", x).replace("-", "−").split()) for x in (said, found))
    words = NUMBER.sub("#", said) == NUMBER.sub("#", found)
    numbers = list(zip(NUMBER.findall(said), NUMBER.findall(found)))
    other = [f"{a} for {b}" for a, b in numbers if a != b]
    ok = said == found or (rounded and words and all(near(a, b) for a, b in numbers))
    print(f"check-readme: {what}: {len(numbers)} numbers, " + (
        "the same" if said == found else f"{len(other)} otherwise rounded" if ok else "NOT what was found" if words else "other words than what was found"))
    if not ok:
        print(f"  said:  {said}\n  found: {found}")
    return ok


def rows(text):
    """The first table's that begins with `prompts`, as a page has them: without the room in its columns."""
    table = text[text.index("| prompts"):].split("\n\n")[0].splitlines()
    return "\n".join(re.sub(r"-(?=\d)", "−", re.sub(r"---+", "---", re.sub(r" +", " ", line))) for line in table)


def run(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def recovered(model, *options):
    """What the model's table recovers of those of FRONT, of the first model each corpus, and of longer prompts."""
    def there(*names):
        return [f for f in (f"{HOME}/docs/results/{model}/{name}.jsonl.xz" for name in names) if os.path.exists(f)]

    def together(files):
        return (f"{COUNT[len(files)]} together" if len(files) > 1 else re.split(r"[-.]", os.path.basename(files[0]))[0]) + "=" + ",".join(files)
    each = [f"{name}={f}" for name in (*FRONT, "mixed", "chat") for f in there(name)] if model == FIRST else []
    long = [(f"{n},000 tokens", there(*(f"{name}-{n}k" for name in names))) for n in (4, 8, 16) for names in ((*FRONT, "mixed"), ("chat",))]
    return rows(run(f"{HOME}/scripts/recovered.py", *options, together(there(*FRONT)), *each, *(f"{length}, {together(files)}" for length, files in long if files)))


def fitted():
    """Of each model's prompts: the mean KL of a table whose entries are fitted, and that of the model's table in docs/results on the same prompts."""
    def mean(files, wanted, budget):
        found = {}
        for f in files:
            for line in lzma.open(f, "rt"):
                r = json.loads(line)
                if r["policy"] == "table" and r["budget"] == budget and (not wanted or r["token_hash"] in wanted):
                    found[r["token_hash"]] = r["kl"]
        return sum(found.values()) / len(found), found.keys()

    lines = []
    for model, title in MODELS.items():
        folder = f"{HOME}/docs/results/{model}"
        there = [c for c in (*FRONT, "mixed", "chat") if os.path.exists(f"{folder}/fitted-{c}.jsonl.xz")]
        for corpora in [c for c in [FRONT, *((c,) for c in there)] if there]:
            cells = []
            for budget in (0.0625, 0.125, 0.25):
                new, prompts = mean([f"{folder}/fitted-{c}.jsonl.xz" for c in corpora], None, budget)
                old, _ = mean([f"{folder}/{c}.jsonl.xz" for c in corpora], prompts, budget)
                cells.append(f"**{new:.3f}** for {old:.3f}")
            name = f"{COUNT[len(corpora)]} together" if len(corpora) > 1 else corpora[0]
            lines.append(f"| {title[3:]}, {name}, {len(prompts)} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def picture(model):
    """What a report of the model's score lines says of the policies PICTURE at the budgets of README's table."""
    folder = f"{HOME}/docs/results/{model}"
    with tempfile.TemporaryDirectory() as temp:
        with open(temp + "/scores.jsonl", "w") as out:
            for name in FRONT:
                out.writelines(line for line in lzma.open(f"{folder}/{name}.jsonl.xz", "rt") if (r := json.loads(line))["policy"] in PICTURE and r["budget"] > 0.1)
        run(CKVC, "report", "-q", folder + "/table.ckvt", "--scores", temp + "/scores.jsonl", "--bootstrap", "0", "--out", temp + "/report")
        return run(f"{HOME}/scripts/losses_svg.py", temp + "/report/report.json")


def cell(table, budget, title, group="three"):
    """Of a group's prompts: what stands under a title."""
    head, *lines = ([x.strip() for x in line.split("|")] for line in table.splitlines())
    return next(x for x in lines if x[1].startswith(group) and x[2] == budget)[head.index(title)]


def cells(table, budget, group="three"):
    """Of a group's prompts: how many, the table's loss, the best rule and its loss."""
    prompts, loss, rule = (cell(table, budget, title, group) for title in ("prompts", "table", "best rule that reads the prompt once"))
    return NUMBER.search(prompts)[0], NUMBER.search(loss)[0], *rule.rsplit(" ", 1)


def hold(what, path, pattern, *found, rounded=False):
    """What the pattern's groups match in the file against what was found; --write: put there."""
    match = re.search(pattern, texts[path], re.S)
    if write and match:
        for group, value in reversed(list(enumerate(found, 1))):
            begin, end = match.span(group)
            texts[path] = texts[path][:begin] + value + texts[path][end:]
        return True
    return compare(what, " ".join(match.groups()) if match else "", " ".join(found), rounded)


write = "--write" in sys.argv
demo = sys.argv[-1]
README, RESULTS, SVG = "README.md", "docs/results.md", "docs/losses.svg"
texts = {path: open(path).read() for path in (README, RESULTS, SVG)}
ok, losses = [], recovered(FIRST)
for words, budget in ("a quarter", "T/4"), ("an eighth", "T/8"):
    prompts, loss, rule, of_rule = cells(losses, budget)
    ok.append(hold(f"README's {words}", README, rf"\| {words} \| \*\*(\S+)\*\* \| (\S+) \((.*?)\) \|", loss, of_rule, rule))
ok.append(hold("README's KVzap", README, r"KVzap, fitted on the same prompts, loses\s(\S+) and\s(\S+)\.\s", *(cell(losses, b, "KVzap, linear") for b in ("T/4", "T/8"))))
larger = recovered("qwen2.5-coder-1.5b")
ok.append(hold("README's 1.5B", README, r"1\.5B loses (\S+) and (\S+) under its table, (\S+) and (\S+) under the best rules\.\n",
               *(cells(larger, b, "two")[i] for i in (1, 3) for b in ("T/4", "T/8"))))
ok += [hold("README's prompts", README, r"(\d+) prompts that the table was not made from", prompts), hold(SVG, SVG, r"(.*)", picture(FIRST))]
for model, title in MODELS.items():
    _, ours, rules, of_rules = zip(*(cells(recovered(model), budget, "t") for budget in ("T/16", "T/8", "T/4")))
    ok.append(hold(f"{RESULTS}'s {model}, extra loss", RESULTS, rf"{title}\n.*?\n- At T/16, T/8 and T/4 the table's extra loss is (.*?), that of the best rules (.*?)\.\n",
                   ", ".join(ours), ", ".join(f"{loss} ({rule})" for rule, loss in zip(rules, of_rules))))
    ok.append(hold(f"{RESULTS}'s {model}, KL", RESULTS, rf"{title}\n.*?KL:\s+(\| prompts .*?)\n\n", recovered(model, "--kl")))
ok.append(hold(f"{RESULTS}'s fitted entries", RESULTS, r"## Fitted entries\n.*?\| --- \| --- \| --- \| --- \|\n(.*?)\n\n", fitted()))
both = [cells(rows(open(demo + "/recovered.md").read()), budget, "both") for budget in ("T/8", "T/4")]
ok.append(hold(f"{RESULTS}'s demo", RESULTS, r"a toy model of 8 layers\. On its (\d+) prompts of both corpora .*? is (\S+) at T/8\s+and\s+(\S+) at T/4, .*? lose (\S+) and (\S+)\.\n",
               both[0][0], *(x[1] for x in both), *(x[3] for x in both), rounded=True))
if write:
    for path, text in texts.items():
        open(path, "w").write(text)
sys.exit(not all(ok))
