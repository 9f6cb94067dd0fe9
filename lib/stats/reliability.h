/* How far two halves of a sample agree, and what that says of the whole. What is not defined is
 * NaN. */
#pragma once

#include <stddef.h>

/* What repeats of a measurement give: the mean, and the quantiles 2.5% and 97.5%, over the n
 * repeats that are defined. Where n is 0 the others are NaN. */
typedef struct sample_spread {
    double mean, lo, hi;
    size_t n;
} sample_spread;
/* The spread of values [n], of which those that are not finite count as not defined. */
sample_spread sample_spread_of(const double *values, size_t n);

/* Returns the reliability of the whole, 2 rho / (1 + rho), from the correlation rho of its two
 * halves. A correlation below 0 is returned as it is, since it shows no reliability that could be
 * corrected. Apply it to means and quantiles over many splits, not to single splits. */
double spearman_brown(double rho);
/* Does this with the mean and both quantiles of a spread. */
void spearman_brown_spread(sample_spread *halves);
/* Returns the highest correlation that two noisy measurements of one truth can be expected to
 * reach, the square root of the product of their reliabilities. NaN unless both are positive. */
double reliability_ceiling(double reliability_a, double reliability_b);
