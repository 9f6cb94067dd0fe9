#!/usr/bin/env python3
"""cli_options.py CKVC PAGE: writes what `ckvc help` says of verbs and options between the marks of PAGE (docs/cli.md). tests/cli/docs.bats
holds the committed page against the program."""
import re
import sys

from ckvc_help import listed_verbs, read_verbs

BEGIN, END = "<!-- begin: scripts/cli_options.py -->\n", "<!-- end -->\n"


def cell(text):
    return text.replace("|", r"\|")


ckvc, page = sys.argv[1:]
rows = {}
for verb in read_verbs(ckvc):
    for option in [option for _, options in verb.groups[:-1] for option in options]:  # the last: every verb's, in the page's text
        rows.setdefault((option.left, option.value, option.said), []).append(verb.name)
out = ["| verb | does |", "| --- | --- |"]
out += [f"| `{name}` | {about} |" for _, verbs in listed_verbs(ckvc) for name, about in verbs]
out += ["", "| option | built-in value | what | verbs |", "| --- | --- | --- | --- |"]
for (left, value, said), users in sorted(rows.items(), key=lambda row: re.search(r"--\S+", row[0][0])[0]):
    out.append(f"| `{cell(left)}` | {cell(value)} | {cell(said)} | {', '.join(users)} |")
before, rest = open(page).read().split(BEGIN)
after = rest.split(END)[1]
open(page, "w").write(before + BEGIN + "\n".join(out) + "\n" + END + after)
