#!/usr/bin/env python3
"""`ckvc.hf.compress` without a table, on the embedded model: it takes the table that is known to be for the model, among others of other shapes,
does with it what it does when the table is given, and refuses where none is. First come the tables of the package itself; all others are made here, in a
folder that stands for the package's. Then the same with a table of a model hub, by a server that runs here (tests/python/test_hub.py has what else a hub may
answer)."""
import contextlib
import copy
import io
import json
import os
import re
import shutil
import sys

import outside

sys.path.insert(0, str(outside.ROOT / "tests/python"))
from hub_server import Hub, serving  # noqa: E402

hub, tmp = contextlib.ExitStack(), outside.scratch()
os.environ.update(HF_ENDPOINT=hub.enter_context(serving()), HF_HOME=str(tmp / "home"), HF_HUB_OFFLINE="0", NO_PROXY="127.0.0.1", no_proxy="127.0.0.1")
a, (torch, transformers, *_), _, ids = outside.by_torch()
import ckvc.hf  # noqa: E402  (its folder was added above)
from ckvc import fingerprint, shipped, vllm_plugin  # noqa: E402

SMALL, LARGE = outside.ROOT / "models/ckvc-tiny-4l", outside.ROOT / "models/ckvc-tiny-8l"
manifest = outside.manifest({"id": f"f{i}", "tokens": ids[10000 + 200 * i : 10200 + 200 * i]} for i in range(4))
for name, model in ("small", SMALL), ("large", LARGE):
    outside.run(a.ckvc, "calibrate", "--side", "demand", "--model", model, "--manifest", manifest.name, "--window", 32, "--continuation", 16,
                "--budget", "0.25", "-q", "--out", tmp / f"demand-{name}")
    (tmp / name).mkdir()
    outside.run(a.ckvc, "fit", tmp / f"demand-{name}", "--ranking", "window", "-q", "--out", tmp / name / "table.ckvt")
model = transformers.AutoModelForCausalLM.from_pretrained(LARGE, dtype=torch.float32).eval()
prompt = torch.tensor([ids[:300]])


def describe(*names):
    tables = [{"name": n, "model": f"the {n} one", "content_id": ckvc.Table.read(tmp / n / "table.ckvt").content_id} for n in names]
    (tmp / "tables.json").write_text(json.dumps(tables))


def taken(*given):
    """What is generated, and what is said on stderr."""
    with contextlib.redirect_stderr(io.StringIO()) as said, ckvc.hf.compress(model, *given, budget=0.25):
        out = model.generate(prompt, max_new_tokens=12, do_sample=False)[0].tolist()
    return out, said.getvalue()


wrong = 0
(by_itself, said), (given, nothing) = taken(), taken(str(outside.ROOT / "docs/results/ckvc-tiny-8l/table.ckvt"))
wrong += by_itself != given or "takes its own table ckvc-tiny-8l, which was made for" not in said or nothing != ""
shipped.FOLDER = str(tmp)
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
wrong += outside.missed(lambda: ckvc.hf.compress(other, budget=0.25), "; large: their")
nowhere = copy.deepcopy(model.config)
nowhere._name_or_path = ""  # as of a model that was never in a folder
made = transformers.AutoModelForCausalLM.from_config(nowhere)
wrong += outside.missed(lambda: ckvc.hf.compress(made, budget=0.25), "is known to be for this model; large: their")
wrong += outside.missed(lambda: ckvc.hf.compress(made, budget=0.25), "; save the model as DIR, make one with `ckvc compile --model DIR --out run` and give")
rounded = copy.deepcopy(model)
with torch.no_grad():
    for weights in rounded.parameters():
        weights.mul_(1 + 1e-3 * torch.randn(weights.shape, generator=torch.Generator().manual_seed(1)))
with contextlib.redirect_stderr(io.StringIO()) as said, ckvc.hf.compress(rounded, tmp / "large" / "table.ckvt", budget=0.25):
    pass
wrong += said.getvalue().count("\n") != 1 or not re.search(r"table.ckvt: was made for ckvc-tiny-8l \([0-9a-f]{12}\.\.\.\) and is used for ckvc-tiny-8l, whose weights are "
                                                           r"the same as far as rounding lets one tell \(their norms differ by 0\.00.* by 0\.0030 and 0\.0\d+\)\n", said.getvalue())
