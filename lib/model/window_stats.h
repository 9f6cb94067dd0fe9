/* Private to lib/model: a prompt's statistics (paper.md section 1), which are gathered during its
 * prefill. */
#pragma once

#include "lib/model/model.h"
#include "lib/model/model_weights.h"

typedef struct window_stats {
    int32_t n_layers, n_heads, n_kv_heads;
    double *alpha;    /* [T] during the prefill the window's mass, summed over layers and heads */
    float *alpha_f32; /* [T] */
    float *rho;       /* [L][G][T] */
    double *rho_sd, *own_recent, *own_entropy; /* [L][G] */
    double *mass, *norm;                       /* [G][T] of the current layer */
} window_stats;

void window_stats_init(window_stats *s, const model_shape *shape, int64_t max_prompt);
void window_stats_fini(window_stats *s);
size_t window_stats_bytes(const model_shape *shape, int64_t max_prompt);

/* These functions follow paper.md section 1 alone; transformers has no counterpart. */
/* Adds a layer, whose window mass and value norms are in s->mass and s->norm. Layers come in their
 * order. */
void window_stats_layer(window_stats *s, int32_t layer, int64_t n_tokens, int64_t window);
/* Computes alpha from the sums, and r_struct. The caller computes r_sem, which needs the head. */
void window_stats_finish(window_stats *s, int64_t n_tokens, int64_t window, ckvc_alpha_kind kind,
                         prefill_stats *out);

/* Private to lib/model: what a prefill_watcher is shown (model.h), copied from the backend's
 * buffers layer by layer. */
typedef struct head_watch {
    float *attention;     /* [H][rows][T] of the current layer */
    float *keys, *values; /* [T][D] of the current head */
    float *queries;       /* [H/G][T][D] of the current head */
    float *rows;          /* queries of all heads, as they are read */
    double *column_sum;   /* [G][T] of the current layer */
} head_watch;

/* max_rows 0: there is no watcher, and nothing is allocated. */
void head_watch_init(head_watch *w, const model_shape *shape, int64_t max_prompt, int64_t max_rows);
void head_watch_fini(head_watch *w);
size_t head_watch_bytes(const model_shape *shape, int64_t max_prompt, int64_t max_rows);

/* The first row that must go through the last layer; first_row where there is no watcher. */
int64_t head_watch_first_row(const prefill_watcher *watcher, int64_t n_tokens, int64_t first_row);

/* A layer after its attention, as a layer_tap gets it. */
typedef struct layer_seen {
    int32_t layer;
    int64_t n_tokens, row0;
    const be_buf *q; /* its first row is position row0 */
    const be_cache *cache;
    const double *value_norms; /* [G][T] */
} layer_seen;
/* Shows the layer's heads. */
ckvc_status head_watch_layer(head_watch *w, model *m, const prefill_watcher *watcher,
                             const layer_seen *seen, ckvc_err *err) CKVC_MUST_CHECK;
