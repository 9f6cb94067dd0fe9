/* The readers, one for each kind of file: r->path into the empty r->spec. What a file asks for and
 * we do not do is refused by its name: a tokenizer that is nearly right would shift every id that
 * follows and look like a bad model. Private to formats/tokenizer. */
#pragma once

#include "formats/tokenizer/tokenizer_parts.h"
#include "lib/base/files.h"

/* tokenizer.json (+ tokenizer_config.json's add_bos_token). Fields and their defaults: the
 * deserialisation of Hugging Face `tokenizers` (tokenizers/src: tokenizer/serialization.rs and the
 * serialization of each part); add_bos_token: update_post_processor of
 * transformers' Llama classes (models/llama/tokenization_llama_fast.py up to transformers 4). */
ckvc_status tokenizer_json_read(token_reader *r) CKVC_MUST_CHECK;

/* SentencePiece's tokenizer.model (ModelProto: pieces, trainer_spec, normalizer_spec; protobuf, BPE
 * with scores) and tokenizer_config.json. Field numbers: google/sentencepiece,
 * src/sentencepiece_model.proto. What decides ids follows src/bpe_model.cc (merging),
 * src/normalizer.cc (white space) and, for the special tokens around and in the text, the slow
 * tokenizers of transformers: LlamaConverter (convert_slow_tokenizer.py) and InternLM2's
 * tokenization_internlm2.py. */
ckvc_status sentencepiece_read(token_reader *r, const ckvc_map *file) CKVC_MUST_CHECK;

/* A tiktoken rank file (Llama-3's tokenizer.model: one "base64 rank" a line, tiktoken/load.py).
 * Such a file holds neither the split pattern nor the special tokens. Those of Llama-3 are known
 * (Tokenizer in Meta's llama3/tokenizer.py): the pattern is built in, the tokens come from
 * added_tokens_decoder of tokenizer_config.json, and a file whose special tokens are not Llama-3's
 * is refused. */
ckvc_status tiktoken_read(token_reader *r, const ckvc_map *file) CKVC_MUST_CHECK;
/* Whether the file's first bytes are such a list and no protobuf. */
bool tiktoken_looks_like(const ckvc_map *file);

/* vocab.json {piece: id}, merges.txt (a "#version" line, then a pair a line, by rank) and
 * tokenizer_config.json: byte-level BPE as GPT-2 saved it, in Qwen2 and Qwen2.5 directories
 * (VOCAB_FILES_NAMES of transformers' models/qwen2/tokenization_qwen2.py). What these files leave
 * out, the pattern and NFC, is transformers' Qwen2Converter (convert_slow_tokenizer.py). */
ckvc_status vocab_merges_read(token_reader *r) CKVC_MUST_CHECK;

/* A GGUF file's metadata. Keys: ggml's docs/gguf.md, "Tokenizer" (tokenizer.ggml.model, .pre,
 * .tokens, .token_type, .scores, .merges, .add_bos_token ...); what a "pre" stands for: llama.cpp,
 * src/llama-vocab.cpp. CKVC_E_NOINPUT when the file has none. */
ckvc_status tokenizer_gguf_read(token_reader *r) CKVC_MUST_CHECK;
