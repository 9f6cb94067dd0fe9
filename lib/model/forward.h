/* Inside of lib/model: the one layer loop, for prefill and for continuations. */
#ifndef CKVC_FORWARD_H
#define CKVC_FORWARD_H

#include "lib/model/model_weights.h"

typedef struct activations { /* rows padded to whole tiles */
    be_buf *x, *norm;        /* [rows][M]: the residual stream; its normed copy, after the loop the final norm's output */
    be_buf *q, *mix;         /* [rows][H*D] */
    be_buf *k, *v;           /* [rows][G*D] */
    be_buf *gate, *up;       /* [rows][MLP] */
} activations;

typedef struct kv_cache { /* [G][capacity][D], per layer */
    be_buf **k, **v;
    int64_t capacity;
} kv_cache;

/* Called after the attention of layer `layer` with queries and cache in place; may read, never changes anything. */
typedef ckvc_status (*layer_tap)(void *ctx, int32_t layer, const be_buf *q, const be_buf *cache_k, const be_buf *cache_v,
                                 ckvc_err *err);

typedef struct forward_pass {
    model *m;
    const activations *act;
    const int32_t *tokens;  /* [n_rows], host, inside the vocabulary */
    const double *inv_freq; /* [D/2], rope_frequencies of prompt and continuation together */
    int64_t n_rows;
    const kv_cache *prompt; /* a prefill writes it; a continuation reads it */
    /* prefill: continuation false, the rows are positions 0 ... n_rows-1 */
    layer_tap tap; /* or NULL */
    void *tap_ctx;
    /* continuation: rows are positions n_prompt ...; own is one layer's cache, used by each layer in turn */
    bool continuation;
    int64_t n_prompt;
    const kept_set *sets; /* [L], or NULL: the full cache */
    const kv_cache *own;
} forward_pass;

/* Leaves the normed top rows in act->norm. */
ckvc_status forward(const forward_pass *p, ckvc_err *err) CKVC_MUST_CHECK;

/* The backend's head_nll and head_logits with the model's head, which is acquired for the call alone: it is a model's largest matrix. */
ckvc_status model_head_nll(model *m, const be_buf *x, int64_t row0, int64_t n_rows, const int32_t *target, double *nll,
                           ckvc_err *err) CKVC_MUST_CHECK;
ckvc_status model_head_logits(model *m, const be_buf *x, int64_t row, float *logits, ckvc_err *err) CKVC_MUST_CHECK;

#endif
