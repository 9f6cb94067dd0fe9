/* See report_rows.h. */
#include "report/report_rows.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/memory.h"
#include "lib/base/order.h"

/* Every pair of them is compared. */
#define SERIES_MAX 1000

static int compare_series(const report_series *a, const report_series *b) {
    int c = strcmp(a->model, b->model);
    c = c ? c : (a->continuation > b->continuation) - (a->continuation < b->continuation);
    c = c ? c : (a->budget > b->budget) - (a->budget < b->budget);
    c = c ? c : (a->layer_budgets > b->layer_budgets) - (a->layer_budgets < b->layer_budgets);
    c = c ? c : setting_compare(&a->setting, &b->setting, SETTING_SCORE);
    c = c ? c : strcmp(a->policy, b->policy);
    return c ? c : strcmp(a->table, b->table);
}

bool report_one_score(const report_series *a, const report_series *b) {
    return setting_compare(&a->setting, &b->setting, SETTING_SCORE) == 0;
}

bool report_one_setting(const report_series *a, const report_series *b) {
    return strcmp(a->model, b->model) == 0 && a->budget == b->budget &&
           a->layer_budgets == b->layer_budgets && a->continuation == b->continuation;
}

int report_compare_prompts(const score_row *a, const score_row *b) {
    int c = strcmp(a->manifest, b->manifest);
    return c ? c : strcmp(a->id, b->id);
}

static int compare_entry(const void *pa, const void *pb) {
    const report_row *a = pa, *b = pb;
    if (a->series != b->series) { return a->series < b->series ? -1 : 1; }
    int c = report_compare_prompts(a->row, b->row);
    return c ? c : (a->row->line > b->row->line) - (a->row->line < b->row->line);
}

#define TAUS_NAMED 8 /* of more thresholds a title says the ends */

/* "0.875, 0.895", or "0.75 to 0.95". */
static void name_taus(const report_series *s, ckvc_buffer *b) {
    if (s->n_taus > TAUS_NAMED) {
        ckvc_buffer_printf(b, "%.4g to %.4g", s->taus[0], s->taus[s->n_taus - 1]);
        return;
    }
    for (size_t i = 0; i < s->n_taus; i++) {
        ckvc_buffer_printf(b, "%s%.4g", i ? ", " : "", s->taus[i]);
    }
}

/* "T1 technical", "matched to T1 technical (tau 0.87, 0.895)", "mean-gate of T1 technical", "recent
 * with the tokens of T1 technical", "recent". */
static char *policy_title(const report *r, const report_series *of, const score_row *row) {
    char *table = NULL;
    if (!*row->table) { return ckvc_strdup(row->policy); }
    for (size_t i = 0; i < r->n_tables && !table; i++) {
        if (strcmp(r->tables[i].f->content_id, row->table) == 0) {
            table = ckvc_strdup(r->tables[i].title);
        }
    }
    table = table ? table : ckvc_format("table %.12s", row->table);
    if (!table || strcmp(row->policy, "table") == 0) { return table; }
    char *title = NULL;
    if (of->n_taus) {
        ckvc_buffer taus = {0};
        name_taus(of, &taus);
        title = taus.failed ? NULL
                            : ckvc_format("%s to %s (\u03C4 %s)", row->policy, table,
                                          (const char *)taus.data);
        ckvc_buffer_fini(&taus);
    } else {
        title = ckvc_format(score_is_reference(of->kind) ? "%s with the tokens of %s" : "%s of %s",
                            row->policy, table);
    }
    free(table);
    return title;
}

static char *series_title(const report *r, const report_series *of, const score_row *row) {
    char *title = policy_title(r, of, row);
    if (!title || !row->layer_budgets) { return title; }
    char *longer = ckvc_format("%s, budgets by layer", title);
    free(title);
    return longer;
}

