#!/usr/bin/env python3
"""Entries that a table's bank fits, in torch: `ckvc.fit` against a plain numpy computation of the formulas and against the C library; `ckvc.hf` on the embedded
model against the full cache with those entries written over its own and a mask over the rest. The table is made here by calibrate and fit.

Bounds: torch takes logits and answers in float32, the two others in float64; relative to the largest number 1e-4 is a hundred times float32's rounding, and what
fitting changes is larger by far (checked). Of a model's logits the same.
"""
import os

import outside

a, (torch, transformers, np, *_), _, ids = outside.by_torch()
import ckvc.fit  # noqa: E402  (its folder was added above)
import ckvc.hf  # noqa: E402
import ckvc.library  # noqa: E402

os.environ.setdefault("CKVC_LIBRARY", str(outside.ROOT / "build/release/libckvc_policy.so"))
MODEL, W, tmp = outside.ROOT / "models/ckvc-tiny-8l", 32, outside.scratch()
T, MORE = 300, 12
manifest = outside.manifest({"id": f"f{i}", "tokens": ids[10000 + 300 * i : 10300 + 300 * i]} for i in range(6))
common = ["--model", MODEL, "--manifest", manifest.name, "--window", W, "--continuation", 32, "--budget", "0.125,0.25", "-q"]
outside.run(a.ckvc, "calibrate", "--side", "demand", *common, "--queries", 8, "--out", tmp / "demand")
outside.run(a.ckvc, "calibrate", "--side", "score", *common, "--out", tmp / "score")
outside.run(a.ckvc, "fit", tmp / "demand", tmp / "score", "--features", 2, "--bank", 7, "--ridge", 0.3, "-q", "--out", tmp / "fits.ckvt")
outside.run(a.ckvc, "fit", tmp / "demand", "--ranking", "window", "--bank", 7, "--ridge", 0.3, "-q", "--out", tmp / "window.ckvt")
model = transformers.AutoModelForCausalLM.from_pretrained(MODEL, dtype=torch.float32).eval()
L, H, G, D = (getattr(model.config, k) for k in ("num_hidden_layers", "num_attention_heads", "num_key_value_heads", "head_dim"))
inv_freq, scale, table = model.model.rotary_emb.inv_freq.double().numpy(), D**-0.5, ckvc.library.Table.read(str(tmp / "fits.ckvt"))
prompt, more, other = torch.tensor([ids[:T]]), torch.tensor([ids[T : T + MORE]]), torch.tensor([ids[3000 : 3000 + T]])


def by_formula(queries, keys, values, kept, ridge, held=None):
    """The new keys and values of the positions `kept` of one head, in float64. queries [n, D]."""
    x, k, v = queries * scale, keys.astype(float), values.astype(float)
    there = np.arange(len(k)) if held is None else np.flatnonzero(held)

    def answer(positions):
        e = np.exp(x @ k[positions].T)
        return e / e.sum(1, keepdims=True), np.log(e.sum(1))
    (w, total), (wk, of_kept) = answer(there), answer(kept)
    xx, ww = x.T @ x, wk @ wk.T
    shift = np.linalg.solve(xx + 0.01 * xx.trace() / len(xx) * np.eye(len(xx)), x.T @ (total - of_kept))
    change = wk.T @ np.linalg.solve(ww + ridge * ww.trace() / len(ww) * np.eye(len(ww)), w @ v[there] - wk @ v[kept])
    return k[kept] + shift, v[kept] + change


