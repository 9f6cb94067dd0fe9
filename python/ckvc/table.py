"""Reads tables (.ckvt, formats/table/table.md), and says what a table decides for a prompt: the block that serves it, its risk bins and its capacities."""
from __future__ import annotations

import binascii
import collections
import hashlib
import json
import math
import numbers
import struct
import sys
from typing import Any, Dict, Iterable, List, Optional, Tuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .files import Error as Error, FilePath as FilePath, plain, read, refuse as refuse
from .hub import table_file
from .json_text import json_object

Array = NDArray[Any]

MAGIC = b"\x89CKV\r\n\x1a\n"
HEADER, ENTRY = struct.Struct("<8s4H4Q2I32sI28s2I"), struct.Struct("<8s4H5Q2Q32s2I")  # of the file's header, and of a section's entry in the directory
TYPES = [np.dtype("u1"), np.dtype("<f4"), np.dtype("<f8"), np.dtype("<u4"), np.dtype("<u8"), np.dtype("<f2")]
REQUIRED = ("SHAPE", "BUDGET", "GRIDHEAD", "GRIDGATE", "WEIGHT", "TAU", "EDGEENT", "EDGEPPL", "META")
EVIDENCE = ("QHEAD", "QGATE", "NHEAD", "NGATE", "MHEAD", "MGATE", "LGATE")
SHARES = ("SHARE", "CMIN", "SCORE")  # a table has all or none of these; with them may come SHARELAY, SHARELEN, and LEARNED, both or neither
LEARNED = ("THETA", "MASS")
BANK = ("BANK", "RIDGE", "BANKUSE")  # reference queries, by which entries are fitted; a table has all or none of these
BYTES = ("BYTES", "HELD")  # the share of the bytes in which each budget was chosen, and the formats of its entries; a table has both or neither
RAW = REQUIRED + SHARES + ("SHARELAY", "SHARELEN") + LEARNED + BANK + BYTES
# A section's type and dimensions: L layers, G KV heads, E and P bins, e and p their inner edges, B budgets, h and g actions, D features, H query
# heads, b queries of the bank, d numbers of such a query, S numbers of SHAPE.
SPECS = dict(SHAPE="3S", BUDGET="2B", GRIDHEAD="2h", GRIDGATE="2g", WEIGHT="1LGB", TAU="1LEPB", EDGEENT="2e", EDGEPPL="2p", SHARE="2LGB",
             SHARELAY="2LB", SHARELEN="2LB", CMIN="2B2", SCORE="3B6", THETA="1LGD", MASS="2LG", BANK="5LHbd", RIDGE="2LB", BANKUSE="3B2",
             BYTES="2B", HELD="3B2", QHEAD="2LGBh", QGATE="2LEPBg", NHEAD="4LGBh", NGATE="4LEPBg", MHEAD="2LGBh", MGATE="2LEPBg", LGATE="2LEPBg",
             sHEAD="1LGBh", sGATE="1LEPBg", sSHARE="2LGB2", hSIG="2LG3", META="0", pROV="0", xFER="0", mODEL="0")
RULES = {  # what the values of sections must be
    "BUDGET": ("whole tokens from 1 up, or shares of the prompt between 0 and 1", lambda x: (x > 0) & (x < 2**32) & ((x < 1) | (x == np.floor(x)))),
    "GRIDHEAD GRIDGATE": ("values are finite, from 0 up, ascending in float32", lambda x: (x >= 0) & (np.diff(x.astype("f4"), append=np.inf) > 0)),
    "EDGEENT EDGEPPL": ("bin edges are finite and do not descend", lambda x: np.isfinite(x) & (x[1:] >= x[:-1]).all()),
    "SHARE SHARELAY SHARELEN": ("shares are finite, from 0 up, and not all 0 in a block", lambda x: np.isfinite(x) & (x >= 0) & (x.reshape(-1, x.shape[-1]).max(0) > 0)),
    "sSHARE": ("want intervals of finite shares", lambda x: np.isfinite(x) & (x >= 0) & (x[..., :1] <= x[..., 1:])),
    "MASS RIDGE": ("values are finite, from 0 up", lambda x: np.isfinite(x) & (x >= 0)),
    "THETA BANK MHEAD MGATE LGATE hSIG": ("values are finite", np.isfinite),
    "BYTES": ("want shares of the whole cache below 1, which differ, or 0", lambda x: (x >= 0) & (x < 1) & (len(set(x[x > 0])) == (x > 0).sum())),
    "HELD": ("a format is none that this reader knows", lambda x: x < (len(FORMATS), FORMATS.index("q4_0+mean"))),
    "NHEAD NGATE": ("at most 2^53 records", lambda x: x <= 2**53),
    "sHEAD sGATE": ("want shares between 0 and 1", lambda x: (x >= 0) & (x <= 1)),
}
FILE_MAX, UNPACKED_MAX, JSON_MAX, WINDOW_MAX = 1 << 31, 1 << 30, 1 << 26, 8 << 20
OPERATORS = ("paper", "no-utility", "no-threshold", "mean-pool")  # the header's incompatible flags, 0 to 3
FLAG_SHARES, FLAG_RELATIVE, FLAG_BANK, FLAG_BYTES = 4, 8, 16, 32  # the second is refused
FORMATS = tuple(name + rotated for name in ("f32", "f16", "bf16", "fp8", "q8_0", "q4_0", "q4_0+mean") for rotated in ("", "+rot"))  # of caches, as HELD
# numbers them; those with "+mean" are of keys alone
FEATURES = {1: (24, 64), 2: (11, 0)}  # by version: how many features there are beside those of the key, and how many last rows of attention they read
SHAPE = ("n_layers", "n_heads", "n_kv_heads", "n_entropy_bins", "n_perplexity_bins", "n_budgets", "window", "head_axis")  # the names of its values in META
SCORES, MODES = ("paper", "window", "learned", "bank"), ("shared", "heads", "layers", "lengths")
BY_FEATURES = ("learned", "bank")  # the scores that are the learned ranking, without and with the attention of the bank's queries
BY_HEAD = ("heads", "lengths")  # the modes in which each KV head has a set of its own

