#!/usr/bin/env python3
"""kvzap.py MODEL --manifest M.jsonl -B 0.125,0.25 --out FOLDER: KVzap (arXiv 2601.07891) in its linear form, fitted on the prompts that tables are fitted on.

The fit is that of kvpress's kvzap/train.py: for each layer, a ridge regression (penalty 1) from the hidden states that its attention reads to the logarithm
of KVzip+'s score (kvpress.KVzipPress). Here it goes over all positions of the prompts of split fit; if there is no such split, over all prompts that are not
held out.

Two settings are then chosen for each budget, on the prompts of split select, or on those of the fit if there are none: how many last positions always stay (one
of RECENT), by the KL of what is then kept; and the threshold of the scores at which the mean number of kept entries is the budget's.

FOLDER becomes a model of kvpress.presses.kvzap_press.KVzapModel, for `python3 -m ckvc score --kvzap FOLDER`, and for kvpress, whose KVzapPress looks for it as
nvidia/KVzap-linear-NAME. The script needs kvpress, and a MODEL that kvpress knows."""
import itertools
import math
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.realpath(__file__))), "python"))
try:
    import torch
    from kvpress import KVzipPress
    from kvpress.presses.kvzap_press import KVzapConfig, KVzapModel
    from kvpress.utils import get_prerope_query_states
    from transformers import DynamicCache
    from transformers.models.llama.modeling_llama import rotate_half
except ImportError as missing:
    sys.exit(f"kvzap.py: no Python module {missing.name}: pip install './python[hf,kvpress]'")
from ckvc import Error  # noqa: E402  (its folder was added above)
from ckvc.calibrate import limits_of, loaded, options_of, parser  # noqa: E402
from ckvc.command_line import Usage  # noqa: E402
from ckvc.hf_model import geometry_of, with_cache  # noqa: E402
from ckvc.manifest_prompts import plain_ids, read_prompts  # noqa: E402
from ckvc.score import SINKS, Scoring, check_policies, check_recent, reading  # noqa: E402
from ckvc.table import budget_tokens  # noqa: E402

# How many last positions may stay: as many as a table keeps, a window, and as many as KVzap keeps. The latter two are tried only if they are at most half of a
# budget.
RECENT = 8, 32, 128
TILE = 256  # rows of attention at a time
PENALTY = 1.0  # of scikit-learn's Ridge()


class Target(KVzipPress):
    """The logarithm of KVzip+'s scores of a prompt [L, G, T], in tiles of rows that fit a processor's cache. Nothing is dropped."""

    def score_kvzip(self, module, hidden_states, keys, values, attentions, kwargs):
        n, sink, (cos, sin) = hidden_states.shape[1], min(self.n_sink, self.start_idx), kwargs["position_embeddings"]
        taken = slice(self.start_idx, self.end_idx)
        q = get_prerope_query_states(module, hidden_states)[0]
        q = ((q * cos + rotate_half(q) * sin) * module.head_dim**-0.5).unflatten(0, (keys.shape[1], -1))  # [G, H/G, rows, D]
        norms, later = self._compute_value_output_norm(module, values[:, :, taken])[0].log(), hidden_states[0].norm(dim=-1).log()
        k = torch.cat([keys[0, :, :sink], keys[0, :, taken], keys[0, :, -n:]], dim=1)
        context, best = k.shape[1] - n, torch.full_like(norms, -math.inf)
        for g, h, at in itertools.product(range(q.shape[0]), range(q.shape[1]), range(0, n, TILE)):
            rows = min(TILE, n - at)
            s = q[g, h, at : at + rows] @ k[g, : context + at + rows].T  # later ones are not seen
            s[:, context + at :].masked_fill_(torch.ones(rows, rows, dtype=torch.bool, device=s.device).triu(1), -math.inf)
            s -= (s.logsumexp(dim=1) + later[at : at + rows])[:, None]
            best[g, h] = torch.maximum(best[g, h], s[:, sink:context].amax(dim=0))
        self.score_val[module.layer_idx][0, :, taken] = (best + norms).amax(dim=1)
        return keys[:, :, : self.context_length], values[:, :, : self.context_length]

    def compress_post(self, model):
        self.scores = self.score_val[:, 0].double().cpu()
        self.scores[:, :, : self.prefix_length] = -math.inf  # before a chat template's first word: not read again


