#!/usr/bin/env python3
"""ckvc.llama without llama.cpp: states, their files and GGUF metadata that are made here, by the layout of llama.cpp's src/llama-kv-cache.cpp."""
import contextlib
import ctypes
import io
import os
import struct
import sys
import tempfile
import types
from unittest import mock

from common import ROOT, golden, policy_library, put, run_tests
from test_ckvc import refused

import numpy as np

import ckvc.__main__
from ckvc import library, llama
from ckvc.exchange import model_heads, table_bytes

L, H, G, D, T = 3, 4, 2, 2, 80
RNG = np.random.default_rng(7)
K, V = RNG.standard_normal((2, L, T, G, D)).astype(np.float16)
INV_FREQ = [1.0]  # D is 2: 10000^0


def text(s):
    return struct.pack("<Q", len(s)) + s.encode()


def gguf(arch="llama", more=(), divisors=None, **changed):
    """A GGUF file without weights. more: keys with their values, of a kind that is known here."""
    numbers = {"block_count": L, "embedding_length": H * D, "attention.head_count": H, "attention.head_count_kv": G, **changed}
    keys = [text("general.architecture") + struct.pack("<I", 8) + text(arch)]
    keys += [text(f"{arch}.{name}") + struct.pack("<II", 4, x) for name, x in numbers.items()]
    keys += [text("tokenizer.ggml.tokens") + struct.pack("<IIQ", 9, 8, 2) + text("a") + text("bc"), text("x.scores") + struct.pack("<IIQff", 9, 6, 2, 1, 2)]
    keys += [text(f"{arch}.{name}") + (struct.pack("<I", 8) + text(x) if isinstance(x, str) else struct.pack("<If", 6, x)) for name, x in more]
    tensors = [] if divisors is None else [text("rope_freqs.weight") + struct.pack("<IQIQ", 1, len(divisors), 0, 0)]
    out = struct.pack("<IIQQ", 0x46554747, 3, len(tensors), len(keys)) + b"".join(keys + tensors)
    return out + (bytes(-len(out) % 32) + np.array(divisors, "<f4").tobytes() if tensors else b"")


def blocks(kind, heads, positions=range(T), transposed=False):
    """A state whose keys and values are any bytes in blocks of 32 numbers. kind: 8 Q8_0, 2 Q4_0. heads: numbers of a key."""
    u4, row, at = lambda *x: struct.pack(f"<{len(x)}I", *x), G * heads // 32, list(positions)  # noqa: E731
    dtype = llama.TYPES[kind]
    x = RNG.integers(0, 256, (2, L, T, row * dtype.itemsize), np.uint8).view(dtype)
    x["scale"] = RNG.uniform(0.01, 2, x.shape)
    head = struct.pack("<II", dtype.itemsize, row) if transposed else struct.pack("<Q", dtype.itemsize * row)
    out = u4(0xAF143CD8, 5, 1, T) + b"".join(struct.pack("<iIi", p, 1, 5) for p in at) + u4(transposed, L)
    for i in range(2):
        for of_layer in x[i]:
            out += struct.pack("<i", kind) + (head if i else struct.pack("<Q", dtype.itemsize * row)) + of_layer[at].tobytes()
    return out, x.reshape(2, L, T, G, -1)


def state(kind=1, transposed=False, streams=1, stream=0, positions=range(T), layers=L, tokens=None, version=3, magic=0xAF143CD8, behind=b"", sequences=1):
    """llama_context::state_seq_get_data's bytes, with tokens those of state_seq_save_file. kind: ggml's, 0 F32, 1 F16."""
    u4, n = lambda *x: struct.pack(f"<{len(x)}I", *x), len(positions)
    at = list(positions)
    out = u4(magic, 5) if tokens is None else u4(0x67677371, version, len(tokens)) + np.array(tokens, "<i4").tobytes()
    out += u4(streams, *[0] * stream, n) + b"".join(struct.pack("<iIi", p, sequences, 5) for p in at) + (u4(transposed, layers) if n else b"")
    for x, by_column in ((K, False), (V, transposed)):
        for layer in range(layers if n else 0):
            rows = x[layer % L, at].reshape(n, G * D).astype("<f4" if kind == 0 else "<f2")
            head = struct.pack("<II", rows.itemsize, G * D) if by_column else struct.pack("<Q", rows.itemsize * G * D)
            out += struct.pack("<i", kind) + head + (rows.T if by_column else rows).tobytes()
    return out + u4(*[0] * (streams - stream - 1)) + behind


