#!/usr/bin/env python3
"""ckvc.hf.calibrate beside `ckvc calibrate --side demand`, on the embedded models: columns, counts, features, fitted tables. Then what a run
directory must stand: a kill, parts, another plan, a full disk; what is refused.

Two programs add float32 in two orders: a count may differ where two scores are equal to 1e-5 of them.
"""
import functools
import json
import os
import signal
import subprocess
import sys
import time

import outside
from outside import missed

a, (torch, transformers, np, h5py), tok, ids = outside.by_torch()
import ckvc  # noqa: E402  (its folder was added above, and that of tests/python)
import ckvc.calibrate  # noqa: E402
import ckvc.fingerprint  # noqa: E402
import ckvc.hf  # noqa: E402
from ckvc import run_writer  # noqa: E402
from unfolded import unfolded  # noqa: E402

tmp = outside.scratch()
MODELS = [outside.ROOT / "models" / f"ckvc-tiny-{n}l" for n in (4, 8)]
text = outside.prose(a)
LINES = [*({"id": f"p{i}", "tokens": ids[700 * i : 700 * i + 330 + 70 * i], "source": "m\u00e9thode", "document": f"d{i // 2}"} for i in range(6)),
         {"id": "text", "text": text[10000:12000], "continuation": " the table says what a head keeps of a prompt"},
         {"id": "judges", "text": text[14000:16000], "split": "heldout"}, {"id": "chooses", "text": text[16000:17500], "split": "select"},
         {"id": "cut", "text": text[:12000], "split": "train"}, {"id": "short", "tokens": ids[9000:9110], "continuation_tokens": ids[100:150]}]
prompts, others = outside.manifest(LINES), []
OPTIONS = dict(window=32, continuation=32, quiet=True)
BUDGETS = (0.125, 0.25)


def manifest(*lines):
    others.append(outside.manifest(lines))  # which is there as long as it is held
    return others[-1].name


def loaded(path):
    return transformers.AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32)


def rows(run):
    """Columns of each prompt, by its id."""
    out = {}
    for path in sorted((run / "pass-01-demand").glob("*.h5")):
        with h5py.File(path) as f:
            columns = {k: unfolded(v) for k, v in f["prompt"].items()}
            out.update({i.decode(): {k: v[n] for k, v in columns.items()} for n, i in enumerate(columns["id"])})
    return out


def queries(run):
    """The logged vectors [L, H, D] by prompt's id, part and position."""
    out = {}
    for path in sorted((run / "pass-01-demand").glob("*.h5")):
        with h5py.File(path) as f:
            ids, (p, part, at, v) = unfolded(f["prompt/id"]), (unfolded(f[f"query/{k}"]) for k in ("prompt", "part", "position", "vectors"))
            out.update({(ids[p[i]].decode(), int(part[i]), int(at[i])): v[i].view(np.float16).astype(float) for i in range(len(p))})
    return out


def fitted(run, *more):
    table = tmp / f"{run.name}.ckvt"
    outside.run(a.ckvc, "fit", run, *more, "--out", table, "-q", "--force")
    return ckvc.Table.read(table)


def by_position(x):
    """A prompt's logged features by (layer, head, position), which the feature log(T - t) tells."""
    T, (L, G, P, _) = int(x["n_tokens"]), x["features"].shape
    at = np.rint(T - np.exp(x["features"][:, :, : min(T, P), 15].astype(float))).astype(int)
    return {(l, g, int(at[l, g, k])): x["features"][l, g, k] for l in range(L) for g in range(G) for k in range(min(T, P))}


def rho(x, y):
    x, y = (np.argsort(np.argsort(v.ravel(), kind="stable")) for v in (x, y))
    return float(np.corrcoef(x, y)[0, 1])


ties = []  # of each count: entries of the unit whose score is within 1e-5 of the least that is taken
counts = ckvc.calibrate.demand_counts


def counts_and_ties(score, budget, floor, recent):
    got = counts(score, budget, floor, recent)
    order = score[:, 1 : score.shape[1] - recent].sort(dim=1, descending=True).values
    extra, m = (got - recent - 1).clamp(min=1), ckvc.head_floor(floor, recent, min(budget, score.shape[1]), score.shape[1])
    least = order.gather(1, extra[:, None] - 1)[got > m].min() if bool((got > m).any()) else torch.tensor(np.nan)
    ties.append(((score - least).abs() <= 1e-5 * least).sum(dim=1))
    return got


