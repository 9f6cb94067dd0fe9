"""Writes tables and records in other programs' formats, and reads them back: `python3 -m ckvc export` and `python3 -m ckvc import`. README.md says what each
format holds.

A format has a function `to_NAME(table or run, path, options)`, which writes it and returns a note for the user, or None. If the format can be imported, it
also has a function `from_NAME(path, options)`, which returns the bytes of a .ckvt. These bytes always pass the reader of tables, so an import cannot make a
bad table."""
import binascii
import hashlib
import importlib
import io
import json
import math
import os
import re
import struct
import subprocess
import zipfile

import numpy as np

from .command_line import Parser, Usage, numbers_of
from .files import Error, begun, check, publish, put, read, refuse
from .gguf_file import read_gguf
from .table import ENTRY, FILE_MAX, FLAG_BANK, FLAG_BYTES, FLAG_SHARES, HEADER, MAGIC, OPERATORS, SHAPE, SPECS, TYPES, Table, budget_tokens, identifying

ORDER = [name for name in SPECS if name not in ("pROV", "xFER", "mODEL", "META")]
ORDER.insert(ORDER.index("SHARE"), "META")  # the C program writes sections in this order, and the content id depends on it
HEAD_GRID, GATE_GRID = (32 + np.arange(29)) / 40, (80 + np.arange(21)) / 100
TEXT_MAX, NUMBERS_MAX = 16 << 20, 1 << 24
OF_SAFETENSORS = ("U8", "F32", "F64", "U32", "U64", "F16")  # its names for the types of table.TYPES, in the same order


def needed(module, what):
    """The module of that name, which `what` needs; an Error says how to install it."""
    try:
        return importlib.import_module(module)
    except ImportError:
        raise Error(f"{what} needs the package {module}: pip install {module}", 69) from None


def arrays_of(table):
    """A table as {section: array}. META and other JSON sections are the bytes of their text, and FLAGS holds the header's flags. pROV is left out, because it
    names a host and a command line."""
    refuse(table.skipped, f"{table.name}: sections {' '.join(table.skipped)} are packed or unknown: pip install zstandard")
    arrays = dict(table.sections) | {name: np.frombuffer(raw, "u1") for name, raw in table.text.items() if name != "pROV"}
    return {name: arrays[name] for name in [*ORDER, "xFER", "mODEL"] if name in arrays} | {"FLAGS": np.array([table.flags], "<u8")}


def table_bytes(path, arrays):
    """The bytes of a .ckvt (formats/table/table.md) with these arrays as sections, none of them packed. An Error says why the reader of tables refuses them."""
    arrays = dict(arrays)
    flags = arrays.pop("FLAGS", None)
    unknown = sorted(arrays.keys() - set(SPECS))
    if unknown or flags is None or flags.dtype != TYPES[4] or flags.shape != (1,):
        raise Error(f"{path}: {f'array {unknown[0]} is no section of a table' if unknown else 'FLAGS is missing, or not one number of <u8'}")
    entries, body, end = [], b"", 128 + 112 * len(arrays)
    for name in [x for x in [*ORDER, "xFER", "mODEL"] if x in arrays]:
        a = arrays[name]
        refuse(a.dtype not in TYPES or a.ndim > 5, f"{path}: {name}: numbers of the type {a.dtype.str}; those of {', '.join(x.str for x in TYPES)} are read")
        refuse(not a.flags.c_contiguous, f"{path}: {name}: the array is not row-major (write numpy.ascontiguousarray of it)")
        raw, offset, dims = a.tobytes(), (end + 63) // 64 * 64, [*a.shape, 0, 0, 0, 0, 0][:5]
        sums = hashlib.sha256(raw).digest(), binascii.crc32(raw)
        body += bytes(offset - end) + raw
        end = offset + len(raw)
        entries.append(ENTRY.pack(name.encode(), 0, TYPES.index(a.dtype), a.ndim, 0, *dims, offset, len(raw), *sums, 0))
    directory, flags, n = b"".join(entries), int(flags[0]), len(entries)
    identity = hashlib.sha256(b"".join(identifying(e) for e in entries if e[:1].isupper())).digest()
    minor = 3 if flags & FLAG_BYTES else 2 if flags & FLAG_BANK else 1 if flags & FLAG_SHARES else 0
    header = [MAGIC, 128, 1, minor, 0x0102, 0, flags, end, 128, n, 112, identity, 0, bytes(28), binascii.crc32(directory)]
    data = HEADER.pack(*header, binascii.crc32(HEADER.pack(*header, 0)[:124])) + directory + body
    Table(str(path), data)
    return data


