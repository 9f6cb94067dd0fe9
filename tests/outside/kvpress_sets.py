#!/usr/bin/env python3
"""ckvc.press in kvpress on the embedded model, or --hf and --gguf (SmolLM2): kept sets against those of `ckvc score --sets`, the same in kvpress's pipeline, and what the pipeline writes
against ckvc.hf on the same prompt. Tables: --tables, or made here by a demand and a score pass over pieces of the book (minutes).

A position may differ where two programs round float32 differently: at most 0.5% of those kept.
"""
import json
import pathlib
import sys
import tempfile

import outside

torch, transformers, _ = outside.modules("torch", "transformers", "kvpress")
sys.path.insert(0, str(outside.ROOT / "python"))
import ckvc.hf  # noqa: E402  (its folder was added above)
import ckvc.press  # noqa: E402

TINY = outside.ROOT / "models/ckvc-tiny-8l"
a = outside.arguments(smollm2=False, hf=(pathlib.Path, TINY, "a directory of float32"), gguf=(pathlib.Path, TINY, "the same model for ckvc"), tokens=(int, 512, "prompt tokens"), prompts=(int, 2, "pieces of the book"), threads=(int, 1, "of ckvc and torch"),
                      budget=(float, 0.125, "share that is kept"), tables=(str, "", "files, with commas between"))
torch.set_num_threads(a.threads)
transformers.logging.set_verbosity_error()
transformers.utils.logging.disable_progress_bar()
tok = transformers.AutoTokenizer.from_pretrained(a.hf)
a.text = a.text or outside.ROOT / "docs/method.md"
text = a.text.read_text(errors="replace")
pieces = [tok(text[8 * a.tokens * i : 8 * a.tokens * (i + 1)], add_special_tokens=False)["input_ids"][: a.tokens] for i in range(a.prompts + 4)]
prompts, fitted = pieces[: a.prompts], pieces[a.prompts :]
model = transformers.AutoModelForCausalLM.from_pretrained(a.hf, dtype=torch.float32).eval()
L, G = model.config.num_hidden_layers, model.config.num_key_value_heads


def manifest(which):
    return outside.manifest([{"id": f"p{i}", "tokens": p} for i, p in enumerate(which)])


def made(tmp):
    with manifest([p[:512] for p in fitted]) as m:
        for side in ("demand", "score"):
            outside.run(a.ckvc, "calibrate", "--model", a.gguf, "--manifest", m.name, "--side", side, "--continuation", 32, "--budget", a.budget, "-t", a.threads,
                        "-q", "--out", tmp / side)
    outside.run(a.ckvc, "fit", tmp / "demand", "--score", "window", "--out", tmp / "window.ckvt", "-q")
    outside.run(a.ckvc, "fit", tmp / "demand", tmp / "score", "--out", tmp / "learned.ckvt", "-q")
    return [tmp / "window.ckvt", tmp / "learned.ckvt"]


with tempfile.TemporaryDirectory() as folder, manifest(prompts) as asked:
    tmp = pathlib.Path(folder)
    n_sets = n_differ = n_kept = n_positions = 0
    for path in a.tables.split(",") if a.tables else made(tmp):
        for mode in ("heads", "layers"):
            out = outside.run(a.ckvc, "score", "--model", a.gguf, "--manifest", asked.name, "--table", path, "--mode", mode, "--sets", "--continuation", 0, "--budget",
                              a.budget, "-q", "-t", a.threads)
            differ = 0
            for prompt, line in zip(prompts, map(json.loads, out.splitlines())):
                press = ckvc.press.CompilerKVPress(str(path), 1 - a.budget, mode)
                with torch.no_grad(), press(model):
                    model.model(input_ids=torch.tensor([prompt]), past_key_values=transformers.DynamicCache())
                for l in range(L):
                    for g in range(G):
                        want, got = set(line["sets"][l][g] if mode == "heads" else line["sets"][l]), set(press.kept.positions[l][g].tolist())
                        differ += want != got
                        n_positions += len(want ^ got)
                        n_kept += len(want)
            n_sets, n_differ = n_sets + len(prompts) * L * G, n_differ + differ
            print(f"{pathlib.Path(path).name}, {mode}: {differ} of {len(prompts) * L * G} sets differ")
    print(f"{n_differ} of {n_sets} sets differ, in {n_positions} of {n_kept} positions")
    outside.at_most("positions that differ, of those kept", n_positions / 2 / n_kept, 0.005)

    press.save_pretrained(tmp / "press")
    press = ckvc.press.CompilerKVPress.from_pretrained(tmp / "press", mode="heads")
    pipe = transformers.pipeline("kv-press-text-generation", model=model, tokenizer=tok)
    context = text[:4000]
    with torch.no_grad(), press(model):  # no longer than the table's window: kept whole, by the press too
        model.model(input_ids=torch.tensor([prompts[0][: press.table.window]]), past_key_values=transformers.DynamicCache())
    outside.at_most("a short prompt: not kept whole", not press.kept.whole or press.holds != "cut", 0)
    answer = pipe(context, question="\nWhat is this about?", press=press, max_new_tokens=12)["answer"]
    given = pipe.preprocess(context, ["\nWhat is this about?"], "", 10**6)
    cache, n = transformers.DynamicCache(), given["context_ids"].shape[1]
    with torch.no_grad(), ckvc.hf.compress(model, press.table, a.budget, "heads") as c:
        model.model(input_ids=given["context_ids"], past_key_values=cache)
        out = model.generate(torch.cat([given["context_ids"], given["questions_ids"][0]], dim=1), past_key_values=cache, max_new_tokens=12, do_sample=False)
    own = tok.decode(out[0, n + given["questions_ids"][0].shape[1] :], skip_special_tokens=True)
    print(f"pipeline, {press.holds}: {answer!r}")
    outside.at_most("pipeline: another set than ckvc.hf's", sum(x.tolist() != y.tolist() for p, q in zip(press.kept.positions, c.kept[0].positions) for x, y in zip(p, q)), 0)
    outside.at_most("pipeline: another text than ckvc.hf's", answer != own, 0)
    outside.at_most("examples that fail", outside.example("press_kvpress.py", a.hf, tmp / "press" / "table.ckvt", a.text), 0)
outside.done()
