#!/usr/bin/env python3
"""check_readme.py [--write] DEMO: do README and docs/results.md say what was measured?

README's table and numbers, docs/losses.svg (of the first of MODELS), and each model's tables in docs/results.md, are compared to the letter with
the score lines and answers of docs/results/MODEL (docs/results/README.md). The line of docs/results.md about the demo is
compared with what `make demo` has found in the folder DEMO (DEMO/recovered.md). Another kind of CPU rounds the demo's numbers otherwise,
and may choose otherwise where choices are near: so a number may be off by a tenth of itself and two of its last digit, and the answer
says so. Exit code 1 means that the pages do not say what was found. With --write they say it from then on."""
import functools
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
PICTURE = "cake", "snapkv", "kvzip", "tova"  # docs/losses.svg has these beside the table and the whole cache
FOUR = "q4_0+mean+rot/q4_0+rot"  # the formats of tables that were compiled for bytes, in folders MODEL-bytes
BYTES = {share: share * 128 / 38 for share in (0.1, 0.05, 0.025)}  # what such a table keeps of each share of the bytes, of heads of 64 numbers: method.md, section 11
KEPT = {  # README's rows: what is kept, and the policy, formats and budget of the score lines
    "the whole cache in 8 bits": ("full", "q8_0", 0.25),
    "the whole cache in 4 bits": ("full", "q4_0+rot", 0.25), "the whole cache in 4 bits, keys less their mean": ("full", FOUR, 0.25),
    "ckvc, a quarter of the entries": ("table", "f32", 0.25),
    "ckvc, a third, in 4 bits less their mean": ("table", FOUR, BYTES[0.1]),
    "ckvc, a sixth, in 4 bits less their mean": ("table", FOUR, BYTES[0.05]),
    "CAKE, a quarter, keys in 8 bits and values in 4": ("cake", "q8_0/q4_0+rot", 0.25)}
HOME = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))
CKVC = os.environ.get("CKVC", HOME + "/build/release/ckvc")

NUMBER = re.compile(r"[-−]?\d+(?:\.\d+)?")


def near(said, found):
    """Whether two numbers, as text, differ by at most a tenth of the one found and two of the last digit of the one said."""
    a, b = (float(x.replace("−", "-")) for x in (said, found))
    digits = len(said.partition(".")[2])
    return abs(a - b) <= 0.1 * abs(b) + 2.01 * 10**-digits


def compare(what, said, found, rounded):
    """Prints whether a page's text `said` is the text `found`, tags and white space left aside, and returns it. what: names the place. rounded: whether
    numbers may differ as `near` allows. If not all agrees, both texts are printed."""
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
    """The lines of the text's first table whose head begins with `prompts`, as pages have them: without the spaces that align its columns, and with a true
    minus."""
    table = text[text.index("| prompts"):].split("\n\n")[0].splitlines()
    return "\n".join(re.sub(r"-(?=\d)", "−", re.sub(r"---+", "---", re.sub(r" +", " ", line))) for line in table)