def on(array):
    return np.frombuffer(array, np.uint8)


def table(name="learned2", bank=None):
    """A golden table with its one layer three times, its scores scaled so that they differ. bank [L, H, b, D]: one by which layers 0 and 2 are fitted."""
    t = library.Table.read(golden(name))
    a = {k: x for k, x in t.sections.items() if k not in ckvc.table.EVIDENCE and k[0] != "s" and k != "hSIG"}
    a = {k: x if ckvc.table.SPECS[k][1:2] != "L" else np.concatenate([x] * L) for k, x in a.items()}
    a["SHAPE"] = a["SHAPE"].copy()
    a["SHAPE"][0] = L
    for layer in range(L if "THETA" in a else 0):
        a["THETA"][layer, :, 2:] *= 1 + 3 * layer
    a["META"] = np.frombuffer(t.text["META"].replace(b'"n_layers":1', b'"n_layers":%d' % L), "u1")
    if bank is not None:
        a |= {"BANK": bank.astype("<f2"), "RIDGE": np.tile([[0.3], [0.0], [2.0]], (1, t.n_budgets)), "BANKUSE": np.tile(np.array([3, 20], "<u4"), (t.n_budgets, 1))}
    return library.Table("three", table_bytes("three", a | {"FLAGS": np.array([t.flags | (0 if bank is None else 16)], "<u8")}))


def model(folder, data=None):
    return put(os.path.join(folder, "m.gguf"), gguf() if data is None else data)


def test_model():
    with tempfile.TemporaryDirectory() as folder:
        m = llama.model_of(model(folder))
        assert m[1:5] == (L, H, G, D) and m.inv_freq.tolist() == INV_FREQ and m.pairwise
        assert model_heads(m.name) == [L, H, G, "llama"]
        m = llama.model_of(model(folder, gguf("qwen2", [("rope.freq_base", 100.0)], embedding_length=8 * H)))
        assert m.head_dim == 8 and not m.pairwise and np.allclose(m.inv_freq, 100.0 ** -np.array([0, 0.25, 0.5, 0.75]))
        m = llama.model_of(model(folder, gguf(more=[("rope.scaling.type", "linear"), ("rope.scaling.factor", 4.0)])))
        assert m.inv_freq.tolist() == [0.25]
        for key, kind, want in (("rope.scaling.factor", "", 0.25), ("rope.scale_linear", "", 0.25), ("rope.scaling.factor", "none", 1.0)):
            m = llama.model_of(model(folder, gguf(more=[(key, 4.0)] + [("rope.scaling.type", kind)] * bool(kind))))
            assert m.inv_freq.tolist() == [want]  # without a type llama.cpp takes linear
        assert llama.model_of(model(folder, gguf(divisors=[8.0]))).inv_freq.tolist() == [0.125]
        shard = lambda n: gguf().replace(text("x.scores") + struct.pack("<IIQff", 9, 6, 2, 1, 2), text("split.count") + struct.pack("<IH", 2, n))  # noqa: E731
        assert llama.model_of(model(folder, shard(1))).n_layers == L
        refused("one file of 3", llama.model_of, model(folder, shard(3)))
        for data, why in ((gguf("gemma3"), "architecture gemma3: want one of"), (gguf(more=[("rope.scaling.type", "yarn")]), "scaled by yarn"),
                          (gguf(**{"attention.head_count_kv": 3}), "heads that share"), (gguf(divisors=[1.0, 2.0]), "rotated in part"),
                          (gguf(**{"rope.dimension_count": 1}), "rotated in part"), (b"", "was cut off"), (b"GGML" + bytes(99), "want a GGUF file"),
                          (gguf(divisors=[8.0])[:-1], "was cut off"), (gguf(more=[("x", 1.0)]).replace(struct.pack("<If", 6, 1.0), struct.pack("<If", 99, 1.0)),
                                                                       "unknown type 99")):
            refused(why, llama.model_of, model(folder, data))
        whole = gguf(more=[("rope.freq_base", 100.0), ("rope.scaling.type", "none")], divisors=[8.0])
        for n in range(len(whole)):
            refused("m.gguf: ", llama.model_of, model(folder, whole[:n]))
        for _ in range(1000):  # whatever is in a file, an Error or a shape
            bad = on(whole).copy()
            bad[RNG.integers(0, len(bad), 3)] = RNG.integers(0, 256, 3)
            with contextlib.suppress(ckvc.Error):
                llama.model_of(model(folder, bad.tobytes()))


