/* A head's part in features: see head_features.h. */
#include "calib/demand/head_features.h"

#include <string.h>

ckvc_head_view head_features_view(const prefill_head *h, const double *frequencies) {
    return (ckvc_head_view){.n_tokens = (uint32_t)h->n_tokens,
                            .head_dim = (uint32_t)h->head_dim,
                            .group = (uint32_t)h->group,
                            .n_rows = (uint32_t)h->n_rows,
                            .attention = h->attention,
                            .keys = h->keys,
                            .values = h->values,
                            .inv_freq = frequencies};
}

void head_features_add(const prefill_head *h, uint32_t n_heads, double *layer) {
    const int64_t T = h->n_tokens,
                  rows = CKVC_FEATURES_1_ROWS < h->n_rows ? CKVC_FEATURES_1_ROWS : h->n_rows;
    const double share = 1.0 / ((double)(rows * h->group) * n_heads);
    if (h->head == 0) { memset(layer, 0, (size_t)T * sizeof *layer); }
    for (int32_t q = 0; q < h->group; q++) {
        const float *a = h->attention + ((int64_t)q * h->n_rows + h->n_rows - rows) * T;
        for (int64_t r = 0; r < rows; r++, a += T) {
            for (int64_t t = 0; t < T; t++) { layer[t] += share * (double)a[t]; }
        }
    }
}
