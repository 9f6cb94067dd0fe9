#!/usr/bin/env python3
"""What the package writes and reads, by the rules of docs/cli.md: outputs whole or not there, inputs never overwritten, nothing through links; bounds of
what files count; one line and a status whatever a file holds."""
import contextlib
import fcntl
import glob
import json
import os
import re
import signal
import struct
import subprocess
import sys
import tempfile
import time
import zlib
from unittest import mock

from common import ROOT, golden, need, put, run_tests

need("numpy", "h5py", "zstandard")
import numpy as np  # noqa: E402
from ckvc import Error, Table, exchange, files, run_writer  # noqa: E402

MODEL = os.path.join(ROOT, "models", "ckvc-tiny-8l")  # 8 layers, 6 query heads on 3 KV heads
T = golden("shares")
READ_MAX = 1 << 30  # bytes of address space that a command may take


def ckvc(*args, **more):
    words = [sys.executable, "-m", "ckvc", *map(str, args)]
    limit = f"ulimit -v {READ_MAX >> 10}; exec \"$@\""
    return subprocess.run(["bash", "-c", limit, "bash", *words], capture_output=True, text=True, timeout=60, **{"env": {**os.environ, "OPENBLAS_NUM_THREADS": "1"}, **more})


def refused(status, words, *args):
    done = ckvc(*args)
    assert done.returncode == status and words in done.stderr and done.stderr.count("\n") == 1 and not done.stdout, (args, done.returncode, done.stderr)


def raises(kind, words, call, *args, **more):
    try:
        call(*args, **more)
    except kind as why:
        assert words in str(why), why
        return why
    raise AssertionError((words, "was taken"))


def test_one_writer():
    """What makes, renames or locks files stands in files.py alone; numpy's savers write to memory. to_records writes to the name that `begun` gave."""
    writes = re.compile(r"\bopen\([^\n]*[\"'][rbt]*[wax+]|\bos\.(open|replace|rename|link|symlink|truncate|mkdir)\(|\bshutil\b|\btempfile\b|\bfcntl\b|"
                        r"\.write_(text|bytes)\(|\.tofile\(|\bnp\.save[a-z_]*\((?!f,)|\bsavetxt\(")
    found = []
    for path in glob.glob(os.path.join(ROOT, "python", "ckvc", "*.py")):
        with open(path, encoding="utf-8") as f:
            text = re.sub(r"\ndef to_records\(.*?(?=\n\w)", "", f.read(), flags=re.S)
        found += [f"{os.path.basename(path)}: {m[0]}" for m in writes.finditer(text) if os.path.basename(path) != "files.py"]
    assert found == ["__main__.py: os.open("], found  # of /dev/null
    with open(files.__file__, encoding="utf-8") as f:
        assert len(writes.findall(f.read())) > 8  # it can find


def test_publish():
    put("there", "old")
    raises(FileExistsError, "is there already", files.publish, "there", b"new")
    os.link("there", "same")
    for name in "there", "same", "./there":
        raises(FileExistsError, "is an input", files.publish, name, b"new", True, ["nowhere", "there"])
    os.symlink("there", "link")
    raises(FileExistsError, "no regular file", files.publish, "link", b"new", True)
    raises(FileExistsError, "is a folder", files.publish, ".", b"new", True)
    raises(FileExistsError, "the folder nowhere is not there", files.publish, "nowhere/a", b"new")
    os.makedirs("model", exist_ok=True)
    put("model/config.json", "{}")
    raises(FileExistsError, "in a folder that is one", files.publish, "model/config.json", b"new", True, ["model"])
    files.publish("model/scores", b"new", False, ["model"])
    assert open("there").read() == "old" and not glob.glob("*.tmp.*")
    files.publish("there", b"new", True)
    assert open("there").read() == "new" and open("same").read() == "old"
    with contextlib.suppress(ZeroDivisionError), files.begun("never") as made:
        put(made, "half")
        1 / 0
    with contextlib.suppress(FileExistsError), files.begun("late") as made:  # which appears meanwhile
        put(made, "ours")
        put("late", "theirs")
    assert open("late").read() == "theirs" and not os.path.exists("never") and not glob.glob("*.tmp.*")


def test_temporaries():
    """Those of killed processes go with the next file of that name; one that is held stays."""
    names = [f"{x}.tmp.{16 * c}" for x in ("t", "other") for c in "0f"]
    for name in names[:-1]:
        put(name, "half")
    os.makedirs(names[-1] + "/in")
    with open(names[0]) as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        files.publish("t", b"")
    assert [os.path.exists(x) for x in names] == [True, False, True, True]
    files.sweep("")
    assert not any(map(os.path.exists, names))