def test_cut():
    """Sets are the library's; what is cut out is what they say, in every layout."""
    t = table()
    with tempfile.TemporaryDirectory() as folder:
        m = llama.model_of(model(folder))
        for kind in (0, 1):
            p = library.Prefill(t, H, D, T, 0.5, INV_FREQ, score=ckvc.Score("learned", 0, 0, False, 2, "heads"), floor=1.0)
            for layer in range(L):
                for g in range(G):
                    p.cache(layer, g, K[layer, :, g], V[layer, :, g])  # of 2 values both layouts of a rotation are one
            want = np.array(p.keep())
            assert want.shape == (L, G, 40) and (want[0] != want[2]).any() and (want[:, 0] != want[:, 1]).any()
            assert (want[..., -8:] == np.arange(T - 8, T)).all() and (want[..., 0] == 0).all()
            for transposed, streams, stream, order in ((0, 1, 0, range(T)), (1, 1, 0, range(T)), (1, 3, 1, RNG.permutation(T).tolist()), (0, 2, 1, range(T))):
                for tokens in (None, [7, 8, 9]):
                    data = on(state(kind, transposed, streams, stream, order, tokens=tokens))
                    s = llama.read_state("s", data, m)
                    kept = llama.kept_of(s, m, t, 0.5)
                    assert np.array_equal(kept.sets, want)
                    cut = llama.cut_state(s, kept)
                    positions = llama.cell_positions(want, T)
                    assert positions[-8:].tolist() == list(range(T - 8, T)) and len(set(positions[:-8].tolist())) == 1 and positions[0] < T - 8
                    at = len(data) - len(state(kind, transposed, streams, stream, order)) + 8 if tokens else 8
                    assert np.array_equal(cut[:at], data[:at])
                    cells = np.frombuffer(cut[at + 4 * (2 + stream) :].tobytes(), llama.CELL, 40)
                    assert (cells["position"] == positions).all() and (cells["sequence"] == 5).all() and (cells["sequences"] == 1).all()
                    cut[at + 4 * (2 + stream) :][: cells.nbytes].view(llama.CELL)["position"] = np.arange(40)  # only so is it read again
                    again = llama.read_state("s", cut, m)
                    for layer in range(L):
                        for got, x in ((again.keys[layer], K), (again.values[layer].T if transposed else again.values[layer], V)):
                            for g in range(G):
                                assert np.array_equal(got.reshape(40, G, D)[:, g], x[layer, want[layer, g], g].astype(got.dtype))
                    assert len(data) - len(cut) == 40 * (12 + L * 2 * G * D * (4, 2)[kind])


def by_formula(queries, keys, values, kept, ridge, whole=None):
    """The fitted keys and values of a head's kept positions. queries [n, D]: rotated, times the scale. whole: the keys of the whole cache, if what is kept has
    others."""
    e = np.exp(queries @ (keys if whole is None else whole).T)
    ek = np.exp(queries @ keys[kept].T)
    w, lost = ek / ek.sum(1, keepdims=True), np.log(e.sum(1) / ek.sum(1))
    qq, ww = queries.T @ queries, w @ w.T
    change = np.linalg.solve(ww + ridge * ww.trace() / len(ww) * np.eye(len(ww)), e @ values / e.sum(1, keepdims=True) - w @ values[kept])
    return keys[kept] + np.linalg.solve(qq + 0.01 * qq.trace() / D * np.eye(D), queries.T @ lost), values[kept] + w.T @ change


