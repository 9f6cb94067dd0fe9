#!/usr/bin/env python3
"""`python3 -m ckvc export --format gguf` and `--format safetensors` as llama.cpp's gguf package and safetensors read them: every number of every golden
table, to the bit."""
import json
import pathlib
import sys
import tempfile

import outside

gguf, numpy, safetensors_numpy = outside.modules("gguf", "numpy", "safetensors.numpy")
from safetensors.numpy import load_file  # noqa: E402

a = outside.arguments(smollm2=False)


def same(got, want):
    return numpy.array_equal(numpy.where(numpy.isfinite(got), got, numpy.nan).astype(float), numpy.array(want, float), equal_nan=True)


n = wrong = 0
with tempfile.TemporaryDirectory() as folder:
    for table in sorted((outside.ROOT / "tests/golden/table").glob("*.ckvt")):
        want = json.loads(outside.run(a.ckvc, "inspect", table, "--json", "--cells"))
        path = pathlib.Path(folder) / table.stem
        outside.run(sys.executable, "-m", "ckvc", "export", table, "--format", "gguf", "--out", f"{path}.gguf")
        outside.run(sys.executable, "-m", "ckvc", "export", table, "--format", "safetensors", "--out", path)
        r, arrays = gguf.GGUFReader(f"{path}.gguf"), load_file(path / "model.safetensors")
        tensors = {t.name: t.data for t in r.tensors}
        wrong += r.fields["ckvc.content_id"].contents() != want["content_id"]
        wrong += not json.loads(r.fields["ckvc.meta"].contents()) == want["meta"] == json.loads(bytes(arrays["META"]))
        for section, values in want.items():
            if not isinstance(values, list) or not numpy.size(values):
                continue
            n, name = n + 1, "ckvc." + section.lower()
            wrong += not same(arrays[section], values)
            if name in tensors:
                wrong += not same(tensors[name], values)
            elif name in r.fields:
                wrong += r.fields[name].contents() != numpy.array(values).reshape(-1).tolist()
            else:
                wrong += section not in ("QHEAD", "QGATE", "NHEAD", "NGATE", "MHEAD", "MGATE", "LGATE", "sHEAD", "sGATE", "sSHARE", "hSIG")
outside.at_most(f"{n} arrays of tables as gguf and safetensors read them: those that differ", wrong + (n < 50), 0)
outside.done()
