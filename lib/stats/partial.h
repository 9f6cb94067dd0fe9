/* Correlation of two quantities at given values of others, with intervals from resampled prompts.
 * Plain arrays. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PARTIAL_CONTROLS_MAX 4

/* What is correlated: columns of n values each. */
typedef struct partial_columns {
    const double *x, *y;
    const double *controls[PARTIAL_CONTROLS_MAX];
    size_t n_controls, n;
    const size_t *cluster; /* [n] rows drawn together (rank_clusters); NULL: each alone */
} partial_columns;

typedef struct partial_result {
    double r; /* NaN: undefined */
    /* percentiles 2.5 and 97.5 of r over resampled rows; NaN when fewer than half define it */
    double lo, hi;
    size_t n_controls; /* that say something: not a constant one, nor one that others give */
} partial_result;

/* Pearson's correlation of the residuals of x and y after least squares on the controls and a
 * constant; of the values or, with `ranks`, of their average ranks (then it is Spearman's partial
 * correlation; without controls Spearman's rho). Undefined when n < controls + 3, when a residual
 * is zero to rounding, or where a value is NaN. Its interval from `replicates` (0: none) samples of
 * n rows (rank_members_draw), drawn from (seed, stream); ranks are taken anew in each. */
partial_result partial_correlation(const partial_columns *c, bool ranks, uint32_t replicates,
                                   uint64_t seed, uint64_t stream);
