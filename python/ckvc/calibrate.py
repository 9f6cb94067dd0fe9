"""Measures in transformers what each head of a model needs of a prompt: the pass of `ckvc calibrate --side demand` (docs/method.md, sections 3 and 5). `ckvc
fit` makes tables from its records.

A prompt is prefilled, and its continuation is read behind it. Then an instruction and the prompt once more are read behind the prompt's full cache. This is
one piece if twice the prompt fits the context, and otherwise chunks of 2,048 tokens that do not see each other. Queries, keys and values are those that
transformers hands to attention.

Shapes: L layers, H query heads, G KV heads, T prompt tokens, F features, P logged positions.

Beside the model, memory holds the cache of twice the prompt, a few tiles of attention of TILE numbers each, masks of MASK cells, and on the CPU 5 arrays [L,
G, T] of float64. Nothing is T x T."""
from __future__ import annotations

import dataclasses
import functools
import inspect
import os
import sys
import time
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

import numpy as np
import torch
import xxhash
from transformers import AutoModelForCausalLM, AutoTokenizer, DynamicCache, PreTrainedModel

from . import __version__
from .command_line import Parser, Usage, numbers_of
from .files import Error, FilePath, refuse
from .fingerprint import fingerprint, folder_of, sketch
from .hf_model import attention_of, check_attention, device_of, geometry_of, original_attention, with_cache
from .json_text import sha256
from .manifest_prompts import CHUNK, Limits, Prompt, digest, plain_ids, read_prompts
from .prefill import attention_rows, head_features, late_features, log_softmax
from .run_writer import Run
from .table import Array, budget_tokens, head_floor

REPEAT = "Repeat the previous context exactly."  # the instruction, which follows a blank line
TILE = 1 << 24  # how many float32 of attention are computed at a time
MASK = 1 << 25  # the largest mask that transformers may make, in cells: rows that are fed, times columns
MIXES = (0.25, 0.5, 0.75, 1.0)  # the weights w of mixed_demand; column demand has the weight 0
SINKS = 4  # how many first positions are not counted, because they attract attention whatever they hold
ROWS, LATE, FIXED = 64, 10, 24  # of features of version 1: last rows that they read, number of the first late one, and how many there are beside the key's
# the members of Options that are numbers, with the least and the largest value of each
RANGES = (("window", 1, 10**6), ("continuation", 1, 10**6), ("floor", 0, 1), ("recent", 0, 10**6), ("positions", 32, 65536), ("queries", 0, 1024), ("judges", 0, 10**9),
          ("seed", 0, 2**53 - 1), ("max_tokens", 0, 10**9), ("max_failures", 0, 10**9))
DRAW, DRAW_QUERIES = 0x5C000000, 0x71750000  # the numbers of the random streams for a head's sample, and for the logged queries of a prompt
FIRST = 200  # positions of a prompt whose queries are not logged, unless it has fewer than twice as many


@dataclasses.dataclass(frozen=True)
class Options:
    """The same as the options of `ckvc calibrate --side demand`. budgets: tokens from 1 up, or shares of the prompt below 1. part (i, n): take every n-th
    prompt from the i-th on, if n processes share the prompts; None: the part that torchrun or a Slurm array gives this process. resume: go on with the run in
    `out`."""
    budgets: Tuple[float, ...]
    window: int = 64
    continuation: int = 128
    floor: float = 0.05
    recent: int = 8
    repeat: str = REPEAT
    positions: int = 128
    queries: int = 8
    judges: int = 8
    seed: int = 1
    max_tokens: int = 0
    skip_short: bool = False
    max_failures: int = 0
    part: Optional[Tuple[int, int]] = None
    resume: bool = False
    quiet: bool = False

    def __post_init__(self) -> None:
        for name, got, holds, want in (
                ("budgets", self.budgets, self.budgets and all(0 < b < 1 or (1 <= b < 2**32 and b == int(b)) for b in self.budgets), "shares below 1, or whole tokens"),
                *((name, getattr(self, name), low <= getattr(self, name) <= high, f"{low} to {high}") for name, low, high in RANGES),
                ("repeat", self.repeat, 1 <= len(self.repeat.encode()) <= 255 and self.repeat.isprintable(), "a line of 1 to 255 bytes"),
                ("part", self.part, self.part is None or 0 <= self.part[0] < self.part[1], "(i, n) with i below n")):
            refuse(not holds, f"{name}: got {got}, wanted {want}")


