/* What a model is, and whether it is sound: for `ckvc inspect` and `verify`. Needs no backend. */
#pragma once

#include <jansson.h>

#include "lib/base/hash.h"
#include "lib/model/model.h"

/* CKVC_OK when the spec is of a model that we run: every tensor there with its shape
 * (model_weights.h), no NaN. Reads every byte of the weights, on all cores. */
ckvc_status model_verify(const model_spec *spec, char fingerprint[CKVC_SHA256_HEX],
                         ckvc_err *err) CKVC_MUST_CHECK;

/* Verifies it and describes it: {family, fingerprint, shape {n_layers, n_heads, n_kv_heads,
 * head_dim, width, intermediate, vocab, max_positions, rms_eps, rope_theta, rope, tied ...},
 * parameters, weight_bytes, weight_types {"BF16": tensors}, memory {prompt, continuation: what it
 * is stated for (max_prompt 0: 2,048 or the context), weights_mapped: the file, which the system
 * may drop and read again, weights_float32: copies when all are kept, weights_float32_least: the
 * largest layer and the head, below which no limit goes, session: caches and activations of one
 * prompt and one rollout, least: session and weights_float32_least, all: session and
 * weights_float32}}. The caller's (json_decref). */
ckvc_status model_info(const model_spec *spec, session_limits limits, json_t **out,
                       ckvc_err *err) CKVC_MUST_CHECK;
