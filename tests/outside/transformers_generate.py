#!/usr/bin/env python3
"""ckvc.hf on the embedded model: kept sets against those of `ckvc score --sets`, and what `generate` writes from the compressed cache against
`ckvc generate` and against the same model with a full cache and a mask, made here by hooks of its own. Tables are made here by calibrate and fit.

One set in 500 may differ: two programs add float32 in two orders.
"""
import json
import os
import re
import subprocess
import sys
from unittest import mock

import outside
from outside import missed

a, (torch, transformers, *_), _, ids = outside.by_torch()
import ckvc  # noqa: E402  (its folder was added above)
import ckvc.hf  # noqa: E402

MODEL, W, WIDE, tmp = outside.ROOT / "models/ckvc-tiny-8l", 32, 96, outside.scratch()
prompts = [ids[600 * i : 600 * i + n] for i, n in enumerate((500, 257, 97))]


def tables():
    """(table, modes): learned and window scores with shares, the learned one below a longer window, and the paper's with
    bins."""
    common = ["--model", MODEL, "--manifest", fitted.name, "--window", W, "--continuation", 32, "--budget", "0.125,0.25", "-q"]
    for side in ("demand", "score"):
        outside.run(a.ckvc, "calibrate", "--side", side, *common, "--out", tmp / side)
        outside.run(a.ckvc, "calibrate", "--side", side, *common, "--window", WIDE, "--out", tmp / f"{side}-wide")
    demand, score = tmp / "demand", tmp / "score"
    for name, *args in (("window", demand, "--ranking", "window"), ("paper-scores", demand, "--ranking", "paper"), ("learned", demand, score),
                        ("learned2", demand, score, "--features", 2), ("wide", tmp / "demand-wide", tmp / "score-wide")):
        outside.run(a.ckvc, "fit", *args, "--out", tmp / f"{name}.ckvt", "-q")
    outside.run(a.ckvc, "fit", demand, score, "--mode", "lengths", "--classes", 3, "--out", tmp / "lengths.ckvt", "-q")
    outside.run(a.ckvc, "calibrate", "--side", "gate", "--bins", "3,2", "--variants", 40, *common, "--out", tmp / "bins")
    outside.run(a.ckvc, "fit", tmp / "bins", "--out", tmp / "bins.ckvt", "-q")
    every = ("heads", "layers", "shared")
    return [("window", every), ("learned", every), ("wide", ("heads",)), ("learned2", ("heads",)), ("paper-scores", ("heads", "layers")),
            ("lengths", ("lengths", "heads")), ("bins", ("shared",))]


fitted = outside.manifest([{"id": f"f{i}", "tokens": ids[10000 + 300 * i : 10300 + 300 * i]} for i in range(8)])
asked = outside.manifest([{"id": f"p{i}", "tokens": p} for i, p in enumerate(prompts)])
model = transformers.AutoModelForCausalLM.from_pretrained(MODEL, dtype=torch.float32).eval()
L, H, G = (getattr(model.config, k) for k in ("num_hidden_layers", "num_attention_heads", "num_key_value_heads"))


