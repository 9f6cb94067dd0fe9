#!/usr/bin/env python3
"""cli_options.py CKVC PAGE: writes what `ckvc help` says of verbs and options between the marks of PAGE (docs/cli.md). tests/cli/docs.bats
holds the committed page against the program."""
import re
import sys
import textwrap

from ckvc_help import listed_verbs, read_verbs

BEGIN, END = "<!-- begin: scripts/cli_options.py -->\n", "<!-- end -->\n"
PASSES = ["scan", "calibrate", "compile"]
SETS = {"model verbs": PASSES + ["score", "generate", "eval", "perplexity"], "passes": PASSES}  # the page says so


def users(verbs):
    """Names of verbs, with one name for those that often stand together."""
    for name, of in SETS.items():
        if set(of) <= set(verbs):
            return ", ".join([name] + [v for v in verbs if v not in of])
    return ", ".join(verbs)


def item(left, texts):
    """An option: in brackets its built-in value, what it does, in parentheses the verbs that have it."""
    head, _, choices = left.rpartition(" ")
    if len(choices) > 60:  # too long for code, which is not wrapped
        left, texts = head + " NAME", [(value, said + ": " + choices.replace("|", ", "), verbs) for value, said, verbs in texts]
    same = len({value for value, _, _ in texts}) == 1
    first, parts = texts[0][1] + "; ", []
    for value, said, verbs in texts:
        parts.append(said.removeprefix(first) + f" [{value}]" * bool(value and not same) + f" ({users(verbs)})")
    line = f"- `{left}`" + f" [{texts[0][0]}]" * bool(texts[0][0] and same) + ": " + "; ".join(parts)
    return textwrap.wrap(line, 116, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)


ckvc, page = sys.argv[1:]
options = {}
for verb in read_verbs(ckvc):
    for option in [option for _, group in verb.groups[:-1] for option in group]:  # the last: every verb's, in the page's text
        options.setdefault(option.left, {}).setdefault((option.value, option.said), []).append(verb.name)
out = ["| verb | does |", "| --- | --- |"]
out += [f"| `{name}` | {about} |" for _, verbs in listed_verbs(ckvc) for name, about in verbs] + [""]
for left, texts in sorted(options.items(), key=lambda row: re.search(r"--\S+", row[0])[0]):
    most_used_first = sorted(texts.items(), key=lambda text: -len(text[1]))
    out += item(left, [(*text, verbs) for text, verbs in most_used_first])
before, rest = open(page).read().split(BEGIN)
after = rest.split(END)[1]
open(page, "w").write(before + BEGIN + "\n".join(out) + "\n" + END + after)
