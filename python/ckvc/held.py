"""Packs keys and values into the cache formats of lib/base/cache_format.h, and unpacks them, in torch. Finite numbers get the C program's bits, but
those of keys less their mean only nearly: angles are taken in float32 here.

Shapes: [..., D] numbers, D head_dim. Blocks of q8_0 and q4_0 have 32 numbers and a scale."""
from __future__ import annotations

import functools
from typing import NamedTuple, Optional, Tuple

import torch

from .files import refuse
from .table import FORMATS, format_names, row_bytes

BLOCK, ROTATED = 32, 64  # numbers that share a scale; heads whose size is a multiple of this can be rotated
TYPES = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16, "fp8": torch.float8_e4m3fn}
FP8_MAX = 448.0
ROUNDING_RIDGE = 0.03  # KEY_ROUNDING_RIDGE of lib/policy/rounded_keys.h


class Packed(NamedTuple):
    """Numbers [..., D] as they are held."""
    numbers: torch.Tensor  # [..., D] of a type, [..., D / 32, 32] int8 for q8_0, or [..., D / 32, 16] uint8 for q4_0
    scales: Optional[torch.Tensor]  # [..., D / 32, 1] float16, for q8_0 and q4_0


class Format(NamedTuple):
    """How keys, or values, are held. name: one of FORMATS without "+mean" and "+rot". rotation: how many numbers are rotated together (Hadamard) before
    they are rounded; 1: none are. mean: whether the head's mean key is taken out of each key first. pack, unpack and round then get it as `mean`, rotated to
    each key's position (hf.py computes it); else None."""
    name: str
    rotation: int
    mean: bool = False

    def pack(self, x: torch.Tensor, mean: Optional[torch.Tensor] = None) -> Packed:
        """x [..., D], of any floating type, as it is held in this format."""
        x = rotated(x.float() if mean is None else x.float() - mean, self.rotation)
        if self.name in TYPES:
            return Packed((x.clamp(-FP8_MAX, FP8_MAX) if self.name == "fp8" else x).to(TYPES[self.name]), None)
        blocks = x.unflatten(-1, (-1, BLOCK))
        largest = blocks.gather(-1, blocks.abs().argmax(dim=-1, keepdim=True))
        scales = largest.abs() / 127 if self.name == "q8_0" else largest / -8
        scaled = blocks * torch.where(scales == 0, 0.0, 1 / scales)
        if self.name == "q8_0":
            whole = scaled.abs().floor()  # rounds to nearest, and a half away from 0
            return Packed((scaled.sign() * (whole + (2 * (scaled.abs() - whole)).floor())).to(torch.int8), scales.half())
        low, high = (scaled + 8.5).clamp(0, 15).to(torch.uint8).chunk(2, dim=-1)
        return Packed(low | high << 4, scales.half())

    def unpack(self, held: Packed, dtype: torch.dtype, mean: Optional[torch.Tensor] = None) -> torch.Tensor:
        """The numbers [..., D] that are held: rotated back, with the mean added, and in dtype."""
        numbers = rotated(self.numbers(held), self.rotation)
        return within(numbers if mean is None else numbers + mean, dtype)

    def numbers(self, held: Packed) -> torch.Tensor:
        """The numbers [..., D] float32 that are held: still rotated, and without the mean. A query that `rotated_by_matrix` has rotated has with them the
        products that the query itself has with the numbers rotated back."""
        x = held.numbers
        if self.name == "q4_0":
            x = torch.cat([x & 15, x >> 4], dim=-1).view(torch.int8).sub_(8)
        return x.float() if held.scales is None else (x * held.scales.float()).flatten(-2)

    def round(self, x: torch.Tensor, mean: Optional[torch.Tensor] = None) -> torch.Tensor:
        """x as it is read when it has been held."""
        return self.unpack(self.pack(x, mean), x.dtype, mean)

    def round_by(self, x: torch.Tensor, queries: torch.Tensor, mean: Optional[torch.Tensor] = None) -> torch.Tensor:
        """Keys x [G, S, D] as they are read, where q4_0 rounds a key's numbers one after another, so that its products with queries [G, n, D] float64
        change little. Other formats, and q4_0 with fewer than 2 D queries, round as `round` does. The formula is that of lib/policy/rounded_keys.c."""
        if self.name != "q4_0" or queries.shape[1] < 2 * queries.shape[2]:
            return self.round(x, mean)
        gram = queries.mT @ queries
        less = x.float() if mean is None else x.float() - mean
        near = rotated(_near(rotated(less, self.rotation), rotated(rotated(gram, self.rotation).mT, self.rotation)), self.rotation)
        return self.round((near if mean is None else near + mean).to(x.dtype), mean)

    def size(self, head_dim: int) -> int:
        """How many bytes head_dim numbers take in this format. A head's mean key, which is held once, is not counted."""
        return row_bytes(self.name, head_dim)


