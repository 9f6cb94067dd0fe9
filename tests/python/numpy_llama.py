"""A Llama of the plainest kind in float64: what a prefill leaves in the cache, and the attention of its last rows."""
import json
import os

import numpy as np

TYPES = {"F32": "<f4", "BF16": "<u2"}


def weights(folder):
    """{name: array} of a model.safetensors."""
    with open(os.path.join(folder, "model.safetensors"), "rb") as f:
        data = f.read()
    begin = 8 + int.from_bytes(data[:8], "little")
    out = {}
    for name, t in json.loads(data[8:begin]).items():
        if name != "__metadata__":
            raw = np.frombuffer(data[begin + t["data_offsets"][0] : begin + t["data_offsets"][1]], TYPES[t["dtype"]])
            wide = raw if t["dtype"] == "F32" else (raw.astype(np.uint32) << 16).view(np.float32)
            out[name] = wide.reshape(t["shape"]).astype(np.float64)
    return out


def softmax(x):
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def prefill(folder, tokens, n_rows):
    """Of every layer (keys [G, T, D] as cached, values [G, T, D], attention [H, n_rows, T]), and the frequencies [D/2]."""
    with open(os.path.join(folder, "config.json")) as f:
        c = json.load(f)
    H, G, D, T = c["num_attention_heads"], c["num_key_value_heads"], c["head_dim"], len(tokens)
    w = weights(folder)

    def normed(x, name):
        return x / np.sqrt((x * x).mean(axis=-1, keepdims=True) + c["rms_norm_eps"]) * w[name]

    inv_freq = c["rope_theta"] ** (-np.arange(0, D, 2) / D)
    cos, sin = np.cos(np.outer(np.arange(T), inv_freq)), np.sin(np.outer(np.arange(T), inv_freq))

    def rotated(x):
        a, b = x[..., : D // 2], x[..., D // 2 :]
        return np.concatenate([a * cos - b * sin, b * cos + a * sin], axis=-1)

    x, layers = w["model.embed_tokens.weight"][tokens], []
    for i in range(c["num_hidden_layers"]):
        of = f"model.layers.{i}."
        h = normed(x, of + "input_layernorm.weight")
        q, k, v = ((h @ w[of + f"self_attn.{p}_proj.weight"].T).reshape(T, -1, D).swapaxes(0, 1) for p in "qkv")
        q, k = rotated(q), rotated(k)
        scores = np.einsum("htd,hsd->hts", q, np.repeat(k, H // G, axis=0)) / np.sqrt(D)
        a = softmax(np.where(np.tril(np.ones((T, T), bool)), scores, -np.inf))
        o = np.einsum("hts,hsd->thd", a, np.repeat(v, H // G, axis=0)).reshape(T, -1)
        x = x + o @ w[of + "self_attn.o_proj.weight"].T
        h = normed(x, of + "post_attention_layernorm.weight")
        gate, up, down = (w[of + f"mlp.{p}_proj.weight"] for p in ("gate", "up", "down"))
        x = x + (h @ gate.T / (1 + np.exp(-(h @ gate.T))) * (h @ up.T)) @ down.T
        layers.append((k, v, a[:, -n_rows:]))
    return layers, inv_freq
