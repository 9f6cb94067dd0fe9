/* See task_scores.h. */
#include "lib/stats/task_scores.h"

#include <math.h>
#include <stdlib.h>

#include "lib/stats/rank.h"
#include "lib/base/memory.h"
#include "lib/base/hash.h"

#define STAGE_TASKS 0x7461736bu

/* A draw of tasks and of their items: the k-th drawn task has items at[end[k - 1]] .. at[end[k] -
 * 1]. */
typedef struct drawn {
    size_t *at, *end;
} drawn;

static void draw_replicate(const task_scores *s, ckvc_rng *rng, drawn *out) {
    size_t n = 0;
    for (size_t k = 0; k < s->n_tasks; k++) {
        const size_t t = rng ? (size_t)ckvc_rng_below(rng, s->n_tasks) : k, from = s->first[t],
                     items = s->first[t + 1] - from;
        for (size_t i = 0; i < items; i++) {
            out->at[n++] = from + (rng ? (size_t)ckvc_rng_below(rng, items) : i);
        }
        out->end[k] = n;
    }
}

/* Computes one row of the draws, macro and tail [n_series]. means [n_tasks] is scratch. */
static void mean_scores(const task_scores *s, const drawn *by, double *means, double *macro,
                        double *tail) {
    for (size_t series = 0; series < s->n_series; series++) {
        const double *score = s->score + series * s->first[s->n_tasks];
        double sum = 0;
        for (size_t k = 0, i = 0; k < s->n_tasks; k++) {
            const double n = (double)(by->end[k] - i);
            double of_task = 0;
            for (; i < by->end[k]; i++) { of_task += score[by->at[i]]; }
            sum += means[k] = of_task / n;
        }
        macro[series] = sum / (double)s->n_tasks; /* 0/0: NaN */
        rank_quantile(means, s->n_tasks, (const double[]){0.1}, 1, &tail[series]);
    }
}

task_draws task_draws_of(const task_scores *s, uint32_t replicates, uint64_t seed) {
    const size_t rows = (size_t)replicates + 1;
    size_t most = 0;
    for (size_t t = 0; t < s->n_tasks; t++) {
        const size_t items = s->first[t + 1] - s->first[t];
        most = items > most ? items : most;
    }
    CKVC_AUTO_FREE double *means = ckvc_alloc(s->n_tasks, sizeof *means);
    CKVC_AUTO_FREE size_t *end = ckvc_alloc(s->n_tasks, sizeof *end);
    CKVC_AUTO_FREE size_t *at = ckvc_alloc(s->n_tasks, most * sizeof *at);
    task_draws out = {.n_series = s->n_series,
                      .replicates = replicates,
                      .macro = ckvc_alloc(rows, s->n_series * sizeof *out.macro),
                      .tail = ckvc_alloc(rows, s->n_series * sizeof *out.tail)};
    drawn by = {at, end};
    for (size_t k = 0; k < rows; k++) {
        ckvc_rng rng;
        ckvc_rng_init(&rng, seed, k, STAGE_TASKS);
        draw_replicate(s, k ? &rng : NULL, &by);
        mean_scores(s, &by, means, out.macro + k * s->n_series, out.tail + k * s->n_series);
    }
    return out;
}

void task_draws_fini(task_draws *d) {
    free(d->macro);
    free(d->tail);
}

static task_interval interval_of(const task_draws *d, const double *rows, size_t series,
                                 size_t base) {
    task_interval out = {NAN, NAN, NAN};
    CKVC_AUTO_FREE double *values = ckvc_alloc((size_t)d->replicates + 1, sizeof *values);
    for (size_t k = 0; k <= d->replicates; k++) {
        const double *row = rows + k * d->n_series;
        values[k] = row[series] - (base == TASK_ALONE ? 0 : row[base]);
    }
    out.mean = values[0];
    if (d->replicates) { rank_ends(values + 1, d->replicates, &out.lo, &out.hi); }
    return out;
}

task_interval task_macro(const task_draws *d, size_t series, size_t base) {
    return interval_of(d, d->macro, series, base);
}

task_interval task_tail(const task_draws *d, size_t series, size_t base) {
    return interval_of(d, d->tail, series, base);
}

double mcnemar_exact(uint64_t b, uint64_t c) {
    const uint64_t few = b < c ? b : c;
    const double n = (double)(b + c);
    double tail = 0;
    for (uint64_t i = 0; i <= few; i++) {
        const double k = (double)i;
        tail += exp(lgamma(n + 1) - lgamma(k + 1) - lgamma(n - k + 1) - n * log(2));
    }
    return fmin(1, 2 * tail);
}

double task_bar(double wrong) {
    const double from = isnan(wrong) ? 0 : wrong;
    return from + 0.1 * (1 - from);
}
