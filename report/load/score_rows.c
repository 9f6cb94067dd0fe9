/* Decides which rows of the score files count, and groups them into series.
 *
 * When some rows are marked as held out, only those count. When runs are given, prompts that one
 * of them used for records (known by name or by tokens) are left out, as long as others remain. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

#include "lib/base/memory.h"
#include "lib/base/order.h"
#include "report/load/inputs.h"

const input_table *input_table_of(const inputs *in, const char *content_id) {
    for (size_t i = 0; i < in->n_tables; i++) {
        if (strcmp(in->tables[i].f->content_id, content_id) == 0) { return &in->tables[i]; }
    }
    return NULL;
}

#define SERIES_MAX 1000 /* every pair of them is compared */
#define TAUS_NAMED 8    /* a title names the ends of more thresholds than these */

typedef struct entry {
    const score_row *row;
    const char *path;
    bool seen; /* a run took records from its prompt */
    size_t series;
} entry;

/* ---- prompts that a run took records from ---- */

/* Returns an object whose keys are the prompts that a run took records from. A prompt has two
 * keys: manifest and id ("manifest LF id"), and its tokens, which stay the same in a copied
 * manifest. */
static json_t *seen_prompts(inputs *in) {
    json_t *seen = json_object();
    for (size_t i = 0; i < in->n_runs; i++) {
        const input_run *run = &in->runs[i];
        for (size_t p = 0; run->taken && p < run->n_prompts; p++) {
            const input_prompt *q = &run->prompts[p];
            if (q->heldout) { continue; }
            json_object_set_new_nocheck(
                seen, arena_text(&in->arena, "%s\n%s", run->h.manifest, q->id), json_true());
            json_object_set_new_nocheck(seen, arena_text(&in->arena, "%" PRIx64, q->token_hash),
                                        json_true());
        }
    }
    return seen;
}

static bool was_seen(const json_t *seen, const score_row *row) {
    CKVC_AUTO_FREE char *name = ckvc_format("%s\n%s", row->manifest, row->id),
                        *tokens = ckvc_format("%" PRIx64, row->token_hash);
    return json_object_get(seen, name) || (row->token_hash && json_object_get(seen, tokens));
}

/* ---- titles ---- */

/* Names the thresholds of a series, such as "0.875, 0.895" or "0.75 to 0.95". */
static const char *name_taus(arena *r, const score_series *s) {
    if (s->n_taus > TAUS_NAMED) {
        return arena_text(r, "%.4g to %.4g", s->taus[0], s->taus[s->n_taus - 1]);
    }
    const char *text = "";
    for (size_t i = 0; i < s->n_taus; i++) {
        text = arena_text(r, "%s%s%.4g", text, i ? ", " : "", s->taus[i]);
    }
    return text;
}

/* Returns a title such as "T1 technical", "matched to T1 technical (tau 0.87, 0.895)",
 * "mean-gate of T1 technical", "recent with the tokens of T1 technical", "cake+fit by the bank of
 * T1 technical", or "recent". */
static const char *policy_title(inputs *in, const score_series *s) {
    if (!*s->table) { return s->policy; }
    const input_table *t = input_table_of(in, s->table);
    const char *table = t ? t->title : arena_text(&in->arena, "table %.12s", s->table);
    if (s->kind == POLICY_TABLE) { return table; }
    if (s->n_taus) {
        return arena_text(&in->arena, "%s to %s (\u03C4 %s)", s->policy, table,
                          name_taus(&in->arena, s));
    }
    const char *joined = policy_is_fitted(s->policy)    ? "by the bank of"
                         : policy_is_reference(s->kind) ? "with the tokens of"
                                                        : "of";
    return arena_text(&in->arena, "%s %s %s", s->policy, joined, table);
}

/* Adds a field of the setting to the titles, if the series differ in it. */
static void name_field(arena *r, score_files *f, const setting_field *field) {
    bool differ = false;
    for (size_t k = 1; k < f->n_series; k++) {
        differ |= record_number(&field->m, &f->series[0].setting) !=
                  record_number(&field->m, &f->series[k].setting);
    }
    for (size_t k = 0; k < f->n_series && differ; k++) {
        char part[96];
        score_series *s = &f->series[k];
        if (setting_title(field, &s->setting, part, sizeof part)) {
            s->title = arena_text(r, "%s, %s", s->title, part);
        }
    }
}

