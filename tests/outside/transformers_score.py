#!/usr/bin/env python3
"""`python3 -m ckvc score` beside `ckvc score` on the embedded models: every number of every line, under tables of each score and mode and under the
references that both have. `python3 -m ckvc compile` beside `ckvc compile`: what is chosen, and by which losses. Where kvpress is there, its presses:
a line's loss beside a cache that is cut here.
"""
import importlib.util
import json
import os
import pathlib
import shutil
import subprocess
import sys

import outside

a, (torch, transformers, np, h5py), tok, ids = outside.by_torch()
import ckvc  # noqa: E402  (its folder was added above)
import ckvc.exchange  # noqa: E402
import ckvc.files  # noqa: E402
import ckvc.score  # noqa: E402

tmp = outside.scratch()
MODELS = [outside.ROOT / "models" / f"ckvc-tiny-{n}l" for n in (4, 8)]
text = outside.prose(a)
LINES = [*({"id": f"p{i}", "tokens": ids[700 * i : 700 * i + 330]} for i in range(6)), *({"id": f"s{i}", "tokens": ids[6000 + 400 * i : 6280 + 400 * i], "split": "select"} for i in range(2)),
         *({"id": f"h{i}", "tokens": ids[8000 + 400 * i : 8280 + 400 * i], "split": "heldout", "source": "m\u00e9thode"} for i in range(2)),
         {"id": "text", "text": text[3000:4200], "document": "paper", "continuation": " the table says what a head keeps of a prompt", "split": "heldout"},
         {"id": "whole", "tokens": ids[10000:10030], "split": "heldout", "continuation_tokens": ids[10060:10070], "document": "paper"}]
prompts = outside.manifest(LINES[:-1])
short = outside.manifest(LINES)
COMMON = ["--window", 32, "--continuation", 32]
COUNTS = ("n_candidates",)  # of shared sets, before the clamp: null here


def own(verb, model, *words):
    """What the package prints."""
    return ckvc.score.main(verb, [str(model), "--manifest", short.name if verb == "score" else prompts.name, *map(str, COMMON), "--dtype", "float32", "--device", "cpu", "--quiet", *map(str, words)])


def rows(path):
    return {(x["id"], x["policy"], x["table"], x["budget"]): x for x in map(json.loads, pathlib.Path(path).read_text().splitlines())}


def watched(under=ckvc.score.Scoring.under):
    """Each line's sets, as Scoring.under keeps them: name -> [sets][positions]."""
    sets = {}

    def again(self, *of):
        self.kept = None
        line = under(self, *of)
        kept = self.kept and self.kept[0]
        sets[line["id"], line["policy"], line["table"], line["budget"]] = kept and [list(map(int, head)) for layer in kept.positions for head in layer[: None if kept.mode in ckvc.table.BY_HEAD else 1]]
        return line
    ckvc.score.Scoring.under = again
    return sets


torch_sets = watched()


def parity(model, name, *options):
    """The largest difference of a loss or a divergence, how many other numbers differ (risks: by more than 1e-5 of them), and how many sets by one position:
    where two float32 sums are nearly the same. The losses of such lines are not compared."""
    files = [tmp / f"{model.name}-{name}-{who}.jsonl" for who in ("c", "torch")]
    outside.run(a.ckvc, "score", "--model", model, "--manifest", short.name, "--split", "heldout", *COMMON, *options, "--out", files[0], "-q", "-t", 1, "--sets")
    torch_sets.clear()
    own("score", model, "--split", "heldout", *options, "--out", files[1])
    x, y = map(rows, files)
    worst, other, ties = 0.0, len(set(x) ^ set(y)), 0
    for key in set(x) & set(y):
        mine, its = torch_sets[key], x[key].pop("sets")
        its = [list(s) for of in its for s in (of if of and isinstance(of[0], list) else [of])]
        near = sum(len(set(s) ^ set(t)) == 2 for s, t in zip(mine or [], its))
        other += mine is not None and sum(s != t for s, t in zip(mine, its)) != near
        ties += near
        for k in set(x[key]) | set(y[key]):
            u, v = x[key].get(k), y[key].get(k)
            if k in ("loss_full", "loss_comp", "reward", "kl"):
                worst = worst if near else max(worst, abs(u - v))
            elif k == "n_kept_window" and near:  # the two positions may lie on both sides of its begin
                other += np.abs(np.subtract(u, v)).sum() > near
            elif k in ("r_struct", "r_sem") and x[key].get("whole"):
                pass  # of fewer rows than the window: not measured here
            elif k not in COUNTS and not (u == v or (k in ("r_struct", "r_sem") and abs(u - v) <= 1e-5 * abs(u))):
                print(key, k, u, v)
                other += 1
    label = f"{'SmolLM2' if model.name == 'f32' else model.name}, {name}"
    outside.at_most(f"{label}: losses and divergences beside ckvc score", worst, 1e-5)
    outside.at_most(f"{label}: other numbers that differ", other, 0)
    outside.at_most(f"{label}: sets that differ by a position", ties, 2)


