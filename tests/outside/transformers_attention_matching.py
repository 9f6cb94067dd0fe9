#!/usr/bin/env python3
"""`scripts/attention_matching.py`: what it keeps of a head beside the authors' formulas in plain numpy; a compacted cache beside the model's own attention
under a mask that holds the biases; how losses and errors move with the budget; its lines in a report.

Bounds: torch takes attention in float32 and numpy in float64, so that the two least squares solutions differ by float32's rounding times the condition of
their equations, which is below a thousand for these random heads. The KL bounds are of the embedded model, whose losses are steep.
"""
import copy
import importlib.util
import json
import subprocess
import sys
import types

import outside

a, (torch, transformers, np, *_), tok, ids = outside.by_torch()
import ckvc.calibrate  # noqa: E402  (its folder was added above)
import ckvc.manifest_prompts  # noqa: E402
import ckvc.score  # noqa: E402

spec = importlib.util.spec_from_file_location("attention_matching", outside.ROOT / "scripts/attention_matching.py")
am = importlib.util.module_from_spec(spec)
spec.loader.exec_module(am)
MODEL, W, C, tmp = outside.ROOT / "models/ckvc-tiny-4l", 32, 32, outside.scratch()
manifest = outside.manifest([{"id": f"m{i}", "tokens": ids[9000 + 400 * i : 9332 + 400 * i]} for i in range(4)] + [{"id": "short", "tokens": ids[: W - 2 + C]}])


def softmax(x):
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def by_formulas(keys, values, queries, scaling, n):
    """Positions, biases and values, as highest_attention_keys.py and base.py of the authors' code compute them."""
    logits = queries @ keys.T * scaling
    e, weights = np.exp(logits - logits.max(axis=1, keepdims=True)), softmax(logits)
    at = np.sort(np.argsort(-np.sqrt((weights**2).mean(axis=0)), kind="stable")[:n])
    m, y = e[:, at], e.sum(axis=1)
    b = np.clip(np.linalg.lstsq(m, y, rcond=None)[0], np.exp(-3), np.exp(3))
    u = np.ones(n) / np.sqrt(n)
    for _ in range(3):
        v = m @ u / np.linalg.norm(m @ u)
        u = m.T @ v / np.linalg.norm(m.T @ v)
    for _ in range(2):
        b = np.clip(b - m.T @ (m @ b - y) / np.linalg.norm(m @ u) ** 2, np.exp(-3), np.exp(3))
    x = softmax(logits[:, at] + np.log(b))
    return at, np.log(b), np.linalg.lstsq(x, weights @ values, rcond=None)[0]


def head(T=120, rows=700, D=16):
    """Keys, values and queries of a head with some structure: keys in clusters, and queries near them."""
    centres = torch.randn(12, D)
    keys, queries = (centres[torch.randint(12, (n,))] + 0.7 * torch.randn(n, D) for n in (T, rows))
    return keys, torch.randn(T, D), 1.5 * queries, D**-0.5


def answers(kept, queries, scaling):
    return ((queries @ kept.keys.T) * scaling + kept.biases).softmax(dim=1) @ kept.values


def heads():
    """The largest difference from the formulas; heads whose errors on their own queries are not as they should be; and the error where everything is kept."""
    far, wrong, exact = 0.0, 0, 0.0
    for _ in range(5):
        k, v, q, s = head()
        want, before = ((q @ k.T) * s).softmax(dim=1) @ v, float("inf")
        for n in (1, 8, 15, 30, 60, 120):
            kept = am.match(k, v, q, s, n)
            at, biases, values = by_formulas(*(x.double().numpy() for x in (k, v, q)), s, n)
            wrong += kept.positions.tolist() != at.tolist()
            far = max(far, float(np.abs(kept.biases.numpy() - biases).max()), float(np.abs(kept.values.numpy() - values).max() / np.abs(values).max()))
            error = float((answers(kept, q, s) - want).norm() / want.norm())
            plain = float((answers(am.Compacted(kept.positions, kept.keys, torch.zeros(n), v[kept.positions]), q, s) - want).norm() / want.norm())
            wrong += error > before or (n < 120 and error > plain)
            before = error
        other = torch.randn(50, 16)
        exact = max(exact, error, float((answers(kept, other, s) - ((other @ k.T) * s).softmax(dim=1) @ v).abs().max()))
    return far, wrong, exact


