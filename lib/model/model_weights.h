/* Inside of lib/model: an open model. */
#ifndef CKVC_MODEL_WEIGHTS_H
#define CKVC_MODEL_WEIGHTS_H

#include "formats/model/weights.h"
#include "lib/base/hash.h"
#include "lib/base/pool.h"
#include "lib/model/model.h"

typedef struct layer_weights { /* [out][in]; biases are NULL where the shape has none */
    be_weight *attention_norm; /* [M] */
    be_weight *q, *k, *v, *o;  /* [H*D][M], [G*D][M], [G*D][M], [M][H*D] */
    be_weight *q_bias, *k_bias, *v_bias, *o_bias;
    be_weight *mlp_norm;         /* [M] */
    be_weight *gate, *up, *down; /* [MLP][M], [MLP][M], [M][MLP] */
    be_weight *gate_bias, *up_bias, *down_bias;
} layer_weights;
#define LAYER_WEIGHTS (sizeof(layer_weights) / sizeof(be_weight *))

struct model {
    model_shape shape;
    backend *be; /* borrowed */
    weights *files;
    char *name;
    char fingerprint[CKVC_SHA256_HEX];
    float **decoded; /* [n_decoded] weights that the backend cannot use as they lie in the file, in
                        float32 */
    size_t n_decoded, cap_decoded;
    layer_weights *layers; /* [L] */
    be_weight *embedding, *final_norm;
    be_weight *head; /* the embedding itself when tied */
};

/* Checks that every tensor the shape asks for is there with its shape and a type that we compute
 * with, that all are finite, and computes the fingerprint (formats.md), one tensor a task. Names
 * and shapes are those of the modules in modeling_*.py (model.h). */
ckvc_status model_check(const model_shape *shape, const weights *files, const char *dir,
                        ckvc_pool *pool, char fingerprint[CKVC_SHA256_HEX],
                        ckvc_err *err) CKVC_MUST_CHECK;

/* Bytes of the copies that a backend on the CPU makes of weights: of all, and of what is in use at
 * one time. */
typedef struct copy_bytes {
    uint64_t all;
    uint64_t least; /* the largest layer and the head: what is taken however low the limit */
} copy_bytes;
/* matrix_value: backend_matrix_copy_bytes, 0 for products in float32. */
copy_bytes model_copy_bytes(const model_shape *s, const weights *files, size_t matrix_value);

/* Attention of layer `layer`: every layer's heads, scale D^-0.5 (modeling_llama.py,
 * LlamaAttention.scaling), its own sliding window (model_shape_window). */
be_attention_shape layer_attention(const model *m, int32_t layer);

/* Rotary frequencies [D/2] for a sequence of n_total tokens in all (prompt and continuation: one
 * base for both). transformers, modeling_rope_utils.py: _compute_llama3_parameters,
 * _compute_linear_scaling_rope_parameters, _compute_dynamic_ntk_parameters; InternLM2 computes the
 * last alike (modeling_internlm2.py, InternLM2DynamicNTKScalingRotaryEmbedding). */
void rope_frequencies(const model_shape *s, int64_t n_total, double *inv_freq);

/* Acquire all of one layer's weights before use; release says that they may go. */
ckvc_status layer_acquire(model *m, int32_t layer, ckvc_err *err) CKVC_MUST_CHECK;
void layer_release(model *m, int32_t layer);
/* Acquires every weight once, so that what a backend converts is converted before the first pass.
 */
ckvc_status model_acquire(model *m, ckvc_err *err) CKVC_MUST_CHECK;

#endif
