"""Computes what a table keeps of a prompt with the C library (libckvc_policy, lib/policy/ckvc_policy.h) and ctypes, for engines that have no torch.

The library is the one that $CKVC_LIBRARY names, or else libckvc_policy.so beside this file, or the one that `make` has
built in the clone that holds this file, or else the one that the system's loader finds."""
from __future__ import annotations

import ctypes
import functools
import os
import pathlib
from ctypes import POINTER, byref, c_char_p, c_double, c_int, c_size_t, c_uint32, c_void_p, create_string_buffer
from typing import Any, List, NamedTuple, Optional, Sequence, Tuple

import numpy as np
from numpy.typing import ArrayLike

from .files import Error, refuse
from .table import FORMATS, MODES, SCORES, Array, Score, row_bytes
from .table import Table as NumpyTable

MESSAGE = 1024


class _Geometry(ctypes.Structure):
    _fields_ = [(name, c_uint32) for name in ("n_layers", "n_query_heads", "n_kv_heads", "head_dim")] + [
        ("inv_freq", c_void_p), ("query_scale", c_double), ("attending", c_void_p)]


class _Request(ctypes.Structure):
    _fields_ = [("table", c_void_p), ("model", _Geometry), ("n_tokens", c_uint32), ("budget", c_double), ("score", c_void_p), ("floor", POINTER(c_double))]


class _Attending(ctypes.Structure):
    _fields_ = [("inv_freq", c_void_p), ("scale", c_double), ("cap", c_double), ("window", c_uint32), ("most", c_double)]


class _Fitting(ctypes.Structure):
    _fields_ = [("attending", _Attending), *((name, c_void_p) for name in ("keys", "values", "scratch", "fitted_keys", "fitted_values"))]


class _Rows(ctypes.Structure):
    _fields_ = [("first", c_void_p), ("stride", c_size_t), ("format", c_uint32), ("pairwise", c_uint32)]


class _FittingRows(ctypes.Structure):
    _fields_ = [("attending", _Attending), ("keys", _Rows), ("values", _Rows), *((name, c_void_p) for name in ("scratch", "kept_keys", "kept_values")),
                ("key_format", c_uint32), ("value_format", c_uint32), ("key_stride", c_size_t), ("value_stride", c_size_t)]


class Rows(NamedTuple):
    """Keys or values of a KV head as an engine's cache holds them. rows [n, ...]: a row's bytes lie together, and rows may have others between them. format:
    one of table.FORMATS without "+mean". pairwise: whether numbers 2i and 2i + 1 of a key are rotated together, as in llama.cpp's Llama models."""
    rows: Array
    format: str
    pairwise: bool = False


_u, _p = c_uint32, c_void_p
_FUNCTIONS = {  # a function's name: the type of its result, then those of its arguments
    "ckvc_table_parse": (c_int, c_char_p, c_char_p, c_size_t, POINTER(c_void_p), c_char_p, c_size_t),
    "ckvc_table_free": (None, _p), "ckvc_prefill_bytes": (c_size_t, POINTER(_Request)),
    "ckvc_prefill_begin": (_p, _p, c_size_t, POINTER(_Request), c_char_p, c_size_t), "ckvc_prefill_message": (c_char_p, _p),
    "ckvc_prefill_keeps_all": (c_int, _p), "ckvc_prefill_rows": (_u, _p), "ckvc_prefill_reads_r_sem": (c_int, _p),
    **dict.fromkeys(("ckvc_prefill_attention", "ckvc_prefill_queries"), (c_int, _p, _u, _u, _u, _u, _p)),
    "ckvc_prefill_cache": (c_int, _p, _u, _u, _u, _u, _p, _p), "ckvc_prefill_cache_rows": (c_int, _p, _u, _u, _u, _u, _Rows, _Rows),
    "ckvc_prefill_keep": (c_int, _p, c_double), "ckvc_prefill_again": (c_int, _p, c_double, POINTER(c_double)),
    "ckvc_prefill_set": (POINTER(_u), _p, _u, _u, POINTER(_u)), "ckvc_prefill_scores": (POINTER(c_double), _p, _u, _u),
    "ckvc_prefill_candidates": (_u, _p, _u), "ckvc_prefill_fits": (c_int, _p, _u), "ckvc_prefill_fit_bytes": (c_size_t, _p),
    "ckvc_prefill_fit": (c_int, _p, _u, _u, POINTER(_Fitting)),
    "ckvc_prefill_fit_rows_bytes": (c_size_t, _p), "ckvc_prefill_fit_rows": (c_int, _p, _u, _u, POINTER(_FittingRows)),
}