files = model.config  # what vLLM's engine has before the weights are loaded
in_files, in_memory = (of.split() for of in (fingerprint.sketch_of_files(files), fingerprint.sketch(model)))
wrong += fingerprint.same_model(ckvc.Table.read(tmp / "large" / "table.ckvt"), model)[0] is not True
wrong += in_files[2:] != in_memory[2:] or (in_files[1], in_memory[1]) != ("000f", "0000")  # bfloat16 there, float32 here
fingerprint.check_files(ckvc.Table.read(tmp / "large" / "table.ckvt"), files)
wrong += outside.missed(lambda: fingerprint.check_files(ckvc.Table.read(tmp / "small" / "table.ckvt"), files), "and their shapes differ")
# what vLLM serves where no table is named: one that reads no attention
wrong += outside.missed(lambda: shipped.path_without_attention(files), "--features 2 --mode lengths --classes 2 --out run")
(tmp / "parts").mkdir()  # as a hub's download that was stopped leaves it: an index, and not all of its files
for name in ("config.json", "model.safetensors"):
    shutil.copy(LARGE / name, tmp / "parts" / {"model.safetensors": "a.safetensors"}.get(name, name))
index = tmp / "parts" / "model.safetensors.index.json"
index.write_text(json.dumps({"weight_map": {"x": "a.safetensors"}}))
parts = transformers.AutoConfig.from_pretrained(tmp / "parts")
wrong += fingerprint.sketch_of_files(parts) != fingerprint.sketch_of_files(files)
index.write_text(json.dumps({"weight_map": {"x": "a.safetensors", "y": "b.safetensors"}}))
wrong += fingerprint.sketch_of_files(parts) != "" or outside.missed(lambda: shipped.path_without_attention(parts), "name a table")
index.write_text(json.dumps({"weight_map": {"x": "a.safetensors"}}))
(tmp / "parts" / "a.safetensors").write_bytes(b"damaged")
wrong += outside.missed(lambda: fingerprint.sketch_of_files(parts), "a safetensors file cannot be read")
(tmp / "bare").mkdir()
outside.run(a.ckvc, "fit", tmp / "demand-large", "--features", "2", "-q", "--out", tmp / "bare" / "table.ckvt")
describe("small", "large", "bare")
with contextlib.redirect_stderr(io.StringIO()) as said:
    settings = vllm_plugin.settings_of({"ckvc": {"budget": 0.25}}, lambda: files)
wrong += settings.table != str(tmp / "bare" / "table.ckvt") or "takes its own table bare, which was made for the bare one" not in said.getvalue()
# a share of the bytes takes a table that counts bytes, a budget one that counts entries
wrong += outside.missed(lambda: ckvc.hf.compress(model, bytes=0.25), f"make one with `ckvc compile --model {LARGE} --bytes 0.25 --out run`")
outside.run(a.ckvc, "compile", "--model", LARGE, "--bytes", "0.25", "--window", 32, "--continuation", 16, "--lengths", 200, "--prompts", 12, "-q", "--out", tmp / "bytes")
describe("small", "bytes", "large")
for asked in dict(bytes=0.25), dict(budget=0.25):
    with contextlib.redirect_stderr(io.StringIO()) as said, ckvc.hf.compress(model, **asked) as c:
        model.generate(prompt, max_new_tokens=2)
    counts = "bytes" in asked
    wrong += f"takes its own table {'bytes' if counts else 'large'}, " not in said.getvalue() or (c.kept_bytes <= 0.25 * c.full_bytes / 2) != counts
wrong += outside.missed(lambda: ckvc.hf.compress(model, bytes=0.1), "no budget was chosen for the share 0.1 of the bytes; it has 0.25")
describe("large")
Hub.repositories = {f"org/{n}": ({"main": "1" * 40}, {"1" * 40: {"table.ckvt": (tmp / n / "table.ckvt").read_bytes()}}) for n in ("small", "large")}
(from_hub, said), (pinned, nothing) = taken("org/large"), taken("org/large@" + "1" * 40)
wrong += from_hub != given or pinned != given or f"ckvc: takes org/large as of commit {'1' * 40}" not in said or nothing != ""
wrong += outside.missed(lambda: ckvc.hf.compress(model, "org/small", budget=0.25), "models--org--small")  # of another shape
wrong += outside.missed(lambda: ckvc.hf.compress(other, "org/large", budget=0.25), "was made for ckvc-tiny-8l")
wrong += outside.missed(lambda: ckvc.hf.compress(model, "org/none", budget=0.25), "no repository of the hub")
hub.close()
shutil.rmtree(tmp / "large")
(tmp / "tables.json").unlink()
wrong += outside.missed(lambda: ckvc.hf.compress(model, budget=0.25), "no table that comes with ckvc")
assert not wrong, wrong
print("compress without a table, or with one of a hub: takes the one that fits, as if given, and counts bytes or entries as asked; 15 refusals in one line: 0 wrong")
