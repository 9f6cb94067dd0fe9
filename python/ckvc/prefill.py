"""From a prefill in torch to the kept sets of one prompt (docs/method.md, section 2): statistics of the last rows, K and V, layer by layer.

Shapes: L layers, H query heads, G KV heads, D head_dim, T prompt tokens. One KV head's rows [H / G, rows, T] are there at a time, nothing T x T."""
from __future__ import annotations

import dataclasses
import math
from typing import Any, Callable, List, Optional, Sequence, Tuple, Union

import numpy as np
import torch
import torch.nn.functional as F

from .table import FEATURES, Array, Table, bin_index, budget_tokens

MOST_LEFT = 1280  # features (T - t)/1024 and log²(T - t) know no farther position


@dataclasses.dataclass(frozen=True)
class Geometry:
    """What of a model's shape its tables depend on. inv_freq [n]: what keys are rotated with, pairs (i, i + n), or (2 i, 2 i + 1) where they are
    interleaved, n at most head_dim / 2; None: keys come before rotation. layers: which of the model's are a table's rows, in order (those that see
    every token, where others do not); None: all. unrotated: rows whose keys are not rotated."""
    n_layers: int
    n_query_heads: int
    n_kv_heads: int
    head_dim: int
    inv_freq: Optional[torch.Tensor] = None
    layers: Optional[Tuple[int, ...]] = None
    unrotated: Tuple[int, ...] = ()
    interleaved: bool = False

    def before_rotation(self, row: int, keys: torch.Tensor, first_position: int = 0) -> torch.Tensor:
        """Cached keys [T, D] of a row as they were before rotation, [T, D] float64: in the order of the C program, whose pairs are (i, i + D / 2).
        Where n is below D / 2 the values behind the first 2 n were not rotated; they are its last pairs."""
        keys = keys.double()
        if self.inv_freq is None or row in self.unrotated:
            return keys
        n, t = len(self.inv_freq), torch.arange(len(keys), device=keys.device)
        angle = (first_position + t[:, None]).float() * self.inv_freq.to(keys.device).float()  # float32, as models rotate
        c, s, rotated = angle.cos().double(), angle.sin().double(), keys[:, : 2 * n]
        a, b = rotated.unflatten(1, (n, 2)).unbind(2) if self.interleaved else rotated.chunk(2, dim=1)
        first, second = keys[:, 2 * n :].chunk(2, dim=1)
        return torch.cat([a * c + b * s, first, b * c - a * s, second], dim=1)


@dataclasses.dataclass
class Kept:
    """What is kept of a prompt. positions [L][G]: ascending, one array for all heads of a layer in modes `layers` and `shared`."""
    mode: str
    n_tokens: int
    positions: List[List[Array]]
    r_struct: Optional[float] = None  # nats; None where the table has no bins of it
    r_sem: Optional[float] = None

    @property
    def entries(self) -> int:
        """How many (layer, KV head, position) are kept, of L * G * n_tokens."""
        return sum(len(p) for layer in self.positions for p in layer)

    @property
    def whole(self) -> bool:
        """Nothing was dropped: the prompt is no longer than the table's window, or than the budget."""
        return all(len(p) == self.n_tokens for layer in self.positions for p in layer)


def log_softmax(logits: torch.Tensor) -> torch.Tensor:
    """[rows, vocabulary] float32. The sum is added up in float64: torch's own, of 150,000 terms in float32, is 1e-5 off, and always to one side."""
    logits = logits.float()
    return logits - torch.stack([row.double().logsumexp(dim=0) for row in logits])[:, None].float()


def _log(x: torch.Tensor) -> torch.Tensor:
    return x.clamp(min=1e-7).log()


