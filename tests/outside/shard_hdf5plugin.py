#!/usr/bin/env python3
"""Shards as formats/shard/shard.md tells users to read them: h5py with hdf5plugin, and h5dump, where it is installed, with that package's filters. Every
column beside tests/python/unfolded.py, which unfolds chunks by itself."""
import os
import shutil
import subprocess
import sys

import outside

h5py, hdf5plugin, np, zstandard = outside.modules("h5py", "hdf5plugin", "numpy", "zstandard")
sys.path.insert(0, str(outside.ROOT / "tests/python"))
from unfolded import unfolded  # noqa: E402

columns = unequal = 0
for path in sorted((outside.ROOT / "tests/golden/shard").glob("*.h5")):
    with h5py.File(path) as f:
        for group in f.values():
            for column in group.values():
                columns += 1
                unequal += not np.array_equal(column[()], unfolded(column))
assert columns > 100, columns
print(f"{columns} columns of golden shards, {unequal} unequal: {'ok' if not unequal else 'FAIL'}")

if shutil.which("h5dump"):
    said = subprocess.run(["h5dump", "-d", "/prompt/n_tokens", outside.ROOT / "tests/golden/shard/both.h5"], capture_output=True, text=True,
                          env={**os.environ, "HDF5_PLUGIN_PATH": hdf5plugin.PLUGIN_PATH}).stdout
    unequal += "100, 101, 102" not in said
    print(f"h5dump: {'ok' if '100, 101, 102' in said else 'FAIL'}")
sys.exit(unequal > 0)
