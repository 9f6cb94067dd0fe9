#!/usr/bin/env python3
"""Tokenizers of other families as GGUF metadata, written by gguf-py from the families' own files in $CKVC_SHARED/data/tokenizers: ids of
llama.cpp's test strings against its expected ids, and ids of a book against `sentencepiece` and `tokenizers`."""
import json
import os
import pathlib
import tempfile

import outside

gguf, sentencepiece, tokenizers = outside.modules("gguf", "sentencepiece", "tokenizers")
a = outside.arguments(smollm2=False)
data = pathlib.Path(os.environ.get("CKVC_SHARED", outside.ROOT / "../shared")) / "data"
families = data / "tokenizers"
if not families.is_dir():
    outside.skip(f"{families} is not there: set CKVC_SHARED")
book = (data / "text/books/pride-and-prejudice-1342.txt").read_text(errors="replace")[:300000]


def vectors(name):
    texts = (families / f"vectors/ggml-vocab-{name}.gguf.inp").read_text().split("\n__ggml_vocab_test__\n")
    ids = [[int(i) for i in line.split()] for line in (families / f"vectors/ggml-vocab-{name}.gguf.out").read_text().splitlines()]
    return list(zip(texts, ids))


def check(label, path, pairs):
    wrong = [text for text, want in pairs if outside.tokens_of(a, path, text, "--no-special") != want]
    outside.at_most(f"{label}: texts of {len(pairs)} with other ids", len(wrong), 0)
    for text in wrong[:3]:
        print("   ", repr(text[:80]))


def finish(w):
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.close()


with tempfile.TemporaryDirectory() as tmp:
    path = pathlib.Path(tmp) / "vocab.gguf"
    sp = sentencepiece.SentencePieceProcessor(model_file=str(families / "llama2/tokenizer.model"))
    w = gguf.GGUFWriter(path, "llama")
    w.add_tokenizer_model("llama")
    w.add_tokenizer_pre("default")
    w.add_token_list([sp.id_to_piece(i) for i in range(len(sp))])
    w.add_token_scores([sp.get_score(i) for i in range(len(sp))])
    w.add_token_types([2 if sp.is_unknown(i) else 3 if sp.is_control(i) else 6 if sp.is_byte(i) else 1 for i in range(len(sp))])
    w.add_bos_token_id(1)
    finish(w)
    check("llama2 (SentencePiece), llama.cpp's strings", path, vectors("llama-spm"))
    check("llama2, a book, sentencepiece", path, [(book, sp.encode(book))])
    hf = tokenizers.Tokenizer.from_file(str(families / "llama2/tokenizer.json"))
    check("llama2, a book, tokenizers", path, [(book, hf.encode(book, add_special_tokens=False).ids)])

    vocab = json.loads((families / "qwen2/vocab.json").read_text())
    merges = [m for m in (families / "qwen2/merges.txt").read_text().split("\n") if m and not m.startswith("#version")]
    added = json.loads((families / "qwen2/tokenizer_config.qwen2.json").read_text())["added_tokens_decoder"]
    pieces = sorted(vocab, key=vocab.get) + [added[i]["content"] for i in sorted(added, key=int)]
    w = gguf.GGUFWriter(path, "qwen2")
    w.add_tokenizer_model("gpt2")
    w.add_tokenizer_pre("qwen2")
    w.add_token_list(pieces)
    w.add_token_types([1] * len(vocab) + [3] * len(added))
    w.add_token_merges(merges)
    finish(w)
    check("qwen2, llama.cpp's strings", path, vectors("qwen2"))
    hf = tokenizers.Tokenizer(tokenizers.models.BPE(vocab=vocab, merges=[tuple(m.split(" ")) for m in merges]))
    hf.normalizer = tokenizers.normalizers.NFC()
    hf.pre_tokenizer = tokenizers.pre_tokenizers.Sequence([
        tokenizers.pre_tokenizers.Split(tokenizers.Regex(
            r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"), "isolated"),
        tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    check("qwen2, a book, tokenizers", path, [(book, hf.encode(book).ids)])
outside.done()
