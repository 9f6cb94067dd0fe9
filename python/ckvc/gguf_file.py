"""Reads the metadata of a GGUF file, with no library of llama.cpp, and counts every length against the file before it is followed."""
from __future__ import annotations

import os
from typing import Any, Dict, Optional, Tuple

import numpy as np

from .files import Error, FilePath, refuse
from .table import Array

# numpy's types by GGUF's number; 8 is text, 9 is an array.
GGUF_TYPES = dict(zip(range(13), ("u1", "i1", "<u2", "<i2", "<u4", "<i4", "<f4", "u1", "", "", "<u8", "<i8", "<f8")))


class Bytes:
    """A cursor over bytes that come from outside. Reading beyond their end is an Error that gives the place. name stands for the bytes in messages."""

    def __init__(self, name: str, data: Array, at: int = 0):
        self.name, self.data, self.at = name, data, at

    def array(self, dtype: Any, n: int, what: str) -> Array:
        """The next n values of a type, [n], as a view of the bytes. what: names them in the Error that says that they are cut off."""
        size = np.dtype(dtype).itemsize * n
        if size > len(self.data) - self.at:
            raise Error(f"{self.name}: byte {self.at}: {what} of {size} bytes, {len(self.data) - self.at} are left: it was cut off; save it again")
        self.at += size
        return self.data[self.at - size : self.at].view(dtype)

    def skip_texts(self, n: int) -> None:
        """Goes over n texts, each of which is its length in 8 bytes and then its bytes."""
        data, at = memoryview(self.data), self.at  # type: ignore[arg-type]
        for _ in range(n):
            at += 8 + int.from_bytes(data[at : at + 8], "little")
            if at > len(data):
                raise Error(f"{self.name}: byte {self.at}: {n} texts, which end behind the file: it was cut off")
        self.at = at

    def one(self, dtype: Any, what: str) -> Any:
        """The next value of a type, as a Python number."""
        return self.array(dtype, 1, what)[0].item()


def read_gguf(path: FilePath) -> Tuple[Dict[str, Any], Optional[Array]]:
    """The file's metadata by key, where arrays are None, and the divisors of the rotary frequencies (tensor rope_freqs.weight, [D / 2]), or None if it has
    none. An Error says that the file is cut off, or no GGUF file of version 2 or 3."""
    name = os.fspath(path)
    b = Bytes(name, np.memmap(name, np.uint8, "r") if os.path.getsize(name) else np.zeros(0, np.uint8))
    magic, version = b.one("<u4", "magic"), b.one("<u4", "version")
    refuse(magic != 0x46554747 or version not in (2, 3), f"{name}: magic 0x{magic:08x}, version {version}: want a GGUF file of version 2 or 3")
    n_tensors, n_keys = b.one("<u8", "counts"), b.one("<u8", "counts")

    def text() -> str:
        return b.array("u1", b.one("<u8", "length"), "text").tobytes().decode(errors="replace")

    def value(kind: int) -> Any:
        if kind == 8:
            return text()
        if kind == 9:
            inner, n = b.one("<u4", "type"), b.one("<u8", "length")
            if inner == 8:
                b.skip_texts(n)
            else:
                b.array(GGUF_TYPES.get(inner) or "u1", n, "array")
            return None
        refuse(not GGUF_TYPES.get(kind), f"{name}: byte {b.at}: a value of the unknown type {kind}")
        return b.one(GGUF_TYPES[kind], "value")

    meta = {text(): value(b.one("<u4", "type")) for _ in range(n_keys)}
    factors = None
    for _ in range(n_tensors):
        tensor, dims = text(), b.array("<u8", b.one("<u4", "rank"), "shape")
        kind, offset = b.one("<u4", "type"), b.one("<u8", "offset")
        if tensor == "rope_freqs.weight":
            refuse(kind != 0 or len(dims) != 1, f"{name}: tensor {tensor} has the type {kind} and {len(dims)} dimensions, want F32 and one")
            factors = (offset, int(dims[0]))
    if factors:
        unit = meta.get("general.alignment", 32)
        refuse(not isinstance(unit, int) or unit <= 0, f"{name}: key general.alignment is {unit}, want a number above 0")
        return meta, Bytes(name, b.data, -(-b.at // unit) * unit + factors[0]).array("<f4", factors[1], "rope_freqs.weight")
    return meta, None