@functools.lru_cache(maxsize=None)
def load(path: Optional[str] = None) -> ctypes.CDLL:
    """Loads the library and declares its functions' types. path: this file, without a search. An Error says that it is not found or is another library."""
    here = pathlib.Path(__file__).resolve().parent
    beside = [*sorted(here.glob("libckvc_policy.so*")), *here.parents[1].glob("build/release/libckvc_policy.so")]
    asked = path or os.environ.get("CKVC_LIBRARY")
    for name in [asked] if asked else [*map(str, beside), "libckvc_policy.so.1", "libckvc_policy.so"]:
        try:
            library = ctypes.CDLL(name)
            for function, (result, *arguments) in _FUNCTIONS.items():
                getattr(library, function).restype, getattr(library, function).argtypes = result, arguments
            return library
        except (OSError, AttributeError) as problem:
            why = str(problem)
    raise Error(f"libckvc_policy: {why}; install it, or name it in CKVC_LIBRARY", 69)


def _at(array: Optional[Array]) -> Optional[c_void_p]:
    """The address of an array's numbers, for the library; None for None. The caller keeps the array until the call is over."""
    return None if array is None else array.ctypes.data_as(c_void_p)


def _whole(what: str, x: Any, end: int = 2**32) -> int:
    """x as an int from 0 to end - 1, or an Error: ctypes would cut off other numbers without a word."""
    refuse(not isinstance(x, (int, np.integer)) or not 0 <= x < end, f"{what} is {x}, want a whole number from 0 to {end - 1}")
    return int(x)


def _shaped(what: str, x: ArrayLike, dtype: Any, *shape: Optional[int]) -> Array:
    """x as a contiguous array of this shape, where None is any length. The library gets a bare pointer and cannot see the shape, so an Error checks it here."""
    x = np.ascontiguousarray(x, dtype)
    if x.ndim != len(shape) or any(want not in (None, n) for n, want in zip(x.shape, shape)):
        raise Error(f"{what} has the shape {list(x.shape)}, want [{', '.join('n' if n is None else str(n) for n in shape)}]")
    return x


def _laid_out(what: str, x: Rows, n: int, head_dim: int) -> _Rows:
    """x for the library, which gets a bare pointer. An Error says that x has not n rows, or not of the bytes that head_dim numbers take in its format, or that a
    row's bytes do not lie together."""
    refuse(x.format not in FORMATS, f"{what}: the format {x.format}: want one of {', '.join(FORMATS)}")
    size, whole = row_bytes(x.format, head_dim), x.rows.ndim > 1 and len(x.rows) == n and x.rows[:1].flags.c_contiguous
    if not whole or x.rows[:1].nbytes != size or x.rows.strides[0] < size:
        raise Error(f"{what} have the shape {list(x.rows.shape)}, want {n} rows of {size} bytes ({head_dim} numbers in {x.format}), each in one piece, in ascending order")
    return _Rows(_at(x.rows), x.rows.strides[0], FORMATS.index(x.format), x.pairwise)


class Table(NumpyTable):
    """A table that was read twice: in numpy, for its numbers, and by the library, whose table is freed with this object."""

    def __init__(self, name: str, data: bytes):
        super().__init__(name, data)
        self._c, self._handle, message = load(), c_void_p(), create_string_buffer(MESSAGE)
        refuse(self._c.ckvc_table_parse(name.encode(), data, len(data), byref(self._handle), message, MESSAGE), message.value.decode())

    def __del__(self) -> None:
        if getattr(self, "_handle", None):
            self._c.ckvc_table_free(self._handle)