def parity(path, name, tokenizer=tok, window=32, continuation=32):
    """The prompts of a manifest by both programs."""
    theirs, ours = tmp / f"c-{path.name}", tmp / f"torch-{path.name}"
    outside.run(a.ckvc, "calibrate", "--side", "demand", "--model", path, "--manifest", name, "--window", window, "--continuation", continuation, "--budget", "0.125,0.25",
                "--out", theirs, "-q")
    ties.clear()
    ckvc.calibrate.demand_counts = counts_and_ties
    ckvc.hf.calibrate(loaded(path), tokenizer, name, BUDGETS, ours, window=window, continuation=continuation, quiet=True)
    ckvc.calibrate.demand_counts = counts
    x, y = rows(theirs), rows(ours)
    same = ("id", "source", "document", "split", "line", "n_tokens", "n_continuation", "cut", "token_hash")
    outside.at_most(f"{path.name}: prompts, and their columns that must be equal", sum(x[i].get(k) != y[i].get(k) for i in x for k in same) + (list(x) != list(y)), 0)
    for k, limit in (("r_struct", 1e-5), ("r_sem", 1e-5), ("loss_full", 1e-5), ("rho_sd", 1e-5), ("own_recent", 1e-5), ("own_entropy", 1e-5), ("mass", 1e-4), ("target", 1e-9)):
        outside.at_most(f"{path.name}: {k}, relative", max(np.max(np.abs(x[i][k] - y[i][k]) / np.abs(x[i][k])) for i in x), limit)
    outside.at_most(f"{path.name}: sums of features", max(np.abs(x[i]["target_features"] - y[i]["target_features"]).max() for i in x), 4e-4)
    told = iter(ties)
    n = differ = untied = 0
    for i in x:
        T = int(x[i]["n_tokens"])
        for mix in range(5):
            for name in ("demand", "layer_demand", "length_demand"):
                for b in range(len(BUDGETS)):
                    p, q = (z[i]["mixed_" + name][mix - 1, b] if mix else z[i][name][b] for z in (x, y))
                    off, near = np.abs(p.astype(int) - q).ravel(), next(told).numpy()
                    n, differ, untied = n + off.size, differ + int((off > 0).sum()), untied + int((off > near).sum())
                    untied += int(p.sum() != q.sum() or q.max() > T)
    print(f"{differ} of {n} counts differ, all of them ties but {untied}")
    outside.at_most(f"{path.name}: counts that differ, and no score is within 1e-5", untied, 0)
    outside.at_most(f"{path.name}: share of counts that differ by a tie", differ / n, 0.01)
    f, g = zip(*((by_position(x[i]), by_position(y[i])) for i in x))
    outside.at_most(f"{path.name}: share of logged positions that are in one alone", sum(len(set(p) - set(q)) for p, q in zip(f, g)) / sum(map(len, f)), 0.002)
    outside.at_most(f"{path.name}: features", max(np.abs(p[k] - q[k]).max() for p, q in zip(f, g) for k in set(p) & set(q)), 2e-4)
    u, v = queries(theirs), queries(ours)
    held = [i for i in x if x[i]["split"] == b"heldout"]
    outside.at_most(f"{path.name}: logged queries that are in one alone, or of a prompt that is held out", len(set(u) ^ set(v)) + sum(k[0] in held for k in u), 0)
    # a step of float16 is 2^-10 of a number at most, and before rounding two programs differ by 1e-4 as their features do
    outside.at_most(f"{path.name}: queries, beyond a step of float16", max((np.abs(u[k] - v[k]) - 2**-10 * np.abs(u[k])).max() for k in u), 1e-4)
    s, t = fitted(theirs), fitted(ours)
    outside.at_most(f"{path.name}: 1 - rho of the tables' shares", 1 - min(rho(s.share[..., b], t.share[..., b]) for b in range(2)), 1e-3)
    outside.at_most(f"{path.name}: fingerprints that differ", s.meta["fingerprint"] != t.meta["fingerprint"], 0)
    outside.run(a.ckvc, "verify", ours)
    outside.run(a.ckvc, "fit", theirs, ours, "--out", tmp / "both.ckvt", "-q", "--force")  # which takes them for one model's


def unlike(x, y):
    """How many columns of two runs' prompts differ, and whether the prompts do."""
    x, y = rows(x), rows(y)
    return (list(x) != list(y)) + sum(not np.array_equal(x[i][k], y[i][k]) for i in x for k in x[i])


