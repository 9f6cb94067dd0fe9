/* The correlation of two quantities where others are held fixed, with intervals from resampled
 * prompts. It works on plain arrays. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PARTIAL_CONTROLS_MAX 4

/* What is correlated: x and y, and the controls, columns of n values each. */
typedef struct partial_columns {
    const double *x, *y;
    const double *controls[PARTIAL_CONTROLS_MAX];
    size_t n_controls, n;
    /* [n] Rows with equal numbers are drawn together (rank_clusters); NULL: each row by itself. */
    const size_t *cluster;
} partial_columns;

typedef struct partial_result {
    double r; /* NaN where it is undefined */
    /* percentiles 2.5 and 97.5 of r over resampled rows; NaN where r is defined in fewer than half
     * of them */
    double lo, hi;
    /* How many controls were used, which are those that are neither constant nor determined by the
     * controls before them. */
    size_t n_controls;
} partial_result;

/* Pearson's correlation of the residuals of x and y, after least squares on the controls and a
 * constant. With `ranks`, values are replaced by their average ranks: this is Spearman's partial
 * correlation, and without controls Spearman's rho. It is undefined where n < controls + 3, where a
 * residual is zero up to rounding, or where a value is NaN. The interval comes from `replicates`
 * samples of n rows (rank_members_draw), drawn from (seed, stream), with ranks computed anew in
 * each; with 0 replicates there is no interval. */
partial_result partial_correlation(const partial_columns *c, bool ranks, uint32_t replicates,
                                   uint64_t seed, uint64_t stream);