def run(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def there(model, *names):
    """The paths of those score files of docs/results/MODEL, named without their ending, that are there."""
    return [f for f in (f"{HOME}/docs/results/{model}/{name}.jsonl.xz" for name in names) if os.path.exists(f)]


def together(files):
    """The argument of recovered.py that makes one group of these files: NAME=FILE,FILE..., where the name says how many they are, or which corpus if it is
    one."""
    return (f"{COUNT[len(files)]} together" if len(files) > 1 else re.split(r"[-.]", os.path.basename(files[0]))[0]) + "=" + ",".join(files)


def recovered(model, *options):
    """The rows of recovered.py for a model's table: on the corpora of FRONT together and, if chat was scored as well, also on each corpus alone.
    options: those of recovered.py."""
    each = [f"{name}={f}" for name in (*FRONT, "mixed", "chat") for f in there(model, name)] if there(model, "chat") else []
    return rows(run(f"{HOME}/scripts/recovered.py", *options, together(there(model, *FRONT)), *each))


def longer(model, *options):
    """The rows of recovered.py for a model's table on prompts of 4,000, 8,000 and 16,000 tokens. An empty list if none were scored."""
    long = [(f"{n},000 tokens", there(model, *(f"{name}-{n}k" for name in names))) for n in (4, 8, 16) for names in ((*FRONT, "mixed"), ("chat",))]
    found = [f"{length}, {together(files)}" for length, files in long if files]
    return found and rows(run(f"{HOME}/scripts/recovered.py", *options, *found))


def lines_of(files):
    """The JSON objects of all lines of these .xz files."""
    return [json.loads(line) for f in files for line in lzma.open(f, "rt")]


def without_bank():
    """The rows of "Fitted entries": for each model and group of prompts, the mean KL of its table, and of the table before it, which has no bank, on the same
    prompts. Groups that were not scored under two tables have no row."""
    lines = []
    for model, title in MODELS.items():
        corpora = [c for c in (*FRONT, "mixed", "chat") if there(model, c)]
        for names in [FRONT, *((c,) for c in corpora)]:
            files = there(model, *names)
            found = lines_of(files)
            tables = list(dict.fromkeys(r["table"] for r in found if r["policy"] == "table"))
            if len(tables) != 2:
                continue
            kl = [[[r["kl"] for r in found if r["policy"] == "table" and r["table"] == t and r["budget"] == b] for t in tables] for b in (0.0625, 0.125, 0.25)]
            name = f"{COUNT[len(files)]} together" if len(files) > 1 else names[0]
            lines.append(f"| {title[3:]}, {name}, {len(kl[0][0])} | " + " | ".join(f"**{sum(new) / len(new):.3f}** for {sum(old) / len(old):.3f}" for new, old in kl) + " |")
    return "\n".join(lines)


@functools.cache
def by_bytes(model):
    """What a report says of the model's table, of the one that was compiled for bytes, of the whole cache and of PICTURE by the bytes that they keep. Returns
    its rows and the picture of them, in which both tables are one line."""
    with tempfile.TemporaryDirectory() as temp:
        found = lines_of(there(model, *FRONT, *(f"bytes-{name}" for name in FRONT)))
        first = next(r["table"] for r in found if r["policy"] == "table")
        of_bytes = lines_of(there(f"{model}-bytes", *FRONT))
        with open(temp + "/scores.jsonl", "w") as out:
            out.writelines(json.dumps(r) + "\n" for r in found if r["policy"] in (*PICTURE, "full") or r["policy"] == "table" and r["table"] == first)
            out.writelines(json.dumps(r) + "\n" for r in of_bytes)
        tables = [f"{HOME}/docs/results/{name}/table.ckvt" for name in (model, f"{model}-bytes")][: 2 if of_bytes else 1]
        run(CKVC, "report", "-q", *tables, "--scores", temp + "/scores.jsonl", "--bootstrap", "0", "--out", temp + "/report")
        report = json.load(open(temp + "/report/report.json"))
        rows, tags = report["scores"]["bytes"], [t["tag"] for t in report["tables"]]
        drawn = [{**r, "label": r["label"].replace(r["table"], tags[0]), "table": tags[0]} if r["table"] else r for r in rows]
        json.dump({**report, "tables": report["tables"][:1], "scores": {**report["scores"], "bytes": drawn}}, open(temp + "/drawn.json", "w"))
        return rows, run(f"{HOME}/scripts/losses_svg.py", "--bytes", temp + "/drawn.json")


def items(policy, formats, budget):
    """The scores of RULER's questions that the first model was asked, {task: {id: score}}."""
    scores = {}
    for r in lines_of(there(FIRST, "answers-1k-bytes") + there(f"{FIRST}-bytes", "answers-1k-bytes")):
        held = "f32" if r["policy"] == "full" and not r.get("cache_keys") else "/".join(dict.fromkeys((r.get("cache_keys", "f32"), r.get("cache_values", "f32"))))
        if (r["policy"], held) == (policy, formats) and (policy == "full" or r["budget"] == budget):
            scores.setdefault(r["task"], {})[r["id"]] = r["score"]  # an item may have been asked twice
    return scores


def right(policy, formats, budget):
    """The share of RULER's questions that the first model answers rightly, as the mean of the tasks; empty where it was not asked."""
    scores = items(policy, formats, budget)
    return f"{sum(sum(x.values()) / len(x) for x in scores.values()) / len(scores):.2f}" if scores else ""


def found_strings(policy, formats, budget):
    """How many of the random strings of niah-multikey-3 the first model finds, of those that it was asked for `right`."""
    return str(round(sum(items(policy, formats, budget)["niah-multikey-3"].values())))


def lost(model, names, budget=0.25):
    """What a folder's own table loses on the prompts of these files: the extra loss and the KL."""
    found = lines_of(there(model, *names))
    table = next(r["table"] for r in found if r["policy"] == "table")
    rows = [r for r in found if (r["policy"], r["table"], r["budget"]) == ("table", table, budget)]
    return [f"{sum(x) / len(x):.3f}" for x in ([r["loss_comp"] - r["loss_full"] for r in rows], [r["kl"] for r in rows])]


def engine_rows():
    """What tables lose by the form of the sets that an engine's cache can hold."""
    lines = []
    for model in (FIRST, "smollm2-135m"):
        for sets, engines, folder, names in (
                ("as many as each head needs", "transformers, kvpress with masks, ckvc", model, FRONT),
                ("two lengths of layers", "these and vLLM", f"{model}-lengths", FRONT),
                ("one length", "these and llama.cpp", f"{model}-lengths", [f"one-length-{name}" for name in FRONT])):
            cells = " | ".join(", ".join(lost(folder, names, budget)) for budget in (0.25, 0.125))
            lines.append(f"| {MODELS[model][3:]} | {sets} | {engines} | {cells} |")
    return "\n".join(lines)


def find_row(by, policy, formats, budget):
    """The row of `by`, as by_bytes gives them, that has this policy, these formats and this budget. None if there is none."""
    label = "the whole cache" if policy == "full" else policy
    return next((r for r in by if (r["table"] if policy == "table" else r["label"] == label) and r["formats"] == formats and r["budget"] == budget), None)


def kept_rows():
    """The rows of README's table. Their columns are what is kept, its share of the bytes, the KL, the extra loss, and the share of right answers."""
    by, _ = by_bytes(FIRST)
    lines = [f"| the whole cache in 16 bits | 100% | 0 | 0 | {right('full', 'f32', 0.25)} |"]
    for words, (policy, formats, budget) in KEPT.items():
        row = find_row(by, policy, formats, budget)
        strong = "**" if policy == "table" else ""
        lines.append(f"| {strong}{words}{strong} | {100 * row['share']:.0f}% | {strong}{row['kl']:.3f}{strong} | {row['loss']:.3f} | {right(policy, formats, budget)} |")
    return "\n".join(lines)


def cell(table, budget, title, group="three"):
    """What a table of recovered.py has under a title, in the row of a budget. group: how the row's first cell begins."""
    head, *lines = ([x.strip() for x in line.split("|")] for line in table.splitlines())
    return next(x for x in lines if x[1].startswith(group) and x[2] == budget)[head.index(title)]


def cells(table, budget, group="three"):
    """What a table of recovered.py says in the row of a group and a budget, as texts: how many prompts, the table's loss, the best rule, and the loss of that
    rule."""
    prompts, loss, rule = (cell(table, budget, title, group) for title in ("prompts", "table", "best rule that reads the prompt once"))
    return NUMBER.search(prompts)[0], NUMBER.search(loss)[0], *rule.rsplit(" ", 1)


def hold(what, path, pattern, *found, rounded=False):
    """Compares what the groups of a pattern match in a file with the texts `found`, one for each group, and returns whether they agree. With --write these
    texts are put in their place instead, in `texts`. what: names the place for messages."""
    match = re.search(pattern, texts[path], re.S)
    if write and match:
        for group, value in reversed(list(enumerate(found, 1))):
            begin, end = match.span(group)
            texts[path] = texts[path][:begin] + value + texts[path][end:]
        return True
    return compare(what, " ".join(match.groups()) if match else "", " ".join(found), rounded)


def byte_rows():
    """The rows of "In bytes": what is kept, its formats, its share of the bytes, and the KL with its interval for each model whose prompts were scored so."""
    models = [by_bytes(model)[0] for model in MODELS if there(model, f"bytes-{FRONT[0]}")]
    lines = []
    for policy, formats, budget in [("full", f, 0.25) for f in ("q8_0", "fp8", "q8_0/q4_0+rot", FOUR, "q4_0+rot", "q4_0")] + [
            ("table", FOUR, b) for b in BYTES.values()] + [
            (p, f, b) for p in ("table", "cake", "snapkv") for f in ("f32", "q8_0/q4_0+rot") for b in (0.25, 0.125, 0.0625)]:
        found = [find_row(by, policy, formats, budget) for by in models]
        name = {"full": "the whole cache", "cake": "CAKE", "snapkv": "SnapKV"}.get(policy, "**table**") + (
            "" if policy == "full" else f", T/{1 / budget:.2f}" if formats == FOUR else f", T/{1 / budget:g}")
        share = f"{100 * next(r for r in found if r)['share']:.{1 if next(r for r in found if r)['share'] < 0.095 else 0}f}%"
        lines.append(f"| {name} | {'16 bits' if formats == 'f32' else formats} | {share} | " + " | ".join(
            f"{r['kl']:.3f} ({r['kl_lo']:.3f} to {r['kl_hi']:.3f})".replace("-", "−") if r else "" for r in found) + " |")
    return "\n".join(lines)


write = "--write" in sys.argv
demo = sys.argv[-1]
README, RESULTS, SVG = "README.md", "docs/results.md", "docs/losses.svg"
texts = {path: open(path).read() for path in (README, RESULTS, SVG)}
larger = recovered("qwen2.5-coder-1.5b")
ok = [hold("README's table", README, r"\| what is kept [^\n]*\n[^\n]*\n(.*?)\n\n", kept_rows()),
      hold("README's first number", README, r"At a tenth of the bytes \S+ loses (\S+) nats per token\..*?loses (\S+)\.\s",
           *(f"{find_row(by_bytes(FIRST)[0], *KEPT[words])['loss']:.3f}" for words in ("ckvc, a third, in 4 bits less their mean", "the whole cache in 4 bits"))),
      hold("README's prompts", README, r"(\d+) prompts that the tables were not made from", cells(recovered(FIRST), "T/4")[0]),
      hold("README's 1.5B", README, r"1\.5B\sloses\s(\S+)\sand\s(\S+)\sunder\sits\stable,\s(\S+)\sand\s(\S+)\sunder\sthe\sbest\srules\.\s",
           *(cells(larger, b, "two")[i] for i in (1, 3) for b in ("T/4", "T/8"))),
      hold("README's best 4 bits", README, r"In the best 4 bits, at 30% of the bytes, it loses (\S+)\.\)",
           f"{find_row(by_bytes(FIRST)[0], 'full', FOUR, 0.25)['loss']:.3f}"),
      hold("README's engines", README, r"at a quarter of the entries \S+\sloses\s(\S+)\sand\sSmolLM2-135M\s(\S+)\.\s.*?they\slose\s(\S+)\sand\s(\S+)\.\s.*?"
           r"SmolLM2-135M\sloses\s(\S+)\.\s", *(lost(model + of, FRONT)[0] for of in ("", "-lengths") for model in (FIRST, "smollm2-135m")),
           lost("smollm2-135m-lengths", [f"one-length-{name}" for name in FRONT])[0]),
      hold("README's SmolLM2", README, r"no\sbias:\sits\swhole\scache\sin\s4\sbits\sloses\s(\S+),\sits\stable\sat\sa\stenth\sof\sthe\sbytes\s(\S+)\.\s",
           *(f"{find_row(by_bytes('smollm2-135m')[0], *of)['loss']:.3f}" for of in (("full", "q4_0+rot", 0.25), ("table", "q8_0/q4_0+rot", 0.25)))),
      hold("README's strings", README, r"the\s0\.5B\smodel\sfinds\s+(\d+)\swith\sits\swhole\scache,\s(\d+)\swith\sa\squarter.*?,\s(\d+)\swith\sa\sthird\sin\s4\sbits,\sand\s(\d+)\s",
           *(found_strings(*of) for of in (("full", "f32", 0.25), *(KEPT[words] for words in KEPT if words.startswith("ckvc"))))),
      hold(SVG, SVG, r"(.*)", by_bytes(FIRST)[1])]
for model, title in MODELS.items():
    _, ours, rules, of_rules = zip(*(cells(recovered(model), budget, "t") for budget in ("T/16", "T/8", "T/4")))
    ok.append(hold(f"{RESULTS}'s {model}, extra loss", RESULTS, rf"{title}\n.*?\n- At T/16, T/8 and T/4 the table's extra loss is (.*?), that of the best rules (.*?)\.\n",
                   ", ".join(ours), ", ".join(f"{loss} ({rule})" for rule, loss in zip(rules, of_rules))))
    ok.append(hold(f"{RESULTS}'s {model}, KL", RESULTS, rf"{title}\n.*?KL:\s+(\| prompts .*?)\n\n", recovered(model, "--kl")))
    if found := longer(model, "--kl"):
        ok.append(hold(f"{RESULTS}'s {model}, longer prompts", RESULTS, rf"{title}\n.*?Longer prompts.*?KL:\s+(\| prompts .*?)\n\n", found))
ok.append(hold(f"{RESULTS}'s fitted entries", RESULTS, r"## Fitted entries\n.*?\| --- \| --- \| --- \| --- \|\n(.*?)\n\n", without_bank()))
ok.append(hold(f"{RESULTS}'s engines", RESULTS, r"## What each engine holds\n.*?\n\| --- [^\n]*\n(.*?)\n\n", engine_rows()))
ok.append(hold(f"{RESULTS}'s bytes", RESULTS, r"## In bytes\n.*?\n\| --- [^\n]*\n(.*?)\n\n", byte_rows()))
both = [cells(rows(open(demo + "/recovered.md").read()), budget, "both") for budget in ("T/8", "T/4")]
ok.append(hold(f"{RESULTS}'s demo", RESULTS, r"a toy model of 8 layers\. On its (\d+) prompts of both corpora .*? is (\S+) at T/8\s+and\s+(\S+) at T/4, .*? lose (\S+) and (\S+)\.\n",
               both[0][0], *(x[1] for x in both), *(x[3] for x in both), rounded=True))
if write:
    for path, text in texts.items():
        open(path, "w").write(text)
sys.exit(not all(ok))
