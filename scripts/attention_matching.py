#!/usr/bin/env python3
"""attention_matching.py MODEL --manifest M.jsonl -B 0.0625,0.125,0.25 --out S.jsonl: score lines of Attention Matching (arXiv 2602.16284), for `ckvc report`.

It does what the authors' code calls AM-HighestAttnKeys (github.com/adamzweiger/compaction, 2e59cc8, evaluation/configs/algorithms/default.py), with the
reference queries of a repeat pass. An instruction and the prompt once more are read behind the prompt's cache, and in each layer the queries of these tokens,
at their positions behind the prompt, are the reference queries of a KV head: all those of all its query heads, none left out. Each sees all of the prompt.

Kept are the keys with the largest root mean square of attention over the queries. Each gets a bias, so that exp(logit) of what is kept adds up to that of all
keys: weights exp(bias) by least squares, clamped to exp(-3) ... exp(3), and two steps of projected gradient. Values are those by which the answers to the
queries are nearest to the answers of all keys, by least squares without a ridge. Then the tokens read what is kept, and so the queries of a layer are those
that the compacted layers below it lead to (`on_policy`).

Every head keeps B entries, or with --shares T.ckvt as many as it does by that table, which stands for the head budgets that the authors computed once for each
of their models. Lines have the policy attention-matching, with the table of --shares. The instruction is that of kvzip; the authors' is "Repeat the previous
context verbatim." in a chat template."""
import copy
import dataclasses
import math
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.realpath(__file__))), "python"))
try:
    import torch
    from ckvc.calibrate import REPEAT, limits_of, loaded, options_of, parser
    from ckvc.command_line import Usage
    from ckvc.files import check, refuse
    from ckvc.hf_model import attention_of, check_attention, geometry_of
    from ckvc.manifest_prompts import plain_ids, read_prompts
    from ckvc.prefill import Kept
    from ckvc.score import write_scores
    from ckvc.table import Error, Table, budget_tokens
except ImportError as missing:
    sys.exit(f"attention_matching.py: no Python module {missing.name}: pip install './python[hf]'")

NAME, LEAST, MOST, STEPS = "attention-matching", math.exp(-3), math.exp(3), 2  # bounds of the weights exp(bias), and steps of projected gradient


@dataclasses.dataclass
class Compacted:
    """What a KV head keeps: positions [n] in ascending order, their keys [n, D], the biases that are added to their logits [n], and new values [n, D]."""
    positions: torch.Tensor
    keys: torch.Tensor
    biases: torch.Tensor
    values: torch.Tensor


def least_squares(a, b):
    """The x [n, ...] of least |a x - b|^2, in float64; of several the smallest if a [rows, n] has fewer rows than columns."""
    x = torch.linalg.lstsq(a, b, driver="gels").solution
    return x if x.isfinite().all() else torch.linalg.lstsq(a.cpu(), b.cpu(), driver="gelsd").solution.to(a.device)  # GPUs have gels alone


def weights(m, y):
    """The weights w [n] of least |m w - y|^2 between LEAST and MOST, nearly: least squares, clamped, and STEPS steps of projected gradient."""
    w, v = least_squares(m, y[:, None])[:, 0].clamp(LEAST, MOST), m.new_ones(m.shape[1])
    for _ in range(3):  # power iteration, for the largest singular value
        v = m.T @ (m @ v)
        v /= v.norm()
    step = 1 / (m @ v).square().sum()
    for _ in range(STEPS):
        w = (w - step * (m.T @ (m @ w - y))).clamp(LEAST, MOST)
    return w


def match(keys, values, queries, scaling, n):
    """The Compacted of a head that keeps n of the keys [T, D] and values [T, D], by the reference queries [rows, D], which see all of them."""
    queries = queries * scaling
    a = queries @ keys.T
    a = a.sub_(a.amax(dim=1, keepdim=True)).exp_()  # in place, for it is the largest array by far
    y = a.sum(dim=1, keepdim=True)
    a = a.div_(y)
    at = a.norm(dim=0).topk(n).indices.sort().values
    biases = weights((a[:, at] * y).double(), y[:, 0].double()).log()
    x = ((queries @ keys[at].T).double() + biases).softmax(dim=1)
    return Compacted(at, keys[at], biases.to(keys), least_squares(x, (a @ values).double()).to(values))


def attend(kept, queries, keys, values, scaling):
    """Answers [rows, n, D] of a KV head to queries [rows, n, D] of its query heads for the last n of the tokens that follow the prompt, with keys and values
    [m, D] of these tokens. A token sees what is kept of the prompt, the tokens before it and itself."""
    n, m = queries.shape[1], keys.shape[0]
    later = queries @ keys.T
    later.masked_fill_(torch.ones(n, m, dtype=torch.bool, device=later.device).triu(m - n + 1), -math.inf)
    logits = torch.cat([queries @ kept.keys.T * scaling + kept.biases, later * scaling], dim=-1)
    return logits.softmax(dim=-1) @ torch.cat([kept.values, values])