def report(run, table, scores):
    """1 where `ckvc report` does not read the lines."""
    out = outside.run(a.ckvc, "report", table, run, "--scores", scores, "--out", tmp / "report", "--force").decode()
    return int("best simple reference" not in out)


def choices(*options):
    """Differences between the two compiles: divergences of the candidates; what they recommend."""
    theirs, ours = tmp / f"compile-c{len(options)}", tmp / f"compile-torch{len(options)}"
    outside.run(a.ckvc, "compile", "--model", MODELS[1], "--manifest", prompts.name, *COMMON, "--budget", "0.125,0.25", "--out", theirs, "-q", "-t", 1, *options)
    said = own("compile", MODELS[1], "--budget", "0.125,0.25", "--ckvc", a.ckvc, "--out", ours, *options)
    x, y = (ckvc.Table.read(run / "table.ckvt") for run in (theirs, ours))
    p, q = (t.meta["select"] for t in (x, y))
    kl = max(abs(u - v) for c, d in zip(p["candidates"], q["candidates"]) for u, v in zip(c["kl"], d["kl"]) if u is not None)
    wrong = [[(c["score"], c["floor"], c.get("mix"), c.get("ridge")) for c in s["candidates"]] for s in (p, q)]
    want = ("KL from the full cache on 2 prompts of split select (* the least: recommended)", "best simple reference", f"wrote {ours}/table.ckvt, content id {y.content_id}")
    return kl, (wrong[0] != wrong[1]) + (p["chosen"] != q["chosen"]) + (x.score != y.score) + sum(w not in said for w in want) + report(ours / "demand", ours / "table.ckvt", ours / "heldout.jsonl")


