/* What tasks with many prompts each say of policies: averages over tasks, their worst tenth, how
 * far the choice of tasks and prompts determines them, and whether two policies answer one task
 * alike. It works on plain arrays.
 *
 * Intervals come from a bootstrap of two levels: tasks are drawn with repetition, and for each
 * drawn task its items. So they speak of other tasks like these (Davison and Hinkley 1997, section
 * 3.8, strategy 2, which is a little wide where a task has few items). With one task it is the
 * bootstrap over its items. All series use the same draws, so that differences are paired. */
#pragma once

#include <stddef.h>
#include <stdint.h>

typedef struct task_scores {
    size_t n_tasks, n_series;
    /* [n_tasks + 1] Task t has the items first[t] .. first[t + 1] - 1, one or more, in the same
     * order in every series. */
    const size_t *first;
    const double *score; /* [n_series][first[n_tasks]], all finite */
} task_scores;

/* The macro-average (the mean over tasks of their mean over items) and the tail (the 0.1-quantile
 * of the tasks' means, interpolated linearly: the paper's Task-P10) of every replicate. */
typedef struct task_draws {
    size_t n_series;
    uint32_t replicates;
    double *macro, *tail; /* [1 + replicates][n_series]; row 0 is the sample itself */
} task_draws;
/* Computes the draws; replicate k depends on (seed, k) alone. Without tasks all values are NaN.
 * Free the result with task_draws_fini. */
task_draws task_draws_of(const task_scores *s, uint32_t replicates, uint64_t seed);
void task_draws_fini(task_draws *d);

/* The sample's value, and percentiles 2.5 and 97.5 of the replicates' values (NaN without
 * replicates). */
typedef struct task_interval {
    double mean, lo, hi;
} task_interval;
#define TASK_ALONE SIZE_MAX
/* The value of a series, or, unless base is TASK_ALONE, its difference from series `base`. */
task_interval task_macro(const task_draws *d, size_t series, size_t base);
task_interval task_tail(const task_draws *d, size_t series, size_t base);

/* The exact two-sided p of McNemar's test. b items are right under the one policy alone, c under
 * the other alone; p is twice the smaller tail of Binomial(b + c, 1/2), at most 1 (McNemar 1947;
 * exact as in Agresti 2013, section 11.1). */
double mcnemar_exact(uint64_t b, uint64_t c);

/* A policy counts as able to do a task where its mean score is above this bar: the mean score of
 * wrong answers to the task (NaN counts as 0), and a tenth of what is left above that. */
double task_bar(double wrong);
