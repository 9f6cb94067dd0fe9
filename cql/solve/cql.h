/* Horizon-1 conservative Q-learning, tabular (method.md section 6; Kumar et al. 2020, arXiv
 * 2006.04779, with horizon 1).
 *
 *   min_Q  alpha * ( logsumexp_a Q(s,a) - sum_a pi_a Q(s,a) ) + 1/2 sum_a pi_a (Q(s,a) - rbar_a)^2
 * + const,  pi_a = n_a / n
 *
 * Plain arrays in, plain arrays out; no state of its own; safe from any thread.
 */
#ifndef CKVC_CQL_H
#define CKVC_CQL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/status.h"

#define CQL_MAX_ACTIONS 4096

typedef struct cql_certificate {
    double gradient; /* max_a |g_a / pi_a| over logged actions: <= 1e-10 * max(1, max|rbar|) when
                        solved */
    int iterations;
} cql_certificate;

/* Exact minimiser for one state. n [A] counts, rbar [A] mean rewards (ignored where n = 0), q [A]
 * is written: -INFINITY where an action was never logged (all of them when the state has no
 * record). alpha >= 0; alpha = 0 gives q = rbar. Returns false when the certificate fails (a bug or
 * non-finite input). */
bool cql_solve_exact(size_t n_actions, const uint64_t *n, const double *rbar, double cql_alpha,
                     double *q, cql_certificate *cert);
/* The objective at q for one state, with sumsq [A] = sum r^2: the constant variance part included
 * (as golden/method/cql.json). */
double cql_objective(size_t n_actions, const uint64_t *n, const double *rbar, const double *sumsq,
                     double cql_alpha, const double *q);
double cql_omega(double x); /* Wright omega: w + ln w = x */

/* Index of the chosen action, -1 when none was logged. Ties are within 1e-9 of the maximum: head ->
 * the weight nearest 1.0, of two equally near the lower; gate -> the lowest threshold. grid [A]
 * ascending values. */
int cql_choose_head(size_t n_actions, const double *q, const double *grid);
int cql_choose_gate(size_t n_actions, const double *q);

/* ---- the paper's optimiser ---- */
typedef struct cql_record {
    uint32_t state;
    uint32_t action;
    double reward;
} cql_record;
typedef struct cql_adamw_options {
    double cql_alpha, lr, weight_decay, beta1, beta2, eps; /* 0.75, 3e-4, 0.01, 0.9, 0.999, 1e-8 */
    uint32_t batch, epochs;                                /* 4096, 10 */
} cql_adamw_options;
cql_adamw_options cql_adamw_defaults(void);
/* Order of the records in one epoch: a permutation written to order [n]. */
typedef void (*cql_order_fn)(void *ctx, uint32_t epoch, uint32_t *order, size_t n);
/* q [n_states][n_actions] is written (from zeros). order_fn decides the shuffling
 * (cql_seeded_order: ckvc's RNG; tests give their own). */
ckvc_status cql_adamw(const cql_record *records, size_t n, size_t n_states, size_t n_actions,
                      const cql_adamw_options *o, cql_order_fn order_fn, void *order_ctx, double *q,
                      ckvc_err *err) CKVC_MUST_CHECK;
void cql_seeded_order(void *seed_u64, uint32_t epoch, uint32_t *order, size_t n);

#endif
