#!/usr/bin/env python3
"""cli_options.py CKVC PAGE: writes what `ckvc help` says of verbs and options between the marks of PAGE (docs/cli.md). tests/cli/docs.bats
holds the committed page against the program."""
import re
import subprocess
import sys

BEGIN, END = "<!-- begin: scripts/cli_options.py -->\n", "<!-- end -->\n"
EVERY = "--config", "--print-config", "--help"  # every verb's: in the page's text


def help_of(verb=""):
    return subprocess.run([ckvc, "help", *verb.split()], check=True, capture_output=True, text=True).stdout


def cell(text):
    return text.replace("|", r"\|")


def options(verb):
    """("-m, --model DIR", built-in value, explanation) of each."""
    lines = re.split(r"\n\n(?=[^\n]*:\n(?: |\n))", help_of(verb).split("\nexamples:\n")[1], maxsplit=1)[-1].splitlines()
    for line, after in zip(lines, lines[1:] + [""]):
        if not re.match(r"  (-\w, |    )--", line) or line.split()[0] in EVERY:
            continue
        left, said = (line, after) if after.startswith(" " * 37) else (line[:36], line[36:])
        said, value = re.fullmatch(r"(.*?)(?: \[([^][]*)\])?", said.strip()).groups()
        yield left.strip(), "the cores" if "--threads" in left else value or "", said


ckvc, page = sys.argv[1:]
verbs = dict(re.findall(r"^  (\w+) +(.*)", help_of(), re.M))
rows = {}
for verb in verbs:
    for name in ["manifest build", "manifest check"] if verb == "manifest" else [verb]:
        for option in options(name):
            rows.setdefault(option, []).append(name)
out = ["| verb | does |", "| --- | --- |"] + [f"| `{v}` | {does} |" for v, does in verbs.items()]
out += ["", "| option | built-in value | what | verbs |", "| --- | --- | --- | --- |"]
for (left, value, said), users in sorted(rows.items(), key=lambda row: re.search(r"--\S+", row[0][0])[0]):
    out.append(f"| `{cell(left)}` | {cell(value)} | {cell(said)} | {', '.join(users)} |")
before, rest = open(page).read().split(BEGIN)
after = rest.split(END)[1]
open(page, "w").write(before + BEGIN + "\n".join(out) + "\n" + END + after)
