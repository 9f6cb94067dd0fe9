#!/usr/bin/env python3
"""Checks that no line of the repository's Markdown has more than 120 columns, except in tables and code."""
import os
import subprocess
import sys

COLUMNS = 120


def prose(text):
    """Yields the number and the text of each line that is not in a block of code, fenced or indented."""
    fenced = False
    for n, line in enumerate(text.split("\n"), 1):
        fence = line.lstrip().startswith(("```", "~~~"))
        fenced ^= fence
        if not fence and not fenced and not line.startswith("    "):
            yield n, line


listed = subprocess.run(["git", "ls-files", "-co", "--exclude-standard", "*.md"], check=True, capture_output=True, text=True).stdout.split()
files = [path for path in listed if os.path.exists(path)]
texts = {path: open(path, encoding="utf-8").read() for path in files}
wrong = [f"{path}:{n}: {len(line)} columns, wanted at most {COLUMNS}" for path, text in texts.items()
         for n, line in prose(text) if len(line) > COLUMNS and not line.startswith("|")]
print("\n".join(wrong) or f"check-markdown: {len(files)} files")
sys.exit(bool(wrong))