class Matching:
    """The compacted cache of a prompt: `layers` [L][G], of which the repeat pass makes one after the other."""

    def __init__(self, counts, n_tokens):
        """counts [L][G]: how many entries each head keeps of a prompt of n_tokens."""
        self.counts, self.n_tokens, self.layers = counts, n_tokens, []

    def attention(self, module, query, key, value, attention_mask, scaling=None, **kwargs):
        """An attention function of transformers, for tokens that follow the prompt: query [1, H, n, D], key and value [1, G, T + m, D]. The first call for a
        layer compacts it by these queries."""
        check_attention(module, key.shape[2], kwargs)
        refuse(kwargs.get("s_aux") is not None, f"{type(module).__name__}: its attention has sinks")
        l, T, k, v, scaling = module.layer_idx, self.n_tokens, key[0], value[0], scaling or query.shape[3] ** -0.5
        q = query[0].unflatten(0, (k.shape[0], -1))  # [G, H/G, n, D]
        if l == len(self.layers):
            self.layers.append([match(k[g, :T], v[g, :T], q[g].flatten(0, 1), scaling, n) for g, n in enumerate(self.counts[l])])
        out = torch.stack([attend(kept, q[g], k[g, T:], v[g, T:], scaling) for g, kept in enumerate(self.layers[l])])
        return out.flatten(0, 1).transpose(0, 1)[None].contiguous(), None


def policy(instruction, table=None):
    """The policy as a function that ckvc.score.score takes in `others` (score.Other). instruction: the token ids that are read before the prompt's
    repetition. table: the one of --shares, or None."""
    def keep(c, budget):
        g, tokens, T, made = c.geometry, c.p.tokens, c.p.n_tokens, dict(policy=NAME, table=table and table.content_id)
        B = T if T <= c.window else min(budget_tokens(budget, T), T)
        if B == T:
            return Kept("heads", T, c.whole), None, made
        counts = [[len(x) for x in of] for of in c._by_table(table, budget, None)[0].positions] if table else [[B] * g.n_kv_heads] * g.n_layers
        cache = Matching(counts, T)

        def feed(ids, n):
            behind = copy.copy(c.cache)  # tokens are added to the copy
            behind.layers = [copy.copy(x) for x in c.cache.layers]
            return c.feed(ids, behind, n)

        with attention_of(c.model, cache.attention, ()):
            feed([*instruction, *tokens[:T]], 1)
            rows = torch.cat([c.first, feed(tokens[T:-1], len(tokens) - 1 - T)]) if len(tokens) > T + 1 else c.first
        return Kept("heads", T, [[x.positions.cpu().numpy() for x in of] for of in cache.layers]), rows, dict(made, repeat_tokens=len(instruction) + T)
    return keep


def main():
    p = parser("score", __doc__.split("\n\n")[0], ["window", "continuation", "max_tokens", "resume", "quiet"])
    p.prog = "attention_matching.py"
    p.add_argument("--shares", metavar="T.ckvt", help="Let heads keep as many entries as by this table, and not B each.")
    p.add_argument("--beside", metavar="LINES", help="Do as this option of `python3 -m ckvc score` does.")
    p.add_argument("-f", "--force", action="store_true", help="Overwrite the output.")
    a = p.parse_args(sys.argv[1:])
    refuse(not a.budget, "-B: say which budgets", Usage)
    inputs = [a.model, a.manifest, *filter(None, (a.shares, a.beside))]
    check(a.out, a.force or (a.resume and os.path.exists(a.out + ".checkpoint")), inputs)
    table, (model, tokenizer), budgets = Table.read(a.shares) if a.shares else None, loaded(a), tuple(dict.fromkeys(a.budget))
    g, config = geometry_of(model), model.config.get_text_config()
    refuse(g.n_layers < config.num_hidden_layers, f"{type(model).__name__}: has layers that slide; want a model whose layers see every token")
    if table:
        table.check_model(g.n_layers, g.n_query_heads, g.n_kv_heads, g.head_dim)
        refuse(table.window != a.window, f"{table.name}: its window is {table.window}, asked for is {a.window}: say --window {table.window}")
    instruction = plain_ids(tokenizer, "\n\n" + REPEAT)
    limits = dataclasses.replace(limits_of(config, options_of(a, budgets=budgets), len(instruction)), window=0)
    prompts, sha = read_prompts(a.manifest, tokenizer, limits)
    name = f"{NAME} {table.content_id}" if table else NAME
    with torch.no_grad():
        n = write_scores(a.out, model, sha, prompts, budgets, (), (name,), beside=a.beside, resume=a.resume, force=a.force, inputs=inputs, tokenizer=tokenizer,
                         window=a.window, quiet=a.quiet, others={name: policy(instruction, table)})
    print(f"wrote {a.out}, {n} lines; next: ckvc report T.ckvt --scores LINES,{a.out} --out scores-report")


if __name__ == "__main__":
    try:
        main()
    except (Error, OSError, Usage) as why:
        print(f"attention_matching.py: {why}", file=sys.stderr)
        sys.exit(64 if isinstance(why, Usage) else 1)
