#!/usr/bin/env python3
"""python/ckvc: capacities bit for bit against the policy library, prefills by ctypes, the reader on good and on damaged tables."""
import ast
import binascii
import contextlib
import ctypes
import glob
import hashlib
import io
import json
import math
import os
import re
import subprocess
import sys
import tempfile
from unittest import mock

from common import PROGRAM, ROOT, built, golden, need, policy_library, put, run_tests

need("numpy")
import numpy as np  # noqa: E402

import ckvc  # noqa: E402
import ckvc.__main__  # noqa: E402
from ckvc import library  # noqa: E402

GOLDEN = os.path.join(ROOT, "tests", "golden")


def bytes_of(name):
    with open(golden(name), "rb") as f:
        return f.read()


def refused(message, call, *args, **more):
    """What call says, which holds message, in one line."""
    try:
        call(*args, **more)
    except ckvc.Error as problem:
        assert message in str(problem) and "\n" not in str(problem), problem
        return str(problem)
    raise AssertionError(f"no error: {message}")


def test_no_hub():
    """A name of a model hub's repository where the package that fetches it is missing; tests/python/test_hub.py has the rest."""
    with mock.patch.dict(sys.modules, huggingface_hub=None):
        refused("org/name: is no file here, and a table of a hub needs the package huggingface_hub: pip install huggingface_hub", ckvc.Table.read, "org/name")


def test_read():
    t = ckvc.Table.read(golden("one-layer"))
    assert t.weight.shape == (1, 1, 1) and t.tau.shape == (1, 2, 1, 1) and t.window == 16 and t.n_query_heads == 2
    assert t.bins(4.0, 9.0) == (0, 0) and t.bins(4.75, 9.0) == (1, 0)
    assert t.budget_index(0.25) == 0
    t = ckvc.Table.read(golden("evidence"))
    assert t.weight.shape == (1, 2, 2) and t.meta["label"] == "sample" and t.xfer == {"heads": "index"}
    assert set(t.skipped) <= {"QHEAD", "QGATE", "NHEAD", "NGATE", "MHEAD", "MGATE", "LGATE", "sHEAD", "sGATE", "hSIG"}
    if not t.skipped:
        assert t.sections["QHEAD"].shape == (1, 2, 2, 3) and t.sections["NGATE"][0, 0, 0, 0].tolist() == [2, 0, 0]


def test_skipped():
    """The summary says why a section was not read: no module unpacks it, or this version does not know it and need not."""
    with mock.patch.dict(sys.modules, zstandard=None), mock.patch.dict(ckvc.table.SPECS):
        assert "; packed, and read only with the Python module zstandard (pip install zstandard): QHEAD " in (said := ckvc.Table.read(golden("evidence")).info())
        assert "hSIG" in said and "later version" not in said
        del ckvc.table.SPECS["hSIG"]
        said = ckvc.Table.read(golden("evidence")).info()
        assert said.endswith("; optional ones of a later version, which are not read: hSIG") and said.count("hSIG") == 1, said
    assert "not read" not in ckvc.Table.read(golden("one-layer")).info()


def test_operators():
    """mean-pool.ckvt: a fit with --operator mean-pool, transferred to 1 layer, 2 heads."""
    t = ckvc.Table.read(golden("mean-pool"))
    assert t.operator == "mean-pool" and t.meta["probe"] == "mean-pool"
    data = bytearray(bytes_of("mean-pool"))
    for flags, message in ((0, "operator paper"), (1, "operator no-utility"), (4, "SHARE is missing"), (8, "thresholds below shares, which this version of ckvc no longer has"), (16, "without flag 4, shares"), (32, "without flag 4, shares"), (64, "flags 0x40"),
                           (1 << 40, "flags 0x10000000000")):
        data[24:32] = flags.to_bytes(8, "little")
        data[124:128] = binascii.crc32(bytes(data[:124])).to_bytes(4, "little")
        refused(message, ckvc.Table, "x", bytes(data))


