/* Scores of answers' texts, from 0 to 1, computed as the benchmarks' own programs do. */
#pragma once

#include <stddef.h>

/* The metrics:
 *
 *   match-all        RULER's string_match_all: the share of the expected answers that occur in the
 *                    answer, ignoring case (NVIDIA/RULER, scripts/eval/synthetic/constants.py)
 *
 *   match-part       RULER's string_match_part: 1 where any of them occurs, else 0
 *
 *   classification   LongBench's (THUDM/LongBench, LongBench/metrics.py): 1 over the number of
 *                    labels that occur in the answer, if the right one is among them, else 0. Of
 *                    several expected labels the one with the highest score counts. */
#define TASK_METRICS(X)                                                                            \
    X(MATCH_ALL, "match-all")                                                                      \
    X(MATCH_PART, "match-part")                                                                    \
    X(CLASSIFICATION, "classification")
typedef enum task_metric {
#define X(NAME, name) TASK_##NAME,
    TASK_METRICS(X)
#undef X
        TASK_METRIC_COUNT
} task_metric;
const char *task_metric_name(task_metric metric);

typedef struct metric_texts { /* NUL-terminated UTF-8; borrowed */
    const char *const *expected;
    size_t n_expected;
    const char *const *classes; /* for classification */
    size_t n_classes;
} metric_texts;

/* Computes the score of a NUL-terminated answer. Lower case is that of single code points: Python's
 * special cases, capital sigma at the end of a word and dotted capital I, are missing. */
double metric_score(task_metric metric, const metric_texts *texts, const char *answer);
