/* The readers, one for each kind of file. Each reads r->path into the empty r->spec. What a file
 * asks for and we do not do is refused by its name, because a tokenizer that is nearly right would
 * shift every id that follows and look like a bad model. Private to formats/tokenizer. */
#pragma once

#include "formats/tokenizer/tokenizer_parts.h"
#include "lib/base/files.h"

/* tokenizer.json, and add_bos_token of tokenizer_config.json. Fields and their defaults are those
 * of the deserialisation in Hugging Face `tokenizers` (tokenizers/src: tokenizer/serialization.rs
 * and the serialization of each part); add_bos_token follows update_post_processor of transformers'
 * Llama classes (models/llama/tokenization_llama_fast.py up to transformers 4). */
ckvc_status tokenizer_json_read(token_reader *r) CKVC_MUST_CHECK;

/* SentencePiece's tokenizer.model (ModelProto: pieces, trainer_spec, normalizer_spec; protobuf, BPE
 * with scores) and tokenizer_config.json. Field numbers are those of google/sentencepiece,
 * src/sentencepiece_model.proto. What decides ids follows src/bpe_model.cc (merging),
 * src/normalizer.cc (white space) and, for the special tokens around and in the text, the slow
 * tokenizers of transformers: LlamaConverter (convert_slow_tokenizer.py) and InternLM2's
 * tokenization_internlm2.py. */
ckvc_status sentencepiece_read(token_reader *r, const ckvc_map *file) CKVC_MUST_CHECK;

/* A tiktoken rank file (Llama-3's tokenizer.model), with "base64 rank" in each line
 * (tiktoken/load.py). Such a file has neither the split pattern nor the special tokens. Those of
 * Llama-3 are known (Tokenizer in Meta's llama3/tokenizer.py): the pattern is built in, and the
 * tokens come from added_tokens_decoder of tokenizer_config.json. A file whose special tokens are
 * not Llama-3's is refused. */
ckvc_status tiktoken_read(token_reader *r, const ckvc_map *file) CKVC_MUST_CHECK;
/* Whether the file's first bytes are those of such a list and not of protobuf. */
bool tiktoken_looks_like(const ckvc_map *file);

/* vocab.json {piece: id}, merges.txt (a "#version" line, then one pair in each line, by rank) and
 * tokenizer_config.json: byte-level BPE as GPT-2 stored it, in directories of Qwen2 and Qwen2.5
 * (VOCAB_FILES_NAMES of transformers' models/qwen2/tokenization_qwen2.py). The pattern and NFC,
 * which these files leave out, are those of transformers' Qwen2Converter
 * (convert_slow_tokenizer.py). */
ckvc_status vocab_merges_read(token_reader *r) CKVC_MUST_CHECK;

/* A GGUF file's metadata. The keys are those of ggml's docs/gguf.md, "Tokenizer"
 * (tokenizer.ggml.model, .pre, .tokens, .token_type, .scores, .merges, .add_bos_token ...);
 * llama.cpp, src/llama-vocab.cpp, says what a "pre" stands for. CKVC_E_NOINPUT when the file has no
 * tokenizer. */
ckvc_status tokenizer_gguf_read(token_reader *r) CKVC_MUST_CHECK;