def fit(model, prompts, say):
    """The KVzapModel that fits the scores of these prompts, and R², the part of the logarithms' variance that it explains, as a mean over layers and heads.
    say: is called with a line of progress."""
    g, width, press = geometry_of(model), model.config.hidden_size, Target(compression_ratio=0.5, kvzip_plus_normalization=True)
    n, xx = 0, torch.zeros(g.n_layers, width + 1, width + 1, dtype=torch.float64)
    xy, y1, y2 = torch.zeros(g.n_layers, width + 1, g.n_kv_heads, dtype=torch.float64), torch.zeros(g.n_layers, g.n_kv_heads), torch.zeros(g.n_layers, g.n_kv_heads)
    for i, p in enumerate(prompts, 1):
        hidden = {}
        with press(model), reading(model, lambda layer, x: hidden.setdefault(layer, x)):  # the first time is the prompt's
            model.model(input_ids=torch.tensor([p.tokens[: p.n_tokens]], device=model.device), **with_cache(model, DynamicCache()))
        y = press.scores
        taken = y.isfinite().all(dim=1).all(dim=0)
        taken[:SINKS] = False
        for l in range(g.n_layers):
            x, target = torch.nn.functional.pad(hidden[l].double().cpu()[taken], (0, 1), value=1.0), y[l].T[taken]
            xx[l], xy[l] = xx[l].addmm(x.T, x), xy[l].addmm(x.T, target)
            y1[l], y2[l] = y1[l] + target.sum(0), y2[l] + target.square().sum(0)
        n += int(taken.sum())
        say(f"fitted {i} of {len(prompts)} prompts")
    w = torch.linalg.solve(xx + PENALTY * torch.diag(torch.tensor([1.0] * width + [0.0], dtype=torch.float64)), xy)
    rest = y2 - 2 * (w * xy).sum(1) + (w * (xx @ w)).sum(1)
    out = KVzapModel(KVzapConfig(input_dim=width, output_dim=g.n_kv_heads, n_modules=g.n_layers))
    for l, module in enumerate(out.layers):
        module.weight.data, module.bias.data = w[l, :width].T.to(model.dtype).contiguous(), w[l, width].to(model.dtype)
    return out.to(model.device).eval(), float((1 - rest / (y2 - y1.square() / n)).mean())


def choose(model, kvzap, prompts, budgets, window, say):
    """The settings of each budget, by its text such as `0.125`: `recent`, how many last positions stay; `threshold`, from which score on DMSPress keeps an
    entry; and `kl`, the mean KL under each number of last positions that was tried. window: prompts that are no longer are kept whole."""
    counts = [[min(budget_tokens(b, p.n_tokens), p.n_tokens) for p in prompts] for b in budgets]
    tried = [[r for r in RECENT if r == RECENT[0] or 2 * r <= min(of)] for of in counts]
    kl, scores, heads = [[0.0] * len(of) for of in tried], [], kvzap.config.n_modules * kvzap.config.output_dim
    with Scoring(model, window, kvzap) as c:
        for i, p in enumerate(prompts, 1):
            c.prefill(p)
            scores.append(torch.stack([x for _, x in sorted(c.zapped.items())]).double().cpu())
            for of, b, sums in zip(tried, budgets, kl):
                for j, recent in enumerate(of):
                    kvzap.config.ckvc = {f"{b:g}": {"recent": recent}}
                    sums[j] += c.under("KVzapPress", c.table, b, None)["kl"] / len(prompts)
            say(f"chosen on {i} of {len(prompts)} prompts")
    out = {}
    for b, of, sums, count in zip(budgets, tried, kl, counts):
        recent = of[sums.index(min(sums))]
        free = torch.cat([s[..., SINKS : s.shape[2] - recent].flatten() for s in scores])
        most = heads * sum(n - SINKS - recent for n in count)
        threshold = float(free.sort(descending=True).values[most - 1]) if 0 < most < len(free) else -math.inf if most else math.inf
        out[f"{b:g}"] = {"recent": recent, "threshold": threshold, "kl": dict(zip(map(str, of), sums))}
    return out


def main():
    p = parser("kvzap", __doc__.split("\n\n")[0], ["window", "continuation", "max_tokens", "quiet"])
    p.prog = "kvzap.py"
    a = p.parse_args(sys.argv[1:])
    if os.path.exists(a.out):
        raise FileExistsError(f"{a.out}: is there already")
    model, tokenizer = loaded(a)
    check_policies(model, ["KVzapPress"])
    o = options_of(a)
    prompts, _ = read_prompts(a.manifest, tokenizer, limits_of(model.config, o, len(plain_ids(tokenizer, "\n\n" + o.repeat))))
    fitted = [x for x in prompts if x.split == "fit"] or [x for x in prompts if not x.heldout]
    if not fitted:
        raise Error(f"{a.manifest}: every prompt is held out: nothing is there to fit")
    chosen = [x for x in prompts if x.select] or fitted
    check_recent({f"{b:g}": {"recent": RECENT[0]} for b in o.budgets}, chosen, o.budgets, o.window)
    with torch.no_grad():
        kvzap, explained = fit(model, fitted, lambda words: a.quiet or print(f"kvzap: {words}", file=sys.stderr, flush=True))
        kvzap.config.ckvc = choose(model, kvzap, chosen, o.budgets, o.window, lambda words: a.quiet or print(f"kvzap: {words}", file=sys.stderr, flush=True))
    kvzap.save_pretrained(a.out)
    for b, said in kvzap.config.ckvc.items():
        print(f"budget {b}: the last {said['recent']} stay (KL {said['kl']}), threshold {said['threshold']:.3f}")
    print(f"wrote {a.out}: of {len(fitted)} prompts, R² {explained:.3f} over layers and heads; next: python3 -m ckvc score --policy KVzapPress,DMSPress --kvzap {a.out} ...")


if __name__ == "__main__":
    try:
        main()
    except (Error, OSError, Usage) as why:
        print(f"kvzap.py: {why}", file=sys.stderr)
        sys.exit(64 if isinstance(why, Usage) else 1)