def test_fitted():
    """Entries that a bank fits: the library's against a plain computation in double (5e-6: entries are float32 and so are rotated queries), and those that a cut
    state holds (one step of float16 where it is its type)."""
    bank = RNG.standard_normal((L, H, 4, D)) * 2
    t, bank = table(bank=bank), bank.astype("<f2").astype(float)[:, :, :3]
    z = (bank[..., 0] + 1j * bank[..., 1]) * np.exp(1j * (T + np.array([0, 6, 13])))  # floor(i * 20 / 3) behind T
    queries = np.stack([z.real, z.imag], axis=-1).reshape(L, G, -1, D) * D**-0.5
    with tempfile.TemporaryDirectory() as folder:
        m = llama.model_of(model(folder))
        for kind, close in ((0, 5e-6), (1, 2**-9)):
            for transposed in (0, 1):
                s = llama.read_state("s", on(state(kind, transposed, positions=RNG.permutation(T).tolist())), m)
                chosen = llama.kept_of(s, m, t, 0.5)
                sets = chosen.sets
                assert np.array_equal(sets, llama.kept_of(s, m, table(), 0.5).sets)
                cut = llama.cut_state(s, chosen)
                cut[16:][: 40 * 12].view(llama.CELL)["position"] = np.arange(40)  # only so is it read again
                again = llama.read_state("s", cut, m)
                for layer, ridge in enumerate((0.3, 0, 2)):
                    for g in range(G):
                        kept, k, v = sets[layer, g], K[layer, :, g].astype(float), V[layer, :, g].astype(float)
                        new = by_formula(queries[layer, g], k, v, kept, ridge) if ridge else (k[kept], v[kept])
                        values = again.values[layer].T if transposed else again.values[layer]
                        for x, want, before in zip((again.keys[layer], values), new, (k[kept], v[kept])):
                            x = x.reshape(40, G, D)[:, g].astype(float)
                            assert np.abs(x - want).max() < close * np.abs(want).max() and (np.abs(x - before).max() > 0.01) == bool(ridge)
        p = library.Prefill(t, H, D, T, 0.5, INV_FREQ, score=ckvc.Score("learned", 0, 0, False, 2, "heads"), floor=1.0)
        assert not p.fits(0)  # before keep
        for layer in range(L):
            for g in range(G):
                p.cache(layer, g, K[layer, :, g], V[layer, :, g])
        kept = p.keep()
        x = K[0, :, 0], 1e4 * V[0, :, 0].astype(float)
        near, far = p.fit(0, 0, *x, 0.7, most=5e3), p.fit(0, 0, *x, 0.7)
        assert np.abs(far[1]).max() > 5e3 and np.array_equal(near[1], far[1].clip(-5e3, 5e3))
        assert np.array_equal(p.fit(0, 0, *x, 0.7, cap=30.0)[0], K[0, kept[0][0], 0].astype("f4"))  # a cap leaves keys as they are
        assert not np.array_equal(p.fit(0, 0, *x, 0.7, window=60)[1], far[1]) and [p.fits(layer) for layer in range(L + 1)] == [True, False, True, False]
        refused("keys has the shape [79, 2], want [80, 2]", p.fit, 0, 0, x[0][1:], x[1], 1.0)
        refused("want those after it, and inv_freq", library.Prefill(t, H, D, T, 0.5).fit, 0, 0, *x, 1.0)
        refused("layer is -1", p.fit, -1, 0, *x, 1.0)
        refused("its bank has queries of 2 values, the model's keys have 4", table("shares", bank).check_model, L, H, G, 4)


