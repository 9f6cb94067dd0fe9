"""JSON by the C program's rules: what it takes for an object, and the one text of a value that it hashes."""
from __future__ import annotations

import hashlib
import json
import math
import re
from typing import Any, Dict

from .files import refuse


def json_object(raw: bytes) -> Dict[str, Any]:
    """The JSON object that these bytes hold. They must be UTF-8 without NUL, no key may be there twice, numbers must be finite, and integers must fit 64 bits;
    otherwise this raises ValueError, or RecursionError where lists are nested too deeply."""
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
    """The JSON text of a value as ckvc hashes it: keys are sorted by their bytes, there are no spaces, and a float is written as printf's %.17g does."""
    if isinstance(value, dict):
        return "{" + ",".join(f"{canonical(k)}:{canonical(value[k])}" for k in sorted(value, key=str.encode)) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ",".join(map(canonical, value)) + "]"
    if isinstance(value, str):
        return '"' + re.sub(r'["\\]|[\0-\x1f]', lambda m: "\\" + m[0] if m[0] in '"\\' else f"\\u{ord(m[0]):04x}", value) + '"'
    return "%.17g" % value if isinstance(value, float) else json.dumps(value)


def sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
