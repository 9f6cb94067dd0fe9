#!/usr/bin/env python3
"""What a prompt's next tokens lose in an unmodified llama.cpp when its cache is cut and held in few bits (docs/engines.md, "llama.cpp").

    llama_losses.py MODEL.gguf TABLE.ckvt MANIFEST.jsonl --budget 0.25 --ways f16,f16:q8_0/q4_0,f16:q4_0,q4_0 --out lines.jsonl

Each way says in which types a prompt is read and, behind a colon, in which others what is kept of it is then held: f32, f16, q8_0 or q4_0, or two with /
between, of keys and of values. A way that ends in =whole keeps the whole prompt. For each prompt and way a line has the KL of the continuation's tokens, in
nats a token: from the whole cache in F32, over the true continuation, as in `ckvc score`. The means are printed with their 95% intervals over prompts.

It needs llama-cpp-python and the C library (python/README.md). Ways that stand side by side and read in the same types share the reading. One thread.
"""
import argparse
import ctypes
import itertools
import json
import pathlib
import sys

import llama_cpp as c
import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "python"))
import ckvc.llama  # noqa: E402  (its folder was added above)


class Context:
    """A llama_context of n cells, whose keys and values have these types."""

    def __init__(self, n, types):
        p = c.llama_context_default_params()
        p.n_ctx, p.n_batch, p.n_ubatch, p.n_threads, p.n_threads_batch, p.flash_attn_type = n, n, 512, 1, 1, 1
        p.type_k, p.type_v = (ckvc.llama.KINDS[t] for t in types)
        self.ctx, self.batch = c.llama_init_from_model(model, p), c.llama_batch_init(n, 0, 1)

    def feed(self, tokens, at, every):
        """Log probabilities [n, V] behind each of the tokens, or [1, V] behind the last."""
        self.batch.n_tokens = len(tokens)
        for i, token in enumerate(tokens):
            self.batch.token[i], self.batch.pos[i], self.batch.n_seq_id[i], self.batch.seq_id[i][0] = token, at + i, 1, 0
            self.batch.logits[i] = every or i == len(tokens) - 1
        if c.llama_decode(self.ctx, self.batch):
            sys.exit("llama_losses.py: llama.cpp cannot decode these tokens (too long a prompt for this model?)")
        n, V = len(tokens) if every else 1, c.llama_vocab_n_tokens(vocab)
        x = np.ctypeslib.as_array(c.llama_get_logits(self.ctx), (n * V,)).reshape(n, V).astype(np.float64)
        x -= x.max(axis=1, keepdims=True)
        return x - np.log(np.exp(x).sum(axis=1, keepdims=True))

    def close(self):
        c.llama_batch_free(self.batch)
        c.llama_free(self.ctx)


def tokens_of(text, special):
    """The token ids of a text. special: whether the tokenizer adds those that begin a text."""
    data = text.encode()
    out = (c.llama_token * (len(data) + 8))()
    return list(out[: c.llama_tokenize(vocab, data, len(data), out, len(out), special, True)])


def behind(prompt, continuation, ways):
    """By way, the log probabilities [C, V] of the continuation's tokens. All ways read the prompt in the same types."""
    room, out = len(prompt) + len(continuation) + 8, {}
    read = ways[0].partition("=")[0].partition(":")[0]
    x = Context(room, ckvc.llama.types_of(read, shape))
    first = x.feed(prompt, 0, False)
    for way in ways:
        kinds, _, whole = way.partition("=")
        held = kinds.partition(":")[2] or read
        if whole and held == read:
            out[way] = np.concatenate([first, x.feed(continuation[:-1], len(prompt), True)])
            c.llama_memory_seq_rm(c.llama_get_memory(x.ctx), 0, len(prompt), -1)
            continue
        y = Context(room, ckvc.llama.types_of(held, shape))
        ckvc.llama.compact(x.ctx, 0, table, len(prompt) if whole else o.budget, model=shape, into=y.ctx, formats=held)
        out[way] = np.concatenate([first, y.feed(continuation[:-1], len(prompt), True)])
        y.close()
    x.close()
    return out


p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
for name in ("model", "table", "manifest"):
    p.add_argument(name)
p.add_argument("--budget", type=float, default=0.25)
p.add_argument("--ways", default="f16,f16:q8_0/q4_0,f16:q4_0,q8_0=whole,q4_0,q4_0=whole")
p.add_argument("-C", "--continuation", type=int, default=96)
p.add_argument("--out", required=True)
o = p.parse_args()
log = c.llama_log_callback(lambda *_: None)
c.llama_log_set(log, ctypes.c_void_p(0))
c.llama_backend_init()
model = c.llama_model_load_from_file(o.model.encode(), c.llama_model_default_params())
if not model:
    sys.exit(f"llama_losses.py: {o.model}: llama.cpp cannot read it")
vocab, shape, table = c.llama_model_get_vocab(model), ckvc.llama.model_of(o.model), ckvc.library.Table.read(o.table)
lines = []
with open(o.manifest, encoding="utf-8") as entries, open(o.out, "w", encoding="utf-8") as out:
    for e in map(json.loads, entries):
        prompt, continuation = tokens_of(e["text"], True), tokens_of(e["continuation"], False)[: o.continuation]
        full = behind(prompt, continuation, ["f32=whole"])["f32=whole"]
        for _, ways in itertools.groupby(o.ways.split(","), lambda way: way.partition("=")[0].partition(":")[0]):
            for way, got in behind(prompt, continuation, list(ways)).items():
                kl = float((np.exp(full) * (full - got)).sum(axis=1).mean())
                lines.append({"id": e["id"], "T": len(prompt), "way": way, "budget": o.budget, "kl": kl})
                print(json.dumps(lines[-1]), file=out, flush=True)
for way in o.ways.split(","):
    x = np.array([line["kl"] for line in lines if line["way"] == way])
    spread = 1.96 * x.std(ddof=1) / len(x) ** 0.5 if len(x) > 1 else float("nan")
    print(f"{way:16} KL {x.mean():.4f} ({x.mean() - spread:.4f} to {x.mean() + spread:.4f}), {len(x)} prompts")
