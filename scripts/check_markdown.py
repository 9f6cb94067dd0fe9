#!/usr/bin/env python3
"""Markdown that is read: no line beyond 120 columns but of tables and code, no more words than there were."""
import subprocess
import sys

COLUMNS, WORDS, WORDS_OF_DOCS = 120, 45_000, 20_000


def prose(text):
    """Lines outside code, with their numbers."""
    fenced = False
    for n, line in enumerate(text.split("\n"), 1):
        fence = line.lstrip().startswith(("```", "~~~"))
        fenced ^= fence
        if not fence and not fenced and not line.startswith("    "):
            yield n, line


files = subprocess.run(["git", "ls-files", "*.md"], check=True, capture_output=True, text=True).stdout.split()
texts = {path: open(path, encoding="utf-8").read() for path in files}
wrong = [f"{path}:{n}: {len(line)} columns, wanted at most {COLUMNS}" for path, text in texts.items()
         for n, line in prose(text) if len(line) > COLUMNS and not line.startswith("|")]
for what, most, prefix in (("all Markdown", WORDS, ""), ("docs/", WORDS_OF_DOCS, "docs/")):
    words = sum(len(text.split()) for path, text in texts.items() if path.startswith(prefix))
    if words > most:
        wrong.append(f"{what}: {words} words, wanted at most {most}")
print("\n".join(wrong) or f"check-markdown: {len(files)} files")
sys.exit(bool(wrong))
