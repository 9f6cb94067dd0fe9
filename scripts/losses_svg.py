#!/usr/bin/env python3
"""Draws what every policy loses and what it keeps: scripts/losses_svg.py REPORT.json >PICTURE.svg

The picture is the first figure of a report's page (scores.losses of its report.json), in colours that need no page around it.
docs/losses.svg is one."""
import json
import math
import sys
from xml.sax.saxutils import escape

report = json.load(open(sys.argv[1]))
rows = [r for r in report["scores"]["losses"] if r["loss"] is not None]
colours = dict(zip([t["tag"] for t in report["tables"]], ["#0072b2", "#7a52c7", "#00828f", "#c2478f", "#7d5a3c", "#737a00"]))
WIDTH, LEFT, RIGHT, TOP, ROW, HEAD = 440, 155, 345, 52, 19, 24
values = [v for r in rows for v in (r["loss"], r["lo"], r["hi"], 0) if v is not None]
pad = (max(values) - min(values)) * 0.04 or 1
low, high = min(values) - pad, max(values) + pad
raw = (high - low) / 4
step = next(k * 10 ** math.floor(math.log10(raw)) for k in (1, 2, 5, 10) if k * 10 ** math.floor(math.log10(raw)) >= raw)
headed = [i == 0 or rows[i - 1]["setting"] != r["setting"] for i, r in enumerate(rows)]
bottom = TOP + ROW * len(rows) + HEAD * sum(headed)
out = []


def x(value):
    return LEFT + (value - low) / (high - low) * (RIGHT - LEFT)


def text(at, y, words, size=11, anchor="start", more=""):
    out.append(f'<text x="{at:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}"{more}>{escape(words)}</text>')


def line(x1, y1, x2, y2, colour, width=1, more=""):
    out.append(f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{colour}" stroke-width="{width}"{more}/>')


def number(value, digits):
    return f"{value:.{digits}f}".replace("-", "\u2212")


text(6, 17, "What is lost over the full cache, and what is kept", 13.5, more=' font-weight="600"')
for k in range(math.ceil(low / step), math.floor(high / step) + 1):
    line(x(k * step), TOP, x(k * step), bottom, "#e4e7eb")
    text(x(k * step), bottom + 13, number(k * step, 1), 10, "middle", ' fill="#59626d"')
line(x(0), TOP, x(0), bottom, "#1b1f24", more=' stroke-dasharray="4 3"')
text(x(0), TOP - 4, "full cache", 10, "middle", ' fill="#59626d"')
text(WIDTH - 6, TOP - 4, "loss · entries", 10, "end", ' fill="#59626d"')
text((LEFT + RIGHT) / 2, bottom + 28, "loss over the full cache, nats per token", 10.5, "middle")
y = TOP
for r, new in zip(rows, headed):
    if new:
        text(6, y + 17, r["setting"], more=' font-weight="600"')
        y += HEAD
    middle, colour = y + ROW / 2, colours.get(r["table"], "#6b7280")
    if r["lo"] is not None and r["hi"] is not None:
        line(x(r["lo"]), middle, x(r["hi"]), middle, colour, 2)
        for end in (r["lo"], r["hi"]):
            line(x(end), middle - 3.5, x(end), middle + 3.5, colour, 2)
    out.append(f'<circle cx="{x(r["loss"]):.1f}" cy="{middle:.1f}" r="4" fill="{colour}"/>')
    text(6, y + 13, r["label"])
    text(WIDTH - 6, y + 13, f"{number(r['loss'], 3)} · {number(r['kept'], 1)}", 10, "end")
    y += ROW
print(f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {bottom + 36}" role="img" font-family="Helvetica Neue, Arial, Liberation Sans, DejaVu Sans, sans-serif" fill="#1b1f24">')
print("<title>What is lost over the full cache, and what is kept</title>")
print('<rect width="100%" height="100%" fill="#fff"/>')
print("\n".join(out) + "\n</svg>")
