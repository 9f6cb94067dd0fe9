#!/usr/bin/env python3
"""manuals.py CKVC FOLDER: writes gzipped man pages below FOLDER

They are ckvc(1) and one page for each verb, from `ckvc help` and docs/cli.md, and one page for each format, from its formats/*/*.md. What
they say stands there and nowhere else. Their date is SOURCE_DATE_EPOCH's, so that equal sources give equal bytes."""
import glob
import gzip
import itertools
import os
import re
import subprocess
import sys
import time

from ckvc_help import listed_verbs, read_verbs

SPAN = re.compile(r"`([^`]+)`|\*\*([^*]+)\*\*|(?<!\w)\*([^*\s][^*]*)\*|\[([^]]+)\]\(([^)]*)\)|\\([|*\\])|(.)", re.S)


def plain(text):
    """Text for a line of roff that is shown as it stands. Hyphens are written so that they can be searched for and copied."""
    text = text.replace("\\", r"\e").replace("-", r"\-")
    return r"\&" + text if text.startswith((".", "'")) else text


def inline(text):
    """The roff of a line of Markdown: `code` and **strong** become bold, *soft* becomes italic, and a link becomes its text, with its address if that is on the
    web."""
    out = ""
    for code, strong, soft, link, address, escaped, one in SPAN.findall(text):
        if code or strong:
            out += rf"\fB{plain(code) if code else inline(strong)}\fP"
        elif soft:
            out += rf"\fI{inline(soft)}\fP"
        elif link:
            out += inline(link) + (f" ({plain(address)})" if "://" in address else "")
        else:
            out += one if one in ".'" else plain(escaped or one)
    return r"\&" + out if out.startswith((".", "'")) else out


def block(lines):
    """The roff that shows lines as they are, indented."""
    return [".PP", ".RS 4", ".nf", *map(plain, lines), ".fi", ".RE"]


def table(lines):
    """The roff of a table of Markdown. Each row becomes an item: its head is the first cell, with the middle cells in parentheses, and its text is the last
    cell."""
    rows = [[cell.strip() for cell in re.split(r"(?<!\\)\|", line.strip()[1:-1])] for line in lines if not re.fullmatch(r"[| :-]+", line)]
    half = len(rows[0]) // 2
    if half and rows[0][:half] == rows[0][half:]:  # two tables side by side
        rows = [r[:half] for r in rows] + [r[half:] for r in rows[1:] if r[half]]
    rows[0] = [f"*{cell}*" if cell else "" for cell in rows[0]]
    out = []
    for name, *middle, last in rows if any(rows[0][1:]) else rows[1:]:
        out += [".TP", " ".join([inline(name), *(f"({inline(m)})" for m in middle if m)]), inline(last) or r"\&"]
    return out


def markdown(text):
    """Sections, paragraphs, lists, tables and blocks of our pages, in roff."""
    out, lines = [], re.sub(r"<!--.*?-->\n?", "", text, flags=re.S).split("\n")
    while lines:
        line = lines.pop(0)
        taken = [line]

        def take(pattern):
            while lines and re.match(pattern, lines[0]):
                taken.append(lines.pop(0))

        if line.startswith("```"):
            take("(?!```)")
            del lines[:1]
            out += block(taken[1:])
        elif heading := re.match("(#+) (.*)", line):
            out.append((".SH " if len(heading[1]) < 3 else ".SS ") + inline(heading[2]).replace('"', r"\(dq"))
        elif line.startswith("|"):
            take(r"\|")
            out += table(taken)
        elif line.startswith("    "):
            take("    ")
            out += block([x[4:] for x in taken])
        elif line.startswith("- "):
            take("  ")
            out += [r".IP \(bu 4", *(inline(x[2:]) for x in taken)]
        elif line.strip():
            take(r"(?!#|\||```|- |\s*$)")
            out += [".PP", *map(inline, taken)]
    return out


