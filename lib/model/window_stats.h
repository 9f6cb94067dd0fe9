/* Inside of lib/model: a prompt's statistics (method.md section 1), gathered during its prefill. */
#pragma once

#include "lib/model/model.h"

typedef struct window_stats {
    int32_t n_layers, n_heads, n_kv_heads;
    double *alpha;    /* [T]: during the prefill the window's mass summed over layers and heads */
    float *alpha_f32; /* [T] */
    float *rho;       /* [L][G][T] */
    double *rho_sd, *own_recent, *own_entropy; /* [L][G] */
    double *mass, *norm;                       /* [G][T] of the layer in hand */
} window_stats;

void window_stats_init(window_stats *s, const model_shape *shape, int64_t max_prompt);
void window_stats_fini(window_stats *s);
size_t window_stats_bytes(const model_shape *shape, int64_t max_prompt);

/* What these compute is method.md section 1 alone; transformers has no counterpart. */
/* s->mass and s->norm hold this layer's window mass and value norms; layers come in their order. */
void window_stats_layer(window_stats *s, int32_t layer, int64_t n_tokens, int64_t window);
/* alpha from the sums, and r_struct. r_sem is the caller's: it needs the head. */
void window_stats_finish(window_stats *s, int64_t n_tokens, int64_t window, ckvc_alpha_kind kind,
                         prefill_stats *out);
