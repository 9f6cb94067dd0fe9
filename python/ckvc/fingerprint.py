"""Says which model a model is: by its fingerprint, the SHA-256 by which shards and tables name it, and by its sketch, which also tells the same model in
another file.

If the model comes from a Hugging Face folder of a family that the C program runs, its fingerprint is the one that the C program computes; the text that is
hashed begins with the line ckvc-model-1. For other models this text begins with ckvc-model-torch-1 and the configuration, and the tensors follow: those of the
folder's safetensors files, or those of the model as it is loaded."""
from __future__ import annotations

import concurrent.futures
import contextlib
import hashlib
import json
import math
import os
import re
import sys
import weakref
from typing import Any, Callable, Dict, Iterable, List, Mapping, MutableMapping, NamedTuple, Optional, Sequence, Tuple, Union

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from transformers import PretrainedConfig, PreTrainedModel
from transformers.utils import cached_file

from .files import Error, read
from .json_text import canonical, sha256
from .table import Array, Table, refuse

# The families of the C program, with what formats/model/model_config.c says of each: which key gives q, k, v and o biases, and whether the MLP may have them.
FAMILIES = {"llama": ("attention_bias", True), "mistral": (None, False), "qwen2": (None, False), "qwen3": ("attention_bias", False), "phi3": (None, False)}
# Its rules for keys that make another network than the family's. They are listed by the value that changes nothing: 1 or true, and 0, false or empty.
FOREIGN = {1: "is_causal logit_scale logits_scaling embedding_multiplier residual_multiplier",
           0: "use_bidirectional_attention quantization_config compression_config quantization num_local_experts num_experts n_routed_experts "
              "transformers_weights attention_chunk_size per_layer_config pruned_heads kv_sharing_modes num_kv_shared_layers kv_lora_rank "
              "is_encoder_decoder add_cross_attention attn_logit_softcapping final_logit_softcapping clip_qkv use_qk_norm qk_layernorm alibi "
              "rope_interleaved mrope_section use_mrope no_rope_layers no_rope_layer_interval"}
