/* What a model directory is, and whether all of it is sound: for `ckvc inspect` and `ckvc verify`.
 * Needs no backend. */
#ifndef CKVC_MODEL_INFO_H
#define CKVC_MODEL_INFO_H

#include <jansson.h>

#include "lib/base/status.h"
#include "lib/model/model.h"

/* Reads config.json (or a GGUF file's metadata) and every byte of the weights, converting none. The
 * object: family, fingerprint, shape {n_layers, n_heads, n_kv_heads, head_dim, width, intermediate,
 * vocab, max_positions, rms_eps, rope_theta, rope, tied ...}, parameters, weight_bytes,
 * weight_types {"BF16": tensors}, memory {prompt, continuation: what it is stated for (max_prompt
 * 0: 2,048 or the context), weights_mapped: the file, which the system may drop and read again,
 * weights_float32: copies when all are kept, weights_float32_least: the largest layer and the head,
 * below which no limit goes, session: caches and activations of one prompt and one rollout, least:
 * session and weights_float32_least, all: session and weights_float32}. The caller's (json_decref);
 * NULL with err filled when the model is not sound. */
json_t *model_info(const char *dir, session_limits limits, ckvc_err *err);

/* CKVC_OK when the directory is a model that we run: config (model_config.h), every tensor's shape
 * (model_weights.h), every rule of the weight files (weights.h), no NaN. */
ckvc_status model_verify(const char *dir, ckvc_err *err) CKVC_MUST_CHECK;

#endif
