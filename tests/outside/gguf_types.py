#!/usr/bin/env python3
"""Files of gguf-py's own writer: for every quantised type the losses from the blocks equal, bit for bit, those from the float32 values
that gguf-py de-quantises them to; and random llama and qwen2 models equal what transformers' GGUF loader makes of the same file."""
import pathlib
import tempfile

import outside

np, gguf, *_ = outside.modules("numpy", "gguf", "torch", "transformers")
a = outside.arguments(smollm2=False)
rng = np.random.default_rng(1)
L, H, G, D, M, F, V = 2, 8, 4, 32, 256, 512, 320
ids = rng.integers(0, V, 100).tolist()
T = gguf.GGMLQuantizationType


def tensors(arch, biases):
    def x(*shape, scale=0.08):
        return (rng.standard_normal(shape) * scale).astype(np.float32)
    t = {"token_embd.weight": x(V, M, scale=0.5), "output.weight": x(V, M), "output_norm.weight": 1 + x(M)}
    for l in range(L):
        t |= {f"blk.{l}.{n}": v for n, v in {
            "attn_norm.weight": 1 + x(M), "ffn_norm.weight": 1 + x(M), "attn_q.weight": x(H * D, M), "attn_k.weight": x(G * D, M),
            "attn_v.weight": x(G * D, M), "attn_output.weight": x(M, H * D), "ffn_gate.weight": x(F, M), "ffn_up.weight": x(F, M),
            "ffn_down.weight": x(M, F)}.items()}
        if biases:
            t |= {f"blk.{l}.attn_{n}.bias": x(k * D, scale=0.3) for n, k in (("q", H), ("k", G), ("v", G))}
    return t


def write(path, arch, values, raw=None):
    w = gguf.GGUFWriter(path, arch)
    w.add_block_count(L)
    w.add_context_length(512)
    w.add_embedding_length(M)
    w.add_feed_forward_length(F)
    w.add_head_count(H)
    w.add_head_count_kv(G)
    w.add_layer_norm_rms_eps(1e-5)
    w.add_rope_freq_base(10000.0)
    w.add_rope_dimension_count(D)
    w.add_vocab_size(V)
    for name, v in values.items():
        blocks, kind = (raw or {}).get(name, (v, None))
        w.add_tensor(name, blocks, raw_dtype=kind)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


def ours(path):
    return np.array(outside.losses(a, path, ids))


def blocks_of(kind, shape):
    """Random bytes, with scales (the float16 fields) of a size that leaves a model of finite numbers."""
    values, size = gguf.GGML_QUANT_SIZES[kind]
    b = rng.integers(0, 256, (shape[0], shape[1] // values, size), dtype=np.uint8)
    halfs = {T.Q4_1: (0, 2), T.Q5_1: (0, 2), T.Q4_K: (0, 2), T.Q6_K: (208,)}.get(kind, (0,))
    small = 2e-5 if kind in (T.Q4_K, T.Q6_K) else 1e-3
    for at in halfs:
        scale = (rng.uniform(0.5, 1.5, b.shape[:2]) * small * rng.choice([-1, 1], b.shape[:2])).astype(np.float16)
        b[:, :, at:at + 2] = scale[..., None].view(np.uint8)
    return b.reshape(shape[0], -1)


with tempfile.TemporaryDirectory() as tmp:
    tmp = pathlib.Path(tmp)
    base = tensors("llama", False)
    for kind in (T.F16, T.BF16, T.Q8_0, T.Q4_0, T.Q4_1, T.Q5_0, T.Q5_1, T.Q4_K, T.Q6_K):
        raw, plain = {}, dict(base)
        for name, v in base.items():
            if v.ndim == 2:
                q = gguf.quants.quantize(v, kind) if kind in (T.F16, T.BF16) else blocks_of(kind, v.shape)
                raw[name] = (q, kind)
                plain[name] = gguf.quants.dequantize(q, kind).astype(np.float32)
        write(tmp / "q.gguf", "llama", base, raw)
        write(tmp / "f.gguf", "llama", plain)
        x, y = ours(tmp / "q.gguf"), ours(tmp / "f.gguf")
        outside.at_most(f"{kind.name}: losses from blocks and from gguf-py's values (mean {x.mean():.3f}), largest difference",
                       np.abs(x - y).max(), 0.0)
    for arch in ("llama", "qwen2"):
        write(tmp / "m.gguf", arch, tensors(arch, arch == "qwen2"))
        x = ours(tmp / "m.gguf")
        y = outside.their_losses(tmp, ids, gguf_file="m.gguf")
        outside.at_most(f"{arch}: losses against transformers' reading of the file (mean {x.mean():.3f}), largest difference",
                       np.abs(x - y).max(), 1e-4)
outside.done()