n_sets = n_differ = n_tokens = n_other = n_program = n_held = 0
for name, modes in tables():
    table = ckvc.Table.read(tmp / f"{name}.ckvt")
    for mode in modes:
        options = [] if mode == "shared" and name == "bins" else ["--mode", mode]
        out = outside.run(a.ckvc, "score", "--model", MODEL, "--manifest", asked.name, "--table", tmp / f"{name}.ckvt", "--sets",
                          "--window", table.window, "--continuation", 0, *options, "-q")
        want = {(x["id"], x["budget"]): x["sets"] for x in map(json.loads, out.splitlines())}
        differ, own = 0, {}
        for budget in (0.125, 0.25):
            out = outside.run(a.ckvc, "generate", "--model", MODEL, "--manifest", asked.name, "--table", tmp / f"{name}.ckvt", "--budget", budget, "--max-new", 16,
                              *options, "--json", "-q")
            own.update({(x["id"], x["budget"]): x["tokens"] for x in map(json.loads, out.splitlines())})
        for i, prompt in enumerate(prompts):
            for budget in (0.125, 0.25):
                with ckvc.hf.compress(model, table, budget, mode) as c:
                    got = model.generate(torch.tensor([prompt]), max_new_tokens=16, do_sample=False)[0, len(prompt):].tolist()
                kept = c.kept[0]
                for l, of_layer in enumerate(want[f"p{i}", budget]):
                    for g, s in enumerate(of_layer if mode in ckvc.table.BY_HEAD else [of_layer] * G):
                        n_sets += 1
                        differ += s != kept.positions[l][g].tolist()
                n_tokens += len(got)
                n_other += sum(x != y for x, y in zip(got, outside.by_hand(model, torch.tensor([prompt]), kept, 16)[0]))
                n_program += sum(x != y for x, y in zip(got, own[f"p{i}", budget]))
                n_held += c.kept_bytes != kept.entries * 2 * model.config.head_dim * 4 or c.holds != ("ragged" if mode == "heads" else "cut")
        n_differ += differ
        print(f"{name}, {mode}: {differ} sets differ")
print(f"{n_sets} sets, {n_tokens} tokens")
outside.at_most("share of sets that differ from ckvc score's", n_differ / n_sets, 0.002)
outside.at_most("tokens that differ from the full cache's under a mask", n_other, 0)
outside.at_most("tokens that differ from ckvc generate's", n_program, 0)
outside.at_most("caches that hold other bytes than those of what is kept", n_held, 0)

# The other ways through: each writes what one prompt alone writes from a cache that holds what is kept.
table, prompt = ckvc.Table.read(tmp / "learned.ckvt"), torch.tensor([prompts[0]])


def taken():
    """Models of layers that no table is for, under a table that reads attention and one that does not: how often they are not refused, before the first new token."""
    n, every = 0, ["full_attention"] * L
    shape = dict(vocab_size=4096, hidden_size=192, intermediate_size=256, num_hidden_layers=L, num_attention_heads=H, num_key_value_heads=G, pad_token_id=0)
    for config, why in ((transformers.Gemma2Config(**shape, head_dim=32, layer_types=every), "it caps its logits"), (transformers.MistralConfig(**shape, sliding_window=64), "a sliding window of 64")):
        m = transformers.AutoModelForCausalLM.from_config(config).eval()
        m.set_attn_implementation("eager")
        for name in ("learned", "learned2"):
            with ckvc.hf.compress(m, tmp / f"{name}.ckvt", 0.25), torch.no_grad():
                n += missed(lambda: m(prompt[:, :200], past_key_values=transformers.DynamicCache(), use_cache=True), why)
    return n


def write(inputs, budget=0.25, cache=None, n=12, **options):
    with ckvc.hf.compress(model, table, budget) as c:
        out = model.generate(**inputs, past_key_values=cache, max_new_tokens=n, do_sample=False, **options)
        if cache is not None:  # a second turn of several tokens on the same cache
            more = torch.cat([out, torch.tensor([prompts[1][:5]])], dim=1)
            out = model.generate(more, past_key_values=cache, max_new_tokens=n, do_sample=False)
    return out[:, inputs["input_ids"].shape[1]:].tolist(), c.holds


