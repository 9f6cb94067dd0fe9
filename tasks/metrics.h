/* Scores of answers' texts, 0 to 1, as the benchmarks' own programs compute them. */
#pragma once

#include <stddef.h>

/* What of an answer counts. */
#define TASK_METRICS(X)                                                                            \
    X(MATCH_ALL, "match-all")                                                                      \
    X(MATCH_PART, "match-part")
typedef enum task_metric {
#define X(NAME, name) TASK_##NAME,
    TASK_METRICS(X)
#undef X
} task_metric;
const char *task_metric_name(task_metric metric);

/* NUL-terminated UTF-8 throughout; lower case is that of single code points.
 *
 * match-all   RULER's string_match_all: the share of the expected that stand in the answer, without
 *             regard to case (NVIDIA/RULER, scripts/eval/synthetic/constants.py)
 * match-part  RULER's string_match_part: 1 where any of them does */
double metric_score(task_metric metric, const char *const *expected, size_t n, const char *answer);
