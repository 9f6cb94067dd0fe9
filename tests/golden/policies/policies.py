"""Kept sets of reference policies as NVIDIA's kvpress computes them.

    python policies.py MODEL > MODEL.json      (in the repository's root; kvpress, transformers, torch, numpy)
    python policies.py DIR PROMPTS.json        (any model: {"instruction": ids, "later": ids, "prompts": [ids], "budgets": [B]})

MODEL is a key of MODELS below. README.md says which rule is whose and where it was changed.
"""
import json
import sys
from types import SimpleNamespace

import kvpress
import kvpress.presses.kvzip_press as kvzip_module
import kvpress.presses.snapkv_press as snapkv_module
import numpy as np
import torch
import torch.nn.functional as F
import transformers

BUDGETS = (40, 64)
CHUNK = 48  # of KVzip's chunks, where they are not the published 2,048
INF = float("inf")
WIDE, NARROW = dict(window_size=32, kernel_size=7), dict(window_size=8, kernel_size=7)
torch.set_num_threads(1)


def embedded(least):
    golden = json.load(open("tests/golden/budgets/ckvc-tiny-4l.json"))
    return golden["instruction"], [p["tokens"] for p in golden["prompts"] if len(p["tokens"]) >= least]


def random_qwen2():
    ids = [s["ids"] for s in json.load(open("tests/golden/models/qwen2/expected.json"))["sequences"]]
    return min(ids, key=len)[:8], [max(ids, key=len)]


MODELS = {
    "ckvc-tiny-4l": ("models/ckvc-tiny-4l", lambda: embedded(150)),
    "ckvc-tiny-8l": ("models/ckvc-tiny-8l", lambda: embedded(200)),
    "qwen2": ("tests/golden/models/qwen2", random_qwen2),
}
if len(sys.argv) > 2:
    path, given = sys.argv[1], json.load(open(sys.argv[2]))
    instruction, later, prompts, BUDGETS = given["instruction"], given["later"], given["prompts"], given["budgets"]
else:
    path, prompts_of = MODELS[sys.argv[1]]
    instruction, prompts = prompts_of()
    later = instruction[-2::-1]  # of later chunks: any ids that are not as many
models = {kind: transformers.AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32, attn_implementation=kind).eval()
          for kind in ("sdpa", "eager")}
config = models["sdpa"].config
L, G = config.num_hidden_layers, config.num_key_value_heads
GROUP = config.num_attention_heads // G
shares = np.random.default_rng(7).lognormal(size=(L, G))
shares = np.round(shares / shares.mean(), 4)


# ---- kvpress with ckvc's parameters ----

def pool(x, kernel_size, padding, stride):
    """Of the group's mean the largest: kvpress averages, and takes the group's mean after it."""
    mean = x.view(x.shape[0], G, GROUP, -1).mean(2).repeat_interleave(GROUP, 1)
    return F.max_pool1d(mean, kernel_size, stride=stride, padding=padding)


class Functional:
    avg_pool1d = staticmethod(pool)

    def __getattr__(self, name):
        return getattr(F, name)


class Tokenizer:
    """The instruction, without the line break that kvpress puts behind it where a model has no chat template."""
    chat_template = None

    def encode(self, text, **_):
        said = {"\n\nRepeat the previous context exactly.": instruction, "\n\nRepeat the part of the previous context exactly, starting with": later}
        return torch.tensor([said.get(text, [])], dtype=torch.long)


snapkv_module.F = Functional()
kvzip_module.AutoTokenizer = SimpleNamespace(from_pretrained=lambda _: Tokenizer())


class KVzip(kvpress.KVzipPress):
    def compress_post(self, model):
        super().compress_post(model)
        self.scores = self.score_val[:, 0].double()


class H2O(kvpress.ObservedAttentionPress):
    """Sums in place of means over the rows that see a position; the last 8 are kept."""
    def score(self, module, hidden_states, keys, values, attentions, kwargs):
        s = super().score(module, hidden_states, keys, values, attentions, kwargs)
        s = s * torch.arange(s.shape[-1], 0, -1)
        s[..., -8:] = INF
        return s


class Vatp(H2O):
    """Not in kvpress. H2O's sums times the values' 1-norm; the first 20 are kept, too."""
    def score(self, module, hidden_states, keys, values, attentions, kwargs):
        s = super().score(module, hidden_states, keys, values, attentions, kwargs) * values.norm(p=1, dim=-1)
        s[..., :20] = INF
        return s


