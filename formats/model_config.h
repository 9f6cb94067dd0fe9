/* config.json of a Hugging Face model directory -> the shape that the runtime runs. */
#ifndef CKVC_MODEL_CONFIG_H
#define CKVC_MODEL_CONFIG_H

#include <stdbool.h>
#include <stdint.h>

#include "lib/base/status.h"

typedef enum rope_kind { ROPE_DEFAULT, ROPE_LLAMA3 } rope_kind;

typedef struct model_shape {
    char family[16];                                 /* model_type: "llama" */
    int32_t n_layers, n_heads, n_kv_heads, head_dim; /* L, H, G, D */
    int32_t width, intermediate, vocab;              /* M, MLP, V */
    int32_t max_positions;
    double rms_eps, rope_theta;
    rope_kind rope;
    double rope_factor, rope_low_freq, rope_high_freq; /* llama3 */
    int32_t rope_original_positions;                   /* llama3 */
    bool tied, qkv_bias, output_bias, mlp_bias;
    int32_t sliding_window; /* 0: none */
    int32_t bos_id;         /* -1: none */
    int32_t eos_ids[8];
    int32_t n_eos;
} model_shape;

/* Reads dir/config.json, old or new style keys. What we do not run is refused by name. Every field is within stated caps. */
ckvc_status model_config_read(const char *dir, model_shape *out, ckvc_err *err) CKVC_MUST_CHECK;
/* "rope=..." etc: the resolved shape fields of the fingerprint (formats.md), LF-ended lines; the caller frees. */
char *model_shape_lines(const model_shape *s);
int64_t model_shape_parameters(const model_shape *s); /* number of weights */

#endif
