/* What tasks of many prompts say of policies: averages over tasks, their worst tenth, and how far
 * tasks and prompts fix them; whether two policies answer one task alike. Plain arrays.
 *
 * Intervals are of a bootstrap of two levels: tasks are drawn with repetition, and of each drawn
 * one its items, so that they speak of other tasks like these (Davison and Hinkley 1997, section
 * 3.8, strategy 2: a little wide where a task has few items). Of one task it is the bootstrap over
 * its items. All series are judged by the same draws: differences are paired. */
#pragma once

#include <stddef.h>
#include <stdint.h>

typedef struct task_scores {
    size_t n_tasks, n_series;
    const size_t *first; /* [n_tasks + 1] items first[t] .. first[t + 1] - 1 are of task t: one or
                            more, in the same order in every series */
    const double *score; /* [n_series][first[n_tasks]] finite */
} task_scores;

/* Every replicate's macro-average (mean over tasks of the mean over items) and tail (the
 * 0.1-quantile of tasks' means, linear between them: the paper's Task-P10). */
typedef struct task_draws {
    size_t n_series;
    uint32_t replicates;
    double *macro, *tail; /* [1 + replicates][n_series]: the sample itself first */
} task_draws;
/* Replicate k draws from (seed, k) alone. No task: all NaN. */
task_draws task_draws_of(const task_scores *s, uint32_t replicates, uint64_t seed);
void task_draws_fini(task_draws *d);

/* The sample's value and percentiles 2.5 and 97.5 of the replicates' (NaN without any). */
typedef struct task_interval {
    double mean, lo, hi;
} task_interval;
#define TASK_ALONE SIZE_MAX
/* Of a series; of it less series `base`, unless that is TASK_ALONE. */
task_interval task_macro(const task_draws *d, size_t series, size_t base);
task_interval task_tail(const task_draws *d, size_t series, size_t base);

/* Exact two-sided p of McNemar's test: b items that one alone has right, c that the other alone
 * has; twice the smaller tail of Binomial(b + c, 1/2), at most 1 (McNemar 1947; exact as in Agresti
 * 2013, section 11.1). */
double mcnemar_exact(uint64_t b, uint64_t c);

/* A policy does a task where its mean score is above this: the mean score of wrong answers there
 * (NaN: 0), and a tenth of what is left above it. */
double task_bar(double wrong);
