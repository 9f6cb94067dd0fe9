/* What SnapKV and the policies that follow it are based on: the attention of the prompt's last
 * rows. */
#pragma once

#include <stdint.h>

#include "judge/policies/rules/rule.h"

/* Returns how many of the shown rows a score reads that looks at the last `window` rows. */
static inline int64_t window_rows(const prefill_head *h, uint32_t window) {
    return window < h->n_rows ? window : h->n_rows;
}
/* Returns row number `row` of the shown rows of query head q, [T]. */
static inline const float *window_row(const prefill_head *h, int32_t q, int64_t row) {
    return h->attention + ((int64_t)q * h->n_rows + row) * h->n_tokens;
}
/* Writes the mean over the last `window` rows and the group to mean [T]. */
void window_mean(const prefill_head *h, uint32_t window, double *mean);
/* Writes to s [n] the largest, or the mean with zeros outside, of the `pool` values of x [n] around
 * each place. */
void window_pool(const double *x, int64_t n, uint32_t pool, bool largest, double *s);
/* A head_score.on_head: the mean of A before the window, then the largest or the mean of `pool`
 * positions. Pooling does not reach into the window. */
void window_see_largest(const head_score *self, const prefill_head *h, const head_output *to);
void window_see_mean(const head_score *self, const prefill_head *h, const head_output *to);

/* Computes the capacities c [n] of units (heads or layers) that compete for entries. Each unit gets
 * its best `least` positions, and the rest of n·B entries goes to the best positions of all units;
 * of equal scores the earlier unit gets the entry. s is [n][T], scratch [n][T]. AdaKV does this on
 * the heads of a layer (kvpress, adakv_press.py), KVzip on all heads of a model. */
void allot_by_rank(uint32_t n, uint32_t T, const double *s, uint32_t B, uint32_t least, uint32_t *c,
                   uint64_t *scratch);