def test_against_library():
    """Capacities: the library's, bit for bit."""
    rng = np.random.default_rng(11)
    with built("-shared", "-fPIC") as path:
        c, at = ctypes.CDLL(path), lambda array: array.ctypes.data_as(ctypes.c_void_p)
        c.ckvc_head_floor.argtypes = (ctypes.c_double,) + (ctypes.c_uint32,) * 3
        below = ragged = 0
        for _ in range(600):
            L, G, T = (int(x) for x in rng.integers(1, (6, 5, 200)))
            B, recent, f = int(rng.integers(1, T + 9)), int(rng.integers(0, 10)), float(rng.random())
            share = np.where(rng.random((L, G)) < 0.2, 0.0, np.exp2(rng.integers(-20, 20, (L, G)) / 4.0))
            floor = ckvc.head_floor(f, recent, B, T)
            assert c.ckvc_head_floor(f, recent, B, T) == floor
            counts = np.zeros((L, G), np.uint32)
            if c.ckvc_capacities(at(share), L * G, 1, B, T, floor, at(counts)):
                below += 1
                said = refused("", ckvc.capacities, share, B, T, floor)
                assert said == f"a budget of {B} tokens is below what every head must keep; the least is {floor}"
                continue
            assert np.array_equal(ckvc.capacities(share, B, T, floor), counts)
            c.ckvc_even_lengths(at(share), L * G, 1, at(counts))
            assert np.array_equal(ckvc.table.even_lengths(share.ravel(), ckvc.capacities(share, B, T, floor).ravel()), counts.ravel())
            ragged += len(set(counts.ravel().tolist())) > 1
        assert below > 20 and ragged > 100


def made_up(rng, its, T):
    """attention [H, T, T], keys, values [G, T, D] of one layer for a table."""
    D = 8 if its.theta is None else its.theta.shape[2] - ckvc.FEATURES[its.score[0].features][0]
    rows = rng.random((its.n_query_heads, T, T)).astype(np.float32) ** 8 * np.tri(T, dtype=np.float32)
    return [rows / rows.sum(axis=2, keepdims=True), *rng.standard_normal((2, its.n_heads, T, D)).astype(np.float32)]


def handed(p, rows, keys, values, cut=20):
    """The prefill of one layer, its rows in two tiles."""
    last = rows[:, rows.shape[2] - p.rows :]
    for h in range(len(rows)) if p.rows else ():
        p.attention(0, h, last[h, :cut])
        p.attention(0, h, last[h, cut:], first_row=cut)
    for g in range(len(keys)):
        p.cache(0, g, keys[g], values[g])
    return p


def kept_by(p):
    return [s.tolist() for s in p.keep()[0]]


def largest(s, recent, n):
    """Positions of the n largest, of equal ones the later; 0 and the last `recent` come first."""
    rank = np.where((np.arange(len(s)) == 0) | (np.arange(len(s)) >= len(s) - recent), np.inf, s)
    return sorted(sorted(range(len(s)), key=lambda t: (rank[t], t))[len(s) - n :])


