#!/usr/bin/env python3
"""python/ckvc: the retention operator against the golden file and against itself by hand, budgets for heads bit for bit against the
policy library, the reader on good and on damaged tables."""
import binascii
import contextlib
import ctypes
import glob
import hashlib
import io
import json
import math
import os
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "python"))
try:
    import numpy as np
except ImportError:
    print("skipped: python test_ckvc: numpy is not installed (apt-get install -y python3-numpy)")
    sys.exit(0)
import ckvc  # noqa: E402  (its folder was added above)
import ckvc.__main__  # noqa: E402
import numpy_llama  # noqa: E402
import numpy_scores  # noqa: E402

GOLDEN = os.path.join(ROOT, "tests", "golden")


def test_golden_retention():
    with open(os.path.join(GOLDEN, "method", "retention.json")) as f:
        cases = json.load(f)["cases"]
    assert len(cases) >= 9
    for c in cases:
        u = ckvc.utility(c["alpha"], c["rho"], c["W_head"])
        assert u.tolist() == c["u"], c["name"]
        kept, n_candidates = ckvc.retain(u, c["tau"], c["B"])
        assert (kept.tolist(), n_candidates) == (c["S"], c["n_cand"]), c["name"]


def test_retain_against_sort():
    rng = np.random.default_rng(3)
    for _ in range(2000):
        T = int(rng.integers(0, 40))
        u = rng.integers(0, 6, T) / 4.0
        tau, B, W = rng.integers(0, 7) / 4.0, int(rng.integers(0, T + 2)), int(rng.integers(0, T + 2)) * int(rng.integers(0, 2))
        candidates = [t for t in range(T) if u[t] >= tau or t >= T - W]
        want = sorted(sorted(candidates, key=lambda t: (t >= T - W, u[t], t), reverse=True)[:B])
        kept, n = ckvc.retain(u, tau, B, W)
        assert (kept.tolist(), n) == (want, len(candidates))


def test_read():
    t = ckvc.Table.read(os.path.join(GOLDEN, "table", "one-layer.ckvt"))
    assert t.weight.shape == (1, 1, 1) and t.tau.shape == (1, 2, 1, 1) and t.window == 16 and t.n_query_heads == 2
    assert t.bins(4.0, 9.0) == (0, 0) and t.bins(4.75, 9.0) == (1, 0)
    assert t.budget_index(0.25) == 0
    # u = alpha * rho * 1.025; T = 8, a quarter of it kept: 2 of the candidates.
    kept, n = t.keep(0, 0, 0, 0, np.ones(8), np.array([[1, 2, 0.5, 1, 1, 1, 0, 0]]))
    assert kept.tolist() == [1, 5] and n == 5
    t = ckvc.Table.read(os.path.join(GOLDEN, "table", "evidence.ckvt"))
    assert t.weight.shape == (1, 2, 2) and t.meta["label"] == "sample" and t.xfer == {"heads": "index"}
    assert set(t.skipped) <= {"QHEAD", "QGATE", "NHEAD", "NGATE", "MHEAD", "MGATE", "LGATE", "sHEAD", "sGATE", "hSIG"}
    if not t.skipped:
        assert t.sections["QHEAD"].shape == (1, 2, 2, 3) and t.sections["NGATE"][0, 0, 0, 0].tolist() == [2, 0, 0]


