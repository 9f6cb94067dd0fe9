#!/usr/bin/env python3
"""The package's wheel: built from python/ without fetching anything, of the program's version, and read from as it is."""
import glob
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile

from common import ROOT, golden, need

need("pip", "setuptools", "wheel", "numpy")
with tempfile.TemporaryDirectory() as folder:
    # A copy: setuptools writes beside its sources. System packages build it: no network, no virtual environment.
    shutil.copytree(os.path.join(ROOT, "python"), os.path.join(folder, "python"), ignore=shutil.ignore_patterns("__pycache__", "build", "*.egg-info"))
    subprocess.run([sys.executable, "-m", "pip", "wheel", "-q", "--no-index", "--no-deps", "--no-build-isolation", "-w", folder, os.path.join(folder, "python")],
                   check=True, capture_output=True)
    (path,) = glob.glob(os.path.join(folder, "*.whl"))
    with open(os.path.join(ROOT, "lib", "base", "names.h")) as f:
        version = re.search(r'define CKVC_VERSION\s+"([^"]+)"', f.read()).group(1)
    assert os.path.basename(path) == f"ckvc-{version}-py3-none-any.whl", path
    with zipfile.ZipFile(path) as wheel:
        names = wheel.namelist()
        metadata, plugins = (wheel.read(n).decode() for end in ("/METADATA", "/entry_points.txt") for n in names if n.endswith(end))
        in_wheel = {n[len("ckvc/"):]: wheel.read(n) for n in names if n.startswith("ckvc/tables/")}
    sources = {os.path.basename(p) for p in glob.glob(os.path.join(ROOT, "python", "ckvc", "*.py"))} | {"py.typed"}
    described = os.path.join(ROOT, "docs", "results", "tables.json")
    with open(described) as f:
        shipped = {"tables/tables.json": described} | {f"tables/{t['name']}/table.ckvt": os.path.join(ROOT, "docs", "results", t["name"], "table.ckvt") for t in json.load(f)}
    assert {n[len("ckvc/"):] for n in names if n.startswith("ckvc/")} == sources | set(shipped), names
    for name, at in shipped.items():
        with open(at, "rb") as f:
            assert in_wheel[name] == f.read(), name
    required = re.findall(r"^Requires-Dist: (.*)$", metadata, re.M)
    assert [r for r in required if "extra ==" not in r] == ["numpy"], required
    assert plugins.split() == ["[vllm.general_plugins]", "ckvc", "=", "ckvc.vllm_plugin:register"], plugins
    table = golden("one-layer")
    out = subprocess.run([sys.executable, "-m", "ckvc", table], cwd=folder, env={**os.environ, "PYTHONPATH": path}, check=True, capture_output=True, text=True).stdout
    assert out.startswith(f"{table}: ckvt table "), out
print("python test_wheel: 1 passed")