def test_owned():
    with files.owned("owned") as f:
        f.write(b"12\n")
        assert raises(Error, "process 12 is writing here", files.owned, "owned").status == 75
    with files.owned("owned", shared=True), files.owned("owned", shared=True) as f:
        assert f.read() == b"" and f.seek(0) == 0 and f.read() == b"12\n"
    os.symlink("owned", "owned-link")
    raises(FileExistsError, "is a link", files.owned, "owned-link")
    os.mkfifo("owned-fifo")
    raises(OSError, "not a regular file", files.owned, "owned-fifo")


def test_exchange_keeps_inputs():
    for name in ("own.ckvt", "hub/table.ckvt"):
        os.makedirs("hub", exist_ok=True)
        with open(T, "rb") as f:
            put(name, f.read())
    refused(73, "own.ckvt: is an input", "export", "own.ckvt", "--format", "npz", "-o", "own.ckvt", "--force")
    refused(73, "hub/table.ckvt: is an input", "export", "hub/table.ckvt", "--format", "safetensors", "-o", "hub", "-f")
    refused(73, "is a folder; give a file name", "export", T, "--format", "npz", "-o", "hub", "--force")
    refused(73, "hub: is there already", "export", T, "--format", "safetensors", "-o", "hub")
    refused(73, "own.ckvt: is a link, or no folder", "export", T, "--format", "safetensors", "-o", "own.ckvt", "-f")
    refused(73, "the folder none is not there", "export", T, "--format", "npz", "-o", "none/x.npz")
    done = ckvc("export", T, "--format", "safetensors", "-o", "hub", "-f")  # beside what is there
    assert done.returncode == 0 and len(os.listdir("hub")) == 3
    refused(73, "hub/table.ckvt: is an input, or in a folder", "import", "hub", "--format", "safetensors", "-o", "hub/table.ckvt", "-f")
    refused(73, "is a folder", "import", "hub", "--format", "safetensors", "-o", ".", "-f")
    with open(T, "rb") as f, open("own.ckvt", "rb") as own:
        assert f.read() == own.read()
    assert not glob.glob("*.tmp.*") and not glob.glob(".tmp.*")


def overlapping(n, kernel):
    """An npz whose n stored arrays of u1 lie in each other: each is all that follows it."""
    chunks, total, size = [], [bytes(kernel)], kernel
    for i in range(n):
        text = f"{{'descr': '|u1', 'fortran_order': False, 'shape': ({size},), }}".ljust(117).encode() + b"\n"
        head = b"\x93NUMPY\1\0" + struct.pack("<H", len(text)) + text
        sums = zlib.crc32(head + b"".join(total))
        name = b"s%05d.npy" % i
        local = struct.pack("<IHHHHHIIIHH", 0x04034B50, 20, 0, 0, 0, 0, sums, size + 128, size + 128, len(name), 0) + name
        total.insert(0, local + head)
        chunks.append((name, sums, size + 128, len(local) + 128))
        size += len(local) + 128
    directory, at = b"", 0
    for name, sums, stored, step in chunks[::-1]:
        directory += struct.pack("<IHHHHHHIIIHHHHHII", 0x02014B50, 20, 20, 0, 0, 0, 0, sums, stored, stored, len(name), 0, 0, 0, 0, 0, at) + name
        at += step
    return b"".join(total) + directory + struct.pack("<IHHHHIIH", 0x06054B50, 0, 0, n, n, len(directory), size, 0)


