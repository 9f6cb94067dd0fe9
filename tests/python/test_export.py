#!/usr/bin/env python3
"""`python3 -m ckvc export` and `import`: arrays as numpy reads them, layouts of other programs as numpy and json write them."""
import glob
import hashlib
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
from unittest import mock

from common import PROGRAM, ROOT, golden, need, put, run_tests

need("h5py", "numpy", "zstandard")
import h5py  # noqa: E402
import numpy as np  # noqa: E402

from unfolded import unfolded  # noqa: E402

MODEL = os.path.join(ROOT, "models", "ckvc-tiny-8l")  # 8 layers, 6 query heads on 3 KV heads
L, H, G = 8, 6, 3
rng = np.random.default_rng(15)
EXCHANGE = [sys.executable, "-m", "ckvc"]


def program(args):
    return (EXCHANGE if args[0] in ("export", "import") else [PROGRAM]) + [str(x) for x in args]


def ckvc(*args):
    done = subprocess.run(program(args), capture_output=True, text=True)
    assert done.returncode == 0, (args, done.stderr)
    return done.stdout


def cells(table):
    return json.loads(ckvc("inspect", table, "--json", "--cells"))


def refused(words, *args):
    done = subprocess.run(program(args), capture_output=True, text=True)
    assert done.returncode not in (0, 70) and words in done.stderr and done.stderr.count("\n") == 1, (args, done.returncode, done.stderr)


def read_columns(run, *names):
    """Columns of a run's shards as lists of numbers, by h5py."""
    files = [h5py.File(path) for path in sorted(glob.glob(os.path.join(run, "pass-*", "*.h5")))]
    return [sum((unfolded(f[name]).ravel().tolist() for f in files), []) for name in names]


def write_prompts(n):
    put("p.jsonl", "".join(json.dumps({"id": f"p{i}", "tokens": [0] + rng.integers(256, 1000, 90).tolist()}) + "\n" for i in range(n)))


def test_npz_by_numpy():
    for name in "evidence", "learned", "bytes", "shares":
        ckvc("export", golden(name), "--format", "npz", "--out", "a.npz", "-f")
        arrays, want = dict(np.load("a.npz")), cells(golden(name))
        for section, values in want.items():
            if section in arrays and isinstance(values, list):
                got = np.where(np.isfinite(arrays[section]), arrays[section].astype(float), np.nan)
                assert np.array_equal(got, np.array(values, float), equal_nan=True), (name, section)
        assert json.loads(bytes(arrays["META"])) == want["meta"]
        np.savez("b.npz", **arrays)  # numpy's own zip file, in another order
        ckvc("import", "b.npz", "--format", "npz", "--out", "b.ckvt", "-f")
        assert cells("b.ckvt")["content_id"] == want["content_id"], name
    np.savez_compressed("c.npz", **arrays)
    refused("numpy.savez", "import", "c.npz", "--format", "npz", "--out", "c.ckvt")
    np.savez("c.npz", **arrays | {"SHARE": arrays["SHARE"].astype("<f4")})
    refused("section SHARE", "import", "c.npz", "--format", "npz", "--out", "c.ckvt")
    np.savez("c.npz", **arrays | {"SHARE": arrays["SHARE"].astype("<i4")})
    refused("type <i4; those of |u1, <f4, <f8, <u4, <u8, <f2 are read", "import", "c.npz", "--format", "npz", "--out", "c.ckvt")
    np.savez("c.npz", **arrays | {"SHARE": np.asfortranarray(arrays["SHARE"].swapaxes(0, 1))})
    refused("row-major", "import", "c.npz", "--format", "npz", "--out", "c.ckvt")


def compilerkv(folder, weights, thresholds, edges, budgets, **more):
    """As CompiledTables.save writes it: float32 arrays, edges that were float32."""
    os.makedirs(folder, exist_ok=True)
    np.save(os.path.join(folder, "W_head.npy"), weights.astype(np.float32))
    np.save(os.path.join(folder, "T_gate.npy"), thresholds.astype(np.float32))
    manifest = {"format_version": 2, "source": "offline-calibration", "head_table": "W_head.npy", "gate_table": "T_gate.npy",
                "canonical_layers": weights.shape[-2], "num_heads": weights.shape[-1], "budget_values": budgets,
                "entropy_edges": np.float32(edges[0]).tolist(), "ppl_edges": np.float32(edges[1]).tolist(),
                "head_actions": np.linspace(0.8, 1.5, 29, dtype=np.float32).tolist(),
                "gate_actions": np.linspace(0.8, 1.0, 21, dtype=np.float32).tolist(), "cql": {"conservative_weight": 0.75}} | more
    put(os.path.join(folder, "manifest.json"), json.dumps(manifest, indent=2, sort_keys=True))


