/* Reader of a tiktoken rank file (Llama-3's tokenizer.model: one "base64 rank" a line) into a
 * token_spec.
 *
 * Such a file holds neither the split pattern nor the special tokens. Those of Llama-3 are known
 * (Tokenizer in Meta's llama3/tokenizer.py): the pattern is built in, the tokens come from
 * added_tokens_decoder of tokenizer_config.json, and a file whose special tokens are not Llama-3's
 * is refused. */
#ifndef CKVC_TIKTOKEN_H
#define CKVC_TIKTOKEN_H

#include <stdbool.h>

#include "lib/base/status.h"
#include "lib/token/token_spec.h"

/* Whether a file that begins with these bytes is such a list (tiktoken/load.py, load_tiktoken_bpe)
 * and no protobuf. */
bool tiktoken_looks_like(const void *data, size_t n);
/* MODEL_DIR/tokenizer.model, lines as in tiktoken/load.py, and added_tokens_decoder of
 * tokenizer_config.json. *out is the caller's (token_spec_free, or handed to tokenizer_build). */
ckvc_status tiktoken_read(const char *model_dir, token_spec **out, ckvc_err *err) CKVC_MUST_CHECK;

#endif