Score = collections.namedtuple("Score", "kind window pool norm features mode")  # what a table recommends for a budget
PAPER_SCORE = Score("paper", 0, 0, False, 0, "shared")


def format_names(text: str) -> Tuple[str, ...]:
    """The names of the formats of keys and of values in text such as "q8_0/q4_0+rot", or of both in one name, of which "+mean" is for keys alone."""
    return tuple(text.split("/")) if "/" in text else (text, text.replace("+mean", ""))


def row_bytes(form: str, head_dim: int) -> int:
    """The bytes of a row of head_dim numbers in one of FORMATS."""
    of_block = {"f32": 128, "f16": 64, "bf16": 64, "fp8": 32, "q8_0": 34, "q4_0": 18}  # of 32 numbers
    return of_block[form.split("+")[0]] * head_dim // 32


def bin_index(edges: ArrayLike, value: float) -> int:
    """The number of a value's bin: how many of the inner edges are at most the value."""
    return int(np.count_nonzero(np.asarray(edges) <= value))


def budget_tokens(budget: float, n_tokens: int) -> int:
    """A budget in tokens. From 1 up it is a number of tokens already; below, it is a share of the prompt."""
    return int(budget) if budget >= 1 else math.floor(budget * n_tokens)


def head_floor(f: float, recent: int, budget: int, n_tokens: int) -> int:
    """The least number of positions that a head or layer keeps: the share f of the budget, but at least the recent ones and the first, and at most all."""
    return min(max(recent + 1, math.floor(f * budget)), n_tokens)


def capacities(share: ArrayLike, budget: int, n_tokens: int, floor: int) -> Array:
    """How many positions each unit (a head or layer) keeps, in the shape of share: `budget` on average, and none less than floor (formats/table/table.md). The
    steps are those of the C library, in doubles, so that the numbers are the same."""
    units = np.asarray(share, np.float64)
    unit = "head" if units.ndim == 2 else "layer"
    refuse(floor > budget, f"a budget of {budget} tokens is below what every {unit} must keep; the least is {floor}")
    if budget >= n_tokens:
        return np.full(units.shape, n_tokens)
    total, smallest = units.size * budget, float(units.min(where=units > 0, initial=math.inf))

    def at(z: float) -> Array:
        with np.errstate(all="ignore"):
            return np.fmin(np.fmax(units * (budget * z), floor), n_tokens)

    lo, hi = 0.0, n_tokens / (budget * smallest) if budget * smallest > 0 else math.inf
    if np.floor(at(hi)).sum() <= total:
        lo = hi
    else:
        for _ in range(64):
            mid = (lo + hi) / 2
            lo, hi = (mid, hi) if np.floor(at(mid)).sum() <= total else (lo, mid)
    x = at(lo).ravel()
    kept = np.floor(x).astype(int)
    takers = np.flatnonzero((units.ravel() > 0) & (x < n_tokens))
    takers = takers[np.argsort((kept - x)[takers], kind="stable")]  # those with the largest fraction come first
    kept[takers[: total - kept.sum()]] += 1
    return kept.reshape(units.shape)


def identifying(entry: bytes) -> bytes:
    """The parts of a section's entry from which the content id is made: name, type, dimensions and SHA-256."""
    return entry[:8] + entry[10:12] + entry[16:56] + entry[72:104]


