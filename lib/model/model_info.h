/* What a model directory is, and whether all of it is sound: for `ckvc inspect` and `ckvc verify`. Needs no backend. */
#ifndef CKVC_MODEL_INFO_H
#define CKVC_MODEL_INFO_H

#include "lib/base/json.h"
#include "lib/base/status.h"

/* Reads config.json (or a GGUF file's metadata) and every byte of the weights. The object: family, fingerprint, shape {n_layers, n_heads, n_kv_heads, head_dim,
 * width, intermediate, vocab, max_positions, rms_eps, rope_theta, rope, tied ...}, parameters, weight_bytes (mapped from the file), weight_float32_bytes
 * (copies that running it on the CPU makes beside them), weight_types {"BF16":
 * tensors}, session_bytes {prompt, continuation, bytes}. The caller's (json_decref); NULL with err filled when the model is not sound. */
json_t *model_info(const char *dir, ckvc_err *err);

/* CKVC_OK when the directory is a model that we run: config, every tensor's shape, every rule of the weight files, no NaN. */
ckvc_status model_verify(const char *dir, ckvc_err *err) CKVC_MUST_CHECK;

#endif
