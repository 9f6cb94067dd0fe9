/* The rows of the answers files, in the order in which they are counted (answer_rows.c). */
#pragma once

#include "formats/lines/answers.h"

typedef struct answer_files {
    answers **files;
    size_t n_files;
    const answer_row **rows;      /* [n_rows] each once: by bench, series, task and item */
    size_t n_rows, dropped_twice; /* the last: that another file gave already */
} answer_files;

/* One model, and the question seen or not: what may stand in one column. */
int answer_compare_benches(const answer_row *a, const answer_row *b);
/* One policy or table in one setting at one budget: the full cache first, then by falling budget,
 * shares of T before numbers of tokens. */
int answer_compare_series(const answer_row *a, const answer_row *b);
int answer_compare_items(const answer_row *a, const answer_row *b); /* by task, then id */
