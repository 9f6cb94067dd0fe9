/* Scores of answers' texts, 0 to 1, as the benchmarks' own programs compute them. */
#pragma once

#include <stddef.h>

/* match-all        RULER's string_match_all: the share of the expected that stand in the answer,
 *                  without regard to case (NVIDIA/RULER, scripts/eval/synthetic/constants.py)
 * match-part       RULER's string_match_part: 1 where any of them does
 * The others are LongBench's (THUDM/LongBench, LongBench/metrics.py), the best over the expected:
 * f1               of words, after SQuAD's normalisation: lower case, no ASCII punctuation, no
 *                  articles
 * rouge-l          of summaries, as the Python package rouge 1.0.1 has it: the words of the longest
 *                  common subsequences of all pairs of sentences, as a set (the package gives 0
 * where a pair of some thousand words meets Python's limit of recursion; this does not)
 * code-similarity  fuzzywuzzy 0.18's ratio without python-Levenshtein (difflib's, in whole percent)
 *                  of the first line without a '`', '#' or "//"
 * classification   1 over the number of labels that stand in the answer, the right one among them
 * retrieval        of the numbers in the answer, the share of that behind "Paragraph " in the
 *                  expected
 * count            of the numbers in the answer, the share that are the expected */
#define TASK_METRICS(X)                                                                            \
    X(MATCH_ALL, "match-all")                                                                      \
    X(MATCH_PART, "match-part")                                                                    \
    X(F1, "f1")                                                                                    \
    X(ROUGE_L, "rouge-l")                                                                          \
    X(CODE_SIMILARITY, "code-similarity")                                                          \
    X(CLASSIFICATION, "classification")                                                            \
    X(RETRIEVAL, "retrieval")                                                                      \
    X(COUNT, "count")
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
    const char *const *classes; /* of classification */
    size_t n_classes;
} metric_texts;

/* Lower case is that of single code points: of Python's, capital sigma at the end of a word and
 * dotted capital I are missing. */
double metric_score(task_metric metric, const metric_texts *texts, const char *answer);