def test_rows():
    """Rows go to the library in the formats of the state, in the order of positions and in llama.cpp's pairs, and the rows that it keeps are the cut state's, in
    its formats or in others. What the library makes of rows tests/unit/lib/policy/test_cache_rows.c compares with their numbers."""
    seen = {}

    class Spy:
        whole = False

        def __init__(self, *args, **more):
            pass

        def cache_rows(self, layer, g, keys, values):
            seen[layer, g] = keys, values

        def keep(self):
            return sets.tolist()

        def fit_rows(self, layer, g, keys, values, formats, scale):
            assert scale == size**-0.5 and all(np.array_equal(x.rows, y.rows) for x, y in zip((keys, values), seen[layer, g]))
            assert formats == ((name, name) if held is None else ("q8_0" + name[4:], "q4_0" + name[4:]))
            return tuple(np.full((30, ckvc.table.row_bytes(form, size)), layer * 20 + g * 2 + i, np.uint8) for i, form in enumerate(formats))

    with tempfile.TemporaryDirectory() as folder, mock.patch.object(library, "Prefill", Spy):
        for kind, name, pairwise, size in ((8, "q8_0+rot", True, 64), (2, "q4_0+rot", False, 128), (2, "q4_0", True, 32)):
            for held in (None, "q8_0/q4_0"):
                m = llama.model_of(model(folder))._replace(head_dim=size, pairwise=pairwise)
                data, x = blocks(kind, size, RNG.permutation(T).tolist())
                sets = np.sort(RNG.permuted(np.tile(np.arange(T), (L, G, 1)), axis=-1)[..., :30])
                s = llama.read_state("s", on(data), m)
                kept = llama.kept_of(s, m, table(), 30, held)
                assert np.array_equal(kept.sets, sets) and len(seen) == L * G
                for (layer, g), (keys, values) in seen.items():
                    assert keys[1:] == (name, pairwise) and values[1:] == (name, False)
                    assert np.array_equal(keys.rows, x[0, layer, :, g]) and np.array_equal(values.rows, x[1, layer, :, g])
                cut = llama.cut_state(s, kept)
                cut[16:][: 30 * 12].view(llama.CELL)["position"] = np.arange(30)  # only so is it read again
                again = llama.read_state("s", cut, m)
                for layer in range(L):
                    for i, got in enumerate((again.keys[layer], again.values[layer])):
                        assert got.dtype == (x.dtype if held is None else (llama.Q8_0, llama.Q4_0)[i])
                        for g in range(G):
                            assert (np.ascontiguousarray(got.reshape(30, G, -1)[:, g]).view(np.uint8) == layer * 20 + g * 2 + i).all()


def test_pairs():
    """A state whose keys are in pairs (2i, 2i + 1) keeps what one in pairs (i, i + 2) keeps, with the same numbers in llama.cpp's order: heads of 4 numbers, and a
    table whose ranking reads keys and whose bank fits them."""
    order = [0, 2, 1, 3]  # of the numbers of a head, as pairs have them
    t = table(bank=np.zeros((L, H, 4, 2)))
    arrays = {k: x for k, x in t.sections.items()} | {"FLAGS": np.array([t.flags], "<u8"), "META": np.frombuffer(t.text["META"], "u1")}
    arrays["THETA"] = (RNG.standard_normal((L, G, t.theta.shape[2] + 2)) / 4).astype("<f4")
    arrays["BANK"] = (RNG.standard_normal((L, H, 4, 4)) * 2).astype("<f2")
    t = library.Table("four", table_bytes("four", arrays))
    k, v = RNG.standard_normal((2, L, T, G, 4)).astype("<f4")
    kept = []
    for pairwise in (False, True):
        m = llama.Model("m", L, H, G, 4, np.array([1.0, 0.1]), pairwise)
        keys = [x.reshape(T, -1) for x in (k[..., order] if pairwise else k)]
        s = llama.State("s", on(b""), 1, 0, 0, np.arange(T), False, keys, [x.reshape(T, -1) for x in v])
        kept.append(llama.kept_of(s, m, t, 0.5, "f16/f32"))
    halves, pairs = kept
    assert np.array_equal(halves.sets, pairs.sets) and (np.diff(halves.sets[0, 0]) > 1).any()
    for layer in range(L):
        assert np.array_equal(halves.keys[layer][..., order], pairs.keys[layer]) and np.array_equal(halves.values[layer], pairs.values[layer])
    assert (halves.keys[0] != np.take_along_axis(k[0], halves.sets[0].T[..., None], 0).astype("<f2")).any()  # they are fitted


