/* See adamw.h. */
#include "cql/solve/adamw.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "cql/solve/cql.h"
#include "lib/base/memory.h"
#include "lib/base/rng.h"

#define STAGE_SHUFFLE 0x61640000u /* of the RNG's stream for the order, plus the epoch */

cql_adamw_options cql_adamw_defaults(void) {
    return (cql_adamw_options){.cql_alpha = 0.75,
                               .lr = 3e-4,
                               .weight_decay = 0.01,
                               .beta1 = 0.9,
                               .beta2 = 0.999,
                               .eps = 1e-8,
                               .batch = 4096,
                               .epochs = 10};
}

/* The gradient g [S][A] of the mean loss of one batch of n records: alpha * (softmax(Q_s) -
 * onehot_a) + onehot_a * (Q_sa - r), over all A. The softmax of a state is taken once for its
 * `seen` records of the batch. */
static void batch_gradient(const cql_records *r, const uint32_t *order, size_t n, double cql_alpha,
                           const double *q, double *g, uint32_t *seen) {
    const size_t S = r->n_states, A = r->n_actions;
    memset(g, 0, S * A * sizeof *g);
    memset(seen, 0, S * sizeof *seen);
    for (size_t i = 0; i < n; ++i) {
        const cql_record *one = &r->at[order[i]];
        size_t cell = (size_t)one->state * A + one->action;
        seen[one->state]++;
        g[cell] += q[cell] - one->reward - cql_alpha;
    }
    for (size_t s = 0; s < S; ++s) {
        const double *q_s = q + s * A;
        double *g_s = g + s * A, z = seen[s] > 0 ? cql_logsumexp(A, q_s) : 0.0;
        for (size_t a = 0; a < A; ++a) {
            if (seen[s] > 0) { g_s[a] += cql_alpha * seen[s] * exp(q_s[a] - z); }
            g_s[a] /= (double)n;
        }
    }
}

ckvc_status cql_adamw(const cql_records *r, const cql_adamw_options *o, cql_shuffle shuffle,
                      double *q, ckvc_err *err) {
    const size_t n = r->n, cells = r->n_states * r->n_actions;
    CKVC_FAIL_IF(n > UINT32_MAX || o->batch == 0, err, CKVC_E_USAGE,
                 "AdamW takes at most 4294967295 records and a batch of at least 1; got "
                 "%zu records, batch %u",
                 n, o->batch);
    for (size_t i = 0; i < n; ++i) {
        assert(r->at[i].state < r->n_states && r->at[i].action < r->n_actions);
    }
    CKVC_AUTO_FREE double *g = ckvc_alloc(cells, sizeof *g);            /* [S][A], of a batch */
    CKVC_AUTO_FREE double *first = ckvc_calloc(cells, sizeof *first);   /* running mean of g */
    CKVC_AUTO_FREE double *second = ckvc_calloc(cells, sizeof *second); /* running mean of g^2 */
    CKVC_AUTO_FREE uint32_t *seen = ckvc_alloc(r->n_states, sizeof *seen);
    CKVC_AUTO_FREE uint32_t *order = ckvc_alloc(n, sizeof *order);
    memset(q, 0, cells * sizeof *q);
    uint64_t step = 0;
    for (uint32_t epoch = 0; epoch < o->epochs; ++epoch) {
        shuffle.order(shuffle.ctx, epoch, order, n);
        for (size_t at = 0; at < n; at += o->batch) {
            /* the last one is short: the mean is over its own length */
            size_t batch = n - at < o->batch ? n - at : o->batch;
            batch_gradient(r, order + at, batch, o->cql_alpha, q, g, seen);
            step++;
            double lift1 = 1.0 - pow(o->beta1, (double)step);
            double lift2 = sqrt(1.0 - pow(o->beta2, (double)step));
            double shrink = 1.0 - o->lr * o->weight_decay;
            for (size_t i = 0; i < cells; ++i) {
                first[i] = o->beta1 * first[i] + (1.0 - o->beta1) * g[i];
                second[i] = o->beta2 * second[i] + (1.0 - o->beta2) * g[i] * g[i];
                q[i] =
                    shrink * q[i] - o->lr / lift1 * first[i] / (sqrt(second[i]) / lift2 + o->eps);
            }
        }
    }
    return CKVC_OK;
}

void cql_seeded_order(const void *seed, uint32_t epoch, uint32_t *order, size_t n) {
    ckvc_rng rng;
    ckvc_rng_init(&rng, *(const uint64_t *)seed, ckvc_rng_key("adamw"), STAGE_SHUFFLE + epoch);
    for (size_t i = 0; i < n; ++i) { order[i] = (uint32_t)i; }
    ckvc_rng_shuffle_u32(&rng, order, n);
}
