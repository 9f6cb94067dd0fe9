/* Reads the answers files and orders their rows: see inputs.h. */

#include <math.h>
#include <stdlib.h>

#include "report/load/inputs.h"

#define SERIES_MAX 1000 /* their answers to an item lie side by side */

int answer_compare_benches(const answer_row *a, const answer_row *b) {
    int c = strcmp(a->model, b->model);
    return c ? c : (int)a->query - (int)b->query;
}

/* Orders budgets: the full cache is 0, shares of T are 1, and numbers of tokens are 2. */
static int budget_kind(const answer_row *a) { return isnan(a->budget) ? 0 : a->budget < 1 ? 1 : 2; }

int answer_compare_series(const answer_row *a, const answer_row *b) {
    int c = budget_kind(a) - budget_kind(b);
    c = c ? c : (a->budget < b->budget) - (a->budget > b->budget);
    c = c ? c : strcmp(a->policy, b->policy);
    c = c ? c : strcmp(a->table ? a->table : "", b->table ? b->table : "");
    return c ? c
             : setting_compare(&a->setting, &b->setting,
                               SETTING_SCORE | SETTING_SETS | SETTING_CACHE);
}

int answer_compare_items(const answer_row *a, const answer_row *b) {
    int c = strcmp(a->task, b->task);
    return c ? c : strcmp(a->id, b->id);
}

static int by_place(const void *pa, const void *pb) {
    const answer_row *a = *(const answer_row *const *)pa, *b = *(const answer_row *const *)pb;
    int c = answer_compare_benches(a, b);
    c = c ? c : answer_compare_series(a, b);
    return c ? c : answer_compare_items(a, b);
}

/* Drops repeated rows: two files may hold the same answer, and it counts once. */
static ckvc_status drop_repeated(answer_files *f, ckvc_err *err) {
    size_t n = 0;
    for (size_t i = 0; i < f->n_rows; i++) {
        const answer_row *now = f->rows[i], *last = n ? f->rows[n - 1] : NULL;
        if (!last || by_place(&last, &now) != 0) {
            f->rows[n++] = now;
            continue;
        }
        CKVC_FAIL_IF(last->score != now->score || last->entries != now->entries, err, CKVC_E_DATA,
                     "answers files: item \"%s\", policy \"%s\", budget %g: score %.9g of %.0f "
                     "entries in one, %.9g of %.0f in another; they were made with different "
                     "options, report them apart",
                     now->id, now->policy, now->budget, last->score, last->entries, now->score,
                     now->entries);
        f->dropped_twice++;
    }
    f->n_rows = n;
    return CKVC_OK;
}

ckvc_status answer_rows_load(inputs *in, ckvc_err *err) {
    answer_files *f = &in->answers;
    f->files = arena_alloc(&in->arena, in->o->n_answers, sizeof(answers *));
    for (; f->n_files < in->o->n_answers; f->n_files++) {
        CKVC_TRY(answers_read(in->o->answers[f->n_files], &f->files[f->n_files], err));
    }
    return answer_rows_take(in, err);
}

ckvc_status answer_rows_take(inputs *in, ckvc_err *err) {
    answer_files *f = &in->answers;
    size_t total = 0;
    for (size_t i = 0; i < f->n_files; i++) { total += f->files[i]->n; }
    f->rows = arena_alloc(&in->arena, total, sizeof(answer_row *));
    for (size_t i = 0; i < f->n_files; i++) {
        for (size_t k = 0; k < f->files[i]->n; k++) {
            f->rows[f->n_rows++] = &f->files[i]->rows[k];
        }
    }
    qsort(f->rows, f->n_rows, sizeof *f->rows, by_place);
    CKVC_TRY(drop_repeated(f, err));
    size_t series = 0;
    for (size_t i = 0; i < f->n_rows; i++) {
        series += i == 0 || answer_compare_benches(f->rows[i - 1], f->rows[i]) != 0 ||
                  answer_compare_series(f->rows[i - 1], f->rows[i]) != 0;
    }
    CKVC_FAIL_IF(series > SERIES_MAX, err, CKVC_E_DATA,
                 "answers files: %zu policies, tables, budgets and models, wanted at most %d "
                 "together; give fewer",
                 series, SERIES_MAX);
    return CKVC_OK;
}
