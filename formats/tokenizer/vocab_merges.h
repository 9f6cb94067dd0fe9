/* Reader of vocab.json + merges.txt (byte-level BPE as GPT-2 saved it) into a token_spec: Qwen2 and
 * Qwen2.5 directories without a tokenizer.json. What these files leave out, the pattern and NFC, is
 * transformers' Qwen2Converter (convert_slow_tokenizer.py). */
#ifndef CKVC_VOCAB_MERGES_H
#define CKVC_VOCAB_MERGES_H

#include "lib/base/status.h"
#include "lib/token/token_spec.h"

/* vocab.json {piece: id}, merges.txt (a "#version" line, then a pair a line, by rank:
 * VOCAB_FILES_NAMES of transformers' models/qwen2/tokenization_qwen2.py) and tokenizer_config.json
 * of MODEL_DIR. *out is the caller's (token_spec_free, or handed to tokenizer_build). */
ckvc_status vocab_merges_read(const char *model_dir, token_spec **out,
                              ckvc_err *err) CKVC_MUST_CHECK;

#endif
