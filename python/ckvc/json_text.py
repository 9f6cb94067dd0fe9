"""JSON as the C program reads and hashes it."""
from __future__ import annotations

import hashlib
import json
import math
import re
from typing import Any, Dict

from .files import refuse


def json_object(raw: bytes) -> Dict[str, Any]:
    """A JSON object; ValueError or RecursionError: it must be UTF-8 without NUL, with no key twice, finite numbers, integers of 64 bits."""
    def must(value, good, problem):
        refuse(not good, problem)
        return value

    def finite(text):
        return must(float(text), math.isfinite(float(text)), "a number is not finite")

    out = json.loads(raw.decode(), object_pairs_hook=lambda pairs: must(dict(pairs), len(dict(pairs)) == len(pairs), "a key is there twice"),
                     parse_int=lambda text: must(int(text), -(2**63) <= int(text) < 2**63, "a number is beyond 64 bits"), parse_float=finite,
                     parse_constant=finite)
    text = json.dumps(must(out, isinstance(out, dict), "not a JSON object"), ensure_ascii=False)
    return must(out, text.encode() and "\\u0000" not in text.replace("\\\\", ""), "a NUL in a text")


def canonical(value: Any) -> str:
    """The JSON text that ckvc hashes: keys sorted, no spaces, numbers as printf's %.17g."""
    if isinstance(value, dict):
        return "{" + ",".join(f"{canonical(k)}:{canonical(value[k])}" for k in sorted(value, key=str.encode)) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ",".join(map(canonical, value)) + "]"
    if isinstance(value, str):
        return '"' + re.sub(r'["\\]|[\0-\x1f]', lambda m: "\\" + m[0] if m[0] in '"\\' else f"\\u{ord(m[0]):04x}", value) + '"'
    return "%.17g" % value if isinstance(value, float) else json.dumps(value)


def sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
