/* The attention of the last rows: see window_attention.h. */
#include "judge/policies/rules/window_attention.h"

#include <string.h>
#include <math.h>
#include <stdlib.h>

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

static void score_head(const head_score *self, const prefill_head *h, bool largest, double *s,
                       double *scratch) {
    const int64_t T = h->n_tokens, before = T > self->window ? T - self->window : 0;
    window_mean(h, self->window, scratch);
    window_pool(scratch, before, self->pool, largest, s);
}

void window_see_largest(const head_score *self, const prefill_head *h, const head_output *to) {
    score_head(self, h, true, to->s, to->scratch);
}

void window_see_mean(const head_score *self, const prefill_head *h, const head_output *to) {
    score_head(self, h, false, to->s, to->scratch);
}

/* A number that orders as the double does; NaN is the lowest. */
static uint64_t key_of(double x) {
    uint64_t bits;
    if (isnan(x)) { return 0; }
    x += 0.0; /* makes -0 to 0 */
    memcpy(&bits, &x, sizeof bits);
    return bits >> 63 ? ~bits : bits | UINT64_C(1) << 63;
}

static int descending(const void *pa, const void *pb) {
    const uint64_t a = *(const uint64_t *)pa, b = *(const uint64_t *)pb;
    return (a < b) - (a > b);
}

/* Counts how many of the descending keys [n] are at least `key`. */
static uint32_t count_from(const uint64_t *keys, uint32_t n, uint64_t key) {
    uint32_t lo = 0;
    while (lo < n) {
        const uint32_t mid = lo + (n - lo) / 2;
        if (keys[mid] >= key) {
            lo = mid + 1;
        } else {
            n = mid;
        }
    }
    return lo;
}

void allot_by_rank(uint32_t n, uint32_t T, const double *s, uint32_t B, uint32_t least, uint32_t *c,
                   uint64_t *scratch) {
    if (B >= T) {
        for (uint32_t i = 0; i < n; i++) { c[i] = T; }
        return;
    }
    least = least < B ? least : B;
    const uint64_t rest = (uint64_t)n * (B - least);
    const uint32_t each = T - least;
    for (uint32_t i = 0; i < n; i++) {
        uint64_t *keys = scratch + (size_t)i * T;
        for (uint32_t t = 0; t < T; t++) { keys[t] = key_of(s[(size_t)i * T + t]); }
        qsort(keys, T, sizeof *keys, descending);
    }
    /* at least `rest` keys are from lo up, and fewer are from hi up */
    uint64_t lo = 0, hi = UINT64_MAX;
    while (hi - lo > 1) {
        const uint64_t mid = lo + (hi - lo) / 2;
        uint64_t count = 0;
        for (uint32_t i = 0; i < n; i++) {
            count += count_from(scratch + (size_t)i * T + least, each, mid);
        }
        if (count >= rest) {
            lo = mid;
        } else {
            hi = mid;
        }
    }
    uint64_t left = rest;
    for (uint32_t i = 0; i < n; i++) {
        c[i] = count_from(scratch + (size_t)i * T + least, each, lo + 1);
        left -= c[i];
        c[i] += least;
    }
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t equal = count_from(scratch + (size_t)i * T + least, each, lo) + least - c[i];
        const uint32_t more = left < equal ? (uint32_t)left : equal;
        c[i] += more;
        left -= more;
    }
}
