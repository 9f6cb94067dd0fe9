/* See resampled.h. */
#include "cql/solve/resampled.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/memory.h"
#include "lib/base/order.h"
#include "lib/base/hash.h"

ckvc_status cql_resampled_choices(const cql_resampled *s, const ckvc_actions *actions,
                                  double cql_alpha, uint16_t *choices, ckvc_err *err) {
    uint64_t n[CQL_MAX_ACTIONS];
    double mean[CQL_MAX_ACTIONS];
    for (size_t i = 0; i < s->n_states; ++i) {
        for (uint32_t r = 0; r < s->n_replicates; ++r) {
            int chosen =
                s->state(s, r, i, n, mean) > 0 ? cql_choice(actions, n, mean, cql_alpha) : -1;
            CKVC_FAIL_IF(chosen < -1, err, CKVC_E_BUG,
                         "replicate %u, state %zu: the exact solver failed", r, i);
            choices[(size_t)r * s->n_states + i] = chosen < 0 ? CQL_NO_CHOICE : (uint16_t)chosen;
        }
    }
    return CKVC_OK;
}

void cql_choice_shares(const uint16_t *choices, uint32_t n_replicates, size_t n_states,
                       size_t n_actions, float *share) {
    memset(share, 0, n_states * n_actions * sizeof *share);
    for (size_t s = 0; s < n_states; ++s) {
        float *share_s = share + s * n_actions;
        for (uint32_t r = 0; r < n_replicates; ++r) {
            uint16_t a = choices[(size_t)r * n_states + s];
            if (a != CQL_NO_CHOICE) { share_s[a] += 1.0f; /* whole numbers add up exactly */ }
        }
        for (size_t a = 0; a < n_actions; ++a) { share_s[a] /= (float)n_replicates; }
    }
}

/* Writes d [A], the mean rewards less that of `other`; NaN where either was not drawn. Returns what
 * state() returns. */
static size_t differences(const cql_resampled *s, uint32_t r, size_t state, int other, uint64_t *n,
                          double *d) {
    const size_t clusters = s->state(s, r, state, n, d);
    bool known = other < 0 || n[other] > 0;
    double base = other < 0 || !known ? 0.0 : d[other];
    for (size_t a = 0; a < s->n_actions; ++a) { d[a] = known && n[a] > 0 ? d[a] - base : NAN; }
    return clusters;
}

/* Returns the t quantile (df degrees of freedom) at the probability of the normal quantile z > 0,
 * by two terms of Abramowitz and Stegun 26.7.5. */
static double normal_to_t(double z, double df) {
    double z3 = z * z * z;
    return z + (z3 + z) / (4.0 * df) + (5.0 * z3 * z * z + 16.0 * z3 + 3.0 * z) / (96.0 * df * df);
}

double cql_lower_bound(const cql_resampled *s, size_t state, int chosen, int other,
                       double *difference) {
    const size_t A = s->n_actions;
    const uint32_t R = s->n_replicates;
    assert(chosen >= 0 && (size_t)chosen < A);
    CKVC_AUTO_FREE uint64_t *n = ckvc_calloc(2 * A, sizeof *n);
    CKVC_AUTO_FREE double *d = ckvc_calloc(3 * A, sizeof *d);
    uint64_t *drawn = n + A; /* how many replicates define the difference */
    /* one replicate's differences; sums of squared deviations */
    double *d_r = d + A, *square = d_r + A;
    const double clusters = (double)differences(s, CQL_SAMPLE, state, other, n, d);
    if (difference) { *difference = d[chosen]; }
    if (clusters < RESAMPLE_MIN_PROMPTS || R < RESAMPLE_MIN_REPLICATES || isnan(d[chosen])) {
        return -INFINITY;
    }
    /* pass 1: standard error of every action's difference */
    for (uint32_t r = 0; r < R; ++r) {
        differences(s, r, state, other, n, d_r);
        for (size_t a = 0; a < A; ++a) {
            if (!isnan(d[a]) && !isnan(d_r[a])) {
                square[a] += (d_r[a] - d[a]) * (d_r[a] - d[a]);
                drawn[a]++;
            }
        }
    }
    /* pass 2: the distribution of the largest studentised deviation */
    CKVC_AUTO_FREE double *top = ckvc_calloc(R, sizeof *top);
    for (uint32_t r = 0; r < R; ++r) {
        differences(s, r, state, other, n, d_r);
        for (size_t a = 0; a < A; ++a) {
            if (!isnan(d[a]) && !isnan(d_r[a]) && square[a] > 0.0) {
                top[r] = fmax(top[r], (d_r[a] - d[a]) / sqrt(square[a] / (double)drawn[a]));
            }
        }
    }
    qsort(top, R, sizeof *top, ckvc_order_double);
    /* Resampling n clusters shows (n-1)/n of the variance, and tails as if the variance were known.
     * Both are corrected here. */
    double critical = normal_to_t(top[(size_t)ceil(0.95 * R) - 1], clusters - 1.0);
    double se = drawn[chosen] > 0
                    ? sqrt(square[chosen] / (double)drawn[chosen] * clusters / (clusters - 1.0))
                    : INFINITY;
    return d[chosen] - critical * se;
}
