"""What this package asks of a model of transformers: its shape, the device that it is on, and to attend by a function of ours for a while."""
from __future__ import annotations

import contextlib
import inspect
import sys
from typing import Any, Callable, Dict, Iterator, Sequence

import torch
from transformers import AttentionInterface, PreTrainedModel
from transformers.cache_utils import Cache
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS, AttentionMaskInterface
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from .files import Error, refuse
from .prefill import Geometry

IMPLEMENTATIONS = ("sdpa", "eager")  # attention implementations that take a mask for each head
UNROTATED = ("afmoe", "cohere2", "cohere2_moe", "exaone4", "exaone_moe", "flint", "kolibri1")  # in these, layers that see every token do not rotate keys


def geometry_of(model: PreTrainedModel) -> Geometry:
    """The Geometry of a model, by its configuration. If only some of its layers see every token, those are a table's rows."""
    config, decoder = model.config.get_text_config(), model.get_decoder()
    H, L, window = config.num_attention_heads, config.num_hidden_layers, getattr(config, "sliding_window", None)
    rotary, half = getattr(decoder, "rotary_emb", None), getattr(sys.modules[type(decoder).__module__], "rotate_half", None)
    full = [l for l, kind in enumerate(getattr(config, "layer_types", None) or ()) if kind in ("full_attention", "attention")]
    rows = tuple(range(L)) if not full or (window or 0) >= getattr(config, "max_position_embeddings", L) else tuple(full)
    plain = {m.layer_idx for m in model.modules() if getattr(m, "use_rope", None) in (False, 0) and hasattr(m, "layer_idx")}
    if window and config.model_type in UNROTATED:
        plain = set(full) - {m.layer_idx for m in model.modules() if getattr(m, "force_rope", False)}
    return Geometry(len(rows), H, getattr(config, "num_key_value_heads", None) or H, getattr(config, "head_dim", None) or config.hidden_size // H,
                    getattr(rotary, "inv_freq", getattr(rotary, "full_attention_inv_freq", None)), rows,
                    tuple(i for i, l in enumerate(rows) if l in plain), half is not None and bool(half(torch.arange(4))[0] == -1))


def with_cache(model: PreTrainedModel, cache: Cache) -> Dict[str, Cache]:
    """The argument by which a model's forward takes a cache; transformers before 5.24 calls it past_key_values."""
    return {"cache" if "cache" in inspect.signature(model.forward).parameters else "past_key_values": cache}


def device_of(model: PreTrainedModel) -> torch.device:
    """The device that token ids go to. It is the CPU if weights are loaded only as they are needed (device "meta")."""
    at = model.get_input_embeddings().weight.device
    return torch.device("cpu") if at.type == "meta" else at


@contextlib.contextmanager
def attention_of(model: PreTrainedModel, attention: Callable[..., Any], among: Sequence[str] = IMPLEMENTATIONS) -> Iterator[str]:
    """A context manager inside which the model attends by `attention`, a function that takes what transformers' AttentionInterface hands over. Gives the name
    of the implementation that the model had before, and has again afterwards. An Error says that this one is not `among` those given (an empty list admits
    any), or that the model does not attend through AttentionInterface."""
    name, before = f"ckvc_{id(attention):x}", model.config.get_text_config()._attn_implementation
    refuse(among and before not in among, f"attention implementation {before}: want {' or '.join(among)} (attn_implementation of from_pretrained)")
    AttentionInterface.register(name, torch.compiler.disable(attention))
    if before in ALL_MASK_ATTENTION_FUNCTIONS:
        AttentionMaskInterface.register(name, ALL_MASK_ATTENTION_FUNCTIONS[before])
    try:
        model.set_attn_implementation(name)
        if model.config.get_text_config()._attn_implementation != name:
            raise Error(f"{type(model).__name__} does not attend through transformers' AttentionInterface: want a model that does")
        yield before
    finally:
        model.set_attn_implementation(before)
        AttentionInterface._global_mapping.pop(name)
        AttentionMaskInterface._global_mapping.pop(name, None)


def original_attention(before: str, module: torch.nn.Module, *args: Any, **kwargs: Any) -> Any:
    """Attention by the implementation named `before`. Each model's file has its own function for `eager`. flash_attention_2 and its like look up their own
    name in the configuration, so that the configuration gets it for the call."""
    attend = sys.modules[type(module).__module__].eager_attention_forward if before == "eager" else ALL_ATTENTION_FUNCTIONS[before]
    config, name = module.config, module.config._attn_implementation
    config._attn_implementation_internal = before
    try:
        return attend(module, *args, **kwargs)
    finally:
        config._attn_implementation_internal = name


def check_attention(module: torch.nn.Module, n_tokens: int, kwargs: Dict[str, Any]) -> None:
    """An Error if the module attends to a sequence of n_tokens in another way than by a softmax over all of it, and sinks."""
    window = kwargs.get("sliding_window")
    why = f"a sliding window of {window}, shorter than the sequence of {n_tokens}, in every layer: positions go by themselves" if window and window < n_tokens \
        else "it caps its logits" if kwargs.get("softcap") else "its logits have a bias" if kwargs.get("position_bias") is not None else ""
    refuse(why, f"{type(module).__name__}: {why}; want plain softmax attention")
