/* See bound.h. */
#include "cql/solve/bound.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cql/solve/cql.h"
#include "lib/base/memory.h"
#include "lib/base/order.h"

/* The difference of mean rewards to `other`, for every action; NaN where either was not drawn. */
static void differences(size_t A, const uint64_t *n, const double *mean, int other, double *d) {
    bool known = other < 0 || n[other] > 0;
    double base = other < 0 || !known ? 0.0 : mean[other];
    for (size_t a = 0; a < A; ++a) {
        d[a] = known && n[a] > 0 ? mean[a] - base : NAN;
    }
}

/* The t quantile (df degrees of freedom) at the probability of the normal quantile z > 0:
 * Abramowitz and Stegun 26.7.5, two terms. */
static double normal_to_t(double z, double df) {
    double z3 = z * z * z;
    return z + (z3 + z) / (4.0 * df) + (5.0 * z3 * z * z + 16.0 * z3 + 3.0 * z) / (96.0 * df * df);
}

double cql_lower_bound(const cql_resampled *s, int chosen, int other, double *difference) {
    size_t A = s->n_actions;
    uint32_t R = s->n_replicates;
    uint64_t n[CQL_MAX_ACTIONS];
    double mean[CQL_MAX_ACTIONS], d[CQL_MAX_ACTIONS], d_r[CQL_MAX_ACTIONS], square[CQL_MAX_ACTIONS];
    uint32_t drawn[CQL_MAX_ACTIONS] = {0};
    differences(A, s->n, s->mean, other, d);
    if (difference != NULL) { *difference = d[chosen]; }
    if (s->n_prompts < CQL_MIN_PROMPTS || R < CQL_MIN_REPLICATES || isnan(d[chosen])) {
        return -INFINITY;
    }
    double *top = ckvc_alloc(
        R, sizeof *top); /* per replicate: max over actions of the studentised deviation */
    if (top == NULL) { return -INFINITY; }
    memset(square, 0, sizeof square);

    /* pass 1: standard error of every action's difference */
    for (uint32_t r = 0; r < R; ++r) {
        s->replicate(s->ctx, r, n, mean);
        differences(A, n, mean, other, d_r);
        for (size_t a = 0; a < A; ++a) {
            if (!isnan(d[a]) && !isnan(d_r[a])) {
                square[a] += (d_r[a] - d[a]) * (d_r[a] - d[a]);
                drawn[a]++;
            }
        }
    }
    /* pass 2: the distribution of the largest deviation */
    for (uint32_t r = 0; r < R; ++r) {
        s->replicate(s->ctx, r, n, mean);
        differences(A, n, mean, other, d_r);
        top[r] = 0.0;
        for (size_t a = 0; a < A; ++a) {
            if (!isnan(d[a]) && !isnan(d_r[a]) && square[a] > 0.0) {
                top[r] = fmax(top[r], (d_r[a] - d[a]) / sqrt(square[a] / drawn[a]));
            }
        }
    }
    qsort(top, R, sizeof *top, ckvc_order_double);
    /* Resampling n prompts shows (n-1)/n of the variance and tails that know it: both are put
     * right. */
    double prompts = (double)s->n_prompts;
    double critical = normal_to_t(top[(size_t)ceil(0.95 * R) - 1], prompts - 1.0);
    free(top);
    double se = drawn[chosen] > 0 ? sqrt(square[chosen] / drawn[chosen] * prompts / (prompts - 1.0))
                                  : INFINITY;
    return d[chosen] - critical * se;
}
