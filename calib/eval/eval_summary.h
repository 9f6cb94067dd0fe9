/* Means of answer lines, for the table at a run's end: numbers with their intervals are made from
 * the file (`ckvc report --answers`). */
#pragma once

#include "formats/lines/answers.h"

enum { EVAL_WORST = 3 };

/* A task under one policy and budget. */
typedef struct eval_mean {
    const char *task; /* borrowed from the rows */
    size_t n;
    double score, control; /* means */
} eval_mean;

/* One policy under one budget: means over the tasks that the full cache can do. */
typedef struct eval_series {
    const answer_row *of;          /* its first row: policy, table, budget */
    double macro, bytes, share;    /* means over tasks of the mean score; over rows */
    const char *worst[EVAL_WORST]; /* tasks, the worst first; NULL: there are no more */
    double worst_score[EVAL_WORST];
} eval_series;

/* The full cache does a task where its mean score is above the bar: the mean score of wrong answers
 * (answers.md, "control") and a tenth of what is left above it. */
double eval_bar(double control);

typedef struct eval_summary {
    eval_series *series; /* in the order of an item's lines */
    size_t n_series;
    eval_mean *tasks;       /* of the full cache */
    size_t n_tasks, n_done; /* n_done: tasks that it can do, which alone are averaged */
} eval_summary;
/* rows [n]: of whole items, n_series lines each, in one order. Borrows them. */
void eval_summary_make(const answer_row *rows, size_t n, size_t n_series, eval_summary *out);
void eval_summary_fini(eval_summary *s);
