/* The attention of the last rows: see window_attention.h. */
#include "calib/policies/rules/window_attention.h"

#include <string.h>

void window_mean(const prefill_head *h, uint32_t window, double *mean) {
    const int64_t rows = window_rows(h, window);
    memset(mean, 0, (size_t)h->n_tokens * sizeof *mean);
    for (int32_t q = 0; q < h->group; q++) {
        for (int64_t r = h->n_rows - rows; r < h->n_rows; r++) {
            const float *a = window_row(h, q, r);
            for (int64_t t = 0; t < h->n_tokens; t++) { mean[t] += (double)a[t]; }
        }
    }
    for (int64_t t = 0; t < h->n_tokens; t++) { mean[t] /= (double)(rows * h->group); }
}

void window_pool(const double *x, int64_t n, uint32_t pool, bool largest, double *s) {
    const int64_t side = pool / 2;
    for (int64_t t = 0; t < n; t++) {
        const int64_t from = t > side ? t - side : 0, to = t + side < n - 1 ? t + side : n - 1;
        double best = x[t], sum = 0;
        for (int64_t i = from; i <= to; i++) {
            best = x[i] > best ? x[i] : best;
            sum += x[i];
        }
        s[t] = largest ? best : sum / pool;
    }
}

static void see(const head_score *self, const prefill_head *h, bool largest, double *s,
                double *scratch) {
    const int64_t T = h->n_tokens, before = T > self->window ? T - self->window : 0;
    window_mean(h, self->window, scratch);
    window_pool(scratch, before, self->pool, largest, s);
}

void window_see_largest(const head_score *self, const prefill_head *h, const score_room *to) {
    see(self, h, true, to->s, to->scratch);
}

void window_see_mean(const head_score *self, const prefill_head *h, const score_room *to) {
    see(self, h, false, to->s, to->scratch);
}