class Cake(kvpress.ScorerPress):
    """Not in kvpress. Mean + 200 var over 32 rows, mean of 5; the layers' preferences (tau 1, 1)."""
    def score(self, module, hidden_states, keys, values, attentions, kwargs):
        a = attentions[0, :, -32:, :-32].double()  # [H][rows][past]
        var = a.var(1)  # unbiased
        preferences.append(float(-(a * torch.log(a + 1e-10)).sum() * var.sum()))
        s = F.avg_pool1d((a.mean(1) + 200 * var)[None], 5, padding=2, stride=1).view(1, G, GROUP, -1).mean(2)
        return F.pad(s, (0, 32), value=INF)


class ZigZagKV(kvpress.SnapKVPress):
    """In kvpress a pull request (238). Of each query head how many positions hold 0.9 of its last 32 rows; the layers' means."""
    def score(self, module, hidden_states, keys, values, attentions, kwargs):
        a = attentions[0, :, -32:].double().mean(1).sort(descending=True).values  # [H][T]
        lmba.append(float(((a.cumsum(-1) < 0.9 * a.sum(-1, keepdim=True)).sum(-1) + 1).double().mean()))
        return super().score(module, hidden_states, keys, values, attentions, kwargs)


class Summed(kvpress.ScorerPress):
    """Not in kvpress: DynamicKV's scores. The sum over 8 rows, mean of 7, of a group the sum."""
    def score(self, module, hidden_states, keys, values, attentions, kwargs):
        s = F.avg_pool1d(attentions[:, :, -8:, :-8].double().sum(2), 7, padding=3, stride=1)
        s = s.view(1, G, GROUP, -1).sum(2)
        summed.append(s[0])
        return F.pad(s, (0, 8), value=INF)


class ChunkKV(kvpress.ChunkKVPress):
    """Gathers positions where kvpress gathers values, which its scores do not look at."""
    def compress(self, module, hidden_states, keys, values, attentions, kwargs):
        positions = torch.arange(keys.shape[2], dtype=keys.dtype).view(1, 1, -1, 1).expand_as(values)
        gathered = super().compress(module, hidden_states, keys, positions, attentions, kwargs)
        chunked.append(gathered[1][0, :, :, 0].long().tolist())
        return gathered


def later_first(press):
    """Equal scores, which a maximum over neighbours makes: the later position first, as everywhere in ckvc. What float32 tells apart stays."""
    caught, score = [], press.score

    def told_apart(*args):
        s = score(*args).double()
        caught.append(s + s.abs() * torch.arange(s.shape[-1]) * 1e-13)
        return caught[-1]

    press.score = told_apart
    return caught


def prefill(press, tokens, attention="sdpa"):
    cache = transformers.DynamicCache()
    with torch.no_grad(), press(models[attention]):
        models[attention].model(input_ids=tokens, past_key_values=cache)
    return cache.layers


def scores_of(press, attention, tokens):
    """[L][G][T] of a press that ranks, and how many positions it leaves in each layer."""
    caught = later_first(press)
    layers = prefill(press, tokens, attention)
    return [s[0] for s in caught], [layer.keys.shape[2] for layer in layers]


def ranked(scores, capacities):
    return [[sorted(scores[l][g].topk(int(capacities[l][g])).indices.tolist()) for g in range(G)] for l in range(L)]


def masked(press, tokens):
    """Of a press that masks positions instead of taking them away."""
    prefill(press, tokens)
    sets = []
    for layer in models["sdpa"].model.layers:
        keep = torch.ones(G, tokens.shape[1], dtype=torch.bool)
        _, heads, positions = layer.self_attn.masked_key_indices
        keep[heads, positions] = False
        sets.append([torch.nonzero(k).flatten().tolist() for k in keep])
    return sets