def test_bounds():
    refused(65, "they overlap", "import", put("bomb.npz", overlapping(300, 1 << 20)), "--format", "npz", "-o", "x")
    refused(65, "more than 1000 arrays", "import", put("many.npz", b"PK\1\2" * 1001), "--format", "npz", "-o", "x")
    np.savez("one.npz", SHAPE=np.zeros(3, "<u4"))
    with open("one.npz", "rb") as f:
        wide = f.read().replace(b"'shape': (3,), }" + 11 * b" ", b"'shape': (1099511627776,), }"[:27])
    assert ckvc("import", put("wide.npz", wide), "--format", "npz", "-o", "x").returncode == 65
    os.makedirs("twice", exist_ok=True)
    big = json.dumps({x: {"dtype": "U8", "shape": [4096], "data_offsets": [0, 4096]} for x in ("SHAPE", "BUDGET")}).encode()
    put("twice/model.safetensors", struct.pack("<Q", len(big)) + big + bytes(4096))
    refused(65, "they overlap", "import", "twice", "--format", "safetensors", "-o", "x")
    put("twice/model.safetensors", struct.pack("<Q", 1 << 60))
    refused(65, "a header of 1152921504606846976 bytes", "import", "twice", "--format", "safetensors", "-o", "x")
    os.makedirs("wide", exist_ok=True)
    put("wide/config.json", json.dumps({"num_hidden_layers": 60000, "num_attention_heads": 60000, "model_type": "llama"}))
    refused(65, "1 heads, the model wide has 60000 layers", "import", put("h.json", '{"0-0": [1]}'), "--format", "headkv", "--model", "wide", "--budget", "0.5", "-o", "x")
    put("wide/config.json", json.dumps({"num_hidden_layers": 8, "num_attention_heads": 0, "model_type": "llama"}))
    refused(65, "not a model's", "import", "h.json", "--format", "headkv", "--model", "wide", "--budget", "0.5", "-o", "x")
    os.makedirs("theirs", exist_ok=True)
    np.save("theirs/W_head.npy", np.ones((1, 2, 2), "<f4"))
    np.save("theirs/T_gate.npy", np.ones((1, 2, 1, 1), "<f4"))
    manifest = {"budget_values": [64], "entropy_edges": [], "ppl_edges": [], "head_actions": [1] * 70000}
    put("theirs/manifest.json", json.dumps(manifest))
    refused(65, "head_actions has 70000 numbers", "import", "theirs", "--format", "compilerkv", "-o", "x")
    put("theirs/manifest.json", json.dumps(manifest | {"head_actions": [1], "ckvc": []}))
    refused(65, "ckvc is no object", "import", "theirs", "--format", "compilerkv", "-o", "x")


def test_fifos():
    os.mkfifo("fifo")
    os.makedirs("of-fifo", exist_ok=True)
    for name in "model.safetensors", "W_head.npy", "T_gate.npy", "manifest.json", "full_attention_heads.tsv":
        os.mkfifo(f"of-fifo/{name}")
    refused(66, "not a regular file", "fifo")
    refused(66, "not a regular file", "export", "fifo", "--format", "npz", "-o", "x")
    for name, path in ("npz", "fifo"), ("safetensors", "of-fifo"), ("compilerkv", "of-fifo"), ("kvzip", "fifo"), ("duo-attention", "of-fifo"), ("headkv", "fifo"):
        more = () if name in ("npz", "safetensors", "compilerkv") else ("--model", MODEL, "--budget", "0.5")
        refused(66, "not a regular file", "import", path, "--format", name, "-o", "x", *more)


def test_folders():
    os.makedirs("run/empty")
    os.symlink(T, "run/table.ckvt")
    for name, at in ("run", "run/table.ckvt"), ("run/", "run/table.ckvt"):
        refused(66, f"{name}: is a folder, want a table's file; did you mean {at}?", name)
    refused(66, "did you mean run/table.ckvt?", "export", "run", "--format", "npz", "-o", "x")
    refused(66, "not a regular file", "run/empty")


def test_options():
    for words, *args in [("--length: got -100", "export", T, "--format", "compilerkv", "--length", "-100"), ("--full-share: got 5", "export", T, "--format", "duo-attention", "--full-share", "5"),
                         ("--full-share: got nan", "export", T, "--format", "duo-attention", "--full-share", "nan"),
                         *((f"--kept-floor: got {x}", "import", T, "--format", "headkv", "--model", MODEL, "--budget", "0.5", "--kept-floor", x) for x in ("nan", "-1.0", "inf")),
                         *((f"--budget: got {x}", "import", T, "--format", "headkv", "--model", MODEL, "--budget", x) for x in ("inf", "nan", "0", "-1", "1.5", "0.5,inf", "1e300", "x"))]:
        refused(64, words, *args, "-o", "x")


