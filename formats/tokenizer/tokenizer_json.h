/* Reader of a model directory's tokenizer.json (+ tokenizer_config.json's add_bos_token) into a
 * token_spec. */
#ifndef CKVC_TOKENIZER_JSON_H
#define CKVC_TOKENIZER_JSON_H

#include "lib/base/status.h"
#include "lib/token/token_spec.h"

/* Fields and their defaults: the deserialisation of Hugging Face `tokenizers` (tokenizers/src:
 * tokenizer/serialization.rs and the serialization of each part); add_bos_token and add_eos_token:
 * update_post_processor of transformers' Llama classes (models/llama/tokenization_llama_fast.py up
 * to transformers 4). What is not known is refused by name. *out is the caller's (token_spec_free,
 * or handed to tokenizer_build). CKVC_E_NOINPUT when the directory has none. */
ckvc_status tokenizer_json_read(const char *model_dir, token_spec **out,
                                ckvc_err *err) CKVC_MUST_CHECK;

#endif
