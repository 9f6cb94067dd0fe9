/* Do the worst cases lie where the risks say they should? Plain arrays. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct worst_rows {
    const double *damage, *first, *second; /* [n], all finite: a damage and its two risks */
    size_t n;
    const size_t *cluster; /* [n] rows drawn together (rank_clusters); NULL: each alone */
    bool *worst;           /* [n] set to whether it is one of the worst tenth; NULL: not asked */
} worst_rows;

/* The worst tenth: the ceil(n/10) largest damages, of equal ones those of later rows last. Low
 * risk: both risks below their medians over the same rows. */
typedef struct worst_share {
    size_t n, n_worst;
    size_t n_low, n_worst_low; /* rows of low risk; of the worst, those of low risk */
    double share;              /* n_worst_low / n_worst; NaN without rows */
    double base;   /* n_low / n: what it would be if damage had nothing to do with the risks */
    double lo, hi; /* of share: percentiles 2.5 and 97.5 over resampled rows; NaN: none asked */
} worst_share;

/* `replicates` samples of n rows (rank_members_draw), drawn from (seed, stream), medians and worst
 * tenth taken anew in each. */
worst_share worst_low_risk(const worst_rows *of, uint32_t replicates, uint64_t seed,
                           uint64_t stream);
