/* The tokenizer of a model. A GGUF file has it in its metadata. A directory has it in the first of
 * these that is there: tokenizer.json; tokenizer.model (SentencePiece or tiktoken, which differ in
 * their first bytes); vocab.json with merges.txt. */
#pragma once

#include "lib/token/token_spec.h"

/* Reads a model's tokenizer. The order is that of transformers' fast tokenizers, which take
 * tokenizer.json (FULL_TOKENIZER_FILE, tokenization_utils_base.py) before they convert what the
 * slow ones read (convert_slow_tokenizer.py). The caller frees *out (token_spec_free) or hands it
 * to tokenizer_build, and frees *path, the file's name for messages; both are NULL after a failure.
 * CKVC_E_NOINPUT when the directory has none of these files; CKVC_E_DATA for a file that asks for
 * something that we do not do. */
ckvc_status tokenizer_files_read(const char *model_dir, token_spec **out, char **path,
                                 ckvc_err *err) CKVC_MUST_CHECK;
