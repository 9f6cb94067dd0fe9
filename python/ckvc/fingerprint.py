"""Which model it is: the SHA-256 that shards and tables name it by.

Of a Hugging Face folder whose family the C program runs it is the C program's (first line ckvc-model-1). Of others the text that is hashed begins
with ckvc-model-torch-1 and the configuration; then come the tensors: of the folder's safetensors files, or of the model as it is loaded."""
from __future__ import annotations

import concurrent.futures
import hashlib
import json
import os
from typing import Any, List, Optional, Tuple

import torch
from safetensors import safe_open
from transformers import PreTrainedModel
from transformers.utils import cached_file

from .run_writer import canonical, sha256

# Families of the C program, and what of formats/model/model_config.c is theirs: biases of q, k, v and o, of the MLP.
FAMILIES = {"llama": ("attention_bias", True), "mistral": (None, False), "qwen2": (None, False), "qwen3": ("attention_bias", False), "phi3": (None, False)}
# Its rules for keys that make another network than the family's, by the value that does not: 1 is true, too, and 0 is false and what is empty.
FOREIGN = {1: "is_causal logit_scale logits_scaling embedding_multiplier residual_multiplier",
           0: "use_bidirectional_attention quantization_config compression_config quantization num_local_experts num_experts n_routed_experts "
              "transformers_weights attention_chunk_size per_layer_config pruned_heads kv_sharing_modes num_kv_shared_layers kv_lora_rank "
              "is_encoder_decoder add_cross_attention attn_logit_softcapping final_logit_softcapping clip_qkv use_qk_norm qk_layernorm alibi "
              "rope_interleaved mrope_section use_mrope no_rope_layers no_rope_layer_interval"}
NAMES = {torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16"}
Line = Tuple[str, str, List[int], str]


def _shape_lines(config: Any) -> Optional[str]:
    """model_shape_lines of lib/model/model_spec.c behind its first line; None: not a model of the C program."""
    rope, kind = dict(config.rope_parameters or {}), config.model_type
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
    """A tensor's name, type, shape, and the SHA-256 of its bytes."""
    data = t.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy()
    return name, kind, list(t.shape), hashlib.sha256(data).hexdigest()


def folder_of(model: PreTrainedModel) -> Optional[str]:
    """The folder that the model was loaded from, of the hub's cache, too; None: it was not."""
    name = model.config._name_or_path
    if not name or os.path.isdir(name):
        return name or None
    try:
        return os.path.dirname(cached_file(name, "config.json", revision=getattr(model.config, "_commit_hash", None), local_files_only=True))
    except (OSError, ValueError):
        return None


def fingerprint(model: PreTrainedModel) -> str:
    """The SHA-256, in hex. Weights that were changed after loading from a folder are not noticed."""
    folder, config = folder_of(model), model.config.get_text_config()
    one, index = (os.path.join(folder or "", name) for name in ("model.safetensors", "model.safetensors.index.json"))
    files: List[str] = []
    if folder and os.path.exists(one):
        files = [one]
    elif folder and os.path.exists(index):
        with open(index, encoding="utf-8") as f:
            files = [os.path.join(folder, name) for name in sorted(set(json.load(f)["weight_map"].values()))]
    tensors: List[Line] = []
    for path in files:  # some tensors at a time: hashing is what takes long
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