def bank_queries(t, block, layer, head, n_tokens):
    """The bank's queries [n, D] of a KV head, turned by complex numbers."""
    n, span = t.bank_use[block].tolist()
    q = t.bank[layer, head * (H // G) : (head + 1) * (H // G), :n].astype(float)
    turned = (q[..., : D // 2] + 1j * q[..., D // 2 :]) * np.exp(1j * (n_tokens + np.arange(n) * span // n)[:, None] * inv_freq)
    return np.concatenate([turned.real, turned.imag], axis=-1).reshape(-1, D)


def apart(x, y):
    return float(np.abs(np.asarray(x, float) - np.asarray(y, float)).max() / np.abs(np.asarray(y, float)).max())


def formula():
    """Heads of different lengths in one batch, and behind a cut: how far from the formula, how far fitting moves; and how often an edge is not as it was said.
    In the batch of six heads the longest has more entries than there are queries, in that of four all have fewer: the system solved is of the fewer."""
    torch.manual_seed(0)
    far, moved, wrong = 0.0, [], 0
    q, k, v = torch.randn(6, 10, D).double() * 3, torch.randn(6, 90, D), torch.randn(6, 90, D)
    kept = torch.rand(6, 90) < torch.tensor([0.1, 0.3, 0.5, 0.8, 1.1, -1])[:, None]
    kept[3] = torch.arange(90) == 44
    for held in (None, kept | (torch.rand(6, 90) < 0.5)):
        fitted = ckvc.fit.fit_entries(q, k, v, kept, scale, 0.2, held)
        by_entry = torch.cat([q, torch.randn(6, 60, D)], dim=1)[:4], k[:4], v[:4], kept[:4], scale, 0.2, None if held is None else held[:4]
        for g, (x, y) in enumerate(zip(*ckvc.fit.fit_entries(*by_entry))):
            at = kept[g].numpy()
            of_head = by_entry[0][g].numpy(), k[g].numpy(), v[g].numpy(), np.flatnonzero(at), 0.2, None if held is None else held[g].numpy()
            far = max([far, *map(apart, (x[at], y[at]), by_formula(*of_head))])
        for g in range(4):
            at = kept[g].numpy()
            want = by_formula(q[g].numpy(), k[g].numpy(), v[g].numpy(), np.flatnonzero(at), 0.2, None if held is None else held[g].numpy())
            far = max([far, *(apart(x[g][at], y) for x, y in zip(fitted, want))])
            moved += [apart(x[g][at], y[g][at]) for x, y in zip(fitted, (k, v))]
        wrong += sum(not torch.equal(x[~kept], y[~kept]) or not torch.equal(x[4:], y[4:]) for x, y in zip(fitted, (k, v)))  # dropped; heads that keep all or nothing
    half = v.half()
    half[:, :, 0] = half[:, :, 0].sign() * 65504
    fitted = ckvc.fit.fit_entries(q, k.half(), half, kept, scale, 1e-3)
    wrong += any(x.dtype != torch.float16 or not bool(x.isfinite().all()) for x in fitted) + torch.equal(fitted[1], half)
    blind, key = torch.cat([q, 0 * q[:, :1]], dim=1), k.clone()  # a query of which only a part of e^-300 sees what is kept
    blind[:, :, 0], blind[:, -1, 0], key[:, :, 0] = 0, 300 / scale, 0
    key[:, :, 0][~kept] = 1
    for g, (x, y) in enumerate(zip(*ckvc.fit.fit_entries(blind[:4], key[:4], v[:4], kept[:4], scale, 0.2))):
        at = kept[g].numpy()
        far = max([far, *map(apart, (x[at], y[at]), by_formula(blind[g].numpy(), key[g].numpy(), v[g].numpy(), np.flatnonzero(at), 0.2))])
    k[0, 3], q[1] = torch.inf, 0  # a head without finite numbers, one whose queries are 0
    fitted = ckvc.fit.fit_entries(q, k, v, kept, scale, 0.2)
    wrong += any(not torch.equal(x[:2], y[:2]) or torch.equal(x[2], y[2]) for x, y in zip(fitted, (k, v)))
    return far, min(moved), wrong


def library():
    """The same prompts and sets in torch and by the library: how far apart, and how far fitting moves."""
    g, far, moved = ckvc.hf_model.geometry_of(model), 0.0, []
    with torch.no_grad():
        caches = [model(x, use_cache=True).past_key_values.layers for x in (prompt, other)]
    for layers in caches:
        for budget in (0.125, 0.25):
            p = ckvc.library.Prefill(table, H, D, T, budget, inv_freq)
            for l, x in enumerate(layers):
                for head in range(G):
                    p.cache(l, head, x.keys[0, head].numpy(), x.values[0, head].numpy())
            kept = ckvc.prefill.Kept("heads", T, p.keep(), table=table, block=table.budget_index(budget))
            for l, x in enumerate(layers):
                k, v = ckvc.fit.fit_kept(kept, g, l, x.keys[0], x.values[0], scale)
                assert p.fits(l) and k is not x.keys
                for head, at in enumerate(kept.positions[l]):
                    want = p.fit(l, head, x.keys[0, head].numpy(), x.values[0, head].numpy(), scale)
                    far = max([far, *(apart(y[head][at], z) for y, z in zip((k, v), want))])
                    moved.append(apart(want[1], x.values[0, head][at]))
    return far, min(moved)


def by_hand(inputs, kept, t, fit=True):
    """Logits [MORE, vocabulary] behind a full cache whose kept entries are replaced by the formula's, and whose others a mask hides by layer and head."""
    model.config._attn_implementation = "eager"
    with torch.no_grad():
        cache = model(inputs, use_cache=True).past_key_values
        hooks = []
        for l, layer in enumerate(cache.layers):
            mask = torch.full((1, H, MORE, T + MORE), -torch.inf)
            mask[..., T:] = torch.full((MORE, MORE), -torch.inf).triu(1)
            for g in range(G):
                at = kept.positions[l][g]
                if fit:
                    new = by_formula(bank_queries(t, t.budget_index(0.25), l, g, T), layer.keys[0, g].numpy(), layer.values[0, g].numpy(), at, t.ridge[l, t.budget_index(0.25)])
                    layer.keys[0, g, at], layer.values[0, g, at] = (torch.from_numpy(x).float() for x in new)
                mask[0, g * (H // G) : (g + 1) * (H // G), :, at] = 0
            hooks.append(model.model.layers[l].self_attn.register_forward_pre_hook(
                lambda module, args, kwargs, mask=mask: (args, {**kwargs, "attention_mask": mask}), with_kwargs=True))
        out = model(more, use_cache=True, **ckvc.hf_model.with_cache(model, cache)).logits[0]
    for hook in hooks:
        hook.remove()
    model.config._attn_implementation = "sdpa"
    return out


def served(t, mode, cache=None, fit=True, padding=0, start=0):
    """Logits [MORE, vocabulary] behind a compressed cache, and the Compression. padding: columns on the left. start: the first position."""
    inputs = torch.cat([torch.zeros(1, padding, dtype=int), prompt], dim=1)
    mask, at = (torch.arange(T + padding + MORE) >= padding).long()[None], (torch.arange(start - padding, start + T + MORE)).clamp(min=0)[None]
    with ckvc.hf.compress(model, t, 0.25, mode, fit) as c, torch.no_grad():
        cache = transformers.DynamicCache(config=model.config) if cache is None else cache
        model(inputs, use_cache=True, attention_mask=mask[:, : T + padding], position_ids=at[:, : T + padding], **ckvc.hf_model.with_cache(model, cache))
        return model(more, attention_mask=mask, position_ids=at[:, T + padding :], **ckvc.hf_model.with_cache(model, cache)).logits[0], c


def caches():
    """Logits behind each kind of compressed cache: how far from those by hand; how near those of entries as they are come; texts that differ with fit=False."""
    far, moved, wrong = 0.0, [], 0
    for name in ("fits", "window"):
        t = ckvc.Table.read(tmp / f"{name}.ckvt")
        for mode, holds in (("heads", "ragged"), ("layers", "cut")):
            got, c = served(t, mode)
            want, plain = by_hand(prompt, c.kept[0], t), by_hand(prompt, c.kept[0], t, fit=False)
            masked, m = served(t, mode, transformers.StaticCache(config=model.config, max_cache_len=T + 40))
            others = [served(t, mode, padding=17, start=start)[0] for start in (0, 17)]
            far = max([far, *(apart(x, want) for x in (got, masked, *others))])
            moved.append(apart(plain, want))
            wrong += (c.holds, m.holds) != (holds, "masked")
            unfitted, _ = served(t, mode, fit=False)
            wrong += apart(unfitted, plain) > 1e-4
    return far, min(moved), wrong


def again():
    """recompress behind a second turn: held entries against the formula over what was held before it."""
    t, far = ckvc.Table.read(tmp / "fits.ckvt"), 0.0
    with ckvc.hf.compress(model, t, 0.25) as c, torch.no_grad():
        cache = model(prompt, use_cache=True).past_key_values
        model(other[:, :100], **ckvc.hf_model.with_cache(model, cache))
        before = [layer.spread() for layer in cache.layers]
        c.recompress(cache)
        for l, (layer, (keys, values, held)) in enumerate(zip(cache.layers, before)):
            new, block = layer.spread(), c.kept[0].block
            for g, at in enumerate(c.kept[0].positions[l]):
                want = by_formula(bank_queries(t, block, l, g, T + 100), keys[0, g].numpy(), values[0, g].numpy(), at, t.ridge[l, block], held[0, g].numpy())
                far = max([far, *(apart(x[0, g, at], y) for x, y in zip(new, want))])
    return far


def rotations():
    """Vectors that are rotated and turned back, in each order of pairs, whole and in part: how far from what they were."""
    x, at, far = torch.randn(3, 5, 8), torch.arange(7, 12), 0.0
    for n in (4, 3):
        for interleaved in (False, True):
            g = ckvc.prefill.Geometry(1, 3, 3, 8, torch.rand(n), interleaved=interleaved)
            far = max(far, *(apart(g.before_rotation(0, y, 7), z) for y, z in zip(g.rotated(0, x, at), x)))
    return far


outside.at_most("rotated and turned back, relative", rotations(), 1e-6)  # cosines are float32
far, moved, wrong = formula()
outside.at_most("torch and the formula: entries, relative", far, 1e-4)
outside.at_most("0.01 beside what fitting moves", 1e-2 / moved, 1)
outside.at_most("heads that keep all, one or nothing; what is dropped, not finite or out of range: not as it should be", wrong, 0)
far, moved = library()
outside.at_most("torch and the library: entries, relative", far, 1e-4)
outside.at_most("0.001 beside what fitting moves", 1e-3 / moved, 1)
far, moved, wrong = caches()
outside.at_most("ckvc.hf and entries replaced by hand: logits, relative", far, 1e-4)
outside.at_most("0.001 beside what fitting moves", 1e-3 / moved, 1)
outside.at_most("caches of another kind; fit=False: other logits than those of entries as they are", wrong, 0)
outside.at_most("recompress and the formula: entries, relative", again(), 1e-4)
outside.done()
