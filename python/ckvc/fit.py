"""Fits the entries that heads keep by a table's bank of reference queries, in torch: one vector is added to all kept keys of a head, and each kept value is
changed, so that the head answers the bank's queries as it does with the whole cache. The formulas are those of lib/policy/fit_entries.c.

Shapes: G KV heads; T positions of a prompt; D head_dim; n reference queries of a KV head, which are those of all its query heads; S entries, the most that
a head of the layer keeps."""
from __future__ import annotations

from typing import Callable, Optional, Tuple

import torch

from .prefill import Geometry, Kept, attention_of, reference_queries

Rounding = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]
KEY_RIDGE, LEAST = 0.01, 1e-13  # the ridge of the vector that is added to keys; a pivot that is this small beside the diagonal makes a system singular


def _solve(gram: torch.Tensor, ridge: float, x: torch.Tensor) -> Tuple[torch.Tensor, torch.Tensor]:
    """The solution of (gram + ridge * mean(diagonal) * I) y = x for each head, and which heads have one: [G], False if the system is singular. The memory of
    gram is overwritten."""
    diagonal = gram.diagonal(dim1=1, dim2=2)
    size = diagonal.mean(dim=1)[:, None]
    diagonal += ridge * size
    factor, failed = torch.linalg.cholesky_ex(gram)
    sound = (factor.diagonal(dim1=1, dim2=2) ** 2 > LEAST * size).all(dim=1)
    return torch.cholesky_solve(x, factor), sound & (failed == 0)


def _change(w: torch.Tensor, missing: torch.Tensor, ridge: float) -> Tuple[torch.Tensor, torch.Tensor]:
    """What is added to the values that are kept, [G, S, D] float64, and which heads have a solution. w [G, n, S] float64: attention to what is kept. missing
    [G, n, D] float64: of the answers. The system that is solved is that of the n queries or of the S entries, whichever are fewer."""
    n, S = w.shape[1:]
    if S < n:  # (w' w + c I)^-1 w' = w' (w w' + c I)^-1, where c is ridge times the mean of the n numbers of the diagonal of w w'
        return _solve(w.mT @ w, ridge * S / n, w.mT @ missing)
    by_query, sound = _solve(w @ w.mT, ridge, missing)
    return w.mT @ by_query, sound


def fit_chosen(queries: torch.Tensor, attention: torch.Tensor, total: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, index: torch.Tensor,
               ridge: float, there: Optional[torch.Tensor] = None, rounds: Optional[Rounding] = None) -> Tuple[torch.Tensor, torch.Tensor]:
    """The keys and values [G, S, D] of the positions index [G, S] that heads keep, fitted. All heads are computed in one batch. queries [G, n, D], attention
    [G, n, T] and total [G, n, 1]: as attention_of takes and gives them. there [G, S]: False where `index` only fills up, because a head keeps fewer than S
    positions, or is not to be fitted; None: all are kept, and they are fewer than T. The other arguments are those of fit_entries. Nothing waits for the
    device."""
    at = index[..., None].expand(-1, -1, keys.shape[2])
    old = [x.gather(1, at) for x in (keys, values)]
    there = torch.ones_like(index, dtype=torch.bool) if there is None else there

    def logits_of(new: torch.Tensor) -> torch.Tensor:
        return (queries.float() @ new.float().mT).masked_fill_(~there[:, None], -torch.inf)

    of_kept = logits_of(old[0])
    w, lost = of_kept.softmax(dim=2), torch.where(there.any(dim=1)[:, None, None], total - of_kept.logsumexp(dim=2, keepdim=True), 0)
    shift, sound = _solve(queries.mT @ queries, KEY_RIDGE, queries.mT @ lost.double())
    new_keys, most = old[0].double() + torch.where(sound[:, None, None], shift, 0).mT, torch.finfo(keys.dtype).max
    if rounds is not None:  # adding one vector to all keys leaves w as it is, but rounding them does not
        read = rounds(new_keys.clamp(-most, most).to(keys.dtype), index, queries)
        w, new_keys = logits_of(read).softmax(dim=2), read.double()
    missing = attention @ values.float() - w @ old[1].float()
    change, also = _change(w.double(), missing.double(), ridge)
    fitted = new_keys, old[1].double() + change
    finite = (sum(y.sum(dim=2) for y in fitted).isfinite() | ~there).all(dim=1)  # one number that is not finite makes the sum so
    changed = (there & (sound & also & finite)[:, None])[..., None]
    new = [torch.where(changed, y.clamp(-most, most).to(before.dtype), before) for y, before in zip(fitted, old)]
    return new[0], new[1]


def fit_entries(queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, kept: torch.Tensor, scaling: float, ridge: float,
                held: Optional[torch.Tensor] = None, rounds: Optional[Rounding] = None) -> Tuple[torch.Tensor, torch.Tensor]:
    """Keys and values [G, T, D] with those of kept positions fitted, as new tensors. All heads are computed in one batch, whatever their numbers of kept
    positions. queries [G, n, D]: after rotation. keys, values [G, T, D]: as they are cached. kept [G, T]: True for kept positions. held [G, T]: the positions
    that are there to be answered from; None: all. scaling: what a product of query and key is multiplied with. ridge: lambda, above 0. rounds: is given
    keys [G, S, D], their positions [G, S] and the queries times `scaling` [G, n, D] float64, and returns keys as they will be read from the cache. Values
    are then fitted to those. None: keys are not rounded.

    Logits, attention and answers are computed in float32, sums of their products and solutions in float64. Fitted numbers that the tensors' type cannot hold
    become its largest. The entries of a head stay as they are if it keeps all that it holds, or nothing, or if its numbers are not finite."""
    index = kept.int().sort(dim=1, descending=True, stable=True).indices[:, : int(kept.sum(dim=1).max())]  # [G, S]: kept positions, and others behind fewer
    drops = kept.sum(dim=1, keepdim=True) < (keys.shape[1] if held is None else held.sum(dim=1, keepdim=True))
    x = queries * scaling
    new = fit_chosen(x, *attention_of(x, keys, held), keys, values, index, ridge, kept.gather(1, index) & drops, rounds)
    at = index[..., None].expand(-1, -1, keys.shape[2])
    return keys.scatter(1, at, new[0]), values.scatter(1, at, new[1])


def fit_kept(kept: Kept, geometry: Geometry, row: int, keys: torch.Tensor, values: torch.Tensor, scaling: float, first_position: int = 0,
             held: Optional[torch.Tensor] = None, rounds: Optional[Rounding] = None) -> Tuple[torch.Tensor, torch.Tensor]:
    """Keys and values [G, T, D] of a table's row, with those that `kept` says fitted as the table says. The tensors themselves are returned if the table fits
    nothing there. The other arguments are those of fit_entries and reference_queries."""
    ridge = 0.0 if kept.table is None or kept.table.bank is None or kept.whole else float(kept.table.ridge[row, kept.block])
    if ridge == 0:
        return keys, values
    mask = torch.zeros(keys.shape[:2], dtype=torch.bool)
    for of_head, positions in zip(mask, kept.positions[row]):
        of_head[torch.from_numpy(positions.astype("int64"))] = True
    queries = reference_queries(kept.table, kept.block, geometry, row, keys.shape[1], first_position, keys.device)
    return fit_entries(queries, keys, values, mask.to(keys.device), scaling, ridge, held, rounds)
