#!/usr/bin/env python3
"""python/ckvt.py: the retention operator against the golden file and against itself by hand, the reader on good and on damaged tables."""
import binascii
import contextlib
import io
import json
import os
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "python"))
try:
    import numpy as np
except ImportError:
    print("skipped: python test_ckvt: numpy is not installed (apt-get install -y python3-numpy)")
    sys.exit(0)
import ckvt  # noqa: E402  (its folder was added above)

GOLDEN = os.path.join(ROOT, "tests", "golden")


def test_golden_retention():
    with open(os.path.join(GOLDEN, "method", "retention.json")) as f:
        cases = json.load(f)["cases"]
    assert len(cases) >= 9
    for c in cases:
        u = ckvt.utility(c["alpha"], c["rho"], c["W_head"])
        assert u.tolist() == c["u"], c["name"]
        kept, n_candidates = ckvt.retain(u, c["tau"], c["B"])
        assert (kept.tolist(), n_candidates) == (c["S"], c["n_cand"]), c["name"]


def test_retain_against_sort():
    rng = np.random.default_rng(3)
    for _ in range(2000):
        T = int(rng.integers(0, 40))
        u = rng.integers(0, 6, T) / 4.0
        tau, B, W = rng.integers(0, 7) / 4.0, int(rng.integers(0, T + 2)), int(rng.integers(0, T + 2)) * int(rng.integers(0, 2))
        candidates = [t for t in range(T) if u[t] >= tau or t >= T - W]
        want = sorted(sorted(candidates, key=lambda t: (t >= T - W, u[t], t), reverse=True)[:B])
        kept, n = ckvt.retain(u, tau, B, W)
        assert (kept.tolist(), n) == (want, len(candidates))


def test_read():
    t = ckvt.read(os.path.join(GOLDEN, "table", "one-layer.ckvt"))
    assert t.weight.shape == (1, 1, 1) and t.tau.shape == (1, 2, 1, 1) and t.window == 16 and t.n_query_heads == 2
    assert t.bins(4.0, 9.0) == (0, 0) and t.bins(4.75, 9.0) == (1, 0)
    assert t.budget_index(0.25) == 0
    # u = alpha * rho * 1.025; T = 8, a quarter of it kept: 2 of the candidates.
    kept, n = t.keep(0, 0, 0, 0, np.ones(8), np.array([[1, 2, 0.5, 1, 1, 1, 0, 0]]))
    assert kept.tolist() == [1, 5] and n == 5
    t = ckvt.read(os.path.join(GOLDEN, "table", "evidence.ckvt"))
    assert t.weight.shape == (1, 2, 2) and t.meta["label"] == "sample" and t.xfer == {"heads": "index"}
    assert set(t.skipped) <= {"QHEAD", "QGATE", "NHEAD", "NGATE", "MHEAD", "MGATE", "LGATE", "sHEAD", "sGATE", "hSIG"}
    if not t.skipped:
        assert t.sections["QHEAD"].shape == (1, 2, 2, 3) and t.sections["NGATE"][0, 0, 0, 0].tolist() == [2, 0, 0]


def test_operators():
    """A probe's table is kept by its own operator. mean-pool.ckvt: a fit with --operator mean-pool, transferred to 1 layer, 2 heads."""
    t = ckvt.read(os.path.join(GOLDEN, "table", "mean-pool.ckvt"))
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
    for flags, message in ((0, "operator paper"), (1, "operator no-utility"), (4, "flags 0x4"), (1 << 40, "flags 0x10000000000")):
        data[24:32] = flags.to_bytes(8, "little")
        data[124:128] = binascii.crc32(bytes(data[:124])).to_bytes(4, "little")
        try:
            ckvt.Table("x", bytes(data))
        except ckvt.Error as problem:
            assert message in str(problem), problem
        else:
            raise AssertionError(f"flags {flags} were read")


def test_nearest_budget():
    """As ckvc_nearest_budget: the same cases as in tests/unit/lib/policy/test_operators.c."""
    t = ckvt.read(os.path.join(GOLDEN, "table", "one-layer.ckvt"))
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
    for name in ("one-layer.ckvt", "evidence.ckvt"):
        with open(os.path.join(GOLDEN, "table", name), "rb") as f:
            good = f.read()
        damaged = [good[:n] for n in range(len(good))] + [good + b"\0"]
        damaged += [good[:i] + bytes([good[i] ^ flip]) + good[i + 1 :] for i in range(len(good)) for flip in (1, 0x80)]
        for data in damaged:
            try:
                ckvt.Table(name, data)
            except ckvt.Error as problem:
                assert str(problem).startswith(name) and "\n" not in str(problem), problem
            else:
                raise AssertionError(f"{name}: {len(data)} damaged bytes were read")


def test_command_line():
    out, err = io.StringIO(), io.StringIO()
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        assert ckvt.main(["ckvt.py", os.path.join(GOLDEN, "table", "one-layer.ckvt")]) == 0
        path = os.path.join(folder, "x.ckvt")
        assert ckvt.main(["ckvt.py", path]) == 66
        with open(path, "wb") as f:
            f.write(b"hello")
        assert ckvt.main(["ckvt.py", path]) == 65
    assert "1 KV heads of 2 query heads" in out.getvalue() and len(err.getvalue().splitlines()) == 2


if __name__ == "__main__":
    tests = [f for name, f in sorted(globals().items()) if name.startswith("test_")]
    for test in tests:
        test()
    print(f"python test_ckvt: {len(tests)} passed")
