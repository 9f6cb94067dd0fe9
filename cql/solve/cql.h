/* Horizon-1 conservative Q-learning, tabular (paper.md section 6; Kumar et al. 2020, arXiv
 * 2006.04779, with horizon 1): the exact minimiser for one state, and the choice of its action.
 *
 *   min_Q  alpha * ( logsumexp_a Q(s,a) - sum_a pi_a Q(s,a) )
 *          + 1/2 sum_a pi_a (Q(s,a) - rbar_a)^2 + const,         pi_a = n_a / n
 *
 * Plain arrays come in, and plain arrays go out. There is no state, so every thread may call any
 * function. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/names.h"
#include "lib/base/status.h"

#define CQL_MAX_ACTIONS 4096

/* What says that a state is solved. `gradient` is max_a |g_a / pi_a| over logged actions, where g
 * is the gradient of the objective. It is at most 1e-10 * max(1, max |rbar|) when the state is
 * solved. */
typedef struct cql_certificate {
    double gradient;
    int iterations; /* how many steps the root finder took */
} cql_certificate;

/* Finds the minimiser. n [A] are counts. rbar [A] are mean rewards, and those of actions that were
 * never logged are ignored. q [A] is written: it is -INFINITY where an action was never logged, and
 * everywhere when the state has no record. alpha >= 0, and alpha = 0 gives q = rbar. Returns false
 * when the certificate fails: because of non-finite input, an alpha whose rounding alone is larger
 * than the bound, or a bug. */
bool cql_solve_exact(size_t n_actions, const uint64_t *n, const double *rbar, double cql_alpha,
                     double *q, cql_certificate *cert);
double cql_omega(double x); /* the Wright omega function: the w with w + ln w = x */

/* Returns the index of the chosen action, or -1 when none was logged (q is -INFINITY everywhere).
 * Actions within 1e-9 of the maximum tie. */
int cql_choose(const ckvc_actions *actions, const double *q);
/* Returns the action that a fit of these means chooses: -1 when nothing was logged, -2 when the
 * solver fails. Where the counts of all logged actions are equal, Q is ordered as the means are,
 * and nothing is solved. */
int cql_choice(const ckvc_actions *actions, const uint64_t *n, const double *mean,
               double cql_alpha);

/* The paper's optimiser of the same objective: AdamW over single records, starting from zeros. It
 * is there to repeat the paper's fits as the paper made them (configs/paper.conf), and to say how
 * far they stay from the minimum, which the exact solver finds and every other fit uses. */
typedef struct cql_record {
    uint32_t state;
    uint32_t action;
    double reward;
} cql_record;
typedef struct cql_adamw_options { /* the numbers are those of cql_adamw_defaults */
    double cql_alpha, lr, weight_decay, beta1, beta2, eps; /* 0.75, 3e-4, 0.01, 0.9, 0.999, 1e-8 */
    uint32_t batch, epochs;                                /* 4096, 10 */
} cql_adamw_options;
cql_adamw_options cql_adamw_defaults(void);

/* The order of the records in one epoch: a permutation that is written to order [n]. */
typedef struct cql_shuffle {
    void (*order)(const void *ctx, uint32_t epoch, uint32_t *order, size_t n);
    const void *ctx;
} cql_shuffle;
/* The order that ckvc uses by itself, from ckvc's RNG. ctx is the seed, a uint64_t. */
void cql_seeded_order(const void *seed, uint32_t epoch, uint32_t *order, size_t n);

typedef struct cql_records {
    const cql_record *at;
    size_t n, n_states, n_actions;
} cql_records;
/* Optimises and writes q [n_states][n_actions]. The status is CKVC_E_USAGE for an empty batch or
 * more than 2^32 - 1 records. */
ckvc_status cql_adamw(const cql_records *r, const cql_adamw_options *o, cql_shuffle shuffle,
                      double *q, ckvc_err *err) CKVC_MUST_CHECK;
