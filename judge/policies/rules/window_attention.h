/* What SnapKV and those after it begin with: the attention of the prompt's last rows. */
#pragma once

#include <stdint.h>

#include "judge/policies/rules/rule.h"

static inline int64_t window_rows(const prefill_head *h, uint32_t window) {
    return window < h->n_rows ? window : h->n_rows;
}
/* Row `row` of those that are shown, of query head q: [T]. */
static inline const float *window_row(const prefill_head *h, int32_t q, int64_t row) {
    return h->attention + ((int64_t)q * h->n_rows + row) * h->n_tokens;
}
/* Mean over the last `window` rows and the group -> mean [T]. */
void window_mean(const prefill_head *h, uint32_t window, double *mean);
/* Of x [n] the largest, or the mean with zeros outside, of `pool` values around each -> s [n]. */
void window_pool(const double *x, int64_t n, uint32_t pool, bool largest, double *s);
/* head_score.on_head: mean of A before the window, the largest or the mean of `pool` positions,
 * which pooling does not cross. */
void window_see_largest(const head_score *self, const prefill_head *h, const score_room *to);
void window_see_mean(const head_score *self, const prefill_head *h, const score_room *to);

/* Capacities of units that compete for their entries. */
/* Each unit its best `least` positions, the rest of n·B entries to the best of all units; s [n][T],
 * equal scores to the earlier unit. AdaKV on the heads of a layer (kvpress, adakv_press.py), KVzip
 * on all of a model's. scratch [n][T]. */
void allot_by_rank(uint32_t n, uint32_t T, const double *s, uint32_t B, uint32_t least, uint32_t *c,
                   uint64_t *scratch);
