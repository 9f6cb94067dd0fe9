/* Horizon-1 conservative Q-learning, tabular (method.md section 6; Kumar et al. 2020, arXiv
 * 2006.04779, with horizon 1): the exact minimiser of one state, and the choice of its action.
 *
 *   min_Q  alpha * ( logsumexp_a Q(s,a) - sum_a pi_a Q(s,a) )
 *          + 1/2 sum_a pi_a (Q(s,a) - rbar_a)^2 + const,         pi_a = n_a / n
 *
 * Plain arrays in, plain arrays out; no state of its own; safe from any thread. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/names.h"

#define CQL_MAX_ACTIONS 4096

/* max_a |g_a / pi_a| over logged actions: <= 1e-10 * max(1, max |rbar|) when solved. */
typedef struct cql_certificate {
    double gradient;
    int iterations;
} cql_certificate;

/* n [A] counts, rbar [A] mean rewards (ignored where n = 0), q [A] is written: -INFINITY where an
 * action was never logged (all of them when the state has no record). alpha >= 0; alpha = 0 gives
 * q = rbar. Returns false when the certificate fails: non-finite input, an alpha whose rounding
 * alone is larger than that, or a bug. */
bool cql_solve_exact(size_t n_actions, const uint64_t *n, const double *rbar, double cql_alpha,
                     double *q, cql_certificate *cert);
double cql_omega(double x);                      /* Wright omega: w + ln w = x */
double cql_logsumexp(size_t n, const double *x); /* -inf entries count for nothing */

/* Index of the chosen action, -1 when none was logged (q is -INFINITY everywhere). Those within
 * 1e-9 of the maximum tie. */
int cql_choose(const ckvc_actions *actions, const double *q);
/* The action that a fit of these means chooses: -1 when nothing was logged, -2 when the solver
 * fails. Where the counts of all logged actions are equal the order of Q is that of the means, and
 * nothing is solved. */
int cql_choice(const ckvc_actions *actions, const uint64_t *n, const double *mean,
               double cql_alpha);