def _unpack(packed, raw_size):
    """The content of a single zstd frame, which must have raw_size bytes. None if the module zstandard is not installed."""
    try:
        import zstandard
    except ImportError:
        return None
    frame = zstandard.get_frame_parameters(packed)
    refuse(frame.content_size != raw_size or frame.window_size > WINDOW_MAX, "zstd frame with another content size, or a window over 8 MiB")
    return zstandard.ZstdDecompressor().decompress(packed, allow_extra_data=False)


def even_lengths(share: Array, kept: Array) -> Array:
    """The capacities `kept` of units, lowered so that units of the same share have the same: the least among them. The mode `lengths` does this with layers."""
    return np.array([kept[share == x].min() for x in share])


class Table:
    """A table that was read and checked.

    weight [L, G, nB], tau [L, E, P, nB] and budgets [nB] are there always. share [L, G, nB], layer_share and length_share [L, nB], c_min [nB, 2] (floor,
    recent), theta [L, G, D], mass [L, G], bank [L, H, b, D], ridge [L, nB], bank_use [nB, 2] and byte_share [nB] are None if the table has none. score: a
    Score for each budget. held: for each budget the names of the formats of keys and of values (docs/method.md, section 11), which are ("f32", "f32") where
    the table does not say them. sections: {name: array}, as they are in the file. skipped: names of sections that were not read. meta, prov, xfer: the objects of META, pROV and
    xFER, or None."""

    def __init__(self, name: str, data: bytes):
        """data: the bytes of the file. name stands for it in messages."""
        self.name = name
        self.sections: Dict[str, Array] = {}
        self.skipped: List[str] = []
        self._check_header(data)
        self._read_sections(data)
        self._check_values()

    @classmethod
    def read(cls, path: FilePath) -> Table:
        """Reads a file, the table of this name that comes with the package, or table.ckvt of a repository `org/name` on a model hub (hub.table_file), and checks
        all its sums. Raises an Error of one line if it is no good table or cannot be fetched, or OSError if it cannot be read."""
        path = table_file(path)
        return cls(str(path), read(path, FILE_MAX))

    def _refuse(self, when: object, text: str) -> None:
        refuse(when, f"{self.name}: {text}")

    def _check_header(self, data):
        """Checks the first 128 bytes and the sum of the directory: sets flags, operator, has_shares and has_bank."""
        self._refuse(data.startswith(b"version https://git-lfs.github.com/spec/v1"),
                     "a Git LFS pointer in the file's place; get the file: git lfs pull, or hf download")
        self._refuse(data[:8] != MAGIC, "byte 0: not a ckvt table")
        self._refuse(not 128 <= len(data) <= FILE_MAX, f"{len(data)} bytes, a table has 128 to {FILE_MAX}: the file is cut off, or none")
        _, size, major, minor, order, _, self.flags, length, start, n, entry, self._identity, _, zero, crc_dir, crc = HEADER.unpack(data[:128])
        self._refuse(binascii.crc32(data[:124]) != crc, "byte 124: wrong CRC-32 of the header: the file is damaged")
        self._refuse(major != 1, f"byte 10: format {major}.{minor}, this reader knows 1.x")
        for at, got, want in ((8, size, 128), (14, order, 0x0102), (32, length, len(data)), (40, start, 128), (52, entry, 112), (92, any(zero), 0)):
            self._refuse(got != want, f"byte {at}: got {got:d}, want {want:d}")
        self._refuse(self.flags >= 2 * FLAG_BYTES, f"byte 24: incompatible flags {self.flags:#x} are from a later format")
        self._refuse(self.flags & FLAG_RELATIVE, "byte 24: flag 8: the table has thresholds below shares, which this version of ckvc no longer has; "
                     "fit it anew from its demand")
        self.operator, self.has_shares = OPERATORS[self.flags % FLAG_SHARES], bool(self.flags & FLAG_SHARES)
        self.has_bank, has_bytes = bool(self.flags & FLAG_BANK), bool(self.flags & FLAG_BYTES)
        for flag, has, what in ((FLAG_BANK, self.has_bank, "a bank"), (FLAG_BYTES, has_bytes, "formats")):
            self._refuse(has and not self.has_shares, f"byte 24: flag {flag}, {what}, without flag 4, shares")
        self._end = 128 + 112 * n  # of the directory
        self._refuse(not 1 <= n <= 256 or self._end > len(data), f"byte 48: {n} sections")
        self._refuse(binascii.crc32(data[128 : self._end]) != crc_dir, "byte 120: wrong CRC-32 of the directory: the file is damaged")

    def _read_sections(self, data):
        """Checks the directory and all sums, and unpacks the sections: sets sections, skipped, text, content_id, meta, prov, xfer and sketch."""
        end, identity, packed_of, self._dims = self._end, hashlib.sha256(), {}, {}
        for at in range(128, self._end, 112):
            entry = data[at : at + 112]
            label, codec, kind, rank, zero, *dims, offset, stored, digest, crc, last = ENTRY.unpack(entry)
            name = label.rstrip(b"\0").decode("latin-1")
            self._refuse(not (name.isalnum() and name.isascii() and name[0].isalpha()), f"byte {at}: bad section name")
            self._refuse(codec > 1 or kind >= len(TYPES) or rank > 5 or any(dims[rank:]) or (kind == 0 and rank != 1),
                         f"byte {at + 8}: section {name}: bad codec, type, rank or dimensions")
            self._refuse(zero or last, f"byte {at + 14}: section {name}: reserved field is not 0")
            self._refuse(name in packed_of or (name[0].isupper() and name not in RAW + EVIDENCE),
                         f"byte {at}: section {name} is there twice or from a later format")
            self._refuse(name in SPECS and (kind != int(SPECS[name][0]) or rank != max(len(SPECS[name]) - 1, 1)),
                         f"byte {at + 10}: section {name}: type {kind}, rank {rank}")
            raw_size = TYPES[kind].itemsize * math.prod(dims[:rank])
            self._refuse(offset != (end + 63) // 64 * 64 or offset + stored > len(data) or any(data[end:offset]),
                         f"byte {at + 56}: section {name}: bytes {offset} + {stored} are not its place")
            packed = data[offset : offset + stored]
            end = offset + stored
            self._refuse(name in RAW if codec else stored != raw_size, f"byte {at + 64}: section {name}: wrong length or codec")
            self._refuse(binascii.crc32(packed) != crc, f"byte {offset}: section {name}: wrong CRC-32: the file is damaged")
            if name[0].isupper():
                identity.update(identifying(entry))
            self._dims[name], packed_of[name] = tuple(dims[:rank]), (codec, packed, raw_size, TYPES[kind], digest)
        self._refuse(end != len(data), f"byte {end}: bytes behind the last section")
        together = [group for group in (EVIDENCE, LEARNED) if any(x in packed_of for x in group)]
        flagged = ((FLAG_SHARES, SHARES, (*LEARNED, "SHARELAY", "SHARELEN", "sSHARE")), (FLAG_BANK, BANK, ()), (FLAG_BYTES, BYTES, ()))
        for name in sum(together, REQUIRED + sum((names for flag, names, _ in flagged if self.flags & flag), ())):
            self._refuse(name not in packed_of, f"section {name} is missing")
        for flag, names, may_miss in flagged:
            for name in () if self.flags & flag else names + may_miss:
                self._refuse(name in packed_of, f"section {name} is there, but byte 24 does not say so: flag {flag:#x} is not set")
        self.content_id = identity.hexdigest()
        self._refuse(identity.digest() != self._identity, "byte 56: the content id is not that of its sections")
        self._check_shape(*np.frombuffer(packed_of["SHAPE"][1][:44], TYPES[3]).tolist())
        unpacked, raw_of = 0, {}
        for name, (codec, packed, raw_size, kind, digest) in packed_of.items():
            unpacked += codec * raw_size
            self._refuse(unpacked > UNPACKED_MAX or (SPECS.get(name) == "0" and raw_size > JSON_MAX),
                         f"section {name}: {raw_size} bytes when unpacked are more than the format allows")
            try:
                raw = packed if codec == 0 else _unpack(packed, raw_size) if name in SPECS else None
            except Exception as problem:  # zstandard has its own exceptions
                raise Error(f"{self.name}: section {name}: {problem}")
            raw_of[name] = raw
            if raw is None:
                self.skipped.append(name)
                continue
            self._refuse(hashlib.sha256(raw).digest() != digest, f"section {name}: its SHA-256 is not the directory's")
            if kind.itemsize > 1 and name in SPECS:
                self.sections[name] = np.frombuffer(raw, kind).reshape(self._dims[name])
        self.text: Dict[str, bytes] = {k: raw_of[k] for k in ("META", "pROV", "xFER", "mODEL") if raw_of.get(k) is not None}
        try:
            self.meta, self.prov, self.xfer, of_model = (json_object(self.text[k]) if k in self.text else None for k in ("META", "pROV", "xFER", "mODEL"))
        except (ValueError, RecursionError) as problem:
            raise Error(f"{self.name}: section META, pROV, xFER or mODEL: {problem}")
        self.sketch = str((of_model or {}).get("sketch", ""))  # the sketch of the model that it was made for (lib/base/sketch.h), or ""

    def _check_shape(self, *shape):
        """Checks SHAPE, and by it the dimensions of every section, before anything is unpacked."""
        self._refuse(len(shape) not in (8, 10), "section SHAPE: want 8 or 10 values of u32")
        (self.n_layers, self.n_query_heads, self.n_heads, self.n_entropy_bins, self.n_ppl_bins, self.n_budgets, self.window,
         self.head_axis), (visible, self.keep_window) = shape[:8], shape[8:] or (0, 0)
        L, H, G, E, P, nB = shape[:6]
        h, g = (math.prod(self._dims[name]) for name in ("GRIDHEAD", "GRIDGATE"))
        self._refuse(not all(1 <= n <= 65535 for n in shape[:6]) or self.window < 1 or self.head_axis > 1 or visible > 1 or H % G
                     or (self.head_axis and H != G) or not 1 <= h <= 4096 or not 1 <= g <= 4096,
                     f"section SHAPE: {shape} and grids of {h} and {g} actions are none of a table")
        self.alpha_kind = ("paper", "visible")[visible]
        b, d = self._dims.get("BANK", (0, 0, 0, 0))[2:]
        self._refuse(self.has_bank and not (1 <= b <= 65535 and 2 <= d <= 65535 and d % 2 == 0), f"section BANK: {b} queries of {d} numbers")
        D, S = self._dims.get("THETA", (0, 0, 0))[2], 10 if visible or self.keep_window else 8
        n = dict(L=L, H=H, G=G, E=E, P=P, e=E - 1, p=P - 1, B=nB, h=h, g=g, D=D, b=b, d=d, S=S)
        for name, dims in self._dims.items():
            kind, *letters = SPECS.get(name, "0")
            want = tuple(n[x] if x in n else int(x) for x in letters)
            self._refuse(want and dims != want, f"section {name}: {TYPES[int(kind)]} {dims}, SHAPE wants {want}")

    def _check_values(self):
        """Checks the numbers of all sections, and sets the members that hold them."""
        s, shape = self.sections, self.sections["SHAPE"].tolist()
        self.budgets, self.head_grid, self.gate_grid = s["BUDGET"], s["GRIDHEAD"], s["GRIDGATE"]
        self.weight, self.tau, self.edges_entropy, self.edges_ppl = (s[name] for name in ("WEIGHT", "TAU", "EDGEENT", "EDGEPPL"))
        for names, (want, holds) in RULES.items():
            for name in s.keys() & names.split():
                with np.errstate(all="ignore"):
                    self._refuse(not np.all(holds(s[name])), f"section {name}: {want}")
        for q, n in (("QHEAD", "NHEAD"), ("QGATE", "NGATE")):
            self._refuse({q, n} <= s.keys() and not np.where(s[n] > 0, np.isfinite(s[q]), np.isneginf(s[q])).all(),
                         f"section {q}: want a finite value where an action was logged, -inf elsewhere")
        # A table's float32 values stand for the doubles of its grids. Every machine multiplies with these doubles.
        self.head_action, self.gate_action = self._on_grid("WEIGHT", self.head_grid), self._on_grid("TAU", self.gate_grid)
        self._check_shares()
        got, want = (self.meta.get("schema"), self.meta.get("shape")), ("ckvc-table-1", dict(zip(SHAPE, shape)))
        self._refuse(json.dumps(got, sort_keys=True) != json.dumps(want, sort_keys=True),  # as text, so that 1 is neither 1.0 nor true
                     "section META: schema is not ckvc-table-1, or shape does not agree with SHAPE")
        alpha, keep, probe = self.meta.get("alpha_kind"), self.meta.get("keep_window", self.keep_window), self.meta.get("probe")
        self._refuse((isinstance(alpha, str) and (alpha == "visible") != (self.alpha_kind == "visible"))
                     or (keep if type(keep) is int else 0) != self.keep_window, "section META: alpha_kind or keep_window is not what SHAPE says")
        if (probe if probe in OPERATORS else "paper") != self.operator:
            raise Error(f"{self.name}: section META: probe is {probe}, but the header's flags say the operator {self.operator}")

    def _check_shares(self):
        """Checks the shares and the score of each budget, and sets share, layer_share, length_share, c_min, theta, mass and score."""
        s, nB = self.sections, self.n_budgets
        self.share, self.layer_share, self.length_share, self.c_min, self.theta, self.mass, self.bank, self.ridge, self.bank_use = (
            s.get(name) for name in ("SHARE", "SHARELAY", "SHARELEN", "CMIN", *LEARNED, *BANK))
        self._refuse(self.has_bank and not ((1 <= self.bank_use) & (self.bank_use <= (self.bank.shape[2], 65535))).all(),
                     "section BANKUSE: want queries of the bank, and positions from 1 to 65535")
        self.byte_share, held = s.get("BYTES"), s.get("HELD")
        self.held = [("f32", "f32")] * nB if held is None else [(FORMATS[k], FORMATS[v]) for k, v in held.tolist()]
        self.score = [PAPER_SCORE] * nB
        if not self.has_shares:
            return
        for b, (f, recent) in enumerate(self.c_min):
            self._refuse(not (0 <= f <= 1 and 0 <= recent < 2**32 - 1 and recent == math.floor(recent)),
                         f"section CMIN[{b}]: {f} and {recent}: want a share of the budget, and a whole number of positions")
            self._refuse(self.budgets[b] >= 1 and recent + 1 > self.budgets[b],
                         f"section CMIN[{b}]: c_min is {recent + 1:.0f}, above the {self.budgets[b]:.0f} tokens of its budget")
        first = int(s["SCORE"][0, 4])
        for b, (kind, window, pool, norm, features, mode) in enumerate(s["SCORE"].tolist()):
            at = f"section SCORE[{b}]"
            self._refuse(kind >= len(SCORES) or mode >= len(MODES), f"{at}: score {kind} or mode {mode} is none that this reader knows")
            if mode and self._shares(MODES[mode]) is None:
                raise Error(f"{self.name}: {at}: mode {MODES[mode]}, but section {'SHARELAY' if MODES[mode] == 'layers' else 'SHARELEN'} is missing")
            self._refuse(features != first, f"{at}: features of version {features}, but of version {first} in SCORE[0]")
            self._refuse(SCORES[kind] == "bank" and not (self.has_bank and (self.bank_use == self.bank_use[0]).all()),
                         f"{at}: ranks by the bank's attention: want section BANK, and one BANKUSE for all budgets")
            self._refuse((features or self.theta is not None or SCORES[kind] in BY_FEATURES) and features not in FEATURES,
                         f"{at}: features of version {features} are none that this reader knows")
            self._refuse(features and self.theta is None, f"{at}: features of version {features}, but section THETA is missing")
            if SCORES[kind] in BY_FEATURES and (window != FEATURES[features][1] or pool or norm):
                raise Error(f"{self.name}: {at}: window {window}, pool {pool}, norm {norm}: features of version {features} need "
                            f"{FEATURES[features][1]} rows, no pool and no norm")
            self._refuse((kind == 1 and (window < 1 or pool % 2 == 0 or norm > 1)) or (kind == 0 and (window or pool or norm)),
                         f"{at}: window {window}, pool {pool}, norm {norm} do not suit the score {SCORES[kind]}")
            self.score[b] = Score(SCORES[kind], window, pool, bool(norm), features, MODES[mode])
        if self.theta is not None:
            D, n = self.theta.shape[2], FEATURES[first][0]
            self._refuse(D < n + 2 or (D - n) % 2, f"section THETA: {D} features, version {first} has {n} and those of a key of even length")

    def _shares(self, mode: str) -> Optional[Array]:
        """The shares by which a mode divides a budget: [L, G, nB] of `heads`, [L, nB] of `layers` and `lengths`; None if the table has none."""
        return {"heads": self.share, "layers": self.layer_share, "lengths": self.length_share}.get(mode)

    def _on_grid(self, name, grid):
        """For each value of a section the index of the grid's value that it stands for. An Error says that there is none."""
        values, rounded = self.sections[name], grid.astype(np.float32)
        index = np.minimum(np.searchsorted(rounded, values), len(grid) - 1)
        self._refuse(not np.array_equal(rounded[index], values), f"section {name}: a value is off its grid")
        return index

    def bins(self, r_struct: float, r_sem: float) -> Tuple[int, int]:
        """The entropy bin and the perplexity bin of a prompt."""
        return bin_index(self.edges_entropy, r_struct), bin_index(self.edges_ppl, r_sem)

    def budget_index(self, budget: float) -> int:
        """The index of a budget that the table was calibrated for (such as 512 tokens, or the share 0.25)."""
        found = np.flatnonzero(self.budgets == budget)
        refuse(not len(found), f"{self.name}: no budget {budget:g}; it has {', '.join(f'{b:g}' for b in self.budgets)}")
        return int(found[0])

    def byte_block(self, share: float) -> int:
        """The index of the budget that was chosen for a share of the bytes that a whole cache takes in 16 bits (`ckvc compile --bytes`)."""
        shares = np.zeros(self.n_budgets) if self.byte_share is None else self.byte_share
        found = np.flatnonzero((shares == share) & (shares > 0))
        refuse(not len(found), f"{self.name}: no budget was chosen for the share {share:.10g} of the bytes; "
                               + (f"it has {', '.join(f'{s:.10g}' for s in shares if s > 0)}" if shares.any() else "it counts entries (ckvc compile --bytes counts bytes)"))
        return int(found[0])

    def nearest_budget(self, budget: float, n_tokens: int) -> int:
        """The index of the block that serves a budget (tokens, or a share below 1) for a prompt of n_tokens. It is the budget's own block if there is one, or
        else the one whose budget has the nearest ratio to it; of two equally near, that of the lower budget."""
        have, want = (np.where(b >= 1, b, b * n_tokens) for b in (self.budgets, np.float64(budget)))
        return int(np.lexsort((have, np.maximum(have, want) / np.minimum(have, want), self.budgets != budget))[0])

    def capacities(self, b: int, n_tokens: int, mode: Optional[str] = None, budget: Optional[float] = None) -> Array:
        """How many positions each head (mode `heads`, [L, G]) or layer (mode `layers`, [L]; `lengths`, [L], for each of its heads) keeps of a prompt, by
        the shares and the floor of block b. budget (tokens, or a share below 1) takes the place of the block's own, and mode that of the mode that it
        recommends."""
        mode = mode or self.score[b].mode
        share = self._shares(mode)
        refuse(share is None, f"{self.name}: no shares for mode {mode}")
        clamp = budget_tokens(self.budgets[b] if budget is None else budget, n_tokens)
        f, recent = self.c_min[b]
        try:
            c = capacities(share[..., b], clamp, n_tokens, head_floor(f, int(recent), clamp, n_tokens))
            return even_lengths(share[:, b], c) if mode == "lengths" else c
        except Error as problem:
            raise Error(f"{self.name}: {problem}")

    @property
    def reads_attention(self) -> bool:
        """Whether the table needs attention of the prompt's last rows, which the caches of engines do not hold. It does where its features read attention, and
        where it has no learned ranking."""
        return self.theta is None or bool(FEATURES[self.score[0].features][1])

    def check_model(self, n_layers: int, n_query_heads: int, n_kv_heads: int, head_dim: int) -> None:
        """An Error, in the words of the C library, if the table is for another model, or is a probe's, which nobody should deploy."""
        self._refuse(self.operator != "paper" and not (self.has_shares and self.operator == "no-threshold"),
                     f"a probe's table, fitted for the operator {self.operator}; deploy one of the paper's operator")
        self._refuse((self.n_layers, self.n_heads) != (n_layers, n_kv_heads) or (self.head_axis and n_query_heads != n_kv_heads),
                     f"is for {self.n_layers} layers x {self.n_heads} {'query' if self.head_axis else 'KV'} heads, the model has {n_layers} x "
                     f"{n_kv_heads} KV heads; `ckvc transfer` maps a table to another model, `ckvc tables` lists those that come along, and `ckvc compile` makes one")
        self._refuse(self.n_query_heads != n_query_heads, f"is for {self.n_query_heads} query heads, the model has {n_query_heads}")
        if self.theta is not None:
            of_key = self.theta.shape[2] - FEATURES[self.score[0].features][0]
            self._refuse(of_key != head_dim, f"its learned ranking is for keys of {of_key} values, the model's have {head_dim}")
        self._refuse(self.has_bank and self.bank.shape[3] != head_dim,
                     f"its bank has queries of {self.bank.shape[3] if self.has_bank else 0} values, the model's keys have {head_dim}")

    def holds(self, b: int) -> str:
        """The formats of block b as text: "q8_0/q4_0+rot" of keys and values, or one name for both."""
        return "/".join(dict.fromkeys(self.held[b]))

    def note_formats(self, blocks: Iterable[int], own: Optional[Tuple[str, str]] = None) -> None:
        """Says on stderr if these blocks were chosen for keys and values in other formats than those of an engine's cache. own: these; None: they are the
        model's type."""
        other = dict.fromkeys(self.holds(b) for b in blocks if self.byte_share is not None and self.held[b] != (own or ("f32", "f32")))
        if other:
            here = f"is held as {'/'.join(dict.fromkeys(own))}" if own else "keeps the model's own type"
            print(f"{self.name}: says that what is kept is held as {', '.join(other)}; here it {here}, and so takes other bytes than the table was chosen for",
                  file=sys.stderr)

    def note_budget(self, budget: Optional[float]) -> None:
        """Says on stderr if the table was made for other budgets than this one, and which of them lends its settings. Tokens that are asked of a table of
        shares are said, too. Otherwise it depends on the prompt, and nothing is said."""
        if budget is None or not (0 < budget < 1 or budget == math.floor(budget) > 0):
            return  # begin refuses what is no budget
        if budget >= 1 and (self.budgets < 1).all():
            print(f"{self.name}: was made for shares of the prompt, {', '.join(f'{b:g}' for b in self.budgets)}; {budget:g} asks for that many tokens, whatever the prompt's "
                  "length, and was not measured", file=sys.stderr)
        elif budget not in self.budgets and len({b >= 1 for b in (budget, *self.budgets)}) == 1:
            near = self.budgets[self.nearest_budget(budget, 1)]
            print(f"{self.name}: was made for {'budgets' if self.n_budgets > 1 else 'the budget'} {', '.join(f'{b:g}' for b in self.budgets)}; {budget:g} is served with "
                  f"the settings of {near:g}, and was not measured", file=sys.stderr)

    def check_budget(self, budget: float) -> None:
        """An Error if the budget is no number, or the float 1.0, of which nobody knows whether it means one token or the whole prompt."""
        self._refuse(not isinstance(budget, numbers.Real), f"a budget of {plain(repr(budget))}: want a number, of tokens from 1 up, or a share of the prompt below 1")
        self._refuse(budget == 1 and not isinstance(budget, (int, np.integer)),
                     "a budget of 1.0, which may be a token or a share: write 1 for 1 token, 0.99 for nearly all of a prompt")

    def begin(self, budget: Optional[float], n_tokens: int, mode: Optional[str] = None) -> Tuple[int, float, str]:
        """The block, budget and mode that serve a prompt. An Error says why it cannot be served. budget: tokens, or a share of the prompt below 1; None: the
        only budget of the table. mode: used in place of the one that the block recommends."""
        if budget is None:
            self._refuse(self.n_budgets > 1, f"which budget? It has {', '.join(f'{b:g}' for b in self.budgets)}")
            budget = float(self.budgets[0])
        else:
            self.check_budget(budget)
        self._refuse(not 0 < budget < 2**32 or (budget >= 1 and budget != math.floor(budget)),
                     f"a budget of {budget:.10g}: want whole tokens from 1 up, or a share of the prompt between 0 and 1")
        b, tokens = self.nearest_budget(budget, n_tokens), budget_tokens(budget, n_tokens)
        mode = mode or self.score[b].mode
        if mode != "shared" and n_tokens > self.window:  # a shorter prompt is kept whole
            self.capacities(b, n_tokens, mode, budget)  # which refuses budgets that are too low
        elif tokens < 1 and n_tokens > self.window:
            raise Error(f"{self.name}: a budget of 0 tokens is below what every layer must keep; the least is 1")
        return b, budget, mode

    def window_alpha(self, mass: ArrayLike) -> Array:
        """The table's alpha [T], whose mean is 1. mass [T]: the attention of the last `window` rows, added over rows, layers and heads."""
        alpha = np.array(mass, np.float64)
        if self.alpha_kind == "visible":
            alpha /= np.minimum(np.arange(len(alpha), 0, -1), self.window) / self.window
        return alpha * (len(alpha) / alpha.sum())

    def info(self) -> str:
        """A summary in a few lines, as `python3 -m ckvc T.ckvt` prints it. Each line is safe for a terminal (files.plain). There is no newline at the end."""
        axis = "query" if self.head_axis else "KV"
        lines: List[str] = [f"{self.name}: ckvt table {self.content_id}", "  model    {model_name}  label {label}  fingerprint {fingerprint}".format(
            **{k: self.meta.get(k) for k in ("model_name", "label", "fingerprint")})]
        if self.operator != "paper" and not self.has_shares:
            lines.append(f"  operator {self.operator}: a probe's table, not for deployment")
        lines.append(f"  shape    {self.n_layers} layers, {self.n_heads} {axis} heads of {self.n_query_heads} query heads, "
                     f"{self.n_entropy_bins} x {self.n_ppl_bins} bins, window {self.window}")
        for b, budget in enumerate(self.budgets):
            w, tau = self.weight[:, :, b], self.tau[..., b]
            lines.append(f"  budget {budget:g}: weight {w.min():.3f} ... {w.max():.3f}, mean {w.mean():.4f}; "
                         f"tau {tau.min():.2f} ... {tau.max():.2f}, mean {tau.mean():.4f}")
            if self.has_shares:
                share, (f, recent) = self.share[:, :, b], self.c_min[b]
                lines.append(f"    shares {share.min():.3g} ... {share.max():.3g}, floor {f:g} of the budget, {recent:.0f} recent; "
                             f"mode {self.score[b].mode}, score {self.score[b].kind}")
            if self.byte_share is not None:
                lines.append(f"    {self.byte_share[b]:.4g} of the bytes of the whole cache in 16 bits, held as {self.holds(b)}")
        if self.theta is not None:
            lines.append(f"  learned ranking: features of version {self.score[0].features}, {self.theta.shape[2]} a head")
        packed, later = (" ".join(x for x in self.skipped if (x in SPECS) == known) for known in (True, False))
        skipped = f"; packed, and read only with the Python module zstandard (pip install zstandard): {packed}" if packed else ""
        skipped += f"; optional ones of a later version, which are not read: {later}" if later else ""
        return "\n".join(map(plain, [*lines, f"  sections {' '.join(self.sections)}{skipped}"]))
