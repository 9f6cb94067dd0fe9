/* Exact horizon-1 CQL for one state, the choice of an action, and the paper's AdamW (see cql.h for
 * the objective).
 *
 * Stationary point (method.md section 6), p = softmax(Q):  (Q_a - rbar_a) + alpha * (p_a / pi_a -
 * 1) = 0 for every logged a. With z = logsumexp(Q) and w_a = alpha * p_a / pi_a this reads w_a + ln
 * w_a = x_a, so w_a = omega(x_a) and x_a = ln(alpha / pi_a) + rbar_a + alpha - z,   Q_a = rbar_a +
 * alpha - w_a, which leaves one unknown: z, the root of f(z) = sum_a pi_a omega(x_a) - alpha,
 * decreasing and convex. As |f''/f'| <= 1 and |f'''/f'| <= 1 everywhere (omega'' / omega' = 1 / (1
 * + w)^2, omega''' / omega' = (1 - 2 w) / (1 + w)^4), Halley's step turns a small error e into one
 * below e^3 / 2 in any state. The bracket holds far steps.
 */
#include "cql/solve/cql.h"

#include <assert.h>
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/memory.h"
#include "lib/base/rng.h"

#define TIE         1e-9  /* of the maximum, in the fit's units (method.md section 6) */
#define CERTIFICATE 1e-10 /* relative to max(1, max |rbar|) */
#define MAX_STEPS   200
#define LAST_STEP   0x1p-18 /* Halley's step after a shorter one would be below 2^-54 */
#define STAGE_SHUFFLE                                                                              \
    0x61640000u /* the stage of the RNG's stream for AdamW's order, plus the epoch */

/* Fritsch, Shafer and Crowley's iteration (CACM 16, 1973, algorithm 443): fourth order, so that two
 * rounds reach rounding from the first guesses below. */
double cql_omega(double x) {
    if (isnan(x)) { return x; }
    if (x < -50.0) { /* w = exp(x - w), and w is below half an ulp of x */
        return exp(x);
    }
    if (x > 1e18) { /* ln x is below half an ulp of x */
        return x;
    }

    double w;
    if (x < -2.0) {
        w = exp(x);
    } else if (x < 1.0) {
        w = exp(2.0 * (x - 1.0) / 3.0);
    } else {
        double lx = log(x);
        w = x - lx + lx / x;
    }
    for (int round = 0; round < 3; ++round) {
        double r = x - w - log(w); /* residual */
        double w1 = w + 1.0;
        double q = 2.0 * w1 * (w1 + 2.0 / 3.0 * r);
        double next = w * (1.0 + r / w1 * (q - r) / (q - 2.0 * r));
        bool last = fabs(next - w) <= 0x1p-14 * w; /* its fourth power is below rounding */
        w = next;
        if (last) { break; }
    }
    return w;
}

/* -inf entries count for nothing. */
static double logsumexp(size_t n, const double *x) {
    double top = -INFINITY;
    for (size_t i = 0; i < n; ++i) {
        if (x[i] > top) { top = x[i]; }
    }
    if (!isfinite(top)) { return top; }
    double sum = 0.0;
    for (size_t i = 0; i < n; ++i) {
        sum += exp(x[i] - top);
    }
    return top + log(sum);
}

/* max_a |g_a / pi_a| at the q that is handed back. The plain gradient says little about Q_a where
 * pi_a is small. */
static double scaled_gradient(size_t n_actions, const uint64_t *n, const double *rbar,
                              double cql_alpha, double total, const double *q) {
    double z = logsumexp(n_actions, q);
    double worst = 0.0;
    for (size_t a = 0; a < n_actions; ++a) {
        if (n[a] == 0) { continue; }
        double g = q[a] - rbar[a];
        if (cql_alpha > 0.0) { g += cql_alpha * (exp(q[a] - z) * (total / (double)n[a]) - 1.0); }
        if (!(fabs(g) <= worst)) { /* a NaN ends up in the certificate */
            worst = fabs(g);
        }
    }
    return worst;
}