def errors():
    other = transformers.AutoModelForCausalLM.from_pretrained(MODEL.parent / "ckvc-tiny-4l")
    cache = transformers.DynamicCache(config=model.config)
    write({"input_ids": prompt}, cache=cache)
    padded = {"input_ids": torch.tensor([prompts[2] + [0], prompts[2] + [5]]), "attention_mask": torch.tensor([[1] * 97 + [0], [1] * 98])}
    holed = {"input_ids": torch.tensor([prompts[2]]), "attention_mask": (torch.arange(97) != 50).long()[None]}
    return [missed(*x) for x in (
        (lambda: write(holed), "an attention mask with a hole: want its zeros on the left alone"),
        (lambda: ckvc.hf.compress(other, table), "is for 8 layers x 3 KV heads, the model has 4 x 3 KV heads"),
        (lambda: write({"input_ids": prompt}, 1.0), "a budget of 1.0, which may be a token or a share: write 1 for 1 token, 0.99 for"),
        (lambda: write({"input_ids": prompt}, 8), "a budget of 8 tokens is below what every head must keep; the least is 9"),
        (lambda: write({"input_ids": prompt}, 20.5), "a budget of 20.5: want whole tokens from 1 up, or a share of the prompt between 0 and 1"),
        (lambda: write({"input_ids": prompt}, prefill_chunk_size=200), "a prefill in chunks, of which the first would be taken for the prompt, (prefill_chunk_size) does not go"),
        (lambda: write({"input_ids": prompt}, prompt_lookup_num_tokens=3), "prompt lookup (prompt_lookup_num_tokens) does not go with a compressed cache"),
        (lambda: write({"input_ids": prompt}, assistant_model=other), "assisted generation (assistant_model) does not go with a compressed cache"),
        (lambda: write({"input_ids": prompt}, None), "which budget? It has 0.125, 0.25"),
        (lambda: write({"input_ids": torch.tensor([ids[:2040]])}), "2049 tokens are more than the model's context of 2048"),
        (lambda: write(padded), "padded on the right"),
        (lambda: model.generate(torch.cat([prompt] * 2, dim=1), past_key_values=cache, max_new_tokens=1), "inside `with ckvc.hf.compress(...)`"),
    )]


def positions(c):
    return [[[p.tolist() for p in layer] for layer in kept.positions] for kept in c.kept]


def sets(c, prompt, **inputs):
    """Positions that a prefill keeps, of each sequence."""
    with c, torch.no_grad():
        model(prompt, use_cache=True, **inputs)
    return positions(c)


def elsewhere():
    """Sets of prompts whose first position is not 0: an offset, padding on the left without position_ids. How many differ."""
    c, n = ckvc.hf.compress(model, table, 0.25), prompt.shape[1]
    (at_0,) = sets(c, prompt)
    (moved,) = sets(c, prompt, position_ids=torch.arange(700, 700 + n)[None])
    (padded,) = sets(c, torch.cat([torch.zeros(1, 80, dtype=int), prompt], dim=1), attention_mask=(torch.arange(n + 80) >= 80).long()[None])
    return sum(x != at_0[l][g] for out in (moved, padded) for l, layer in enumerate(out) for g, x in enumerate(layer))


def kept_whole():
    """Prompts of 1, 31 and 32 tokens, at or below the window, alone and beside a long one: how often not kept whole, or another text than the
    full cache's."""
    wrong = 0
    for n in (1, W - 1, W):
        inputs = {"input_ids": prompt[:, :n], "attention_mask": torch.ones(1, n, dtype=int)}
        full = model.generate(**inputs, max_new_tokens=8, do_sample=False)[0, n:].tolist()
        with ckvc.hf.compress(model, table, 0.25) as c:
            got = model.generate(**inputs, max_new_tokens=8, do_sample=False)[0, n:].tolist()
        wrong += got != full or not c.kept[0].whole or c.kept_bytes != c.full_bytes or c.holds != "cut"
        rows = torch.cat([torch.zeros(1, 400 - n, dtype=int), prompt[:, :n]], dim=1)
        both = {"input_ids": torch.cat([rows, prompt[:, :400]]), "attention_mask": (torch.arange(400) >= torch.tensor([[400 - n], [0]])).long()}
        with ckvc.hf.compress(model, table, 0.25) as c:
            got = model.generate(**both, max_new_tokens=8, do_sample=False)[0, 400:].tolist()
        wrong += got != full or [k.whole for k in c.kept] != [True, False]
    return wrong


