#!/usr/bin/env python3
"""Greedy tokens of transformers from caches pruned by hand -> tests/golden/decode/MODEL.json (README.md). Needs torch and transformers.

usage: tests/golden/decode/make.py MODEL_DIR TEXT_FILE OUT.json
"""
import json
import random
import sys
from pathlib import Path

import torch
import transformers

NEW = 40


class Pruned:
    """A prompt's cache in transformers, and what is kept of it. sets [L][n][...]: n is 1, one set a layer, and the cache's own tensors are
    cut; or G, a set a KV head, and each head's attention looks at its own keys alone. sets None: the full cache."""

    def __init__(self, model, ids, sets):
        self.model, self.sets, self.T = model, sets, len(ids)
        self.cache = transformers.DynamicCache()
        model.set_attn_implementation("eager")
        self.by_head = bool(sets) and len(sets[0]) > 1
        with torch.no_grad():
            out = model(torch.tensor([ids]), past_key_values=self.cache, use_cache=True)
        self.logits = out.logits[0, -1].double()
        if sets and not self.by_head:
            for layer, ((kept,), c) in enumerate(zip(sets, self.cache.layers)):
                c.keys, c.values = (x[:, :, torch.tensor(kept, dtype=torch.long)] for x in (c.keys, c.values))
        self.n = 0

    def attention(self, module, query, key, value, attention_mask, scaling, dropout=0.0, **more):
        """One row: query head h on the keys that its KV head keeps and on all that came after the prompt."""
        group, n = query.shape[1] // key.shape[1], key.shape[2]
        rows = []
        for h in range(query.shape[1]):
            at = torch.tensor(self.sets[module.layer_idx][h // group] + list(range(self.T, n)))
            k, v = key[0, h // group, at], value[0, h // group, at]
            rows.append(torch.softmax(scaling * (k @ query[0, h, 0]), 0) @ v)
        return torch.stack(rows)[None, None], None

    def step(self, token):
        """Feeds a token at the next position; the logits behind it."""
        if self.by_head:
            transformers.AttentionInterface.register("pruned", self.attention)
        self.model.set_attn_implementation("pruned" if self.by_head else "sdpa")
        with torch.no_grad():
            out = self.model(torch.tensor([[token]]), past_key_values=self.cache, use_cache=True,
                             position_ids=torch.tensor([[self.T + self.n]]))
        self.n += 1
        self.logits = out.logits[0, -1].double()

    def greedy(self, n, stops=()):
        """n tokens at most, their losses, and by how much each leads the next likely one (its logit)."""
        tokens, nll, leads = [], [], []
        while len(tokens) < n:
            top = self.logits.topk(2)
            tokens.append(int(top.indices[0]))
            nll.append(float(self.logits.logsumexp(0) - top.values[0]))
            leads.append(float(top.values[0] - top.values[1]))
            if len(tokens) == n or tokens[-1] in stops:
                break
            self.step(tokens[-1])
        return tokens, nll, leads


def some_sets(rng, L, n_sets, T):
    """Of other lengths by layer and head: the last four positions, and an eighth to a half of the others."""
    return [[sorted(rng.sample(range(T - 4), rng.randrange(T // 8, T // 2))) + list(range(T - 4, T)) for _ in range(n_sets)]
            for _ in range(L)]


def main():
    directory, text, out = sys.argv[1:]
    model = transformers.AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32).eval()
    tok = transformers.PreTrainedTokenizerFast(tokenizer_file=str(Path(directory, "tokenizer.json")))
    ids = tok(Path(text).read_text(), add_special_tokens=False)["input_ids"]
    L, G = model.config.num_hidden_layers, model.config.num_key_value_heads
    rng, cases = random.Random(15), []
    for T, n_sets in ((150, 0), (150, 1), (211, G), (97, G)):
        prompt = ids[500 * len(cases):][:T]
        sets = some_sets(rng, L, n_sets, T) if n_sets else None
        tokens, nll, leads = Pruned(model, prompt, sets).greedy(NEW)
        assert min(leads) > 1e-3, f"case {len(cases)}: a lead of {min(leads)} may fall to rounding"
        cases.append({"prompt": prompt, "sets": sets, "tokens": tokens, "nll": [round(x, 7) for x in nll]})
    Path(out).write_text(json.dumps({"cases": cases}, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
