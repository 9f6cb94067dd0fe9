#!/usr/bin/env python3
"""The tables that come with the program: tables.json says of each what the table itself, the score lines and the answers beside it say."""
import collections
import json
import lzma
import os
import shutil
import subprocess
import tempfile

from common import PROGRAM, ROOT, golden, need, run_tests

need("numpy")
import numpy as np  # noqa: E402

import ckvc  # noqa: E402
from ckvc import exchange, vllm_plugin  # noqa: E402

RESULTS = os.path.join(ROOT, "docs", "results")
with open(os.path.join(RESULTS, "tables.json")) as f:
    DESCRIBED = json.load(f)


def lines(*path, policies=("table",)):
    path = os.path.join(RESULTS, *path)
    if not os.path.exists(path):
        return []
    with lzma.open(path, "rt") as f:
        return [r for r in map(json.loads, f) if r["policy"] in policies]


def mean(values):
    return sum(values) / len(values)


def test_every_table_is_described():
    there = sorted(name for name in os.listdir(RESULTS) if os.path.exists(os.path.join(RESULTS, name, "table.ckvt")))
    assert [t["name"] for t in DESCRIBED] == there, there
    assert os.path.samefile(os.path.join(ROOT, "python", "ckvc", "tables"), RESULTS)


def test_tables():
    for t in DESCRIBED:
        table = ckvc.Table.read(os.path.join(RESULTS, t["name"], "table.ckvt"))
        assert table.content_id == t["content_id"], t["name"]
        assert sorted(loss["budget"] for loss in t["losses"]) == table.budgets.tolist(), t["name"]
        assert all(loss.get("byte_share", 0) == (0 if table.byte_share is None else table.byte_share[table.budget_index(loss["budget"])]) for loss in t["losses"]), t["name"]


def test_by_name():
    """A table's name stands for its file, but where there is such a file or folder."""
    of = {t["name"]: t["content_id"] for t in DESCRIBED}
    assert all(ckvc.Table.read(name).content_id == content_id for name, content_id in of.items())
    settings = vllm_plugin.settings_of({"ckvc": {"table": "ckvc-tiny-8l-lengths", "budget": 0.25}})
    assert os.path.samefile(settings.table, os.path.join(RESULTS, "ckvc-tiny-8l-lengths", "table.ckvt"))
    for name in "smollm2", "./smollm2-135m", "smollm2-135m/", ".", "..", "":
        try:
            ckvc.Table.read(name)
        except OSError:
            continue
        raise AssertionError(name)
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        shutil.copy(golden("shares"), "smollm2-135m")
        assert ckvc.Table.read("smollm2-135m").content_id not in of.values() and ckvc.Table.read("ckvc-tiny-8l").content_id == of["ckvc-tiny-8l"]
        os.chdir(ROOT)


def test_losses():
    for t in DESCRIBED:
        losses = collections.defaultdict(list)
        for corpus in ("technical", "narrative", "code"):
            for kind in ("", "one-length-"):
                for r in lines(t["name"], f"{kind}{corpus}.jsonl.xz"):
                    if r["table"] == t["content_id"]:  # others are of an earlier table
                        losses[kind, r["budget"]].append(r["kl"])
        for said in t["losses"]:
            found, one = losses["", said["budget"]], losses["one-length-", said["budget"]]
            assert (said["prompts"], said["kl"]) == (len(found), round(mean(found), 3)), (t["name"], said, mean(found))
            assert said.get("kl_one_length") == (round(mean(one), 3) if one else None) and len(one) in (0, len(found)), (t["name"], said, one)


def test_right_answers():
    for t in DESCRIBED:
        scores, whole = collections.defaultdict(lambda: collections.defaultdict(list)), collections.defaultdict(list)
        both = "table", "full"
        for r in lines(t["name"], "answers-1k.jsonl.xz", policies=both) + lines(t["name"], "answers-1k-bytes.jsonl.xz", policies=both):
            if r["policy"] == "full":
                if "cache_keys" not in r:
                    whole[r["task"]].append(r["score"])
            elif r["table"] == t["content_id"] and ("cache_keys" in r) == ("byte_share" in t["losses"][0]):  # as the table was chosen to be held
                scores[r["budget"]][r["task"]].append(r["score"])
        for said in t["losses"]:
            found = round(mean([mean(x) for x in scores[said["budget"]].values()]), 3) if said["budget"] in scores else None
            assert said.get("right") == found, (t["name"], said, found)
        found = round(mean([mean(x) for x in whole.values()]), 3) if any("right" in said for said in t["losses"]) else None
        assert t.get("right_whole") == found, (t["name"], found)


def test_inspect_of_choices():
    """`ckvc inspect` of a table whose settings losses chose, in place of KL, and of which nothing chose one budget's: what was chosen, and which candidates were
    scored to the end."""
    arrays = exchange.arrays_of(ckvc.Table.read(os.path.join(RESULTS, "smollm2-135m", "table-no-bank.ckvt")))
    meta = json.loads(arrays["META"].tobytes())
    meta["select"].update(by="loss", chosen=[1, None, 1], candidates=[
        {"score": "learned", "floor": 0.2, "loss": [None] * 3}, {"score": "learned", "floor": 0.4, "loss": [0.5, 0.25, 0.125]}])
    arrays["META"] = np.frombuffer(json.dumps(meta, sort_keys=True, separators=(",", ":")).encode(), "u1")
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "t.ckvt")
        with open(path, "wb") as f:
            f.write(exchange.table_bytes(path, arrays))
        said = subprocess.run([PROGRAM, "inspect", path], capture_output=True, text=True, check=True).stdout
    rows = [line.split() for line in said.split("recommends:\n")[1].splitlines()[:4]]
    assert rows[0][-1] == "loss_where_chosen" and [row[-1] for row in rows[1:]] == ["0.5000", "-", "0.1250"], rows
    assert "dropped_earlier: 1\n" in said and "[0.5,0.25,0.125]" in said, said


run_tests(globals())
