/* How far two halves of a sample agree, and what that says of the whole. Plain numbers in, plain
 * numbers out; NaN stands for what is not defined. */
#pragma once

#include <stddef.h>

/* Mean of what a repeat gives over the repeats where it is defined, with their 2.5% and 97.5%
 * quantiles. */
typedef struct sample_spread {
    double mean, lo, hi;
    size_t n; /* repeats that define it; 0: the rest is NaN */
} sample_spread;
sample_spread sample_spread_of(const double *values, size_t n);

/* Reliability of twice as much data from the correlation of two halves: 2 rho / (1 + rho); a
 * correlation below 0 is left as it is, since it shows no reliability that could be corrected.
 * Correct means and quantiles over splits, not single splits. */
double spearman_brown(double rho);
void spearman_brown_spread(sample_spread *halves); /* mean, lo and hi */
/* What two noisy tables of one truth can reach: sqrt of the product of their reliabilities; NaN
 * unless both are positive. */
double reliability_ceiling(double reliability_a, double reliability_b);