NAMES = {torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16"}
Line = Tuple[str, str, List[int], str]
# Of a sketch (lib/base/sketch.h): how many numbers it has of vectors, and as many of matrices; how many layers at most; the steps that 1 is divided into; where the
# signs of tensors begin; by how much a type rounds, in 1/10000; and the value that says that this is not known.
NUMBERS, LAYERS, STEPS, TENSOR, ROUNDING, NO_MATRICES = 24, 16, 8192, 1 << 24, {torch.float32: 0, torch.float16: 3, torch.bfloat16: 15}, 0xFFFF
FLOATS = ("rms_eps", "rope_theta", "rope_factor", "rope_low_freq", "rope_high_freq")
SKETCH, INDEX_MAX = re.compile(r"1 [0-9a-f]{4}( [0-9a-f]{12}){2}( [0-9a-f]{96}){2}"), 64 << 20
ALL = slice(None)
_sketches: MutableMapping[PreTrainedModel, List[str]] = weakref.WeakKeyDictionary()


def _shape_lines(config: Any) -> Optional[str]:
    """The lines of a model's shape, as model_shape_lines of lib/model/model_spec.c writes them, after a first line of their own. None if the C program does
    not run the model."""
    rope, kind = dict(getattr(config, "rope_parameters", None) or {}), config.model_type
    scheme = rope.get("rope_type") or "default"
    share, said = float(rope.get("partial_rotary_factor") or 1), {**rope, **config.to_dict()}
    window, types = said.get("sliding_window"), said.get("layer_types")
    if kind not in FAMILIES or scheme not in ("default", "llama3", "linear", "dynamic") or (scheme if kind == "phi3" else share) not in ("default", 1.0) \
            or config.hidden_act not in ("silu", "swish") or (kind == "llama" and window and not types and window < config.max_position_embeddings) \
            or any((said[key] or 0) != plain for plain, keys in FOREIGN.items() for key in keys.split()
                   if key in said and (said[key] is not None or key == "is_causal")):
        return None
    H, D = config.num_attention_heads, getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    out = ["ckvc-model-1", f"family={kind}", f"layers={config.num_hidden_layers}", f"heads={H}", f"kv_heads={config.num_key_value_heads}",
           f"head_dim={D}", f"width={config.hidden_size}", f"intermediate={config.intermediate_size}", f"vocab={config.vocab_size}",
           f"rms_eps={config.rms_norm_eps:.17g}", f"rope_theta={rope.get('rope_theta', 10000.0):.17g}"]
    if scheme != "default":
        out += [f"rope={scheme}", f"rope_factor={rope['factor']:.17g}"]
    if scheme == "llama3":
        out += [f"rope_low_freq={rope['low_freq_factor']:.17g}", f"rope_high_freq={rope['high_freq_factor']:.17g}",
                f"rope_original_positions={rope['original_max_position_embeddings']}"]
    if scheme == "dynamic":
        out.append(f"max_positions={config.max_position_embeddings}")
    if int(D * share) != D:
        out.append(f"rope_dims={int(D * share)}")
    bias, mlp = FAMILIES[kind]
    output = bool(bias and getattr(config, bias, False))
    out += [f"{name}=1" for name, there in (("tied", config.tie_word_embeddings), ("qkv_bias", output or kind == "qwen2"), ("output_bias", output),
                                            ("mlp_bias", mlp and getattr(config, "mlp_bias", False)), ("qk_norm", kind == "qwen3")) if there]
    full = [l for l in range(config.num_hidden_layers) if types and types[l] == "full_attention"]
    if window and kind != "llama" and (kind not in ("qwen2", "qwen3") or config.use_sliding_window) and len(full) < config.num_hidden_layers:
        out += [f"sliding_window={window}", *(f"full_layer={l}" for l in full)]
    return "\n".join(out) + "\n"


def _line(name: str, kind: str, t: torch.Tensor) -> Line:
    """The name, type and shape of a tensor, and the SHA-256 of its bytes."""
    data = t.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy()
    return name, kind, list(t.shape), hashlib.sha256(data).hexdigest()


def folder_of(config: PretrainedConfig) -> Optional[str]:
    """The folder that a model with this configuration was loaded from, which may be in the hub's cache. None if it was not loaded from one."""
    name = config._name_or_path
    if not name or os.path.isdir(name):
        return name or None
    try:
        return os.path.dirname(cached_file(name, "config.json", revision=getattr(config, "_commit_hash", None), local_files_only=True))
    except (OSError, ValueError):
        return None


def _files_of(folder: Optional[str]) -> List[str]:
    """The paths of a folder's safetensors files. Empty if it has none, or if there is no folder. An Error says that their index cannot be read."""
    one, index = (os.path.join(folder or "", name) for name in ("model.safetensors", "model.safetensors.index.json"))
    if folder and os.path.exists(one):
        return [one]
    if folder and os.path.exists(index):
        try:
            return [os.path.join(folder, name) for name in sorted(set(json.loads(read(index, INDEX_MAX))["weight_map"].values()))]
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as why:
            raise Error(f"{index}: not the index of a model's safetensors files ({why!r}): fetch it again") from None
    return []


def fingerprint(model: PreTrainedModel) -> str:
    """The model's fingerprint in hex. If it was loaded from a folder, the files are hashed, so that weights which were changed afterwards are not noticed."""
    files, config = _files_of(folder_of(model.config)), model.config.get_text_config()
    tensors: List[Line] = []
    for path in files:  # some tensors at a time in parallel, because hashing takes long
        with safe_open(path, "pt") as f, concurrent.futures.ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool:
            tensors += pool.map(lambda name: _line(name, f.get_slice(name).get_dtype(), f.get_tensor(name)), f.keys())
    if not files:
        tensors = [_line(name, NAMES.get(t.dtype, str(t.dtype)), t) for name, t in model.state_dict().items()]
    shape = _shape_lines(config) if files and config is model.config else None
    if shape is None:
        said = {k: v for k, v in model.config.to_dict().items() if k[0] != "_" and k not in ("transformers_version", "dtype")}
        shape = f"ckvc-model-torch-1\n{canonical(json.loads(json.dumps(said, default=str)))}\n"
    text = "".join(f"{name}\t{kind}\t[{','.join(map(str, dims))}]\t{digest}\n" for name, kind, dims, digest in sorted(tensors, key=lambda t: t[0].encode()))
    return sha256(shape + text)


def _signs(first: int, n: int) -> Array:
    """The signs that sketch_signs of lib/base/sketch.c gives to first, first + 1, ...: [NUMBERS, n] of 1 and -1."""
    h = np.arange(first + 1, first + n + 1, dtype=np.uint32) * np.uint32(0x9E3779B1)
    h = (h ^ h >> 15) * np.uint32(0x85EBCA77)
    h = (h ^ h >> 13) * np.uint32(0xC2B2AE3D)
    return np.where((h ^ h >> 16) >> np.arange(NUMBERS, dtype=np.uint32)[:, None] & 1, 1.0, -1.0)


def _digest(lines: Iterable[str]) -> str:
    """The digest of lines in 12 hexadecimal digits, as sketch_digest of lib/base/sketch.c computes it: the first 6 bytes of their SHA-256, read as a
    little-endian number. Without lines it is all zeros, which means that it is not known."""
    text = "".join(f"{line}\n" for line in lines)
    return hashlib.sha256(text.encode()).digest()[5::-1].hex() if text else "0" * 12


class _Weights(NamedTuple):
    """A tensor of a layer, as a sketch reads it. dtype: None if its numbers cannot be read. rows: a function that is called with a list of row numbers and
    gives these rows of a matrix [n, columns], or is called with `ALL` and gives a whole vector."""
    shape: Sequence[int]
    dtype: Optional[torch.dtype]
    rows: Callable[[Union[slice, List[int]]], torch.Tensor]


def _in_memory(t: torch.Tensor) -> _Weights:
    """A tensor of a loaded model, as a sketch reads it. Its dtype is None on the device `meta`, where weights have no numbers."""
    return _Weights(t.shape, None if t.is_meta else t.dtype, lambda at: t.detach()[at])


def _in_file(t: Any) -> _Weights:
    """What `_in_memory` gives of a tensor, of a slice of an open safetensors file (safe_open(...).get_slice). Only the rows that are asked for are read."""
    kinds = {name: kind for kind, name in NAMES.items()}
    return _Weights(t.get_shape(), kinds.get(t.get_dtype()), lambda at: t[at] if isinstance(at, slice) else torch.cat([t[i:i + 1] for i in at]))


def _sketched(config: PretrainedConfig, layers: Sequence[Mapping[str, _Weights]]) -> List[str]:
    """A sketch's numbers, without the tokenizer's, as lib/model/model_sketch.c computes them: how coarse the weights are, the digest of the shape, the numbers
    of vectors and those of matrices. Empty if no weights can be read. layers: those that count, as _sampled chooses them; their tensors by name."""
    sums, counts, rounding = np.zeros((2, NUMBERS)), [0, 0], 0
    columns = _signs(0, max((n for layer in layers for t in layer.values() for n in t.shape), default=0))
    for layer in layers:
        for kind, t in ((len(t.shape) - 1, t) for k, t in sorted(layer.items()) if k.endswith((".weight", ".bias")) and 0 < len(t.shape) < 3):
            if t.dtype not in ROUNDING:  # the weights are in a format of some library, or not in memory
                rounding = NO_MATRICES
                continue
            w = t.rows([(2 * i + 1) * t.shape[0] // (2 * NUMBERS) for i in range(NUMBERS)] if kind else ALL)
            w = w.float().cpu().numpy().astype(float).reshape(-1, t.shape[-1])
            norm = np.sqrt((w * w).sum(1))
            sums[kind] += (w * columns[:, : w.shape[1]]).sum(1) / np.where(norm > 0, norm, 1) * _signs(TENSOR + counts[kind], 1)[:, 0]
            counts[kind] += 1
            rounding = max(rounding, ROUNDING[t.dtype] * kind)
    steps = np.clip(np.rint(sums / np.sqrt(np.maximum(counts, 1))[:, None] * STEPS) + STEPS * 4, 0, 8 * STEPS - 1).astype(int)
    same = {"family": "", "vocab": "0", "tied": None}  # what a container may change without changing the model; other numbers are rounded as in GGUF
    lines = [(k, same.get(k, f"{float(v):.6g}" if k in FLOATS else v))
             for k, v in (x.split("=") for x in (_shape_lines(config) or "").splitlines()[1:])]
    return [f"{rounding if counts[1] else NO_MATRICES:04x}", _digest(f"{k}={v}" for k, v in lines if v is not None),
            *("".join(f"{x:04x}" for x in of) for of in steps)] if counts[0] else []


def _sampled(n_layers: int) -> List[int]:
    """The layers of n_layers that a sketch reads."""
    return [i * n_layers // min(n_layers, LAYERS) for i in range(min(n_layers, LAYERS))]


def _text_of(sketched: List[str], tokenizer: Any) -> str:
    """The text of a sketch. "" if there is none."""
    if not sketched:
        return ""
    rounding, shape, vectors, matrices = sketched
    added = tokenizer.added_tokens_decoder if tokenizer else {}
    words = _digest(f"{i} {t}" for i, t in sorted((i, t) for t, i in (tokenizer.get_vocab() if tokenizer else {}).items()) if i not in added and t != f"[PAD{i}]")
    return f"1 {rounding} {words} {shape} {vectors} {matrices}"


def sketch(model: PreTrainedModel, tokenizer: Any = None) -> str:
    """The sketch of a model in torch, as lib/model/model_sketch.c computes it. "" if the weights cannot be read. It is taken once of each model, so that what
    is trained later is not noticed."""
    if model not in _sketches:
        L = model.config.get_text_config().num_hidden_layers
        layers = next((m for m in model.modules() if isinstance(m, torch.nn.ModuleList) and len(m) == L), ())
        _sketches[model] = _sketched(model.config, [{k.replace(".base_layer", ""): _in_memory(t) for k, t in layers[i].named_parameters() if ".lora_" not in k}
                                                    for i in (_sampled(L) if layers else ())])
    return _text_of(_sketches[model], tokenizer)


def sketch_of_files(config: PretrainedConfig) -> str:
    """The sketch of the model that lies in the folder of this configuration, without loading it: some rows of its safetensors files are read. "" if they are
    not there, or not all of them, or if the model is of a family whose layers may have other tensors in memory than in files. An Error says that a file is
    damaged."""
    files, L = _files_of(folder_of(config)), config.get_text_config().num_hidden_layers
    if not files or not all(map(os.path.exists, files)) or _shape_lines(config) is None:
        return ""
    wanted: Dict[str, Dict[str, _Weights]] = {f"model.layers.{l}.": {} for l in _sampled(L)}
    with contextlib.ExitStack() as opened:
        try:
            for f in (opened.enter_context(safe_open(path, "pt")) for path in files):
                for name in f.keys():
                    layer = re.match(r"model\.layers\.\d+\.", name)
                    if layer and layer[0] in wanted:
                        wanted[layer[0]][name[layer.end():]] = _in_file(f.get_slice(name))
            return _text_of(_sketched(config, list(wanted.values())), None) if all(wanted.values()) else ""
        except (OSError, SafetensorError) as why:
            raise Error(f"{folder_of(config)}: a safetensors file cannot be read: {why}") from None


def same_model(table: Table, model: PreTrainedModel, tokenizer: Any = None) -> Tuple[Optional[bool], str]:
    """Whether the table was made for this model, even if from another file. None if it is not known. The text says why."""
    return same_sketch(table, sketch(model, tokenizer))


def same_sketch(table: Table, ours: str) -> Tuple[Optional[bool], str]:
    """Whether the table was made for the model whose sketch is the text `ours`, and why, as sketch_same of lib/base/sketch.c decides: True, False, or None if
    one of the two has no sketch. Shapes and tokenizers are compared by their digests, where both are known. The numbers of vectors and of matrices may differ,
    in the root mean square, by what rounding to other types of weights explains."""
    if not SKETCH.fullmatch(table.sketch) or not SKETCH.fullmatch(ours):
        return None, "one of them has no sketch of its model"
    a, b = table.sketch.split(), ours.split()
    for i, what in ((3, "shapes"), (2, "tokenizers")):
        if a[i] != b[i] and int(a[i], 16) and int(b[i], 16):
            return False, f"their {what} differ"
    known = NO_MATRICES not in (rounding := [int(x[1], 16) for x in (a, b)])
    x, y = (np.frombuffer(bytes.fromhex(s[4] + s[5]), ">u2").reshape(2, NUMBERS).astype(float) for s in (a, b))
    (vectors, matrices), within = np.sqrt((((x - y) / STEPS) ** 2).mean(1)) * [1, known], (0.001 + 1.5e-4 * math.hypot(*rounding)) * known
    return bool(vectors <= 0.003 and matrices <= within), (f"their norms differ by {vectors:.4f} and their matrices by {matrices:.4f}, where rounding may "
                                                           f"by 0.0030 and {within:.4f}")


def check_model(table: Table, model: PreTrainedModel, tokenizer: Any = None, name: Optional[str] = None) -> None:
    """An Error if a table is known to be for another model. If it is for this model in another file, a line on stderr says so. name: the model's fingerprint,
    if it is known. Of a table without a sketch nothing is known here; Table.check_model compares its shape."""
    made = table.meta.get("fingerprint")
    same, why = (None, "") if not made or made == name else same_model(table, model, tokenizer)
    ours = os.path.basename(model.config._name_or_path.rstrip("/")) or type(model).__name__
    _refuse_other(table, same, why, ours)
    if same and (name or table.sketch.split()[4:] != sketch(model).split()[4:]):
        print(f"{_made_for(table)} and is used for {ours}, whose weights are the same as far as rounding lets one tell ({why})", file=sys.stderr)


def check_files(table: Table, config: PretrainedConfig) -> None:
    """An Error if a table is known to be for another model than the one in the folder of this configuration, which is not loaded."""
    _refuse_other(table, *same_sketch(table, sketch_of_files(config)), os.path.basename(config._name_or_path.rstrip("/")))


def _made_for(table: Table) -> str:
    """The beginning of messages about a table's model: the table, that model's name, and the beginning of its fingerprint."""
    return f"{table.name}: was made for {table.meta.get('model_name')} ({str(table.meta.get('fingerprint'))[:12]}...)"


def _refuse_other(table: Table, same: Optional[bool], why: str, ours: str) -> None:
    """An Error if `same` is False, so that the table is known to be for another model. why: as same_sketch gives it. ours: the name of the model at hand."""
    refuse(same is False, f"{_made_for(table)}, this model is {ours}, and {why}; `ckvc transfer` maps a table to another model")
