#!/usr/bin/env python3
"""`ckvc.hf.compress` without a table, on the embedded model: it takes the table that is known to be for the model, among others of other shapes,
does with it what it does when the table is given, and refuses where none is. The tables are made here, in a folder that stands for the package's."""
import contextlib
import io
import json
import shutil

import outside

a, (torch, transformers, *_), _, ids = outside.by_torch()
import ckvc.hf  # noqa: E402  (its folder was added above)
from ckvc import shipped  # noqa: E402

SMALL, LARGE, tmp = outside.ROOT / "models/ckvc-tiny-4l", outside.ROOT / "models/ckvc-tiny-8l", outside.scratch()
manifest = outside.manifest({"id": f"f{i}", "tokens": ids[10000 + 200 * i : 10200 + 200 * i]} for i in range(4))
for name, model in ("small", SMALL), ("large", LARGE):
    outside.run(a.ckvc, "calibrate", "--side", "demand", "--model", model, "--manifest", manifest.name, "--window", 32, "--continuation", 16,
                "--budget", "0.25", "-q", "--out", tmp / f"demand-{name}")
    (tmp / name).mkdir()
    outside.run(a.ckvc, "fit", tmp / f"demand-{name}", "--ranking", "window", "-q", "--out", tmp / name / "table.ckvt")
model = transformers.AutoModelForCausalLM.from_pretrained(LARGE, dtype=torch.float32).eval()
prompt, shipped.FOLDER = torch.tensor([ids[:300]]), str(tmp)


def describe(*names):
    tables = [{"name": n, "model": f"the {n} one", "content_id": ckvc.Table.read(tmp / n / "table.ckvt").content_id} for n in names]
    (tmp / "tables.json").write_text(json.dumps(tables))


def taken(*given):
    """What is generated, and what is said on stderr."""
    with contextlib.redirect_stderr(io.StringIO()) as said, ckvc.hf.compress(model, *given, budget=0.25):
        out = model.generate(prompt, max_new_tokens=12, do_sample=False)[0].tolist()
    return out, said.getvalue()


wrong = 0
describe("small", "large")
(by_itself, said), (given, nothing) = taken(), taken(str(tmp / "large" / "table.ckvt"))
wrong += by_itself != given or "takes its own table large, which was made for the large one" not in said or nothing != ""
describe("small")  # of another shape
wrong += outside.missed(lambda: ckvc.hf.compress(model, budget=0.25), f"`ckvc compile --model {LARGE} --out run`")
describe("large")
(tmp / "tables.json").write_text((tmp / "tables.json").read_text().replace('"content_id": "', '"content_id": "0'))
wrong += outside.missed(lambda: ckvc.hf.compress(model, budget=0.25), "is not the table that tables.json describes")
describe("large")
other = transformers.AutoModelForCausalLM.from_config(model.config)  # of the same shape, with other weights
wrong += outside.missed(lambda: ckvc.hf.compress(other, budget=0.25), "large has its shape, but their")
shutil.rmtree(tmp / "large")
(tmp / "tables.json").unlink()
wrong += outside.missed(lambda: ckvc.hf.compress(model, budget=0.25), "no table that comes with ckvc")
assert not wrong, wrong
print("compress without a table: takes the one that fits, as if given; 4 refusals in one line: 0 wrong")
