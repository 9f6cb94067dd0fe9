/* Shares of a budget from what single prompts demanded of it: means over prompts, their intervals,
 * and how far one half of the prompts orders heads as the other half does. It works on plain
 * arrays.
 *
 * Sums run in the order of the prompts, so callers that want the same bits from the same prompts
 * sort them. Resampling draws from (seed, key of the prompt) alone, as everywhere else
 * (cql/solve/resampled.h). */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "lib/stats/reliability.h"

typedef struct shares_sample {
    /* L is the number of layers, and X the number of units of a layer: its KV heads, or 1 where a
     * layer is one unit. */
    size_t L, X;
    size_t n_prompts;
    /* [n_prompts][L][X] entries that are kept over the budget; their mean is about 1 */
    const double *shares;
    const uint64_t *keys; /* [n_prompts] keys as resample_weights takes them */
} shares_sample;

/* Writes the mean over the prompts to mean [L][X]. It is 1 everywhere without prompts. */
void shares_mean(const shares_sample *s, double *mean);

/* Writes the percentiles 2.5 and 97.5 of the mean over bootstrap replicates to interval [L][X][2].
 * With fewer than RESAMPLE_MIN_PROMPTS prompts or documents, or fewer than RESAMPLE_MIN_REPLICATES
 * replicates, the interval is all that a share can be, 0 to L * X. */
void shares_bootstrap(const shares_sample *s, uint32_t replicates, uint64_t seed, double *interval);
/* Counts the intervals, of interval [n][2], that hold 1: for these it is not decided whether the
 * share is more or less than an equal one. */
size_t shares_undecided(const double *interval, size_t n);

#define SHARES_GROUPS 3 /* groups of layers: the first third, the middle, the last */
/* Spearman's rho between the means of two random halves of the prompts, over `splits` splits. */
typedef struct shares_halves {
    size_t n_groups; /* min(L, SHARES_GROUPS) */
    sample_spread overall, groups[SHARES_GROUPS];
} shares_halves;
shares_halves shares_split(const shares_sample *s, uint32_t splits, uint64_t seed);
