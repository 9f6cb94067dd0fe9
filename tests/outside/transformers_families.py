#!/usr/bin/env python3
"""ckvc.hf on a random model of each family: calibrated, fitted, scored, and generated from. What is compared with transformers itself: attention of the last
rows (also with sinks), keys before rotation (in part, of interleaved pairs, of layers without), tokens from the cut cache beside the full cache
under a mask. Where layers slide, the others alone are a table's rows. What is refused says which family and why.
"""
import pathlib
import sys
import tempfile

import outside

a, (torch, transformers, np, h5py), tok, ids = outside.by_torch()
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS, AttentionMaskInterface  # noqa: E402
import ckvc  # noqa: E402  (its folder was added above)
import ckvc.hf  # noqa: E402
import ckvc.prefill  # noqa: E402
import ckvc.score  # noqa: E402

tmp = outside.scratch()
behind, asked, prompts = ids[5200:5220], torch.tensor([ids[5000:5200]]), outside.manifest({"id": f"p{i}", "tokens": ids[600 * i : 600 * i + 300]} for i in range(4))
SHAPE = dict(vocab_size=4096, hidden_size=64, intermediate_size=64, num_hidden_layers=4, num_attention_heads=4, num_key_value_heads=2, head_dim=16, pad_token_id=0, bos_token_id=1,
             eos_token_id=2, max_position_embeddings=2048)
HALF = dict(rope_parameters=dict(rope_type="default", rope_theta=1e4, partial_rotary_factor=0.5))
SLIDING, EXPERTS = dict(layer_types=["full_attention", "sliding_attention"] * 2, sliding_window=64), dict(num_experts=4, num_experts_per_tok=2, moe_intermediate_size=32)
FAMILIES = [("Llama", {}), ("Mistral", dict(sliding_window=None)), ("Qwen2", {}), ("Qwen2", dict(use_sliding_window=True, **SLIDING)), ("Qwen3", {}), ("Qwen3Moe", EXPERTS),
            ("Gemma3Text", SLIDING), ("Phi3", HALF), ("Olmo2", {}), ("SmolLM3", dict(no_rope_layers=[1, 0, 1, 0])), ("SmolLM3", dict(no_rope_layers=[0, 1, 1, 1])),
            ("Glm4", HALF), ("GptOss", dict(num_local_experts=4, num_experts_per_tok=2, **SLIDING)), ("Cohere2", SLIDING),
            ("Cohere2", dict(layer_types=["full_attention"] * 4, sliding_window=64)), ("Cohere2", dict(SLIDING, sliding_window=4096)), ("Exaone4", SLIDING),
            ("Flint", SLIDING), ("Mistral", dict(sliding_window=1024)), *((kind, {**EXPERTS, **SLIDING}) for kind in ("ExaoneMoe", "Afmoe", "Cohere2Moe")), ("Kolibri1", SLIDING)]
REFUSED = [("MistralAttention: a sliding window of 64, shorter than the sequence", "Mistral", dict(sliding_window=64)), ("Gemma2Attention: it caps its logits", "Gemma2", SLIDING),
           ("of the kind longrope change beyond 512 tokens", "Phi3", dict(original_max_position_embeddings=512, rope_parameters=dict(
               rope_type="longrope", rope_theta=1e4, short_factor=[1.0] * 8, long_factor=[2.0] * 8, original_max_position_embeddings=512))),
           ("Qwen3NextForCausalLM has layers of linear_attention, whose state cannot be taken back", "Qwen3Next", EXPERTS)]


def random_model(kind, more):
    torch.manual_seed(1)
    model = transformers.AutoModelForCausalLM.from_config(getattr(transformers, kind + "Config")(**{**SHAPE, **more})).eval()
    with torch.no_grad():
        for name, w in model.named_parameters():
            if name.endswith(("q_proj.weight", "qkv_proj.weight")):
                w[:64] *= 8  # random weights attend to all nearly alike
            if name.endswith("sinks"):
                w.copy_(torch.linspace(-1, 3, len(w)))
    model.generation_config.eos_token_id = None
    return model


def attention(model, table):
    """The largest difference of the last rows' attention from the model's own, which eager gives."""
    got, of = [], ckvc.prefill.attention_rows
    ckvc.prefill.attention_rows = lambda *given: (got.append(of(*given)), got[-1])[1]
    with torch.no_grad(), ckvc.hf.compress(model, table) as c:
        model(asked, use_cache=True)
    ckvc.prefill.attention_rows, before = of, model.config._attn_implementation
    model.set_attn_implementation("eager")
    with torch.no_grad():
        own = model(asked, output_attentions=True).attentions
    model.set_attn_implementation(before)
    want = [rows for l in c.geometry.layers for rows in own[l][0].unflatten(0, (2, 2))]
    return max(float((x - y[:, -x.shape[1] :]).abs().max()) for x, y in zip(got, want)) if len(got) == len(want) else np.nan


def rotation(model):
    """The largest difference of layer 0's keys, turned back, from those of the same model whose angles are 0 (yarn's scale stays); each key's numbers in order of size."""
    with torch.no_grad():
        turned = model(asked, use_cache=True).past_key_values.layers[0].keys[0, 1]
        hook = model.base_model.rotary_emb.register_forward_hook(lambda module, args, out: (torch.full_like(out[0], getattr(module, "attention_scaling", 1)), torch.zeros_like(out[1])))
        plain = model(asked, use_cache=True).past_key_values.layers[0].keys[0, 1]
        hook.remove()
    back = ckvc.hf_model.geometry_of(model).before_rotation(0, turned)
    return float((back.sort().values - plain.double().sort().values).abs().max() / plain.abs().max())