def test_compilerkv():
    per_kv = rng.choice(np.linspace(0.8, 1.5, 29, dtype=np.float32), (2, L, G))
    weights = per_kv.repeat(H // G, axis=-1)
    thresholds = rng.choice(np.linspace(0.8, 1.0, 21, dtype=np.float32), (2, L, 20, 4))
    edges = np.sort(rng.random(19)), [2.0, 4.0, 8.0]
    compilerkv("theirs", weights, thresholds, edges, [64, 256])
    ckvc("import", "theirs", "--format", "compilerkv", "--out", "q.ckvt", "-f")  # rows stay query heads
    ckvc("import", "theirs", "--format", "compilerkv", "--model", MODEL, "--out", "kv.ckvt", "-f")
    q, kv = cells("q.ckvt"), cells("kv.ckvt")
    assert q["SHAPE"] == [L, H, H, 20, 4, 2, 64, 1] and kv["SHAPE"] == [L, H, G, 20, 4, 2, 64, 0]
    assert np.array_equal(np.float32(q["WEIGHT"]), weights.transpose(1, 2, 0)) and np.array_equal(np.float32(kv["WEIGHT"]), per_kv.transpose(1, 2, 0))
    assert np.array_equal(np.float32(q["TAU"]), thresholds.transpose(1, 2, 3, 0)) and q["BUDGET"] == [64, 256]
    assert q["EDGEENT"] == np.float32(edges[0]).tolist() and q["GRIDHEAD"] == [(32 + a) / 40 for a in range(29)]
    for table in "q", "kv":  # and back: the same arrays, whichever axis the table has
        said = ckvc("export", table + ".ckvt", "--format", "compilerkv", "--out", "ours-" + table, "-f")
        assert ("query heads there" in said) == (table == "kv")
        assert np.array_equal(np.load(f"ours-{table}/W_head.npy"), weights) and np.array_equal(np.load(f"ours-{table}/T_gate.npy"), thresholds)
        manifest = json.load(open(f"ours-{table}/manifest.json"))
        assert manifest["format_version"] == 2 and manifest["budget_values"] == [64, 256] and manifest["entropy_edges"] == q["EDGEENT"]
        ckvc("import", "ours-" + table, "--format", "compilerkv", "--out", "again.ckvt", "-f")
        assert all(cells("again.ckvt")[name] == cells(table + ".ckvt")[name] for name in ("WEIGHT", "SHAPE"))
    # no axis of budgets: whoever imports says which
    compilerkv("one", weights[0], thresholds[0], edges, None)
    refused("--budget", "import", "one", "--format", "compilerkv", "--out", "x.ckvt")
    ckvc("import", "one", "--format", "compilerkv", "--budget", "0.25", "--out", "x.ckvt")
    assert cells("x.ckvt")["BUDGET"] == [0.25]
    refused("--length", "export", "x.ckvt", "--format", "compilerkv", "--out", "y")
    ckvc("export", "x.ckvt", "--format", "compilerkv", "--length", 1001, "--out", "y")
    assert json.load(open("y/manifest.json"))["budget_values"] == [250]
    refused("less than a token", "export", "x.ckvt", "--format", "compilerkv", "--length", 3, "--out", "z")
    refused("leave out --budget", "import", "theirs", "--format", "compilerkv", "--budget", "0.25", "--out", "z.ckvt")
    # what does not fit together
    uneven = weights.copy()
    uneven[0, 2, 1] = 1.5 if uneven[0, 2, 0] < 1.5 else 0.8
    for words, change in [("share a KV head", {"weights": uneven}), ("section WEIGHT", {"weights": weights + 0.003}), ("is nan", {"thresholds": thresholds * np.nan}),
                          ("layers", {"thresholds": thresholds[:, :-1]}), ("bins want", {"edges": (edges[0][1:], edges[1])}), ("budgets", {"budgets": [64]}),
                          ("section EDGEENT", {"edges": (edges[0][::-1], edges[1])}), ("plain file name", {"head_table": "../W_head.npy"}),
                          ("ckvc.window is no", {"ckvc": {"window": "64"}})]:
        compilerkv("bad", **{"weights": weights, "thresholds": thresholds, "edges": edges, "budgets": [64, 256]} | change)
        refused(words, "import", "bad", "--format", "compilerkv", "--model", MODEL, "--out", "x.ckvt", "-f")
    refused("heads budgets of their own", "export", golden("shares"), "--format", "compilerkv", "--out", "w")


def test_head_scores():
    scores = rng.random((L, G))
    scores[0, 0] = 0
    per_query = scores[:, :, None] + np.array([-0.5, 0.5]) * scores[:, :, None]  # whose mean is the KV head's
    os.makedirs("duo", exist_ok=True)
    np.savetxt("duo/full_attention_heads.tsv", scores, delimiter="\t")
    put("heads.json", json.dumps({f"{l}-{h}": [float(x), float(x)] for l in range(L) for h, x in enumerate(per_query[l].reshape(-1))}))
    np.save("heads.npy", scores)
    common = "--model", MODEL, "--budget", "0.125,64", "--kept-floor", "0.1", "-f"
    for path, name in ("duo", "duo-attention"), ("heads.json", "headkv"), ("heads.npy", "kvzip"):
        refused("--model", "import", path, "--format", name, "--budget", "0.25", "--out", "x.ckvt")
        refused("--budget", "import", path, "--format", name, "--model", MODEL, "--out", "x.ckvt")
        ckvc("import", path, "--format", name, "--out", name + ".ckvt", *common)
        t = cells(name + ".ckvt")
        assert t["SHAPE"][:3] == [L, H, G] and t["CMIN"] == [[0.1, 8]] * 2
        for b in 0, 1:
            np.testing.assert_allclose(np.array(t["SHARE"])[:, :, b], scores / scores.mean(), rtol=1e-12)
        refused("--budget", "export", name + ".ckvt", "--format", name, "--out", "out-" + name)
        said = ckvc("export", name + ".ckvt", "--format", name, "--budget", "64", "--out", "out-" + name)
        assert "query heads" in said if name == "headkv" else "rows are KV heads" in said
    graded = scores / scores.max()
    np.testing.assert_allclose(np.loadtxt("out-duo-attention/full_attention_heads.tsv", delimiter="\t"), graded, rtol=1e-12)
    np.testing.assert_allclose(np.load("out-kvzip"), graded, rtol=1e-6)
    heads = json.loads(open("out-headkv").readline())
    assert list(heads) == [f"{l}-{h}" for l in range(L) for h in range(H)]  # HeadKV reads them in this order
    np.testing.assert_allclose([x for (x,) in heads.values()], graded.repeat(H // G, axis=-1).reshape(-1), rtol=1e-12)
    for share in 0.25, 1, 1 / 24:
        ckvc("export", "kvzip.ckvt", "--format", "duo-attention", "--budget", "64", "--full-share", share, "--out", "full", "-f")
        full = np.loadtxt("full/full_attention_heads.tsv", delimiter="\t")
        best = np.argsort(-scores, axis=None)[:round(share * L * G)]
        assert np.array_equal(np.flatnonzero(full), np.sort(best)) and set(full.reshape(-1)) <= {0, 1}
    np.save("wide.npy", rng.random((L, H)))
    refused("8 layers of 6 KV heads", "import", "wide.npy", "--format", "kvzip", "--out", "x.ckvt", *common)
    np.save("below.npy", -scores)
    refused("score -", "import", "below.npy", "--format", "kvzip", "--out", "x.ckvt", *common)
    np.savetxt("duo/full_attention_heads.tsv", scores[:, :2], delimiter="\t")
    refused("line 1", "import", "duo", "--format", "duo-attention", "--out", "x.ckvt", *common)
    refused("no budgets by head", "export", golden("one-layer"), "--format", "headkv", "--out", "x")
    # what was imported is used like any other table
    write_prompts(2)
    ckvc("score", "--model", MODEL, "--manifest", "p.jsonl", "--table", "headkv.ckvt", "-C", 8, "--budget", "64", "--out", "s.jsonl", "-q")


def test_safetensors():
    for name in "evidence", "learned", "bytes", "shares":
        assert "--card hub/README.md" in ckvc("export", golden(name), "--format", "safetensors", "--out", "hub", "-f")
        ckvc("import", "hub", "--format", "safetensors", "--out", "back.ckvt", "-f")
        ckvc("verify", "back.ckvt", "hub/table.ckvt")
        assert cells("back.ckvt")["content_id"] == cells(golden(name))["content_id"] == cells("hub/table.ckvt")["content_id"]
        assert open("back.ckvt", "rb").read(14) == open(golden(name), "rb").read(14)  # up to the minor version
    data = open("hub/model.safetensors", "rb").read()
    for words, bad in [("no file of safetensors", data[:200]), ("no file of safetensors", b""), ("is no section", data.replace(b'"WEIGHT"', b'"WEIGHX"')),
                       ("section MASS", data.replace(b'"WEIGHT"', b'"MASS"  '))]:
        put("hub/model.safetensors", bad)
        refused(words, "import", "hub", "--format", "safetensors", "--out", "none")
    assert not os.path.exists("none")


def test_records():
    small = "--model", MODEL, "--window", 16, "--continuation", 16, "--manifest", "p.jsonl", "-q"
    write_prompts(3)
    ckvc("calibrate", *small, "--budget", "16,0.5", "--bins", "1,1", "--variants", 24, "--out", "run")
    ckvc("calibrate", *small, "--side", "demand", "--budget", "0.5", "--shard-prompts", 2, "--out", "demand")
    ckvc("calibrate", *small[:2], *small[4:], "--side", "score", "--out", "score")
    said = ckvc("export", "run", "--format", "records", "--out", "r.jsonl")
    records = [json.loads(line) for line in open("r.jsonl")]
    assert said.endswith(f"{len(records)} records\n") and {r["kind"] for r in records} == {"head", "gate"}
    assert ckvc("inspect", "run", "--records") == open("r.jsonl").read()
    columns = read_columns("run", "record/reward", "record/layer", "record/n_kept", "record/loss")
    assert [list(x) for x in zip(*columns)] == [[r[k] for k in ("reward", "layer", "kept", "compressed_loss")] for r in records]
    for r in records:
        assert r["budget"] in (16, r["sequence_length"] // 2) and ("kv_head" in r) == (r["kind"] == "head") and "head" not in r
        if r["kind"] == "head":
            assert abs(r["full_loss"] - r["compressed_loss"] - r["reward"]) < 1e-9
    ckvc("export", "demand", "--format", "records", "--out", "d.jsonl")
    demand = [json.loads(line) for line in open("d.jsonl")]
    assert [r["entries"] for r in demand] == read_columns("demand", "prompt/demand")[0] and sum(r["entries"] for r in demand[: L * G]) == demand[0]["budget"] * L * G
    assert [(r["prompt_id"], r["layer"], r["kv_head"]) for r in demand] == [(f"p{i}", l, g) for i in range(3) for l in range(L) for g in range(G)]
    ckvc("fit", "demand", "--out", "t.ckvt", "-q")
    for run, status in ("score", 65), ("nowhere", 66):
        done = subprocess.run(program(["export", run, "--format", "records", "--out", "none"]), capture_output=True, text=True)
        assert done.returncode == status and done.stderr.count("\n") == 1 and run in done.stderr, done.stderr
    with mock.patch.dict(os.environ, CKVC="no-such-program"):
        refused("build ckvc", "export", "run", "--format", "records", "--out", "none")
    refused("--records prints the records of a run", "inspect", "t.ckvt", "--records")
    assert not os.path.exists("none")


def replaced(name, **more):
    """What puts another dataset in the place of one."""
    def change(f):
        del f[name]
        f.create_dataset(name, **more)
    return change


def linked(name, link):
    def change(f):
        del f[name]
        f[name] = link
    return change


def test_records_of_hostile_shards():
    """A run that came from elsewhere, its journal made to fit: neither program reads beyond the shard, nor takes memory that the file does not have."""
    write_prompts(2)
    ckvc("calibrate", "--model", MODEL, "--window", 16, "--continuation", 16, "--manifest", "p.jsonl", "-q", "--side", "demand", "--budget", "0.5", "--out", "given")
    want = ckvc("inspect", "given", "--records")
    secret = put(os.path.abspath("secret.txt"), "TOP-SECRET-TOKEN".ljust(64, "."))
    deflate = dict(chunks=(1 << 20,), compression="gzip")
    hostile = [("external", replaced("prompt/id", shape=(2,), dtype="S32", external=[(secret.encode(), 0, 64)])),
               ("prompt", replaced("prompt/id", shape=(1 << 33,), dtype="u1", fillvalue=7, **deflate)),
               ("prompt", replaced("prompt/n_tokens", shape=(1 << 33,), dtype="<u4", fillvalue=7, **deflate)),
               ("prompt/demand", replaced("prompt/demand", shape=(2, 1, 1 << 20, 1 << 12), dtype="<u4", fillvalue=1, chunks=(1, 1, 1 << 10, 1 << 10), compression="gzip")),
               ("link", linked("prompt/id", h5py.SoftLink("/prompt/source"))), ("link", linked("prompt/id", h5py.ExternalLink("golden.h5", "/prompt/id"))),
               ("link", linked("prompt", h5py.ExternalLink(os.path.join(ROOT, "tests", "golden", "shard", "demand.h5"), "/prompt")))]
    for words, change in hostile + [("shard-00000.h5", None), ("the journal says", None)]:
        shutil.rmtree("run", ignore_errors=True)
        shutil.copytree("given", "run")
        shard, journal = "run/pass-01-demand/shard-00000.h5", open("run/journal.jsonl").read().splitlines()
        if change:
            with h5py.File(shard, "r+", libver=("v110", "v110")) as f:
                change(f)
        data = open(shard, "rb").read()
        if not change:
            data = data[:2000] + bytes(64) + data[2064:]
            put(shard, data)
        line = json.loads(journal[1])
        if words != "the journal says":
            line |= {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
        put("run/journal.jsonl", "".join(x + "\n" for x in [journal[0], json.dumps(line, sort_keys=True, separators=(",", ":"))]))
        refused(words, "inspect", "run", "--records")
        refused(words, "export", "run", "--format", "records", "--out", "none")
        assert not os.path.exists("none")
        shutil.copy(shard, f"given/pass-01-demand/shard-{len(os.listdir('given/pass-01-demand')):05}.h5")
    assert ckvc("inspect", "given", "--records") == want  # the same files, where the journal knows nothing of them
    ckvc("export", "given", "--format", "records", "--out", "given.jsonl")
    assert open("given.jsonl").read() == want
    assert resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss < 1 << 20  # KiB


def test_what_makes_no_sense():
    t = golden("shares")
    for words, *args in [("--format", "export", t, "--out", "x"), ("invalid choice", "export", t, "--format", "onnx", "--out", "x"),
                         ("--out", "export", t, "--format", "npz"), ("written, never read", "import", t, "--format", "gguf", "--out", "x"),
                         ("--length is of", "export", t, "--format", "npz", "--length", 100, "--out", "x"),
                         ("--budget is of", "export", t, "--format", "gguf", "--budget", 0.5, "--out", "x"),
                         ("not among the table's", "export", t, "--format", "headkv", "--budget", 0.77, "--out", "x"),
                         ("--model is of", "import", t, "--format", "npz", "--model", MODEL, "--out", "x"),
                         ("not a .npz file", "import", t, "--format", "npz", "--out", "x"),
                         ("model.safetensors", "import", os.path.dirname(t), "--format", "safetensors", "--out", "x"),
                         ("arrays, a table has at most", "import", MODEL, "--format", "safetensors", "--out", "x")]:
        refused(words, *args)
    ckvc("export", t, "--format", "npz", "--out", "once")
    refused("--force", "export", t, "--format", "npz", "--out", "once")
    ckvc("export", t, "--format", "npz", "--out", "once", "-f")
    assert not os.path.exists("x")
    for verb in "export", "import":  # of the program: gone, and it says where
        done = subprocess.run([PROGRAM, verb, t], capture_output=True, text=True)
        assert done.returncode == 64 and f"python3 -m ckvc {verb}" in done.stderr and done.stderr.count("\n") == 1


os.environ["CKVC"] = PROGRAM
with tempfile.TemporaryDirectory() as folder:
    os.chdir(folder)
    run_tests(globals().copy())