def presses():
    """KnormPress beside a cache cut here; AdaKVPress, whose heads differ; how far off the loss is, and what else is wrong."""
    model = transformers.AutoModelForCausalLM.from_pretrained(MODELS[0], dtype=torch.float32).eval()
    own("score", MODELS[0], "--split", "heldout", "--policy", "KnormPress,AdaKVPress", "-B", "0.25", "--out", tmp / "press.jsonl")
    x, entry = rows(tmp / "press.jsonl"), LINES[8]
    T = len(entry["tokens"]) - 32
    cache, targets = transformers.DynamicCache(), torch.tensor(entry["tokens"][T:])
    with torch.no_grad():
        first = model(torch.tensor([entry["tokens"][:T]]), past_key_values=cache).logits[0, -1:]
        for layer in cache.layers:
            at = layer.keys.norm(dim=-1).topk(T // 4, largest=False).indices[..., None].expand(-1, -1, -1, layer.keys.shape[3])
            layer.keys, layer.values = layer.keys.gather(2, at), layer.values.gather(2, at)
        rest = model(targets[None, :-1], past_key_values=cache, position_ids=torch.arange(T, T + 31)[None]).logits[0]
    loss = float(torch.nn.functional.cross_entropy(torch.cat([first, rest]).double(), targets))
    one, many = x["h0", "KnormPress", None, 0.25], x["h0", "AdaKVPress", None, 0.25]
    g = model.config.num_hidden_layers * model.config.num_key_value_heads
    wrong = (one["entries"] != g * (T // 4)) + (many["entries"] != g * (T // 4)) + (len({n for of in many["n_kept"] for n in of}) == 1) + (one["n_kept_window"] is not None)
    return abs(one["loss_comp"] - loss), wrong


def zapped():
    """scripts/kvzap.py: the scores that it fits beside kvpress's own; what else is wrong: numbers of entries by count and by threshold, lines beside others, refusals."""
    spec = importlib.util.spec_from_file_location("kvzap", outside.ROOT / "scripts/kvzap.py")
    kvzap = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(kvzap)

    class Theirs(kvzap.KVzipPress):
        def compress_post(self, model):
            self.scores = self.score_val[:, 0].double().log()

    model, worst = transformers.AutoModelForCausalLM.from_pretrained(MODELS[0], dtype=torch.float32).eval(), 0.0
    for chunk in (2048, 300):
        x, y = (kind(compression_ratio=0.5, kvzip_plus_normalization=True, chunk_size=chunk) for kind in (kvzap.Target, Theirs))
        for press in (x, y):
            with torch.no_grad(), press(model):
                model.model(input_ids=torch.tensor([ids[:700]]), past_key_values=transformers.DynamicCache())
        there = y.scores.isfinite()
        worst = max(worst, float((x.scores - y.scores)[there].abs().max()))
    folder, lines, again = tmp / "kvzap", tmp / "kvzap.jsonl", tmp / "kvzap-beside.jsonl"
    made = subprocess.run([sys.executable, spec.origin, MODELS[0], "--manifest", prompts.name, "-B", "0.25", "--window", "32", "--continuation", "32", "--dtype", "float32", "--out", folder],
                          capture_output=True, text=True)
    if made.returncode:
        print(made.stderr)
        return worst, 1
    scored = ["--split", "heldout", "-B", "0.25", "--policy", "full,KVzapPress,DMSPress", "--kvzap", folder]
    own("score", MODELS[0], *scored, "--out", lines)
    own("score", MODELS[0], *scored, "--beside", lines, "--out", again)
    of, (L, G) = rows(lines), (model.config.num_hidden_layers, model.config.num_key_value_heads)
    count, threshold = ([r for (_, policy, *_), r in of.items() if policy == name and not r.get("whole")] for name in ("KVzapPress", "DMSPress"))
    wrong = sum(r["entries"] != L * G * (r["T"] // 4) or len({n for of in r["n_kept"] for n in of}) == 1 for r in count) + (len(count) < 2)
    wrong += all(r["entries"] == L * G * (r["T"] // 4) for r in threshold) + (lines.read_bytes() != again.read_bytes())
    lines.write_text(lines.read_text().replace('"loss_full":', '"loss_full":1'))
    given = ["--dtype", "float32", "--device", "cpu", "--quiet", "--out", tmp / "no"]
    asked, few = ["--manifest", short.name, *COMMON, *given, *scored], outside.manifest([LINES[0], {"id": "few", "tokens": ids[:72]}])
    wrong += missed("want the same model", "score", MODELS[0], *asked, "--beside", lines)
    wrong += missed("KVzap: budget 0.5 is none of 0.25, which its folder has", "score", MODELS[0], *asked, "-B", 0.5)
    wrong += missed("KVzapPress: keeps a set of each head: other modes are for tables", "score", MODELS[0], *asked, "--policy", "KVzapPress", "--mode", "uniform")
    said = 'and last {}, more than the 10 tokens of prompt "few": want longer prompts'
    wrong += missed(said.format(json.loads((folder / "config.json").read_text())["ckvc"]["0.25"]["recent"]), "score", MODELS[0], "--manifest", few.name, *COMMON, *given, *scored[2:])
    for code, words, *more in ((1, said.format(8), few.name, "-B", "0.25"), (64, "kvzap.py: ", few.name, "-B", "0.25,x")):
        done = subprocess.run([sys.executable, spec.origin, MODELS[0], "--manifest", *map(str, [*more, *COMMON, *given])], capture_output=True, text=True)
        wrong += (done.returncode != code) + (words not in done.stderr.splitlines()[-1]) + ("Traceback" in done.stderr) + ("fitted 1" in done.stderr)
    return worst, wrong + missed("of 4 layers, width", "score", MODELS[1], *asked)


def missed(words, *command):
    """Whether it is not refused in one line that says what it is about."""
    done = subprocess.run([sys.executable, "-m", "ckvc", *map(str, command)], env={**os.environ, "PYTHONPATH": os.pathsep.join([str(outside.ROOT / "python"), os.environ.get("PYTHONPATH", "")])},
                          capture_output=True, text=True)
    said = [line for line in done.stderr.splitlines() if line.startswith("ckvc")]
    if done.returncode in (64, 65, 66, 69, 73, 75) and len(said) == 1 and words in said[0]:
        return 0
    print(done.returncode, done.stdout, done.stderr)
    return 1


def repeated(model, table):
    """Lines of what is named twice; 1 is a token, and the document `paper` the name of two prompts."""
    n = own("score", model, "--split", "heldout", "--table", f"{table},{table}", "--policy", "full,snapkv,full", "-B", "1,0.25,0.25", "--mode", "uniform", "--out", tmp / f"{model.name}-repeated.jsonl")
    x = rows(tmp / f"{model.name}-repeated.jsonl")
    return (", 24 lines" not in n) + (len(x) != 24) + sum(of.get("document") != ("paper" if id in ("text", "whole") else None) for (id, *_), of in x.items())


def beside():
    """Lines beside others: how often another model's name is not taken, or what no line of ckvc score is, is not refused."""
    lines, again, bad = (tmp / f"beside-{x}.jsonl" for x in ("lines", "again", "bad"))
    asked = ["--split", "heldout", "-B", "0.25", "--policy", "full"]
    own("score", MODELS[0], *asked, "--out", lines)
    x = [json.loads(line) for line in lines.read_text().splitlines()]
    lines.write_text("".join(json.dumps({**of, "model": "another"}) + "\n" for of in x))
    own("score", MODELS[0], *asked, "--beside", lines, "--out", again)
    wrong = int({of["model"] for of in map(json.loads, again.read_text().splitlines())} != {"another"})
    command = ["score", MODELS[0], "--manifest", short.name, *COMMON, "--dtype", "float32", "--device", "cpu", *asked, "--out", tmp / "no", "--beside", bad]
    for words, text in (("line 1: KeyError: 'token_hash': want lines of ckvc score", json.dumps({k: v for k, v in x[0].items() if k != "token_hash"}) + "\n"), ("line 1: JSONDecodeError", "no\n"), ("is not there with these tokens", json.dumps(x[0]) + "\n"),
                        ("line 2: TypeError", "".join(json.dumps({**of, "loss_full": of["loss_full"] if of is x[0] else None}) + "\n" for of in x)),
                        ("want the same model", "".join(json.dumps({**of, "loss_full": of["loss_full"] + 1e-3}) + "\n" for of in x))):
        bad.write_text(text)
        wrong += missed(words, *command)
    return wrong + missed("No such file", *command[:-1], tmp / "nowhere", "--policy", "full,SnapKV")  # before what score itself refuses


def resumed(under=ckvc.score.Scoring.under):
    """Stopped in the second prompt, and gone on with: what differs from lines in one go, and what is not refused on the way."""
    whole, out = tmp / "whole.jsonl", tmp / "resumed.jsonl"
    asked, checkpoint, calls = ["--split", "heldout", "-B", "0.125,0.25", "--policy", "full,top-k,snapkv"], pathlib.Path(f"{out}.checkpoint"), []
    own("score", MODELS[0], *asked, "--out", whole)

    def stopped(self, *of):
        calls.append(of)
        if len(calls) == 9:
            raise KeyboardInterrupt
        return under(self, *of)

    ckvc.score.Scoring.under = stopped
    wrong = 0
    try:
        own("score", MODELS[0], *asked, "--out", out)
    except KeyboardInterrupt:
        wrong += out.exists() + (len(checkpoint.read_text().splitlines()) != 7)
    lines = checkpoint.read_bytes()
    done = json.loads(outside.run(a.ckvc, "status", out, "--json"))["parts"][0]["passes"][0]
    wrong += (done["prompts"], done["done"]) != (4, 1)
    command = ["score", MODELS[0], "--manifest", short.name, *COMMON, "--dtype", "float32", "--device", "cpu", "--quiet", "--out", out]
    wrong += missed("a score was stopped here; go on with --resume, or begin anew with --force", *command, *asked)
    wrong += missed("was begun with budget (0.125, 0.25), now (0.125, 0.5); give the same", *command, *asked, "-B", "0.125,0.5", "--resume")
    checkpoint.write_bytes(lines + lines.splitlines(keepends=True)[1] + b'{"id": "torn')  # of a prompt that was not finished
    own("score", MODELS[0], *asked, "--out", out, "--resume")
    wrong += (out.read_bytes() != whole.read_bytes()) + checkpoint.exists() + (len(calls) != 9 + 18)
    checkpoint.write_bytes(b'{"id": "torn\n' + lines)
    wrong += missed("1: a damaged line", *command, *asked, "--resume")
    ckvc.score.Scoring.under = under
    with ckvc.files.owned(checkpoint):
        wrong += missed("is writing here; wait for it or stop it", *command, *asked, "--force")
    own("score", MODELS[0], *asked, "--out", out, "--force")  # anew, whatever the checkpoint holds
    wrong += (out.read_bytes() != whole.read_bytes()) + checkpoint.exists()
    os.symlink(whole, checkpoint)
    wrong += missed("is a link, or no regular file", *command, *asked, "--force") + (out.read_bytes() != whole.read_bytes())
    checkpoint.unlink()

    def meanwhile(self, *of):
        late.write_text("theirs")
        return under(self, *of)

    ckvc.score.Scoring.under, late = meanwhile, tmp / "late.jsonl"
    try:
        own("score", MODELS[0], *asked, "--out", late)
        wrong += 1
    except FileExistsError:
        wrong += (late.read_text() != "theirs") + (not pathlib.Path(f"{late}.checkpoint").exists())
    ckvc.score.Scoring.under = under
    return wrong


def damaged(name, change):
    """A folder of the small model, changed."""
    folder = tmp / name
    shutil.copytree(MODELS[0], folder)
    change(folder)
    return folder


def refused():
    cut = damaged("cut", lambda x: os.truncate(x / "model.safetensors", 100000))
    none = damaged("none-at-all", lambda x: (x / "config.json").write_text((x / "config.json").read_text().replace('"num_attention_heads": 6', '"num_attention_heads": 0')))
    scored, table = ["score", MODELS[0], "--manifest", short.name, "--window", 32, "--device", "cpu", "--out"], tmp / "learned-ckvc-tiny-4l.ckvt"
    return sum((missed("this model is ckvc-tiny-8l, and their shapes differ; `ckvc transfer` maps a table to another model", "score", MODELS[1], *scored[2:], tmp / "no", "--table", table),
                missed("its window is 32, asked for is 64: say --window 32", *scored[:4], "--device", "cpu", "--out", tmp / "no", "--table", table),
                missed("SnapKV: want full, top-k, snapkv, adakv, or a class of kvpress", *scored, tmp / "no", "--policy", "SnapKV", "--budget", 0.25),
                missed("give --table, or --policy and --budget", *scored, tmp / "no", "--policy", "snapkv"),
                missed("--kvzap: goes with --policy KVzapPress or DMSPress", *scored, tmp / "no", "--table", table, "--kvzap", tmp),
                missed("DMSPress: keeps by a threshold: want python3 -m ckvc score --kvzap FOLDER", *scored, tmp / "no", "--policy", "full,DMSPress", "--budget", 0.25),
                missed("is an input", *scored, table, "--table", table),
                missed("--kept-floor: got 1.5, wanted 0 to 1", *scored, tmp / "no", "--table", table, "--kept-floor", 1.5),
                missed("is not there, or nothing can be written to it", *scored, tmp / "no" / "where", "--table", table),
                missed("SafetensorError", "score", cut, *scored[2:], tmp / "no", "--table", table), missed("ZeroDivisionError", "score", none, *scored[2:], tmp / "no", "--table", table),
                missed("--budget: got inf", *scored, tmp / "no", "--policy", "full", "--budget", "inf"), missed("--window: got -1, wanted 1 to", *scored, tmp / "no", "--table", table, "--window", -1),
                missed('prompt "p0": budget 0.003 keeps none of its 298 tokens; the least is 1', *scored, tmp / "no", "--policy", "snapkv", "--budget", 0.003, "--continuation", 32),
                missed("is an input", *scored, short.name, "--table", table, "--force"), missed("is there already; --force", *scored, prompts.name, "--table", table), missed("is an input", *scored, table, "--table", table, "--force"),
                missed("no prompt is of split nobody", *scored, tmp / "no", "--table", table, "--split", "nobody"),
                missed("build ckvc (make), and let $CKVC name it", "compile", MODELS[0], "--manifest", prompts.name, *COMMON, "--budget", 0.25, "--out", tmp / "none", "--ckvc", tmp / "ckvc")))


REFERENCES = ("--policy", ",".join(ckvc.score.REFERENCES))
for model in MODELS:
    common = ["--model", model, "--manifest", prompts.name, *COMMON, "--budget", "0.125,0.25", "-q", "-t", 1]
    outside.run(a.ckvc, "calibrate", "--side", "demand", *common, "--out", tmp / model.name)
    learned, mixed, lengths = (tmp / f"{kind}-{model.name}.ckvt" for kind in ("learned", "mixed", "lengths"))
    outside.run(a.ckvc, "fit", tmp / model.name, "--mode", "lengths", "--classes", 2, "--out", lengths, "-q")
    outside.run(a.ckvc, "fit", tmp / model.name, "--out", learned, "-q")
    outside.run(a.ckvc, "fit", tmp / model.name, "--features", 2, "--mix", 0.5, "--out", mixed, "-q")
    cases = [("references", "--table", learned, *REFERENCES), ("layers", "--table", learned, *REFERENCES, "--mode", "layers"),
             ("lengths", "--table", lengths, *REFERENCES), ("asked lengths", "--table", lengths, "--policy", "snapkv", "--mode", "lengths", "--kept-floor", 0.05),
             ("shared", "--table", learned, "--policy", "snapkv,adakv", "--mode", "uniform"),
             ("window", "--table", learned, "--ranking", "window", "--kept-floor", 0.05), ("paper", "--table", mixed, "--ranking", "paper"), ("no rows", "--table", mixed)]
    if model == MODELS[0]:
        outside.run(a.ckvc, "calibrate", "--side", "gate", "--bins", "3,2", "--variants", 40, *common, "--out", tmp / "bins")
        outside.run(a.ckvc, "fit", tmp / "bins", "--out", tmp / "bins.ckvt", "-q")
        cases.append(("bins", "--table", tmp / "bins.ckvt"))
    for name, *options in cases:
        parity(model, name, *options)
    outside.at_most(f"{model.name}: lines of what is named twice that are wrong", repeated(model, learned), 0)
    outside.at_most(f"{model.name}: lines that ckvc report does not take", report(tmp / model.name, learned, tmp / f"{model.name}-references-torch.jsonl"), 0)
smollm2 = a.models / "f32"
if smollm2.is_dir():
    asked = outside.manifest({"id": f"s{n}", "text": text[5 * n : 6 * n], **({} if n == 2000 else {"split": "heldout"})} for n in (2000, 1400, 4200))
    common = ["--manifest", asked.name, "--window", 64, "--continuation", 64, "--budget", "0.125,0.25"]  # of what is said twice the last holds
    outside.run(a.ckvc, "calibrate", "--side", "demand", "--model", smollm2, *common, "-q", "-t", 1, "--out", tmp / "smollm2")
    for version in (1, 2):
        outside.run(a.ckvc, "fit", tmp / "smollm2", "--features", version, "--out", tmp / f"smollm2-{version}.ckvt", "-q")
    both = ["--table", f"{tmp}/smollm2-1.ckvt,{tmp}/smollm2-2.ckvt"]
    for name, *options in (("references", *both, *REFERENCES), ("layers", *both, "--mode", "layers"), ("window", *both[:-1], tmp / "smollm2-1.ckvt", "--ranking", "window")):
        parity(smollm2, name, *common, *options)
else:
    print(f"no {smollm2}: its prompts are compared where `make model-smollm2` made it")
few = [*COMMON, "--lengths", 324, "--prompts", 16, "--budget", 0.25]
(tmp / "texts").mkdir()
for page in (outside.ROOT / "docs").glob("*.md"):
    shutil.copy(page, tmp / "texts")
made = {}
for name, *options in (("seen",), ("unseen", "--query", "unseen"), ("both", "--texts", tmp / "texts"), ("own", "--texts", tmp / "texts", "--default-texts", "no")):
    outside.run(a.ckvc, "compile", "--model", MODELS[0], *few, *options, "--out", tmp / f"theirs-{name}", "-q", "-t", 1)
    words = list(map(str, [MODELS[0], *few, *options, "--ckvc", a.ckvc, "--device", "cpu", "--quiet", "--out", tmp / f"ours-{name}"]))
    once, again = ckvc.score.main("compile", words), ckvc.score.main("compile", [*words, "--resume"])
    differ = sum((tmp / f"ours-{name}" / x).read_bytes() != (tmp / f"theirs-{name}" / x).read_bytes() for x in ("prompts.jsonl", "prompts-check.json"))
    made[name] = (tmp / f"ours-{name}/prompts.jsonl").read_bytes()
    outside.at_most(f"compile {' '.join(map(str, options))} without --manifest: prompts and record beside ckvc compile, and words after --resume, that differ",
                    differ + (once != again) + ("# in Python, a whole program" not in once), 0)
outside.at_most("prompts that are the same although the options differ", 4 - len(set(made.values())), 0)
beside_manifest = ["compile", MODELS[0], *COMMON, "--budget", 0.25, "--manifest", prompts.name, "--out", tmp / "none", "--ckvc", a.ckvc]
outside.at_most("what should be refused of the options of prompts and is not", sum((
    missed("today's options or texts make other prompts than these", "compile", MODELS[0], *few, "--query", "unseen", "--ckvc", a.ckvc, "--device", "cpu", "--quiet",
           "--out", tmp / "ours-seen", "--resume"),
    missed("say how prompts are made", *beside_manifest, "--query", "seen"), missed("say how prompts are made", *beside_manifest, "--texts", tmp / "texts"),
    missed("give --texts DIR, or leave it out", "compile", MODELS[0], *few, "--default-texts", "no", "--out", tmp / "none", "--ckvc", a.ckvc))), 0)
for options in (), ("--mode", "lengths", "--classes", 3):
    kl, wrong = choices(*options)
    outside.at_most(f"compile {' '.join(map(str, options))}: divergences of what is tried, beside ckvc compile", kl, 1e-5)
    outside.at_most(f"compile {' '.join(map(str, options))}: another choice, or other words", wrong, 0)
outside.at_most("what should be refused with its line and is not", refused(), 0)
outside.at_most("--beside: another name than the lines', or what is not refused", beside(), 0)
outside.at_most("stopped and resumed: lines that differ, or what is not refused", resumed(), 0)
try:
    import kvpress  # noqa: F401
except ImportError:
    print("no kvpress: its presses are tested in the environment that has it")
else:
    loss, wrong = presses()
    outside.at_most("KnormPress: loss of a token, from a cache that is cut by hand", loss, 1e-5)
    worst, wrong_of_kvzap = zapped()
    outside.at_most("KVzip+'s scores beside kvpress's, logarithms", worst, 1e-4)
    outside.at_most("KVzap: numbers of a line that are wrong, and what is not refused", wrong_of_kvzap, 0)
    outside.at_most("KnormPress, AdaKVPress: numbers of a line that are wrong", wrong, 0)
outside.done()
