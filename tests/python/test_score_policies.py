#!/usr/bin/env python3
"""Every policy of `ckvc score` against numpy: what it keeps, recomputed from the table's arrays and the prompt's vectors alone.

Runs the program ($CKVC) on the embedded 4-layer model: a calibration, a fit, then scores without continuations and with --sets."""
import json
import os
import subprocess
import tempfile

from common import PROGRAM, ROOT, need, put, run_tests

need("h5py", "numpy")
import h5py  # noqa: E402
import numpy as np  # noqa: E402

import ckvc as ckvt  # noqa: E402  (ckvc() runs the program)

MODEL = os.path.join(ROOT, "models", "ckvc-tiny-4l")
W = 16
REFERENCES = ["recent", "sink-recent", "random", "top-k", "window", "window-pooled"]
CONTROLS = ["no-utility", "no-threshold", "mean-gate", "mean-pool", "head-only", "gate-only"]


def ckvc(*args):
    done = subprocess.run([PROGRAM, *map(str, args)], capture_output=True, text=True)
    assert done.returncode == 0, (args, done.stderr)
    return done.stdout


def write_prompts(path, n):
    rng = np.random.default_rng(7)
    with open(path, "w") as f:
        for i in range(n):
            tokens = [0] + [int(x) for x in np.where(rng.random(80 + 5 * i) < 0.2, 300 + i, rng.integers(256, 1400, 80 + 5 * i))]
            f.write(json.dumps({"id": f"p{i}", "source": "even" if i % 2 == 0 else "odd", "tokens": tokens}) + "\n")


def first_of(rank, n):
    """Positions of the n largest, of equal ones the later, ascending."""
    return sorted(sorted(range(len(rank)), key=lambda t: (rank[t], t), reverse=True)[:n])


def retain(u, tau, B):
    candidates = [t for t in range(len(u)) if u[t] >= tau]
    return sorted(sorted(candidates, key=lambda t: (u[t], t), reverse=True)[:B]), len(candidates)


def snapped(grid, x):
    nearest = min(abs(v - x) for v in grid)
    return min(v for v in grid if abs(v - x) <= nearest + 1e-12)  # 0.805 lies between 0.80 and 0.81


def nearest_block(table, B, T):
    """Least |log(b / B)|, ties to the lower: in logarithms, as the specification has it, with room for their rounding."""
    tokens = [b if b >= 1 else b * T for b in table.budgets]
    distance = [abs(np.log(b / (B if B >= 1 else B * T))) for b in tokens]
    exact = [i for i, b in enumerate(table.budgets) if b == B]
    best = min(distance)
    near = [i for i, d in enumerate(distance) if d <= best + 1e-12]
    return exact[0] if exact else min(near, key=lambda i: tokens[i])


def table_set(table, kind, layer, cell, block, B, alpha, rho):
    """What a table, or a control of it (under the table's operator, or the one that it is named after), keeps in one layer;
    alpha [T], rho [G, T] as double."""
    w = np.array([table.head_grid[a] for a in table.head_action[layer, :, block]])
    taus = np.array([[table.gate_grid[a] for a in row] for row in table.gate_action[layer, :, :, block]])
    tau = taus[cell]
    operator = kind if kind in ckvt.table.OPERATORS else table.operator
    if kind == "mean-gate":
        tau = snapped(table.gate_grid, sum(taus.ravel()) / taus.size)
    if kind == "head-only":
        tau = snapped(table.gate_grid, 0.9)
    if kind == "gate-only":
        w[:] = snapped(table.head_grid, 1.0)
    x = alpha[None, :] * rho * w[:, None]
    if operator == "no-utility":
        u = alpha * w.max()
    elif operator == "mean-pool":
        u = sum(x[1:], x[0]) / len(x)  # from the first head on
    else:
        u = x.max(axis=0)
    if operator == "no-threshold":
        tau = -np.inf
    return retain(u, tau, B)


def pooled(alpha):
    before = len(alpha) - W
    return [max(alpha[max(0, t - 3) : min(before, t + 4)]) for t in range(before)] + [np.inf] * W


def reference_set(kind, n, alpha, rho):
    """What a reference keeps in the layer whose value norms are rho [G, T]."""
    T = len(alpha)
    n = min(n, T)
    if kind == "recent":
        return list(range(T - n, T))
    if kind == "sink-recent":
        return sorted(set(range(min(4, n))) | set(range(T - (n - min(4, n)), T)))
    rank = {"top-k": (alpha * rho).max(axis=0), "window": alpha, "window-pooled": pooled(alpha)}
    return first_of(rank[kind], n)