def again():
    """recompress: after a first prompt that was kept whole it must keep what a prefill of all text keeps; entries of a second cut are those of
    the budget; texts go on. Of windows, modes and scores; how many sets differ, and how often it went wrong."""
    differ = wrong = 0
    turns = torch.tensor([prompts[0], [*prompts[1], *prompts[2], *ids[5000:5146]]])  # 500 tokens each
    for name, mode in (("learned", "heads"), ("learned", "layers"), ("window", "heads"), ("window", "shared"), ("paper-scores", "heads")):
        t = ckvc.Table.read(tmp / f"{name}.ckvt")
        for n in (20, 32):
            with ckvc.hf.compress(model, t, 0.25, mode) as c, torch.no_grad():
                cache = model(turns[:, :n], use_cache=True).past_key_values
                for start, end in ((n, 450), (450, 452), (452, 500)):
                    model(turns[:, start:end], past_key_values=cache, use_cache=True)
                c.recompress(cache)
                got, before = positions(c), c.kept[0].entries
                model(turns[:, :300], past_key_values=cache, use_cache=True)
                c.recompress(cache)
                logits = model(turns[:, :1], past_key_values=cache, use_cache=True).logits
                wrong += not bool(logits.isfinite().all()) or cache.get_seq_length() != 801 or c.kept[0].entries > L * G * 200 or c.kept[0].entries < before
            want = sets(ckvc.hf.compress(model, t, 0.25, mode), turns)
            differ += sum(x != want[b][l][g] for b, of in enumerate(got) for l, layer in enumerate(of) for g, x in enumerate(layer))
    return differ / (5 * 2 * 2 * L * G), wrong


def reordered():
    """Sequences of 120 and 200 tokens in turned order, and one of them twice: how often recompress keeps other sets than of each alone, or says
    other bytes; a pass without a cache inside the block."""
    def grown(rows, n, order):
        mask = (torch.arange(200) >= 200 - torch.tensor(n)[:, None]).long()
        inputs = torch.stack([torch.cat([torch.zeros(200 - k, dtype=int), row[:k]]) for k, row in zip(n, rows)])
        with ckvc.hf.compress(model, table, 0.25) as c, torch.no_grad():
            cache = model(inputs, attention_mask=mask, position_ids=(mask.cumsum(1) - 1).clamp(min=0), use_cache=True).past_key_values
            cache.batch_select_indices(torch.tensor(order))
            more, at = torch.stack([rows[b][300:380] for b in order]), torch.tensor([[n[b]] for b in order]) + torch.arange(80)
            model(more, past_key_values=cache, position_ids=at)
            c.recompress(cache)
            whole = model(prompt, attention_mask=torch.ones_like(prompt), use_cache=False).logits
        wrong = c.full_bytes != len(order) * 280 * L * G * 2 * model.config.head_dim * 4 or not bool(whole.isfinite().all())
        return positions(c), wrong

    rows = [prompt[0], torch.tensor(ids[7000:7500])]
    (both, wrong), alone = grown(rows, [120, 200], [1, 0, 1]), [grown([row], [n], [0]) for row, n in zip(rows, (120, 200))]
    return sum(got != alone[b][0][0] for got, b in zip(both, (1, 0, 1))) + wrong


def apart():
    """A pass without a cache after a prompt that is masked, shorter and longer: how many logits differ from those without compression."""
    with torch.no_grad():
        want = [model(prompt[:, :n], use_cache=False).logits for n in (50, 500)]
        with ckvc.hf.compress(model, tmp / "learned2.ckvt", 0.25):
            model.generate(prompt[:, :180], max_new_tokens=3, do_sample=False, cache_implementation="static")
            return sum(not torch.equal(x, model(prompt[:, : x.shape[1]], use_cache=False).logits) for x in want)


