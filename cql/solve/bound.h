/* Is one action better than another beyond chance: a lower bound from resampled prompts. Plain
 * numbers through a callback; no state of its own.
 */
#ifndef CKVC_CQL_BOUND_H
#define CKVC_CQL_BOUND_H

#include <stddef.h>
#include <stdint.h>

/* Bootstrap replicate r of one state: n, mean [A]; n = 0 where the action was not drawn. */
typedef void (*cql_replicate_fn)(const void *ctx, uint32_t r, uint64_t *n, double *mean);

typedef struct cql_resampled {
    size_t n_actions;
    uint32_t n_replicates;
    uint64_t n_prompts; /* with a record of the state */
    const uint64_t *n;  /* [A] of the sample itself */
    const double *mean; /* [A] */
    cql_replicate_fn replicate;
    const void *ctx;
} cql_resampled;

/* Fewer prompts, and resampling says nothing. */
#define CQL_MIN_PROMPTS    8
#define CQL_MIN_REPLICATES 20

/* Lower end of the simultaneous one-sided 95% bound, over all logged actions, of the mean reward of
 * `chosen` less that of `other`: from the replicates' studentised maximum (single step, as Romano
 * and Wolf 2005), so it holds although `chosen` was picked as the best of many. `other` < 0 stands
 * for a reward of exactly 0 (the unperturbed table, when rewards are advantages). *difference (may
 * be NULL): the estimate. -INFINITY when prompts or replicates are too few, or one of the two was
 * never logged. */
double cql_lower_bound(const cql_resampled *s, int chosen, int other, double *difference);

#endif