def _near(x: torch.Tensor, gram: torch.Tensor) -> torch.Tensor:
    """Rounds x [G, S, D] to numbers that q4_0 holds without rounding them again, one of D after another: what each leaves is made up for by those to come."""
    diagonal = gram.diagonal(dim1=1, dim2=2).mean(dim=1)[:, None, None]
    inverse, _ = torch.linalg.inv_ex(gram + ROUNDING_RIDGE * diagonal * torch.eye(gram.shape[1], dtype=gram.dtype, device=gram.device))
    upper = torch.linalg.cholesky_ex((inverse + inverse.mT) / 2, upper=True).L
    change = upper / upper.diagonal(dim1=1, dim2=2)[..., None]
    sound = change.isfinite().all(dim=2).all(dim=1)[:, None, None]
    blocks = x.unflatten(-1, (-1, BLOCK))
    largest = blocks.abs().argmax(dim=-1, keepdim=True)
    scales = (blocks.gather(-1, largest) / -8).half().double()  # [G, S, D / 32, 1]
    left = x.double()
    for j in range(x.shape[2]):
        scale = scales[:, :, j // BLOCK, 0]
        step = torch.where(scale == 0, 0.0, (left[..., j] / scale + 8.5).floor().clamp(0, 15) - 8)
        step = torch.where(largest[:, :, j // BLOCK, 0] == j % BLOCK, -8.0, step)  # a cache that is written finds the scale by this number
        error, left[..., j] = left[..., j] - step * scale, step * scale
        left[..., j + 1 :] -= error[..., None] * change[:, None, j, j + 1 :]
    return torch.where(sound, left.float(), x)


def entry_bytes(formats: Tuple[Format, Format], head_dim: int) -> int:
    """The bytes of an entry: a key and a value of head_dim numbers each, and 4 bytes for its position where the formats take the mean out of keys, because the
    mean is rotated to that position when the key is read."""
    return sum(form.size(head_dim) + 4 * form.mean for form in formats)


def formats_of(text: str, head_dim: int) -> Tuple[Format, Format]:
    """The formats of keys and of values that text names. An Error lists the formats, or says that heads of this size do not fit."""
    names = format_names(text)
    refuse(len(names) != 2 or any(n not in FORMATS for n in names), f"formats {text!r}: want one of {', '.join(FORMATS)}, or two of them with / between, of keys and of values")
    out = []
    for name, of_keys in zip(names, (True, False)):
        plain, *more = name.split("+")
        rotates, mean = "rot" in more, "mean" in more
        refuse(mean and not of_keys, f"formats {text!r}: {name} is a format of keys, whose mean is taken out; leave out +mean")
        refuse(plain not in TYPES and head_dim % BLOCK, f"formats {text!r}: heads of {head_dim} numbers do not go into blocks of {BLOCK}: want one of {', '.join(TYPES)}")
        refuse(rotates and head_dim % ROTATED, f"formats {text!r}: heads of {head_dim} numbers are not rotated, but those of a multiple of {ROTATED}: leave out +rot")
        out.append(Format(plain, 1 if not rotates else head_dim & -head_dim if of_keys else ROTATED, mean))
    return out[0], out[1]


def within(x: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """x in dtype. Numbers beyond its range become the largest that it holds, with their sign: rounding and rotating may exceed float16."""
    most = torch.finfo(dtype).max
    return x.to(dtype) if most >= torch.finfo(x.dtype).max else x.clamp(-most, most).to(dtype)


def rotated_by_matrix(x: torch.Tensor, size: int) -> torch.Tensor:
    """What `rotated` gives, in float32, or x itself if size is 1. It is one product with the matrix, which takes less time where there are few rows, and whose
    last bits may differ."""
    return x if size == 1 else (x.float().unflatten(-1, (-1, size)) @ _hadamard(size, x.device)).flatten(-2)


@functools.lru_cache(maxsize=None)
def _hadamard(size: int, device: torch.device) -> torch.Tensor:
    """The orthonormal Hadamard matrix [size, size] of `rotated`, float32."""
    with torch.inference_mode(False):  # a tensor of inference mode could not be used outside it
        return rotated(torch.eye(size, dtype=torch.float32, device=device), size)


def rotated(x: torch.Tensor, size: int) -> torch.Tensor:
    """x with each `size` numbers multiplied by the orthonormal Hadamard matrix (Sylvester's), which is its own inverse. Sums are made in the C program's
    order."""
    if size == 1:
        return x
    shape, step, x = x.shape, 1, x.detach()
    while step < size:
        x = x.reshape(-1, 2, step)
        out = torch.empty_like(x)
        torch.add(x[:, 0], x[:, 1], out=out[:, 0])
        torch.sub(x[:, 0], x[:, 1], out=out[:, 1])
        x, step = out, 2 * step
    return x.mul_(size**-0.5).reshape(shape)