def imported(path, o, name, numbers, shape, flags=0, **meta):
    """The bytes of a .ckvt that comes from format `name`, which has no META. numbers: {section: values}; shape: the values of SHAPE; meta: more members of
    META."""
    about = {"schema": "ckvc-table-1", "shape": dict(zip(SHAPE, shape)), "label": "imported", "fingerprint": None, "alpha_kind": "paper", "keep_window": 0,
             "imported_from": name, "model_name": o.heads and os.path.basename(os.path.abspath(o.model)), "family": o.heads and o.heads[3]} | meta
    text = json.dumps(about, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()
    arrays = {k: np.ascontiguousarray(v, TYPES[int(SPECS[k][0])]) for k, v in numbers.items()}
    return table_bytes(path, arrays | {"SHAPE": np.array(shape, "<u4"), "META": np.frombuffer(text, "u1"), "FLAGS": np.array([flags], "<u8")})


def to_npz(t, path, o):
    f = io.BytesIO()
    np.savez(f, **arrays_of(t))
    put(f.getvalue(), path)


def from_npz(path, o):
    data = read(path, FILE_MAX)
    refuse(data.count(b"PK\1\2") > 1000, f"{path}: more than 1000 arrays, a table has at most {len(SPECS) + 1}")
    with zipfile.ZipFile(io.BytesIO(data)) as z:
        for entry in z.infolist():
            if entry.compress_type or not re.fullmatch(r"\w{1,8}\.npy", entry.filename):
                raise Error(f"{path}: {entry.filename} is compressed, or not called like a section with .npy: write it with numpy.savez")
        refuse(sum(entry.file_size for entry in z.infolist()) > len(data), f"{path}: its arrays have more bytes than the file: they overlap")
        return table_bytes(path, {entry.filename[:-4]: array_of(f"{path}: {entry.filename}", z.read(entry)) for entry in z.infolist()})


def to_safetensors(t, path, o):
    arrays, head, data = arrays_of(t), {"__metadata__": {"format": "pt", "content_id": t.content_id}}, b""
    for name in sorted(arrays, key=lambda x: -arrays[x].itemsize):  # arrays of wide numbers come first, so that each is aligned
        a = arrays[name]
        head[name] = {"dtype": OF_SAFETENSORS[TYPES.index(a.dtype)], "shape": list(a.shape), "data_offsets": [len(data), len(data) + a.nbytes]}
        data += a.tobytes()
    text = json.dumps(head, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    put(struct.pack("<Q", len(text)) + text + data, path, "model.safetensors")
    score = [dict(budget=float(b)) | s._asdict() for b, s in zip(t.budgets, t.score)]
    config = {"model_type": "ckvc-table", "operator": t.operator, "content_id": t.content_id, "shape": t.meta["shape"],
              "budgets": t.budgets.tolist(), "score": score, "meta": t.meta}
    put(json.dumps(config).encode() + b"\n", path, "config.json")
    put(table_bytes(t.name, arrays), path, "table.ckvt")
    return f"ckvc report {t.name} --out table-report --card {o.out}/README.md writes a card for a model hub"


def from_safetensors(path, o):
    file = os.path.join(path, "model.safetensors")
    data = memoryview(read(file, FILE_MAX))
    n, arrays = int.from_bytes(data[:8], "little"), {}
    try:
        refuse(n > TEXT_MAX, f"{file}: a header of {n} bytes, at most {TEXT_MAX} are read")
        head = json.loads(bytes(data[8 : 8 + n]))
        head.pop("__metadata__", None)
        refuse(len(head) > len(SPECS) + 1, f"{file}: {len(head)} arrays, a table has at most {len(SPECS) + 1}")
        for name, a in head.items():
            begin, end = a["data_offsets"]
            arrays[name] = np.frombuffer(data[8 + n :][begin:end], TYPES[OF_SAFETENSORS.index(a["dtype"])]).reshape(a["shape"])
        refuse(sum(a.nbytes for a in arrays.values()) > len(data), f"{file}: its arrays have more bytes than the file: they overlap")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as problem:
        raise Error(f"{file}: no file of safetensors with a table's arrays ({problem})") from None
    return table_bytes(path, arrays)


def to_gguf(t, path, o):
    gguf = needed("gguf", "--format gguf")
    kinds = {"u1": gguf.GGUFValueType.UINT8, "<f8": gguf.GGUFValueType.FLOAT64, "<u4": gguf.GGUFValueType.UINT32, "<u8": gguf.GGUFValueType.UINT64}
    w = gguf.GGUFWriter(path, "ckvc")
    w.add_string("ckvc.content_id", t.content_id)
    w.add_string("ckvc.meta", t.text["META"].decode())
    for name, a in arrays_of(t).items():
        if name not in ("FLAGS", *ORDER[: ORDER.index("QHEAD")]) or name == "META" or not a.size:
            continue
        if a.dtype in ("<f4", "<f2"):
            w.add_tensor("ckvc." + name.lower(), a)
        else:
            w.add_key_value("ckvc." + name.lower(), a.reshape(-1).tolist(), gguf.GGUFValueType.ARRAY, sub_type=kinds[a.dtype.str.replace("|", "")])
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()
    return "without the evidence"


def to_compilerkv(t, path, o):
    refuse(t.has_shares, f"{t.name}: it gives heads budgets of their own, which CompilerKV's layout has no place for (safetensors and npz do)")
    if t.operator != "paper" or t.alpha_kind != "paper" or t.keep_window:
        raise Error(f"{t.name}: a table of operator {t.operator}, alpha {t.alpha_kind}, the last {t.keep_window} kept: CompilerKV's is the paper's")
    for what, a, most in ("weight", t.weight, 1.5), ("threshold", t.tau, 1.0):
        refuse(a.min() < np.float32(0.8) or a.max() > np.float32(most), f"{t.name}: {what} {a.min():g} or {a.max():g} is outside of 0.8 ... {most:g}, which is refused")
    for b in t.budgets if not o.length else ():
        refuse(b < 1, f"{t.name}: budget {b:g} is a share of the prompt, CompilerKV's are tokens: --length T says of how many", Usage)
    tokens = [budget_tokens(b, o.length) for b in t.budgets.tolist()]
    refuse(0 in tokens or len(set(tokens)) < len(tokens), f"{t.name}: of --length {o.length} the budgets are {tokens} tokens: less than a token, or two alike", Usage)
    records = {side: t.sections.get("N" + side) for side in ("HEAD", "GATE")}
    n = {side: 0 if a is None else int(a.sum()) for side, a in records.items()}
    states = {side: 0 if a is None else int((a.sum(-1) > 0).sum()) for side, a in records.items()}
    ours = {"content_id": t.content_id, "window": t.window, "budgets": t.budgets.tolist()} | ({} if t.head_axis else {"n_kv_heads": t.n_heads})
    manifest = {"format_version": 2, "source": "offline-calibration", "algorithm": "horizon-1-cql", "head_table": "W_head.npy", "gate_table": "T_gate.npy",
                "canonical_layers": t.n_layers, "num_heads": t.n_query_heads, "num_records": sum(n.values()), "num_head_records": n["HEAD"],
                "num_gate_records": n["GATE"], "head_supported_states": states["HEAD"], "gate_supported_states": states["GATE"], "budget_values": tokens,
                "entropy_edges": t.edges_entropy.tolist(), "ppl_edges": t.edges_ppl.tolist(), "head_actions": t.head_grid.tolist(),
                "gate_actions": t.gate_grid.tolist(), "cql": {"conservative_weight": t.meta.get("cql_alpha")}, "ckvc": ours}
    put(npy(per_query(t, t.weight).transpose(2, 0, 1)), path, "W_head.npy")
    put(npy(t.tau.transpose(3, 0, 1, 2)), path, "T_gate.npy")
    put(json.dumps(manifest, sort_keys=True).encode() + b"\n", path, "manifest.json")
    return expanded(t)


def from_compilerkv(path, o):
    manifest = read_json(os.path.join(path, "manifest.json"))
    arrays = []
    for key, usual, rank in (("head_table", "W_head.npy", 3), ("gate_table", "T_gate.npy", 4)):  # budgets are the first axis of both
        name = manifest.get(key, usual)
        refuse(not isinstance(name, str) or not name or "/" in name or name.startswith("."), f"{path}: manifest.json: {key} is no plain file name")
        a = reals(os.path.join(path, name), rank).astype("<f4")
        arrays.append(a if a.ndim == rank else a[None])
    weights, tau = arrays
    ours = manifest.get("ckvc", {})
    refuse(not isinstance(ours, dict), f"{path}: manifest.json: ckvc is no object")
    budgets = ours.get("budgets", manifest.get("budget_values"))
    if (budgets is None) != bool(o.budget):
        raise Usage(f"{path}: its manifest has {'no budget_values: --budget B says what they are' if budgets is None else 'budgets: leave out --budget'}")
    budgets = numbers(path, o.budget if budgets is None else budgets, "budgets")
    grids = []  # values became float32 on their way; they are taken back to the doubles that they were
    for key, usual in (("head_actions", HEAD_GRID), ("gate_actions", GATE_GRID)):
        grid = numbers(path, manifest.get(key, usual.tolist()), key)
        nearest = usual[np.abs(grid[:, None] - usual).argmin(1)]
        grids.append(np.where(nearest.astype("f4") == grid.astype("f4"), nearest, grid))
    edges = [numbers(path, manifest.get(key), key) for key in ("entropy_edges", "ppl_edges")]
    (nB, L, H), (E, P) = weights.shape, tau.shape[2:]
    refuse([len(x) for x in edges] != [E - 1, P - 1], f"{path}: {len(edges[0])} and {len(edges[1])} edges, the thresholds' {E} x {P} bins want one fewer each")
    if tau.shape[1] != L or not nB == len(tau) == len(budgets):
        raise Error(f"{path}: weights of {nB} budgets and {L} layers, thresholds of {len(tau)} and {tau.shape[1]}, and {len(budgets)} budgets")
    check_heads(path, o, L, H, 1)
    counts = {"window": 64, "n_kv_heads": 0} | {k: v for k, v in ours.items() if k in ("window", "n_kv_heads")}
    for key, value in counts.items():
        refuse(type(value) is not int or not 0 <= value < 2**32, f"{path}: manifest.json: ckvc.{key} is no whole number from 0 on")
    G = o.heads[2] if o.heads else counts["n_kv_heads"]
    per_kv = weights.reshape(nB, L, G or H, -1) if H % (G or H) == 0 else None
    refuse(per_kv is None or (per_kv != per_kv[..., :1]).any(), f"{path}: {H} query heads do not share {G} KV heads, or those that share a KV head "
           'have other weights: without "ckvc" in manifest.json, and without --model, rows are kept as query heads')
    content = dict(BUDGET=budgets, GRIDHEAD=grids[0], GRIDGATE=grids[1], WEIGHT=per_kv[..., 0].transpose(1, 2, 0), TAU=tau.transpose(1, 2, 3, 0),
                   EDGEENT=edges[0], EDGEPPL=edges[1])
    return imported(path, o, "compilerkv", content, (L, H, G or H, E, P, nB, counts["window"], int(not G)))


def graded(t, o, kv=True):
    """The shares [L, G] of one budget, divided by the largest. kv: the format's rows are KV heads, so the table's must be, too."""
    refuse(t.share is None, f"{t.name}: this table has no budgets by head, and the format holds nothing else")
    refuse(kv and t.head_axis, f"{t.name}: the table's rows are query heads, the format's are KV heads, and how many share one is not known")
    if len(o.budget) > 1 or (not o.budget and t.n_budgets > 1):
        raise Usage(f"{t.name}: the table has {t.n_budgets} budgets, the format one number a head: --budget B says of which")
    if o.budget and o.budget[0] not in t.budgets:
        raise Usage(f"{t.name}: --budget {o.budget[0]:g} is not among the table's (ckvc inspect lists them)")
    share = t.share[..., t.budget_index(o.budget[0]) if o.budget else 0]
    return share / share.max()


def to_duo_attention(t, path, o):
    values = graded(t, o)
    if o.full_share:
        full = np.argsort(-values, axis=None, kind="stable")[: math.floor(o.full_share * values.size + 0.5)]
        values = np.isin(np.arange(values.size), full).reshape(values.shape).astype(float)
    put("".join("\t".join(f"{x:.18e}" for x in row) + "\n" for row in values).encode(), path, "full_attention_heads.tsv")
    put(json.dumps({"sink_size": 64, "recent_size": 256, "ckvc_content_id": t.content_id}).encode() + b"\n", path, "config.json")
    return "rows are KV heads; sink_size 64 and recent_size 256 are DuoAttention's defaults, not the table's"


def from_duo_attention(path, o):
    file = os.path.join(path, "full_attention_heads.tsv")
    rows = []
    for i, line in enumerate(read_text(file).splitlines(), 1):
        try:
            rows.append([float(x) for x in line.split("\t")])
        except ValueError:
            rows.append([])
        refuse(len(rows[-1]) != o.heads[2] or not np.isfinite(rows[-1]).all(), f"{file}: line {i}: want {o.heads[2]} numbers between tabs, one a KV head")
    return from_scores(path, o, "duo-attention", np.clip(rows, 0, 1))  # DuoAttention clips them in the same way


def to_headkv(t, path, o):
    values = per_query(t, graded(t, o, kv=False)[..., None])[..., 0]
    put(json.dumps({f"{l}-{h}": [float(x)] for (l, h), x in np.ndenumerate(values)}).encode() + b"\n", path)
    return expanded(t)


def from_headkv(path, o):
    L, H, G, _ = o.heads
    given, means = read_json(path), []
    refuse(len(given) != L * H, f"{path}: {len(given)} heads, the model {o.model} has {L} layers of {H} query heads")
    for key in (f"{l}-{h}" for l in range(L) for h in range(H)):
        samples = given.get(key)
        refuse(not isinstance(samples, list) or not samples or not all(type(x) in (int, float) for x in samples), f'{path}: "{key}" is missing, or no list of numbers')
        means.append(sum(samples) / len(samples))
    return from_scores(path, o, "headkv", np.reshape(means, (L, G, -1)).mean(-1))


def to_kvzip(t, path, o):
    put(npy(graded(t, o)), path)
    return "rows are KV heads; torch.save(torch.from_numpy(numpy.load(F))) makes KVzip's .pt of it"


def from_scores(path, o, name, scores):
    """The bytes of a table whose shares are proportional to scores [L, G]. They have the mean 1 and are the same at every budget."""
    L, H, G, _ = o.heads
    check_heads(path, o, *(scores.shape if scores.ndim == 2 else (len(scores), 0)), 2)
    refuse(not (scores.min() >= 0 and 0 < scores.max() < np.inf), f"{path}: score {scores.min():g}: want finite numbers from 0 up, and one above 0")
    nB = len(o.budget)
    mean = np.cumsum(scores / scores.size)[-1]  # cumsum adds one number after the other, which gives the same bits on every machine
    share = np.repeat(scores[..., None] / mean, nB, axis=-1)
    content = dict(BUDGET=o.budget, GRIDHEAD=HEAD_GRID, GRIDGATE=GATE_GRID, WEIGHT=np.ones((L, G, nB)), TAU=np.full((L, 1, 1, nB), 0.9), EDGEENT=[],
                   EDGEPPL=[], SHARE=share, CMIN=[[o.kept_floor, 8]] * nB, SCORE=[[1, 32, 7, 1, 0, 1]] * nB)
    return imported(path, o, name, content, (L, H, G, 1, 1, nB, 64, 0), FLAG_SHARES | OPERATORS.index("no-threshold"), probe="no-threshold")


def per_query(t, a):
    """Numbers of KV heads [L, G, n] as numbers of query heads [L, H, n]: each row is repeated for all query heads that read the KV head, since these keep the
    same positions. An Error says that there would be more than NUMBERS_MAX numbers."""
    if a[0, 0].size * t.n_layers * t.n_query_heads > NUMBERS_MAX:
        raise Error(f"{t.name}: {t.n_layers} layers of {t.n_query_heads} query heads are more than {NUMBERS_MAX} numbers")
    return np.repeat(a, t.n_query_heads // t.n_heads, axis=1)


def expanded(t):
    """What a user should know of rows that `per_query` repeated; None if no KV head is shared."""
    if t.n_heads < t.n_query_heads:
        return f"rows are query heads there: each of {t.n_heads} KV heads stands {t.n_query_heads // t.n_heads} times, once for every query head that reads it"


def npy(a):
    """The bytes of a .npy file of float32."""
    f = io.BytesIO()
    np.save(f, np.ascontiguousarray(a, "<f4"))
    return f.getvalue()


def array_of(path, data):
    """The array in a .npy file's bytes, which may hold no Python objects."""
    try:
        a = np.load(io.BytesIO(data), allow_pickle=False)
    except Exception as problem:  # numpy evaluates the header as Python text, which raises exceptions of many kinds
        raise Error(f"{path}: not a .npy file (numpy.save): {problem}") from None
    refuse(not isinstance(a, np.ndarray), f"{path}: not a .npy file (numpy.save), but an archive")
    return a


def reals(path, rank):
    """The finite real numbers of a .npy file: an array of `rank` dimensions, or of one fewer."""
    a = array_of(path, read(path, 8 * NUMBERS_MAX + TEXT_MAX))
    if a.dtype.kind != "f" or a.ndim not in (rank, rank - 1) or not 0 < a.size <= NUMBERS_MAX:
        raise Error(f"{path}: not an array of real numbers of {rank} dimensions")
    if not np.isfinite(a).all():
        raise Error(f"{path}: a number is {a[~np.isfinite(a)][0]}")
    return a


def numbers(path, values, key):
    """The list of finite numbers that is under a key of a manifest.json, as an array of doubles."""
    refuse(isinstance(values, list) and len(values) > 65535, f"{path}: manifest.json: {key} has {len(values)} numbers, at most 65535 are read")
    if not isinstance(values, list) or not all(type(x) in (int, float) and math.isfinite(x) for x in values):
        raise Error(f"{path}: manifest.json: {key} is missing, or no list of finite numbers")
    return np.array(values, float)


def read_text(path):
    try:
        return read(path, TEXT_MAX).decode()
    except UnicodeDecodeError as problem:
        raise Error(f"{path}: not UTF-8: {problem}") from None


def read_json(path):
    text = read_text(path)
    try:
        o = json.loads(text)
    except (ValueError, RecursionError) as problem:
        raise Error(f"{path}: {problem}") from None
    refuse(not isinstance(o, dict), f"{path}: not a JSON object")
    return o


def model_heads(path):
    """[layers, query heads, KV heads, family] of a model, which is a Hugging Face folder or a GGUF file."""
    if os.path.isdir(path):
        c = read_json(os.path.join(path, "config.json"))
        found = [c.get("num_hidden_layers"), c.get("num_attention_heads"), c.get("num_key_value_heads", c.get("num_attention_heads")), c.get("model_type")]
    else:
        meta, _ = read_gguf(path)
        family = meta.get("general.architecture")
        found = [meta.get(f"{family}.{x}") for x in ("block_count", "attention.head_count", "attention.head_count_kv")] + [family]
    refuse(not all(type(x) is int and 0 < x < 65536 for x in found[:3]) or found[1] % found[2], f"{path}: layers, query heads and KV heads are {found[:3]}: not a model's")
    return found


def check_heads(path, o, n_layers, n_heads, axis):
    """An Error if the model of --model has other layers or heads. axis: where o.heads counts them, 1 for query heads and 2 for KV heads."""
    if o.heads and (n_layers, n_heads) != (o.heads[0], o.heads[axis]):
        kind = ("query", "KV")[axis - 1]
        raise Error(f"{path}: {n_layers} layers of {n_heads} {kind} heads, the model {o.model} has {o.heads[0]} of {o.heads[axis]}")


def run(*words, to=subprocess.PIPE):
    """Runs the C program. Returns what it says, unless that goes to the open file `to`. If it fails, its last line becomes an Error."""
    try:
        done = subprocess.run(words, stdout=to, stderr=subprocess.PIPE, text=True, errors="replace")
    except OSError as why:
        raise Error(f"{words[0]}: {why.strerror}: build ckvc (make), and let $CKVC name it", 69) from None
    refuse(done.returncode, (done.stderr.strip().splitlines() or [f"{words[0]} {words[1]}: exit {done.returncode}"])[-1])
    return (done.stdout or done.stderr).rstrip()


def to_records(folder, path, o):
    """Writes a run's records as lines (formats/shard/shard.md). The C program reads the shards, so that a malicious one can harm only that process."""
    os.stat(folder)
    with open(path, "wb") as out:
        run(os.environ.get("CKVC", "ckvc"), "inspect", "--records", "--", folder, to=out)
    with open(path, "rb") as lines:
        n = sum(1 for _ in lines)
    refuse(not n, f"{folder}: no pass of this run has records")
    return f"{n} records"


FORMATS = {"safetensors": (to_safetensors, from_safetensors), "npz": (to_npz, from_npz),
           "compilerkv": (to_compilerkv, from_compilerkv), "duo-attention": (to_duo_attention, from_duo_attention),
           "headkv": (to_headkv, from_headkv), "kvzip": (to_kvzip, lambda path, o: from_scores(path, o, "kvzip", reals(path, 2))),
           "gguf": (to_gguf, None), "records": (to_records, None)}
HEAD_NUMBERS = ("duo-attention", "headkv", "kvzip")
FOLDERS = ("safetensors", "compilerkv", "duo-attention")


def options(verb, words):
    """The command line of `export` or `import`. Usage says which options do not go together."""
    p = Parser(prog=f"python3 -m ckvc {verb}", description="Tables and records in other programs' formats, and back.")
    p.add_argument("input")
    p.add_argument("--format", choices=FORMATS, required=True)
    p.add_argument("-o", "--out", required=True)
    p.add_argument("-f", "--force", action="store_true", help="Overwrite the output.")
    p.add_argument("--budget", default=[], type=numbers_of, metavar="B,...", help="Export these of the table's budgets; an import gives the table these budgets, where the format has none.")
    if verb == "export":
        p.add_argument("--length", type=int, default=0, metavar="T", help="Take budgets as shares of a prompt of this many tokens (compilerkv).")
        p.add_argument("--full-share", type=float, default=0, metavar="S", help="Give this share of the heads 1 and all others 0; 0 writes graded values (duo-attention).")
    else:
        p.add_argument("--model", metavar="DIR", help="Read the rows as those of this model's heads; only its shape is read.")
        p.add_argument("--kept-floor", was="--c-min", type=float, default=0.2, metavar="F", help="Keep at least this share of the budget in every head, for formats that have numbers per head.")
    o = p.parse_args(words)
    for name, most in ("length", 2**32 - 1), ("full_share", 1), ("kept_floor", 1):
        refuse(not 0 <= getattr(o, name, 0) <= most, f"--{name.replace('_', '-')}: got {getattr(o, name, 0)}, want 0 to {most}", Usage)
    of = {"length": ("compilerkv",), "full_share": ("duo-attention",), "model": ("compilerkv",) + HEAD_NUMBERS,
          "budget": HEAD_NUMBERS + (("compilerkv",) if verb == "import" else ())}
    for name, formats in of.items():
        refuse(getattr(o, name, None) and o.format not in formats, f"--{name.replace('_', '-')} is of --format {', '.join(formats)}, not of {o.format}", Usage)
    if verb == "import" and o.format in HEAD_NUMBERS:
        refuse(not o.model, f"{o.input}: --model DIR is needed: whose layers and heads these are, and how many query heads read a KV head", Usage)
        refuse(not o.budget, f"{o.input}: scores of heads have no budget: --budget B,... says for which the table is", Usage)
    return o


def main(verb, words):
    """Does `export` or `import`: writes OUT whole or not at all, and returns the line that is printed."""
    o = options(verb, words)
    write_it, read_it = FORMATS[o.format]
    refuse(verb == "import" and not read_it, f"--format {o.format} is written, never read", Usage)
    inputs, folder = [x for x in (o.input, getattr(o, "model", None)) if x], o.format in FOLDERS
    if verb == "export":
        with begun(o.out, o.force, inputs, folder) as made:
            note = write_it(o.input if o.format == "records" else Table.read(o.input), made, o)
        return f"{o.out}: {o.format}" + (f"; {note}" if note else "")
    check(o.out, o.force, inputs)
    o.heads = model_heads(o.model) if o.model else None
    try:
        data = read_it(o.input, o)
    except (zipfile.BadZipFile, ValueError, struct.error, OverflowError, MemoryError, RuntimeError, EOFError) as problem:
        if isinstance(problem, Error):
            raise
        raise Error(f"{o.input}: not a .{o.format} file: {problem}") from None
    publish(o.out, data, o.force, inputs)
    t = Table(o.out, data)
    return f"{o.out}: {t.n_layers} layers x {t.n_heads} {'query' if t.head_axis else 'KV'} heads, content id {t.content_id}"
