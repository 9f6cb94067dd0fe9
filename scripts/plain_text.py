#!/usr/bin/env python3
"""plain_text.py FROM TO: a file or folder of HTML, man pages and info files as plain text, good enough to be prompts

TO gets every file of FROM under its own name. A .gz file is unpacked, turned into text and packed again. A file that is none of the three kinds is copied as
it is. Bytes beyond ASCII stay, whatever their encoding. `ckvc manifest build` reads the result. This is no renderer: tables, navigation and formulas of HTML
are left out, because their cells read as noise outside of their columns."""
import gzip
import os
import re
import shutil
import sys
import zlib

ENTITIES = {"amp": "&", "lt": "<", "gt": ">", "quot": '"', "apos": "'", "nbsp": " ", "lsquo": "'", "rsquo": "'", "ldquo": '"', "rdquo": '"', "ndash": "-", "mdash": "--",
            "hellip": "...", "rarr": "->", "larr": "<-", "rArr": "=>", "bull": "*", "middot": "*", "minus": "-", "le": "<=", "ge": ">=", "ne": "!=", "equiv": "==",
            "times": "x", "copy": "(c)", "reg": "(R)", "shy": "", "sdot": "*", "prime": "'", "laquo": '"', "raquo": '"'}
DROPPED = b"head nav table svg math".split()  # with all that is in them
LINES, PARAGRAPHS = b"br li dt dd tr hr".split(), b"p h1 h2 h3 h4 h5 h6 div pre ul ol dl blockquote".split()
GLYPHS = {b"aq": b"'", b"lq": b'"', b"rq": b'"', b"oq": b"'", b"cq": b"'", b"dq": b'"', b"em": b"-", b"en": b"-", b"bu": b"*", b"mi": b"-", b"ha": b"^", b"ti": b"~"}
FONTS, BREAKS = b"B I BR IR RB RI BI IB SM SB OP".split(), b"PP P LP TP IP RS RE sp nf fi CS CE AP".split()


def end_line(out, lines):
    """Makes the bytearray `out` end with at least so many newlines (0, 1 or 2)."""
    out += b"\n" * (lines - min(lines, 2 if out.endswith(b"\n\n") else out.endswith(b"\n")))


def entity(m):
    """The UTF-8 bytes of the character that an HTML reference names (&amp;, &#228;, &#xe4;). None if it names none that is known. m: a match whose first
    group is what stands between & and ;."""
    name = m[1].decode("latin1")
    if name[0] != "#":
        return ENTITIES[name].encode() if name in ENTITIES else None
    number = re.fullmatch("#[xX]([0-9a-fA-F]+)|#([0-9]+)", name)
    code = int(number[1], 16) if number and number[1] else int(number[2]) if number else 0
    return chr(code).encode() if 0 < code <= 0x10FFFF and not 0xD800 <= code <= 0xDFFF else None


def words(out, text, pre, utf8):
    """Appends HTML's text to the bytearray `out`, with its references replaced. pre: whether it stands in <pre>; elsewhere white space becomes one space. utf8:
    whether the page is UTF-8; in other pages references to characters beyond ASCII stay as they are."""
    for m in re.finditer(rb"&([^;]{1,10});|[ \t-\r]+|&|[^& \t-\r]+", text):
        found = entity(m) if m[1] else None
        if found and not utf8 and not found.isascii():
            found = None  # no character of this text's encoding
        if m[1] and found is None:  # an ampersand and what follows
            out += b"&"
            words(out, m[0][1:], pre, utf8)
        elif m[1]:
            out += found
        elif not pre and m[0][0] in b" \t\n\v\f\r":
            out += b"" if not out or out[-1] in b" \n" else b" "
        else:
            out += m[0]


def html(text):
    """The plain text of a page of HTML, bytes to bytes."""
    out, inside, depth, pre, i, utf8 = bytearray(), b"", 0, 0, 0, True
    try:
        text.decode()
    except ValueError:
        utf8 = False
    while i < len(text):
        if text[i] != 0x3C:  # <
            end = text.find(b"<", i)
            end = len(text) if end < 0 else end
            if not depth:
                words(out, text[i:end], pre, utf8)
            i = end
            continue
        if text.startswith(b"<!--", i):
            end = text.find(b"-->", i)
            i = len(text) if end < 0 else end + 3
            continue
        end = text.find(b">", i)
        if end < 0:
            break
        closing, alone = text[i + 1:i + 2] == b"/", text[end - 1] == 0x2F
        name = re.match(rb"[A-Za-z0-9]{0,15}", text[i + 1 + closing:end])[0].lower()
        i = end + 1
        if depth:  # only the same tag counts: others may be left open
            depth += 0 if name != inside or alone else -1 if closing else 1
        elif not closing and name in (b"script", b"style"):  # a '<' in it opens nothing, only the closing tag counts
            close = re.compile(rb"</" + name, re.I).search(text, i)
            i = close.start() if close else len(text)
        elif not closing and not alone and name in DROPPED:
            depth, inside = 1, name
        else:
            pre += 0 if name != b"pre" else 1 if not closing else -1 if pre else 0
            end_line(out, 2 if name in PARAGRAPHS else 1 if name in LINES and not (closing and name == b"dt") else 0)
    return bytes(out)


def lines_of(text):
    return text.split(b"\n")[:-1] + ([] if text.endswith(b"\n") or not text else [text.rsplit(b"\n", 1)[-1]])


