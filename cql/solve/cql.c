/* Exact horizon-1 CQL for one state, and the choice of an action (see cql.h for the objective).
 *
 * Stationary point (paper.md section 6), p = softmax(Q), for every logged a:
 *   (Q_a - rbar_a) + alpha * (p_a / pi_a - 1) = 0
 * With z = logsumexp(Q) and w_a = alpha * p_a / pi_a this reads w_a + ln w_a = x_a, so
 *   w_a = omega(x_a),   x_a = ln(alpha / pi_a) + rbar_a + alpha - z,   Q_a = rbar_a + alpha - w_a
 * which leaves one unknown: z, the root of f(z) = sum_a pi_a omega(x_a) - alpha, decreasing and
 * convex. As |f''/f'| <= 1 and |f'''/f'| <= 1 everywhere (omega'' / omega' = 1 / (1 + w)^2,
 * omega''' / omega' = (1 - 2 w) / (1 + w)^4), Halley's step turns a small error e into one below
 * e^3 / 2 in any state. The bracket holds far steps. */
#include "cql/solve/cql.h"

#include <assert.h>
#include <float.h>
#include <math.h>
#include <string.h>

#include "lib/base/memory.h"
#include "lib/base/hash.h"

#define TIE         1e-9  /* distance from the maximum, in the fit's units (paper.md section 6) */
#define CERTIFICATE 1e-10 /* relative to max(1, max |rbar|) */
#define MAX_STEPS   200
#define LAST_STEP   0x1p-18 /* Halley's step that follows a shorter one would be below 2^-54 */

/* The iteration of Fritsch, Shafer and Crowley (CACM 16, 1973, algorithm 443). It is of fourth
 * order, so that two rounds reach rounding from the first guesses below. */