class World:
    """One calibrated table with its fits under every operator, and the scores of 4 other prompts."""

    def __init__(self, folder):
        self.folder = folder
        write_prompts(self.at("prompts.jsonl"), 9)
        self.common = ["--model", MODEL, "--manifest", self.at("prompts.jsonl"), "--window", W, "-q"]
        for op in ("paper", "no-utility", "no-threshold", "mean-pool"):
            ckvc("calibrate", *self.common, "--continuation", 16, "--budget", "12,0.5", "--bins", "2,2", "--min-cell", 1, "--variants", 24,
                 "--side", "head" if op == "no-threshold" else "both", "--operator", op, "--out", self.at(op))
            ckvc("fit", self.at(op), "--out", self.at(op + ".ckvt"), "-q")

    def at(self, name):
        return os.path.join(self.folder, name)

    def score(self, tables, *options):
        out, vectors = self.at("s.jsonl"), self.at("v.h5")
        ckvc("score", *self.common, "--continuation", 0, "--sets", "--vectors", vectors, "--out", out, "--force", "--limit", 5,
             *(["--table", ",".join(self.at(t + ".ckvt") for t in tables)] if tables else []), *options)
        with open(out) as f:
            lines = [json.loads(line) for line in f]
        vec = {}
        with h5py.File(vectors) as f:
            for group in f.values():
                name = group.attrs["id"]
                vec[name if isinstance(name, str) else name.decode()] = group["alpha"][:].astype(float), group["rho"][:].astype(float)
        return lines, vec


def check_counts(row):
    assert row["loss_comp"] is None and row["reward"] is None  # without a continuation
    for layer, kept in enumerate(row["sets"]):
        assert kept == sorted(set(kept)) and row["n_kept"][layer] == len(kept)
        assert row["n_kept_window"][layer] == sum(t >= row["T"] - W for t in kept)


def budget_tokens(b, T):
    return int(b) if b >= 1 else int(np.floor(b * T))


def test_tables_and_controls(world):
    for op in ("paper", "no-utility", "no-threshold", "mean-pool"):
        table = ckvt.Table.read(world.at(op + ".ckvt"))
        assert table.operator == op
        lines, vectors = world.score([op], "--policy", ",".join(CONTROLS))
        assert len(lines) == 5 * 2 * (1 + len(CONTROLS))
        different = set()
        for row in lines:
            check_counts(row)
            alpha, rho = vectors[row["id"]]
            assert row["table"] == table.content_id and row["policy"] in CONTROLS + ["table"]
            assert row.get("operator") == (op if row["policy"] == "table" and op != "paper" else None)
            cell = table.bins(row["r_struct"], row["r_sem"])
            assert (row["bin_entropy"], row["bin_perplexity"]) == cell
            for layer, kept in enumerate(row["sets"]):
                b = table.budget_index(row["budget"])
                B = budget_tokens(row["budget"], row["T"])
                want, n = table_set(table, row["policy"], layer, cell, b, B, alpha, rho[layer])
                assert (kept, row["n_candidates"][layer]) == (want, n), (op, row["policy"], row["id"], layer)
                same, _ = table_set(table, "table", layer, cell, b, B, alpha, rho[layer])
                if kept != same:
                    different.add(row["policy"])
        if op == "paper":
            assert different == set(CONTROLS), different  # each changes something, so each was tested


def test_references(world):
    lines, vectors = world.score([], "--policy", ",".join(REFERENCES), "--budget", "2,12,40,0.5,500")
    assert len(lines) == 5 * 5 * len(REFERENCES)
    random = {}
    for row in lines:
        check_counts(row)
        alpha, rho = vectors[row["id"]]
        n = min(budget_tokens(row["budget"], row["T"]), row["T"])
        assert row["table"] is None
        assert row["policy"] == "top-k" or all(s == row["sets"][0] for s in row["sets"])
        assert row["n_kept"] == [n] * 4 and row["n_candidates"] == [row["T"]] * 4
        if row["policy"] == "random":
            random.setdefault(row["id"], []).append(row["sets"][0])
        else:
            for layer, positions in enumerate(row["sets"]):
                assert positions == reference_set(row["policy"], n, alpha, rho[layer]), (row["policy"], row["id"], row["budget"], layer)
    for sets in random.values():  # one order per prompt: larger budgets add to smaller ones
        sets.sort(key=len)
        assert all(set(a) <= set(b) for a, b in zip(sets, sets[1:]))
        assert sets[1] != list(range(sets[1][0], sets[1][0] + 12))
    assert len({tuple(s[1]) for s in random.values()}) == len(random)


