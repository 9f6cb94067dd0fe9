"""What ranks and keeps the positions of a prompt, in numpy: the numbers of lib/policy, in its order of operations (docs/policy.md, section 2).

Shapes: T prompt tokens, L layers, G KV heads, D features. Scores are compared as log s, in double.
"""
from __future__ import annotations

import math
from typing import Any, Optional, Tuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[Any]

FEATURES = {1: (24, 64), 2: (11, 0)}  # by version: how many beside the numbers of the key; last rows of the attention that they read


class Error(ValueError):
    """One line: file, place, got, wanted."""


def utility(alpha: ArrayLike, rho: Optional[ArrayLike], weight: ArrayLike, operator: str = "paper") -> Array:
    """u [T] of one layer: u[t] = max_g (alpha[t] * rho[g, t]) * weight[g], alpha [T], rho [G, T], weight [G]: inputs rounded to float32, products in double, in this order.

    no-utility leaves rho out; mean-pool adds the heads in their order and divides by their number; no-threshold has the paper's u."""
    alpha = np.asarray(alpha, np.float32).astype(np.float64)
    weight = np.asarray(weight, np.float64)
    if operator == "no-utility":
        return alpha * weight.max()
    rho = np.asarray(rho, np.float32).astype(np.float64)
    x = (alpha[None, :] * rho) * weight[:, None]
    if operator == "mean-pool":
        total = x[0].copy()
        for of_head in x[1:]:
            total += of_head
        return total / len(x)
    return x.max(axis=0)


def retain(u: ArrayLike, tau: float, budget: int, keep_window: int = 0) -> Tuple[Array, int]:
    """(kept positions ascending, number of candidates): all t with u[t] >= tau, or the `budget` largest, later ones first of equals."""
    u = np.asarray(u, np.float64)
    t = np.arange(len(u))
    in_window = t >= len(u) - keep_window
    candidates = t[(u >= tau) | in_window]
    if len(candidates) <= budget:
        return candidates, len(candidates)
    x = np.where(np.isnan(u), -np.inf, u)[candidates]
    order = np.lexsort((candidates, x, in_window[candidates]))  # the last key counts most
    return np.sort(candidates[order[len(order) - budget :]]), len(candidates)


def bin_index(edges: ArrayLike, value: float) -> int:
    """Number of inner edges <= value."""
    return int(np.count_nonzero(np.asarray(edges) <= value))


def budget_tokens(budget: float, n_tokens: int) -> int:
    """A budget entry in tokens: itself from 1 up, a share of the prompt below."""
    return int(budget) if budget >= 1 else math.floor(budget * n_tokens)


def head_floor(f: float, recent: int, budget: int, n_tokens: int) -> int:
    """The least that a head or layer keeps."""
    return min(max(recent + 1, math.floor(f * budget)), n_tokens)


def capacities(share: ArrayLike, budget: int, n_tokens: int, floor: int) -> Array:
    """How many positions each unit keeps, in the shape of share: `budget` on the mean, none below floor (table.md, "Budgets for heads").
    The library's numbers: every step is a double's, in its order."""
    shape, share = np.shape(share), [float(x) for x in np.ravel(share)]
    if floor > budget:
        raise Error(f"a budget of {budget} tokens is below what every {'head' if len(shape) == 2 else 'layer'} must keep; the least is {floor}")
    if budget >= n_tokens:
        return np.full(shape, n_tokens)
    total = len(share) * budget

    def at(z):
        scaled = budget * z
        return [min(x * scaled, n_tokens) if x * scaled > floor else floor for x in share]

    def fits(z):
        return sum(map(math.floor, at(z))) <= total

    smallest = min((x for x in share if x > 0), default=math.inf)
    lo, hi = 0.0, n_tokens / (budget * smallest) if budget * smallest > 0 else math.inf
    if fits(hi):
        lo = hi
    else:
        for _ in range(64):
            mid = (lo + hi) / 2
            lo, hi = (mid, hi) if fits(mid) else (lo, mid)
    x = at(lo)
    kept = [math.floor(v) for v in x]
    takers = [i for i in range(len(x)) if share[i] > 0 and x[i] < n_tokens]
    takers.sort(key=lambda i: (kept[i] - x[i], i))  # the largest fraction first
    for i in takers[: total - sum(kept)]:
        kept[i] += 1
    return np.array(kept).reshape(shape)


def _log(values):
    return np.array([math.log(x) if x > 0 else -math.inf if x == 0 else math.nan for x in values])  # the C library's log, not numpy's


def score_paper(alpha: ArrayLike, rho: ArrayLike, weight: float) -> Array:
    """log s of one head, [T]: alpha and rho rounded to float32."""
    return _log(utility(alpha, np.asarray(rho)[None, :], [weight]).tolist())


def retain_head(s: ArrayLike, recent: int, capacity: int) -> Array:
    """Positions that one head or layer keeps, ascending: the last `recent` and 0 before any other, then the largest s, later ones first of
    equals."""
    s = np.array(s, np.float64)
    t = np.arange(len(s))
    s[np.isnan(s)] = -np.inf
    s[(t == 0) | (t >= len(s) - recent)] = np.inf
    return np.sort(np.lexsort((t, s))[max(len(s) - capacity, 0) :])


def count_above(s: ArrayLike, recent: int, tau: float) -> int:
    """How many positions a threshold on the scores over their mean leaves, of log scores s [T]: position 0, the last `recent`, and of the
    others those with exp(s[t]) >= tau times their mean; all where tau is 0, and where no score of the others is above 0. The library's
    number: sums in the order of positions."""
    s = [float(x) for x in s]
    others = s[1 : max(len(s) - recent, 0)]
    most = max((x for x in others if x == x), default=-math.inf)
    if not tau > 0 or most == -math.inf:
        return len(s)
    total = 0.0
    for x in others:
        total += math.exp(x - most) if x == x else 0.0
    least = most + math.log(tau * (total / len(others)))
    return len(s) - sum(not x >= least for x in others)


def head_sets(scores: Any, capacities: Any, recent: int) -> Any:
    """retain_head over nested lists: scores [...][T] and capacities [...] of one shape."""
    if np.ndim(capacities) == 0:
        return retain_head(scores, recent, int(capacities))
    return [head_sets(s, c, recent) for s, c in zip(scores, capacities)]
