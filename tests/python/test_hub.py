#!/usr/bin/env python3
"""Tables of a model hub: what is fetched from a hub that runs here, at which commit, what the cache answers without it, and what is refused in one line."""
import contextlib
import io
import os
import subprocess
import sys
import tempfile
from unittest import mock

from common import golden, need, policy_library, put, run_tests

need("numpy", "huggingface_hub")
from hub_server import Hub, serving  # noqa: E402

FIRST, SECOND, HUGE = "1" * 40, "2" * 40, "3" * 40
BYTES = {name: open(golden(name), "rb").read() for name in ("learned2", "shares")}
Hub.repositories = {
    "some-org/tables_1.0": ({"main": FIRST, "v1": FIRST, "refs%2Fpr%2F1": SECOND},
                            {FIRST: {"table.ckvt": BYTES["learned2"]}, SECOND: {"table.ckvt": BYTES["shares"]}}),
    "org/bare": ({"main": FIRST}, {FIRST: {"README.md": b"a card"}}),
    "org/terms": ({"main": "gated"}, {}),
    "org/huge": ({"main": HUGE}, {HUGE: {"table.ckvt": b""}}),
    "org/unsaid": ({"main": HUGE}, {HUGE: {"table.ckvt": BYTES["shares"]}}),
    "org/damaged": ({"main": FIRST}, {FIRST: {"table.ckvt": BYTES["shares"][:-1] + b"x"}}),
    "org/moving": ({"main": FIRST}, {FIRST: {"table.ckvt": BYTES["shares"]}, SECOND: {"table.ckvt": BYTES["learned2"]}}),
}
NAME, HUB = "some-org/tables_1.0", "some-org/tables_1.0@"


def requests():
    return [method for method, path in Hub.asked if "resolve" in path]


def read(name, of=None):
    """A table, what was said on stderr, and what the hub was asked for."""
    Hub.asked.clear()
    with contextlib.redirect_stderr(io.StringIO()) as said:
        table = (of or ckvc.Table).read(name)
    return table, "".join(line for line in said.getvalue().splitlines(True) if line.startswith("ckvc")), requests()


def refused(words, name, status=69):
    Hub.asked.clear()
    with contextlib.redirect_stderr(io.StringIO()):
        try:
            ckvc.Table.read(name)
        except ckvc.Error as problem:
            assert words in str(problem) and name in str(problem) and "\n" not in str(problem) and problem.status == status, (problem, problem.status)
        else:
            raise AssertionError(name)
    assert "GET" not in requests(), Hub.asked


def test_revisions():
    table, said, asked = read(NAME)
    assert table.content_id == ckvc.Table.read(golden("learned2")).content_id and asked == ["HEAD", "HEAD", "GET"], asked
    assert said == f"ckvc: takes {NAME} as of commit {FIRST}; {HUB}{FIRST} stays with it\n" and FIRST in table.name, said
    for revision, commit in ("v1", FIRST), ("refs/pr/1", SECOND):
        table, said, _ = read(HUB + revision)
        assert f"{HUB}{commit}" in said and commit in table.name and f"table {table.content_id}" in table.info()
    assert read(HUB + SECOND)[1:] == ("", [])  # a commit that is in the cache asks nobody
    Hub.repositories[NAME][0]["main"] = SECOND
    assert SECOND in read(NAME)[0].name and FIRST in read(HUB + FIRST)[0].name
    Hub.repositories[NAME][0]["main"] = FIRST


def test_every_reader():
    """The program, the C library's table and vLLM's settings read by the same name."""
    done = subprocess.run([sys.executable, "-m", "ckvc", NAME], capture_output=True, text=True)
    assert done.returncode == 0 and FIRST in done.stdout and f"{HUB}{FIRST}" in done.stderr, done
    done = subprocess.run([sys.executable, "-m", "ckvc", "export", NAME, "--format", "npz", "--out", "t.npz"], capture_output=True, text=True)
    assert done.returncode == 0 and os.path.getsize("t.npz"), done
    with policy_library():
        assert read(NAME, library.Table)[0].content_id == ckvc.Table.read(golden("learned2")).content_id
    with contextlib.redirect_stderr(io.StringIO()):
        settings = vllm_plugin.settings_of({"ckvc": {"table": NAME, "budget": 0.25}})
    assert os.path.isabs(settings.table) and os.path.exists(settings.table) and FIRST in settings.table
    assert vllm_plugin.settings_of({"ckvc": settings._asdict()}) == settings  # as a worker reads it, which asks no hub


def test_files_come_first():
    os.makedirs("some-org")
    put(NAME, BYTES["shares"])
    assert read(NAME)[1:] == ("", []) and read(NAME)[0].name == NAME
    os.unlink(NAME)
    for name in ("runs/table.ckvt", "table", "a/b/c", "/org/name", "../org", "org/", "-o/n", "org/name@", "org/na me"):
        try:
            read(name)
        except OSError as problem:
            assert not Hub.asked, name
            assert ("no table of this name comes with ckvc (ckvc-tiny-8l, " in str(problem)) == (name == "table"), problem
        else:
            raise AssertionError(name)


def test_refusals():
    refused("no repository of the hub; check the name", "org/nowhere")
    refused("no such revision; after @", HUB + "v2")
    refused("has no table.ckvt in this revision", "org/bare")
    refused("terms to be accepted", "org/terms")
    Hub.sizes = {f"/{name}/resolve/main/table.ckvt": size for name, size in (("org/huge", (64 << 20) + 1), ("org/unsaid", None))}
    refused("has 67108865 bytes, at most 67108864 are fetched", "org/huge", 65)
    refused("an unknown number of bytes", "org/unsaid", 65)
    assert requests() == ["HEAD"], Hub.asked
    try:
        read("org/damaged")
    except ckvc.Error as problem:
        assert "the file is damaged" in str(problem) and "models--org--damaged" in str(problem), problem
    else:
        raise AssertionError("a damaged table")


def test_a_repository_that_changes():
    def move():
        Hub.repositories["org/moving"][0]["main"] = SECOND

    with mock.patch.object(Hub, "on_head", staticmethod(move)):
        try:
            read("org/moving")
        except ckvc.Error as problem:
            assert f"changed while it was fetched; try again, or name a commit: org/moving@{FIRST}" in str(problem), problem
        else:
            raise AssertionError("two commits")
    assert SECOND in read("org/moving")[0].name


def test_without_a_network():
    """What was fetched once is found under each name that it was asked for by."""
    with mock.patch.object(huggingface_hub.constants, "HF_HUB_OFFLINE", True):
        for name in NAME, HUB + "v1", HUB + SECOND:
            table, _, asked = read(name)
            assert asked == [] and (SECOND if name.endswith(SECOND) else FIRST) in table.name, name
        refused("the hub is not reached, and no copy is in the cache", "org/elsewhere")


with tempfile.TemporaryDirectory() as folder, serving() as address:
    os.chdir(folder)
    os.environ.update(HF_ENDPOINT=address, HF_HOME=os.path.join(folder, "home"), HF_HUB_DISABLE_PROGRESS_BARS="1", NO_PROXY="127.0.0.1", no_proxy="127.0.0.1")
    for name in "HF_HUB_OFFLINE", "HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_TOKEN":
        os.environ.pop(name, None)
    import huggingface_hub

    import ckvc
    from ckvc import library, vllm_plugin
    run_tests(globals())