def attended():
    """`attend` beside a loop over rows."""
    k, v, _, s = head(T=20)
    kept, q, later_k, later_v, far = am.Compacted(torch.arange(20), k, torch.randn(20), v), torch.randn(3, 4, 16), torch.randn(9, 16), torch.randn(9, 16), 0.0
    out = am.attend(kept, q, later_k, later_v, s)
    for h in range(3):
        for i in range(4):
            seen = 9 - 4 + i + 1
            x = np.concatenate([(k @ q[h, i]).numpy() * s + kept.biases.numpy(), (later_k[:seen] @ q[h, i]).numpy() * s])
            far = max(far, float(np.abs(softmax(x) @ np.concatenate([v.numpy(), later_v[:seen].numpy()]) - out[h, i].numpy()).max()))
    return far


def under_mask(c, cache):
    """The log-probabilities of the continuation by the model's eager attention over the whole prompt's cache, in which kept values are the new ones, and a mask
    adds the biases and hides what is not kept."""
    T, rest, G = c.p.n_tokens, c.p.tokens[c.p.n_tokens : -1], c.geometry.n_kv_heads
    model = transformers.AutoModelForCausalLM.from_pretrained(MODEL, dtype=torch.float32, attn_implementation="eager").eval()
    whole, n = transformers.DynamicCache(), len(rest)
    for l, layer in enumerate(c.cache.layers):
        values, mask = layer.values.clone(), torch.full((1, G, n, T + n), -torch.inf)
        mask[..., T:] = torch.full((n, n), -torch.inf).triu(1)
        for g, kept in enumerate(cache.layers[l]):
            values[0, g, kept.positions], mask[0, g, :, kept.positions] = kept.values, kept.biases
        whole.update(layer.keys.clone(), values, l)

        def hook(module, args, kwargs, mask=mask.repeat_interleave(c.geometry.n_query_heads // G, dim=1)):
            return args, {**kwargs, "attention_mask": mask}
        model.model.layers[l].self_attn.register_forward_pre_hook(hook, with_kwargs=True)
    return torch.cat([c.first, model(torch.tensor([rest]), **ckvc.score.with_cache(model, whole)).logits[0].log_softmax(dim=-1)])


def caches():
    """The largest difference of a log-probability from those under a mask; at how many budgets the KL, by mean over the prompts, does not fall; the KL where
    all is kept, and at T/2 as a part of that at T/8."""
    model = transformers.AutoModelForCausalLM.from_pretrained(MODEL, dtype=torch.float32).eval()
    instruction, made = am.plain_ids(tok, "\n\n" + am.REPEAT), []
    limits = ckvc.calibrate.limits_of(model.config, types.SimpleNamespace(window=W, continuation=C, max_tokens=0, skip_short=False), len(instruction))
    prompts, _ = ckvc.manifest_prompts.read_prompts(manifest.name, tok, am.dataclasses.replace(limits, window=0))

    class Watched(am.Matching):
        def __init__(self, *of):
            super().__init__(*of)
            made.append(self)

    far, kl, keep, plain = 0.0, {}, am.policy(instruction), am.Matching
    am.Matching = Watched
    with torch.no_grad(), ckvc.score.Scoring(model, W) as c:
        for p in prompts[:4]:
            c.prefill(p)
            for budget in (0.0625, 0.125, 0.25, 0.5, 0.75):
                kept, rows, _ = keep(c, budget)
                far = max(far, float((rows - under_mask(c, made[-1])).abs().max()))
                kl[budget] = kl.get(budget, 0) + float((c.full.exp() * (c.full - rows)).sum(dim=1).mean())
            every = Watched([[p.n_tokens] * c.geometry.n_kv_heads] * c.geometry.n_layers, p.n_tokens)  # the policy itself fits nothing where all is kept
            cache = copy.copy(c.cache)
            with am.attention_of(c.model, every.attention, ()):
                for ids_, n in (([*instruction, *p.tokens[: p.n_tokens]], 1), (p.tokens[p.n_tokens : -1], C - 1)):
                    cache.layers = [copy.copy(x) for x in c.cache.layers]
                    rows = c.feed(ids_, cache, n)
            kl[1] = kl.get(1, 0) + float((c.full.exp() * (c.full - torch.cat([c.first, rows]))).sum(dim=1).mean())
    am.Matching = plain
    kl = [x for _, x in sorted(kl.items())]
    print("KL at T/16, T/8, T/4, T/2, 3T/4, T:", [round(x / 4, 6) for x in kl])
    return far, sum(x <= y for x, y in zip(kl, kl[1:])), abs(kl[-1]), kl[3] / kl[1]


def program(*words):
    given = [MODEL, "--manifest", manifest.name, "--window", W, "--continuation", C, "--dtype", "float32", "--quiet", *words]
    done = subprocess.run([sys.executable, spec.origin, *map(str, given)], capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr


def lines():
    """The script's lines, in a report beside those of ckvc score; what of this, and of refusals, is wrong."""
    common = ["--model", MODEL, "--manifest", manifest.name, "--window", W, "--continuation", C, "-q"]
    outside.run(a.ckvc, "calibrate", "--side", "demand", *common, "--budget", "0.125,0.25", "--skip-short", "--out", tmp / "demand")
    outside.run(a.ckvc, "fit", tmp / "demand", "-q", "--out", tmp / "t.ckvt")
    outside.run(a.ckvc, "score", *common, "--table", tmp / "t.ckvt", "--policy", "snapkv", "--out", tmp / "c.jsonl")
    wrong, of = 0, {}
    for name, more in (("uniform", ()), ("shares", ("--shares", tmp / "t.ckvt"))):
        code, said = program("-B", "0.125,0.25", "--beside", tmp / "c.jsonl", "--out", tmp / f"{name}.jsonl", *more)
        if code:
            print(said)
            return 1
        of[name] = [json.loads(x) for x in (tmp / f"{name}.jsonl").read_text().splitlines()]
    tables = {(x["id"], x["budget"]): x for x in map(json.loads, (tmp / "c.jsonl").read_text().splitlines()) if x["policy"] == "table"}
    for name, got in of.items():
        wrong += len(got) != 10
        for x in got:
            t, short = tables[x["id"], x["budget"]], x["id"] == "short"
            wrong += x["policy"] != "attention-matching" or x["table"] != (t["table"] if name == "shares" else None) or bool(x.get("whole")) != short
            uniform = [[int(x["T"] * (1 if short else x["budget"]))] * len(x["n_kept"][0])] * len(x["n_kept"])
            wrong += x["n_kept"] != (uniform if short or name == "uniform" else t["n_kept"])
            wrong += (x["kl"] == 0) != short or (x.get("repeat_tokens", 0) > x["T"]) == short
    outside.run(a.ckvc, "report", tmp / "t.ckvt", "--scores", ",".join(str(tmp / f"{x}.jsonl") for x in ("c", "uniform", "shares")), "--out", tmp / "report")
    report = json.loads((tmp / "report" / "report.json").read_text())
    wrong += "attention-matching, reads twice" not in {x["label"] for x in report["scores"]["losses"]}
    wrong += "attention-matching" not in {x["base_policy"] for x in report["scores"]["at_equal_tokens"]}
    wrong += any("attention-matching, the best simple" in str(x) for x in report["findings"])
    for code, words, *options in ((64, "-B: say which budgets"), (1, "say --window 32", "-B", "0.25", "--window", "16", "--shares", tmp / "t.ckvt"),
                                  (1, "is there", "-B", "0.25", "--out", tmp / "c.jsonl"), (1, "keeps none", "-B", "0.001")):
        got, said = program("--out", tmp / "no.jsonl", *options)
        bad = got != code or words not in said or "Traceback" in said
        wrong += bad
        if bad:
            print(got, said)
    return wrong


torch.manual_seed(1)
far, wrong, exact = heads()
outside.at_most("a head beside the authors' formulas: biases, and values relative to the largest", far, 1e-4)
outside.at_most("heads: other positions, errors that do not fall with the budget or are above those of the same keys as they were", wrong, 0)
outside.at_most("a head that keeps everything: errors of answers", exact, 1e-5)
outside.at_most("attention to what is kept and to later tokens, beside loops", attended(), 1e-5)
far, rising, whole, half = caches()
outside.at_most("a compacted cache beside eager attention under a mask: log-probabilities", far, 2e-4)
outside.at_most("budgets at which the KL does not fall", rising, 0)
outside.at_most("KL of a cache that keeps everything", whole, 1e-5)
outside.at_most("KL at T/2 beside T/8", half, 0.3)
outside.at_most("lines, their report, and refusals: not as they should be", lines(), 0)
outside.done()