def test_terminal():
    """What a table says of itself reaches no terminal as it is."""
    t = Table.read(T)
    arrays, evil = exchange.arrays_of(t), "\x1b]0;x\x07\n\x9b31m\u202e"
    meta = json.dumps(t.meta | {"label": evil, "model_name": evil}, ensure_ascii=False).encode()
    put("evil.ckvt", exchange.table_bytes("evil", arrays | {"META": np.frombuffer(meta, "u1")}))
    name = f"evil{evil}.ckvt"
    os.link("evil.ckvt", name)
    lines = ckvc("evil.ckvt").stdout.count("\n")
    for done in ckvc(name), ckvc("export", name, "--format", "npz", "-o", name + ".npz"), ckvc(name + ".npz"), ckvc(evil), ckvc("export", name, "--format", evil, "-o", "x"):
        said = done.stdout + done.stderr
        assert said and not re.search("[\0-\x09\x0b-\x1f\x7f-\x9f\u202e]", said) and said.count("\n") in (1, lines) and "evil?]0;x? ?31m?" in said or evil in done.args, said
    assert files.plain(evil) == "?]0;x? ?31m?" and files.plain("M\u00e9\t\u4e2d") == "M\u00e9 \u4e2d"


def test_streams():
    """Results that cannot be written are 74, also on a closed output; a closed stderr does not put messages among results."""
    words = f'"{sys.executable}" -m ckvc'
    for command, status, said in ((f'{words} "{T}" >&-', 74, ""), (f'{words} "{T}" >/dev/full', 74, ""), (f"{words} --help >&-", 74, ""), (f"{words} nowhere 2>&-", 66, ""),
                                  (f'{words} export "{T}" --format npz -o closed.npz >&- 2>&- <&-', 74, "")):
        done = subprocess.run(["bash", "-c", command], capture_output=True, text=True)
        assert done.returncode == status and done.stdout == said and done.stderr.count("\n") <= 1 and "Traceback" not in done.stderr, (command, done)
    assert np.load("closed.npz")  # and nothing else was written into it


