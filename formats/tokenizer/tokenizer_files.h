/* The tokenizer of a model: of a GGUF file its metadata; of a directory whichever file it has:
 * tokenizer.json, else tokenizer.model (SentencePiece or tiktoken, told apart by its first bytes),
 * else vocab.json with merges.txt. */
#pragma once

#include "lib/token/token_spec.h"

/* The order is that of transformers' fast tokenizers, which take tokenizer.json
 * (FULL_TOKENIZER_FILE, tokenization_utils_base.py) before they convert what the slow ones read
 * (convert_slow_tokenizer.py). *out is the caller's (token_spec_free, or handed to
 * tokenizer_build), *path (for messages) the caller's to free; both are NULL after a failure.
 * CKVC_E_NOINPUT when the directory has none of these files. */
ckvc_status tokenizer_files_read(const char *model_dir, token_spec **out, char **path,
                                 ckvc_err *err) CKVC_MUST_CHECK;
