/* Inside of lib/model: which tensor is which, and an open model. Names and shapes of tensors are
 * those of the modules in modeling_*.py (model.h). */
#pragma once

#include "lib/base/hash.h"
#include "lib/base/sketch.h"
#include "lib/model/model.h"

/* ---- model_tensors.c ---- */

/* The weights of a layer, [out][in]; biases and norms are not there where the shape has none. */
typedef enum layer_part {
    W_ATTENTION_NORM, /* [M] */
    W_Q,              /* [H*D][M] */
    W_K,              /* [G*D][M] */
    W_V,
    W_O, /* [M][H*D] */
    W_Q_BIAS,
    W_K_BIAS,
    W_V_BIAS,
    W_O_BIAS,
    W_MLP_NORM, /* [M] */
    W_GATE,     /* [MLP][M] */
    W_UP,
    W_DOWN, /* [M][MLP] */
    W_GATE_BIAS,
    W_UP_BIAS,
    W_DOWN_BIAS,
    W_Q_NORM, /* [D] */
    W_K_NORM,
    W_POST_ATTENTION_NORM, /* [M] */
    W_POST_MLP_NORM,
    LAYER_PARTS
} layer_part;

/* The tensor that a weight lies in. */
typedef struct layer_tensor {
    char name[96];
    int64_t rows, cols; /* of the tensor; cols 1: a vector */
    int64_t own_rows;   /* the weight's */
    /* Of a fused tensor: the weight is blocks of `block` rows from `first` on, `stride` apart;
     * block 0: all of the tensor. */
    int64_t first, block, stride;
} layer_tensor;
/* false: the shape has no such weight. */
bool layer_tensor_of(const model_shape *s, int32_t layer, layer_part part, layer_tensor *out);

/* Embedding, head (the embedding itself when tied) and final norm, checked: there, of a type that
 * we compute with and of the shape's size. A tied model may carry its one matrix under either name,
 * or under both while they are the same bytes. */
typedef struct model_ends {
    const tensor_view *embedding, *head, *final_norm;
} model_ends;
ckvc_status model_ends_find(const model_spec *spec, model_ends *out, ckvc_err *err) CKVC_MUST_CHECK;

/* Checks that every tensor the shape asks for is there with its shape and a type that we compute
 * with, that all are finite, and computes the fingerprint (formats.md), one tensor a task. Warns of
 * tensors that are not used. */
ckvc_status model_tensors_check(const model_spec *spec, ckvc_pool *pool,
                                char fingerprint[CKVC_SHA256_HEX], ckvc_err *err) CKVC_MUST_CHECK;

/* The sketch of a checked model (lib/base/sketch.h): of a few rows of matrices, and of vectors. */
void model_sketch(const model_spec *spec, char out[SKETCH_TEXT]);

/* Bytes of the copies that a backend on the CPU makes of weights: of all, and in use at one time.
 */
typedef struct copy_bytes {
    uint64_t all;
    uint64_t least; /* the largest layer and the head: what is taken however low the limit */
} copy_bytes;
/* value_bytes, in_place: the backend's. */
copy_bytes model_copy_bytes(const model_spec *spec, size_t value_bytes, bool in_place);

/* ---- model_weights.c ---- */

typedef be_weight *layer_weights[LAYER_PARTS]; /* NULL where the shape has none */

struct model {
    model_spec *spec;
    const model_shape *shape; /* the spec's */
    backend *be;              /* borrowed */
    char fingerprint[CKVC_SHA256_HEX], sketch[SKETCH_TEXT];
    layer_weights *layers; /* [L] */
    be_weight *embedding, *final_norm;
    be_weight *head;    /* the embedding itself when tied and not scaled */
    tensor_view scaled; /* of a scaled embedding */
};

/* Attention of layer `layer`: every layer's heads, scale D^-0.5 (modeling_llama.py,
 * LlamaAttention.scaling) or query_scalar^-0.5, its own sliding window (model_shape_window). */
be_attention_shape layer_attention(const model *m, int32_t layer);
/* Which of the two bases it rotates by: 1 for rope_local_theta. */
int layer_base(const model *m, int32_t layer);

/* Acquire all of one layer's weights before use; release says that they may go. */
ckvc_status layer_acquire(model *m, int32_t layer, ckvc_err *err) CKVC_MUST_CHECK;
void layer_release(model *m, int32_t layer);
/* layer_acquire of it comes soon (weight_prefetch). */
void layer_prefetch(const model *m, int32_t layer);
