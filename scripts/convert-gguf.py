#!/usr/bin/env python3
"""Makes a Hugging Face directory of a GGUF file that has the tokenizer of SmolLM2, Qwen2 or Gemma 3.

    convert-gguf.py FILE.gguf OUT-DIR [--dtype bfloat16|float32]

It needs torch, transformers, tokenizers and gguf, and accelerate and sentencepiece for transformers' GGUF loader. transformers reads
the weights, and not ckvc, so that what ckvc computes from FILE.gguf can be compared with what transformers computes from the directory.
float32 holds the weights of quantised types exactly; bfloat16 rounds each once more.
"""
import argparse
import pathlib
import sys

try:
    import gguf
    import torch
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers
    from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedTokenizerFast
except ImportError as e:
    sys.exit(f"{sys.argv[0]}: {e}: pip install torch transformers accelerate gguf sentencepiece")

CONTROL, USER_DEFINED, UNUSED = 3, 4, 5  # tokenizer.ggml.token_type
WORDS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
PIECES = {  # tokenizer.ggml.pre, as the models' tokenizer.json have it: transformers' own GGUF tokenizers split numbers as GPT-2 does
    "smollm": [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)],
    "qwen2": [pre_tokenizers.Split(Regex(WORDS), "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)],
}


def tokenizer_of(reader, path):
    """The tokenizer of an open GGUF file, for transformers. path: the file's. Ends the program if its kind is not known."""
    def value(key):
        return reader.fields[key].contents()

    if value("general.architecture") == "gemma3":  # of SentencePiece: the tokenizer that transformers makes gives the same ids as ckvc
        return AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name)
    kind, pre = (value(key) if key in reader.fields else "none" for key in ("tokenizer.ggml.model", "tokenizer.ggml.pre"))
    if kind != "gpt2" or pre not in PIECES:
        sys.exit(f"tokenizer {kind}/{pre}: this script knows gemma3's, and gpt2 with {', '.join(PIECES)}")
    tokens = value("tokenizer.ggml.tokens")
    types = value("tokenizer.ggml.token_type")
    merges = [tuple(m.split(" ")) for m in value("tokenizer.ggml.merges")]
    t = Tokenizer(models.BPE(vocab={s: i for i, (s, k) in enumerate(zip(tokens, types)) if k != UNUSED}, merges=merges))
    t.pre_tokenizer = pre_tokenizers.Sequence(PIECES[pre])
    if pre == "qwen2":
        t.normalizer = normalizers.NFC()
    t.decoder = decoders.ByteLevel()
    t.add_special_tokens([AddedToken(s, special=True, normalized=False) for s, k in zip(tokens, types) if k == CONTROL])
    t.add_tokens([AddedToken(s, normalized=False) for s, k in zip(tokens, types) if k == USER_DEFINED])
    name = {key: tokens[value(f"tokenizer.ggml.{key}_token_id")] for key in ("bos", "eos", "unknown", "padding") if f"tokenizer.ggml.{key}_token_id" in reader.fields}
    return PreTrainedTokenizerFast(tokenizer_object=t, bos_token=name.get("bos"), eos_token=name.get("eos"), unk_token=name.get("unknown"),
                                   pad_token=name.get("padding"), clean_up_tokenization_spaces=False,
                                   chat_template=value("tokenizer.chat_template") if "tokenizer.chat_template" in reader.fields else None)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("gguf", type=pathlib.Path)
    p.add_argument("out", type=pathlib.Path)
    p.add_argument("--dtype", choices=("bfloat16", "float32"), default="bfloat16")
    a = p.parse_args()
    reader = gguf.GGUFReader(a.gguf)
    loaded = AutoModelForCausalLM.from_pretrained(a.gguf.parent, gguf_file=a.gguf.name, dtype=torch.float32)
    config = loaded.config.to_dict()
    for key in ("quantization_config", "_name_or_path", "transformers_version", "dtype", "torch_dtype"):
        config.pop(key, None)
    model = type(loaded)(type(loaded.config)(**config))
    model.load_state_dict(loaded.state_dict())
    model.to(getattr(torch, a.dtype)).save_pretrained(a.out)
    tokenizer_of(reader, a.gguf).save_pretrained(a.out)
    print(f"{a.out}: {sum(x.numel() for x in model.parameters()):,} parameters in {a.dtype}")


if __name__ == "__main__":
    main()
