/* Private to lib/model: which tensor is which, and an open model. Tensors have the names and shapes
 * of the modules in modeling_*.py (model.h). */
#pragma once

#include "lib/base/hash.h"
#include "lib/base/sketch.h"
#include "lib/model/model.h"

/* ---- model_tensors.c ---- */

/* The weights of a layer, [out][in]. Biases and norms that the shape does not have are left out. */
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

/* The tensor that holds a weight. */
typedef struct layer_tensor {
    char name[96];
    int64_t rows, cols; /* of the tensor; cols 1: it is a vector */
    int64_t own_rows;   /* rows of the weight itself */
    /* Of a fused tensor the weight is blocks of `block` rows, from `first` on and `stride` apart.
     * block 0: it is the whole tensor. */
    int64_t first, block, stride;
} layer_tensor;
/* Finds the tensor of a layer's weight; false where the shape has no such weight. */
bool layer_tensor_of(const model_shape *s, int32_t layer, layer_part part, layer_tensor *out);

/* Embedding, head (the embedding itself where it is tied) and final norm, checked: they are there,
 * with a type that we compute with and the size that the shape implies. A tied model may store its
 * one matrix under either name, or under both if the bytes are the same. */
typedef struct model_ends {
    const tensor_view *embedding, *head, *final_norm;
} model_ends;
ckvc_status model_ends_find(const model_spec *spec, model_ends *out, ckvc_err *err) CKVC_MUST_CHECK;

/* Checks that every tensor that the shape needs is there with its shape and a type that we compute
 * with, and that all values are finite; computes the fingerprint (formats.md). Each tensor is one
 * task of the pool. Warns of tensors that are not used. */
ckvc_status model_tensors_check(const model_spec *spec, ckvc_pool *pool,
                                char fingerprint[CKVC_SHA256_HEX], ckvc_err *err) CKVC_MUST_CHECK;

/* Computes the sketch of a checked model (lib/base/sketch.h) from a few rows of its matrices and
 * from its vectors. */
void model_sketch(const model_spec *spec, char out[SKETCH_TEXT]);

/* The bytes of the copies that a backend on the CPU makes of weights. */
typedef struct copy_bytes {
    uint64_t all;
    uint64_t least; /* the largest layer and the head: taken however low the limit is */
} copy_bytes;
/* value_bytes and in_place describe the backend. */
copy_bytes model_copy_bytes(const model_spec *spec, size_t value_bytes, bool in_place);

/* ---- model_weights.c ---- */

typedef be_weight *layer_weights[LAYER_PARTS]; /* NULL where the shape has no such weight */

struct model {
    model_spec *spec;
    const model_shape *shape; /* the spec's */
    backend *be;              /* borrowed */
    char fingerprint[CKVC_SHA256_HEX], sketch[SKETCH_TEXT];
    layer_weights *layers; /* [L] */
    be_weight *embedding, *final_norm;
    be_weight *head;    /* the embedding itself where it is tied and not scaled */
    tensor_view scaled; /* of the embedding where it is scaled */
};

/* Attention of layer `layer`: the heads, which all layers share; the scale D^-0.5
 * (modeling_llama.py, LlamaAttention.scaling) or query_scalar^-0.5; the layer's own sliding window
 * (model_shape_window). */
be_attention_shape layer_attention(const model *m, int32_t layer);
/* Which of the two rotary bases a layer uses: 1 for rope_local_theta, else 0. */
int layer_base(const model *m, int32_t layer);

/* The numbers of a layer's mean keys, [G][D]. */
static inline size_t means_of_layer(const model_shape *s) {
    return (size_t)s->n_kv_heads * (size_t)s->head_dim;
}

/* layer_acquire makes all of one layer's weights ready for use; layer_release says that they may be
 * dropped. */
ckvc_status layer_acquire(model *m, int32_t layer, ckvc_err *err) CKVC_MUST_CHECK;
void layer_release(model *m, int32_t layer);
/* Announces that layer_acquire of this layer comes soon (weight_prefetch). */
void layer_prefetch(const model *m, int32_t layer);