/* The thresholds of a series' rows, each once. */
static ckvc_status take_taus(const report_rows *s, report_series *of, ckvc_err *err) {
    size_t n = 0;
    of->taus = ckvc_alloc(of->n, sizeof *of->taus);
    for (size_t i = 0; i < of->n; i++) {
        double tau = s->rows[of->first + i].row->tau;
        if (isfinite(tau)) { of->taus[n++] = tau; }
    }
    qsort(of->taus, n, sizeof *of->taus, ckvc_order_double);
    for (size_t i = 0; i < n; i++) {
        if (of->n_taus == 0 || of->taus[of->n_taus - 1] != of->taus[i]) {
            of->taus[of->n_taus++] = of->taus[i];
        }
    }
    return CKVC_OK;
}

/* What a run took records from: by manifest and id ("manifest LF id"), and by its tokens, which a
 * copied manifest leaves as they are. Sorted. */
typedef struct seen_prompts {
    char **names;
    uint64_t *hashes;
    size_t n;
} seen_prompts;

static int compare_text(const void *a, const void *b) {
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static void seen_free(seen_prompts *seen) {
    for (size_t i = 0; seen->names && i < seen->n; i++) {
        free(seen->names[i]);
    }
    free(seen->names);
    free(seen->hashes);
}

/* *out zeroed; seen_free also after an error. */
static ckvc_status seen_gather(const report *r, seen_prompts *out, ckvc_err *err) {
    size_t total = 0;
    for (size_t i = 0; i < r->n_runs; i++) {
        total += r->runs[i].n_prompts;
    }
    out->names = ckvc_calloc(total + 1, sizeof *out->names);
    out->hashes = ckvc_calloc(total + 1, sizeof *out->hashes);
    for (size_t i = 0; i < r->n_runs; i++) {
        for (size_t p = 0; p < r->runs[i].n_prompts; p++) {
            const report_prompt *q = &r->runs[i].prompts[p];
            if (q->heldout || !r->runs[i].pass) { continue; }
            out->names[out->n] = ckvc_format("%s\n%s", r->runs[i].h.manifest, q->id);
            if (!out->names[out->n]) { return ckvc_fail_memory(err, "report", strlen(q->id)); }
            out->hashes[out->n++] = q->token_hash;
        }
    }
    qsort(out->names, out->n, sizeof *out->names, compare_text);
    qsort(out->hashes, out->n, sizeof *out->hashes, ckvc_order_u64);
    return CKVC_OK;
}

static ckvc_status was_seen(const seen_prompts *seen, const score_row *row, bool *out,
                            ckvc_err *err) {
    char *name = ckvc_format("%s\n%s", row->manifest, row->id);
    *out = bsearch(&name, seen->names, seen->n, sizeof *seen->names, compare_text) ||
           (row->token_hash &&
            bsearch(&row->token_hash, seen->hashes, seen->n, sizeof *seen->hashes, ckvc_order_u64));
    free(name);
    return CKVC_OK;
}

static bool is_heldout(const score_row *row) {
    return row->split && strcmp(row->split, "heldout") == 0;
}

/* Titles name a part of the score only where the series differ in it. */
static void add_settings(report_rows *s) {
    for (size_t i = 0; i < setting_n_fields; i++) {
        const setting_field *f = &setting_fields[i];
        bool differ = false;
        for (size_t k = 1; k < s->n_series && f->title; k++) {
            differ |= setting_number(f, &s->series[0].setting) !=
                      setting_number(f, &s->series[k].setting);
        }
        for (size_t k = 0; k < s->n_series && differ; k++) {
            char part[96];
            report_series *of = &s->series[k];
            if (!setting_title(f, &of->setting, part, sizeof part)) { continue; }
            char *title = ckvc_format("%s, %s", of->title, part);
            free(of->title);
            of->title = title;
        }
    }
}

/* Two files may hold the same prompt under the same policy (a table stands in each of them): it
 * counts once. */
static ckvc_status drop_repeated(report_rows *s, ckvc_err *err) {
    size_t n = 0;
    for (size_t i = 0; i < s->n; i++) {
        const report_row *last = n ? &s->rows[n - 1] : NULL, *now = &s->rows[i];
        if (!last || last->series != now->series ||
            report_compare_prompts(last->row, now->row) != 0) {
            s->rows[n++] = *now;
            continue;
        }
        const double a = last->row->reward, b = now->row->reward;
        if (!(fabs(a - b) <= 1e-4 || (isnan(a) && isnan(b)))) {
            return ckvc_fail(err, CKVC_E_DATA,
                             "score files: prompt \"%s\", policy \"%s\", budget %g: reward %.9g in "
                             "one, %.9g in another; they were "
                             "made with different options, report them apart",
                             now->row->id, now->row->policy, now->row->budget, a, b);
        }
        s->dropped_twice++;
    }
    s->n = n;
    return CKVC_OK;
}

ckvc_status report_rows_gather(const report *r, report_rows *s, ckvc_err *err) {
    size_t total = 0, unseen = 0, marked = 0;
    seen_prompts seen = {0};
    bool *is_seen = NULL;
    for (size_t i = 0; i < r->n_scores; i++) {
        total += r->scores[i]->n;
        for (size_t j = 0; j < r->scores[i]->n; j++) {
            marked += is_heldout(&r->scores[i]->rows[j]);
        }
    }
    ckvc_status rc = seen_gather(r, &seen, err);
    s->rows = ckvc_calloc(total + 1, sizeof *s->rows);
    s->series = ckvc_calloc(total + 1, sizeof *s->series);
    is_seen = ckvc_calloc(total + 1, sizeof *is_seen);
    if (rc == CKVC_OK && (!s->rows || !s->series || !is_seen)) {
        rc = ckvc_fail_memory(err, "report", total * (sizeof *s->rows + sizeof *s->series));
    }
    if (rc) { goto done; }
    for (size_t i = 0, k = 0; i < r->n_scores; i++) {
        for (size_t j = 0; j < r->scores[i]->n; j++, k++) {
            const score_row *row = &r->scores[i]->rows[j];
            if ((rc = was_seen(&seen, row, &is_seen[k], err))) { goto done; }
            unseen += !is_seen[k] && (!marked || is_heldout(row));
        }
    }
    for (size_t i = 0, k = 0; i < r->n_scores; i++) {
        for (size_t j = 0; j < r->scores[i]->n; j++, k++) {
            const score_row *row = &r->scores[i]->rows[j];
            if (marked && !is_heldout(row)) {
                s->dropped_split++;
                continue;
            }
            if (unseen && is_seen[k]) {
                s->dropped_seen++;
                continue;
            }
            report_series want = {.model = row->model,
                                  .policy = row->policy,
                                  .table = row->table,
                                  .kind = score_kind_named(row->policy),
                                  .budget = row->budget,
                                  .layer_budgets = row->layer_budgets,
                                  .setting = row->setting,
                                  .continuation = row->n_continuation};
            size_t at = 0;
            while (at < s->n_series && compare_series(&s->series[at], &want) != 0) {
                at++;
            }
            if (at == SERIES_MAX) {
                rc = ckvc_fail(err, CKVC_E_DATA,
                               "%s:%u: a report compares at most %d policies, tables, budgets and "
                               "models together; give fewer",
                               r->scores[i]->path, row->line, SERIES_MAX);
                goto done;
            }
            if (at == s->n_series) { s->series[s->n_series++] = want; }
            s->used_seen += is_seen[k];
            s->rows[s->n++] = (report_row){row, at};
        }
    }
    qsort(s->rows, s->n, sizeof *s->rows, compare_entry);
    rc = drop_repeated(s, err);
    if (rc) { goto done; }
    for (size_t i = 0; i < s->n; i++) {
        report_series *of = &s->series[s->rows[i].series];
        of->first = of->n ? of->first : i;
        of->n++;
    }
    for (size_t k = 0; k < s->n_series && rc == CKVC_OK; k++) {
        report_series *of = &s->series[k];
        rc = take_taus(s, of, err);
        of->title = rc == CKVC_OK ? series_title(r, of, s->rows[of->first].row) : NULL;
        if (rc == CKVC_OK && !of->title) { rc = ckvc_fail_memory(err, "report", 64); }
    }
    if (rc == CKVC_OK) { add_settings(s); }
done:
    seen_free(&seen);
    free(is_seen);
    return rc;
}

void report_rows_free(report_rows *s) {
    for (size_t i = 0; s->series && i < s->n_series; i++) {
        free(s->series[i].title);
        free(s->series[i].taus);
    }
    free(s->rows);
    free(s->series);
    *s = (report_rows){0};
}
