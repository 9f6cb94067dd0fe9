/* Inside of lib/model: what a prefill_watcher is shown (model.h), copied from the backend's buffers
 * layer by layer. */
#pragma once

#include "lib/model/model_weights.h"

typedef struct head_watch {
    float *attention;     /* [H][rows][T] of the layer in hand */
    float *keys, *values; /* [T][D] of the head in hand */
    float *queries;       /* [H/G][T][D] likewise */
    double *column_sum;   /* [G][T] of the layer in hand */
} head_watch;

/* max_rows 0: nobody watches, and nothing is taken. */
void head_watch_init(head_watch *w, const model_shape *shape, int64_t max_prompt, int64_t max_rows);
void head_watch_fini(head_watch *w);
size_t head_watch_bytes(const model_shape *shape, int64_t max_prompt, int64_t max_rows);

/* The first row that the last layer must go through, `first_row` without a watcher. */
int64_t head_watch_first_row(const prefill_watcher *watcher, int64_t n_tokens, int64_t first_row);

/* A layer after its attention, as a layer_tap gets it. */
typedef struct layer_seen {
    int32_t layer;
    int64_t n_tokens, row0;
    const be_buf *q; /* the first row is position row0 */
    const be_cache *cache;
    const double *value_norms; /* [G][T] */
} layer_seen;
/* Shows the layer's heads. */
ckvc_status head_watch_layer(head_watch *w, model *m, const prefill_watcher *watcher,
                             const layer_seen *seen, ckvc_err *err) CKVC_MUST_CHECK;