double cql_omega(double x) {
    if (isnan(x)) { return x; }
    if (x < -50.0) { return exp(x); /* w = exp(x - w), and w is below half an ulp of x */ }
    if (x > 1e18) { return x; /* ln x is below half an ulp of x */ }
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

/* Entries of -inf count for nothing. */
static double logsumexp(size_t n, const double *x) {
    double top = -INFINITY, sum = 0.0;
    for (size_t i = 0; i < n; ++i) {
        if (x[i] > top) { top = x[i]; }
    }
    if (!isfinite(top)) { return top; }
    for (size_t i = 0; i < n; ++i) { sum += exp(x[i] - top); }
    return top + log(sum);
}

/* Returns max_a |g_a / pi_a| at the q that is handed back. The plain gradient says little about Q_a
 * where pi_a is small. */
static double scaled_gradient(size_t n_actions, const uint64_t *n, const double *rbar,
                              double cql_alpha, double total, const double *q) {
    double z = logsumexp(n_actions, q);
    double worst = 0.0;
    for (size_t a = 0; a < n_actions; ++a) {
        if (n[a] == 0) { continue; }
        double g = q[a] - rbar[a];
        if (cql_alpha > 0.0) { g += cql_alpha * (exp(q[a] - z) * (total / (double)n[a]) - 1.0); }
        if (!(fabs(g) <= worst)) { worst = fabs(g); /* a NaN ends up in the certificate */ }
    }
    return worst;
}

/* The equation of one state, with its logged actions alone, packed. */
typedef struct equation {
    size_t k;
    double cql_alpha;
    uint16_t action[CQL_MAX_ACTIONS];
    double offset[CQL_MAX_ACTIONS]; /* ln(alpha / pi_a) + m_a + alpha, so that x_a = offset_a - z */
    double share[CQL_MAX_ACTIONS];  /* pi_a */
    double lo, hi, z;               /* the bracket, and where to begin */
} equation;

/* Sets up the bracket sum pi m + H(pi) <= z <= logsumexp(m) + alpha. The means m are taken relative
 * to the largest, so that an offset common to all costs no precision. The left end is Jensen's
 * bound, at which the mean x solves omega(x) = alpha. The spread of x about that mean moves the
 * root right by omega'' / (2 omega') times its variance. */
static void set_up(equation *e, size_t n_actions, const uint64_t *n, const double *rbar,
                   double total, double top) {
    double lo = 0.0, exp_sum = 0.0, square = 0.0;
    const double alpha = e->cql_alpha, log_alpha = log(alpha);
    e->k = 0;
    for (size_t a = 0; a < n_actions; ++a) {
        if (n[a] == 0) { continue; }
        double m = rbar[a] - top;
        double pi = (double)n[a] / total;
        double y = m - log(pi);
        e->action[e->k] = (uint16_t)a;
        e->offset[e->k] = log_alpha + y + alpha;
        e->share[e->k++] = pi;
        lo += pi * y;
        exp_sum += exp(m);
    }
    for (size_t i = 0; i < e->k; ++i) {
        double d = e->offset[i] - (log_alpha + lo + alpha);
        square += e->share[i] * d * d;
    }
    double hi = log(exp_sum) + alpha;
    double slack = 1e-12 * (1.0 + fabs(lo) + fabs(hi));
    e->z = fmin(lo + 0.5 * square / ((1.0 + alpha) * (1.0 + alpha)), hi);
    e->lo = lo - slack;
    e->hi = hi + slack;
}

/* Solves f(z) = 0, and returns the number of steps. */
static int find_root(equation *e) {
    for (int steps = 1;; ++steps) {
        double f = -e->cql_alpha, slope = 0.0, bend = 0.0; /* f, -f', f'' */
        double noise = e->cql_alpha; /* f's own rounding error, in units of DBL_EPSILON */
        for (size_t i = 0; i < e->k; ++i) {
            double x = e->offset[i] - e->z;
            double w = cql_omega(x);
            double w1 = 1.0 / (1.0 + w);
            double d = e->share[i] * w * w1;
            f += e->share[i] * w;
            slope += d;
            bend += d * w1 * w1;
            noise += e->share[i] * w + d * fabs(x);
        }
        *(f > 0.0 ? &e->lo : &e->hi) = e->z;
        /* Far from the root Halley's denominator may vanish, so there the step is at most twice
         * Newton's. */
        double newton = f / slope;
        double step = newton / fmax(1.0 - 0.5 * newton * bend / slope, 0.5);
        if (!(e->z + step >= e->lo && e->z + step <= e->hi)) {
            step = e->lo + 0.5 * (e->hi - e->lo) - e->z;
        }
        e->z += step;
        bool done = fabs(step) <= LAST_STEP || fabs(f) <= 4.0 * DBL_EPSILON * noise;
        if (done || steps == MAX_STEPS) { return steps; }
    }
}

bool cql_solve_exact(size_t n_actions, const uint64_t *n, const double *rbar, double cql_alpha,
                     double *q, cql_certificate *cert) {
    double total = 0.0, top = -INFINITY, size = 1.0;
    assert(n_actions <= CQL_MAX_ACTIONS);
    *cert = (cql_certificate){0};
    for (size_t a = 0; a < n_actions; ++a) {
        q[a] = n[a] > 0 ? rbar[a] : -INFINITY;
        if (n[a] == 0) { continue; }
        if (!isfinite(rbar[a])) { return false; }
        total += (double)n[a];
        top = fmax(top, rbar[a]);
        size = fmax(size, fabs(rbar[a]));
    }
    if (!(cql_alpha >= 0.0) || !isfinite(cql_alpha)) { return false; }
    if (total == 0.0) { return true; }
    if (cql_alpha > 0.0) {
        equation e;
        e.cql_alpha = cql_alpha;
        set_up(&e, n_actions, n, rbar, total, top);
        cert->iterations = find_root(&e);
        for (size_t i = 0; i < e.k; ++i) {
            q[e.action[i]] += cql_alpha - cql_omega(e.offset[i] - e.z);
        }
    }
    cert->gradient = scaled_gradient(n_actions, n, rbar, cql_alpha, total, q);
    return cert->gradient <= CERTIFICATE * size;
}

int cql_choose(const ckvc_actions *actions, const double *q) {
    double top = -INFINITY, nearest = INFINITY;
    int best = -1;
    for (size_t a = 0; a < actions->n; ++a) { top = fmax(top, q[a]); }
    if (!isfinite(top)) { return -1; }
    for (size_t a = 0; a < actions->n; ++a) {
        double distance = actions->grid ? fabs(actions->grid[a] - actions->safe) : 0.0;
        /* Actions ascend, so that of two equally near ones the first is the lower. Distances of
         * decimal values differ by rounding, hence the slack. */
        if (q[a] >= top - TIE && distance < nearest - 1e-12) {
            best = (int)a;
            nearest = distance;
        }
    }
    return best;
}

/* With equal counts, Q rises with the mean by a slope of at least 1 / (1 + alpha A). Means that are
 * equal, or further apart than the ties' width over that slope, therefore need no solving. */
static bool solved_by_means(size_t A, const uint64_t *n, const double *mean, double cql_alpha,
                            double *q) {
    uint64_t count = 0;
    double top = -INFINITY, far = 2.0 * TIE * (1.0 + cql_alpha * (double)A);
    for (size_t a = 0; a < A; ++a) {
        if (n[a] > 0 && count > 0 && n[a] != count) { return false; }
        count = n[a] > 0 ? n[a] : count;
        q[a] = n[a] > 0 ? mean[a] : -INFINITY;
        top = fmax(top, q[a]);
    }
    for (size_t a = 0; a < A; ++a) {
        if (q[a] < top && q[a] > top - far) { return false; }
    }
    return true;
}

int cql_choice(const ckvc_actions *actions, const uint64_t *n, const double *mean,
               double cql_alpha) {
    double q[CQL_MAX_ACTIONS];
    cql_certificate cert;
    if (!solved_by_means(actions->n, n, mean, cql_alpha, q) &&
        !cql_solve_exact(actions->n, n, mean, cql_alpha, q, &cert)) {
        return -2;
    }
    return cql_choose(actions, q);
}

/* The stage of the stream of random numbers for the order; the epoch is added. */
#define STAGE_SHUFFLE 0x61640000u

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

/* Computes the gradient g [S][A] of the mean loss of one batch of n records: alpha * (softmax(Q_s)
 * - onehot_a) + onehot_a * (Q_sa - r), over all A. The softmax of a state is computed once for the
 * `seen` records that the batch has of it. */
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
        double *g_s = g + s * A, z = seen[s] > 0 ? logsumexp(A, q_s) : 0.0;
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
            /* The last batch is short, and its mean is over its own length. */
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