def test_refused_rows():
    """Rows whose bytes the library would have to guess."""
    p = library.Prefill(table(), H, D, T, 0.5, INV_FREQ, score=ckvc.Score("learned", 0, 0, False, 2, "heads"), floor=1.0)
    x = np.zeros((T, 2, D), "<f2")
    good = library.Rows(x[:, 0], "f16")
    for bad, why in ((library.Rows(x[:, 0], "f32"), "keys have the shape [80, 2], want 80 rows of 8 bytes (2 numbers in f32)"), (library.Rows(x[:, 0, :1], "f16"), "rows of 4 bytes"),
                     (library.Rows(x[::-1, 0], "f16"), "in ascending order"), (library.Rows(x[:, :, 0], "f16"), "each in one piece"),
                     (library.Rows(x[:, 0], "int8"), "the format int8: want one of f32, f32+rot")):
        refused(why, p.cache_rows, 0, 0, bad, good)
    refused("cache of head 0 in layer 0: positions 0 holds a value that is not finite", p.cache_rows, 0, 0, good, library.Rows(x[:, 0] + np.float16("nan"), "f16"))
    refused("no sets yet, or no head 0 in layer 0", p.fit_rows, 0, 0, good, good, ("f16", "f16"), 1.0)
    for layer in range(L):
        for g in range(G):
            p.cache_rows(layer, g, good, good)
    p.keep()
    refused("no head 0 in layer 9", p.fit_rows, 9, 0, good, good, ("f16", "f16"), 1.0)
    for formats in (("int8", "f16"), ("f16",)):
        refused("want two of f32", p.fit_rows, 0, 0, good, good, formats, 1.0)
    refused("heads of 2 numbers cannot be held in q8_0/f16", p.fit_rows, 0, 0, good, good, ("q8_0", "f16"), 1.0)


def test_other_formats():
    """What is kept of an F32 state, held in others; a prompt that is kept whole is converted, too; values that are quantised are not transposed."""
    t = table(bank=RNG.standard_normal((L, H, 4, D)) * 2)
    with tempfile.TemporaryDirectory() as folder:
        m = llama.model_of(model(folder))
        s = llama.read_state("s", on(state(0, True)), m)
        for budget, n in ((0.5, 40), (80, T), (500, T)):
            kept = llama.kept_of(s, m, t, budget, "f16/f32")
            cut = llama.cut_state(s, kept)
            cut[16:][: n * 12].view(llama.CELL)["position"] = np.arange(n)
            again = llama.read_state("s", cut, m)
            assert again.transposed and again.keys[0].dtype == np.dtype("<f2") and again.values[2].dtype == np.dtype("<f4")
            near = llama.kept_of(s, m, t, budget) if n < T else None
            for layer in range(L):
                for got, own, x in ((kept.keys, near and near.keys, K), (kept.values, near and near.values, V)):
                    want = own[layer] if near else x[layer].astype("<f4")
                    assert got[layer].shape == (n, G, D) and np.abs(got[layer] - want).max() < 0.02 * np.abs(want).max()  # values are fitted to rounded keys
        assert llama.kept_of(s, m, t, 500, "f32") is None
        refused("formats 'f16/': want one of f32, f16, q8_0, q4_0", llama.kept_of, s, m, t, 0.5, "f16/")
        refused("formats 'fp8': want one of", llama.kept_of, s, m, t, 0.5, "fp8")
        refused("heads of 2 numbers do not go into blocks of 32: want f16 or f32", llama.kept_of, s, m, t, 0.5, "f16/q8_0")


def test_blocks():
    """What a state with quantised rows must not be."""
    with tempfile.TemporaryDirectory() as folder:
        for kind, size in ((8, 32), (2, 96)):
            m = llama.model_of(model(folder))._replace(head_dim=size)
            data, _ = blocks(kind, size)
            for n in (*range(0, len(data), 997), len(data) - 1):
                refused("was cut off", llama.read_state, "s", on(data[:n]), m)
            refused("the state of another model", llama.read_state, "s", on(data), m._replace(n_kv_heads=3))
            refused("into which heads of 48 do not go: use a cache of F16", llama.read_state, "s", on(data), m._replace(head_dim=48))
            refused("quantised and transposed", llama.read_state, "s", on(blocks(kind, size, transposed=True)[0]), m)


