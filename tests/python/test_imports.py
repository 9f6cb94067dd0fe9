#!/usr/bin/env python3
"""Which of the package's modules import which, read from their sources: no circles, imports inside functions included. Nothing of the package is imported here."""
import ast
import graphlib
import os

from common import ROOT, run_tests

FOLDER = os.path.join(ROOT, "python", "ckvc")
MODULES = {name[: -len(".py")] for name in os.listdir(FOLDER) if name.endswith(".py")}


def read(name):
    with open(os.path.join(FOLDER, name + ".py"), encoding="utf-8") as f:
        return f.read()


def imported(text, anywhere=True):
    """The modules of the package that a source imports: anywhere, or when it is imported itself. What is no module, as in `from . import Table`, comes from
    the package's __init__."""
    found, source = set(), ast.parse(text)
    for node in ast.walk(source) if anywhere else source.body:
        if isinstance(node, ast.ImportFrom):
            path = (["ckvc"] if node.level else []) + (node.module.split(".") if node.module else [])
            paths = [[*path, alias.name] for alias in node.names]
        elif isinstance(node, ast.Import):
            paths = [[*alias.name.split("."), ""] for alias in node.names]
        else:
            continue
        found |= {path[1] if path[1] in MODULES else "__init__" for path in paths if path[0] == "ckvc"}
    return found


def circle(graph):
    """The modules of a circle, the first of them once more at the end; empty where there is none."""
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as why:
        return why.args[1]
    return []


def test_no_circle():
    graph = {name: imported(read(name)) for name in MODULES}
    assert "files" in graph["table"] and graph["__init__"] == {"table"}, graph  # the sources were understood
    assert not circle(graph), " imports ".join(reversed(circle(graph)))


def test_compressing_needs_no_h5py():
    """`pip install ckvc[hf]` and `ckvc[kvpress]` bring no h5py, which run_writer imports: hf and press must not import it as they are imported themselves."""
    loaded, left = set(), ["hf", "press"]
    while left:
        loaded.add(name := left.pop())
        left += imported(read(name), anywhere=False) - loaded
    assert "fingerprint" in loaded and "run_writer" not in loaded and "run_writer" in imported(read("calibrate"), anywhere=False), loaded


def test_a_circle_is_found():
    text = "import os, ckvc.hf\nfrom . import Table, library\ndef f():\n    from .llama import read\nclass A:\n    import ckvc\n"
    assert imported(text) == {"hf", "__init__", "library", "llama"} and imported(text, anywhere=False) == {"hf", "__init__", "library"}, imported(text)
    assert imported("from ckvc.score import score\nfrom os import path\nfrom ckvc import files, Error\n") == {"score", "files", "__init__"}
    assert set(circle({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}})) == {"a", "b", "c"} and not circle({"a": {"b", "c"}, "b": {"c"}})


run_tests(globals())