class Prefill:
    """What a table keeps of one prompt, computed by the library. For each layer, hand over `queries` (or `attention`) and then `cache`; at the end call
    `keep`. Numbers are float32 and may come in tiles. If the library refuses something, its line is the message of an Error.

    query_scale: what the product of queries and keys is multiplied with, if you hand over queries; 0 if you hand over attention rows. inv_freq [D / 2]: the
    frequencies that cached keys were rotated with; None if keys are handed over before rotation."""

    def __init__(self, table: Table, n_query_heads: int, head_dim: int, n_tokens: int, budget: float, inv_freq: Optional[ArrayLike] = None,
                 query_scale: float = 0.0, n_layers: Optional[int] = None, n_kv_heads: Optional[int] = None,
                 score: Optional[Score] = None, floor: Optional[float] = None, attending: Sequence[Tuple[float, float, int]] = ()):
        """n_layers, n_kv_heads: those of the model, which are checked against the table's; None takes the table's. score, floor: used in place of those that
        the table recommends for the budget. attending [L]: the scale, the cap and the window (0 for none) of each layer's attention, as ckvc_attending says. Only
        a table that ranks by its bank's attention reads them; if queries are handed over, query_scale says enough."""
        self._c, self.table, self.head_dim = table._c, table, head_dim
        table.check_budget(budget)
        *model, self.n_tokens = map(_whole, ("n_layers", "n_query_heads", "n_kv_heads", "head_dim", "n_tokens"),
                                    (n_layers or table.n_layers, n_query_heads, n_kv_heads or table.n_heads, head_dim, n_tokens))
        self._inv_freq = None if inv_freq is None else _shaped("inv_freq", inv_freq, np.float64, head_dim // 2)
        refuse(len(attending) not in (0, model[0]), f"attending has {len(attending)} layers, the model {model[0]}")
        rules = (_Attending * len(attending))(*((_at(self._inv_freq), scale, cap, _whole("window", window), 0.0) for scale, cap, window in attending))
        self._attending = rules if attending else None
        geometry = _Geometry(*model, _at(self._inv_freq), query_scale, ctypes.cast(rules, c_void_p) if attending else None)
        self.n_layers, self.n_kv_heads = geometry.n_layers, geometry.n_kv_heads
        self._score = None if score is None else (c_uint32 * 6)(SCORES.index(score.kind), *map(int, score[1:5]), MODES.index(score.mode))
        self._floor = None if floor is None else (c_double * 1)(floor)
        request = _Request(table._handle, geometry, n_tokens, budget, ctypes.cast(self._score, c_void_p), self._floor)
        message, size = create_string_buffer(MESSAGE), self._c.ckvc_prefill_bytes(byref(request))
        self._workspace = np.empty(size, np.uint8) if size < 2**48 else None
        self._p = self._c.ckvc_prefill_begin(_at(self._workspace), size, byref(request), message, MESSAGE)
        refuse(not self._p, f"{table.name}: {message.value.decode()}")
        self.whole = bool(self._c.ckvc_prefill_keeps_all(self._p))  # True if the prompt is no longer than the window, so that nothing needs to be handed over
        self.rows: int = self._c.ckvc_prefill_rows(self._p)  # how many of the last queries or attention rows the library wants
        self.needs_r_sem = bool(self._c.ckvc_prefill_reads_r_sem(self._p))

    def _checked(self, refused: int) -> None:
        if refused:
            raise Error(f"{self.table.name}: {self._c.ckvc_prefill_message(self._p).decode()}")

    def _rows(self, hand_over: Any, layer: int, head: int, first: int, x: Array, *more: Array) -> None:
        at = map(_whole, ("layer", "head", "first"), (layer, head, first))
        self._checked(hand_over(self._p, *at, len(x), *map(_at, (x, *more))))

    def queries(self, layer: int, query_head: int, queries: ArrayLike, first_row: int = 0) -> None:
        """Hands over queries [n, D] of a query head, after rotation. They are those from first_row on among the last `rows` of the prompt."""
        self._rows(self._c.ckvc_prefill_queries, layer, query_head, first_row, _shaped("queries", queries, np.float32, None, self.head_dim))

    def attention(self, layer: int, query_head: int, rows: ArrayLike, first_row: int = 0) -> None:
        """Hands over attention rows [n, T] of a query head, after the softmax, from first_row on among the last `rows` of the prompt."""
        self._rows(self._c.ckvc_prefill_attention, layer, query_head, first_row, _shaped("rows", rows, np.float32, None, self.n_tokens))

    def cache(self, layer: int, kv_head: int, keys: ArrayLike, values: ArrayLike, first: int = 0) -> None:
        """Hands over keys and values [n, D] of a KV head as they are cached, of the positions from `first` on."""
        k = _shaped("keys", keys, np.float32, None, self.head_dim)
        self._rows(self._c.ckvc_prefill_cache, layer, kv_head, first, k, _shaped("values", values, np.float32, *k.shape))

    def cache_rows(self, layer: int, kv_head: int, keys: Rows, values: Rows, first: int = 0) -> None:
        """Hands over n keys and values of a KV head in the formats in which they are cached, of the positions from `first` on."""
        at, n = map(_whole, ("layer", "kv_head", "first"), (layer, kv_head, first)), len(values.rows)
        self._checked(self._c.ckvc_prefill_cache_rows(self._p, *at, n, _laid_out("keys", keys, n, self.head_dim), _laid_out("values", values, n, self.head_dim)))

    def keep(self, r_sem: float = 0.0) -> List[List[Array]]:
        """The ascending positions that each head keeps, [L][G]. r_sem: the perplexity of the window, if needs_r_sem says that the table reads it."""
        self._checked(self._c.ckvc_prefill_keep(self._p, r_sem))
        n = c_uint32()

        def positions(layer: int, head: int) -> Array:
            at = self._c.ckvc_prefill_set(self._p, layer, head, byref(n))
            return np.ctypeslib.as_array(at, (n.value,)).astype(int) if n.value else np.zeros(0, int)

        return [[positions(layer, g) for g in range(self.n_kv_heads)] for layer in range(self.n_layers)]

    def again(self, budget: float, floor: Optional[float] = None) -> None:
        """Sets another budget (and floor) for the same prompt. Call `keep` afterwards; nothing needs to be handed over again."""
        self.table.check_budget(budget)
        self._floor = None if floor is None else (c_double * 1)(floor)
        self._checked(self._c.ckvc_prefill_again(self._p, budget, self._floor))

    def scores(self, layer: int, kv_head: int) -> Optional[Array]:
        """A head's log scores [T], after `keep`; None if all is kept."""
        at = self._c.ckvc_prefill_scores(self._p, _whole("layer", layer), _whole("kv_head", kv_head))
        return np.ctypeslib.as_array(at, (self.n_tokens,)).copy() if at else None

    def candidates(self, layer: int) -> int:
        """How many positions of a layer the paper's threshold left, after `keep`."""
        return self._c.ckvc_prefill_candidates(self._p, _whole("layer", layer))

    def fits(self, layer: int) -> bool:
        """Whether the table fits the entries that a layer keeps, after `keep`."""
        return bool(self._c.ckvc_prefill_fits(self._p, _whole("layer", layer)))

    def fit(self, layer: int, kv_head: int, keys: ArrayLike, values: ArrayLike, scale: float, cap: float = 0.0, window: int = 0,
            most: float = 0.0) -> Tuple[Array, Array]:
        """The new keys and values [n, D] of what a head keeps, in the order of its set, after `keep`. They are the old ones if the table fits nothing there.
        keys, values [T, D]: those of the whole prompt, with keys after the rotation. scale, cap, window and most: how the layer attends and the largest number
        that its cache holds, as ckvc_attending says."""
        k, v = (_shaped(what, x, np.float32, self.n_tokens, self.head_dim) for what, x in (("keys", keys), ("values", values)))
        n, attending = self._fitting(layer, kv_head, scale, cap, window, most)
        scratch, out = np.empty(self._c.ckvc_prefill_fit_bytes(self._p), np.uint8), np.empty((2, n, self.head_dim), np.float32)
        self._c.ckvc_prefill_fit(self._p, layer, kv_head, byref(_Fitting(attending, *map(_at, (k, v, scratch, out[0], out[1])))))
        return out[0], out[1]

    def fit_rows(self, layer: int, kv_head: int, keys: Rows, values: Rows, formats: Tuple[str, str], scale: float, cap: float = 0.0,
                 window: int = 0) -> Tuple[Array, Array]:
        """The bytes [n, bytes of a row] of the keys and of the values that a head keeps, held in `formats`. They are fitted as `fit` says, values to the keys as
        they are then held; where the table fits nothing, rows are copied, or rounded to the new format. keys, values: the prompt's T rows."""
        refuse(len(formats) != 2 or any(form not in FORMATS for form in formats), f"formats {formats}: want two of {', '.join(FORMATS)}, of keys and of values")
        n, attending = self._fitting(layer, kv_head, scale, cap, window)
        of_keys, of_values = (_laid_out(what, x, self.n_tokens, self.head_dim) for what, x in (("keys", keys), ("values", values)))
        k, v = (np.empty((n, row_bytes(form, self.head_dim)), np.uint8) for form in formats)
        scratch = np.empty(self._c.ckvc_prefill_fit_rows_bytes(self._p), np.uint8)
        fitting = _FittingRows(attending, of_keys, of_values, *map(_at, (scratch, k, v)), *map(FORMATS.index, formats), k.shape[1], v.shape[1])
        if self._c.ckvc_prefill_fit_rows(self._p, layer, kv_head, byref(fitting)) < 0:
            raise Error(f"{self.table.name}: heads of {self.head_dim} numbers cannot be held in {'/'.join(formats)}, of {keys.format}/{values.format}: blocks want a multiple of 32 numbers, rotations one of 64")
        return k, v

    def _fitting(self, layer: int, kv_head: int, scale: float, cap: float, window: int, most: float = 0.0) -> Tuple[int, _Attending]:
        """How many entries a head keeps, and how its layer attends."""
        refuse(self._inv_freq is None, "fit: keys before the rotation: want those after it, and inv_freq")
        n = c_uint32()
        self._c.ckvc_prefill_set(self._p, _whole("layer", layer), _whole("kv_head", kv_head), byref(n))
        refuse(not n.value, f"fit: no sets yet, or no head {kv_head} in layer {layer}: call keep() first")
        return n.value, _Attending(_at(self._inv_freq), scale, cap, _whole("window", window), most)
