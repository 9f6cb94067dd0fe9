/* See softmax_regression.h. */
#include "budgets/softmax_regression.h"

#include <math.h>
#include <string.h>

#include "lib/base/memory.h"

enum { MAX_STEPS = 100, MAX_HALVINGS = 40 };

typedef struct problem {
    const softmax_prompt *prompts;
    size_t n;
    uint32_t D;
    double ridge, y;      /* y is the sum of targets */
    double *mean, *scale; /* [D] of features; scale 0: the feature never varies */
    double *x, *p;        /* [D] a position's standardised features; [most n] its probabilities */
    double *gradient, *h; /* [D]; [D][D], the lower triangle */
    double *step, *trial; /* [D] */
    double *first;        /* [D] mean of x under p */
} problem;

static void standardise(const problem *q, const softmax_prompt *s, uint32_t i) {
    const float *f = s->f + i * s->stride;
    for (uint32_t d = 0; d < q->D; d++) { q->x[d] = ((double)f[d] - q->mean[d]) * q->scale[d]; }
}

static double dot(const double *a, const double *b, uint32_t n) {
    double sum = 0.0;
    for (uint32_t i = 0; i < n; i++) { sum += a[i] * b[i]; }
    return sum;
}

static void find_scales(problem *q) {
    double weight = 0.0;
    for (int pass = 0; pass < 2; pass++) {
        double *out = pass ? q->scale : q->mean;
        for (size_t k = 0; k < q->n; k++) {
            const softmax_prompt *s = &q->prompts[k];
            for (uint32_t i = 0; i < s->n; i++) {
                weight += pass ? 0.0 : s->weight[i];
                for (uint32_t d = 0; d < q->D; d++) {
                    const double f = (double)s->f[i * s->stride + d], away = f - q->mean[d];
                    out[d] += s->weight[i] * (pass ? away * away : f);
                }
            }
        }
        for (uint32_t d = 0; d < q->D; d++) { out[d] /= weight > 0.0 ? weight : 1.0; }
    }
    for (uint32_t d = 0; d < q->D; d++) {
        const double deviation = sqrt(q->scale[d]);
        q->scale[d] = deviation > 1e-9 * (1.0 + fabs(q->mean[d])) ? 1.0 / deviation : 0.0;
    }
}

/* Returns log Z of a prompt under standardised theta. p[i] becomes position i's share of Z. */
static double log_partition(const problem *q, const softmax_prompt *s, const double *theta) {
    double most = -INFINITY, sum = 0.0;
    for (uint32_t i = 0; i < s->n; i++) {
        standardise(q, s, i);
        q->p[i] = dot(theta, q->x, q->D) + log(s->weight[i]);
        most = q->p[i] > most ? q->p[i] : most;
    }
    for (uint32_t i = 0; i < s->n; i++) { sum += q->p[i] = exp(q->p[i] - most); }
    for (uint32_t i = 0; i < s->n; i++) { q->p[i] /= sum; }
    return most + log(sum);
}

/* Returns the objective per unit of target. With `derivatives` it also computes gradient and h. */
static double objective(problem *q, const double *theta, int derivatives) {
    const uint32_t D = q->D;
    double value = 0.5 * q->ridge * dot(theta, theta, D);
    if (derivatives) {
        memset(q->h, 0, (size_t)D * D * sizeof *q->h);
        for (uint32_t d = 0; d < D; d++) {
            q->gradient[d] = q->ridge * theta[d];
            q->h[(size_t)d * D + d] = q->ridge;
        }
    }
    for (size_t k = 0; k < q->n; k++) {
        const softmax_prompt *s = &q->prompts[k];
        const double log_z = log_partition(q, s, theta), share = s->y / q->y;
        value += share * log_z;
        for (uint32_t d = 0; d < D; d++) {
            const double target = (s->yf[d] - s->y * q->mean[d]) * q->scale[d] / q->y;
            value -= theta[d] * target;
            if (derivatives) { q->gradient[d] -= target; }
        }
        if (!derivatives) { continue; }
        memset(q->first, 0, D * sizeof *q->first);
        for (uint32_t i = 0; i < s->n; i++) {
            standardise(q, s, i);
            for (uint32_t d = 0; d < D; d++) {
                const double px = q->p[i] * q->x[d];
                q->first[d] += px;
                double *row = q->h + (size_t)d * D;
                for (uint32_t e = 0; e <= d; e++) { row[e] += share * px * q->x[e]; }
            }
        }
        for (uint32_t d = 0; d < D; d++) {
            q->gradient[d] += share * q->first[d];
            double *row = q->h + (size_t)d * D;
            for (uint32_t e = 0; e <= d; e++) { row[e] -= share * q->first[d] * q->first[e]; }
        }
    }
    return value;
}