def refused_turns():
    """What a later turn must not do."""
    with ckvc.hf.compress(model, table, 0.25) as c, torch.no_grad():
        cache = model(prompt, use_cache=True).past_key_values
        mask = torch.ones(1, prompt.shape[1] + 3, dtype=int)
        mask[0, -3] = 0
        out = [missed(lambda: model(prompt[:, :3], attention_mask=mask, past_key_values=cache), "a later turn that is padded"),
               missed(lambda: (model(prompt[:, :70], past_key_values=cache), cache.crop(-70), c.recompress(cache)), "were cropped away; feed the next turn first"),
               missed(lambda: c.recompress(transformers.DynamicCache(config=model.config)), "want a cache that was cut inside this block"),
               missed(lambda: model(prompt, position_ids=torch.arange(0, 2 * prompt.shape[1], 2)[None], use_cache=True), "position_ids that leave gaps")]
        out.append(missed(lambda: ckvc.hf.compress(model, tmp / "learned2.ckvt", 0.25).__enter__(), "compressed by another `with` block already"))
    cache, own = transformers.DynamicCache(config=model.config), model.model.forward
    with mock.patch.object(model.model, "forward", lambda ids, memory: own(ids, **ckvc.hf_model.with_cache(model, memory))), ckvc.hf.compress(model, table, 0.25), torch.no_grad():
        model.model(prompt, memory=cache)
        out.append(missed(lambda: model.model(prompt[:, :1], memory=cache), "it takes its cache by a name that is not known: want cache, or"))
    with ckvc.hf.compress(model, tmp / "bins.ckvt", 0.25) as of_bins, torch.no_grad():
        cache = model(prompt, use_cache=True).past_key_values
        return sum(out) + missed(lambda: of_bins.recompress(cache), "recompress: the table has bins of perplexity")


def mine(module, query, key, value, attention_mask, scaling=None, **kwargs):
    """An attention function that ckvc has never heard of; transformers makes no mask for its name."""
    used.append((module.config._attn_implementation, attention_mask is None, any(name.startswith("ckvc") for name in transformers.AttentionInterface._global_mapping)))
    out = torch.nn.functional.scaled_dot_product_attention(query, key, value, scale=scaling, is_causal=query.shape[2] > 1, enable_gqa=True)
    return out.transpose(1, 2).contiguous(), None


def any_attention():
    """A table whose score reads no attention: sets and tokens that differ under an attention that prefills by itself, from those under eager; what
    else is wrong: attention is replaced during the prefill, or not put back; a table that reads attention, or a static cache, is not refused; a
    layer that goes by attention of its own is not noticed."""
    def go(name, table="learned2", **more):
        model.set_attn_implementation(name)
        vars(model).pop("_cache", None)  # of a call that was refused, which transformers 5.2 would take again
        used.clear()
        with ckvc.hf.compress(model, tmp / f"{table}.ckvt", 0.25) as c:
            return model.generate(prompt, max_new_tokens=12, do_sample=False, **more)[0, prompt.shape[1] :].tolist(), positions(c), list(used), c.holds
    transformers.AttentionInterface.register("mine", mine)
    (want, kept, *_), (by_sdpa, sdpa_kept, *_), (got, own_kept, passes, holds) = go("eager"), go("sdpa"), go("mine")
    differ = (kept != sdpa_kept) + (kept != own_kept) + (want != by_sdpa) + (want != got)
    wrong = (passes != [("mine", True, False)] * L) + (holds != "ragged") + (model.config._attn_implementation != "mine")
    wrong += missed(lambda: go("mine", "learned"), "attention implementation mine: want sdpa or eager") + (len(used) > 0)
    wrong += missed(lambda: go("mine", cache_implementation="static"), "attention implementation mine: want sdpa or eager")
    vars(model).pop("_cache", None)
    with ckvc.hf.compress(model, tmp / "learned2.ckvt", 0.25):
        model.generate(prompt, max_new_tokens=2)
        wrong += missed(lambda: model.generate(prompt, max_new_tokens=2, cache_implementation="static"), "attention implementation mine: want sdpa or eager")
    wrong += go("sdpa", cache_implementation="static")[::3] != (by_sdpa, "masked")
    own, config = model.model.layers[1].self_attn, model.config
    own.config = transformers.LlamaConfig.from_dict(config.to_dict(), attn_implementation="sdpa")
    wrong += missed(lambda: go("sdpa", "learned"), f"{L - 1} of its {L} layers") + missed(lambda: go("sdpa"), "a layer that sees every token does not use transformers' AttentionInterface")
    own.config = config
    model.set_attn_implementation("sdpa")
    return differ, wrong