def test_equal_tokens(world):
    tables = {t.content_id: t for t in (ckvt.Table.read(world.at(name + ".ckvt")) for name in ("paper", "mean-pool"))}
    lines, vectors = world.score(["paper", "mean-pool"], "--policy", ",".join(REFERENCES), "--equal-tokens", "--budget", "30", "--nearest-budget")
    assert len(lines) == 5 * 2 * (1 + len(REFERENCES))
    kept = {(row["id"], row["table"]): row for row in lines if row["policy"] == "table"}
    uneven = 0
    for row in lines:
        check_counts(row)
        alpha, rho = vectors[row["id"]]
        like = kept[row["id"], row["table"]]
        assert row["n_kept"] == like["n_kept"]
        uneven += len(set(row["n_kept"])) > 1
        for layer, positions in enumerate(row["sets"]):
            if row["policy"] == "table":
                table = tables[row["table"]]
                b = nearest_block(table, 30, row["T"])
                want, _ = table_set(table, "table", layer, table.bins(row["r_struct"], row["r_sem"]), b, 30, alpha, rho[layer])
                assert positions == want
            elif row["policy"] != "random":
                assert positions == reference_set(row["policy"], like["n_kept"][layer], alpha, rho[layer]), (row["policy"], layer)
    assert uneven  # tables that keep different numbers in different layers: what the option is for


def test_shares(world):
    """A table with shares: what every head, or layer, keeps under the paper's score, and top-k at its capacities."""
    ckvc("calibrate", *world.common, "--continuation", 16, "--side", "demand", "--budget", "16,0.5", "--out", world.at("demand"))
    ckvc("fit", world.at("demand"), "--out", world.at("shares.ckvt"), "--bootstrap", 0, "-q")
    table = ckvt.Table.read(world.at("shares.ckvt"))
    for mode in ("heads", "layers"):
        lines, vectors = world.score(["shares"], "--mode", mode, "--ranking", "paper", "--policy", "top-k,streamingllm", "--equal-tokens")
        assert len(lines) == 5 * 2 * 3
        different = 0
        for row in lines:
            alpha, rho = vectors[row["id"]]
            b, T = table.budget_index(row["budget"]), row["T"]
            assert row["mode"] == mode and "score" not in row and row["bin_entropy"] is None
            counts = table.capacities(b, T, mode)
            assert row["n_kept"] == counts.tolist() and row["entries"] == counts.sum() * (1 if mode == "heads" else 3)
            if row["policy"] == "streamingllm":
                flat = [s for x in row["sets"] for s in (x if mode == "heads" else [x])]
                assert flat == [first_of([2 * T - t if t < 4 else t for t in range(T)], n) for n in counts.ravel()]
                continue
            forced = [t == 0 or t >= T - table.c_min[b][1] for t in range(T)]
            rank = np.where(forced, np.inf, alpha * rho)  # weights of a table by demand are 1: top-k is the same
            rank = rank if mode == "heads" else rank.max(axis=1)
            want = [[first_of(s, n) for s, n in zip(*x)] if mode == "heads" else first_of(*x) for x in zip(rank, counts)]
            assert row["sets"] == want, (row["policy"], row["id"])
            different += len({len(s) for s in row["sets"]}) > 1 or mode == "heads" and counts.std() > 0
        assert different


def test_layer_budgets(world):
    budgets = [8, 40, 16, 12]
    put(world.at("layers.txt"), "# B of each layer\n" + "\n".join(map(str, budgets)) + "\n")
    table = ckvt.Table.read(world.at("paper.ckvt"))
    lines, vectors = world.score(["paper"], "--policy", "identity,recent,mean-gate,matched", "--layer-budgets", world.at("layers.txt"))
    assert len(lines) == 5 * 5
    total = {"table": 0, "matched": 0}
    for row in lines:
        check_counts(row)
        alpha, rho = vectors[row["id"]]
        assert row["layer_budgets"] == budgets and row["budget"] == 19
        for layer, positions in enumerate(row["sets"]):
            if row["policy"] == "recent":
                want = reference_set("recent", budgets[layer], alpha, rho[layer])
            elif row["policy"] in ("identity", "matched"):
                want, _ = retain((alpha * rho[layer]).max(axis=0), 0.9 if row["policy"] == "identity" else row["tau"], budgets[layer])
            else:
                b = nearest_block(table, budgets[layer], row["T"])
                cell = table.bins(row["r_struct"], row["r_sem"])
                want, _ = table_set(table, row["policy"], layer, cell, b, budgets[layer], alpha, rho[layer])
            assert positions == want, (row["policy"], layer)
        if row["policy"] in total:
            total[row["policy"]] += sum(row["n_kept"])
    assert abs(total["table"] - total["matched"]) <= 0.02 * total["table"], total


def test_refusals(world):
    for options, word in (
        (["--policy", "recent", "--equal-tokens"], "--table"),
        (["--policy", "mean-gate"], "--table"),
        (["--policy", "table"], "--policy"),
        (["--policy", "recent,recent"], "twice"),
        (["--policy", "windowed"], "window-pooled"),
        (["--policy", "recent", "--layer-budgets", "no-such-file"], "no-such-file"),
    ):
        done = subprocess.run([PROGRAM, "score", *map(str, world.common), "--continuation", "0", *options], capture_output=True, text=True)
        assert done.returncode in (64, 66) and word in done.stderr and len(done.stderr.splitlines()) == 1, (options, done)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        run_tests(globals(), World(scratch))
