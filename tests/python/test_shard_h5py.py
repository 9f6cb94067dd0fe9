#!/usr/bin/env python3
"""Shards as another program sees them: h5py, and zstandard for what HDF5 has no filter for, against the rows that the unit tests' fixture makes. Also
what h5py writes by the description alone is looked at by tests/cli/fit.bats; h5py with hdf5plugin, as users have it, is in tests/outside."""
import os

from common import ROOT, need, run_tests

need("h5py", "numpy", "zstandard")
import h5py  # noqa: E402
import numpy as np  # noqa: E402

from unfolded import unfolded  # noqa: E402

GOLDEN = os.path.join(ROOT, "tests", "golden", "shard")
TYPES = {
    "prompt": {"id": "S255", "source": "S255", "split": "S255", "line": "<u4", "n_tokens": "<u4", "n_continuation": "<u4", "cut": "u1",
               "token_hash": "<u8", "r_struct": "<f8", "r_sem": "<f8", "loss_full": "<f8", "bin_entropy": "<u2", "bin_perplexity": "<u2"},
    "baseline": {"prompt": "<u4", "budget": "<u2", "loss": "<f8", "n_candidates": "<u4", "n_kept": "<u4", "n_kept_window": "<u4",
                 "n_candidates_lo": "<u4", "n_candidates_hi": "<u4"},
    "record": {"prompt": "<u4", "side": "u1", "layer": "<u2", "head": "<u2", "budget": "<u2", "action": "u1", "reward": "<f8", "baseline": "<f8",
               "loss": "<f8", "n_candidates": "<u4", "n_kept": "<u4", "set_hash": "<u8"},
}
STATISTICS = {"rho_sd": "<f8", "own_recent": "<f8", "own_entropy": "<f8"}
L, G, B, F, P = 2, 2, 3, 26, 6
LATER = {**{k: "<u4" for k in ("length_demand", "mixed_demand", "mixed_layer_demand", "mixed_length_demand")}, "mass": "<f8", "target": "<f8",
         "target_features": "<f8", "features": "<f4"}
WIDE = {"mixed_demand": (4, B, L, G), "mixed_layer_demand": (4, B, L), "mixed_length_demand": (4, B, L), "target_features": (L, G, F), "features": (L, G, P, F)}


def check_group(f, name, types):
    assert sorted(f[name]) == sorted(types), sorted(f[name])
    rows = len(f[name][next(iter(types))])
    for column, dtype in types.items():
        d = f[name][column]
        assert d.dtype == np.dtype(dtype), (name, column, d.dtype)
        assert d.shuffle and d.fletcher32 and "32015" in d._filters, (name, column, d._filters)
        assert len(d) == rows
        if d.ndim == 1:
            assert d.chunks == (max(1, min(65536, rows)),)
        else:
            assert d.shape[1:] == {"demand": (B, L, G), "layer_demand": (B, L), "length_demand": (B, L), **WIDE}.get(column, (L, G)[: d.ndim - 1])
            assert d.chunks == (max(1, 65536 // int(np.prod(d.shape[1:]))),) + d.shape[1:]
        assert unfolded(d).shape == d.shape
    return rows


def test_both():
    with h5py.File(os.path.join(GOLDEN, "both.h5"), "r") as f:
        a = f.attrs
        text = {k: a[k].decode() for k in ("format", "pass", "behaviour", "alpha_kind", "model_name", "family", "ckvc_version")}
        assert text == {"format": "ckvc-shard", "pass": "both", "behaviour": "balanced", "alpha_kind": "paper", "model_name": "fixture",
                        "family": "llama", "ckvc_version": "0.1.0"}
        assert (a["plan"], a["fingerprint"], a["manifest"]) == (b"a" * 64, b"b" * 64, b"c" * 64)
        assert [int(a[k]) for k in ("version", "n_layers", "n_heads", "n_kv_heads", "window", "continuation", "keep_window")] == [1, L, 4, G, 8, 16, 1]
        assert a["lambda"] == 1.0 and int(a["seed"]) == 0xFEDCBA9876543210
        assert a["head_actions"].tolist() == [(32 + i) / 40 for i in range(29)]
        assert a["gate_actions"].tolist() == [(80 + i) / 100 for i in range(21)]
        assert a["budgets"].tolist() == [0.25, 32.125, 64.0]
        assert a["edges_entropy"].tolist() == [1.5, 2.0] and a["edges_perplexity"].tolist() == [12.0]
        assert a["start_weight"].dtype == np.float32 and a["start_weight"].shape == (L, G, 3)
        assert a["start_tau"].shape == (L, 3, 2, 3) and a["start_tau"][0, 0, 0, 1] == np.float32(0.81)
        assert check_group(f, "prompt", TYPES["prompt"]) == 3
        assert check_group(f, "baseline", TYPES["baseline"]) == 9
        assert check_group(f, "record", TYPES["record"]) == 18
        assert [s.decode() for s in unfolded(f["prompt/id"])] == ["prompt-é-0", "prompt-é-1", "prompt-é-2"]
        assert unfolded(f["prompt/n_tokens"]).tolist() == [100, 101, 102] and unfolded(f["prompt/cut"]).tolist() == [0, 1, 0]
        r = f["record"]
        assert unfolded(r["prompt"]).tolist() == [0] * 6 + [1] * 6 + [2] * 6
        side, head, action = unfolded(r["side"]), unfolded(r["head"]), unfolded(r["action"])
        assert side.tolist() == [0, 1] * 9
        assert (head[side == 1] == 65535).all() and (head[side == 0] < G).all()
        assert (action[side == 1] < 21).all() and (action[side == 0] < 29).all()
        assert np.isfinite(unfolded(r["reward"])).all() and (np.abs(unfolded(r["reward"])) <= 0.5).all()
        assert len(set(unfolded(r["set_hash"]).tolist())) == 18
        assert unfolded(f["baseline/n_candidates_hi"]).tolist() == [[40, 41]] * 9


def test_scan():
    with h5py.File(os.path.join(GOLDEN, "scan.h5"), "r") as f:
        assert f.attrs["pass"] == b"scan" and "start_tau" not in f.attrs and "budgets" not in f.attrs
        assert check_group(f, "prompt", {**TYPES["prompt"], **STATISTICS}) == 2
        assert check_group(f, "record", TYPES["record"]) == 0
        assert f["prompt/rho_sd"].shape == (2, L, G) and (unfolded(f["prompt/rho_sd"]) > 0).all()


def test_demand():
    for name, statistics in ("demand.h5", {}), ("demand2.h5", STATISTICS), ("demand3.h5", {**STATISTICS, **LATER}):
        with h5py.File(os.path.join(GOLDEN, name), "r") as f:
            a = f.attrs
            assert a["pass"] == b"demand" and "start_tau" not in a and "head_actions" not in a and a["budgets"].tolist() == [0.25, 32.125, 64.0]
            assert (a["floor"], int(a["recent"]), a["repeat"].decode()) == (0.2, 8, "Once more, s'il te plaît.")
            assert check_group(f, "prompt", {**TYPES["prompt"], **statistics, "demand": "<u4", "layer_demand": "<u4"}) == 2
            assert check_group(f, "record", TYPES["record"]) == 0
            assert f["prompt/demand"].shape == (2, B, L, G) and (unfolded(f["prompt/demand"]) <= 101).all()


run_tests(globals().copy())