static void name_series(inputs *in, score_files *f) {
    for (size_t k = 0; k < f->n_series; k++) {
        score_series *s = &f->series[k];
        s->title = arena_text(&in->arena, "%s%s", policy_title(in, s),
                              s->layer_budgets ? ", budgets by layer" : "");
    }
    for (int last = 0; last < 2; last++) { /* the window's size comes last */
        for (size_t i = 0; i < setting_n_fields; i++) {
            const setting_field *field = &setting_fields[i];
            if (field->title && last == !!(field->groups & SETTING_WINDOW)) {
                name_field(&in->arena, f, field);
            }
        }
    }
}

/* ---- series ---- */

static bool same_series(const score_series *s, const score_row *row) {
    return s->continuation == row->n_continuation && s->budget == row->budget &&
           s->layer_budgets == row->layer_budgets &&
           setting_compare(&s->setting, &row->setting,
                           SETTING_SCORE | SETTING_SETS | SETTING_CACHE) == 0 &&
           strcmp(s->model, row->model) == 0 && strcmp(s->policy, row->policy) == 0 &&
           strcmp(s->table, row->table) == 0;
}

/* Returns the number of the row's series, which may be new; SERIES_MAX means that there are too
 * many. */
static size_t series_of(score_files *f, const score_row *row) {
    size_t at = 0;
    while (at < f->n_series && !same_series(&f->series[at], row)) { at++; }
    if (at < f->n_series || at == SERIES_MAX) { return at; }
    f->series[f->n_series++] = (score_series){.model = row->model,
                                              .policy = row->policy,
                                              .table = row->table,
                                              .kind = policy_kind_named(row->policy),
                                              .budget = row->budget,
                                              .layer_budgets = row->layer_budgets,
                                              .setting = row->setting,
                                              .continuation = row->n_continuation};
    return at;
}

static int by_series(const void *pa, const void *pb) {
    const entry *a = pa, *b = pb;
    if (a->series != b->series) { return a->series < b->series ? -1 : 1; }
    int c = score_compare_prompts(a->row, b->row);
    return c ? c : (a->row->line > b->row->line) - (a->row->line < b->row->line);
}

/* Drops repeated rows. Two files may hold the same prompt under the same policy (each of them
 * has the lines of a table, say): it counts once. */
static ckvc_status drop_repeated(score_files *f, entry *rows, ckvc_err *err) {
    size_t n = 0;
    for (size_t i = 0; i < f->n_rows; i++) {
        const entry *last = n ? &rows[n - 1] : NULL, *now = &rows[i];
        if (!last || last->series != now->series ||
            score_compare_prompts(last->row, now->row) != 0) {
            rows[n++] = *now;
            continue;
        }
        const double a = last->row->reward, b = now->row->reward;
        CKVC_FAIL_IF(!(fabs(a - b) <= 1e-4 || (isnan(a) && isnan(b))), err, CKVC_E_DATA,
                     "score files: prompt \"%s\", policy \"%s\", budget %g: reward %.9g in one, "
                     "%.9g in another; they were made with different options, report them apart",
                     now->row->id, now->row->policy, now->row->budget, a, b);
        f->dropped_twice++;
    }
    f->n_rows = n;
    return CKVC_OK;
}

/* Fills each series with its rows and with their thresholds, each once. */
static void fill_series(arena *r, score_files *f, const entry *rows) {
    const score_row **all = arena_alloc(r, f->n_rows, sizeof(score_row *));
    for (size_t i = 0; i < f->n_rows; i++) {
        score_series *s = &f->series[rows[i].series];
        all[i] = rows[i].row;
        s->rows = s->n ? s->rows : &all[i];
        s->n++;
    }
    for (size_t k = 0; k < f->n_series; k++) {
        score_series *s = &f->series[k];
        size_t n = 0;
        s->taus = arena_alloc(r, s->n, sizeof *s->taus);
        for (size_t i = 0; i < s->n; i++) {
            if (isfinite(s->rows[i]->tau)) { s->taus[n++] = s->rows[i]->tau; }
        }
        qsort(s->taus, n, sizeof *s->taus, ckvc_order_double);
        for (size_t i = 0; i < n; i++) {
            if (i == 0 || s->taus[s->n_taus - 1] != s->taus[i]) {
                s->taus[s->n_taus++] = s->taus[i];
            }
        }
    }
}

static bool is_heldout(const score_row *row) {
    return row->split && strcmp(row->split, "heldout") == 0;
}

