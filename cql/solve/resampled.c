/* See resampled.h. */
#include "cql/solve/resampled.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/memory.h"
#include "lib/base/order.h"
#include "lib/base/hash.h"

#define STAGE 0x62740000u /* of the RNG's stream of weights, plus the kind of resampling */

void cql_resample_weights(uint64_t seed, uint64_t key, cql_resample kind, uint32_t n_replicates,
                          uint8_t *weight) {
    ckvc_rng rng;
    ckvc_rng_init(&rng, seed, key, STAGE + (uint32_t)kind);
    for (uint32_t r = 0; r < n_replicates; ++r) {
        if (kind == CQL_RESAMPLE_BOOTSTRAP) {
            uint32_t w = ckvc_rng_poisson1(&rng);
            weight[r] = (uint8_t)(w < 255 ? w : 255);
        } else {
            weight[r] = r % 2 == 0 ? (uint8_t)(ckvc_rng_u32(&rng) >> 31) : (uint8_t)!weight[r - 1];
        }
    }
}

typedef struct keyed {
    uint64_t key;
    size_t at;
} keyed;

static int by_key(const void *pa, const void *pb) {
    const keyed *a = pa, *b = pb;
    const int order = (a->key > b->key) - (a->key < b->key);
    return order ? order : (a->at > b->at) - (a->at < b->at);
}

size_t cql_clusters(const uint64_t *keys, size_t n, size_t *cluster) {
    CKVC_AUTO_FREE keyed *sorted = ckvc_alloc(n, sizeof *sorted);
    CKVC_AUTO_FREE size_t *first = ckvc_alloc(n, sizeof *first); /* appearance of the key */
    size_t clusters = 0;
    for (size_t i = 0; i < n; ++i) { sorted[i] = (keyed){keys[i], i}; }
    qsort(sorted, n, sizeof *sorted, by_key);
    for (size_t k = 0; k < n; ++k) {
        const bool again = k > 0 && sorted[k].key == sorted[k - 1].key;
        first[sorted[k].at] = again ? first[sorted[k - 1].at] : sorted[k].at;
        clusters += !again;
    }
    for (size_t i = 0, next = 0; cluster && i < n; ++i) {
        cluster[i] = first[i] == i ? next++ : cluster[first[i]];
    }
    return clusters;
}

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
            if (a != CQL_NO_CHOICE) { share_s[a] += 1.0f; /* whole numbers: exact */ }
        }
        for (size_t a = 0; a < n_actions; ++a) { share_s[a] /= (float)n_replicates; }
    }
}

/* d [A]: mean rewards less that of `other`; NaN where either was not drawn. Returns what state()
 * does. */
static size_t differences(const cql_resampled *s, uint32_t r, size_t state, int other, uint64_t *n,
                          double *d) {
    const size_t clusters = s->state(s, r, state, n, d);
    bool known = other < 0 || n[other] > 0;
    double base = other < 0 || !known ? 0.0 : d[other];
    for (size_t a = 0; a < s->n_actions; ++a) { d[a] = known && n[a] > 0 ? d[a] - base : NAN; }
    return clusters;
}

/* The t quantile (df degrees of freedom) at the probability of the normal quantile z > 0:
 * Abramowitz and Stegun 26.7.5, two terms. */
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
    uint64_t *drawn = n + A;                /* replicates that define the difference */
    double *d_r = d + A, *square = d_r + A; /* one replicate's; sums of squared deviations */
    const double clusters = (double)differences(s, CQL_SAMPLE, state, other, n, d);
    if (difference) { *difference = d[chosen]; }
    if (clusters < CQL_MIN_PROMPTS || R < CQL_MIN_REPLICATES || isnan(d[chosen])) {
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
    /* Resampling n clusters shows (n-1)/n of the variance and tails that know it: both are put
     * right. */
    double critical = normal_to_t(top[(size_t)ceil(0.95 * R) - 1], clusters - 1.0);
    double se = drawn[chosen] > 0
                    ? sqrt(square[chosen] / (double)drawn[chosen] * clusters / (clusters - 1.0))
                    : INFINITY;
    return d[chosen] - critical * se;
}
