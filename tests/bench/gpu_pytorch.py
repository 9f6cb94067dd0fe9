#!/usr/bin/env python3
"""A Llama's prefill and decoding in PyTorch with fused attention (SDPA), random weights: what tests/bench/gpu.sh sets beside `ckvc-bench`.

usage: gpu_pytorch.py LAYERS HEADS KV_HEADS HEAD_DIM WIDTH MLP VOCAB TOKENS [DEVICE]   CSV rows: program,stage,shape,unit,seconds,rate,note

`matmul` is the largest product of a layer, for the device's measured peak. The same work: prefill runs all layers and the head for 64 rows; a step of decoding is one token of each sequence over the full cache. No
framework around it, so no overhead of one but PyTorch's own launches.
"""
import statistics
import sys
import time

import torch
import torch.nn.functional as F

layers, H, G, D, width, mlp, vocab, T = map(int, sys.argv[1:9])
device = sys.argv[9] if len(sys.argv) > 9 else "cuda"
dtype = torch.bfloat16


def weight(rows, cols):
    return torch.randn(rows, cols, device=device, dtype=dtype) * 0.02


W = [{"qkv": weight((H + 2 * G) * D, width), "o": weight(width, H * D), "gate_up": weight(2 * mlp, width), "down": weight(width, mlp)} for _ in range(layers)]
head, one = weight(vocab, width), torch.ones(width, device=device, dtype=dtype)


def rope(x, cos, sin):
    a, b = x.chunk(2, -1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), -1)


def forward(x, caches, at):
    """x [batch][rows][width] at positions `at` on; caches: k, v [batch][G][capacity][D] of each layer, written in place"""
    batch, n = x.shape[:2]
    angle = torch.arange(at, at + n, device=device)[:, None] * 500000.0 ** (-torch.arange(0, D, 2, device=device) / D)
    cos, sin = angle.cos().to(dtype), angle.sin().to(dtype)
    for w, (k, v) in zip(W, caches):
        q, new_k, new_v = F.linear(F.rms_norm(x, (width,), one), w["qkv"]).view(batch, n, H + 2 * G, D).transpose(1, 2).split((H, G, G), 1)
        k[:, :, at:at + n], v[:, :, at:at + n] = rope(new_k, cos, sin), new_v
        out = F.scaled_dot_product_attention(rope(q, cos, sin), k[:, :, :at + n], v[:, :, :at + n], is_causal=n > 1, enable_gqa=H != G)
        x = x + F.linear(out.transpose(1, 2).reshape(batch, n, H * D), w["o"])
        gate, up = F.linear(F.rms_norm(x, (width,), one), w["gate_up"]).chunk(2, -1)
        x = x + F.linear(F.silu(gate) * up, w["down"])
    return F.linear(x[:, -64:], head)


def seconds(work, runs):
    times = []
    for i in range(runs + 1):
        if device == "cuda":
            torch.cuda.synchronize()
        start = time.perf_counter()
        work()
        if device == "cuda":
            torch.cuda.synchronize()
        times.append(time.perf_counter() - start)
    return statistics.median(times[1:])


def row(stage, shape, unit, s, units):
    print(f"pytorch,{stage},{shape},{unit},{s:.6g},{units / s:.6g},torch {torch.__version__} SDPA {dtype}", flush=True)


with torch.inference_mode():
    x = weight(T, width)
    row("matmul", f"{T}x{2 * mlp}x{width}", "flop", seconds(lambda: F.linear(x, W[0]["gate_up"]), 20), 4.0 * T * mlp * width)
    for batch in (1, 16):
        caches = [[torch.zeros(batch, G, T + 8, D, device=device, dtype=dtype) for _ in range(2)] for _ in range(layers)]
        if batch == 1:
            x = weight(T, width)[None]
            row("prefill", f"T={T}", "tokens", seconds(lambda: forward(x, caches, 0), 3), T)
        one_row = weight(batch, width)[:, None]
        row("generate", f"batch={batch} T={T} full", "tokens", seconds(lambda: forward(one_row, caches, T), 16), batch)