bool cql_solve_exact(size_t n_actions, const uint64_t *n, const double *rbar, double cql_alpha,
                     double *q, cql_certificate *cert) {
    double offset[CQL_MAX_ACTIONS]; /* ln(alpha / pi_a) + m_a + alpha, so that x_a = offset_a - z;
                                       logged actions only, packed */
    double share[CQL_MAX_ACTIONS];  /* pi_a, packed */
    assert(n_actions <= CQL_MAX_ACTIONS);
    *cert = (cql_certificate){0};

    /* pass 1: totals. Means are taken relative to the largest, so that an offset common to all
     * costs no precision. */
    double total = 0.0, top = -INFINITY, size = 1.0;
    for (size_t a = 0; a < n_actions; ++a) {
        q[a] = -INFINITY;
        if (n[a] == 0) { continue; }
        if (!isfinite(rbar[a])) { return false; }
        total += (double)n[a];
        top = fmax(top, rbar[a]);
        size = fmax(size, fabs(rbar[a]));
    }
    if (!(cql_alpha >= 0.0) || !isfinite(cql_alpha)) { return false; }
    if (total == 0.0) { return true; }
    if (cql_alpha == 0.0) {
        for (size_t a = 0; a < n_actions; ++a) {
            if (n[a] > 0) { q[a] = rbar[a]; }
        }
        return true;
    }

    /* pass 2: the bracket sum pi m + H(pi) <= z <= logsumexp(m) + alpha. Its left end is Jensen's
     * bound, at which the mean x solves omega(x) = alpha; the spread of x about that mean moves the
     * root right by omega'' / (2 omega') of its variance. */
    size_t k = 0;
    double lo = 0.0, exp_sum = 0.0, square = 0.0;
    const double log_alpha = log(cql_alpha);
    for (size_t a = 0; a < n_actions; ++a) {
        if (n[a] == 0) { continue; }
        double m = rbar[a] - top;
        double pi = (double)n[a] / total;
        double y = m - log(pi);
        offset[k] = log_alpha + y + cql_alpha;
        share[k++] = pi;
        lo += pi * y;
        exp_sum += exp(m);
    }
    for (size_t i = 0; i < k; ++i) {
        double d = offset[i] - (log_alpha + lo + cql_alpha);
        square += share[i] * d * d;
    }
    double hi = log(exp_sum) + cql_alpha;
    double slack = 1e-12 * (1.0 + fabs(lo) + fabs(hi));
    double z = fmin(lo + 0.5 * square / ((1.0 + cql_alpha) * (1.0 + cql_alpha)), hi);
    lo -= slack;
    hi += slack;

    /* pass 3: f(z) = 0 */
    while (cert->iterations < MAX_STEPS) {
        cert->iterations++;
        double f = -cql_alpha, slope = 0.0, bend = 0.0; /* f, -f', f'' */
        double noise = cql_alpha; /* f's own rounding error, in units of DBL_EPSILON */
        for (size_t i = 0; i < k; ++i) {
            double x = offset[i] - z;
            double w = cql_omega(x);
            double w1 = 1.0 / (1.0 + w);
            double d = share[i] * w * w1;
            f += share[i] * w;
            slope += d;
            bend += d * w1 * w1;
            noise += share[i] * w + d * fabs(x);
        }
        if (f > 0.0) {
            lo = z;
        } else {
            hi = z;
        }
        /* Far from the root Halley's denominator may vanish: there at most twice Newton's step. */
        double newton = f / slope;
        double step = newton / fmax(1.0 - 0.5 * newton * bend / slope, 0.5);
        if (!(z + step >= lo && z + step <= hi)) { step = lo + 0.5 * (hi - lo) - z; }
        z += step;
        if (fabs(step) <= LAST_STEP || fabs(f) <= 4.0 * DBL_EPSILON * noise) { break; }
    }

    /* pass 4: Q and its certificate */
    k = 0;
    for (size_t a = 0; a < n_actions; ++a) {
        if (n[a] > 0) { q[a] = rbar[a] + (cql_alpha - cql_omega(offset[k++] - z)); }
    }
    cert->gradient = scaled_gradient(n_actions, n, rbar, cql_alpha, total, q);
    return cert->gradient <= CERTIFICATE * size;
}

double cql_objective(size_t n_actions, const uint64_t *n, const double *rbar, const double *sumsq,
                     double cql_alpha, const double *q) {
    double total = 0.0, conservative = 0.0, regression = 0.0;
    for (size_t a = 0; a < n_actions; ++a) {
        total += (double)n[a];
    }
    if (total == 0.0) { return 0.0; }
    for (size_t a = 0; a < n_actions; ++a) {
        if (n[a] == 0) { continue; }
        double pi = (double)n[a] / total;
        double variance = sumsq[a] / (double)n[a] - rbar[a] * rbar[a];
        conservative -= pi * q[a];
        regression += pi * ((q[a] - rbar[a]) * (q[a] - rbar[a]) + variance);
    }
    if (cql_alpha > 0.0) {
        conservative = cql_alpha * (conservative + logsumexp(n_actions, q));
    } else {
        conservative = 0.0;
    }
    return conservative + 0.5 * regression;
}