def test_operators():
    """A probe's table is kept by its own operator. mean-pool.ckvt: a fit with --operator mean-pool, transferred to 1 layer, 2 heads."""
    t = ckvc.Table.read(os.path.join(GOLDEN, "table", "mean-pool.ckvt"))
    assert t.operator == "mean-pool" and t.meta["probe"] == "mean-pool"
    alpha, rho = np.array([1, 2, 1, 1]), np.array([[1, 1, 0.5, 1], [1, 0.5, 1, 0.75]])
    # weights 1.025 and 1.1: means 1.0625, 1.575, 0.806, 0.925 against 0.99; every maximum is over it
    kept, n = t.keep(0, 0, 0, 0, alpha, rho)
    assert kept.tolist() == [0, 1] and n == 2
    assert t.keep(0, 0, 0, 0, alpha, rho, budget=1)[0].tolist() == [1]
    t.operator = "paper"
    assert t.keep(0, 0, 0, 0, alpha, rho)[0].tolist() == [0, 1, 2, 3]
    t.operator = "no-utility"  # alpha * 1.1
    assert t.keep(0, 0, 0, 1, alpha, rho)[0].tolist() == [1, 3]  # half of 4; of the equal ones the later
    t.operator = "no-threshold"
    kept, n = t.keep(0, 0, 0, 1, 0.1 * alpha, rho)
    assert kept.tolist() == [1, 3] and n == 4  # 0 and 3 are equal
    with open(os.path.join(GOLDEN, "table", "mean-pool.ckvt"), "rb") as f:
        data = bytearray(f.read())
    for flags, message in ((0, "operator paper"), (1, "operator no-utility"), (4, "SHARE is missing"), (8, "section TAU"), (16, "flags 0x10"),
                           (1 << 40, "flags 0x10000000000")):
        data[24:32] = flags.to_bytes(8, "little")
        data[124:128] = binascii.crc32(bytes(data[:124])).to_bytes(4, "little")
        try:
            ckvc.Table("x", bytes(data))
        except ckvc.Error as problem:
            assert message in str(problem), problem
        else:
            raise AssertionError(f"flags {flags} were read")


def test_golden_budgets():
    with open(os.path.join(GOLDEN, "budgets", "ckvc-tiny-4l.json")) as f:
        golden = json.load(f)
    cases = [(c["share"], c["B"], c["T"], c["f"], c["recent"], c["capacities"]) for c in golden["capacities"]]
    for p in golden["prompts"]:
        for B, kept in p["kept"].items():
            counts = [[len(set_) for set_ in layer] for layer in kept["window_w32_k7_norm"]]
            share = np.array(p["demand"][B], float) / int(B)
            cases.append((share, int(B), len(p["tokens"]), golden["f"], golden["recent"], counts))
    assert len(cases) > len(golden["capacities"]) >= 8
    for share, B, T, f, recent, want in cases:
        try:
            assert ckvc.capacities(share, B, T, ckvc.head_floor(f, recent, B, T)).tolist() == want
        except ckvc.Error as problem:
            assert want is None and "the least is 9" in str(problem)
        else:
            assert want is not None


@contextlib.contextmanager
def built(*options):
    """lib/policy as a shared library, or with more sources a program: its path."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "built")
        sources = glob.glob(os.path.join(ROOT, "lib", "policy", "*.c"))
        subprocess.run([os.environ.get("CC", "cc"), "-std=c11", "-D_GNU_SOURCE", "-O2", "-ffp-contract=off", "-I", ROOT, *options,
                        "-o", path, *sources, "-lm"], check=True)
        yield path


@contextlib.contextmanager
def library():
    with built("-shared", "-fPIC") as path:
        yield ctypes.CDLL(path)


def at(array):
    return array.ctypes.data_as(ctypes.c_void_p)


def test_against_library():
    """Capacities, scores and sets: the library's, bit for bit."""
    rng = np.random.default_rng(11)
    with library() as c:
        c.ckvc_head_floor.argtypes = (ctypes.c_double,) + (ctypes.c_uint32,) * 3
        c.ckvc_score_paper.argtypes = (ctypes.c_uint32, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_double, ctypes.c_void_p)
        c.ckvc_count_above.argtypes = (ctypes.c_uint32, ctypes.c_void_p, ctypes.c_uint32, ctypes.c_double)
        refused = ragged = cut = 0
        for _ in range(600):
            L, G, T = (int(x) for x in rng.integers(1, (6, 5, 200)))
            B, recent, f = int(rng.integers(1, T + 9)), int(rng.integers(0, 10)), float(rng.random())
            share = np.where(rng.random((L, G)) < 0.2, 0.0, np.exp2(rng.integers(-20, 20, (L, G)) / 4.0))
            floor = ckvc.head_floor(f, recent, B, T)
            assert c.ckvc_head_floor(f, recent, B, T) == floor
            counts = np.zeros((L, G), np.uint32)
            if c.ckvc_capacities(at(share), L * G, 1, B, T, floor, at(counts)):
                refused += 1
                try:
                    ckvc.capacities(share, B, T, floor)
                except ckvc.Error as problem:
                    assert str(problem) == f"a budget of {B} tokens is below what every head must keep; the least is {floor}"
                else:
                    raise AssertionError("a budget below its floor")
                continue
            assert np.array_equal(ckvc.capacities(share, B, T, floor), counts)
            ragged += len(set(counts.ravel().tolist())) > 1
            alpha, rho, pool = rng.random(T).astype(np.float32), rng.random(T).astype(np.float32), int(rng.choice((1, 3, 7)))
            attention, norm = rng.choice((0.0, 0.25, 1 / 3, 0.7), T) * rng.random(), rng.random(T) if T % 2 else None
            s, kept, scratch = np.zeros(T), np.zeros(T, np.uint32), np.zeros(T, np.uint32)
            c.ckvc_score_paper(T, at(alpha), at(rho), 1.025, at(s))
            assert np.array_equal(ckvc.score_paper(alpha, rho, 1.025), s)
            c.ckvc_score_window(T, at(attention), pool, None if norm is None else at(norm), at(s))
            assert np.array_equal(numpy_scores.score_window(attention, pool, norm), s)
            n = c.ckvc_retain_head(T, at(s), recent, int(counts[0, 0]), at(kept), at(scratch))
            assert ckvc.head_sets([s], counts[:1, 0], recent)[0].tolist() == kept[:n].tolist()
            if T % 5 == 0:
                s[rng.integers(0, T)] = np.nan
            for tau in (0, 0.25, 1, 4):
                above = ckvc.count_above(s, recent, tau)
                assert c.ckvc_count_above(T, at(s), recent, tau) == above >= min(recent + 1, T)
                cut += above < T
        assert refused > 20 and ragged > 100 and cut > 100