def scored(model, table, n):
    """Losses of n tokens behind the prompt, by policy."""
    line = {"id": "x", "tokens": asked[0].tolist(), "continuation_tokens": behind[:n], "split": "heldout"}
    with outside.manifest([line]) as m:
        asking, _ = ckvc.manifest_prompts.read_prompts(m.name, None, ckvc.manifest_prompts.Limits(2048, 4096, 0, n, -1))
    return {x["policy"]: x for x in ckvc.score.score(model, asking, (0.25,), [table], ckvc.score.REFERENCES, window=32)}


def served(model, table):
    """Tokens, and the loss of a score, that differ from the full cache's under a mask; what went wrong with a second turn, a batch, a static cache."""
    def write(**more):
        return model.generate(asked, max_new_tokens=12, do_sample=False, **more)[0, asked.shape[1] :].tolist()

    cache, n = transformers.DynamicCache(config=model.config), model.config.num_hidden_layers
    with ckvc.hf.compress(model, table, 0.25) as c:
        got, kept, bytes_kept, rows = write(past_key_values=cache), c.kept[0], c.kept_bytes, c.geometry.layers
        c.recompress(cache)
        again = c.kept[0].entries
        model(torch.tensor([ids[:5]]), past_key_values=cache)
        wrong = sum(isinstance(cache.layers[l], ckvc.hf.KeptLayer) != (l in rows) for l in range(n))
        two = model.generate(torch.cat([asked, asked]), max_new_tokens=12, do_sample=False)[:, asked.shape[1] :].tolist()
        wrong += two != [got, got]
        wrong += write(cache_implementation="static") != got or c.holds != "masked"
    wrong += bytes_kept != kept.entries * 2 * 16 * 4 or kept.entries != len(rows) * 2 * 50 or again > len(rows) * 2 * 52
    want, losses = outside.by_hand(model, asked, kept, 12, rows, behind[:12])
    lines = scored(model, table, 12)
    wrong += lines["full"]["reward"] != 0 or any(lines[x]["entries"] != kept.entries for x in ("table", "top-k", "snapkv", "adakv"))
    return sum(x != y for x, y in zip(got, want)), abs(lines["table"]["loss_comp"] - np.mean(losses)), wrong


def mine(module, *args, **kwargs):
    """An attention function that looks up its own name, as flash_attention_2 does."""
    assert module.config._attn_implementation == "mine"
    return sys.modules[type(module).__module__].eager_attention_forward(module, *args, **kwargs)


def without_rows(model, table):
    """1 where a table whose score reads no attention keeps other sets, or writes other tokens, under `mine` than under eager."""
    out, before = [], model.config._attn_implementation
    for name in ("eager", "mine"):
        model.set_attn_implementation(name)
        with ckvc.hf.compress(model, table, 0.25) as c:
            tokens = model.generate(asked, max_new_tokens=6, do_sample=False)[0].tolist()
        out.append((tokens, [[p.tolist() for p in of] for of in c.kept[0].positions], c.holds, c.rows))
    model.set_attn_implementation(before)
    return int(out[0] != out[1] or out[0][2:] != ("ragged", 0))


def refusal(words, kind, more):
    """Whether it is not refused in one line that says what it is about, linear attention by score, too."""
    model, out = random_model(kind, more), tmp / f"never-{kind}"
    if "linear" in words and outside.missed(lambda: next(ckvc.score.score(model, (), (0.25,)), None), words):
        return True
    return outside.missed(lambda: ckvc.hf.calibrate(model, tok, prompts.name, (0.25,), out, window=32, continuation=16, quiet=True), words)


transformers.AttentionInterface.register("mine", mine)
AttentionMaskInterface.register("mine", ALL_MASK_ATTENTION_FUNCTIONS["eager"])
for kind, more in FAMILIES:
    if not hasattr(transformers, kind + "Config"):
        continue  # transformers is older
    model, run = random_model(kind, more), pathlib.Path(tempfile.mkdtemp(dir=tmp)) / "run"
    rows = [0, 2] if more.get("layer_types") == SLIDING["layer_types"] and more["sliding_window"] < 2048 else [0, 1, 2, 3]
    ckvc.hf.calibrate(model, tok, prompts.name, (0.25,), run, window=32, continuation=16, quiet=True)
    outside.run(a.ckvc, "fit", run, "--out", f"{run}.ckvt", "-q")
    table = ckvc.Table.read(f"{run}.ckvt")
    outside.at_most(f"{kind}: attention of the last rows", attention(model, table), 1e-5)
    outside.at_most(f"{kind}: keys before rotation, relative", rotation(model), 1e-5)
    differ, loss, wrong = served(model, table)
    outside.at_most(f"{kind}: tokens that differ from the full cache's under a mask", differ, 0)
    outside.at_most(f"{kind}: loss of a token by score, from that under a mask", loss, 1e-5)
    outside.run(a.ckvc, "fit", run, "--features", 2, "--out", f"{run}-2.ckvt", "-q")
    outside.at_most(f"{kind}: another text or other sets of a score without attention, by an implementation of its own", without_rows(model, f"{run}-2.ckvt"), 0)
    g = ckvc.hf_model.geometry_of(model)
    wrong += list(g.layers) != rows or table.n_layers != len(rows) or table.score[0].kind != "learned"
    outside.at_most(f"{kind}: rows of its table, bytes, turns, a batch or a static cache that are wrong", wrong, 0)
outside.at_most("families that are not refused by their name", sum(refusal(*x) for x in REFUSED), 0)
outside.done()
