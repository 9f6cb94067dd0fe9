/* See numbers.h. */
#include "report/numbers/numbers.h"

void add_sorted(const char **names, size_t *n, const char *name) {
    size_t i = 0;
    while (i < *n && strcmp(names[i], name) < 0) { i++; }
    if (i < *n && strcmp(names[i], name) == 0) { return; }
    memmove(names + i + 1, names + i, (*n - i) * sizeof(char *));
    names[i] = name;
    ++*n;
}

ckvc_status numbers_make(report_numbers *n, inputs *in, ckvc_err *err) {
    *n = (report_numbers){.in = in};
    table_numbers_make(n);
    CKVC_TRY(trust_numbers_make(n, err));
    pair_numbers_make(n);
    run_numbers_make(n);
    score_numbers_make(n);
    verdict_numbers_make(n);
    answer_numbers_make(n);
    transfer_numbers_make(n);
    attention_numbers_make(n);
    diagnostic_numbers_make(n);
    return CKVC_OK;
}
