/* Shares of a budget from what single prompts demanded of it: means over prompts, their intervals,
 * and how far one half of the prompts orders heads as the other does. Plain arrays.
 *
 * Sums run in the order of the prompts: callers that want the same bits of the same prompts sort
 * them. Resampling draws from (seed, key of the prompt) alone, as for every other side
 * (cql/solve/resampled.h). */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "lib/stats/reliability.h"

typedef struct shares_sample {
    size_t L, X; /* layers; entries of a layer: KV heads, or 1 where a layer is one entry */
    size_t n_prompts;
    const double *shares; /* [n_prompts][L][X] entries kept over the budget, mean about 1 */
    const uint64_t *keys; /* [n_prompts] as of resample_weights */
} shares_sample;

/* mean [L][X]; 1 everywhere without prompts. */
void shares_mean(const shares_sample *s, double *mean);

/* Percentiles 2.5 and 97.5 of the mean over bootstrap replicates: interval [L][X][2]. With fewer
 * than RESAMPLE_MIN_PROMPTS prompts or documents or RESAMPLE_MIN_REPLICATES replicates it is all
 * that a share can be, 0 to L * X. */
void shares_bootstrap(const shares_sample *s, uint32_t replicates, uint64_t seed, double *interval);
/* Counts the intervals, of interval [n][2], that hold 1: for these it is not decided whether the
 * share is more or less than an equal one. */
size_t shares_undecided(const double *interval, size_t n);

#define SHARES_GROUPS 3 /* of layers: the first third, the middle, the last */
/* Spearman's rho between the means of random halves of the prompts, over `splits` splits. */
typedef struct shares_halves {
    size_t n_groups; /* min(L, SHARES_GROUPS) */
    sample_spread overall, groups[SHARES_GROUPS];
} shares_halves;
shares_halves shares_split(const shares_sample *s, uint32_t splits, uint64_t seed);
