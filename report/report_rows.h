/* The rows of the score files that count, by series: what report_scores.c compares and the
 * diagnostics look at. */
#ifndef CKVC_REPORT_ROWS_H
#define CKVC_REPORT_ROWS_H

#include "formats/lines/score_kind.h"
#include "report/report_internal.h"

typedef struct report_row {
    const score_row *row;
    size_t series;
} report_row;

/* One policy or table in one setting. */
typedef struct report_series {
    const char *model, *policy, *table;
    score_kind kind; /* of the policy; SCORE_KIND_COUNT: another program's */
    double budget;
    uint64_t layer_budgets; /* which budgets by layer; 0: none */
    uint32_t continuation;
    setting setting;
    double *taus; /* [n_taus] the thresholds of a matched control, ascending: one for each `score`
                     that found its own */
    size_t n_taus;
    char *title;
    size_t first, n; /* its rows */
} report_series;

typedef struct report_rows {
    report_row *rows; /* sorted by series, then prompt */
    size_t n;
    report_series *series;
    size_t n_series;
    size_t dropped_seen, dropped_split,
        dropped_twice; /* the last: rows that another file gave already */
    size_t used_seen;  /* rows in use although a run took records from their prompts: there was
                          nothing else */
} report_rows;

/* Takes the rows of every score file. When some are marked as held out, those alone; when runs are
 * given, prompts that one of them used for records (by name, or by their tokens) are left out, as
 * long as others remain. *out zeroed; report_rows_free also after an error. */
ckvc_status report_rows_gather(const report *r, report_rows *out, ckvc_err *err) CKVC_MUST_CHECK;
void report_rows_free(report_rows *s);
bool report_one_setting(const report_series *a, const report_series *b); /* one model, budget, C */
bool report_one_score(const report_series *a, const report_series *b);
int report_compare_prompts(const score_row *a, const score_row *b); /* by manifest, then id */

#endif