def test_library_prefill():
    """ckvc.library.Prefill: sets of every mode from its own scores and the table's capacities, other scores and budgets, what is refused."""
    rng = np.random.default_rng(9)
    with policy_library():
        for name in ("shares", "lengths", "learned", "learned2"):
            its = library.Table.read(golden(name))
            H, G, inv_freq = its.n_query_heads, its.n_heads, rng.random(4 if its.theta is None else 1)
            for T in (65, 200):
                rows, keys, values = made_up(rng, its, T)
                D, b = keys.shape[2], its.nearest_budget(0.25, T)
                p = handed(library.Prefill(its, H, D, T, 0.25, inv_freq), rows, keys, values)
                assert p.rows == its.score[b].window and p.scores(0, 0) is None and not p.needs_r_sem
                kept, recent = kept_by(p), int(its.c_min[b][1])
                assert kept == [largest(p.scores(0, g), recent, n) for g, n in enumerate(np.broadcast_to(its.capacities(b, T)[0], G))]
                assert handed(library.Prefill(its, H, D, T, 0.25, inv_freq), rows, keys, values, 1).keep()[0][G - 1].tolist() == kept[G - 1]
                p.again(0.24, 1.0)  # a floor of all: every head the same
                assert [len(s) for s in p.keep()[0]] == G * [int(0.24 * T)]
                for mode in ("heads", "layers", "lengths", "shared"):
                    if mode == "lengths" and its.length_share is None:
                        continue
                    asked = its.score[b]._replace(mode=mode)
                    p = handed(library.Prefill(its, H, D, T, 0.25, inv_freq, score=asked), rows, keys, values)
                    kept, s = kept_by(p), [p.scores(0, g) for g in range(G)]
                    if mode in ckvc.table.BY_HEAD:
                        assert kept == [largest(s[g], recent, n) for g, n in enumerate(np.broadcast_to(its.capacities(b, T, mode)[0], G))]
                    else:
                        n = its.capacities(b, T, mode)[0] if mode == "layers" else T // 4
                        assert kept == G * [largest(np.fmax.reduce(s), recent, n)]
                asked = ckvc.Score("window", 8, 1, False, its.score[b].features, "heads")
                p = handed(library.Prefill(its, H, D, T, 0.25, inv_freq, score=asked), rows, keys, values, 4)
                kept_by(p)
                a = rows[: H // G, T - 8 :].mean(axis=(0, 1), dtype=float)
                assert p.rows >= 8 and np.allclose(np.exp(p.scores(0, 0)), a, rtol=1e-12)
        paper = library.Table.read(golden("one-layer"))
        rows, keys, values = made_up(rng, paper, 100)
        p = handed(library.Prefill(paper, 2, 8, 100, 0.25), rows, keys, values, 8)
        (kept,) = kept_by(p)
        assert p.candidates(0) >= len(kept) and (p.candidates(0) <= 25 or len(kept) == 25)
        assert kept == largest(p.scores(0, 0), 0, len(kept)) or 0 not in kept
        for name in ("learned", "learned2"):
            its = library.Table.read(golden(name))
            H, G, inv_freq = its.n_query_heads, its.n_heads, rng.random(1)
            _, keys, values = made_up(rng, its, 200)
            D = keys.shape[2]
            for T in (1, 2, its.window):  # kept whole, under budgets below the floor, too, whether anything is handed over or not
                for budget in (1, 0.001):
                    p = library.Prefill(its, H, D, T, budget, inv_freq)
                    assert p.whole and p.rows <= T and not p.needs_r_sem
                    if T > 1:
                        p.attention(0, 0, np.ones((T, T)))
                        p.cache(0, 0, keys[0, :T], values[0, :T])
                    assert [[x.tolist() for x in of_layer] for of_layer in p.keep()] == its.n_layers * [G * [list(range(T))]]
            assert not library.Prefill(its, H, D, its.window + 1, 64, inv_freq).whole and its.begin(8, its.window)[1] == 8
            for make, message in (
                (lambda: library.Prefill(its, H, D, 0, 0.25), "the prompt has 0 tokens"),
                (lambda: library.Prefill(its, H, D, 200, 0.25, n_layers=7), "the model has 7 x"),
                (lambda: library.Prefill(its, H, D, 200, 0.25).keep(), "the prefill is not whole"),
                (lambda: its.capacities(0, 100, budget=8), "the least is 9"),
                (lambda: ckvc.Table.read(golden("mean-pool")).check_model(1, 2, 2, 2), "a probe's table, fitted for the operator mean-pool"),
                (lambda: its.check_model(7, H, G, D), "the model has 7 x"),
                (lambda: its.check_model(1, H + G, G, D), f"is for {H} query heads, the model has {H + G}"),
                (lambda: its.check_model(1, H, G, D + 2), f"its learned ranking is for keys of {D} values, the model's have {D + 2}"),
                (lambda: its.begin(1.0, 100), "a budget of 1.0, which may be a token or a share: write 1 for 1 token, 0.99 for nearly all of a prompt"),
                (lambda: library.Prefill(its, H, D, 200, 1.0), "a budget of 1.0, which may be a token or a share"),
                (lambda: its.begin("0.25", 100), "a budget of '0.25': want a number, of tokens from 1 up, or a share of the prompt below 1"),
                (lambda: library.Prefill(its, H, D, 200, None), "a budget of None: want a number"),
                (lambda: its.begin(8, its.window + 1), "the least is 9"),
                (lambda: its.begin(20.5, 100), "a budget of 20.5: want whole tokens from 1 up, or a share of the prompt between 0 and 1"),
            ):
                refused(message, make)
    library.load.cache_clear()
    with mock.patch.dict(os.environ, CKVC_LIBRARY="/nowhere"):
        refused("install it, or name it in CKVC_LIBRARY", library.load)


HOSTILE = """
import itertools, sys
import numpy as np
import ckvc
from ckvc import library
numbers = [-1, -(2**31), 2**32, 2**32 + 64, 2**64, 7, 0.5, None, "1"]
n_errors = 0
for name in ("one-layer", "shares", "learned"):
    t = library.Table.read(f"{sys.argv[1]}/table/{name}.ckvt")
    L, G, T, H = t.n_layers, t.n_heads, 64, t.n_query_heads
    D = t.theta.shape[2] - ckvc.FEATURES[t.score[0].features][0] if t.theta is not None else 4
    x = np.ones((1, D))
    shapes = [np.ones(n) for n in itertools.product((0, 1, 2, 65), repeat=2)] + [np.ones(()), np.ones(3), np.ones((1, 1, 1)), np.ones((L, G + 1, T))]
    prefill = library.Prefill(t, H, D, T, 0.25, np.ones(D // 2))
    fused = library.Prefill(t, H, D, T, 0.25, np.ones(D // 2), query_scale=1.0)
    begin = lambda *a, **k: library.Prefill(t, *a, **k)
    calls = [(begin, (H, D, T, 0.25, np.ones(D // 2)), {4: shapes}), (prefill.scores, (0, 0), {}), (prefill.candidates, (0,), {}),
             (lambda n_layers, n_kv_heads: begin(H, D, T, 0.25, None, 0.0, n_layers, n_kv_heads), (L, G), {}),
             (prefill.attention, (0, 0, np.ones((1, T)), 0), {2: shapes}), (prefill.cache, (0, 0, x, x, 0), {2: shapes, 3: shapes}), (fused.queries, (0, 0, x, 0), {2: shapes})]
    for call, good, arrays in calls:
        for at in range(len(good)):
            for bad in arrays.get(at, numbers):
                try:
                    call(*good[:at], bad, *good[at + 1 :])
                    assert not (isinstance(bad, int) and isinstance(good[at], int)) or bad == 7, (at, bad)
                except (ValueError, TypeError, ckvc.Error, library.ctypes.ArgumentError) as problem:
                    assert "\\n" not in str(problem)
                    n_errors += 1
print(n_errors)
"""


def test_hostile_arguments():
    """Indices and shapes that the library would take for addresses are errors; a crash would end the child."""
    with policy_library():
        child = subprocess.run([sys.executable, "-c", HOSTILE, GOLDEN], capture_output=True, text=True)
        assert child.returncode == 0 and int(child.stdout) > 500, child.stderr


def test_shares():
    t = ckvc.Table.read(golden("shares"))
    assert t.has_shares and t.share.tolist() == [[[1.75, 1.5], [0.25, 0.5]]] and t.layer_share.tolist() == [[1, 1]]
    assert t.score[0] == ckvc.Score("window", 32, 7, True, 0, "heads") and t.score[1].mode == "layers"
    # 100 tokens, B = 25, a floor of 9: 43.75 z and max(9, 6.25 z) may hold 50 together
    assert t.capacities(0, 100).tolist() == [[41, 9]]
    assert t.capacities(0, 100, mode="layers").tolist() == [25] and t.capacities(0, 100, budget=100).tolist() == [[100, 100]]
    for of, more in ((t, {"budget": 8}), (t, {"mode": "shared"}), (ckvc.Table.read(golden("one-layer")), {})):
        refused("", of.capacities, 0, 100, **more)


def test_lengths():
    t = ckvc.Table.read(golden("lengths"))
    assert t.score[0].mode == "lengths" and t.length_share.tolist() == [[1, 0.75]] and ckvc.Table.read(golden("shares")).length_share is None
    assert t.capacities(0, 100).tolist() == [25] and t.capacities(0, 100, mode="heads").tolist() == [[41, 9]]
    t.length_share = np.tile([1.0, 0.5, 1.0, 1.0], (2, 1)).T  # 40 z thrice and 20 z hold 160: 45 and 22, one more for the second and two for three, who do without
    assert t.capacities(0, 100, budget=40).tolist() == [45, 23, 45, 45]
    refused("mode lengths, but section SHARELEN is missing", ckvc.Table, "x", changed(bytes_of("shares"), "SCORE", 5, 3))
    refused("no shares for mode lengths", ckvc.Table.read(golden("shares")).capacities, 0, 100, mode="lengths")
    refused("section SHARELEN: shares are finite", ckvc.Table, "x", changed(bytes_of("lengths"), "SHARELEN", 0, -1))


def test_note_formats():
    """Engines say if they hold what is kept in other formats than a table was chosen for, and nothing of other tables."""
    def said(name, *asked):
        with contextlib.redirect_stderr(io.StringIO()) as err:
            ckvc.Table.read(golden(name)).note_formats(*asked)
        return err.getvalue()
    assert "held as q8_0/q4_0+rot, f16/bf16; here it keeps the model's own type" in said("bytes", range(2))
    assert "held as q8_0/q4_0+rot; here it is held as f16," in said("bytes", [0], ("f16", "f16"))
    assert said("bytes", [0], ("q8_0", "q4_0+rot")) == said("bank", range(2)) == said("bank", [0], ("f16", "f16")) == ""


def test_note_budget():
    """A budget that a table was not made for is served, and said; so is whose settings serve it. Tokens beside shares depend on the prompt."""
    t = ckvc.Table.read(os.path.join(ROOT, "docs/results/smollm2-135m/table.ckvt"))

    def said(table, budget):
        with contextlib.redirect_stderr(io.StringIO()) as err:
            table.note_budget(budget)
        return err.getvalue()
    assert "was made for budgets 0.0625, 0.125, 0.25; 0.3 is served with the settings of 0.25, and was not measured\n" in said(t, 0.3)
    assert "settings of 0.125," in said(t, 0.1)
    assert "0.25; 25 asks for that many tokens" in said(t, 25)
    assert said(t, 0.25) == said(t, None) == said(ckvc.Table.read(golden("shares")), 0.3) == ""


def test_bytes():
    t = ckvc.Table.read(golden("bytes"))
    assert t.byte_share.tolist() == [0.125, 0] and t.held == [("q8_0", "q4_0+rot"), ("f16", "bf16")]
    assert [t.holds(b) for b in range(2)] == ["q8_0/q4_0+rot", "f16/bf16"] and "held as q8_0/q4_0+rot" in t.info()
    assert t.byte_block(0.125) == 0
    refused("no budget was chosen for the share 0.1 of the bytes; it has 0.125", t.byte_block, 0.1)
    refused("it has 0.125", t.byte_block, 0)
    refused("it counts entries", ckvc.Table.read(golden("bank")).byte_block, 0.125)
    assert ckvc.Table.read(golden("bank")).byte_share is None and ckvc.Table.read(golden("bank")).held == [("f32", "f32")] * 2
    refused("section BYTES: want shares of the whole cache below 1", ckvc.Table, "x", changed(bytes_of("bytes"), "BYTES", 1, 0.125))
    refused("section HELD: a format is none that this reader knows", ckvc.Table, "x", changed(bytes_of("bytes"), "HELD", 3, 12))


def test_learned():
    t = ckvc.Table.read(golden("learned"))
    assert t.score[0] == ckvc.Score("learned", 64, 0, False, 1, "heads") and t.score[1].kind == "paper"
    assert t.theta.shape == (1, 2, 26) and t.theta[0, 0, :3].tolist() == [-5 / 16, 2 / 16, -2 / 16] and t.mass.tolist() == [[0.75, 0.25]]
    assert ckvc.Table.read(golden("shares")).theta is None


def test_example():
    """What an engine in C keeps of a whole prefill, made up as lib/policy/example/keep_set.c does: here by ctypes."""
    T = 64
    rows = np.tril(np.ones((T, T), np.float32)) / np.arange(1, T + 1, dtype=np.float32)[:, None]
    example = os.path.join(ROOT, "lib", "policy", "example", "keep_set.c")
    with built("-I", os.path.join(ROOT, "lib", "policy"), example) as keep_set, policy_library():
        for name in ("shares", "learned", "learned2"):
            t = library.Table.read(golden(name))
            dim = 8 if name == "shares" else 2
            cache = np.where(np.arange(T * dim) % 5, 0.25, -1.0).reshape(T, dim)
            p = library.Prefill(t, t.n_query_heads, dim, T, float(t.budgets[0]))
            kept = kept_by(handed(p, np.array([rows] * t.n_query_heads), [cache] * t.n_heads, [cache] * t.n_heads))[0]
            out = subprocess.run([keep_set, golden(name), str(dim)], capture_output=True, text=True, check=True).stdout
            assert out.splitlines()[0].split(": ")[1].split() == [str(t) for t in kept], (name, out)


def rebuilt(data, edit):
    """A table's bytes again after edit(sections), a list of [name, codec, type, dims, stored bytes, raw bytes], with every sum mended."""
    number = lambda at, size: int.from_bytes(data[at : at + size], "little")
    sections = []
    for at in range(128, 128 + 112 * number(48, 4), 112):
        dims, stored = [number(at + 16 + 8 * d, 8) for d in range(number(at + 12, 2))], data[number(at + 56, 8) :][: number(at + 64, 8)]
        sections.append([data[at : at + 8].rstrip(b"\0").decode(), number(at + 8, 2), number(at + 10, 2), dims, stored, None if number(at + 8, 2) else stored, data[at + 72 : at + 104]])
    edit(sections)
    header, directory, body, identity = bytearray(data[:128]), b"", b"", hashlib.sha256()
    begin = 128 + 112 * len(sections)
    for name, codec, kind, dims, stored, raw, digest in sections:
        body += bytes(-(begin + len(body)) % 64)
        digest = digest if raw is None else hashlib.sha256(raw).digest()
        entry = name.encode().ljust(8, b"\0") + codec.to_bytes(2, "little") + kind.to_bytes(2, "little") + len(dims).to_bytes(2, "little") + bytes(2)
        entry += b"".join(d.to_bytes(8, "little") for d in dims).ljust(40, b"\0") + (begin + len(body)).to_bytes(8, "little") + len(stored).to_bytes(8, "little")
        entry += digest + binascii.crc32(stored).to_bytes(4, "little") + bytes(4)
        directory, body = directory + entry, body + stored
        if name[0].isupper():
            identity.update(entry[:8] + entry[10:12] + entry[16:56] + digest)
    header[32:40] = (begin + len(body)).to_bytes(8, "little")
    header[48:52] = len(sections).to_bytes(4, "little")
    header[56:88] = identity.digest()
    header[120:124] = binascii.crc32(directory).to_bytes(4, "little")
    header[124:128] = binascii.crc32(header[:124]).to_bytes(4, "little")
    return bytes(header) + directory + body


def with_section(data, name, edit):
    """A table's bytes again after edit(section)."""
    return rebuilt(data, lambda sections: edit(next(s for s in sections if s[0] == name)))


def changed(data, name, index, value):
    """With one number of a raw section changed."""
    def edit(s):
        values = np.frombuffer(s[5], ckvc.table.TYPES[s[2]]).copy()
        values[index] = value
        s[4] = s[5] = values.tobytes()
    return with_section(data, name, edit)


def redimensioned(data, name, dims):
    """With other dimensions of a section, as many numbers."""
    def edit(s):
        s[3] = dims
    return with_section(data, name, edit)


def test_bad_sections():
    shares, good = bytes_of("shares"), bytes_of("learned")
    ckvc.Table("x", changed(shares, "SHARE", 0, 1.5))
    for name, index, value, message in (
        ("SHARE", 1, -1e-9, "section SHARE: shares are finite"), ("SHARE", 3, np.nan, "section SHARE: "),
        ("SHARELAY", 0, np.inf, "section SHARELAY: "),
        ("SHARELAY", 1, 0, "not all 0 in a block"), ("CMIN", 0, 1.25, "section CMIN[0]"), ("CMIN", 1, 0.5, "section CMIN[0]"),
        ("CMIN", 3, 64, "c_min is 65, above the 64 tokens"), ("SCORE", 0, 4, "score 4"), ("SCORE", 0, 3, "ranks by the bank's attention"), ("SCORE", 0, 2, "features of version 0"),
        ("SCORE", 4, 1, "features of version 1, but section THETA is missing"), ("SCORE", 1, 0, "window 0"), ("SCORE", 5, 4, "mode 4"),
    ):
        refused(message, ckvc.Table, "x", changed(shares, name, index, value))
    ckvc.Table("x", changed(good, "THETA", 0, 0.5))
    ckvc.Table("x", redimensioned(good, "THETA", (1, 2, 26)))
    for data, message in (
        (changed(good, "THETA", 51, np.nan), "section THETA: values are finite"),
        (changed(good, "MASS", 1, -1), "section MASS: values are finite, from 0 up"),
        (changed(good, "MASS", 0, np.inf), "section MASS: values are finite"),
        (changed(good, "SCORE", 1, 32), "section SCORE[0]: window 32, pool 0, norm 0: features of version 1 need 64 rows"),
        (changed(changed(good, "SCORE", 4, 3), "SCORE", 10, 3), "section SCORE[0]: features of version 3 are none that this reader knows"),
        (changed(changed(good, "SCORE", 4, 2), "SCORE", 10, 2), "section SCORE[0]: window 64, pool 0, norm 0: features of version 2 need 0 rows"),
        (changed(good, "SCORE", 10, 0), "section SCORE[1]: features of version 0, but of version 1 in SCORE[0]"),
        (redimensioned(good, "THETA", (2, 1, 26)), "section THETA: float32 (2, 1, 26), SHAPE wants (1, 2, 26)"),
        (redimensioned(good, "THETA", (1, 4, 13)), "section THETA: float32 (1, 4, 13)"),
        (redimensioned(good, "MASS", (2, 1)), "section MASS: float64 (2, 1), SHAPE wants (1, 2)"),
    ):
        refused(message, ckvc.Table, "x", data)


NUMBERS = [0, 1, -1, 2, 3, 8, 16, 0.5, 1.5, 65535, 65536, 2**31, 2**32 - 1, 2**32, 2**53, 2**53 + 1, 1e-50, 1e39, -0.0, math.nan, math.inf, -math.inf]
METAS = [b"", b"null", b"[]", b'"x"', b"{}", b"[" * 100000, b'{"a":' * 900 + b"1" + b"}" * 900, b'{"a":1,"a":2}', b"\xef\xbb\xbf{}", "{}".encode("utf-16")]
WORDS = ["1", "1.0", "true", "null", "-1", "1e999", "NaN", "-Infinity", "123456789012345678901", "[[1]]", '"paper"', '"visible"', '"\\u0000"', '"\\\\u0000"', '"\\ud800"', '"no-utility"', '"ckvc-table-2"', "8", "16"]


def mutated(rng, data):
    """Bytes of a table with one thing in it changed, and what."""
    done = []

    def edit(sections):
        s = sections[rng.integers(len(sections))]
        what = rng.integers(8)
        if s[2] and s[5] and what < 6:
            values = np.frombuffer(s[5], ckvc.table.TYPES[s[2]]).copy()
            if len(values):
                i = rng.integers(len(values))
                new = [values[i] * 2, values[i] + 1, -values[i].astype(float), np.nextafter(np.float32(values[i]), np.float32(9e9)), values[rng.integers(len(values))], *NUMBERS][rng.integers(5 + len(NUMBERS))]
                with np.errstate(all="ignore"):
                    values[i : i + 1] = np.array([new], float).astype(values.dtype)
                done.append((s[0], int(i), float(new)))
                s[4] = s[5] = values.tobytes()
        elif s[2] == 0 and s[5]:
            text = METAS[rng.integers(len(METAS))]
            meta = json.loads(s[5])
            if rng.integers(6):
                into = meta["shape"] if "shape" in meta and rng.integers(2) else meta
                key = [*into, "alpha_kind", "keep_window", "probe", "x"][rng.integers(len(into) + 4)]
                into[key] = "@"
                text = json.dumps(meta).replace('"@"', WORDS[rng.integers(len(WORDS))]).encode()
                if not rng.integers(10):
                    del into[key]
                    text = json.dumps(meta).encode()
            done.append((s[0], text[:300]))
            s[4] = s[5] = text
            s[3] = [len(text)]
        elif what == 6 and s[3]:
            s[3][rng.integers(len(s[3]))] = int(rng.integers(4))
            if s[5] is not None and math.prod(s[3]) * ckvc.table.TYPES[s[2]].itemsize <= len(s[5]) + 64:
                s[4] = s[5] = s[5].ljust(64 + len(s[5]), b"\0")[: math.prod(s[3]) * ckvc.table.TYPES[s[2]].itemsize]
            done.append((s[0], "dims", list(s[3])))
        elif what == 7:
            done.append((s[0], "type or codec", s[1], s[2]))
            s[1 + rng.integers(2)] = int(rng.integers(5))
        else:
            del sections[sections.index(s)]
            done.append((s[0], "away"))

    return rebuilt(data, edit), done


def inspected(path):
    return subprocess.run([PROGRAM, "inspect", path], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode


def test_same_as_program():
    """The reader takes what the program takes, and refuses the rest in one line: tables with one thing changed, every sum mended."""
    rng, n_taken = np.random.default_rng(7), 0
    tables = [bytes_of(os.path.basename(path)[:-5]) for path in sorted(glob.glob(golden("*")))]

    def compare(data, what):
        taken = inspected(put(path, data)) == 0
        try:
            assert ckvc.Table("x", data).skipped or taken, f"the program refuses {what}"
        except ckvc.Error as problem:
            assert not taken and "\n" not in str(problem), (what, problem)
        return taken

    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "t.ckvt")
        for _ in range(200):
            n_taken += compare(*mutated(rng, tables[rng.integers(len(tables))]))
        for section, index, values in (("SHAPE", 0, (0, 65536)), ("SHAPE", 1, (0, 3)), ("SHAPE", 6, (0,)), ("SHAPE", 7, (2,)), ("BUDGET", 0, (0, -1, 64.5, 2**32, math.nan)),
                                       ("GRIDHEAD", 0, (-1, math.nan)), ("GRIDHEAD", 2, (1e39, 1 + 1e-12)), ("EDGEENT", 0, (math.inf,))):
            for value in values:
                assert not compare(changed(tables[-2], section, index, value), (section, index, value))
    assert 40 < n_taken < 160


def test_size_of_sections():
    """What unpacks to more than its place in SHAPE, or all of a table to more than the format allows, is refused before it is unpacked."""
    good = bytes_of("evidence")
    for name, size, message in (("QHEAD", 2**30, "SHAPE wants"), ("pROV", 2**26 + 1, "when unpacked are more than"), ("QHEAD", 2**70, "SHAPE wants")):
        def edit(s):
            s[1], s[3], s[5] = 1, [size] if name == "pROV" else [1, 1, 1, size // 8], None
            s[3] = [min(n, 2**64 - 1) for n in s[3]]
        refused(message, ckvc.Table, "x", with_section(good, name, edit))
    with tempfile.TemporaryDirectory() as folder:
        for size, code in ((2**26, 0), (2**26 + 1, 65)):  # the program's bound is the same
            def long(s):
                s[1], s[3], s[4] = 0, [size], b"{}".ljust(size)
                s[5] = s[4]
            assert inspected(put(os.path.join(folder, "t.ckvt"), with_section(good, "pROV", long))) == code


def test_nearest_budget():
    """As ckvc_nearest_budget: the same cases as in tests/unit/lib/policy/test_operators.c."""
    t = ckvc.Table.read(golden("one-layer"))
    for budgets, cases in (
        ([512, 64, 256, 128], [(256, 1000, 2), (300, 1000, 2), (380, 1000, 0), (1, 1000, 1), (1e9, 1000, 0)]),
        ([400, 100], [(200, 1000, 1)]),
        ([150, 96], [(120, 1000, 1)]),
        ([0.25, 0.5, 400], [(0.5, 100, 1), (0.3, 100, 0), (300, 1000, 0), (350, 1000, 2), (0.375, 1000, 2), (250, 1000, 0)]),
    ):
        t.budgets, t.n_budgets = np.array(budgets, float), len(budgets)
        for budget, n_tokens, want in cases:
            assert t.nearest_budget(budget, n_tokens) == want, (budgets, budget, n_tokens)


def test_damage():
    for name in ("one-layer", "evidence", "shares", "lengths", "learned"):
        good = bytes_of(name)
        damaged = [good[:n] for n in range(len(good))] + [good + b"\0"]
        damaged += [good[:i] + bytes([good[i] ^ flip]) + good[i + 1 :] for i in range(len(good)) for flip in (1, 0x80)]
        for data in damaged:
            assert refused("", ckvc.Table, name, data).startswith(name)


def test_pointer():
    """What a clone without Git LFS leaves is named: by Python's reader, the library's, and the program's."""
    data = b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n"
    told = "a Git LFS pointer in the file's place; get the file: git lfs pull, or hf download"
    refused(told, ckvc.Table, "x", data)
    with tempfile.TemporaryDirectory() as folder:
        path = put(os.path.join(folder, "x.ckvt"), data)
        with policy_library():
            message = ctypes.create_string_buffer(512)
            assert library.load().ckvc_table_parse(b"x", data, len(data), ctypes.byref(ctypes.c_void_p()), message, 512)
            assert told in message.value.decode()
        if os.path.exists(PROGRAM):
            assert told in subprocess.run([PROGRAM, "inspect", path], capture_output=True, text=True).stderr


def test_rules_of_keys():
    """The keys of config.json that make another network, here and in the C program: by the value that does not, and by name."""
    def of(path, begin, end):
        with open(os.path.join(ROOT, path), encoding="utf-8") as f:
            return re.search(f"{begin}(.*?){end}", f.read(), re.DOTALL).group(1)
    rows = re.findall(r'\{((?:\s*"[^"]*")+),\s*([01]),\s*(\w+|"[^"]*")\}', of("formats/model/model_config.c", r"key_rule rules\[\] = ", r"\n\};"))
    theirs = {plain: sorted(key for words, p, why in rows if p == plain and why != "NULL" for key in re.sub('"', "", words).split()) for plain in "01"}
    mine = ast.literal_eval(of("python/ckvc/fingerprint.py", r"\nFOREIGN = ", r"\nNAMES"))
    theirs["1"].remove("partial_rotary_factor")  # which the rotary part's reading asks for
    assert theirs == {str(plain): sorted(keys.split()) for plain, keys in mine.items()} and len(theirs["0"]) > 20, (theirs, mine)


def test_python_example():
    example = os.path.join(ROOT, "python", "examples", "keep_library.py")
    with policy_library():
        for name, words in (("one-layer", "mode shared, score paper"), ("shares", "mode heads, score window"), ("lengths", "mode lengths, score window"), ("learned", "mode heads, score learned")):
            out = subprocess.run([sys.executable, example, golden(name)], capture_output=True, text=True, check=True).stdout
            assert words in out and "layer 0: " in out, out


def test_command_line():
    out, err = io.StringIO(), io.StringIO()
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        assert ckvc.__main__.main([golden("one-layer")]) == 0
        path = os.path.join(folder, "x.ckvt")
        assert ckvc.__main__.main([path]) == 66 and ckvc.__main__.main([put(path, "hello")]) == 65
    assert "1 KV heads of 2 query heads" in out.getvalue() and len(err.getvalue().splitlines()) == 2


if __name__ == "__main__":
    run_tests(globals())