def test_formats():
    """Which heads llama.cpp rotates before it quantises them, unless it is told not to."""
    for dtype, size, want in ((0, 64, "f32"), (1, 64, "f16"), (2, 64, "q4_0+rot"), (8, 192, "q8_0+rot"), (8, 96, "q8_0"), (2, 32, "q4_0")):
        assert llama.format_of(llama.TYPES[dtype], size) == want
    for off, want in (("1", "q8_0"), (" 1", "q8_0"), ("0", "q8_0+rot"), ("", "q8_0+rot"), ("true", "q8_0+rot")):  # as atoi reads it
        with mock.patch.dict(os.environ, LLAMA_ATTN_ROT_DISABLE=off):
            assert llama.format_of(llama.Q8_0, 64) == want


def test_refused():
    t = table()
    with tempfile.TemporaryDirectory() as folder:
        m = llama.model_of(model(folder))
        for data, why in ((state(magic=7), "magic 0x00000007"), (state(tokens=[1], version=4), "file of version 4; this package knows version 3"),
                          (state(streams=1 << 21), "streams"), (state(positions=[0, 2]), "cannot be cut again"), (state(positions=[0, 0, 1]), "cannot be cut again"),
                          (state(positions=[]), "is empty"), (state(layers=2), "a cache of 2 layers"),
                          (state(kind=30), "type 30: want F32 (0), F16 (1), Q4_0 (2) or Q8_0 (8)"),
                          (state(kind=8), "quantised in blocks of 32 numbers, into which heads of 2 do not go"),
                          (state(behind=b"1234"), "4 bytes behind the cache"), (state(sequences=2), "several sequences")):
            refused(why, llama.read_state, "s", on(data), m)
        refused("keys of layer 0 have 8 bytes a token, those of", llama.read_state, "s", on(state()), m._replace(n_kv_heads=4))
        for data in (state(1, True, 2, 1, range(5)), state(0, tokens=[1, 2], positions=range(5))):
            for n in range(len(data)):
                refused("", llama.read_state, "s", on(data[:n]), m)
            for _ in range(400):  # whatever is in a file, an Error or sets
                bad = on(data).copy()
                bad[RNG.integers(0, len(bad), 3)] = RNG.integers(0, 256, 3)
                with contextlib.suppress(ckvc.Error):
                    llama.read_state("s", bad, m)
        s = llama.read_state("s", on(state()), m)
        for budget in (80, 81, 0.9999):
            assert (llama.kept_of(s, m, t, budget) is None) == (budget >= T)
        assert llama.kept_of(llama.read_state("s", on(state(positions=range(16))), m), m, t, 0.5) is None  # the table's window
        refused("a budget of 1.0", llama.kept_of, s, m, t, 1.0)
        for budget in (0, 0.0, -5, float("nan")):
            refused(f"three: the budget is {budget}, want", llama.kept_of, s, m, t, budget)
        refused("three: a budget of '0.5': want a number", llama.kept_of, s, m, t, "0.5")
        refused("the model has 2 x 2", llama.kept_of, s, m._replace(n_layers=2), t, 0.5)
        refused("reads attention", llama.kept_of, s, m, table("learned"), 0.5)
        refused("its score (paper) reads attention", llama.kept_of, s, m, table("shares"), 0.5)
        assert llama.score_of(t, 64, T).kind == "learned"  # of the block that recommends the paper's
        refused("the least is 9", llama.kept_of, s, m, t, 8)


