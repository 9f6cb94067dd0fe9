#!/usr/bin/env python3
"""Draws what policies lose: scripts/losses_svg.py [--bytes] REPORT.json >PICTURE.svg

The picture is the first figure of a report's page (scores.losses of its report.json). With --bytes it is what is lost against the bytes
that are kept (scores.bytes), on two logarithmic axes. Colours need no page around the picture. docs/losses.svg is one with --bytes."""
import json
import math
import sys
from xml.sax.saxutils import escape

OWN = ["#0072b2", "#7a52c7", "#00828f", "#c2478f", "#7d5a3c", "#737a00"]  # colours of tables
INK, PALE, GREY, RULE = "#1b1f24", "#59626d", "#6b7280", "#e4e7eb"
out = []


def text(at, y, words, size=11, anchor="start", more=""):
    out.append(f'<text x="{at:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}"{more}>{escape(words)}</text>')


def line(x1, y1, x2, y2, colour, width=1, more=""):
    out.append(f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{colour}" stroke-width="{width}"{more}/>')


def dot(at, y, colour):
    out.append(f'<circle cx="{at:.1f}" cy="{y:.1f}" r="4" fill="{colour}"/>')


def number(value, digits):
    return f"{value:.{digits}f}".replace("-", "\u2212")


def by_policy(report):
    """Each policy's extra loss, in a line of its own. Returns the title, the width and the height."""
    title = "What is lost over the full cache, and what is kept"
    rows = [r for r in report["scores"]["losses"] if r["loss"] is not None]
    colours = dict(zip([t["tag"] for t in report["tables"]], OWN))
    width, left, right, top, row, head = 440, 155, 345, 52, 19, 24
    values = [v for r in rows for v in (r["loss"], r["lo"], r["hi"], 0) if v is not None]
    pad = (max(values) - min(values)) * 0.04 or 1
    low, high = min(values) - pad, max(values) + pad
    raw = (high - low) / 4
    step = next(k * 10 ** math.floor(math.log10(raw)) for k in (1, 2, 5, 10) if k * 10 ** math.floor(math.log10(raw)) >= raw)
    headed = [i == 0 or rows[i - 1]["setting"] != r["setting"] for i, r in enumerate(rows)]
    bottom = top + row * len(rows) + head * sum(headed)

    def x(value):
        return left + (value - low) / (high - low) * (right - left)

    text(6, 17, title, 13.5, more=' font-weight="600"')
    for k in range(math.ceil(low / step), math.floor(high / step) + 1):
        line(x(k * step), top, x(k * step), bottom, RULE)
        text(x(k * step), bottom + 13, number(k * step, 1), 10, "middle", f' fill="{PALE}"')
    line(x(0), top, x(0), bottom, INK, more=' stroke-dasharray="4 3"')
    text(x(0), top - 4, "full cache", 10, "middle", f' fill="{PALE}"')
    text(width - 6, top - 4, "loss \u00b7 entries", 10, "end", f' fill="{PALE}"')
    text((left + right) / 2, bottom + 28, "loss over the full cache, nats per token", 10.5, "middle")
    y = top
    for r, new in zip(rows, headed):
        if new:
            text(6, y + 17, r["setting"], more=' font-weight="600"')
            y += head
        middle, colour = y + row / 2, colours.get(r["table"], GREY)
        if r["lo"] is not None and r["hi"] is not None:
            line(x(r["lo"]), middle, x(r["hi"]), middle, colour, 2)
            for end in (r["lo"], r["hi"]):
                line(x(end), middle - 3.5, x(end), middle + 3.5, colour, 2)
        dot(x(r["loss"]), middle, colour)
        text(6, y + 13, r["label"])
        text(width - 6, y + 13, f"{number(r['loss'], 3)} \u00b7 {number(r['kept'], 1)}", 10, "end")
        y += row
    return title, width, bottom + 36


def by_bytes(report):
    """Each policy's KL by the bytes that it keeps, as a line of what is not beaten by the same policy at as few bytes. Returns as by_policy."""
    title = "What is lost, against the bytes that are kept"
    found = [r for r in report["scores"]["bytes"] if r["kl"]]
    rows = [r for r in found if not any(o["label"] == r["label"] and o["share"] <= r["share"] and o["kl"] < r["kl"] for o in found)]
    colours = dict(zip([t["tag"] for t in report["tables"]], OWN))
    names = {t["tag"]: "ckvc" for t in report["tables"]} if len(report["tables"]) == 1 else {}
    width, left, right, top, bottom = 440, 44, 352, 36, 300
    least, most = math.log(min(r["share"] for r in rows) / 1.15), math.log(1)
    low, high = (f(math.log(r["kl"]) for r in rows) + d for f, d in ((min, -0.25), (max, 0.25)))

    def x(share):
        return left + (math.log(share) - least) / (most - least) * (right - left)

    def y(kl):
        return bottom - (math.log(kl) - low) / (high - low) * (bottom - top)

    text(6, 17, title, 13.5, more=' font-weight="600"')
    for share in (0.025, 0.05, 0.1, 0.25, 0.5, 1):
        if least <= math.log(share):
            line(x(share), top, x(share), bottom, RULE)
            text(x(share), bottom + 13, f"{100 * share:g}%", 10, "middle", f' fill="{PALE}"')
    for kl in (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3):
        if low <= math.log(kl) <= high:
            line(left, y(kl), right, y(kl), RULE)
            text(left - 4, y(kl) + 3.5, f"{kl:g}", 10, "end", f' fill="{PALE}"')
    text((left + right) / 2, bottom + 28, "bytes kept, of the whole cache in 16 bits", 10.5, "middle")
    text(left, top - 6, "KL from the whole cache, nats per token", 10.5)
    lines = [sorted((r for r in rows if r["label"] == label), key=lambda r: r["share"]) for label in dict.fromkeys(r["label"] for r in rows)]
    last = -math.inf
    halo = ' paint-order="stroke" stroke="#fff" stroke-width="3"'
    labels, dots = [], []  # above all lines
    for own in sorted(lines, key=lambda own: y(own[-1]["kl"])):
        whole, table = own[0]["label"] == "the whole cache", own[0]["table"]
        colour, wide = colours.get(table, "#b45309" if whole else GREY), 2.5 if table else 1.5
        for a, b in zip(own, own[1:]):
            line(x(a["share"]), y(a["kl"]), x(b["share"]), y(b["kl"]), colour, wide, ' stroke-dasharray="4 3"' if whole else "")
        for r in own:
            dots.append((x(r["share"]), y(r["kl"]), colour))
            words, at = ("the whole cache, " if r is own[0] else "") + r["formats"], y(r["kl"]) + (11 if r is own[-1] else -4)
            if r is own[-1] and not whole and not table:
                words, at = r["label"], max(last + 12, y(r["kl"]) + 4)  # so that labels do not lie on each other
                last = at
            if r is own[0] and table:  # the other end lies among the labels of the whole cache
                words = names.get(table, r["label"])
            if whole or r is (own[0] if table else own[-1]):
                labels.append((x(r["share"]) + 8, at, words, 10 if whole else 11, "start", f'{halo} fill="{colour}"' + (' font-weight="600"' if table else "")))
    for label in labels:
        text(*label)
    for where in dots:
        dot(*where)
    return title, width, bottom + 36


title, width, height = (by_bytes if sys.argv[1] == "--bytes" else by_policy)(json.load(open(sys.argv[-1])))
print(f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" font-family="Helvetica Neue, Arial, Liberation Sans, DejaVu Sans, sans-serif" fill="{INK}">')
print(f"<title>{title}</title>")
print('<rect width="100%" height="100%" fill="#fff"/>')
print("\n".join(out) + "\n</svg>")