def command(out, *more, model=MODELS[0], wrap=()):
    return [*wrap, sys.executable, "-m", "ckvc", "calibrate", str(model), "--manifest", prompts.name, "--budget", "0.125,0.25", "--window", "32", "--continuation", "32",
            "--dtype", "float32", "--device", "cpu", "--out", str(out), "-q" if "-q" in more else "--quiet", *(m for m in more if m != "-q")]


def started(words, **env):
    env = {**os.environ, "PYTHONPATH": str(outside.ROOT / "python"), "OMP_NUM_THREADS": "1", **env}
    return subprocess.Popen(words, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def ended(p, status=0, words=""):
    """1 where it did not end so, with one line that has these words."""
    out, err = p.communicate()
    said = [line for line in err.splitlines() if line.startswith("ckvc")]
    wrong = p.returncode != status or words not in err or len(said) != (status != 0)
    if wrong:
        print(p.returncode, out, err)
    return int(wrong)


def killed():
    """A run killed after its 3rd prompt, its journal torn, a temporary file left: how it differs in the end from one that was not."""
    out = tmp / "killed"
    p = started(command(out))
    while not (out / "journal.jsonl").exists() or (out / "journal.jsonl").read_text().count("sha256") < 3:
        time.sleep(0.02)
    p.send_signal(signal.SIGKILL)
    p.communicate()
    before = (out / "journal.jsonl").read_text().count("sha256")
    with open(out / "journal.jsonl", "a") as f:
        f.write('{"pass":"pass-01-dem')
    left = out / "pass-01-demand" / f"shard-{before + 1:05}.h5.tmp.0123456789abcdef"
    left.write_bytes(b"half")
    wrong = ended(started(command(out)), 73, "exists and is not empty; go on with")
    wrong += ended(started(command(out, "--resume")))
    wrong += ended(started(command(out, "--resume")))  # nothing is left to do
    outside.run(a.ckvc, "verify", out)
    status = json.loads(outside.run(a.ckvc, "status", out, "--json"))
    wrong += not status["complete"] or left.exists() or not 3 <= before < 10
    return wrong + unlike(tmp / f"torch-{MODELS[0].name}", out)


def parts():
    """Two processes as torchrun starts them, one part as a Slurm array does: how the merged run differs from one in one piece."""
    out, whole = tmp / "parts", tmp / f"torch-{MODELS[0].name}"
    both = [started(command(out), RANK=str(i), WORLD_SIZE="2", LOCAL_RANK=str(i)) for i in range(2)]
    wrong = sum(ended(p) for p in both)
    status = json.loads(outside.run(a.ckvc, "status", out, "--json"))
    wrong += len(status["parts"]) != 2 or not status["complete"]
    wrong += ended(started(command(out, "--shard", "0/3")), 65, "is a run in 2 parts") + (out / "lock-0-of-3").exists()
    outside.run(a.ckvc, "merge", out)
    outside.run(a.ckvc, "verify", out)
    apart = tmp / "apart"
    wrong += ended(started(command(apart), SLURM_ARRAY_TASK_ID="9", SLURM_ARRAY_TASK_MIN="7", SLURM_ARRAY_TASK_STEP="2", SLURM_ARRAY_TASK_COUNT="2"))
    wrong += ended(started(command(tmp / "gaps"), SLURM_ARRAY_TASK_ID="9", SLURM_ARRAY_TASK_COUNT="2"), 65, "this is task 9 of 2")
    wrong += sorted(rows(apart)) != sorted(list(rows(whole))[1::2])
    return wrong + unlike(whole, out) + ((whole / "journal.jsonl").read_text() != (out / "journal.jsonl").read_text())


def tiny(kind, **more):
    shape = dict(vocab_size=4096, hidden_size=192, intermediate_size=256, num_hidden_layers=3, num_attention_heads=6, num_key_value_heads=3, pad_token_id=0, max_position_embeddings=2048)
    torch.manual_seed(1)
    return transformers.AutoModelForCausalLM.from_config(getattr(transformers, kind + "Config")(**{**shape, **more})).eval()


def refused():
    model, go = loaded(MODELS[0]), functools.partial(ckvc.hf.calibrate, tokenizer=tok, budgets=BUDGETS, **OPTIONS)
    done, fresh = tmp / f"torch-{MODELS[0].name}", tmp / "never"
    bad = [("unknown key ['prompt']", {"id": "x", "prompt": "y"}), ("want exactly one of", {"id": "x"}), ("the model's vocabulary has ids 0 to 4095", {"id": "x", "tokens": [5000] * 200}),
           ("this model states none", {"id": "x", "messages": [{"role": "user", "content": "y"}]}),
           ("has 9 tokens, need at least 65", {"id": "x", "tokens": ids[:9]}), ("is not inside the manifest's folder", {"id": "x", "file": "/etc/passwd"})]
    out = [missed(lambda: go(model, manifest=manifest(line), out=fresh), words) for words, line in bad]
    model.set_attn_implementation("eager")
    model.config._attn_implementation_internal = "flash_attention_2"
    out.append(missed(lambda: go(model, manifest=prompts.name, out=fresh / "flash"), "attention implementation flash_attention_2: want sdpa or eager"))
    model.config._attn_implementation_internal = "sdpa"
    out += [missed(lambda: go(model, budgets=(8,), manifest=prompts.name, out=fresh), "every head keeps 9"),
            missed(lambda: go(model, manifest=prompts.name, out=fresh, window=1500), "holds no prompt of more than the window"),
            missed(lambda: go(model, manifest=prompts.name, out=done, window=33, resume=True), "window: 32 there, 33 now"),
            missed(lambda: go(loaded(MODELS[1]), manifest=prompts.name, out=done, resume=True), "model: "),
            missed(lambda: go(model.to(torch.bfloat16), manifest=prompts.name, out=done, resume=True), "dtype: \"float32\" there, \"bfloat16\" now")]
    return sum(out) + (model.config._attn_implementation != "sdpa")


def full_disk():
    """Writing fails at the 4th prompt: one line, three prompts stay, and it goes on."""
    out, write, n = tmp / "full", run_writer.publish, iter(range(100))
    def failing(path, data, force=False):
        if path.endswith(".h5") and next(n) == 3:
            raise OSError(28, "No space left on device")
        write(path, data, force)
    run_writer.publish = failing
    go = functools.partial(ckvc.hf.calibrate, loaded(MODELS[0]), tok, prompts.name, BUDGETS, out, **OPTIONS)
    wrong = missed(go, "No space left on device; what is published stays, make room and resume") + (len(rows(out)) != 3)
    run_writer.publish = write
    go(resume=True)
    outside.run(a.ckvc, "verify", out)
    return wrong + (list(rows(out)) != list(rows(tmp / f"torch-{MODELS[0].name}")))


def not_finite():
    """A prompt whose numbers are not finite leaves no records and a line of the journal, up to max_failures."""
    model, out = loaded(MODELS[0]), tmp / "nan"
    read, _ = ckvc.manifest_prompts.read_prompts(prompts.name, tok, ckvc.manifest_prompts.Limits(2048, 4096, 32, 32, 9))
    only = next(t for t in read[-1].tokens if not any(t in p.tokens for p in read[:-1]))
    model.model.embed_tokens.register_forward_hook(lambda module, args, out: out.masked_fill((args[0] == only)[..., None], torch.nan))
    go = functools.partial(ckvc.hf.calibrate, model, tok, prompts.name, BUDGETS, **OPTIONS)
    wrong = missed(lambda: go(tmp / "nan"), "1 such prompts, max_failures allows 0") + (len(rows(tmp / "nan")) != 9)
    go(out := tmp / "nan2", max_failures=1)
    outside.run(a.ckvc, "verify", out)
    skipped = [json.loads(line)["id"] for line in (out / "journal.jsonl").read_text().splitlines() if "reason" in line]
    return wrong + (skipped != ["short"]) + (len(rows(out)) != 9) + (fitted(out).share.shape != (4, 3, 2))


def fingerprints():
    """Models of the C program's families, saved and loaded: how many are another model to it. Of others a change of a weight must show."""
    llama3 = dict(rope_type="llama3", rope_theta=5e5, factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=1024)
    wrong, same = 0, ckvc.fingerprint.fingerprint
    for i, (kind, more) in enumerate((("Qwen2", {}), ("Qwen2", dict(use_sliding_window=True, sliding_window=64, max_window_layers=1)), ("Mistral", dict(sliding_window=64)),
                                      ("Mistral", dict(sliding_window=None)), ("Llama", dict(attention_bias=True, mlp_bias=True, tie_word_embeddings=True)),
                                      ("Llama", dict(rope_parameters=llama3)), ("Llama", dict(rope_parameters=dict(rope_type="dynamic", rope_theta=1e4, factor=2.0))),
                                      ("Qwen3", dict(head_dim=32)), ("Phi3", HALF))):
        tiny(kind, **more).save_pretrained(tmp / f"saved-{i}", max_shard_size="300KB")
        theirs = json.loads(outside.run(a.ckvc, "inspect", tmp / f"saved-{i}", "--json"))["fingerprint"]
        wrong += same(transformers.AutoModelForCausalLM.from_pretrained(tmp / f"saved-{i}")) != theirs
    for i, more in enumerate((dict(is_causal=False), dict(is_causal=None), dict(sliding_window=8), dict(attention_chunk_size=8), dict(logit_scale=2.0))):
        tiny("Llama", **more).save_pretrained(tmp / f"odd-{i}")  # which the program refuses: no model of its own kind
        wrong += ckvc.fingerprint._shape_lines(transformers.AutoConfig.from_pretrained(tmp / f"odd-{i}")) is not None
        wrong += subprocess.run([a.ckvc, "inspect", str(tmp / f"odd-{i}")], capture_output=True).returncode != 65
    x, y = tiny("Olmo2"), tiny("Olmo2")
    wrong += same(x) != same(y)
    with torch.no_grad():
        y.lm_head.weight[7, 9] += 1
    return wrong + (same(x) == same(y))


def pieces():
    """A prompt in chunks that do not see each other, tokens fed in small pieces, tiles of a few rows: relative difference of y_r and y_c."""
    def looked():
        meter = ckvc.calibrate.Meter(model, tok("\n\n" + ckvc.calibrate.REPEAT, add_special_tokens=False)["input_ids"], 100, ckvc.calibrate.Options(BUDGETS, window=32, continuation=32))
        with ckvc.hf_model.attention_of(model, meter.attention) as meter.before, torch.no_grad():
            meter._look(transformers.DynamicCache(), p)
        return meter.y_r, meter.y_c
    model, limits = loaded(MODELS[0]), ckvc.manifest_prompts.Limits(2048, 4096, 32, 32, 9)
    (p,), _ = ckvc.manifest_prompts.read_prompts(manifest({"id": "x", "tokens": ids[:700]}), tok, limits)
    sizes = ckvc.calibrate.TILE, ckvc.calibrate.MASK, ckvc.calibrate.CHUNK
    ckvc.calibrate.CHUNK = 300
    whole = looked()
    ckvc.calibrate.TILE, ckvc.calibrate.MASK = 9000, 70 * 1000
    cut = looked()
    ckvc.calibrate.TILE, ckvc.calibrate.MASK, ckvc.calibrate.CHUNK = sizes
    return max(float((x - y).abs().max() / x.max()) for x, y in zip(whole, cut))


HALF = dict(rope_parameters={"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.5})


def long_model():
    """A folder of a model whose context of 4,500 tokens holds prompts of 2,300, and not their repetition in one piece."""
    return folder(tiny("Llama", max_position_embeddings=4500), tmp / "long")


def folder(model, path):
    """The model and the tokenizer, saved, for the C program."""
    with torch.no_grad():
        for name, w in model.named_parameters():
            if name.endswith(("q_proj.weight", "qkv_proj.weight")):
                w[:192] *= 8  # queries; random weights attend to all nearly alike: many counts would be ties
    model.save_pretrained(path)
    tok.save_pretrained(path)
    return path


for path in MODELS:
    parity(path, prompts.name)
parity(folder(tiny("Phi3", **HALF), tmp / "phi3"), prompts.name)
parity(long_model(), manifest(*({"id": f"long{i}", "tokens": ids[2000 * i : 2000 * i + 2300]} for i in range(2))))
smollm2 = a.models / "f32"
if smollm2.is_dir():
    parity(smollm2, manifest(*({"id": f"s{n}", "text": text[5 * n : 6 * n]} for n in (1400, 2600, 4200))), transformers.AutoTokenizer.from_pretrained(smollm2), 64, 128)
else:
    print(f"no {smollm2}: its prompts are compared where `make model-smollm2` made it")
outside.at_most("small pieces and tiles: attention, relative to the largest", pieces(), 1e-5)
outside.at_most("fingerprints that are not the C program's, or do not tell weights apart", fingerprints(), 0)
outside.at_most("killed and resumed: what differs", killed(), 0)
outside.at_most("in parts and merged: what differs", parts(), 0)
outside.at_most("a full disk: what went wrong", full_disk(), 0)
outside.at_most("a prompt that is not finite: what went wrong", not_finite(), 0)
outside.at_most("what should be refused with its line and is not", refused(), 0)
outside.done()
