/* What a model is, and whether its files are intact: for `ckvc inspect` and `verify`. No backend is
 * needed. */
#pragma once

#include <jansson.h>

#include "lib/base/hash.h"
#include "lib/model/model.h"

/* Returns CKVC_OK for a model that we can run: every tensor is there with its shape
 * (model_weights.h), and all values are finite. Writes the model's fingerprint. It reads every byte
 * of the weights, on all cores. */
ckvc_status model_verify(const model_spec *spec, char fingerprint[CKVC_SHA256_HEX],
                         ckvc_err *err) CKVC_MUST_CHECK;

/* Verifies the model and describes it as JSON:
 *
 *   family, fingerprint
 *   shape         {n_layers, n_heads, n_kv_heads, head_dim, width, intermediate, vocab,
 *                  max_positions, rms_eps, rope_theta, rope, tied ...}
 *   parameters, weight_bytes
 *   weight_types  {"BF16": number of tensors}
 *   memory        {prompt, continuation: the lengths it is stated for (with max_prompt 0: 2,048, or
 *                    the context where that is shorter),
 *                  weights_mapped: the file, which the system may drop and read again,
 *                  weights_float32: copies when all are kept,
 *                  weights_float32_least: the largest layer and the head; no limit can be lower,
 *                  session: caches and activations of one prompt and one rollout,
 *                  least: session and weights_float32_least,
 *                  all: session and weights_float32}
 *
 * The caller frees *out with json_decref. */
ckvc_status model_info(const model_spec *spec, session_limits limits, json_t **out,
                       ckvc_err *err) CKVC_MUST_CHECK;
