/* Do the worst cases lie where the risks say they should? Plain arrays. */
#ifndef CKVC_WORST_H
#define CKVC_WORST_H

#include <stddef.h>
#include <stdint.h>

#include "lib/base/status.h"

/* The worst tenth: the ceil(n/10) largest damages, of equal ones those of later rows last. Low
 * risk: both risks below their medians over the same rows. */
typedef struct worst_share {
    size_t n, n_worst;
    size_t n_low, n_worst_low; /* rows of low risk; of the worst, those of low risk */
    double share;              /* n_worst_low / n_worst; NaN without rows */
    double base;   /* n_low / n: what it would be if damage had nothing to do with the risks */
    double lo, hi; /* of share: percentiles 2.5 and 97.5 over resampled rows, medians and worst
                      tenth taken anew; NaN: none asked */
} worst_share;

/* damage, first, second [n], all finite; `replicates` samples of n rows with replacement, drawn
 * from (seed, stream). */
ckvc_status worst_low_risk(const double *damage, const double *first, const double *second,
                           size_t n, uint32_t replicates, uint64_t seed, uint64_t stream,
                           worst_share *out, ckvc_err *err) CKVC_MUST_CHECK;

#endif