def prose(text):
    """The roff of what a verb's help says before its options: paragraphs, and indented lines as they are."""
    out = []
    for paragraph in filter(None, text.split("\n\n")):
        for indented, lines in itertools.groupby(paragraph.split("\n"), lambda line: line.startswith("  ")):
            out += block(line[2:] for line in lines) if indented else [".PP", *map(plain, lines)]
    return out


def options(groups):
    """The roff of a verb's options. groups: as Verb has them."""
    out = []
    for title, rows in groups:
        out.append(f".SS {plain(title or 'every verb')}")
        for o in rows:
            out += [".TP", rf"\fB{plain(o.left.removesuffix(o.metavar).rstrip())}\fP" + rf" \fI{plain(o.metavar)}\fP".replace("|", r"|\:") * bool(o.metavar)]
            out.append(plain(o.said) + f" [{plain(o.value)}]" * bool(o.value))
    return out


def write(name, section, about, body, see):
    """Writes the page NAME(SECTION). about: its one line. body: its roff. see: the other pages that it names, [(name, section)]."""
    day = time.strftime("%Y-%m-%d", time.gmtime(int(os.environ["SOURCE_DATE_EPOCH"])))
    head = [f'.TH {plain(name.upper())} {section} {day} "ckvc {version}"', ".nh", ".ad l", ".SH NAME", rf"{plain(name)} \- {plain(about)}"]
    also = [".SH SEE ALSO"] + [f".BR {plain(n)} ({s})" + "," * (i + 1 < len(see)) for i, (n, s) in enumerate(see)]
    lines = head + [line for before, line in zip(head[-1:] + body, body) if line != ".PP" or before[:3] not in (".SH", ".SS")] + also
    os.makedirs(f"{folder}/man{section}", exist_ok=True)
    with open(f"{folder}/man{section}/{name}.{section}.gz", "wb") as f:
        f.write(gzip.compress("\n".join(lines + [""]).encode(), 9, mtime=0))


ckvc, folder = sys.argv[1:]
version = subprocess.run([ckvc, "--version"], check=True, capture_output=True, text=True).stdout.split()[1]

formats = {}  # name: (title, text)
for path in sorted(glob.glob("formats/*/*.md")):
    stem = os.path.basename(path).removesuffix(".md")
    if stem != "README":
        title, text = open(path, encoding="utf-8").read().removeprefix("# ").split("\n", 1)
        formats["ckvt" if stem == "table" else f"ckvc-{stem}"] = title, text
for name, (title, text) in formats.items():
    write(name, 5, title, [".SH DESCRIPTION", *markdown(text)], [("ckvc", 1)] + [(n, 5) for n in formats if n != name])

verbs = list(read_verbs(ckvc))
for v in verbs:
    body = [".SH SYNOPSIS", ".nf", *map(plain, v.usage), ".fi"]
    body += [".SH DESCRIPTION", *(prose(v.prose) or [plain(v.about)]), ".SH OPTIONS", *options(v.groups), ".SH EXAMPLES", *block(v.examples)]
    write("ckvc-" + v.name.replace(" ", "-"), 1, " ".join(v.about.split()), body, [("ckvc", 1)])

title, text = open("docs/cli.md", encoding="utf-8").read().split("\n## Verbs and options")[0].split("\n", 1)
usage, *sections = re.split("(?m)^(?=## )", text)
body = [".SH SYNOPSIS", r"\fBckvc\fP \fIVERB\fP [options]", ".SH DESCRIPTION", *markdown(usage), ".SH VERBS"]
for heading, names in listed_verbs(ckvc):
    body += [f".SS {plain(heading)}"] + sum(([".TP", rf"\fB{n}\fP", plain(about)] for n, about in names), [])
write("ckvc", 1, "compiles KV-cache eviction policies offline", body + markdown("".join(sections)),
      [("ckvc-" + v.name.replace(" ", "-"), 1) for v in verbs] + [(n, 5) for n in formats])
