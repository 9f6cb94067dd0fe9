"""Computes in torch what a table keeps of one prompt (docs/method.md, section 2), from the attention of its last rows, its keys and its values, layer by
layer.

Shapes: L layers, H query heads, G KV heads, D head_dim, T prompt tokens. Only the attention rows of one KV head, [H / G, rows, T], are in memory at a time;
nothing is T x T."""
from __future__ import annotations

import dataclasses
import functools
import math
from typing import Any, Callable, List, Optional, Sequence, Tuple, Union

import numpy as np
import torch
import torch.nn.functional as F

from .table import BY_FEATURES, BY_HEAD, FEATURES, Array, Table, bin_index, budget_tokens

BANK_PART = 0.25  # the part of the ranking `bank` that is the attention of the bank's queries
BANK_LEAST = 0.3  # the least that this attention counts as, as a part of evenly spread attention
MOST_LEFT = 1280  # in features (T - t)/1024 and log²(T - t), positions farther back count as this far


@dataclasses.dataclass(frozen=True)
class Geometry:
    """The properties of a model that its tables depend on. inv_freq [n]: the frequencies that keys are rotated with, in pairs (i, i + n), or (2 i, 2 i + 1) if
    `interleaved`. n is at most head_dim / 2. None: keys come before rotation. layers: the layers that are a table's rows, in order; None: all. If only some
    layers see every token, these are the rows. unrotated: the rows whose keys are not rotated."""
    n_layers: int
    n_query_heads: int
    n_kv_heads: int
    head_dim: int
    inv_freq: Optional[torch.Tensor] = None
    layers: Optional[Tuple[int, ...]] = None
    unrotated: Tuple[int, ...] = ()
    interleaved: bool = False

    def before_rotation(self, row: int, keys: torch.Tensor, first_position: int = 0, positions: Optional[torch.Tensor] = None) -> torch.Tensor:
        """Cached keys [..., T, D] of a row as they were before rotation, float64. They are those of `positions` [T], or of all from first_position on. Their
        values are in the order of the C program, whose pairs are (i, i + D / 2). If n is below D / 2, the values behind the first 2 n were not rotated, and
        become the last pairs."""
        keys = keys.double()
        if not self._rotates(row):
            return keys
        n, (c, s) = len(self.inv_freq), self._turn(first_position + torch.arange(keys.shape[-2]) if positions is None else positions, keys.device)
        first, second = self._halves(row, keys)
        a, b = first[..., :n], second[..., :n]
        return torch.cat([a * c + b * s, first[..., n:], b * c - a * s, second[..., n:]], dim=-1)

    def rotated(self, row: int, x: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        """The inverse of before_rotation: keys x [..., T, D] of a row, in the order that it returns, rotated to positions [T] or [..., T]. The result is
        float64, in the order in which the model caches keys."""
        if not self._rotates(row):
            return x.double()
        n, (c, s), (first, second) = len(self.inv_freq), self._turn(positions, x.device), x.double().chunk(2, dim=-1)
        a, b = first[..., :n], second[..., :n]
        pair = a * c - b * s, b * c + a * s
        turned = torch.stack(pair, dim=-1).flatten(-2) if self.interleaved else torch.cat(pair, dim=-1)
        return torch.cat([turned, first[..., n:], second[..., n:]], dim=-1)

    def products(self, row: int, queries: torch.Tensor, x: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        """The products of queries [heads, N, D], as the model rotated them and in the order in which it caches keys, with x [heads, D] as `rotated` has it at
        positions [heads, S]: [heads, N, S] float32. x is in the order of before_rotation. A pair (a, b) of x that is turned by an angle has with a pair (p, q)
        of a query the product (p a + q b) cos + (q a - p b) sin, so that x is not made for each position."""
        (p, q), (a, b) = self._halves(row, queries.float()), x.float()[:, None].chunk(2, dim=-1)
        of_cos, of_sin = p * a + q * b, q * a - p * b
        if not self._rotates(row):
            return of_cos.sum(dim=-1, keepdim=True).expand(-1, -1, positions.shape[1])
        n, (c, s) = len(self.inv_freq), self._turn(positions, queries.device)
        turning = of_cos[..., :n] @ c.mT + of_sin[..., :n] @ s.mT
        return turning if n == of_cos.shape[-1] else turning + of_cos[..., n:].sum(dim=-1, keepdim=True)

    def _rotates(self, row: int) -> bool:
        """Whether the model rotates the keys of a row by their positions."""
        return self.inv_freq is not None and row not in self.unrotated

    def _halves(self, row: int, keys: torch.Tensor) -> Tuple[torch.Tensor, torch.Tensor]:
        """The first and the second of each pair that rotation turns, two tensors [..., D / 2], of keys in the order in which the model caches them. Behind the
        first n are those that it leaves alone."""
        if not self._rotates(row):
            return keys.chunk(2, dim=-1)
        n = len(self.inv_freq)
        a, b = keys[..., : 2 * n].unflatten(-1, (n, 2)).unbind(-1) if self.interleaved else keys[..., : 2 * n].chunk(2, dim=-1)
        first, second = keys[..., 2 * n :].chunk(2, dim=-1)
        return torch.cat([a, first], dim=-1), torch.cat([b, second], dim=-1)

    def _turn(self, positions: torch.Tensor, device: torch.device) -> Tuple[torch.Tensor, torch.Tensor]:
        """Cosine and sine of the angles [..., T, n] at positions [..., T]. The angles are taken in float32, because models rotate in float32."""
        angle = positions[..., None].to(device).float() * self.inv_freq.to(device).float()
        return angle.cos(), angle.sin()


@dataclasses.dataclass
class Kept:
    """What is kept of a prompt. positions [L][G]: ascending. In the modes `layers` and `shared` all heads of a layer have the same array, and in
    the mode `lengths` arrays of one length."""
    mode: str
    n_tokens: int
    positions: List[List[Array]]
    r_struct: Optional[float] = None  # in nats; None if the table has no bins of it
    r_sem: Optional[float] = None
    table: Optional[Table] = dataclasses.field(default=None, repr=False, compare=False)  # the table that decided, by which entries may be fitted
    block: int = 0  # its block that served the budget

    @property
    def entries(self) -> int:
        """How many of the L * G * n_tokens entries (layer, KV head, position) are kept."""
        return sum(len(p) for layer in self.positions for p in layer)

    @property
    def whole(self) -> bool:
        """Whether nothing was dropped, because the prompt is no longer than the table's window or than the budget."""
        return all(len(p) == self.n_tokens for layer in self.positions for p in layer)


def log_softmax(logits: torch.Tensor) -> torch.Tensor:
    """The logarithm of the softmax, [rows, vocabulary] float32. The sum is added up in float64, because torch's own sum of 150,000 terms in float32 is off by
    1e-5, and always to the same side."""
    logits = logits.float()
    return logits - torch.stack([row.double().logsumexp(dim=0) for row in logits])[:, None].float()


def _log(x: torch.Tensor) -> torch.Tensor:
    """The logarithm of x, which counts as at least 1e-7."""
    return x.clamp(min=1e-7).log()


def _pool(a: torch.Tensor, k: int, by: Callable[..., torch.Tensor] = F.max_pool1d) -> torch.Tensor:
    """The largest of each k neighbours of a [T], or what `by` makes of them, [T]. k is odd."""
    return by(a[None, None], k, 1, k // 2)[0, 0]


def _mean(rows: torch.Tensor, window: int) -> torch.Tensor:
    """The mean attention [T] of the last `window` of rows [group, rows, T], over rows and query heads, float64."""
    return rows[:, -window:].mean((0, 1), dtype=torch.float64)


def _largest(s: torch.Tensor, first: torch.Tensor, n: int) -> torch.Tensor:
    """The n positions that rank highest, in ascending order, [..., n]. Those of the mask `first` [T] rank before others, then larger scores s [..., T] before
    smaller ones. A NaN ranks lowest, and of equal scores the later position ranks higher."""
    order = s.nan_to_num(nan=-math.inf, posinf=math.inf, neginf=-math.inf).sort(stable=True).indices
    order = order.gather(-1, first[order].int().sort(stable=True).indices)
    return order[..., max(s.shape[-1] - n, 0) :].sort().values


def _always(n_tokens: int, recent: int, device: Optional[torch.device] = None) -> torch.Tensor:
    """The mask [T] of the positions that every head keeps: the first and the recent ones."""
    position = torch.arange(n_tokens, device=device)
    return (position == 0) | (position >= n_tokens - recent)


def _candidates(u: torch.Tensor, tau: float, budget: int, keep_window: int) -> torch.Tensor:
    """The positions that the paper's operator keeps, by utilities u [T]: those of at least tau, but at most `budget` of them. The last keep_window positions
    are taken first, whatever their utility."""
    first = torch.arange(len(u)) >= len(u) - keep_window
    there = (u >= tau) | first
    return _largest(u.masked_fill(~there, -math.inf), first, min(budget, int(there.sum())))


def attention_rows(queries: torch.Tensor, keys: torch.Tensor, scaling: float, held: Optional[torch.Tensor] = None,
                   sinks: Optional[torch.Tensor] = None) -> torch.Tensor:
    """Attention of the last rows, [group, rows, T] float32: the softmax of queries [group, rows, D] over those keys [T, D] that each row sees. held [T]: only
    these positions are there; a row that sees none of them is 0. sinks [group]: logits of one more column, which takes its share of the softmax and is left
    out."""
    logits = queries.float() @ keys.float().T * scaling
    position = torch.arange(len(keys), device=keys.device)
    unseen = position > position[-logits.shape[1] :, None]
    logits = logits.masked_fill(unseen if held is None else unseen | ~held, -math.inf)
    if sinks is not None:
        sinks = sinks.to(logits)[:, None, None].expand(-1, logits.shape[1], 1)
        return torch.cat([logits, sinks], dim=-1).softmax(dim=-1)[..., :-1]
    rows = logits.softmax(dim=-1)
    return rows if held is None else rows.nan_to_num()


def head_features(rows: Optional[torch.Tensor], keys: torch.Tensor, norm: torch.Tensor) -> torch.Tensor:
    """The features [T, n] float64 of the learned ranking (docs/method.md, section 2), without the numbers of the key and the constant 1 that follow them. rows
    [group, rows, T]: attention of the last rows, for features of version 1; None for version 2, which has none and may have several heads, [..., T, n]. The
    two late features of version 1 are 0 here, because they need all layers. keys [..., T, D]; norm [..., T]: those of the values."""
    T, columns = keys.shape[-2], []
    if rows is not None:
        for window in (8, 32, 64):
            a = _mean(rows, window)
            columns += [a, _pool(a, 5, F.avg_pool1d), _pool(a, 7)]
        columns += [rows.mean(1, dtype=torch.float64).amax(0), torch.ones_like(a), torch.ones_like(a), _pool(_mean(rows, 16), 21, F.avg_pool1d)]
    columns = [_log(c) for c in [*columns, norm, keys.double().norm(dim=-1)]]
    of_position = _position_features(T, keys.device)
    return torch.cat([torch.stack([c.double() for c in columns], dim=-1), of_position.expand(*norm.shape, -1)], dim=-1)


@functools.lru_cache(maxsize=4)
def _position_features(n_tokens: int, device: torch.device) -> torch.Tensor:
    """The features [T, 8] float64 that depend on positions alone, and so are the same for all layers and heads."""
    t = torch.arange(n_tokens, device=device)
    left, near = (n_tokens - t).double(), (n_tokens - t).clamp(max=MOST_LEFT).double()
    return torch.stack([x.double() for x in (left.log(), t == 0, t < 4, left <= 8, left <= 32, left <= 64, near / 1024, near.log() ** 2)], dim=1)


def late_features(attention: torch.Tensor, alpha: torch.Tensor) -> torch.Tensor:
    """The two late features, [T, 2], which are known when all layers are: of a layer's mean attention and of alpha / T, both [T] float64."""
    return torch.stack([_log(_pool(attention, 5)), _log(alpha)], dim=1)


def reference_queries(table: Table, block: int, geometry: Geometry, row: int, n_tokens: int, first_position: int = 0,
                      device: Optional[torch.device] = None) -> torch.Tensor:
    """The queries [G, n, D] float64 of the bank that serve a block of the table, in a row of it. They are rotated to positions that are spread evenly behind a
    prompt of n_tokens, whose first position is first_position. A factor by which a model scales its rotation is in the bank already, because queries are
    logged with it."""
    n, span = table.bank_use[block].tolist()
    bank = torch.from_numpy(table.bank[row, :, :n].astype(np.float64)).to(device)
    return geometry.rotated(row, bank, first_position + n_tokens + torch.arange(n) * span // n).reshape(geometry.n_kv_heads, -1, bank.shape[2])


def attention_of(queries: torch.Tensor, keys: torch.Tensor, held: Optional[torch.Tensor] = None) -> Tuple[torch.Tensor, torch.Tensor]:
    """The attention of the bank's queries to each position, [G, n, T] float32, and the logarithms of the sums that it was divided by, [G, n, 1]. queries
    [G, n, D]: as reference_queries gives them, times what a product of query and key is multiplied with. keys [G, T, D]: as they are cached. held [G, T]: False
    for a position that is not there; None: all are. It is computed in the memory of the logits, because new memory costs more than the sums."""
    logits = queries.float() @ keys.float().mT
    if held is not None:
        logits.masked_fill_(~held[:, None], -math.inf)
    most = logits.amax(dim=-1, keepdim=True)
    total = logits.sub_(most).exp_().sum(dim=-1, keepdim=True)
    return logits.div_(total), total.log() + most


def root_mean_square(attention: torch.Tensor) -> torch.Tensor:
    """The root of the mean over the queries of their squared attention [G, n, T] to each position, [G, T] float64. The sum is in float32: its rounding is no
    larger than that of the logits. The heads come one after the other, so that the memory of their squares is one head's. (vector_norm over a dimension that
    is not the last takes three times as long on CPUs.)"""
    return (torch.stack([of_head.square().sum(dim=0) for of_head in attention]).double() / attention.shape[1]).sqrt()


def _with_bank(scores: torch.Tensor, attention: torch.Tensor, norms: torch.Tensor) -> torch.Tensor:
    """The learned log scores [G, T] with the bank's attention mixed in, as ckvc_score_bank in lib/policy does it. norms [G, T]: those of the values."""
    return (1 - BANK_PART) * scores + BANK_PART * (attention.clamp(min=BANK_LEAST / attention.shape[-1]).log() + norms.log())


def _form(table: Table, geometry: Geometry, row: int, head: int, rows: Optional[torch.Tensor], keys: torch.Tensor, norm: torch.Tensor,
          first_position: int = 0) -> torch.Tensor:
    """The product of theta and the features of each position, [T] float64, without the two late features. rows, keys, norm: as for head_features."""
    theta = torch.from_numpy(table.theta[row, head].astype(np.float64)).to(keys.device)
    f = head_features(rows, keys, norm)
    n = f.shape[1]
    return f @ theta[:n] + geometry.before_rotation(row, keys, first_position) @ theta[n:-1] + theta[-1]


def _log_scores(forms: torch.Tensor, mass: Array, norms: torch.Tensor) -> torch.Tensor:
    """The logarithms [G, T] of the learned ranking's scores. forms [G, T]: the products of theta and the features. mass [G]: the table's. norms [G, T]: those
    of the values."""
    of_head = torch.from_numpy(np.array(mass, np.float64)).to(forms.device)
    return forms + (of_head.log()[:, None] - forms.logsumexp(dim=-1, keepdim=True)) + norms.log()


@torch.no_grad()
def kept_of_layer(table: Table, block: int, geometry: Geometry, row: int, keys: torch.Tensor, values: torch.Tensor, n: int,
                  attention: Optional[torch.Tensor], first_head: int = 0) -> torch.Tensor:
    """The n positions [g, n] that each head of one layer keeps, ascending, on the device of its keys. They are those of `Prefill` if all heads of the layer
    keep n. The table's ranking must be learned and read no attention (features of version 2). keys, values [g, T, D]: as they are cached, of the KV heads from
    first_head on. block: the table's block that serves the budget. attention: of the bank's queries, read only if the block's ranking is `bank`."""
    of_heads, recent = slice(first_head, first_head + len(keys)), int(table.c_min[block][1])
    norms = values.double().norm(dim=-1)
    theta = torch.from_numpy(table.theta[row, of_heads, :, None].astype(np.float64)).to(keys.device)
    f = head_features(None, keys, norms)
    forms = (f @ theta[:, : f.shape[2]] + geometry.before_rotation(row, keys) @ theta[:, f.shape[2] : -1] + theta[:, -1:])[..., 0]
    scores = _log_scores(forms, table.mass[row, of_heads], norms)
    if table.score[block].kind == "bank":
        scores = _with_bank(scores, root_mean_square(attention), norms)
    return _largest(scores, _always(keys.shape[1], recent, keys.device), n)


class Prefill:
    """Collects what a table reads of one prompt while its layers are prefilled. Call `layer` for each layer in order, and then `keep`.

    budget: tokens from 1 up, or a share of the prompt below 1; None: the only budget of the table. mode: used in place of the one that the table recommends.
    first_position: the position of the first token, by which its key was rotated. A prompt that is no longer than the table's window is kept whole. An Error
    says that the table does not suit the model or the prompt."""

    def __init__(self, table: Table, geometry: Geometry, n_tokens: int, budget: Optional[float] = None, mode: Optional[str] = None, first_position: int = 0):
        self.table, self.geometry, self.n_tokens, self.first_position = table, geometry, n_tokens, first_position
        table.check_model(geometry.n_layers, geometry.n_query_heads, geometry.n_kv_heads, geometry.head_dim)
        self.block, self.budget, self.mode = table.begin(budget, n_tokens, mode)
        self.score = table.score[self.block]
        late = self.score.kind in BY_FEATURES and FEATURES[self.score.features][1] > 0
        self._needs_alpha = self.score.kind == "paper" or late or table.n_entropy_bins > 1
        self._short = n_tokens <= table.window
        self.needs_r_sem = table.n_ppl_bins > 1 and not self._short
        self.rows = max(table.window if self._needs_alpha else 0, self.score.window)  # how many of the last queries `layer` needs, or all of a shorter prompt
        self._late = [] if late else None
        self._scores: List[torch.Tensor] = []
        self._norms: List[torch.Tensor] = []
        self._of_bank: List[torch.Tensor] = []
        self._held: List[Array] = []
        self._mass: Union[float, torch.Tensor] = 0.0

    @torch.no_grad()
    def layer(self, queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, scaling: float, held: Optional[torch.Tensor] = None,
              sinks: Optional[torch.Tensor] = None) -> None:
        """Takes the next layer. queries [H, rows or more, D]: of the last positions, after rotation. keys, values [G, T, D]: as they are cached. held [G, T]:
        False for a position that was dropped before, whose key and value are 0; None: all are there. sinks [H]: as for attention_rows."""
        if self._short:
            return
        g, of_layer = self.geometry, []
        first = self._norms[0].device if self._norms else keys.device  # layers may be on several devices: statistics go to the first layer's
        group, layer, total = g.n_query_heads // g.n_kv_heads, len(self._scores), 0.0
        norms = values.double().norm(dim=-1)
        for head in range(g.n_kv_heads):
            seen = None if held is None else held[head]
            of_head = slice(head * group, (head + 1) * group)
            last, sink = queries[of_head, -min(self.rows, self.n_tokens) :], None if sinks is None else sinks[of_head]
            rows = attention_rows(last, keys[head], scaling, seen, sink) if self.rows else None
            if self._needs_alpha:
                self._mass = self._mass + rows[:, -self.table.window :].sum((0, 1), dtype=torch.float64).to(first)
            if self.score.window:  # the table's window may be longer than the score's
                rows = rows[:, -self.score.window :]
            if self.score.kind == "window":
                pooled = _pool(_mean(rows, self.score.window), self.score.pool)
                of_layer.append((pooled * norms[head] if self.score.norm else pooled).log())
            elif self.score.kind in BY_FEATURES:
                read = rows if self._late is not None else None
                of_layer.append(_form(self.table, g, layer, head, read, keys[head], norms[head], self.first_position))
                if self._late is not None:
                    total = total + rows.sum((0, 1), dtype=torch.float64)
        if self.score.kind == "bank":
            references = reference_queries(self.table, self.block, g, layer, self.n_tokens, self.first_position, keys.device)
            self._of_bank.append(root_mean_square(attention_of(references * scaling, keys, held)[0]).to(first))
        if self.score.kind == "paper":
            n_held = self.n_tokens if held is None else held.sum(dim=-1, keepdim=True)
            of_layer = list((norms / (norms.sum(dim=-1, keepdim=True) / n_held + 1e-6)).float())
        if self._late is not None:
            self._late.append((total / (g.n_query_heads * rows.shape[1])).to(first))
        scores = torch.stack(of_layer)
        if held is not None:
            self._held.append(held.cpu().numpy())
            scores = scores.masked_fill(~held, 0 if self.score.kind == "paper" else -math.inf)
        self._norms.append(norms.to(first))
        self._scores.append(scores.to(first))

    @torch.no_grad()
    def keep(self, r_sem: Optional[float] = None) -> Kept:
        """What is kept, after all layers were taken. r_sem: the perplexity of the window (docs/paper.md, section 1), if needs_r_sem says that the table reads
        it."""
        t, alpha, r_struct, g = self.table, None, None, self.geometry
        if self._short:
            return Kept(self.mode, self.n_tokens, [[np.arange(self.n_tokens)] * g.n_kv_heads] * g.n_layers, table=t, block=self.block)
        if self._needs_alpha:
            alpha = t.window_alpha(self._mass.cpu().numpy())
            p = alpha[alpha > 0] / alpha.sum()
            r_struct = float(-(p * np.log(p)).sum())
        cell = (bin_index(t.edges_entropy, r_struct) if t.n_entropy_bins > 1 else 0, bin_index(t.edges_ppl, r_sem) if self.needs_r_sem else 0)
        scores = torch.stack([self._finished(layer, alpha) for layer in range(len(self._scores))]).cpu()
        sets = [[p.numpy() for p in of_layer] for of_layer in self._sets(scores, cell, alpha)]
        if self.mode not in BY_HEAD:
            sets = [of_layer * g.n_kv_heads for of_layer in sets]
        if self._held:  # a head may hold fewer positions than its capacity
            sets = [[p[held[p]] for p, held in zip(*of_layer)] for of_layer in zip(sets, self._held)]
        return Kept(self.mode, self.n_tokens, sets, r_struct, r_sem, t, self.block)

    def _sets(self, scores: torch.Tensor, cell: Tuple[int, int], alpha: Optional[Array]) -> List[List[torch.Tensor]]:
        """The kept positions, ascending: [L][G] in the modes `heads` and `lengths`, [L][1] in the others. scores [L, G, T]: as _finished gives them."""
        t, b, T = self.table, self.block, self.n_tokens
        if self.score.kind == "paper":
            weight = np.ones((t.n_layers, t.n_heads)) if self.mode in BY_HEAD else t.head_grid[t.head_action[:, :, b]]
            products = torch.from_numpy(alpha.astype(np.float32)).double() * scores.float().double() * torch.from_numpy(weight)[..., None]
            if self.mode == "shared":
                tau = [-math.inf if t.operator == "no-threshold" else t.gate_grid[at] for at in t.gate_action[:, cell[0], cell[1], b]]
                return [[_candidates(u, of_layer, budget_tokens(self.budget, T), t.keep_window)] for u, of_layer in zip(products.amax(dim=1), tau)]
            scores = products.log()
        if self.mode not in BY_HEAD:
            scores = scores.nan_to_num(nan=-math.inf, posinf=math.inf, neginf=-math.inf).amax(dim=1, keepdim=True)
        first = _always(T, int(t.c_min[b][1]))
        counts: Sequence[Any] = [[min(budget_tokens(self.budget, T), T)]] * t.n_layers
        if self.mode != "shared":
            counts = np.broadcast_to(t.capacities(b, T, self.mode, self.budget).reshape(t.n_layers, -1), scores.shape[:2])
        return [[_largest(s, first, int(n)) for s, n in zip(*of_layer)] for of_layer in zip(scores, counts)]

    def _finished(self, layer: int, alpha: Optional[Array]) -> torch.Tensor:
        """What the positions of a layer are ranked by, [G, T]: logarithms of scores, or rho if the score is `paper`."""
        s = self._scores[layer]
        if self.score.kind not in BY_FEATURES:
            return s
        if self._late is not None:
            theta = torch.from_numpy(self.table.theta[layer, :, 10:12].astype(np.float64)).to(s.device)
            s = s + theta @ late_features(self._late[layer], torch.from_numpy(alpha / self.n_tokens).to(s.device)).T
        s = _log_scores(s, self.table.mass[layer], self._norms[layer])
        return _with_bank(s, self._of_bank[layer], self._norms[layer]) if self.score.kind == "bank" else s