def part_of_job() -> Optional[Tuple[int, int]]:
    """This process's part (i, n) of a job of torchrun, or of a Slurm array with any first index and step. None if it is the only process."""
    e = {k: int(v) for k, v in os.environ.items() if v.isdecimal() and (k in ("RANK", "WORLD_SIZE") or k.startswith("SLURM_ARRAY_TASK_"))}
    part = (e.get("RANK", 0), e.get("WORLD_SIZE", 1))
    if part[1] == 1 and "SLURM_ARRAY_TASK_ID" in e:
        part = (e["SLURM_ARRAY_TASK_ID"] - e.get("SLURM_ARRAY_TASK_MIN", 0)) // e.get("SLURM_ARRAY_TASK_STEP", 1), e.get("SLURM_ARRAY_TASK_COUNT", 1)
    refuse(not part[0] < part[1], f"this is task {part[0]} of {part[1]}, by the job's environment: want an array without gaps, or say part")
    return part if part[1] > 1 else None


def demand_counts(score: torch.Tensor, budget: int, floor: float, recent: int) -> torch.Tensor:
    """How many entries each unit keeps when the units * budget highest of score [units, T] are kept, [units]. Every unit has some entries in any case
    (demand_meter.h). Of equal scores, that of the lower unit comes first."""
    n, T = score.shape
    B = min(budget, T)
    m, forced = head_floor(floor, recent, B, T), min(recent + 1, T)
    counts = torch.full((n,), m)
    rest = n * (B - m)
    if rest <= 0:
        return counts
    others = score[:, 1 : T - recent].sort(dim=1, descending=True).values[:, max(m - forced, 0) :]
    least = others.flatten().kthvalue(others.numel() - rest + 1).values
    above, equal = (others > least).sum(dim=1), (others == least).sum(dim=1)
    taken = torch.minimum((rest - above.sum() - (equal.cumsum(0) - equal)).clamp(min=0), equal)
    return counts + above + taken


def slots(score: torch.Tensor, recent: int) -> torch.Tensor:
    """The scores of layers' slots [L, T] from those of heads [L, G, T]: slot j has the j-th best entry of each head, and its score says how much less its heads
    drop (demand_meter.h). The slots of the forced positions, the first and the `recent` last, have score 0 and stand where these do."""
    end = max(score.shape[2] - recent, 1)
    free = score[:, :, 1:end].sort(dim=2).values  # the lowest first
    before = free.cumsum(dim=2)  # what a head drops before it keeps this entry, and after
    after = before - free
    worth = free * (before * before + before * after + after * after)
    return torch.nn.functional.pad(worth.sum(dim=1).flip(1), (1, score.shape[2] - end))


def mixed(y_r: torch.Tensor, y_c: torch.Tensor, w: float) -> torch.Tensor:
    """The mixed scores of heads: w y_c / sum y_c + (1 - w) y_r / sum y_r. If one of them is 0 everywhere, or its weight is 0, the result is the other as it
    is."""
    of_r, of_c = float(y_r.sum()), float(y_c.sum())
    if of_c == 0 or (w == 0 and of_r > 0):
        return y_r
    if of_r == 0 or w == 1:
        return y_c
    return (1 - w) / of_r * y_r + w / of_c * y_c