def readme():
    """1 where README's Python does not run as it stands, or keeps another share."""
    block = (outside.ROOT / "README.md").read_text().split("```python\n")[1].split("```")[0]
    (tmp / "run").mkdir()
    for link, to in (("DIR", MODEL), ("docs", outside.ROOT / "docs"), ("run/table.ckvt", tmp / "learned.ckvt")):
        (tmp / link).symlink_to(to)
    done = subprocess.run([sys.executable, "-c", block], cwd=tmp, env={**os.environ, "PYTHONPATH": str(outside.ROOT / "python")}, capture_output=True, text=True)
    print((done.stdout or done.stderr).splitlines()[-1])
    found = re.search(r"^(\d+) of (\d+) bytes kept$", done.stdout, re.M)
    return int(not found or not 0.24 < int(found[1]) / int(found[2]) < 0.26)


alone, twice = write({"input_ids": prompt}), write({"input_ids": prompt}, cache=transformers.DynamicCache(config=model.config))
beams = write({"input_ids": prompt}, num_beams=3)
masked = [write({"input_ids": prompt}, cache_implementation="static"), write({"input_ids": prompt}, cache=transformers.StaticCache(config=model.config, max_cache_len=700)),
          write({"input_ids": prompt}, num_beams=3, cache_implementation="static")]
short = [0] * (len(prompts[0]) - len(prompts[1])) + prompts[1]
batch = {"input_ids": torch.tensor([prompts[0], short]), "attention_mask": torch.tensor([[1] * len(short), [int(t >= len(short) - len(prompts[1])) for t in range(len(short))]])}
rows = write(batch)[0]
model.config._attn_implementation = "eager"
eager = write({"input_ids": prompt})
model.config._attn_implementation = "sdpa"
outside.at_most("caches that cannot be cut: hidden, another text", sum(x != (y[0], "masked") for x, y in zip(masked, (alone, twice, beams))), 0)
outside.at_most("a padded batch: rows of another text than alone", sum(x != y for x, y in zip(rows, (alone[0][0], write({"input_ids": torch.tensor([prompts[1]])})[0][0]))), 0)
outside.at_most("eager attention: another text", eager != alone, 0)
outside.at_most("two turns: the first is the same", twice[0][0][:12] != alone[0][0], 0)
outside.at_most("logits with a cap, a sliding window: taken", taken(), 0)
outside.at_most("what should be refused with its line and is not", sum(errors()), 0)
outside.at_most("prompts that begin elsewhere than at position 0: sets that differ", elsewhere(), 0)
outside.at_most("prompts no longer than the window: not whole, or another text", kept_whole(), 0)
differ, wrong = again()
outside.at_most("recompress after a prompt that was kept whole: share of sets that differ from those of one prefill", differ, 0.002)
outside.at_most("recompress: entries over the budget, or logits that are no numbers", wrong, 0)
outside.at_most("recompress of sequences in another order: other sets or bytes than of each alone", reordered(), 0)
outside.at_most("passes without a cache that are masked by an earlier prompt", apart(), 0)
outside.at_most("what a later turn must not do and may", refused_turns(), 0)
used = []
differ, wrong = any_attention()
outside.at_most("a score that reads no attention, under attention of any kind: other sets or texts", differ, 0)
outside.at_most("the same: attention that is replaced too early, or not put back; what is not refused", wrong, 0)
outside.at_most("README's ten lines fail", readme(), 0)
outside.at_most("examples that fail", outside.example("generate_transformers.py", MODEL, tmp / "learned.ckvt", outside.ROOT / "docs/method.md"), 0)
outside.done()