class HeadView(ctypes.Structure):
    """ckvc_head_view"""
    _fields_ = ([(name, ctypes.c_uint32) for name in ("n_tokens", "head_dim", "group", "n_rows")]
                + [(name, ctypes.c_void_p) for name in ("attention", "keys", "values", "inv_freq")])


def library_features(c, version, attention, layer_attention, alpha, keys, values, inv_freq):
    (group, n_rows, T), head_dim = attention.shape, keys.shape[1]
    D = c.ckvc_features_count(version, head_dim)
    f, scratch = np.zeros((T, D)), np.zeros((2, T))
    view = HeadView(T, head_dim, group, n_rows, at(attention), at(keys), at(values), None if inv_freq is None else at(inv_freq))
    c.ckvc_features(version, ctypes.byref(view), at(f), at(scratch))
    if c.ckvc_features_rows(version):
        c.ckvc_features_late(T, at(layer_attention), at(alpha), D, ctypes.c_void_p(f.ctypes.data + 8 * 10))
    return f


def test_learned_against_library():
    """Features to 1e-9, of keys as cached and before rotation; from the same features the same score to the bit; the same sets."""
    rng = np.random.default_rng(5)
    with library() as c:
        c.ckvc_score_learned.argtypes = (ctypes.c_uint32, ctypes.c_double, ctypes.c_void_p, ctypes.c_void_p)
        for _ in range(60):
            T, group, head_dim = (int(x) for x in rng.integers(1, (180, 4, 9)))
            head_dim *= 2
            attention = (rng.random((group, min(64, T), T)) ** 8 / T).astype(np.float32)
            attention[:, :, rng.random(T) < 0.3] = 0.0  # below the logs' floor
            keys, values = (rng.standard_normal((T, head_dim)).astype(np.float32) for _ in range(2))
            inv_freq = rng.random(head_dim // 2) if T % 2 else None
            inputs = attention, rng.random(T) / T, rng.random(T), keys, values, inv_freq
            version = int(rng.integers(1, 3))
            want, got = library_features(c, version, *inputs), numpy_scores.features(*inputs, version=version)
            D = {1: 24, 2: 11}[version] + head_dim
            assert got.shape == want.shape == (T, D) and np.abs(got - want).max() <= 1e-9
            if version == 2:
                assert np.array_equal(want, library_features(c, 1, *inputs)[:, 13:])
                assert np.array_equal(got, numpy_scores.features(None, None, None, *inputs[3:], version=2))
            theta, mass = (rng.standard_normal(D) / 4).astype(np.float32), float(rng.random() + 0.01)
            norm, s, kept, scratch = rng.random(T), np.zeros(T), np.zeros(T, np.uint32), np.zeros(T, np.uint32)
            c.ckvc_linear_form(T, D, at(want), at(theta), at(s))
            c.ckvc_score_learned(T, mass, at(norm), at(s))
            assert np.array_equal(numpy_scores.score_learned(want, theta, mass, norm), s)
            n = c.ckvc_retain_head(T, at(s), 8, max(T // 3, 9), at(kept), at(scratch))
            mine = ckvc.retain_head(numpy_scores.score_learned(got, theta, mass, norm), 8, max(T // 3, 9))
            assert mine.tolist() == kept[:n].tolist()


def test_library_table():
    """ckvc.library: capacities, bins, sets of every mode and the paper's, to the bit those of numpy; a prefill by ctypes; what is refused."""
    rng = np.random.default_rng(9)
    with built("-shared", "-fPIC") as path:
        os.environ["CKVC_LIBRARY"] = path
        from ckvc import library
        library.load.cache_clear()
        compared = 0
        for name in ("one-layer", "mean-pool", "shares", "learned", "learned2"):
            path = os.path.join(GOLDEN, "table", name + ".ckvt")
            mine, its = ckvc.Table.read(path), library.Table.read(path)
            for _ in range(20):
                T, r_struct, r_sem = int(rng.integers(60, 300)), 10 * rng.random(), 20 * rng.random()
                budget, cell = float(rng.choice((0.25, 40, 64, 0.9))), mine.bins(r_struct, r_sem)
                b = mine.nearest_budget(budget, T)
                assert its.bins(r_struct, r_sem) == cell and its.nearest_budget(budget, T) == b
                alpha, rho = rng.random(T), rng.random((mine.n_heads, T))
                (kept, n), (its_kept, its_n) = (t.keep(0, *cell, b, alpha, rho, budget=budget) for t in (mine, its))
                assert kept.tolist() == its_kept.tolist() and n == its_n
                with np.errstate(divide="ignore"):
                    s = np.log(rng.integers(0, 9, (mine.n_layers, mine.n_heads, T)) * rng.random())
                for mode in ("heads", "layers") if mine.has_shares else ():
                    if mode == "layers" and mine.layer_share is None:
                        continue
                    assert np.array_equal(mine.capacities(b, T, mode, budget), its.capacities(b, T, mode, budget))
                    for one, other in zip(*(np.ravel(np.array(t.sets(b, s, mode, budget, cell), object)) for t in (mine, its))):
                        assert np.array_equal(one, other)
                    compared += 1
        assert compared > 60
        for name in ("learned", "learned2"):
            its = library.Table.read(os.path.join(GOLDEN, "table", name + ".ckvt"))
            H, G, D, inv_freq = its.n_query_heads, its.n_heads, its.theta.shape[2] - ckvc.FEATURES[its.score[0].features][0], rng.random(1)
            for T in (65, 200):
                rows, values = rng.random((H, T, T)).astype(np.float32) ** 8 * np.tri(T, dtype=np.float32), rng.standard_normal((2, G, T, D)).astype(np.float32)
                rows /= rows.sum(axis=2, keepdims=True)
                p, keys, values = library.Prefill(its, H, D, T, 0.25, inv_freq), *values
                last, b = rows[:, T - min(64, T) :], its.nearest_budget(0.25, T)
                assert p.rows == ckvc.FEATURES[its.score[b].features][1] and not p.needs_r_sem
                for h in range(H) if p.rows else ():
                    p.attention(0, h, last[h, :20])
                    p.attention(0, h, last[h, 20:], first_row=20)
                for g in range(G):
                    p.cache(0, g, keys[g], values[g])
                alpha, group, s = its.window_alpha(rows[:, -its.window :].sum(axis=(0, 1), dtype=float)), H // G, []
                for g in range(G):
                    f = numpy_scores.features(last[g * group : (g + 1) * group], last.mean(axis=(0, 1), dtype=float), alpha, keys[g], values[g], inv_freq, its.score[b].features)
                    s.append(numpy_scores.score_learned(f, its.theta[0, g], its.mass[0, g], np.linalg.norm(values[g].astype(float), axis=1)))
                assert [x.tolist() for x in p.keep()[0]] == [x.tolist() for x in its.sets(b, [s], budget=0.25)[0]]
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
                (lambda: ckvc.Table.read(os.path.join(GOLDEN, "table", "mean-pool.ckvt")).check_model(1, 2, 2, 2), "a probe's table, fitted for the operator mean-pool"),
                (lambda: its.check_model(7, H, G, D), "the model has 7 x"),
                (lambda: its.check_model(1, H + G, G, D), f"is for {H} query heads, the model has {H + G}"),
                (lambda: its.check_model(1, H, G, D + 2), f"its learned score is for keys of {D} values, the model's have {D + 2}"),
                (lambda: its.begin(1.0, 100), "a budget of 1.0, which may be a token or a share: write 1 for 1 token, 0.99 for nearly all of a prompt"),
                (lambda: library.Prefill(its, H, D, 200, 1.0), "a budget of 1.0, which may be a token or a share"),
                (lambda: its.begin(8, its.window + 1), "the least is 9"),
                (lambda: its.begin(20.5, 100), "a budget of 20.5: want whole tokens from 1 up, or a share of the prompt between 0 and 1"),
            ):
                try:
                    make()
                except ckvc.Error as problem:
                    assert message in str(problem) and "\n" not in str(problem), problem
                else:
                    raise AssertionError(f"no error: {message}")
    os.environ["CKVC_LIBRARY"] = "/nowhere"
    library.load.cache_clear()
    try:
        library.load()
    except ckvc.Error as problem:
        assert "install it, or name it in CKVC_LIBRARY" in str(problem)


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
    alpha, rho, s, x = np.ones(T), np.ones((G, T)), np.ones((L, G, T)), np.ones((1, D))
    shapes = [np.ones(n) for n in itertools.product((0, 1, 2, 65), repeat=2)] + [np.ones(()), np.ones(3), np.ones((1, 1, 1)), np.ones((L, G + 1, T))]
    prefill = library.Prefill(t, H, D, T, 0.25, np.ones(D // 2))
    fused = library.Prefill(t, H, D, T, 0.25, np.ones(D // 2), query_scale=1.0)
    begin = lambda *a, **k: library.Prefill(t, *a, **k)
    calls = [(t.keep, (0, 0, 0, 0, alpha, rho, 0, 0.25), {4: shapes, 5: shapes}), (t.nearest_budget, (0.25, T), {}), (begin, (H, D, T, 0.25, np.ones(D // 2)), {4: shapes}),
             (lambda n_layers, n_kv_heads: begin(H, D, T, 0.25, None, 0.0, n_layers, n_kv_heads), (L, G), {}),
             (prefill.attention, (0, 0, np.ones((1, T)), 0), {2: shapes}), (prefill.cache, (0, 0, x, x, 0), {2: shapes, 3: shapes}), (fused.queries, (0, 0, x, 0), {2: shapes})]
    if t.has_shares:
        calls += [(t.capacities, (0, T, "heads", 0.25), {}), (t.sets, (0, s, "heads", 0.25), {1: shapes}), (lambda e, p: t.sets(0, s, cell=(e, p)), (0, 0), {})]
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
    with built("-shared", "-fPIC") as path:
        env = {**os.environ, "CKVC_LIBRARY": path, "PYTHONPATH": os.path.join(ROOT, "python")}
        child = subprocess.run([sys.executable, "-c", HOSTILE, GOLDEN], env=env, capture_output=True, text=True)
        assert child.returncode == 0 and int(child.stdout) > 500, child.stderr


def test_golden_features():
    """From the tokens on, in numpy alone; tolerances in tests/golden/budgets/README.md."""
    with open(os.path.join(GOLDEN, "budgets", "ckvc-tiny-4l.json")) as f:
        golden = json.load(f)
    compared = 0
    for p in golden["prompts"]:
        T = len(p["tokens"])
        layers, inv_freq = numpy_llama.prefill(os.path.join(ROOT, "models", "ckvc-tiny-4l"), p["tokens"], 64)
        alpha = T * np.mean([a.mean(axis=(0, 1)) for _, _, a in layers], axis=0)
        for name, rows in p["features"].items():
            layer, head = map(int, name.split(","))
            keys, values, a = layers[layer]
            group = len(a) // len(keys)
            own = a[head * group : (head + 1) * group]
            f = numpy_scores.features(own, a.mean(axis=(0, 1)), alpha, keys[head], values[head], inv_freq)
            for t, want in rows.items():
                got, want = f[int(t)], np.array(want)
                small = (np.arange(len(want)) < 13) & (want < np.log(1e-5))
                assert (np.abs(np.exp(got[:13]) - np.exp(want[:13])) <= 1e-9)[small[:13]].all(), (name, t)
                assert (np.abs(got - want) <= 2e-4)[~small].all(), (name, t)
                compared += 1
    assert compared > 30


def test_shares():
    t = ckvc.Table.read(os.path.join(GOLDEN, "table", "shares.ckvt"))
    assert t.has_shares and t.share.tolist() == [[[1.75, 1.5], [0.25, 0.5]]] and t.layer_share.tolist() == [[1, 1]]
    assert t.score[0] == ckvc.Score("window", 32, 7, True, 0, "heads") and t.score[1].mode == "layers"
    # 100 tokens, B = 25, a floor of 9: 43.75 z and max(9, 6.25 z) may hold 50 together
    counts = t.capacities(0, 100)
    assert counts.tolist() == [[41, 9]]
    assert t.capacities(0, 100, mode="layers").tolist() == [25] and t.capacities(0, 100, budget=100).tolist() == [[100, 100]]
    scores = np.log(np.arange(1, 201).reshape(1, 2, 100))
    kept = t.sets(0, scores, budget=9)
    assert [x.tolist() for x in kept[0]] == [[0, *range(92, 100)]] * 2
    kept = t.sets(1, scores, budget=20)
    assert [x.tolist() for x in kept] == [[0, *range(81, 100)]]
    for wrong in (lambda: t.capacities(0, 100, budget=8), lambda: t.capacities(0, 100, mode="shared"),
                  lambda: ckvc.Table.read(os.path.join(GOLDEN, "table", "one-layer.ckvt")).capacities(0, 100)):
        try:
            wrong()
        except ckvc.Error as problem:
            assert "\n" not in str(problem)
        else:
            raise AssertionError("no error")


def test_learned():
    t = ckvc.Table.read(os.path.join(GOLDEN, "table", "learned.ckvt"))
    assert t.score[0] == ckvc.Score("learned", 64, 0, False, 1, "heads") and t.score[1].kind == "paper"
    assert t.theta.shape == (1, 2, 26) and t.theta[0, 0, :3].tolist() == [-5 / 16, 2 / 16, -2 / 16] and t.mass.tolist() == [[0.75, 0.25]]
    assert ckvc.Table.read(os.path.join(GOLDEN, "table", "shares.ckvt")).theta is None
    rows, vectors = np.full((1, 64, 100), 0.01), np.ones((100, 2))
    inputs = [rows, rows[0, 0], np.ones(100), vectors, vectors]
    f = numpy_scores.features(*inputs)
    norm = np.arange(1.0, 101.0)
    s = numpy_scores.score_learned(f, t.theta[0, 0], t.mass[0, 0], norm)
    assert abs(np.sum(np.exp(s) / norm) - 0.75) < 1e-12
    for wrong, message in (
        (lambda: numpy_scores.features(*inputs, version=3), "features of version 3 are none that this reader knows"),
        (lambda: numpy_scores.features(rows[:, 32:], *inputs[1:]), "a window of 32 rows: features of version 1 need the last 64"),
        (lambda: numpy_scores.score_learned(f, t.theta[0, 0, :24], 1.0, norm), "26 features a token, but theta has 24"),
    ):
        try:
            wrong()
        except ckvc.Error as problem:
            assert str(problem) == message
        else:
            raise AssertionError(f"no error: {message}")


def test_example():
    """What an engine in C keeps of a whole prefill, made up as lib/policy/example/keep_set.c does: here from the scores' own functions."""
    T = 64
    rows = np.tril(np.ones((T, T), np.float32)) / np.arange(1, T + 1, dtype=np.float32)[:, None]
    example = os.path.join(ROOT, "lib", "policy", "example", "keep_set.c")
    with built("-I", os.path.join(ROOT, "lib", "policy"), example) as keep_set:
        for name in ("shares", "learned", "learned2"):
            path = os.path.join(GOLDEN, "table", name + ".ckvt")
            t = ckvc.Table.read(path)
            dim = 8 if name == "shares" else 2
            cache = np.where(np.arange(T * dim) % 5, 0.25, -1.0).reshape(T, dim)
            norm, alpha = np.linalg.norm(cache, axis=1), T / t.window * rows[-t.window :].sum(axis=0, dtype=float)
            if name != "shares":
                f = numpy_scores.features(rows[None], rows.mean(axis=0, dtype=float), alpha, cache, cache, version=t.score[0].features)
                s = numpy_scores.score_learned(f, t.theta[0, 0], t.mass[0, 0], norm)
            else:
                s = numpy_scores.score_window(rows[-t.score[0].window :].mean(axis=0, dtype=float), t.score[0].pool, norm)
            kept = ckvc.retain_head(s, 8, t.capacities(0, T)[0, 0])
            out = subprocess.run([keep_set, path], capture_output=True, text=True, check=True).stdout
            assert out.splitlines()[0].split(": ")[1].split() == [str(t) for t in kept], (name, out)


def changed(data, name, index, value):
    """A table's bytes with one number of a raw section changed and every sum mended."""
    data, n, identity = bytearray(data), int.from_bytes(data[48:52], "little"), hashlib.sha256()
    for at_entry in range(128, 128 + 112 * n, 112):
        entry = memoryview(data)[at_entry : at_entry + 112]
        if bytes(entry[:8]).rstrip(b"\0") == name.encode():
            offset, stored = (int.from_bytes(entry[k : k + 8], "little") for k in (56, 64))
            values = np.frombuffer(data, ckvc.table.TYPES[entry[10]], offset=offset, count=stored // ckvc.table.TYPES[entry[10]].itemsize)
            values[index] = value
            entry[72:104] = hashlib.sha256(data[offset : offset + stored]).digest()
            entry[104:108] = binascii.crc32(data[offset : offset + stored]).to_bytes(4, "little")
        if entry[0] < ord("a"):
            identity.update(bytes(entry[:8]) + bytes(entry[10:12]) + bytes(entry[16:56]) + bytes(entry[72:104]))
    data[56:88] = identity.digest()
    data[120:124] = binascii.crc32(data[128 : 128 + 112 * n]).to_bytes(4, "little")
    data[124:128] = binascii.crc32(data[:124]).to_bytes(4, "little")
    return bytes(data)


def test_bad_shares():
    with open(os.path.join(GOLDEN, "table", "shares.ckvt"), "rb") as f:
        good = f.read()
    ckvc.Table("x", changed(good, "SHARE", 0, 1.5))
    for name, index, value, message in (
        ("SHARE", 1, -1e-9, "section SHARE: shares are finite"), ("SHARE", 3, np.nan, "section SHARE: "),
        ("SHARELAY", 0, np.inf, "section SHARELAY: "),
        ("SHARELAY", 1, 0, "not all 0 in a block"), ("CMIN", 0, 1.25, "section CMIN[0]"), ("CMIN", 1, 0.5, "section CMIN[0]"),
        ("CMIN", 3, 64, "c_min is 65, above the 64 tokens"), ("SCORE", 0, 3, "score 3"), ("SCORE", 0, 2, "features of version 0"),
        ("SCORE", 4, 1, "features of version 1, but section THETA is missing"), ("SCORE", 1, 0, "window 0"), ("SCORE", 5, 3, "mode 3"),
    ):
        try:
            ckvc.Table("x", changed(good, name, index, value))
        except ckvc.Error as problem:
            assert message in str(problem) and "\n" not in str(problem), problem
        else:
            raise AssertionError(f"{name}[{index}] = {value} was read")


def redimensioned(data, name, dims):
    """The same with other dimensions of a section, as many numbers."""
    data = bytearray(data)
    entry = data.index(name.encode().ljust(8, b"\0"), 128)
    for d, n in enumerate(dims):
        data[entry + 16 + 8 * d : entry + 24 + 8 * d] = n.to_bytes(8, "little")
    return changed(data, name, 0, 0.25)


def test_bad_learned():
    with open(os.path.join(GOLDEN, "table", "learned.ckvt"), "rb") as f:
        good = f.read()
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
        try:
            ckvc.Table("x", data)
        except ckvc.Error as problem:
            assert message in str(problem) and "\n" not in str(problem), problem
        else:
            raise AssertionError(f"no error: {message}")


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


def test_same_as_program():
    """The reader takes what the program takes, and refuses the rest in one line: tables with one thing changed, every sum mended."""
    program, rng, n_taken, tables = os.environ.get("CKVC", os.path.join(ROOT, "build", "release", "ckvc")), np.random.default_rng(7), 0, []
    for path in sorted(glob.glob(os.path.join(GOLDEN, "table", "*.ckvt"))):
        with open(path, "rb") as f:
            tables.append(f.read())

    def compare(data, what):
        with open(path, "wb") as f:
            f.write(data)
        taken = subprocess.run([program, "inspect", path], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode == 0
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
    with open(os.path.join(GOLDEN, "table", "evidence.ckvt"), "rb") as f:
        good = f.read()
    for name, size, message in (("QHEAD", 2**30, "SHAPE wants"), ("pROV", 2**26 + 1, "when unpacked are more than"), ("QHEAD", 2**70, "SHAPE wants")):
        def edit(sections):
            s = next(s for s in sections if s[0] == name)
            s[1], s[3], s[5] = 1, [size] if name == "pROV" else [1, 1, 1, size // 8], None
            s[3] = [min(n, 2**64 - 1) for n in s[3]]
        try:
            ckvc.Table("x", rebuilt(good, edit))
        except ckvc.Error as problem:
            assert message in str(problem), problem
        else:
            raise AssertionError(f"{name} of {size} bytes was unpacked")
    with tempfile.TemporaryDirectory() as folder:
        for size, refused in ((2**26, 0), (2**26 + 1, 65)):  # the program's bound is the same
            def long(sections):
                s = next(s for s in sections if s[0] == "pROV")
                s[1], s[3], s[4] = 0, [size], b"{}".ljust(size)
                s[5] = s[4]
            path = os.path.join(folder, "t.ckvt")
            with open(path, "wb") as f:
                f.write(rebuilt(good, long))
            program = os.environ.get("CKVC", os.path.join(ROOT, "build", "release", "ckvc"))
            assert subprocess.run([program, "inspect", path], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode == refused


def test_nearest_budget():
    """As ckvc_nearest_budget: the same cases as in tests/unit/lib/policy/test_operators.c."""
    t = ckvc.Table.read(os.path.join(GOLDEN, "table", "one-layer.ckvt"))
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
    for name in ("one-layer.ckvt", "evidence.ckvt", "shares.ckvt", "learned.ckvt"):
        with open(os.path.join(GOLDEN, "table", name), "rb") as f:
            good = f.read()
        damaged = [good[:n] for n in range(len(good))] + [good + b"\0"]
        damaged += [good[:i] + bytes([good[i] ^ flip]) + good[i + 1 :] for i in range(len(good)) for flip in (1, 0x80)]
        for data in damaged:
            try:
                ckvc.Table(name, data)
            except ckvc.Error as problem:
                assert str(problem).startswith(name) and "\n" not in str(problem), problem
            else:
                raise AssertionError(f"{name}: {len(data)} damaged bytes were read")


def test_python_example():
    for name, words in (("one-layer", "mode shared, score paper"), ("shares", "positions that each keeps"), ("learned", "mode heads, score learned")):
        out = subprocess.run([sys.executable, os.path.join(ROOT, "python", "examples", "keep_numpy.py"), os.path.join(GOLDEN, "table", name + ".ckvt")],
                             env={**os.environ, "PYTHONPATH": os.path.join(ROOT, "python")}, capture_output=True, text=True, check=True).stdout
        assert words in out and "layer 0: " in out, out


def test_command_line():
    out, err = io.StringIO(), io.StringIO()
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        assert ckvc.__main__.main([os.path.join(GOLDEN, "table", "one-layer.ckvt")]) == 0
        path = os.path.join(folder, "x.ckvt")
        assert ckvc.__main__.main([path]) == 66
        with open(path, "wb") as f:
            f.write(b"hello")
        assert ckvc.__main__.main([path]) == 65
    assert "1 KV heads of 2 query heads" in out.getvalue() and len(err.getvalue().splitlines()) == 2


if __name__ == "__main__":
    tests = [f for name, f in sorted(globals().items()) if name.startswith("test_")]
    for test in tests:
        test()
    print(f"python test_ckvc: {len(tests)} passed")