def test_signals():
    """SIGTERM and SIGHUP are Ctrl-C, whose second stops at once; a hangup that is ignored stays so."""
    code = ("import runpy, sys, time, types, ckvc.exchange as e\n"
            "def main(verb, words):\n  try:\n    print('ready', flush=True)\n    time.sleep(30)\n  except KeyboardInterrupt:\n"
            "    if words: print('again', flush=True); time.sleep(30)\n    raise\n"
            "sys.modules['ckvc.score'] = types.SimpleNamespace(main=main); e.main = main; sys.argv[1:2] = sys.argv[1].split()\n"
            "runpy.run_module('ckvc', run_name='__main__', alter_sys=True)")
    for verb, number, want in (("score", signal.SIGTERM, 75), ("score", signal.SIGHUP, 75), ("score", signal.SIGINT, 75), ("export", signal.SIGTERM, 130), ("score twice", signal.SIGTERM, 130)):
        p = subprocess.Popen([sys.executable, "-c", code, verb], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert p.stdout.readline() == "ready\n"
        p.send_signal(number)
        if "twice" in verb:
            assert p.stdout.readline() == "again\n"
            p.send_signal(number)
        err = p.communicate(timeout=20)[1]
        assert p.returncode == want and err.count("\n") == ("twice" not in verb) and ("--resume goes on" in err) == (want == 75), (verb, number, p.returncode, err)
    p = subprocess.Popen(["bash", "-c", "trap '' HUP; exec \"$@\"", "bash", sys.executable, "-c", code, "score"], stdout=subprocess.PIPE, text=True)
    assert p.stdout.readline() == "ready\n"
    p.send_signal(signal.SIGHUP)
    time.sleep(0.3)
    assert p.poll() is None
    p.kill()
    p.communicate()


def test_last_catch():
    code = "import runpy, sys, ckvc.exchange as e\ndef main(verb, words): raise {}\ne.main = main; sys.argv[1:] = ['export']\nrunpy.run_module('ckvc', run_name='__main__', alter_sys=True)"
    for what, status, words in (("TypeError('a\\nb')", 70, "TypeError: a b (<string>:2): a bug of ckvc, please report it"), ("RecursionError()", 70, "a bug"), ("MemoryError()", 71, "out of memory"),
                                ("OSError(28, 'full')", 74, "full"), ("ImportError('cannot import')", 69, "cannot import"), ("FileExistsError('there')", 73, "there")):
        done = subprocess.run([sys.executable, "-c", code.format(what)], capture_output=True, text=True)
        assert done.returncode == status and words in done.stderr and done.stderr.count("\n") == 1, (what, done)


PLAN, ROW = {"schema": "ckvc-plan-1", "verb": "calibrate"}, {"id": np.array([b"p"], "S255"), "n_tokens": np.array([5], "<u4")}


def opened(out, resume=False, part=None):
    return run_writer.Run(out, PLAN, {"format": "ckvc-shard", "n_layers": np.uint32(2)}, {k: v[:0] for k, v in ROW.items()}, 3, "torch/cpu/float32", part, resume)


def new_run():
    """A run of three prompts, of which one is done."""
    name = tempfile.mkdtemp(dir=".") + "/run"
    r = opened(name)
    r.publish(0, ROW, "p", None)
    r.close()
    return name


def test_hostile_runs():
    begin, shard = open(new_run() + "/journal.jsonl").read().splitlines()
    line = lambda **more: json.dumps({"pass": run_writer.PASS, **more})  # noqa: E731
    for journal in ([shard, begin], [begin, begin], [begin, shard, shard], [begin, line(sha256="x")], [begin, line(sha256="x", shard=0, bytes="1")], [begin, line(reason="x")],
                    *([begin, line(sha256="x", shard=x, bytes=1)] for x in ("../../x", [], 0.5, -1, 3, True, None)), *([begin, line(reason="x", prompt=x)] for x in ("q", 10**9, -1, {})),
                    ["[" * 100000], ["[]", begin], ['{"pass": 1, "pass": 2}', begin], [shard.replace("pass-01-demand", "pass-02-demand")]):
        out = new_run()
        put(f"{out}/journal.jsonl", "".join(x + "\n" for x in journal))
        raises(Error, out, opened, out, True)
    for plan in (b"[]", b"5", b"{", b"\xff", b"[" * 100000, b"null", b'{"a":1e999}', b'{"a":' * 900 + b"1" + b"}" * 900, b'{"x":1}'):
        out = new_run()
        put(f"{out}/run.json", plan)
        raises(Error, out, opened, out, True)
    for name in "run.json", "journal.jsonl", "lock":
        out = new_run()
        os.unlink(f"{out}/{name}")
        os.mkdir(f"{out}/{name}")
        raises(Error, out, opened, out, True)


def test_links_in_runs():
    """No file of somebody's is touched through a lock or a journal that is a link, a FIFO, or is no lock or journal."""
    for text in "precious\nfile\n", "precious":
        for name in "lock", "journal.jsonl":
            for make in os.symlink, os.link:
                out = new_run()
                there = put(out + "-precious", text)
                os.unlink(f"{out}/{name}")
                make(os.path.abspath(there), f"{out}/{name}")
                raises(Error, name, opened, out, True)
                assert open(there).read() == text, (name, make)
    for name in "lock", "journal.jsonl", "run.json":
        out = new_run()
        os.unlink(f"{out}/{name}")
        os.mkfifo(f"{out}/{name}")
        raises(Error, "not a regular file", opened, out, True)
    out = new_run()
    os.rename(f"{out}/{run_writer.PASS}", out + "-elsewhere")
    os.symlink(os.path.abspath(out + "-elsewhere"), f"{out}/{run_writer.PASS}")
    raises(Error, "is a link", opened, out, True)


def test_run():
    """Temporaries of a killed process go, a torn line too; another process waits outside."""
    out = new_run()
    left = [put(f"{out}/{x}.tmp.0123456789abcdef", "half") for x in ("run.json", f"{run_writer.PASS}/shard-00002.h5")]
    with open(f"{out}/journal.jsonl", "a") as f:
        f.write('{"pass":"pass-01-de')
    assert raises(Error, "exists and is not empty", opened, out).status == 73
    r = opened(out, True)
    assert r.todo == [1, 2] and not any(map(os.path.exists, left))
    assert raises(Error, f"process {os.getpid()} is writing here", opened, out, True).status == 75
    with mock.patch.object(run_writer, "publish", side_effect=OSError(28, "No space left on device")):
        assert raises(Error, "No space left on device; what is published stays, make room and resume", r.publish, 1, ROW, "p", None).status == 74
    for i in r.todo:
        r.publish(i, ROW, "p", "bad" if i == 2 else None)
    r.close()
    assert opened(out, True).todo == [] and len(open(f"{out}/journal.jsonl").readlines()) == 5
    fresh = tempfile.mkdtemp(dir=".")
    put(f"{fresh}/run.json.tmp.0123456789abcdef", "half")
    opened(fresh).close()
    assert not glob.glob(f"{fresh}/*.tmp.*")
    both = [opened(fresh + "-parts", part=(i, 2)) for i in (0, 1)]
    assert [r.todo for r in both] == [[0, 2], [1]]


os.environ.setdefault("HDF5_PLUGIN_PATH", os.path.join(ROOT, "build", "release"))
with tempfile.TemporaryDirectory() as folder:
    os.chdir(folder)
    run_tests(globals().copy())