def _pool(a: torch.Tensor, k: int, by: Callable[..., torch.Tensor] = F.max_pool1d) -> torch.Tensor:
    return by(a[None, None], k, 1, k // 2)[0, 0]


def _mean(rows: torch.Tensor, window: int) -> torch.Tensor:
    return rows[:, -window:].mean((0, 1), dtype=torch.float64)


def _largest(s: torch.Tensor, first: torch.Tensor, n: int) -> torch.Tensor:
    """The n positions that rank highest, ascending: those of `first`, then the larger s [T] (a NaN lowest), of equal ones the later."""
    order = s.nan_to_num(nan=-math.inf, posinf=math.inf, neginf=-math.inf).sort(stable=True).indices
    order = order[first[order].int().sort(stable=True).indices]
    return order[max(len(s) - n, 0) :].sort().values


def _candidates(u: torch.Tensor, tau: float, budget: int, keep_window: int) -> torch.Tensor:
    """What the paper's operator keeps of utilities u [T]: those of at least tau, at most `budget`; the last keep_window come first."""
    first = torch.arange(len(u)) >= len(u) - keep_window
    there = (u >= tau) | first
    return _largest(u.masked_fill(~there, -math.inf), first, min(budget, int(there.sum())))


def _count_above(s: torch.Tensor, first: torch.Tensor, tau: float) -> int:
    """How many positions a threshold on the scores over their mean leaves, of log scores s [T]: `first`, and of the others those with exp(s)
    of at least tau times their mean; all where tau is 0, and where no score of the others is above 0."""
    others = s[~first]
    others = others[~others.isnan()]
    if not tau > 0 or not len(others) or others.amax() == -math.inf:
        return len(s)
    least = others.logsumexp(dim=0) + math.log(tau / int((~first).sum()))
    return int(first.sum()) + int((others >= least).sum())


def attention_rows(queries: torch.Tensor, keys: torch.Tensor, scaling: float, held: Optional[torch.Tensor] = None,
                   sinks: Optional[torch.Tensor] = None) -> torch.Tensor:
    """[group, rows, T] float32: the softmax of each of the last rows, queries [group, rows, D], over what it sees of keys [T, D]; 0 where it sees
    nothing that is held [T]. sinks [group]: logits of one more column, which takes its part of the softmax."""
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
    """The learned score's features but for the key's own and the 1 behind them (docs/method.md, section 2), [T, n] float64: version 1 by the
    last rows [group, rows, T], its two late ones 0 until all layers are known; version 2 without rows. keys [T, D], value norms [T]."""
    T, columns = len(keys), []
    if rows is not None:
        for window in (8, 32, 64):
            a = _mean(rows, window)
            columns += [a, _pool(a, 5, F.avg_pool1d), _pool(a, 7)]
        columns += [rows.mean(1, dtype=torch.float64).amax(0), torch.ones_like(a), torch.ones_like(a), _pool(_mean(rows, 16), 21, F.avg_pool1d)]
    columns = [_log(c) for c in [*columns, norm, keys.double().norm(dim=-1)]]
    t = torch.arange(T, device=keys.device)
    left, near = (T - t).double(), (T - t).clamp(max=MOST_LEFT).double()
    columns += [left.log(), t == 0, t < 4, left <= 8, left <= 32, left <= 64, near / 1024, near.log() ** 2]
    return torch.stack([c.double() for c in columns], dim=1)


def late_features(attention: torch.Tensor, alpha: torch.Tensor) -> torch.Tensor:
    """The two late ones, [T, 2]: of a layer's mean attention and of alpha / T, both [T] float64."""
    return torch.stack([_log(_pool(attention, 5)), _log(alpha)], dim=1)


class Prefill:
    """Statistics of one prompt as its layers are prefilled: `layer` for each, in order, then `keep`.

    budget: tokens, or a share of the prompt below 1; None: the table's only one. mode: in place of the one that the table recommends.
    first_position: that of the first token, which its key was rotated by. A prompt no longer than the table's window is kept whole.
    Raises Error where the table does not suit the model or the prompt."""

    def __init__(self, table: Table, geometry: Geometry, n_tokens: int, budget: Optional[float] = None, mode: Optional[str] = None, first_position: int = 0):
        self.table, self.geometry, self.n_tokens, self.first_position = table, geometry, n_tokens, first_position
        table.check_model(geometry.n_layers, geometry.n_query_heads, geometry.n_kv_heads, geometry.head_dim)
        self.block, self.budget, self.mode = table.begin(budget, n_tokens, mode)
        self.score = table.score[self.block]
        late = self.score.kind == "learned" and FEATURES[self.score.features][1] > 0
        self._needs_alpha = self.score.kind == "paper" or late or table.n_entropy_bins > 1
        self._short = n_tokens <= table.window
        self.needs_r_sem = table.n_ppl_bins > 1 and not self._short
        self.rows = max(table.window if self._needs_alpha else 0, self.score.window)  # last queries that `layer` wants, or all of a shorter prompt
        self._late = [] if late else None
        self._scores: List[torch.Tensor] = []
        self._norms: List[torch.Tensor] = []
        self._held: List[Array] = []
        self._mass: Union[float, torch.Tensor] = 0.0

    @torch.no_grad()
    def layer(self, queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, scaling: float, held: Optional[torch.Tensor] = None,
              sinks: Optional[torch.Tensor] = None) -> None:
        """The next layer: queries [H, rows or more, D] of the last positions, after rotation; keys, values [G, T, D] as cached. held [G, T]:
        False where a position was dropped before, whose key and value are 0; None: all are there. sinks [H]: as attention_rows has them."""
        if self._short:
            return
        g, of_layer = self.geometry, []
        first = self._norms[0].device if self._norms else keys.device  # where layers lie on several
        group, layer, total = g.n_query_heads // g.n_kv_heads, len(self._scores), 0.0
        norms = values.double().norm(dim=-1)
        for head in range(g.n_kv_heads):
            seen = None if held is None else held[head]
            of_head = slice(head * group, (head + 1) * group)
            last, sink = queries[of_head, -min(self.rows, self.n_tokens) :], None if sinks is None else sinks[of_head]
            rows = attention_rows(last, keys[head], scaling, seen, sink) if self.rows else None
            if self._needs_alpha:
                self._mass = self._mass + rows[:, -self.table.window :].sum((0, 1), dtype=torch.float64).to(first)
            if self.score.window:  # the score's own rows, of a table whose window is longer
                rows = rows[:, -self.score.window :]
            if self.score.kind == "window":
                pooled = _pool(_mean(rows, self.score.window), self.score.pool)
                of_layer.append((pooled * norms[head] if self.score.norm else pooled).log())
            elif self.score.kind == "learned":
                of_layer.append(self._form(layer, head, rows, keys[head], norms[head]))
                if self._late is not None:
                    total = total + rows.sum((0, 1), dtype=torch.float64)
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

    def _form(self, layer: int, head: int, rows: Optional[torch.Tensor], keys: torch.Tensor, norm: torch.Tensor) -> torch.Tensor:
        """theta . f[t], but for the two late features, [T]."""
        theta = torch.from_numpy(self.table.theta[layer, head].astype(np.float64)).to(keys.device)
        f = head_features(rows if self._late is not None else None, keys, norm)
        n = f.shape[1]
        return f @ theta[:n] + self.geometry.before_rotation(layer, keys, self.first_position) @ theta[n:-1] + theta[-1]

    @torch.no_grad()
    def keep(self, r_sem: Optional[float] = None) -> Kept:
        """The kept sets, when all layers are there. r_sem: the perplexity of the window (docs/paper.md, section 1), where needs_r_sem says so."""
        t, alpha, r_struct, g = self.table, None, None, self.geometry
        if self._short:
            return Kept(self.mode, self.n_tokens, [[np.arange(self.n_tokens)] * g.n_kv_heads] * g.n_layers)
        if self._needs_alpha:
            alpha = t.window_alpha(self._mass.cpu().numpy())
            p = alpha[alpha > 0] / alpha.sum()
            r_struct = float(-(p * np.log(p)).sum())
        cell = (bin_index(t.edges_entropy, r_struct) if t.n_entropy_bins > 1 else 0, bin_index(t.edges_ppl, r_sem) if self.needs_r_sem else 0)
        scores = torch.stack([self._finished(layer, alpha) for layer in range(len(self._scores))]).cpu()
        sets = [[p.numpy() for p in of_layer] for of_layer in self._sets(scores, cell, alpha)]
        if self.mode != "heads":
            sets = [of_layer * g.n_kv_heads for of_layer in sets]
        if self._held:  # a capacity may be more than a head still holds
            sets = [[p[held[p]] for p, held in zip(*of_layer)] for of_layer in zip(sets, self._held)]
        return Kept(self.mode, self.n_tokens, sets, r_struct, r_sem)

    def _sets(self, scores: torch.Tensor, cell: Tuple[int, int], alpha: Optional[Array]) -> List[List[torch.Tensor]]:
        """[L][G] positions, ascending; [L][1] but in mode `heads`. scores [L, G, T]: log scores; of the score `paper` rho."""
        t, b, T = self.table, self.block, self.n_tokens
        if self.score.kind == "paper":
            weight = np.ones((t.n_layers, t.n_heads)) if self.mode == "heads" else t.head_grid[t.head_action[:, :, b]]
            products = torch.from_numpy(alpha.astype(np.float32)).double() * scores.float().double() * torch.from_numpy(weight)[..., None]
            if self.mode == "shared":
                tau = [-math.inf if t.operator == "no-threshold" else t.gate_grid[at] for at in t.gate_action[:, cell[0], cell[1], b]]
                return [[_candidates(u, of_layer, budget_tokens(self.budget, T), t.keep_window)] for u, of_layer in zip(products.amax(dim=1), tau)]
            scores = products.log()
        if self.mode != "heads":
            scores = scores.nan_to_num(nan=-math.inf, posinf=math.inf, neginf=-math.inf).amax(dim=1, keepdim=True)
        recent, position = int(t.c_min[b][1]), torch.arange(T)
        first = (position == 0) | (position >= T - recent)
        counts: Sequence[Any] = [[min(budget_tokens(self.budget, T), T)]] * t.n_layers
        if self.mode != "shared":
            counts = t.capacities(b, T, self.mode, self.budget).reshape(t.n_layers, -1)
        if t.relative and self.mode != "shared":
            tau = t.gate_grid[t.gate_action[:, cell[0], cell[1], b]]
            counts = [[min(n, _count_above(s, first, of_layer)) for s, n in zip(*x)] for *x, of_layer in zip(scores, counts, tau)]
        return [[_largest(s, first, int(n)) for s, n in zip(*of_layer)] for of_layer in zip(scores, counts)]

    def _finished(self, layer: int, alpha: Optional[Array]) -> torch.Tensor:
        """What a layer's positions are ranked by, [G, T]: log scores; of the score `paper` rho."""
        s = self._scores[layer]
        if self.score.kind != "learned":
            return s
        if self._late is not None:
            theta = torch.from_numpy(self.table.theta[layer, :, 10:12].astype(np.float64)).to(s.device)
            s = s + theta @ late_features(self._late[layer], torch.from_numpy(alpha / self.n_tokens).to(s.device)).T
        mass = torch.from_numpy(np.array(self.table.mass[layer], np.float64)).to(s.device)
        return s + (mass.log()[:, None] - s.logsumexp(dim=-1, keepdim=True)) + self._norms[layer].log()
