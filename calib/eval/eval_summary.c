/* Means of answer lines: see eval_summary.h. */
#include "calib/eval/eval_summary.h"

#include <math.h>
#include <string.h>

double eval_bar(double control) {
    const double wrong = isnan(control) ? 0 : control;
    return wrong + 0.1 * (1 - wrong);
}

/* Means by task of series s; tasks in the order of their first items. Returns how many. */
static size_t means_of(const answer_row *rows, size_t n, size_t n_series, size_t s,
                       eval_mean *out) {
    size_t n_tasks = 0;
    for (size_t i = s; i < n; i += n_series) {
        size_t t = 0;
        while (t < n_tasks && strcmp(out[t].task, rows[i].task) != 0) { t++; }
        if (t == n_tasks) { out[n_tasks++] = (eval_mean){.task = rows[i].task}; }
        out[t].n++;
        out[t].score += rows[i].score;
        out[t].control += isnan(rows[i].control) ? 0 : rows[i].control;
    }
    for (size_t t = 0; t < n_tasks; t++) {
        out[t].score /= (double)out[t].n;
        out[t].control /= (double)out[t].n;
    }
    return n_tasks;
}

/* Into the worst ones, which ascend; of equal ones the earlier task. */
static void take_worst(eval_series *s, const eval_mean *t) {
    size_t at = EVAL_WORST;
    while (at > 0 && (!s->worst[at - 1] || t->score < s->worst_score[at - 1])) { at--; }
    for (size_t i = EVAL_WORST; i-- > at;) {
        s->worst[i] = i > at ? s->worst[i - 1] : t->task;
        s->worst_score[i] = i > at ? s->worst_score[i - 1] : t->score;
    }
}

void eval_summary_make(const answer_row *rows, size_t n, size_t n_series, eval_summary *out) {
    CKVC_AUTO_FREE eval_mean *means = ckvc_alloc(n, sizeof *means);
    *out = (eval_summary){.series = ckvc_calloc(n_series, sizeof *out->series),
                          .n_series = n ? n_series : 0,
                          .tasks = ckvc_alloc(n, sizeof *out->tasks)};
    out->n_tasks = means_of(rows, n, n_series, 0, out->tasks);
    for (size_t s = 0; s < out->n_series; s++) {
        eval_series *x = &out->series[s];
        x->of = &rows[s];
        out->n_done = 0;
        means_of(rows, n, n_series, s, means);
        for (size_t t = 0; t < out->n_tasks; t++) {
            if (out->tasks[t].score <= eval_bar(out->tasks[t].control)) { continue; }
            out->n_done++;
            x->macro += means[t].score;
            take_worst(x, &means[t]);
        }
        x->macro /= (double)out->n_done; /* NaN without any */
        for (size_t i = s; i < n; i += n_series) {
            x->bytes += rows[i].bytes * (double)n_series / (double)n;
            x->share += rows[i].share * (double)n_series / (double)n;
        }
    }
}

void eval_summary_fini(eval_summary *s) { CKVC_FREE(s->series, s->tasks); }
