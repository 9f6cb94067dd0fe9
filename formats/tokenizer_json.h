/* Reader of a model directory's tokenizer.json (+ tokenizer_config.json's add_bos_token) into a token_spec. */
#ifndef CKVC_TOKENIZER_JSON_H
#define CKVC_TOKENIZER_JSON_H

#include "lib/base/status.h"
#include "lib/token/token_spec.h"

/* *out is the caller's (token_spec_free, or handed to tokenizer_build). CKVC_E_NOINPUT when the directory has none. */
ckvc_status tokenizer_json_read(const char *model_dir, token_spec **out, ckvc_err *err) CKVC_MUST_CHECK;

#endif
