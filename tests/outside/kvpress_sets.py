#!/usr/bin/env python3
"""ckvc.press in kvpress on the embedded model: kept sets, also in kvpress's pipeline, and what the pipeline writes, against ckvc.hf on the same prompt, whose sets
transformers_generate.py holds against those of `ckvc score --sets`. Tables are made here by a demand pass.
"""
import outside

outside.modules("kvpress")
a, (torch, transformers, *_), tok, ids = outside.by_torch()
import ckvc.hf  # noqa: E402  (its folder was added above)
import ckvc.press  # noqa: E402

MODEL, BUDGET, tmp = outside.ROOT / "models/ckvc-tiny-8l", 0.125, outside.scratch()
model = transformers.AutoModelForCausalLM.from_pretrained(MODEL, dtype=torch.float32).eval()
fitted = outside.manifest({"id": f"f{i}", "tokens": ids[10000 + 300 * i : 10300 + 300 * i]} for i in range(4))
outside.run(a.ckvc, "calibrate", "--model", MODEL, "--manifest", fitted.name, "--side", "demand", "--continuation", 32, "--budget", BUDGET, "-q", "--out", tmp / "demand")


def prefill(inputs):
    cache = transformers.DynamicCache()
    with torch.no_grad():
        model.model(input_ids=inputs, past_key_values=cache)
    return cache


def unlike(press, c):
    return sum(x.tolist() != y.tolist() for p, q in zip(press.kept.positions, c.kept[0].positions, strict=True) for x, y in zip(p, q, strict=True))


differ = 0
for score in ("window", "learned"):
    outside.run(a.ckvc, "fit", tmp / "demand", "--ranking", score, "--out", tmp / f"{score}.ckvt", "-q")
    for mode in ("heads", "layers", "shared"):
        press = ckvc.press.CompilerKVPress(str(tmp / f"{score}.ckvt"), 1 - BUDGET, mode)
        for at in (0, 600):
            inputs = torch.tensor([ids[at : at + 512]])
            with press(model):
                prefill(inputs)
            with ckvc.hf.compress(model, press.table, BUDGET, mode) as c:
                prefill(inputs)
            differ += unlike(press, c) + (press.holds != ("cut" if mode == "shared" else "masked"))
outside.at_most("sets other than ckvc.hf's, caches that are cut or not", differ, 0)

outside.run(a.ckvc, "calibrate", "--model", MODEL, "--manifest", fitted.name, "--side", "demand", "--continuation", 32, "--budget", BUDGET, "--queries", 8, "-q", "--out", tmp / "bank")
outside.run(a.ckvc, "fit", tmp / "bank", "--ranking", "window", "--bank", 8, "--ridge", 0.3, "--out", tmp / "bank.ckvt", "-q")
inputs, differ = torch.tensor([ids[:512]]), 0
whole = prefill(inputs)
for mode in ("heads", "shared"):
    for fit in (True, False):
        with ckvc.press.CompilerKVPress(str(tmp / "bank.ckvt"), 1 - BUDGET, mode, fit)(model):
            pressed = prefill(inputs)
        with ckvc.hf.compress(model, str(tmp / "bank.ckvt"), BUDGET, mode, fit) as c:
            own = prefill(inputs)
        for l, layer in enumerate(pressed.layers):
            keys, values, _ = own.layers[l].spread()
            for g, at in enumerate(c.kept[0].positions[l]):
                for got, want, before in zip((layer.keys, layer.values), (keys, values), (whole.layers[l].keys, whole.layers[l].values)):
                    got = got[0, g, at] if mode == "heads" else got[0, g]
                    differ += not torch.equal(got, want[0, g, at]) or torch.equal(got, before[0, g, at]) == fit
outside.at_most("entries that are fitted otherwise than ckvc.hf's, or where they should not be", differ, 0)

press.save_pretrained(tmp / "press")
press = ckvc.press.CompilerKVPress.from_pretrained(tmp / "press", mode="heads")
pipe = transformers.pipeline("kv-press-text-generation", model=model, tokenizer=tok)
context = outside.prose(a)[:4000]
with press(model):  # no longer than the table's window: kept whole, by the press too
    prefill(torch.tensor([ids[: press.table.window]]))
outside.at_most("a short prompt: not kept whole", not press.kept.whole or press.holds != "cut", 0)
answer = pipe(context, question="\nWhat is this about?", press=press, max_new_tokens=12)["answer"]
given = pipe.preprocess(context, ["\nWhat is this about?"], "", 10**6)
n, question = given["context_ids"].shape[1], given["questions_ids"][0]
with torch.no_grad(), ckvc.hf.compress(model, press.table, BUDGET, "heads") as c:
    cache = prefill(given["context_ids"])
    out = model.generate(torch.cat([given["context_ids"], question], dim=1), past_key_values=cache, max_new_tokens=12, do_sample=False)
own = tok.decode(out[0, n + question.shape[1] :], skip_special_tokens=True)
print(f"pipeline, {press.holds}: {answer!r}")
outside.at_most("pipeline: another set than ckvc.hf's", unlike(press, c), 0)
outside.at_most("pipeline: another text than ckvc.hf's", answer != own, 0)
outside.at_most("examples that fail", outside.example("press_kvpress.py", MODEL, tmp / "press" / "table.ckvt", outside.ROOT / "docs/method.md"), 0)
outside.done()