static ckvc_status collect_series(inputs *in, score_files *f, size_t total, ckvc_err *err) {
    json_auto_t *seen = seen_prompts(in);
    entry *rows = arena_alloc(&in->arena, total, sizeof *rows);
    bool marked = false, unseen = false;
    size_t n = 0;
    for (size_t i = 0; i < f->n_files; i++) {
        for (size_t j = 0; j < f->files[i]->n; j++) {
            const score_row *row = &f->files[i]->rows[j];
            rows[n++] = (entry){row, f->files[i]->path, was_seen(seen, row), 0};
            marked |= is_heldout(row);
        }
    }
    for (size_t i = 0; i < n; i++) {
        unseen |= !rows[i].seen && (!marked || is_heldout(rows[i].row));
    }
    for (size_t i = 0; i < n; i++) {
        entry e = rows[i];
        const bool other_split = marked && !is_heldout(e.row), used = unseen && e.seen;
        f->dropped_split += other_split;
        f->dropped_seen += used && !other_split;
        if (other_split || used) { continue; }
        e.series = series_of(f, e.row);
        CKVC_FAIL_IF(e.series == SERIES_MAX, err, CKVC_E_DATA,
                     "%s:%u: a report compares at most %d policies, tables, budgets and models "
                     "together; give fewer",
                     e.path, e.row->line, SERIES_MAX);
        f->used_seen += e.seen;
        rows[f->n_rows++] = e;
    }
    qsort(rows, f->n_rows, sizeof *rows, by_series);
    CKVC_TRY(drop_repeated(f, rows, err));
    for (size_t i = 0; i < f->n_rows; i++) { f->n_marked += is_heldout(rows[i].row); }
    fill_series(&in->arena, f, rows);
    return CKVC_OK;
}

/* ---- utilities ---- */

static int by_model(const void *pa, const void *pb) {
    const score_row *a = *(const score_row *const *)pa, *b = *(const score_row *const *)pb;
    int c = strcmp(a->model, b->model);
    return c ? c : score_compare_prompts(a, b);
}

static ckvc_status collect_utilities(arena *r, score_files *f, ckvc_err *err) {
    const score_row **rows = f->utilities = arena_alloc(r, f->n_rows, sizeof(score_row *));
    size_t n = 0;
    for (size_t k = 0; k < f->n_series; k++) {
        for (size_t i = 0; i < f->series[k].n; i++) {
            if (f->series[k].rows[i]->utility) { rows[n++] = f->series[k].rows[i]; }
        }
    }
    qsort(rows, n, sizeof(score_row *), by_model);
    for (size_t i = 0, first = 0; i < n; i++) {
        if (f->n_utilities && by_model(&rows[f->n_utilities - 1], &rows[i]) == 0) { continue; }
        const score_row *now = rows[f->n_utilities++] = rows[i], *like = rows[first];
        if (strcmp(like->model, now->model) != 0) { like = rows[first = f->n_utilities - 1]; }
        CKVC_FAIL_IF(
            now->n_layers != like->n_layers || now->n_heads != like->n_heads, err, CKVC_E_DATA,
            "score lines %u and %u of model %.12s...: %u x %u heads and %u x %u", like->line,
            now->line, now->model, like->n_layers, like->n_heads, now->n_layers, now->n_heads);
    }
    return CKVC_OK;
}

/* Returns the path of the scores by which a run of compile judged the table that it gave out.
 * They count where there is no --scores. NULL: there are none. */
static const char *own_scores(inputs *in, const run_dir *run) {
    const char *path = NULL;
    for (size_t i = 0; i < json_array_size(run_notes(run)); i++) {
        static const char table[] = "tables/pass-";
        const char *from =
            json_string_value(json_object_get(json_array_get(run_notes(run), i), "from"));
        if (!from || strncmp(from, table, sizeof table - 1) != 0) { continue; }
        const char *file =
            arena_text(&in->arena, "heldout/pass-%.2s.jsonl", from + sizeof table - 1);
        path =
            run_has_file(run, file) ? arena_text(&in->arena, "%s/%s", run_path(run), file) : path;
    }
    return path;
}

ckvc_status score_rows_load(inputs *in, ckvc_err *err) {
    score_files *f = &in->scores;
    size_t total = 0, n = in->o->n_scores;
    const char **paths = arena_alloc(&in->arena, n + in->n_runs, sizeof *paths);
    for (size_t i = 0; i < n; i++) { paths[i] = in->o->scores[i]; }
    for (size_t i = 0; i < in->n_runs && !in->o->n_scores; i++) {
        n += (paths[n] = own_scores(in, in->runs[i].dir)) != NULL;
    }
    f->files = arena_alloc(&in->arena, n, sizeof(scores *));
    for (size_t i = 0; i < n; i++) {
        CKVC_TRY(scores_read(paths[i], &f->files[i], err));
        total += f->files[f->n_files++]->n;
    }
    f->series = arena_alloc(&in->arena, total, sizeof *f->series);
    CKVC_TRY(collect_series(in, f, total, err));
    name_series(in, f);
    return collect_utilities(&in->arena, f, err);
}
