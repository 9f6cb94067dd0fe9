/* Refits of resampled prompts (lib/stats/resample.h): they say how sure the choice of an action is
 * that was made from a sample of prompts. Two stores of the same records (counts.h, logged.h) give
 * the same replicates. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "cql/solve/cql.h"
#include "lib/base/status.h"
#include "lib/stats/resample.h"

/* Which rewards a fit is made from. */
typedef enum cql_reward { CQL_ADVANTAGE, CQL_RAW, CQL_LOSS_PART } cql_reward;

/* A view of a store, which cql_counts_resampled and cql_logged_resampled make. */
typedef struct cql_resampled cql_resampled;
struct cql_resampled {
    const void *store;
    const uint8_t *weight; /* [R][n_prompts], for a cql_logged */
    size_t n_states, n_actions;
    uint32_t n_replicates;
    cql_reward reward;
    double scale; /* scale of the means */
    /* Writes n and mean [A] of a state in replicate r, or in the sample itself for CQL_SAMPLE; a
     * mean is 0 where n = 0. Returns 0 without records of the state. For the sample it returns how
     * many clusters have some. */
    size_t (*state)(const cql_resampled *s, uint32_t r, size_t state, uint64_t *n, double *mean);
};
#define CQL_SAMPLE UINT32_MAX

/* Refits every replicate and writes what it chooses: choices [R][S], CQL_NO_CHOICE where a
 * replicate has no record of the state. The status is CKVC_E_BUG when the solver fails. */
#define CQL_NO_CHOICE 65535
ckvc_status cql_resampled_choices(const cql_resampled *s, const ckvc_actions *actions,
                                  double cql_alpha, uint16_t *choices,
                                  ckvc_err *err) CKVC_MUST_CHECK;
/* Writes share [S][A], the number of replicates that choose the action divided by R. */
void cql_choice_shares(const uint16_t *choices, uint32_t n_replicates, size_t n_states,
                       size_t n_actions, float *share);

/* Is one action better than another beyond chance? Returns the lower end of the simultaneous
 * one-sided 95% bound, over all logged actions, of the mean reward of `chosen` less that of
 * `other`. It is taken from the bootstrap replicates' studentised maximum (single step, as Romano
 * and Wolf 2005), so it holds although `chosen` was picked as the best of many. `other` < 0 stands
 * for a reward of exactly 0 (the unperturbed table, when rewards are advantages). *difference (may
 * be NULL) becomes the estimate. The result is -INFINITY when prompts or replicates are too few, or
 * one of the two was never logged. */
double cql_lower_bound(const cql_resampled *s, size_t state, int chosen, int other,
                       double *difference);