static double largest(size_t n_actions, const double *q) {
    double top = -INFINITY;
    for (size_t a = 0; a < n_actions; ++a) {
        top = fmax(top, q[a]);
    }
    return top;
}

int cql_choose_head(size_t n_actions, const double *q, const double *grid) {
    double top = largest(n_actions, q);
    if (!isfinite(top)) { return -1; }
    int best = -1;
    double best_distance = INFINITY;
    for (size_t a = 0; a < n_actions; ++a) {
        double distance = fabs(grid[a] - 1.0);
        /* Ascending: of two equally near the first is the lower. Distances of decimal weights
         * differ by rounding, hence the slack. */
        if (q[a] >= top - TIE && distance < best_distance - 1e-12) {
            best = (int)a;
            best_distance = distance;
        }
    }
    return best;
}

int cql_choose_gate(size_t n_actions, const double *q) {
    double top = largest(n_actions, q);
    if (!isfinite(top)) { return -1; }
    for (size_t a = 0; a < n_actions; ++a) {
        if (q[a] >= top - TIE) { return (int)a; }
    }
    return -1;
}

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

/* Adds one batch's gradient of the mean loss to g [S][A]: alpha * (softmax(Q_s) - onehot_a) +
 * onehot_a * (Q_sa - r), over all A. The softmax of a state is taken once for its `seen` records of
 * the batch. */
static void batch_gradient(const cql_record *records, const uint32_t *order, size_t n,
                           size_t n_states, size_t n_actions, double cql_alpha, const double *q,
                           double *g, uint32_t *seen) {
    memset(g, 0, n_states * n_actions * sizeof *g);
    memset(seen, 0, n_states * sizeof *seen);
    for (size_t i = 0; i < n; ++i) {
        const cql_record *r = &records[order[i]];
        size_t cell = (size_t)r->state * n_actions + r->action;
        seen[r->state]++;
        g[cell] += q[cell] - r->reward - cql_alpha;
    }
    for (size_t s = 0; s < n_states; ++s) {
        const double *q_s = q + s * n_actions;
        double *g_s = g + s * n_actions;
        if (seen[s] > 0) {
            double z = logsumexp(n_actions, q_s);
            for (size_t a = 0; a < n_actions; ++a) {
                g_s[a] += cql_alpha * seen[s] * exp(q_s[a] - z);
            }
        }
        for (size_t a = 0; a < n_actions; ++a) {
            g_s[a] /= (double)n;
        }
    }
}

ckvc_status cql_adamw(const cql_record *records, size_t n, size_t n_states, size_t n_actions,
                      const cql_adamw_options *o, cql_order_fn order_fn, void *order_ctx, double *q,
                      ckvc_err *err) {
    ckvc_status st = CKVC_OK;
    size_t cells = n_states * n_actions;
    double *g = ckvc_alloc(cells, sizeof *g);            /* [S][A] gradient of the batch */
    double *first = ckvc_calloc(cells, sizeof *first);   /* [S][A] running mean of g */
    double *second = ckvc_calloc(cells, sizeof *second); /* [S][A] running mean of g^2 */
    uint32_t *seen = ckvc_alloc(n_states, sizeof *seen);
    uint32_t *order = ckvc_alloc(n, sizeof *order);
    if (n > UINT32_MAX || o->batch == 0) {
        st = ckvc_fail(err, CKVC_E_USAGE,
                       "AdamW takes at most 4294967295 records and a batch of at least 1; got %zu "
                       "records, batch %u",
                       n, o->batch);
        goto done;
    }
    for (size_t i = 0; i < n; ++i) {
        assert(records[i].state < n_states && records[i].action < n_actions);
    }

    memset(q, 0, cells * sizeof *q);
    uint64_t step = 0;
    for (uint32_t epoch = 0; epoch < o->epochs; ++epoch) {
        order_fn(order_ctx, epoch, order, n);
        for (size_t at = 0; at < n; at += o->batch) {
            size_t batch =
                n - at < o->batch
                    ? n - at
                    : o->batch; /* the last one is short: the mean is over its own length */
            batch_gradient(records, order + at, batch, n_states, n_actions, o->cql_alpha, q, g,
                           seen);
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
done:
    free(g);
    free(first);
    free(second);
    free(seen);
    free(order);
    return st;
}

void cql_seeded_order(void *seed_u64, uint32_t epoch, uint32_t *order, size_t n) {
    ckvc_rng rng;
    ckvc_rng_init(&rng, *(const uint64_t *)seed_u64, ckvc_rng_key("adamw"), STAGE_SHUFFLE + epoch);
    for (size_t i = 0; i < n; ++i) {
        order[i] = (uint32_t)i;
    }
    ckvc_rng_shuffle_u32(&rng, order, n);
}