def philox(seed: int, key: int, stage: int, n_blocks: int) -> List[int]:
    """The first numbers of a random stream of lib/base/hash.h. A block is two numbers of 64 bits."""
    c = [np.arange(n_blocks, dtype=np.uint64), *(np.full(n_blocks, x, np.uint64) for x in (stage, key & 0xFFFFFFFF, key >> 32))]
    k, low = [seed & 0xFFFFFFFF, seed >> 32], np.uint64(0xFFFFFFFF)
    for _ in range(10):
        p, q = c[0] * np.uint64(0xD2511F53), c[2] * np.uint64(0xCD9E8D57)
        c = [q >> np.uint64(32) ^ c[1] ^ np.uint64(k[0]), q & low, p >> np.uint64(32) ^ c[3] ^ np.uint64(k[1]), p & low]
        k = [(k[0] + 0x9E3779B9) & 0xFFFFFFFF, (k[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return np.stack([c[0] | c[1] << np.uint64(32), c[2] | c[3] << np.uint64(32)], axis=1).ravel().tolist()


def draw_positions(target: Array, P: int, seed: int, prompt_id: str, head: int) -> Array:
    """The positions that are logged of a head, at most P. The first P / 2 are the first 4, the last 8, and those with the highest target [T] (of equal targets
    the later position), in ascending order. The others are drawn at random from all that are left."""
    T = len(target)
    if T <= P:
        return np.arange(T)
    rank = target.copy()
    rank[:4] = rank[-8:] = np.inf
    best = T - 1 - np.argsort(-rank[:0:-1], kind="stable")[: P // 2 - 1]
    top = np.sort(np.append(best, 0))
    others, sample = np.setdiff1d(np.arange(T), top).tolist(), top.tolist()
    numbers = iter(philox(seed, xxhash.xxh64_intdigest(prompt_id.encode()), DRAW + head, P))
    while len(sample) < P:
        n, v = len(others), next(numbers)
        if v >= 2**64 % n:  # smaller numbers are drawn again: with them, small remainders would be likelier than large ones
            sample.append(others[v % n])
            others[v % n] = others[-1]
            others.pop()
    return np.array(sample)


def draw_queries(N: int, p: Prompt, seed: int) -> List[int]:
    """The positions in the sequence whose queries are logged of a prompt, ascending: at most N of the prompt, and at most N of its continuation's rows. A
    prompt that is held out has none. The draw is that of query_log.c: in its step for the number i it takes a number up to i, or i itself if it has that."""
    T, drawn = p.n_tokens, []
    for part, (first, end) in enumerate(((FIRST if T >= 2 * FIRST else 0, T), (T, len(p.tokens) - 1))):
        n, taken = 0 if p.heldout else max(min(N, end - first), 0), set()
        numbers = iter(philox(seed, xxhash.xxh64_intdigest(p.id.encode()), DRAW_QUERIES + part, n + 8))
        for i in range(end - first - n, end - first):
            v = next(v for v in numbers if v >= 2**64 % (i + 1)) % (i + 1)
            taken.add(first + (i if first + v in taken else v))
        drawn += sorted(taken)
    return drawn


class Meter:
    """Measures prompts on a model, one after the other. Meanwhile the model attends by the method `attention`."""

    def __init__(self, model: PreTrainedModel, instruction: Sequence[int], context: int, options: Options):
        self.model, self.instruction, self.context, self.o = model, list(instruction), context, options
        self.g, self.device = geometry_of(model), device_of(model)
        self.group = self.g.n_query_heads // self.g.n_kv_heads
        self.before = ""  # the implementation of attention that the model had, whose results it goes on with
        self._take: Optional[Callable[..., None]] = None
        self._rows = {layer: row for row, layer in enumerate(self.g.layers)}
        self.sinks: Dict[int, Optional[torch.Tensor]] = {}  # by the table's row, [H]

    def attention(self, module: torch.nn.Module, query: torch.Tensor, key: torch.Tensor, *more: Any, **kwargs: Any) -> Any:
        """The attention function by which the model attends while it is measured: it hands queries [H, n, D] and keys [G, all, D] of the only sequence to the
        `take` of the current `_feed`, and attends as the model did before. An Error says that the layer's attention is not plain."""
        g, row = self.g, self._rows.get(getattr(module, "layer_idx", -1))
        if row is None:  # this layer does not see every token
            return original_attention(self.before, module, query, key, *more, **kwargs)
        check_attention(module, key.shape[2], kwargs)
        if query.shape[1] != g.n_query_heads or key.shape[1] != g.n_kv_heads or key.shape[3] != g.head_dim or g.head_dim % 2:
            raise Error(f"attention with {query.shape[1]} query heads and {key.shape[1]} KV heads of {key.shape[3]}, the configuration has {g.n_query_heads}, "
                        f"{g.n_kv_heads} and {g.head_dim}: want both alike, and an even length")
        if self._take is not None:
            self.scaling, self.sinks[row] = kwargs.get("scaling") or query.shape[3] ** -0.5, kwargs.get("s_aux")
            self._take(row, query[0], key[0])
        self._seen += 1
        return original_attention(self.before, module, query, key, *more, **kwargs)

    def _feed(self, cache: DynamicCache, ids: List[int], targets: List[int], take: Callable[..., None]) -> torch.Tensor:
        """Feeds tokens behind the cache, and calls take(start, layer, queries [H, n, D], keys [G, all, D]) for each piece and layer. targets: what the last
        tokens are to predict. Returns their losses, float64."""
        past, start, losses = cache.get_seq_length(), 0, [torch.zeros(0, dtype=torch.float64)]
        first, cells = len(ids) - len(targets), MASK // (self.g.n_query_heads if self.before == "eager" else 1)
        while start < len(ids):
            end = min(len(ids), start + max(64, min(CHUNK, cells // (past + len(ids)))))
            keep = max(end - max(start, first), 0)
            self._seen, self._take = 0, functools.partial(take, start)
            out = self.model(input_ids=torch.tensor([ids[start:end]], device=self.device), use_cache=True, logits_to_keep=max(keep, 1), **with_cache(self.model, cache))
            if self._seen != self.g.n_layers or len(cache.layers) <= self.g.layers[-1]:
                raise Error(f"{type(self.model).__name__}: {self._seen} of its {self.g.n_layers} layers that see every token attend through transformers' "
                            f"AttentionInterface, {len(cache.layers)} have a cache of their own: want all")
            if keep:
                rows, of = log_softmax(out.logits[0, -keep:]), torch.tensor(targets[end - keep - first : end - first])
                losses.append(-rows.gather(1, of.to(rows.device)[:, None])[:, 0].double().cpu())
            start = end
        self._take = None
        return torch.cat(losses)

    def _rows_of(self, layer: int, head: int, queries: torch.Tensor, keys: torch.Tensor) -> torch.Tensor:
        """attention_rows for one KV head. queries [H, rows, D], keys [T, D]."""
        of, sinks = slice(head * self.group, (head + 1) * self.group), self.sinks[layer]
        return attention_rows(queries[of].to(keys.device), keys, self.scaling, None, None if sinks is None else sinks[of])

    def _tiles(self, layer: int, queries: torch.Tensor, keys: torch.Tensor, T: int, mean: bool) -> torch.Tensor:
        """The attention that the first T positions get from queries [H, n, D], which are those of the last n of the N positions of keys [G, N, D]. It is
        computed in tiles of rows. mean: return its sum over rows and query heads; otherwise its largest value. Returns [G, T] float64, on the CPU."""
        group, n, N = self.group, queries.shape[1], keys.shape[1]
        out, step = torch.zeros(len(keys), T, dtype=torch.float64, device=keys.device), max(1, TILE // (group * N))
        for head in range(len(keys)):
            for at in range(0, n, step):
                end = min(n, at + step)
                rows = self._rows_of(layer, head, queries[:, at:end], keys[head, : N - n + end])[:, :, :T]
                out[head] = out[head] + rows.sum((0, 1), dtype=torch.float64) if mean else torch.maximum(out[head], rows.amax((0, 1)).double())
        return out.cpu()

    def _look(self, cache: DynamicCache, p: Prompt) -> Tuple[float, float]:
        """Reads a prompt, its continuation and its repetition. Fills the cache, self.y_r and self.y_c [L, G, T], self.last, which has L tensors [H, rows, D]
        of the last queries, and self.queries [n, L, H, D], those of the positions self.wanted before rotation. Returns the perplexity of the window, and the
        loss of the continuation."""
        g, T, W, ids, behind = self.g, p.n_tokens, self.o.window, p.tokens[: p.n_tokens], p.tokens[p.n_tokens :]
        self.y_r, self.y_c = (torch.zeros(g.n_layers, g.n_kv_heads, T, dtype=torch.float64) for _ in range(2))
        self.last: List[torch.Tensor] = [torch.zeros(0)] * g.n_layers

        self.wanted = draw_queries(self.o.queries, p, self.o.seed)
        self.queries = torch.zeros(len(self.wanted), g.n_layers, g.n_query_heads, g.head_dim)

        def take_queries(first: int, layer: int, q: torch.Tensor) -> None:
            for i, t in enumerate(self.wanted):
                if 0 <= t - first < q.shape[1]:
                    self.queries[i, layer] = g.before_rotation(layer, q[:, t - first], positions=torch.full((len(q),), t)).float().cpu()

        def remember(start: int, layer: int, q: torch.Tensor, k: torch.Tensor) -> None:
            take_queries(start, layer, q)
            self.last[layer] = (torch.cat([self.last[layer], q], dim=1) if start else q)[:, -max(ROWS, W) :].clone()

        def of_continuation(start: int, layer: int, q: torch.Tensor, k: torch.Tensor) -> None:
            take_queries(T + start, layer, q)
            self.y_c[layer] += self._tiles(layer, q, k, T, True) / (self.group * (len(behind) - 1))

        def of_repetition(start: int, layer: int, q: torch.Tensor, k: torch.Tensor) -> None:
            skip = max(len(self.instruction) - start, 0)
            if skip < q.shape[1]:
                self.y_r[layer] = torch.maximum(self.y_r[layer], self._tiles(layer, q[:, skip:], k, T, False))

        def back() -> None:  # takes the cache back to the end of the prompt
            if cache.get_seq_length() > T:
                cache.crop(T - cache.get_seq_length())

        losses = self._feed(cache, ids, p.tokens[T - W : T + 1], remember)
        r_sem, first = float(losses[:-1].mean().exp()), losses[-1:]
        full = torch.cat([first, self._feed(cache, behind[:-1], behind[1:], of_continuation)])
        back()
        chunk = T if 2 * T + len(self.instruction) <= self.context or T < CHUNK else CHUNK
        for at in range(0, T, chunk):
            self._feed(cache, self.instruction + ids[at : at + chunk], [], of_repetition)
            back()
        self.y_r[:, :, :SINKS] = 0
        return r_sem, float(full.mean())

    def _head(self, p: Prompt, layer: int, head: int, keys: torch.Tensor, values: torch.Tensor, columns: Dict[str, Array]) -> Tuple[torch.Tensor, ...]:
        """Fills a head's place in each column but those of demand. Returns the sums of attention over the window's and the last rows, the values' norms and
        the targets, all [T], and which positions are logged."""
        g, T, W, group = self.g, p.n_tokens, self.o.window, self.group
        rows = self._rows_of(layer, head, self.last[layer], keys)
        mass, recent = rows[:, -W:].sum((0, 1), dtype=torch.float64).cpu(), rows[:, -ROWS:]
        norm = values.double().norm(dim=-1)
        share, away = mass / (W * group), (norm - norm.mean()) / (norm.mean() + 1e-6)
        columns["own_recent"][0, layer, head] = share[max(T - W, 0) :].sum()
        columns["own_entropy"][0, layer, head] = -torch.xlogy(share, share).sum()
        columns["rho_sd"][0, layer, head] = away.square().mean().sqrt()
        own, key = head_features(recent, keys, norm), g.before_rotation(layer, keys)
        f = torch.cat([own, key, torch.ones_like(own[:, :1])], dim=1)
        parts = [y for y in (self.y_c[layer, head], self.y_r[layer, head]) if y.sum() > 0]
        target = sum((y / y.sum() for y in parts), torch.zeros(T, dtype=torch.float64))
        sample = draw_positions(target.numpy(), self.o.positions, self.o.seed, p.id, layer * g.n_kv_heads + head)
        columns["mass"][0, layer, head] = self.y_r[layer, head].sum()
        columns["target"][0, layer, head] = target.sum()
        columns["target_features"][0, layer, head] = (target.to(f.device) @ f).cpu().numpy()
        columns["features"][0, layer, head, : len(sample)] = f[torch.from_numpy(sample).to(f.device)].float().cpu().numpy()
        return mass, recent.sum((0, 1), dtype=torch.float64).cpu(), norm.cpu(), target, torch.from_numpy(sample)

    @torch.no_grad()
    def measure(self, p: Prompt, columns: Dict[str, Array]) -> Optional[str]:
        """Fills the columns [1, ...] of a prompt. Returns None, or a text that says why the prompt leaves no records."""
        g, T, W, cache = self.g, p.n_tokens, self.o.window, DynamicCache()
        r_sem, loss = self._look(cache, p)
        alpha, norms = torch.zeros(T, dtype=torch.float64), torch.zeros_like(self.y_r)
        late: List[Tuple[torch.Tensor, List[Tuple[torch.Tensor, ...]]]] = []
        for layer, of in enumerate(cache.layers[l] for l in g.layers):
            heads = [self._head(p, layer, head, of.keys[0, head], of.values[0, head], columns) for head in range(g.n_kv_heads)]
            alpha += sum(mass for mass, *_ in heads)
            attention = sum(last for _, last, *_ in heads) / (g.n_query_heads * min(self.last[layer].shape[1], ROWS))
            norms[layer] = torch.stack([norm for _, _, norm, *_ in heads])
            late.append((attention, [(target, sample) for *_, target, sample in heads]))
        alpha *= T / (W * g.n_layers * g.n_query_heads)
        share = alpha / alpha.sum()
        for layer, (attention, heads) in enumerate(late):
            f = late_features(attention, alpha / T)
            for head, (target, sample) in enumerate(heads):
                columns["target_features"][0, layer, head, LATE : LATE + 2] = (target @ f).numpy()
                columns["features"][0, layer, head, : len(sample), LATE : LATE + 2] = f[sample].float().numpy()
        columns["r_struct"][0], columns["r_sem"][0], columns["loss_full"][0] = -torch.xlogy(share, share).sum(), r_sem, loss
        self.y_r *= norms
        self.y_c *= norms
        if not all(np.isfinite(v).all() for v in columns.values() if v.dtype.kind == "f") or not bool((self.y_r + self.y_c).isfinite().all()):
            return "the full-cache loss, a risk or a head's attention is not finite"
        if self.o.queries:
            bits = self.queries.half()  # which is infinite where a number is beyond its range
            rows = [i for i, x in enumerate(bits) if bool(x.isfinite().all())]
            at = np.array([self.wanted[i] for i in rows], "<u4")
            columns.update({"query/prompt": np.zeros(len(rows), "<u4"), "query/part": (at >= T).astype("u1"), "query/position": at,
                            "query/vectors": bits[rows].numpy().view("<u2")})
        for i, w in enumerate((0.0, *MIXES)):
            score = mixed(self.y_r, self.y_c, w)
            of_slots = slots(score, self.o.recent)
            for name, units in ("demand", score.flatten(0, 1)), ("layer_demand", score.amax(dim=1)), ("length_demand", of_slots):
                to = columns["mixed_" + name][0, i - 1] if i else columns[name][0]
                for b, budget in enumerate(self.o.budgets):
                    to[b] = demand_counts(units, budget_tokens(budget, T), self.o.floor, self.o.recent).reshape(to[b].shape)
        return None


def empty_columns(g: Any, o: Options, n: int, documents: bool) -> Dict[str, Array]:
    """The columns of /prompt (formats/shard/shard.md) for n rows, filled with zeros, and those of /query, by "query/NAME", without rows."""
    L, G, B, F = g.n_layers, g.n_kv_heads, len(o.budgets), FIXED + g.head_dim
    text = ("id", "source", "split") + (("document",) if documents else ())
    shapes: Dict[str, Tuple[str, Tuple[int, ...]]] = {
        **{k: ("S255", ()) for k in text}, **{k: ("<u4", ()) for k in ("line", "n_tokens", "n_continuation")}, "cut": ("u1", ()), "token_hash": ("<u8", ()),
        **{k: ("<f8", ()) for k in ("r_struct", "r_sem", "loss_full")}, **{k: ("<u2", ()) for k in ("bin_entropy", "bin_perplexity")},
        **{k: ("<f8", (L, G)) for k in ("rho_sd", "own_recent", "own_entropy", "mass", "target")},
        "demand": ("<u4", (B, L, G)), "layer_demand": ("<u4", (B, L)), "mixed_demand": ("<u4", (4, B, L, G)), "mixed_layer_demand": ("<u4", (4, B, L)),
        "length_demand": ("<u4", (B, L)), "mixed_length_demand": ("<u4", (4, B, L)),
        "target_features": ("<f8", (L, G, F)), "features": ("<f4", (L, G, o.positions, F))}
    queries = {"query/prompt": ("<u4", ()), "query/part": ("u1", ()), "query/position": ("<u4", ()), "query/vectors": ("<u2", (L, g.n_query_heads, g.head_dim))}
    return {k: np.zeros((0 if k in queries else n, *shape), kind) for k, (kind, shape) in {**shapes, **(queries if o.queries else {})}.items()}


def limits_of(config: Any, o: Options, n_instruction: int) -> Limits:
    """The limits that a model sets to its prompts. n_instruction: the length of the instruction to repeat them."""
    rope = getattr(config, "rope_parameters", None) or {}
    stretched = rope.get("factor", 1.0) if rope.get("rope_type") == "linear" else 1.0  # linear scaling of positions is there to reach beyond the context
    context = int((getattr(config, "max_position_embeddings", None) or 1 << 26) * stretched)
    return Limits(context, config.vocab_size, o.window, o.continuation, n_instruction, o.max_tokens, o.skip_short)


def _check(o: Options, prompts: List[Prompt], config: Any, limits: Limits) -> None:
    """An Error if a budget is less than what every head keeps, or if the angle of a position depends on the sequence's length, so that a key's rotation could
    not be undone."""
    rope, longest = getattr(config, "rope_parameters", None) or {}, max(p.n_tokens for p in prompts)
    kind, original = rope.get("rope_type"), rope.get("original_max_position_embeddings") or limits.context
    refuse(kind in ("dynamic", "longrope") and 2 * longest + limits.instruction > original, f"rotary frequencies of the kind {kind} change beyond "
           f"{original} tokens, and the longest prompt has {longest}, to be repeated; say max_tokens {(original - limits.instruction) // 2} or less")
    for p in prompts:
        for b in o.budgets:
            B = budget_tokens(b, p.n_tokens)
            refuse(B <= o.recent and B < p.n_tokens, f'budget {b:g} is {B} of the {p.n_tokens} tokens of prompt "{p.id}", and every head keeps '
                   f"{o.recent + 1} (recent, and the first): give {o.recent + 1} or more")


def _header(o: Options, g: Any, model: PreTrainedModel, tokenizer: Any, manifest: str) -> Dict[str, Any]:
    """The attributes of the shards, except the plan's hash. Settings that have their neutral value are left out (formats/setting)."""
    folder = os.path.normpath(folder_of(model.config) or type(model).__name__)
    of_hub = os.path.basename(os.path.dirname(folder)) == "snapshots"
    counts = dict(n_layers=g.n_layers, n_heads=g.n_query_heads, n_kv_heads=g.n_kv_heads, window=o.window, continuation=o.continuation, keep_window=0,
                  positions=o.positions, features=1, n_features=FIXED + g.head_dim, **{k: getattr(o, k) for k in ("recent", "queries") if getattr(o, k)})
    return {"format": "ckvc-shard", "version": np.uint32(1), "ckvc_version": __version__, "fingerprint": fingerprint(model),
            "sketch": sketch(model, tokenizer), "manifest": manifest,
            "model_name": os.path.basename(model.config._name_or_path if of_hub else folder)[:255], "family": model.config.model_type, "pass": "demand",
            "behaviour": "none", "alpha_kind": "paper", "seed": np.uint64(o.seed), "lambda": np.float64(1), "repeat": o.repeat,
            "budgets": np.array(o.budgets, np.float64), "edges_entropy": np.zeros(0), "edges_perplexity": np.zeros(0), **{k: np.uint32(v) for k, v in counts.items()},
            **({"floor": np.float64(o.floor)} if o.floor else {}), **({"compute": "bf16"} if model.dtype == torch.bfloat16 else {})}


def _plan(o: Options, header: Dict[str, Any], model: PreTrainedModel, tokenizer: Any, prompts: List[Prompt], limits: Limits) -> Dict[str, Any]:
    """The plan of a run, for run.json: everything that decides what the records are."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    words = backend.to_str() if backend is not None else repr(sorted(tokenizer.get_vocab().items()))
    options = {k: v for k, v in dataclasses.asdict(o).items() if k not in ("budgets", "part", "resume", "quiet") and (v or k != "queries")}
    return {**options, "schema": "ckvc-plan-1", "verb": "calibrate", "engine": "transformers", "dtype": str(model.dtype)[6:], "side": "demand", "split": [],
            "model": header["fingerprint"], "model_name": header["model_name"], "tokenizer": sha256(words),
            "manifest": header["manifest"], "prompts": digest(prompts), "n_prompts": len(prompts), "chat_template": "own" if tokenizer.chat_template else "none",
            "max_tokens": limits.longest, "limit": 0, "holdout": 0.0, "shard_prompts": 1, "alpha": "paper", "compute": header.get("compute", "f32"),
            "keep_window": 0, "budget": list(map(float, o.budgets)), "floor": float(o.floor), "features": 1}


def check_layers(model: PreTrainedModel) -> None:
    """An Error if a layer remembers more of a sequence than keys and values."""
    kinds = set(getattr(model.config.get_text_config(), "layer_types", None) or ()) - {"full_attention", "sliding_attention", "chunked_attention", "attention"}
    if kinds or "logits_to_keep" not in inspect.signature(model.forward).parameters:
        has = f" has layers of {', '.join(sorted(kinds))}, whose state cannot be taken back to the end of a prompt" if kinds else ""
        raise Error(f"{type(model).__name__}{has}: want a causal language model whose layers all attend")


def calibrate(model: PreTrainedModel, tokenizer: Any, manifest: FilePath, o: Options, out: FilePath) -> int:
    """Measures the prompts of a manifest, and logs them in the run directory `out`. Returns how many prompts it measured. If it is killed, resume goes on from
    the last whole prompt.

    An Error of one line says that the model's attention is not plain or does not go through AttentionInterface, that a prompt cannot be taken, that a budget
    is less than what heads keep, that the folder is of another model or other settings, that the disk is full, or that there is too little device memory."""
    check_layers(model)
    g, config = geometry_of(model), model.config.get_text_config()
    instruction = plain_ids(tokenizer, "\n\n" + o.repeat)
    limits = limits_of(config, o, len(instruction))
    prompts, sha = read_prompts(os.fspath(manifest), tokenizer, limits)
    refuse(all(p.heldout for p in prompts), f"{os.fspath(manifest)}: {len(prompts)} prompts are left, all held out: nothing is there to fit")
    _check(o, prompts, config, limits)
    judges = [p.id for p in prompts if p.heldout and not p.select][: o.judges]
    taken = [p for p in prompts if not p.heldout or p.id in judges]
    header, documents = _header(o, g, model, tokenizer, sha), any(p.document for p in prompts)
    run = Run(os.fspath(out), _plan(o, header, model, tokenizer, prompts, limits), header, empty_columns(g, o, 0, documents), len(taken),
              f"torch/{model.device.type}/{str(model.dtype)[6:]}", o.part or part_of_job(), o.resume)
    if not o.quiet:
        T, heads = max(p.n_tokens for p in prompts), g.n_layers * g.n_kv_heads
        held, cut, cache = sum(p.heldout for p in prompts), sum(p.cut for p in prompts), 2 * heads * g.head_dim * model.dtype.itemsize * (2 * T + len(instruction))
        print(f"prompts: {len(prompts)} ({held} held out, {cut} cut to {limits.longest} tokens), longest {T}; beside the model at most {cache / 1e6:.0f} MB of "
              f"cache, {heads * T * 40 / 1e6:.0f} MB of scores, {6 * TILE * 4 / 1e6:.0f} MB of attention, {MASK / 1e6:.0f} MB of masks", file=sys.stderr)
    meter, done, start, training = Meter(model, instruction, limits.context, o), 0, time.monotonic(), model.training
    try:
        model.eval()
        with attention_of(model, meter.attention) as meter.before:
            for i in run.todo:
                p, columns = taken[i], empty_columns(g, o, 1, documents)
                said = {**vars(p), "split": "heldout" if p.heldout else p.split}
                for k in said.keys() & columns.keys():
                    columns[k][0] = said[k].encode() if isinstance(said[k], str) else said[k]
                bad = meter.measure(p, columns)
                if (n := run.publish(i, columns, p.id, bad)) > o.max_failures and bad is not None:
                    raise Error(f'{os.fspath(manifest)}:{p.line}: prompt "{p.id}": {bad}; {n} such prompts, max_failures allows {o.max_failures}')
                done += 1
                if not o.quiet and (done == len(run.todo) or done % 10 == 1 or sys.stderr.isatty()):
                    run.say(run.n_ours - len(run.todo) + done, done / (time.monotonic() - start), done == len(run.todo))
    except torch.OutOfMemoryError as why:
        raise Error(f"{str(why).splitlines()[0]}; what is published stays: spread the model, or say max_tokens and another out") from None
    finally:
        model.train(training)
        run.close()
    return done


def parser(verb: str, description: str, options: Sequence[str]) -> Parser:
    """The parser of `python3 -m ckvc VERB MODEL ...`. options: the names of those members of Options that are options of the verb."""
    p = Parser(prog=f"python3 -m ckvc {verb}", description=description)
    p.add_argument("model", help="Load this model: a Hugging Face folder, or a name that transformers loads.")
    p.add_argument("--manifest", required=verb != "compile", help="Read prompts from this file; `ckvc manifest build` makes one. compile makes its own without this option, of the texts that come with ckvc.")
    p.add_argument("-B", "--budget", type=numbers_of, metavar="B,...", required=verb != "score", help="Keep so many entries per layer and KV head on average; a number below 1 is a share of the prompt.")
    p.add_argument("-o", "--out", required=True, help="Write to this path.")
    p.add_argument("--dtype", default="auto", help="Hold weights and cache in float32, bfloat16 or float16; auto takes what the model has.")
    p.add_argument("--device", help="Run on this device: cpu, cuda:0 and so on, or auto to spread the model over all; without it on the process's own GPU, or the CPU.")
    for f in (f for f in dataclasses.fields(Options) if f.name in options):
        kind = {"int": int, "float": float, "str": str}.get(f.type)
        given = dict(type=kind, default=f.default, help=f"Do as this option of `ckvc calibrate` does; the built-in value is {f.default}.") if kind else dict(action="store_true")
        p.add_argument(option_of(f.name), dest=f.name, was="--floor" if f.name == "floor" else None, **given)
    return p


def option_of(name: str) -> str:
    """The option that gives the member of Options of this name."""
    return "--demand-floor" if name == "floor" else "--" + name.replace("_", "-")


def options_of(a: Any, **more: Any) -> Options:
    """The Options that a parsed command line says. more: members with other values."""
    try:
        return Options(**{"budgets": tuple(dict.fromkeys(a.budget or ())), **{f.name: getattr(a, f.name) for f in dataclasses.fields(Options) if hasattr(a, f.name)}, **more})
    except Error as why:
        name, _, rest = str(why).partition(":")
        raise Usage(f"{option_of(name)}:{rest}") from None


def loaded(a: Any) -> Tuple[PreTrainedModel, Any]:
    """The model that a command line names, on the device that it names, and its tokenizer."""
    try:
        tokenizer = AutoTokenizer.from_pretrained(a.model)
        own = a.device or (f"cuda:{os.environ.get('LOCAL_RANK', 0)}" if torch.cuda.is_available() else "cpu")
        model = AutoModelForCausalLM.from_pretrained(a.model, dtype=a.dtype, **({"device_map": "auto"} if own == "auto" else {}))
        return (model if own == "auto" else model.to(own)), tokenizer
    except Exception as why:  # models' classes and file formats raise exceptions of many kinds
        raise Error(f"{a.model}: {type(why).__name__}: {' '.join(str(why).split())[:300]}") from None


OPTIONS = [f.name for f in dataclasses.fields(Options) if f.name not in ("budgets", "part")]


def main(verb: str, words: List[str]) -> str:
    """Does `python3 -m ckvc calibrate MODEL ...`, and returns the line that is printed."""
    p = parser(verb, "Logs what each head of a model asks for, by torch; `ckvc fit` makes a table of it.", OPTIONS)
    p.add_argument("--shard", metavar="I/N", type=lambda x: tuple(map(int, x.split("/"))),
                   help="Take every N-th prompt from the I-th on; torchrun and Slurm arrays say which by themselves.")
    a = p.parse_args(words)
    refuse(a.shard and len(a.shard) != 2, f"--shard: got {a.shard}, wanted I/N", Usage)
    o = options_of(a, part=a.shard)
    n, part = calibrate(*loaded(a), a.manifest, o, a.out), o.part or part_of_job()
    done = f"{n} prompts; wrote {f'part {part[0]}/{part[1]} into ' if part else ''}{a.out}; "
    return done + (f"when all parts are there: ckvc merge {a.out}" if part else f"next: ckvc fit {a.out} --out T.ckvt")
