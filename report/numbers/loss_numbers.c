/* Computes what every policy loses against what it keeps. Each table and each reference has one
 * row, that in which its KL is least, or its loss where lines without KL are among them. */
#include <math.h>
#include <stdlib.h>

#include "report/numbers/numbers.h"

typedef struct loss_row {
    const char *label, *table; /* the table's tag, NULL: none */
    double budget;
    interval loss, kl; /* over the full cache, nats per token; kl NaN: lines without it */
    double deciding;   /* the mean of kl where every row of the list has it, else that of loss */
    double kept;       /* entries of a KV head, mean */
    size_t n;
} loss_row;

static int by_deciding(const void *pa, const void *pb) {
    const loss_row *a = pa, *b = pb;
    return (a->deciding > b->deciding) - (a->deciding < b->deciding);
}

const table_numbers *series_table(const report_numbers *n, const score_series *s) {
    EACH(table_numbers, t, n->tables, n->n_tables) {
        if (strcmp(t->f->content_id, s->table) == 0) { return t; }
    }
    return NULL;
}

bool series_is_shown(const score_series *s) {
    return s->kind == POLICY_TABLE || s->kind == POLICY_IDENTITY || policy_is_reference(s->kind);
}

/* Returns the label. A reference goes by its policy alone, unless it takes more than a prefill to
 * have it. */
const char *series_label(const report_numbers *n, const score_series *s) {
    const table_numbers *t = series_table(n, s);
    if (s->kind == POLICY_TABLE) {
        const char *title = t ? t->in->title : s->title;
        EACH(score_series, x, n->scores.series, n->scores.n_series) {
            if (series_is_unfitted(s, x)) {
                return arena_text(&n->in->arena, "%s, entries as they were", title);
            }
        }
        return title;
    }
    return policy_needs_table(s->kind) && t
               ? arena_text(&n->in->arena, "%s, by %s", s->policy, t->in->tag)
           : series_reads_twice(s) ? arena_text(&n->in->arena, "%s, reads twice", s->policy)
                                   : s->policy;
}

static loss_row row_of(const report_numbers *n, const score_series *s, bool by_kl) {
    const table_numbers *t = s->kind == POLICY_TABLE ? series_table(n, s) : NULL;
    const char *label = series_label(n, s);
    loss_row o = {.label = series_has_formats(s)
                               ? arena_text(&n->in->arena, "%s in %s", label, series_formats(n, s))
                               : label,
                  .table = t ? t->in->tag : NULL,
                  .budget = s->budget,
                  .loss = series_loss(s, false),
                  .kl = series_loss(s, true),
                  .deciding = series_loss(s, by_kl).mean,
                  .n = s->n};
    for (size_t i = 0; i < s->n; i++) { o.kept += score_row_kept(s->rows[i]) / (double)s->n; }
    return o;
}

static json_t *row_json(const loss_row *o, const char *of) {
    return OBJECT({"setting", J(of)}, OF(o, budget), OF(o, label), OF(o, table), OF(o, n),
                  OF(o, kept), {"loss", J(o->loss.mean)}, {"lo", J(o->loss.lo)},
                  {"hi", J(o->loss.hi)}, {"kl", J(o->kl.mean)}, {"kl_lo", J(o->kl.lo)},
                  {"kl_hi", J(o->kl.hi)});
}

/* Returns, for example, "12.5% of T, NAME". NAME is the model of a table that was scored in this
 * setting, if there is one. */
static const char *setting_of(const report_numbers *n, const score_series *like,
                              const table_numbers *table) {
    const char *model = table ? json_text_of(table->f->meta, "model_name") : NULL;
    const char *after = like->setting.compress_after ? ", compressed after the first turn" : "",
               *of = model ? arena_text(&n->in->arena, ", %s%s", model, after) : after;
    return like->budget < 1 ? arena_text(&n->in->arena, "%.4g%% of T%s", 100 * like->budget, of)
                            : arena_text(&n->in->arena, "%g tokens%s", like->budget, of);
}

static bool has_row(const score_series *s) {
    return series_is_shown(s) || (s->kind == POLICY_FULL && series_has_formats(s));
}

/* Adds the rows of one setting, the least loss or KL first. */
static void add_loss_rows(const report_numbers *n, const score_series *like, bool by_kl,
                          json_t *list) {
    const table_numbers *table = NULL;
    loss_row *rows = NEW(n, n->scores.n_series, loss_row);
    size_t k = 0;
    EACH(score_series, s, n->scores.series, n->scores.n_series) {
        if (!has_row(s) || !series_of_one_setting(s, like)) { continue; }
        const loss_row row = row_of(n, s, by_kl);
        size_t at = k;
        for (size_t i = 0; i < k; i++) { at = strcmp(rows[i].label, row.label) == 0 ? i : at; }
        if (!isfinite(row.loss.mean) || (at < k && rows[at].deciding <= row.deciding)) { continue; }
        rows[at] = row;
        k += at == k;
        table = table ? table : series_table(n, s);
    }
    const char *of = setting_of(n, like, table);
    qsort(rows, k, sizeof *rows, by_deciding);
    for (size_t i = 0; i < k; i++) { json_array_append_new(list, row_json(&rows[i], of)); }
}

void loss_numbers_make(report_numbers *n) {
    const score_numbers *s = &n->scores;
    json_t *all = json_object_get(n->json, "scores"), *list = json_object_get(all, "losses");
    bool by_kl = true;
    EACH(score_series, x, s->series, s->n_series) {
        by_kl &= !has_row(x) || !isfinite(series_loss(x, false).mean) ||
                 isfinite(series_loss(x, true).mean);
    }
    json_object_set_new(all, "losses_by_kl", json_boolean(by_kl));
    EACH(score_series, x, s->series, s->n_series) {
        bool first = series_is_shown(x);
        for (const score_series *y = s->series; y < x; y++) {
            first &= !(series_is_shown(y) && series_of_one_setting(x, y));
        }
        if (first) { add_loss_rows(n, x, by_kl, list); }
    }
}
