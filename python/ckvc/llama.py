"""Cuts a prompt's cache in an unmodified llama.cpp: `compact` for llama-cpp-python, and `compact_file` for the file of a slot that llama-server saved.

All layers and heads of llama.cpp's cache share its cells. But a key is cached after its rotation, so it does not matter in which cell it lies: a cell may hold
one token for one head and another token for the next head. Each head can therefore keep its own set of positions, as long as all sets have the same size. ckvc
reads a sequence's state by llama.cpp's public call, cuts it, and puts it back. The sequence then has B cells, and the next token's position is still T.
README.md has an example.

A state holds no attention rows, so the table must have a learned ranking that needs none (`ckvc fit --features 2`). Only the score of the table is used and not
its shares: every head keeps B positions, as it would under a floor of 1.

Shapes: L layers, G KV heads, D head_dim, T tokens, B budget."""
from __future__ import annotations

import ctypes
import os
from typing import Any, List, NamedTuple, Optional, Tuple, Union

import numpy as np
from numpy.typing import ArrayLike

from . import library
from .command_line import Parser
from .files import Error, FilePath, check, publish, read, refuse
from .gguf_file import Bytes, read_gguf
from .hub import without_attention
from .table import Array, Score, budget_tokens, format_names

MAGIC, FILE_MAGIC, VERSION = 0xAF143CD8, 0x67677371, 3  # magic of a state in memory; magic of a file ("ggsq"), and the version of its layout
BLOCK = 32  # numbers that share a scale in ggml's quantised types
Q4_0, Q8_0 = (np.dtype([("scale", "<f2"), ("numbers", "u1", n)]) for n in (BLOCK // 2, BLOCK))
TYPES = {0: np.dtype("<f4"), 1: np.dtype("<f2"), 2: Q4_0, 8: Q8_0}  # by ggml's number: F32 and F16, and blocks of Q4_0 and Q8_0
KINDS = {dtype: kind for kind, dtype in TYPES.items()}
ROTATED = 64  # llama.cpp rotates heads that it quantises if their size is a multiple of this
CELL = np.dtype([("position", "<i4"), ("sequences", "<u4"), ("sequence", "<i4")])
PAIRWISE = {"llama": True, "qwen2": False, "qwen3": False}  # by architecture: True if a key is rotated in pairs (2i, 2i + 1), False if in pairs (i, i + D / 2)
NAMES = {"f32": 0, "f16": 1, "q8_0": 8, "q4_0": 2}
FILE_MAX, SIZE_MAX = 1 << 44, 1 << 20  # the most bytes of a state; the most layers, heads or streams


class Model(NamedTuple):
    """The properties of a model that its cache depends on. inv_freq [D / 2]: the frequencies of a key's rotation, float64. pairwise: as PAIRWISE says."""
    name: str
    n_layers: int
    n_query_heads: int
    n_kv_heads: int
    head_dim: int
    inv_freq: Array
    pairwise: bool


class Compacted(NamedTuple):
    """What became of a sequence. n_tokens: T, which is also the next position. n_cells: how many cells are kept; T if the prompt was kept whole. full_bytes and
    kept_bytes: the size of keys and values before and after."""
    n_tokens: int
    n_cells: int
    full_bytes: int
    kept_bytes: int


def model_of(path: FilePath) -> Model:
    """The Model of a GGUF file of architecture llama, qwen2 or qwen3 whose keys are rotated as a whole. An Error says what is otherwise."""
    (meta, factors), name = read_gguf(path), os.fspath(path)
    arch = meta.get("general.architecture")
    refuse(arch not in PAIRWISE, f"{name}: architecture {arch}: want one of {', '.join(PAIRWISE)}")
    if meta.get("split.count", 1) not in (0, 1):
        raise Error(f"{name}: one file of {meta['split.count']}, the others may hold rope_freqs.weight: join them by `llama-gguf-split --merge`")

    def get(key: str, default: Any = None) -> Any:
        got = meta.get(f"{arch}.{key}", default)
        refuse(not isinstance(got, str if isinstance(default, str) else (int, float)), f"{name}: key {arch}.{key} is missing, or of another type")
        return got

    L, H, width = (get(key) for key in ("block_count", "attention.head_count", "embedding_length"))
    G = get("attention.head_count_kv", H)
    D = get("attention.key_length", width // max(H, 1))
    if not all(isinstance(x, int) and 0 < x < SIZE_MAX for x in (L, H, G, D)) or H % G or D % 2 or get("attention.value_length", D) != D:
        raise Error(f"{name}: {L} layers, {H} heads, {G} KV heads, keys of {D} values: want heads that share KV heads evenly and even keys, as values")
    kind, factor = get("rope.scaling.type", "linear"), float(get("rope.scaling.factor", get("rope.scale_linear", 1.0)))
    if kind not in ("none", "linear") or get("rope.dimension_count", D) != D or (factors is not None and len(factors) != D // 2):
        raise Error(f"{name}: keys are rotated in part, or scaled by {kind}: want whole ones, scaled as Llama 3's, by a factor, or not at all")
    with np.errstate(all="ignore"):
        inv_freq = np.float64(get("rope.freq_base", 10000.0)) ** (-np.arange(0, D, 2) / D)
        inv_freq = inv_freq / (factor if kind == "linear" and factor else 1) / (1 if factors is None else factors.astype(np.float64))
    refuse(not np.isfinite(inv_freq).all(), f"{name}: rope.freq_base, rope.scaling.factor or rope_freqs.weight make frequencies that are not finite")
    return Model(name, L, H, G, D, inv_freq, PAIRWISE[arch])


class State(NamedTuple):
    """A sequence's part of a cache. order [T]: the cell of each position. keys: L arrays [T, G D] of numbers or [T, G D / BLOCK] of quantised blocks. values:
    the same, or [G D, T] if transposed. Both are views of the state's bytes."""
    name: str
    head: Array  # the bytes before the number of streams
    n_streams: int
    stream: int
    sequence: int
    order: Array
    transposed: bool
    keys: List[Array]
    values: List[Array]


def read_state(name: str, data: Array, model: Model) -> State:
    """Reads a state. data [n] uint8: what llama_state_seq_get_data gives, or a file of llama_state_seq_save_file. An Error says that it is something else, of
    another model, of an unknown type or cut off, or that it does not hold each position from 0 on exactly once."""
    b = Bytes(name, data)
    magic, second = b.one("<u4", "magic"), b.one("<u4", "version")
    if magic == FILE_MAGIC:
        refuse(second != VERSION, f"{name}: a sequence's file of version {second}; this package knows version {VERSION}")
        b.array("<i4", b.one("<u4", "number of tokens"), "tokens")
    elif magic != MAGIC:
        raise Error(f"{name}: magic 0x{magic:08x}: want a sequence's state of llama.cpp, 0x{MAGIC:08x}, or its file, 0x{FILE_MAGIC:08x}")
    head, L, row = data[: b.at], model.n_layers, model.n_kv_heads * model.head_dim
    n_streams = b.one("<u4", "number of streams")
    refuse(not 0 < n_streams < SIZE_MAX, f"{name}: byte {b.at - 4}: {n_streams} streams: a cache of another kind of model, or of another llama.cpp")
    found: Optional[State] = None
    for stream in range(n_streams):
        T = b.one("<u4", "number of cells")
        if not T:
            continue
        cells = b.array(CELL, T, "cells")
        order = np.argsort(cells["position"], kind="stable")
        if found or (cells["sequences"] != 1).any() or (cells["sequence"] != cells["sequence"][0]).any():
            raise Error(f"{name}: its cells belong to several sequences, or are not those of a text model: want one sequence's state")
        refuse(not np.array_equal(cells["position"][order], np.arange(T)), f"{name}: {T} cells up to position {cells['position'].max()}: want each "
               "from 0 on once; a cache that was cut or shifted cannot be cut again")
        transposed, n_layers = b.one("<u4", "layout"), b.one("<u4", "number of layers")
        refuse(n_layers != L or transposed > 1, f"{name}: a cache of {n_layers} layers, {model.name} has {L}: the state of another model")
        found = State(name, head, n_streams, stream, int(cells["sequence"][0]), order, bool(transposed), [], [])
        for values in (False, True):
            for layer in range(L):
                what = f"{'values' if values else 'keys'} of layer {layer}"
                at, kind = b.at, b.one("<i4", what)
                refuse(kind not in TYPES, f"{name}: byte {at}: {what} have ggml's type {kind}: want F32 (0), F16 (1), Q4_0 (2) or Q8_0 (8)")
                by_column, per_item = bool(values and transposed), BLOCK if TYPES[kind].names else 1
                refuse(model.head_dim % per_item, f"{name}: byte {at}: {what} are quantised in blocks of {per_item} numbers, into which heads of "
                       f"{model.head_dim} do not go: use a cache of F16")
                refuse(by_column and per_item > 1, f"{name}: byte {at}: {what} are quantised and transposed, as no llama.cpp has them: use flash attention")
                size = b.one("<u4" if by_column else "<u8", what) * (b.one("<u4", what) if by_column else 1)
                of_token = row // per_item
                refuse(size != of_token * TYPES[kind].itemsize, f"{name}: byte {at}: {what} have {size} bytes a token, those of {model.name} "
                       f"{of_token * TYPES[kind].itemsize}: the state of another model")
                x = b.array(TYPES[kind], T * of_token, what)
                (found.values if values else found.keys).append(x.reshape((of_token, T) if by_column else (T, of_token)))
    refuse(not found, f"{name}: no tokens: the sequence is empty")
    refuse(b.at != len(data), f"{name}: byte {b.at}: {len(data) - b.at} bytes behind the cache: layers of another kind (sliding windows), which cannot be cut")
    return found


def score_of(table: library.Table, budget: float, n_tokens: int) -> Score:
    """The learned ranking of a table, with the bank's attention if the table recommends that, in mode `heads`. An Error says that the score reads attention,
    which a state does not hold."""
    table.check_budget(budget)
    refuse(not 0 < budget < 2**32, f"{table.name}: the budget is {budget}, want tokens from 1 up, or a share of the prompt below 1")
    score = table.score[table.nearest_budget(budget, n_tokens)]
    features = table.score[0].features if table.theta is not None else 0
    if table.reads_attention:
        raise Error(f"{table.name}: its score ({score.kind}{f', features of version {features}' if features else ''}) "
                    f"reads attention, which a state of llama.cpp does not have: {without_attention(table.content_id)}")
    return Score("bank" if score.kind == "bank" else "learned", 0, 0, False, features, "heads")


def format_of(dtype: Any, head_dim: int) -> str:
    """The name of the format in which a cache holds keys or values, as `Table.held` has it. llama.cpp rotates a head before it quantises it if its size is a
    multiple of ROTATED: since April 2026 (pull request 21038), and unless the environment has LLAMA_ATTN_ROT_DISABLE=1. A state does not say, so this process
    must have the variable if the one that wrote a quantised state had it, or if the one that reads what is kept has it."""
    name = next(name for name, kind in NAMES.items() if kind == KINDS[dtype])
    off = os.environ.get("LLAMA_ATTN_ROT_DISABLE", "").strip()
    rotates = dtype.names and head_dim % ROTATED == 0 and not (off.isdigit() and int(off))
    return name + ("+rot" if rotates else "")


def types_of(formats: str, model: Model) -> Tuple[Any, Any]:
    """The types of keys and of values that formats names, such as "q8_0/q4_0", or "f16" for both. An Error says which there are, or that heads do not fit."""
    names = format_names(formats)
    refuse(len(names) != 2 or any(n not in NAMES for n in names), f"formats {formats!r}: want one of {', '.join(NAMES)}, or two of them with / between, of keys and of values")
    k, v = (TYPES[NAMES[n]] for n in names)
    refuse(model.head_dim % BLOCK and (k.names or v.names), f"formats {formats!r}: heads of {model.head_dim} numbers do not go into blocks of {BLOCK}: want f16 or f32")
    return k, v


def rows_of(state: State, model: Model, layer: int) -> List[Tuple[library.Rows, library.Rows]]:
    """Keys and values of each head of a layer, ordered by position."""
    of_values = state.values[layer].T if state.transposed else state.values[layer]
    k, v = (np.ascontiguousarray(x[state.order]).reshape(len(state.order), model.n_kv_heads, -1) for x in (state.keys[layer], of_values))
    of_key, of_value = (format_of(x.dtype, model.head_dim) for x in (k, v))
    return [(library.Rows(k[:, g], of_key, model.pairwise), library.Rows(v[:, g], of_value)) for g in range(model.n_kv_heads)]


class Kept(NamedTuple):
    """What is kept of a state. sets [L, G, B]: the ascending positions of each head. keys and values: L arrays [B, G, numbers or blocks of a head]."""
    sets: Array
    keys: List[Array]
    values: List[Array]


def kept_of(state: State, model: Model, table: library.Table, budget: float, formats: Optional[str] = None) -> Optional[Kept]:
    """What the table keeps of a state, fitted if the table fits it, in the state's own formats or in those of types_of. None if everything is kept as it is,
    because T is at most B or the table's window."""
    T, G, D = len(state.order), model.n_kv_heads, model.head_dim
    p = library.Prefill(table, model.n_query_heads, D, T, budget, model.inv_freq, n_layers=model.n_layers, n_kv_heads=G, score=score_of(table, budget, T), floor=1.0,
                        attending=[(D**-0.5, 0.0, 0)] * model.n_layers)
    own = [(k.dtype, v.dtype) for k, v in zip(state.keys, state.values)]
    held = own if formats is None else [types_of(formats, model)] * model.n_layers
    if held == own and (p.whole or budget_tokens(budget, T) >= T):
        return None
    for layer in range(model.n_layers):
        for g, (k, v) in enumerate(rows_of(state, model, layer)):
            p.cache_rows(layer, g, k, v)
    kept = Kept(np.array(p.keep()), [], [])
    for layer, types in enumerate(held):
        names = format_of(types[0], D), format_of(types[1], D)
        rows = [p.fit_rows(layer, g, k, v, names, D**-0.5) for g, (k, v) in enumerate(rows_of(state, model, layer))]
        for x, dtype, into in zip(zip(*rows), types, (kept.keys, kept.values)):
            into.append(np.stack([of_head.view(dtype) for of_head in x], axis=1))
    return kept


def cell_positions(sets: Array, n_tokens: int) -> Array:
    """The positions [B] that cells get which hold sets [L, G, B]. The last r tokens are those that all heads keep; their cells get their own positions. All
    other cells get the position T - r - 1. llama-server looks at the least position of a sequence: so it sees that a text which departs from the prompt before
    T - r - 1 cannot go on from this cache, and reads that text anew."""
    B = sets.shape[-1]
    own = n_tokens - B + np.arange(B)
    r = int(np.logical_and.accumulate((sets == own).all(axis=(0, 1))[::-1]).sum())
    return np.where(np.arange(B) < B - r, n_tokens - r - 1, own)


def cut_state(state: State, kept: Kept) -> Array:
    """The bytes [n] uint8 of the state with what is kept alone."""
    B, (L, T) = kept.sets.shape[-1], (len(state.keys), len(state.order))
    transposed = state.transposed and not kept.values[0].dtype.names  # quantised values never are
    u4 = lambda *x: np.array(x, "<u4")  # noqa: E731
    cells = np.zeros(B, CELL)
    cells["position"], cells["sequences"], cells["sequence"] = cell_positions(kept.sets, T), 1, state.sequence
    cut: List[ArrayLike] = [state.head, u4(state.n_streams), u4(*[0] * state.stream, B), cells, u4(transposed, L)]
    for values in (False, True):
        for x in kept.values if values else kept.keys:
            x, by_column = x.reshape(B, -1), values and transposed
            size = u4(x.itemsize, x.shape[1]) if by_column else np.array([x.itemsize * x.shape[1]], "<u8")
            cut += [np.array([KINDS[x.dtype]], "<i4"), size, x.T if by_column else x]
    cut.append(u4(*[0] * (state.n_streams - state.stream - 1)))
    return np.concatenate([np.ascontiguousarray(x).reshape(-1).view(np.uint8) for x in cut])


def _cut(name: str, data: Array, model: Model, table: Union[library.Table, FilePath], budget: float, formats: Optional[str]) -> Tuple[Optional[Array], Compacted]:
    """The bytes of the cut state, or None if all is kept as it is; and what became of it."""
    if not isinstance(table, library.Table):
        table = library.Table.read(os.fspath(table))
    state = read_state(name, data, model)
    kept = kept_of(state, model, table, budget, formats)
    T, full = len(state.order), sum(x.nbytes for x in (*state.keys, *state.values))
    if kept is None:
        return None, Compacted(T, T, full, full)
    table.note_budget(budget)
    table.note_formats([table.nearest_budget(budget, T)], tuple(format_of(x[0].dtype, model.head_dim) for x in (kept.keys, kept.values)))
    return cut_state(state, kept), Compacted(T, kept.sets.shape[2], full, sum(x.nbytes for x in (*kept.keys, *kept.values)))


def compact(llama: Any, seq_id: int, table: Union[library.Table, FilePath], budget: float,
            model: Optional[Union[Model, FilePath]] = None, into: Any = None, formats: Optional[str] = None) -> Compacted:
    """Cuts sequence seq_id of a context that has just read T tokens. The next token's position is still T.

    llama: a Llama or a llama_context pointer, with a cache of F32, F16, Q8_0 or Q4_0. Before a Llama reads a text that does not begin with this whole prompt,
    call its reset(): otherwise it takes the beginning that both share for cached. table: a library.Table, or a .ckvt's path or name. budget: tokens from 1 up, or
    a share of T below 1. model: the GGUF file; needed if llama is a pointer. into: another context of the same model. What is kept then goes to its sequence
    seq_id, and `llama` stays as it was. A bare llama_context may be as small as B and the answer need; a Llama needs room for T. formats: the types of into's
    cache if they are not those of llama's, such as "q8_0/q4_0" for keys and values: so a prompt can be read in F16, and what is kept of it held in fewer bits.
    Where values are not quantised, both contexts must use flash attention, or neither.

    An Error leaves the sequence as it was. It says that the state is not one that read_state takes, that another sequence shares cells, that the table reads
    attention or is for another model, or that the budget is none. If llama.cpp takes back neither the cut state nor its own, the Error says
    so, and the sequence is empty."""
    import llama_cpp as c

    name = f"sequence {seq_id}"
    model = getattr(llama, "model_path", None) if model is None else model
    refuse(model is None, f"{name}: say whose state it is: compact(..., model=\"M.gguf\")")
    asked = getattr(llama, "context_params", None)
    if asked is not None and (asked.rope_freq_base or asked.rope_freq_scale or asked.yarn_ext_factor > 0 or asked.rope_scaling_type >= 0):
        raise Error(f"{name}: the context was made with rope_ or yarn_ options of its own, which the file does not have: leave them out")
    context = getattr(llama, "ctx", llama)
    goal = context if into is None else getattr(into, "ctx", into)
    in_place = goal == context
    refuse(in_place and formats is not None, f"{name}: a context keeps its own types: formats= needs another context, into=")
    for x in (context, goal):
        refuse(not 0 <= seq_id < c.llama_n_seq_max(x), f"{name}: the context has sequences 0 to {c.llama_n_seq_max(x) - 1}")
    model = model if isinstance(model, Model) else model_of(model)
    pointer = ctypes.POINTER(ctypes.c_uint8)
    data = np.empty(c.llama_state_seq_get_size(context, seq_id), np.uint8)
    if c.llama_state_seq_get_data(context, data.ctypes.data_as(pointer), len(data), seq_id) != len(data):
        raise Error(f"{name}: llama.cpp did not give its state of {len(data)} bytes (its log says why)")
    cut, said = _cut(name, data, model, table, budget, formats)
    if cut is None and in_place:
        return said
    of_cell = CELL.itemsize + said.full_bytes // said.n_tokens
    one_by_one = sum(c.llama_state_seq_get_size(context, s) // of_cell for s in range(c.llama_n_seq_max(context)))
    # The state of all sequences together (-1) counts a shared cell once, the states of single sequences count it each time.
    refuse(in_place and one_by_one > c.llama_state_seq_get_size(context, -1) // of_cell, f"{name}: sequences of this context share cells "
           "(llama_memory_seq_cp), which cannot be cut for one of them: cut before sharing, or into another context")
    cut = data if cut is None else cut
    if c.llama_state_seq_set_data(goal, cut.ctypes.data_as(pointer), len(cut), seq_id) != len(cut):
        if in_place and c.llama_state_seq_set_data(context, data.ctypes.data_as(pointer), len(data), seq_id) != len(data):
            c.llama_memory_seq_rm(c.llama_get_memory(context), seq_id, -1, -1)
            raise Error(f"{name}: llama.cpp took neither the cut state nor its own: the sequence is empty now (its log says why)")
        raise Error(f"{name}: llama.cpp did not take the {said.n_cells} cells: too few are free, or another type of cache (its log says which)")
    return said


def compact_file(path: FilePath, model: Union[Model, FilePath], table: Union[library.Table, FilePath], budget: float,
                 out: FilePath, force: bool = False, formats: Optional[str] = None) -> Compacted:
    """Cuts a file that llama-server's /slots/N?action=save or llama_state_seq_save_file wrote, and writes `out` whole or not at all. The list of tokens in the
    file stays. formats: as for compact, of the cache that will read the file. Errors are those of compact, and FileExistsError if `out` is there already and `force` is not set."""
    source, goal = os.fspath(path), os.fspath(out)
    inputs = [source, *(x for x in (model, table) if isinstance(x, (str, os.PathLike)))]
    check(goal, force, inputs)
    data = np.frombuffer(read(source, FILE_MAX), np.uint8)
    cut, said = _cut(source, data, model if isinstance(model, Model) else model_of(model), table, budget, formats)
    publish(goal, (data if cut is None else cut).data, force, inputs)
    return said


def main(verb: str, words: List[str]) -> str:
    """Does `python3 -m ckvc compact`, and returns the line that is printed."""
    p = Parser(prog=f"python3 -m ckvc {verb}", description="A slot that llama-server saved, cut to a budget; it restores it.")
    p.add_argument("slot", metavar="SLOT.bin")
    p.add_argument("--model", metavar="M.gguf", required=True, help="Name the server's model; only its shape is read.")
    p.add_argument("--table", metavar="T.ckvt", required=True, help="Keep what this table says, whose learned ranking has --features 2.")
    p.add_argument("--budget", type=lambda x: int(x) if x.isdigit() else float(x), required=True, help="Keep so many tokens; a number below 1 is a share of the prompt.")
    p.add_argument("--formats", metavar="KEYS/VALUES", help="Hold what is kept in these types of the cache that will read it: f32, f16, q8_0 or q4_0; without this option, as the slot does.")
    p.add_argument("-o", "--out", required=True)
    p.add_argument("-f", "--force", action="store_true", help="Overwrite the output.")
    o = p.parse_args(words)
    said = compact_file(o.slot, o.model, o.table, o.budget, o.out, o.force, o.formats)
    whole = "; no longer than the budget or the table's window: kept whole" if said.n_cells == said.n_tokens else ""
    return f"{o.out}: {said.n_cells} of {said.n_tokens} cells, {said.kept_bytes} of {said.full_bytes} bytes{whole}"