def gap(scores, sets, together):
    """How far, relative to itself, the least score that is kept is above the largest that is not, of `together` heads that compete;
    the smallest over all of them. Equal ones have been told apart."""
    least, kept, left = INF, [], []
    for u in range(L * G):
        s, keep = scores[u // G][u % G], sets[u // G][u % G]
        kept.append(s[keep].min().item())
        s = s.clone()
        s[keep] = -INF
        left.append(s.max().item())
        if len(kept) == together:
            d = (min(kept) - max(left)) / abs(min(kept)) if max(left) > -INF and min(kept) < INF else INF
            least, kept, left = (d if 1e-9 < d < least else least), [], []
    return least


# ---- capacities that kvpress does not have ----

def each_head(c):
    return [[n] * G for n in c]


def pyramid(B, T, W=8, beta=20):
    b = B - W
    if T < 2 * b:
        return each_head([B] * L)
    m = b // beta
    M = 2 * b - m
    if M >= T - W:
        M, m = T - W, 2 * b - (T - W)
    return each_head(M - l * ((M - m) // (L - 1)) + W for l in range(L))


def cake(B, T, W=32):
    total, most = (B - W) * L, T - W
    c = [min(int(p / sum(preferences) * total), most) for p in preferences]
    while sum(c) < total:
        open_ = [l for l in range(L) if c[l] < most]
        each, more = divmod(total - sum(c), len(open_))
        for k, l in enumerate(open_):
            c[l] = min(c[l] + each + (k < more), most)
    return each_head(x + W for x in c)


def dynamickv(B, T, W=8, radio_max=10):
    """update_and_reset_budget of dynamic_v11.py, with a cache a KV head; lengths in place of tensors. Models there have layers by fours."""
    base = B - W
    budget_size, length = min(int(radio_max * base), T - W), []
    for layer in range(L):
        length.append(budget_size)
        if layer % 4 != 3 and layer != L - 1:
            continue
        attn = torch.stack(summed[:layer + 1])
        n, dim1, tk = layer + 1, G * (T - W), base * G * (layer + 1)
        counts = torch.bincount(attn.view(-1).topk(tk).indices // dim1, minlength=n).float() // n
        if counts.sum().item() != dim1 and layer == L - 1:
            counts[-1] += tk // L - counts.sum()
        fix = [int((budget_size * (c / counts.sum().item())).item()) for c in counts]
        ss_radio = sum(fix) / (base * L)
        fix = [int(k // ss_radio) for k in fix]
        fix[-1] += base * L - sum(fix)
        length = [min(have, f, T - W) for have, f in zip(length, fix)]
    return each_head(n + W for n in length)


def zigzagkv(B, T):
    return each_head(min(round(0.2 * B + 0.8 * B * L * x / sum(lmba)), T) for x in lmba)


def evolkv(B, T):
    return each_head(min(round(x * B), T) for x in shares.mean(1))


def headkv(B, T, W=8, beta=1.01):
    fixed = (B - W) // beta
    return np.minimum([[round(x * fixed * L * G + (B - W) - fixed) + W for x in row] for row in shares / shares.sum()], T)


def duoattention(B, T):
    least = max(9, int(0.2 * B))
    c, left = np.full((L, G), least), L * G * (B - least)
    for u in np.argsort(-shares.ravel(), kind="stable"):
        more = min(left, T - least)
        c.flat[u] += more
        left -= more
    return [[sorted(set(range(4)) | set(range(T - int(n) + 4, T))) for n in row] for row in c]


# ---- all of it ----

def ratio(B, T):
    return 1 - (B + 0.5) / T  # of which kvpress makes exactly B


def adakv(B, tokens):
    press = kvpress.SnapKVPress(ratio(B, tokens.shape[1]), **WIDE)
    scores = later_first(press)
    sets = masked(kvpress.AdaKVPress(press), tokens)
    return sets, gap([s[0] for s in scores], sets, G)


def kvzip(B, tokens, chunk_size=2048):
    T = tokens.shape[1]
    press = KVzip((L * G * (T - B) + 0.5) / (L * G * T), chunk_size=chunk_size)
    sets = masked(press, tokens)
    return sets, gap(press.scores, sets, L * G)


def chunkkv(B, tokens):
    """kvpress as it is, with its own pooling; chunks of 10, a window of 32."""
    T = tokens.shape[1]
    press = ChunkKV(kvpress.SnapKVPress(ratio(B, T), window_size=32, kernel_size=5), chunk_length=10)
    scores, least = later_first(press.press), INF
    chunked.clear()
    snapkv_module.F = F
    prefill(press, tokens)
    snapkv_module.F = Functional()
    for s, heads in zip(scores, chunked):
        assert heads.count(heads[0]) == G
        of_chunk = torch.stack([c.mean() for c in s[0].sum(0).split(10)])
        keep = torch.zeros(len(of_chunk), dtype=torch.bool)
        keep[[t // 10 for t in heads[0]]] = True
        d = ((of_chunk[keep].min() - of_chunk[~keep].max()) / of_chunk[keep].min()).item()
        least = d if 1e-9 < d < least else least
    return [heads[0] for heads in chunked], least


# ---- FastKV: its selection, from the one full prefill ----

def nearest(s, n):
    """How far the n-th largest of s is above the next, relative to itself."""
    order = s.sort(descending=True).values
    return ((order[..., n - 1] - order[..., n]) / order[..., n - 1]).min().item() if 0 < n < s.shape[-1] else INF


def fastkv(B, tokens, W=8):
    """update_kv of fastkv/utils.py, proportional: behind the TSP layer, the middle one (15 of 32), of tsp_indices alone, a fifth of the
    tokens. FastKV's prefill goes on with these alone; here attention is the full prefill's in every layer."""
    T, tsp_layer = tokens.shape[1], L // 2 - 1
    tsp_length, window, least, sets, allowed = int(T * 0.2), torch.arange(T - W, T), INF, [], None
    with torch.no_grad():
        attentions = models["eager"](tokens, output_attentions=True).attentions
    for l, weights in enumerate(attentions):
        s = F.avg_pool1d(weights.double()[:, :, -W:, :-W].sum(-2), kernel_size=7, padding=3, stride=1).view(G, GROUP, T - W).sum(-2)
        s = s + s * torch.arange(T - W) * 1e-13  # of equal ones the later
        of = s if allowed is None else s.masked_fill(~allowed, -INF)
        n = min(B, T if allowed is None else tsp_length) - W
        least = min(least, nearest(of, n)) if n < (T - W if allowed is None else int(allowed.sum())) else least
        indices = torch.cat([of.topk(n).indices, window.expand(G, -1)], 1).sort().values
        sets.append([i.tolist() for i in indices])
        if l == tsp_layer:
            total = s.sum(-2)
            least = min(least, nearest(total, tsp_length - W))
            allowed = torch.zeros(T - W, dtype=torch.bool)
            allowed[total.topk(tsp_length - W).indices] = True
    return sets, least


def by_head(B, tokens, press, attention, capacities=None):
    scores, n = scores_of(press, attention, tokens)
    assert capacities or n == [B] * L
    sets = ranked(scores, capacities(B, tokens.shape[1]) if capacities else each_head(n))
    return sets, gap(scores, sets, 1)


def by_layer(*args):
    sets, least = by_head(*args)
    assert all(heads.count(heads[0]) == G for heads in sets)
    return [heads[0] for heads in sets], least


def policies(B, tokens):
    """name: kept sets, least gap"""
    T = tokens.shape[1]
    r = ratio(B, T)
    preferences.clear()
    summed.clear()
    lmba.clear()
    return {
        "streamingllm": by_layer(B, tokens, kvpress.StreamingLLMPress(r), "sdpa"),
        "h2o": by_head(B, tokens, H2O(r), "eager"),
        "snapkv": by_head(B, tokens, kvpress.SnapKVPress(r, **WIDE), "sdpa"),
        "pyramidkv": by_head(B, tokens, kvpress.PyramidKVPress(r, **NARROW), "sdpa", pyramid),
        "adakv": adakv(B, tokens),
        "cake": by_head(B, tokens, Cake(r), "eager", cake),
        "dynamickv": by_head(B, tokens, Summed(r), "eager", dynamickv),
        "chunkkv": chunkkv(B, tokens),
        "fastkv": fastkv(B, tokens),
        "vatp": by_head(B, tokens, Vatp(r), "eager"),
        "rocketkv": by_head(B, tokens, kvpress.SnapKVPress(r, window_size=32, kernel_size=63), "sdpa"),
        "zigzagkv": by_head(B, tokens, ZigZagKV(r, **WIDE), "eager", zigzagkv),
        "expected-attention": by_head(B, tokens, kvpress.ExpectedAttentionPress(r), "sdpa"),
        "tova": by_layer(B, tokens, kvpress.TOVAPress(r), "sdpa"),
        "keydiff": by_head(B, tokens, kvpress.KeyDiffPress(r), "sdpa"),
        "kvzip": kvzip(B, tokens),
        "headkv": by_head(B, tokens, kvpress.SnapKVPress(r, **NARROW), "sdpa", headkv),
        "evolkv": by_head(B, tokens, kvpress.SnapKVPress(r, **WIDE), "sdpa", evolkv),
        "duoattention": (duoattention(B, T), INF),
    }


preferences, summed, lmba, chunked, least_gap, of_prompts = [], [], [], [], INF, []
for ids in prompts:
    tokens, kept, in_chunks = torch.tensor([ids]), {}, {}
    for B in BUDGETS:
        for name, (sets, least) in policies(B, tokens).items():
            kept.setdefault(name, {})[str(B)] = sets
            least_gap = min(least_gap, least)
        in_chunks[str(B)], least = kvzip(B, tokens, CHUNK)
        least_gap = min(least_gap, least)
    of_prompts.append({"tokens": ids, "kept": kept, "in_chunks": in_chunks})
json.dump({"about": "kept positions, [L][G][...] or [L][...]: see README.md", "model": path, "instruction": instruction, "later": later, "chunk": CHUNK, "budgets": BUDGETS,
           "shares": shares.tolist(), "least_gap": float(f"{least_gap:.1e}"), "prompts": of_prompts}, sys.stdout, separators=(",", ":"))
print()
