/* Expected Attention (Devoto et al. 2025): keeps 4 sinks, and the positions with the largest
 * product of value norm and attention expected from the next 512 positions. The queries of these
 * are assumed to follow the prompt's own. Before their rotation they are normal, with the mean and
 * covariance of the prompt's queries from position 4 on (the first are sinks); then the mean
 * rotation of the coming positions is applied. */
#include <math.h>
#include <string.h>

#include "judge/policies/rules/rule.h"

enum { EXPECTED_SINKS = 4, EXPECTED_POSITIONS = 512 };

/* x' A x, with its terms added in the order of rows and columns. at [D][D] is A', so that the inner
 * loop runs over many sums at once; sums [D] is scratch. */
static double quadratic(const double *at, const float *x, int64_t D, double *sums) {
    double all = 0;
    memset(sums, 0, (size_t)D * sizeof *sums);
    for (int64_t j = 0; j < D; j++) {
        const double xj = (double)x[j];
        for (int64_t i = 0; i < D; i++) { sums[i] += at[j * D + i] * xj; }
    }
    for (int64_t i = 0; i < D; i++) { all += (double)x[i] * sums[i]; }
    return all;
}

typedef struct query_law { /* of a query head: mean [D], covariance [D][D] */
    double *mean, *cov;
} query_law;

/* The law of query head q among those that lie one after another. */
static query_law law_at(double *laws, int64_t D, int32_t q) {
    double *mean = laws + q * D * (D + 1);
    return (query_law){mean, mean + D};
}

/* Rotates the pairs (i, i + D/2) of x, whose values are `stride` apart: x <- [[c, -s], [s, c]]
 * x. */
static void rotate_pairs(double *x, int64_t stride, int64_t D, const double *c, const double *s) {
    for (int64_t i = 0; i < D / 2; i++) {
        double *a = x + i * stride, *b = x + (i + D / 2) * stride, was = *a;
        *a = c[i] * was - s[i] * *b;
        *b = s[i] * was + c[i] * *b;
    }
}

/* Computes mean and covariance of the queries from position 4 on, as they were before their
 * rotation. */
static void query_laws(const prefill_head *h, const double *frequencies, double *laws,
                       double *scratch) {
    const int64_t D = h->head_dim, all = h->n_tokens - EXPECTED_SINKS, n = all > 1 ? all : 1;
    double *c = scratch, *s = c + D, *x = s + D;
    for (int32_t q = 0; q < h->group; q++) {
        const query_law law = law_at(laws, D, q);
        memset(law.mean, 0, (size_t)D * sizeof(double));
        memset(law.cov, 0, (size_t)(D * D) * sizeof(double));
    }
    for (int64_t t = EXPECTED_SINKS; t < h->n_tokens; t++) {
        for (int64_t i = 0; i < D / 2; i++) { /* rotates backwards */
            c[i] = cos((double)t * frequencies[i]);
            s[i] = -sin((double)t * frequencies[i]);
        }
        for (int32_t q = 0; q < h->group; q++) {
            const query_law law = law_at(laws, D, q);
            const float *from = h->queries + ((int64_t)q * h->n_tokens + t) * D;
            for (int64_t i = 0; i < D; i++) { x[i] = (double)from[i]; }
            rotate_pairs(x, 1, D, c, s);
            for (int64_t i = 0; i < D; i++) {
                law.mean[i] += x[i];
                for (int64_t j = 0; j <= i; j++) { law.cov[i * D + j] += x[i] * x[j]; }
            }
        }
    }
    for (int32_t q = 0; q < h->group; q++) {
        const query_law law = law_at(laws, D, q);
        for (int64_t i = 0; i < D; i++) { law.mean[i] /= (double)n; }
        for (int64_t i = 0; i < D; i++) {
            for (int64_t j = 0; j <= i; j++) {
                law.cov[i * D + j] = law.cov[j * D + i] =
                    law.cov[i * D + j] / (double)n - law.mean[i] * law.mean[j];
            }
        }
    }
}

/* mean <- R mean, cov <- (R cov R')', where R is the mean rotation of the positions to come. */
static void turn_ahead(const prefill_head *h, const double *frequencies, double *laws,
                       double *scratch) {
    const int64_t D = h->head_dim;
    double *c = scratch, *s = c + D;
    for (int64_t i = 0; i < D / 2; i++) {
        c[i] = s[i] = 0;
        for (int64_t p = h->n_tokens; p < h->n_tokens + EXPECTED_POSITIONS; p++) {
            c[i] += cos((double)p * frequencies[i]) / EXPECTED_POSITIONS;
            s[i] += sin((double)p * frequencies[i]) / EXPECTED_POSITIONS;
        }
    }
    for (int32_t q = 0; q < h->group; q++) {
        const query_law law = law_at(laws, D, q);
        rotate_pairs(law.mean, 1, D, c, s);
        /* columns come first, so the result is the transpose, to the last bit */
        for (int64_t i = 0; i < D; i++) { rotate_pairs(law.cov + i * D, 1, D, c, s); }
        for (int64_t j = 0; j < D; j++) { rotate_pairs(law.cov + j, D, D, c, s); }
    }
}

/* Writes to s [T] the softmax over t >= EXPECTED_SINKS of k.mean / sqrt(D) + k'cov k / (2D), as the
 * mean over the group, times the value norm; positions before these get 0. */
static void score_head(const head_score *self, const prefill_head *h, const head_output *to) {
    const int64_t D = h->head_dim, T = h->n_tokens;
    double *logit = to->scratch, *laws = logit + T, *rest = laws + h->group * D * (D + 1);
    (void)self;
    memset(to->s, 0, (size_t)T * sizeof *to->s);
    query_laws(h, to->frequencies, laws, rest);
    turn_ahead(h, to->frequencies, laws, rest);
    for (int32_t q = 0; q < h->group; q++) {
        const query_law law = law_at(laws, D, q);
        double most = -INFINITY, sum = 0;
        for (int64_t t = EXPECTED_SINKS; t < T; t++) {
            const float *k = h->keys + t * D;
            const double square = quadratic(law.cov, k, D, rest);
            logit[t] = rule_dot(law.mean, k, D) / sqrt((double)D) + square / (2 * (double)D);
            most = logit[t] > most ? logit[t] : most;
        }
        for (int64_t t = EXPECTED_SINKS; t < T; t++) { sum += exp(logit[t] - most); }
        for (int64_t t = EXPECTED_SINKS; t < T; t++) {
            to->s[t] += exp(logit[t] - most) / sum / h->group * h->value_norms[t];
        }
    }
}

static size_t scratch_of(size_t max_tokens, size_t head_dim, size_t group) {
    return max_tokens + head_dim * (head_dim + 1) * group + 3 * head_dim;
}

const policy_rule rule_expected_attention = {
    .by_head = true,
    .score = {
        .on_head = score_head, .scratch = scratch_of, .first = EXPECTED_SINKS, .queries = true}};
