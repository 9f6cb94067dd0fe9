"""Features and scores of a prompt's positions in numpy (docs/policy.md, section 2): what the policy library is held against, in its order of operations.

Shapes: T prompt tokens, D features. Scores are log s, in double.
"""
import math

import numpy as np

from ckvc import FEATURES, Error
from ckvc.scores import _log


def score_window(attention, pool, norm=None):
    """log s of one head, [T]: the mean attention of the last w rows and the head's query heads, its maximum over `pool` positions, times
    the value norms."""
    attention, side = np.asarray(attention, np.float64), pool // 2
    most = np.array([attention[max(t - side, 0) : t + side + 1].max() for t in range(len(attention))])
    return _log((most if norm is None else most * np.asarray(norm, np.float64)).tolist())


def _added(rows):
    """Their sum, in their order: numpy's own takes another."""
    total = 0.0
    for x in rows:
        total = total + x
    return total


def _floored_log(values):
    return _log(np.maximum(values, 1e-7).tolist())


def _pool_log(a, k, most=False):
    """log of the mean (zeros outside) or the maximum of a over k positions around each."""
    padded = np.pad(a, k // 2)
    around = [padded[i : i + len(a)] for i in range(k)]
    return _floored_log(np.max(around, axis=0) if most else _added(around) / k)


def _mean_rows(attention, rows):
    last = attention[:, -rows:]
    return _added(last.reshape(-1, last.shape[2])) / (last.shape[0] * last.shape[1])


def features(attention, layer_attention, alpha, keys, values, inv_freq=None, version=1):
    """What the learned score sees of one KV head, [T, D] (docs/policy.md, section 2).

    attention [query heads][rows][T]: the softmax rows of the last 64 positions, or of all; layer_attention [T]: their mean over all query
    heads of the layer; alpha [T], mean 1; keys, values [T][head_dim] as cached. inv_freq [head_dim / 2]: what keys were rotated with, pairs
    (i, i + head_dim / 2); None: they were not. Version 2 is version 1 from column 14 on: the first three are not read."""
    if version not in FEATURES:
        raise Error(f"features of version {version} are none that this reader knows")
    keys, values = (np.asarray(x, np.float32).astype(np.float64) for x in (keys, values))
    T, half = len(keys), keys.shape[1] // 2
    t = np.arange(T)
    left, columns = (T - t).astype(np.float64), _window_features(attention, layer_attention, alpha, version) if FEATURES[version][1] else []
    columns += [_floored_log(np.sqrt(_added(x * x for x in vectors.T))) for vectors in (values, keys)]
    log_left = _log(left.tolist())
    columns += [log_left, t == 0, t < 4, left <= 8, left <= 32, left <= 64, left / 1024, log_left * log_left]
    if inv_freq is not None:
        angle = t[:, None] * np.asarray(inv_freq, np.float64)
        c, s, a, b = np.cos(angle), np.sin(angle), keys[:, :half], keys[:, half:]
        keys = np.concatenate([a * c + b * s, b * c - a * s], axis=1)
    return np.column_stack([*columns, keys, np.ones(T)]).astype(np.float64)


def _window_features(attention, layer_attention, alpha, version):
    """Columns 1 to 13."""
    attention, columns = np.asarray(attention, np.float32).astype(np.float64), []
    n_rows, T = attention.shape[1:]
    needed = min(FEATURES[version][1], T)
    if n_rows != needed:
        raise Error(f"a window of {n_rows} rows: features of version {version} need the last {needed}")
    for w in (8, 32, 64):
        a = _mean_rows(attention, w)
        columns += [_pool_log(a, 1), _pool_log(a, 5), _pool_log(a, 7, most=True)]
    columns.append(_floored_log(np.max([_mean_rows(of_head[None], n_rows) for of_head in attention], axis=0)))
    columns.append(_pool_log(np.asarray(layer_attention, np.float64), 5, most=True))
    columns.append(_floored_log(np.asarray(alpha, np.float64) / T))
    return [*columns, _pool_log(_mean_rows(attention, 16), 21)]


def score_learned(f, theta, mass, norm):
    """log s of one head, [T]: its features [T, D], theta [D] and mass, the norms of its values."""
    f, theta = np.asarray(f, np.float64), np.asarray(theta, np.float32).astype(np.float64)
    if f.shape[1] != len(theta):
        raise Error(f"{f.shape[1]} features a token, but theta has {len(theta)}")
    form = _added(theta[i] * f[:, i] for i in range(len(theta)))
    most = form.max()
    total = _added(math.exp(x - most) for x in form.tolist())
    return form + (_log([mass])[0] - (most + math.log(total)) + _log(np.asarray(norm).tolist()))