/* Computes step = -h^-1 gradient by Cholesky factors, which replace h. A feature that never varies
 * has a row and a column of zeros but for the ridge. A pivot of which rounding has left nothing is
 * skipped. */
static void newton_step(problem *q) {
    const uint32_t D = q->D;
    double *h = q->h, *x = q->step;
    for (uint32_t i = 0; i < D; i++) {
        double *row = h + (size_t)i * D;
        for (uint32_t j = 0; j < i; j++) {
            const double *other = h + (size_t)j * D;
            row[j] = other[j] > 0.0 ? (row[j] - dot(row, other, j)) / other[j] : 0.0;
        }
        const double pivot = row[i] - dot(row, row, i);
        row[i] = pivot > 1e-14 ? sqrt(pivot) : 0.0;
        x[i] = row[i] > 0.0 ? (-q->gradient[i] - dot(row, x, i)) / row[i] : 0.0;
    }
    for (uint32_t i = D; i-- > 0;) {
        double sum = x[i];
        for (uint32_t j = i + 1; j < D; j++) { sum -= h[(size_t)j * D + i] * x[j]; }
        x[i] = h[(size_t)i * D + i] > 0.0 ? sum / h[(size_t)i * D + i] : 0.0;
    }
}

/* Halves the step until the objective falls by a share of what the gradient promises. Returns false
 * where rounding leaves nothing to gain. A step that promises less than rounding can show is taken
 * whole, a few times, because the gradient still shows the way. */
static int descend(problem *q, double *theta, double value, int *blind) {
    const double slope = dot(q->gradient, q->step, q->D);
    double length = 1.0;
    if (-slope <= 1e-12 * (1.0 + fabs(value)) && (*blind)++ < 4) {
        for (uint32_t d = 0; d < q->D; d++) { theta[d] += q->step[d]; }
        return 1;
    }
    for (int k = 0; k < MAX_HALVINGS; k++) {
        for (uint32_t d = 0; d < q->D; d++) { q->trial[d] = theta[d] + length * q->step[d]; }
        if (objective(q, q->trial, 0) <= value + 1e-4 * length * slope) {
            memcpy(theta, q->trial, q->D * sizeof *theta);
            return 1;
        }
        length /= 2.0;
    }
    return 0;
}

static problem problem_of(const softmax_prompt *prompts, size_t n, uint32_t D) {
    problem q = {.prompts = prompts, .n = n, .D = D};
    size_t most = 0;
    for (size_t k = 0; k < n; k++) {
        q.y += prompts[k].y;
        most = prompts[k].n > most ? prompts[k].n : most;
    }
    q.mean = ckvc_calloc(7 * (size_t)D + (size_t)D * D + most + 1, sizeof *q.mean);
    q.scale = q.mean + D;
    q.x = q.scale + D;
    q.gradient = q.x + D;
    q.step = q.gradient + D;
    q.trial = q.step + D;
    q.first = q.trial + D;
    q.h = q.first + D;
    q.p = q.h + (size_t)D * D;
    return q;
}

softmax_fit softmax_regression(const softmax_prompt *prompts, size_t n, uint32_t D, double ridge,
                               double *theta) {
    softmax_fit fit = {0};
    int blind = 0;
    problem q = problem_of(prompts, n, D);
    q.ridge = ridge;
    memset(theta, 0, D * sizeof *theta);
    if (q.y > 0.0) {
        find_scales(&q);
        for (;;) {
            const double value = objective(&q, theta, 1);
            fit.gradient = sqrt(dot(q.gradient, q.gradient, D));
            if (fit.gradient <= SOFTMAX_CERTIFICATE || fit.steps == MAX_STEPS) { break; }
            newton_step(&q);
            if (!descend(&q, theta, value, &blind)) { break; }
            fit.steps++;
        }
        for (uint32_t d = 0; d < D; d++) { theta[d] *= q.scale[d]; }
    }
    free(q.mean);
    return fit;
}

double softmax_loss(const softmax_prompt *prompts, size_t n, uint32_t D, const double *theta) {
    problem q = problem_of(prompts, n, D);
    for (uint32_t d = 0; d < D; d++) { q.scale[d] = 1.0; }
    const double loss = q.y > 0.0 ? objective(&q, theta, 0) : 0.0;
    free(q.mean);
    return loss;
}
