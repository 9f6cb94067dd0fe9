/* Inside of lib/model: an open model. */
#ifndef CKVC_MODEL_WEIGHTS_H
#define CKVC_MODEL_WEIGHTS_H

#include "lib/model/model.h"
#include "lib/model/model_tensors.h"

typedef be_weight *layer_weights[LAYER_PARTS]; /* NULL where the shape has none */

struct model {
    model_spec *spec;
    const model_shape *shape; /* the spec's */
    backend *be;              /* borrowed */
    char fingerprint[CKVC_SHA256_HEX];
    /* [n_decoded] weights that the backend cannot use as they lie in the file, in float32 */
    float **decoded;
    size_t n_decoded, cap_decoded;
    layer_weights *layers; /* [L] */
    be_weight *embedding, *final_norm;
    be_weight *head; /* the embedding itself when tied */
};

/* Attention of layer `layer`: every layer's heads, scale D^-0.5 (modeling_llama.py,
 * LlamaAttention.scaling), its own sliding window (model_shape_window). */
be_attention_shape layer_attention(const model *m, int32_t layer);

/* Acquire all of one layer's weights before use; release says that they may go. */
ckvc_status layer_acquire(model *m, int32_t layer, ckvc_err *err) CKVC_MUST_CHECK;
void layer_release(model *m, int32_t layer);
/* Acquires every weight once: what a backend converts is converted before the first pass. */
ckvc_status model_acquire(model *m, ckvc_err *err) CKVC_MUST_CHECK;

#endif