def test_compact():
    """In place and into another context; where a context cannot be cut, or does not take what was, it is as it was, also where `into` names itself."""
    class Context:
        def __init__(self, data, sequences=1):
            self.data, self.sequences, self.room, self.model_path = data, sequences, len(data), path
            self.context_params = types.SimpleNamespace(rope_freq_base=0, rope_freq_scale=0, yarn_ext_factor=-1, rope_scaling_type=-1)

    def give(x, at, n, seq_id):
        ctypes.memmove(at, x.data, n)
        return n

    def take(x, at, n, seq_id):
        x.data = ctypes.string_at(at, n) if x.room in (None, n) else b""  # llama.cpp empties a sequence before it reads
        return len(x.data)

    c = types.SimpleNamespace(llama_n_seq_max=lambda x: x.sequences, llama_state_seq_get_size=lambda x, seq_id: len(x.data), llama_get_memory=id,
                              llama_state_seq_get_data=give, llama_state_seq_set_data=take)
    with tempfile.TemporaryDirectory() as folder, mock.patch.dict(sys.modules, llama_cpp=c):
        path, t, whole = model(folder), table(), state()
        for into in (False, True):
            x = Context(whole)
            refused("did not take the 40 cells", llama.compact, x, 0, t, 0.5, into=x if into else None)
            assert x.data == whole  # it was put back
            x.room = None
            assert llama.compact(x, 0, t, 0.5, into=x if into else None).n_cells == 40 and len(x.data) == len(whole) - 40 * 60
            x = Context(whole, 2)
            refused("share cells", llama.compact, x, 0, t, 0.5, into=x if into else None)
            assert x.data == whole
        small = Context(b"")
        refused("did not take", llama.compact, x, 0, t, 0.5, into=small)
        small.room = None
        assert llama.compact(x, 0, t, 0.5, into=small).n_cells == 40 and x.data == whole and len(small.data) == len(whole) - 40 * 60
        assert llama.compact(x, 0, t, 80, into=small).n_cells == T and small.data == whole
        said = llama.compact(x, 0, t, 0.5, into=small, formats="f32")
        assert len(small.data) == len(state(0)) - 40 * 108 and said[2:] == (L * 2 * G * D * 2 * T, L * 2 * G * D * 4 * 40)
        refused("formats= needs another context, into=", llama.compact, x, 0, t, 0.5, formats="f16")
        x.context_params.rope_freq_base = 5e4
        refused("options of its own", llama.compact, x, 0, t, 0.5, into=small)


def test_command_line():
    def run(*words):
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = ckvc.__main__.main(["compact", *words])
        return code, out.getvalue() + err.getvalue()

    with tempfile.TemporaryDirectory() as folder:
        m, slot, three, small = (os.path.join(folder, x) for x in ("m.gguf", "slot.bin", "t.ckvt", "small.bin"))
        model(folder)
        put(slot, state(tokens=range(T)))
        put(three, table_of_three)
        words = [slot, "--model", m, "--table", three, "--out", small, "--budget"]
        assert run(*words, "0.5") == (0, f"{small}: 40 of 80 cells, 1920 of 3840 bytes\n")
        assert os.path.getsize(slot) - os.path.getsize(small) == 40 * (12 + 48)
        assert run(*words, "0.5", "--formats", "f32", "-f") == (0, f"{small}: 40 of 80 cells, 3840 of 3840 bytes\n")
        assert run(*words, "0.5", "--formats", "bf16", "-f")[0] == 65
        code, said = run(*words, "20")
        assert code == 73 and "is there already" in said
        assert run(*words, "20", "--force")[0] == 0
        code, said = run(*words, "500", "--force")
        assert code == 0 and "kept whole" in said and os.path.getsize(small) == os.path.getsize(slot)
        for budget, want in (("0", 65), ("1.0", 65), ("x", 64), ("-1", 65)):
            assert run(*words, budget, "-f")[0] == want
        put(slot, state())  # as it is in memory
        assert run(*words, "0.5", "-f") == (0, f"{small}: 40 of 80 cells, 1920 of 3840 bytes\n")
        os.truncate(slot, 1000)
        code, said = run(*words, "0.5", "-f")
        assert code == 65 and said.startswith("ckvc compact: ") and "was cut off" in said and said.count("\n") == 1
        assert run(os.path.join(folder, "none"), *words[1:], "0.5", "-f")[0] == 66 and run("--help" * 0 + slot)[0] == 64
        assert sorted(os.listdir(folder)) == ["m.gguf", "slot.bin", "small.bin", "t.ckvt"]


if __name__ == "__main__":
    with policy_library():
        three = table()
        arrays = dict(three.sections) | {"META": np.frombuffer(three.text["META"], "u1"), "FLAGS": np.array([three.flags], "<u8")}
        table_of_three = table_bytes("three", arrays)
        run_tests(globals())
