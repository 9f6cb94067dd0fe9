/* The tokenizer of a GGUF file's metadata ("tokenizer.ggml.*") as a token_spec. */
#ifndef CKVC_TOKENIZER_GGUF_H
#define CKVC_TOKENIZER_GGUF_H

#include "lib/base/status.h"
#include "lib/token/token_spec.h"

/* Keys: ggml's docs/gguf.md, "Tokenizer" (tokenizer.ggml.model, .pre, .tokens, .token_type,
 * .scores, .merges, .add_bos_token ...); what a "pre" stands for: llama.cpp, src/llama-vocab.cpp.
 * *out is the caller's (token_spec_free, or handed to tokenizer_build). CKVC_E_NOINPUT when the
 * file has none. */
ckvc_status tokenizer_gguf_read(const char *path, token_spec **out, ckvc_err *err) CKVC_MUST_CHECK;

#endif
