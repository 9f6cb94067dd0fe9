#!/usr/bin/env python3
"""Writes expected.json: rows of numbers as caches hold them, by the packages gguf (llama.cpp's reference of q8_0 and q4_0) and torch
(float16, bfloat16 and float8_e4m3fn), and rotated by Hadamard matrices in float64.

    python make.py          # with numpy, gguf and torch
"""
import json
import os

import gguf
import numpy
import torch

random = numpy.random.default_rng(56)
near = numpy.array([1, 1.0625, 1.1875, 240, 447, 448, 456, 463.99, 464, 464.01, 479, 480, 1e4, 65504, 65519, 65520, 7e4, 2**-6, 2**-7,
                    2**-9, 2**-10, 2**-11, 3 * 2**-10, 2**-14, 2**-24, 2**-25, 3 * 2**-25, 1e-30, 0], dtype=numpy.float32)
spread = random.standard_normal(256) * 2.0**random.integers(-20, 16, 256)
single = numpy.concatenate([near, -near, spread, [numpy.inf, -numpy.inf, numpy.nan]]).astype(numpy.float32)

rows = [random.standard_normal(64) * 2.0**e for e in range(-16, 12)]
rows += [numpy.where(random.integers(0, 8, 64) == 0, 40, 1) * random.standard_normal(64) for _ in range(8)]  # a few far outside
rows.append(numpy.zeros(64))
rows.append(numpy.arange(64) - 31.5)
rows.append(numpy.concatenate([numpy.arange(-16, 16) * 0.5, numpy.tile([1, -1, 0.5, 0.25], 8)]))  # ties
rows.append(numpy.tile([127, -127, 0.5, 1.5, 2.5, -0.5, -1.5, 63.5], 8))
blocks = numpy.array(rows, dtype=numpy.float32)


def bits(x):
    return [int(b) for b in numpy.ascontiguousarray(x, dtype=numpy.float32).reshape(-1).view(numpy.uint32)]


def by_torch(x, dtype, whole):
    held = torch.from_numpy(x).to(dtype)
    return {"from": bits(x), "held": held.view(whole).numpy().tobytes().hex(), "read": bits(held.to(torch.float32).numpy())}


def by_gguf(x, kind):
    held = gguf.quants.quantize(x, kind)
    return {"from": bits(x), "held": held.tobytes().hex(), "read": bits(gguf.quants.dequantize(held, kind))}


def hadamard(n):
    m = numpy.ones((1, 1))
    while len(m) < n:
        m = numpy.block([[m, m], [m, -m]])
    return m / numpy.sqrt(n)


def rotated(size, rotation):
    x = random.standard_normal((2, size)).astype(numpy.float32)
    return {"rotation": rotation, "from": bits(x), "to": (x.astype(float).reshape(-1, rotation) @ hadamard(rotation)).reshape(-1).tolist()}


expected = {
    "formats": {
        "f16": by_torch(single, torch.float16, torch.uint8),
        "bf16": by_torch(single, torch.bfloat16, torch.uint8),
        "fp8": by_torch(single, torch.float8_e4m3fn, torch.uint8),
        "q8_0": by_gguf(blocks, gguf.GGMLQuantizationType.Q8_0),
        "q4_0": by_gguf(blocks, gguf.GGMLQuantizationType.Q4_0),
    },
    "rotations": [rotated(64, 64), rotated(192, 64), rotated(128, 128), rotated(256, 256)],
}
with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "expected.json"), "w", encoding="utf-8") as out:
    json.dump(expected, out, separators=(",", ":"))
    out.write("\n")