def man_words(out, line, macro):
    """Appends a line of a man page to the bytearray `out`, with roff's escapes replaced. macro: whether the line holds a macro's arguments, whose quotes are
    left out."""
    i = 0
    while i < len(line):
        c = line[i:i + 1]
        if c == b"\\" and i + 1 < len(line):
            i += 1
            c = line[i:i + 1]
            if c == b"f":  # font: \fB, \f(CW, \f[B]
                if line[i + 1:i + 2] == b"[":
                    end = line.find(b"]", i)
                    i = len(line) if end < 0 else end
                else:
                    i += 3 if line[i + 1:i + 2] == b"(" else 1
            elif c == b"(" and i + 2 < len(line):
                out += GLYPHS.get(line[i + 1:i + 3], b"")
                i += 2
            elif c in (b"-", b" ", b".", b"'"):
                out += c
            elif c in (b"e", b"\\"):
                out += b"\\"
            elif c == b'"':
                return  # the rest is a comment
            elif c == b"s":
                i += 2 if line[i + 1:i + 2] in (b"-", b"+") else 1
        elif not (macro and c == b'"'):
            out += c
        i += 1


def man(text):
    """The plain text of a man page, bytes to bytes."""
    out, defining = bytearray(), False  # between .de and ..
    for line in lines_of(text):
        if defining or line.startswith(b".de"):
            defining = not line.startswith(b"..")
        elif not line:
            out += b"\n"
        elif line[:1] not in (b".", b"'"):
            man_words(out, line, False)
            out += b"\n"
        else:
            letters = re.match(rb"[A-Za-z]*", line[1:])[0]
            name, at = letters[:7], 1 + len(letters)
            at += at < len(line)
            if name in (b"SH", b"SS"):
                end_line(out, 2)
                man_words(out, line[at:], True)
                end_line(out, 1)
            elif name in BREAKS:
                end_line(out, 2)
            elif name in FONTS and at < len(line):
                man_words(out, line[at:], True)
                out += b"\n"
    return bytes(out)


def info_line(out, line):
    """Appends a line of an info file to the bytearray `out`, in which "*note Title: Node." and "*note Title::" become "see Title"."""
    i = 0
    while i < len(line):
        if line[i:i + 5] not in (b"*note", b"*Note"):
            out += line[i:i + 1]
            i += 1
            continue
        out += b"See" if line[i + 1:i + 2] == b"N" else b"see"
        i += 5
        while i < len(line) and line[i:i + 1] != b":":
            out += line[i:i + 1]
            i += 1
        if line[i + 1:i + 2] == b":":
            i += 1
        else:
            while i + 1 < len(line) and line[i + 1:i + 2] not in (b",", b"."):
                i += 1
        i += 1


def info(text):
    """The plain text of an info file, without menus and tables of tags, bytes to bytes."""
    out, menu, lines = bytearray(), False, iter(lines_of(text))
    for line in lines:
        if line[:1] == b"\x1f":  # a node: its header line follows; the tag tables at the end are no text
            if next(lines, line).startswith((b"Tag Table:", b"Indirect:", b"Local Variables:", b"End Tag Table")):
                break
            end_line(out, 2)
            menu = False
        elif line.startswith(b"* Menu:"):
            menu = True
        elif menu and (not line or line[:1] in (b"*", b" ")):
            continue
        else:
            menu = False
            info_line(out, line)
            out += b"\n"
    return bytes(out)


def reader(name, text):
    """The function that turns a file into text (html, man or info), chosen by the file's name without .gz and by its first bytes. None if the file is none of
    the three kinds."""
    base, head = os.path.basename(name), text[:4096]
    if base.lower().endswith((".html", ".htm", ".xhtml")):
        return html
    if ".info" in base or b"\x1f\nFile: " in head:
        return info
    if base.lower().endswith(".rst"):
        return None
    if re.search(r"\.[1-9][^.]{0,7}$", base) and (b"\n.TH " in head or b"\n.SH " in head or text.startswith(b".TH ")):
        return man
    return html if b"<!DOCTYPE html" in head or b"<html" in head else None


def convert(path, to):
    """Writes a file as plain text to the path `to`, or copies it if it is of none of the three kinds."""
    with open(path, "rb") as f:
        data = f.read()
    packed = data[:2] == b"\x1f\x8b"
    try:
        text = gzip.decompress(data) if packed else data
        read = None if b"\0" in text else reader(path[:-3] if packed and path.endswith(".gz") else path, text)
    except (OSError, EOFError, ValueError, zlib.error):  # ckvc says what is the matter with it
        read = None
    if read is None:
        shutil.copyfile(path, to)
        return
    text = read(text)
    with open(to, "wb") as f:
        f.write(gzip.compress(text, mtime=0) if packed else text)


def convert_all(path, to):
    """Converts a file, or a folder with all files below it except links."""
    if not os.path.isdir(path):
        convert(path, to)
        return
    for folder, _, names in os.walk(path):
        there = os.path.join(to, os.path.relpath(folder, path))
        os.makedirs(there, exist_ok=True)
        for name in names:
            if not os.path.islink(f"{folder}/{name}") and os.path.isfile(f"{folder}/{name}"):
                convert(f"{folder}/{name}", f"{there}/{name}")


if __name__ == "__main__":
    if len(sys.argv) != 3 or sys.argv[1].startswith("-"):
        sys.exit(__doc__)
    if os.path.exists(sys.argv[2]):
        sys.exit(f"plain_text.py: {sys.argv[2]} is there already")
    try:
        convert_all(sys.argv[1], sys.argv[2])
    except OSError as problem:
        sys.exit(f"plain_text.py: {problem}")
