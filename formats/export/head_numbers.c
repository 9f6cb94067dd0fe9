/* One number a head: see head_numbers.h. */
#include "formats/export/head_numbers.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>

#include "formats/export/foreign_heads.h"
#include "formats/export/npy.h"
#include "formats/export/safetensors_folder.h"
#include "lib/base/files.h"
#include "lib/base/json.h"
#include "lib/base/order.h"
#include "lib/base/text_lines.h"

enum { TEXT_MAX = 16 << 20, SINK = 64, RECENT = 256 /* DuoAttention's own defaults */ };
#define TSV "full_attention_heads.tsv"

/* ---- writing ---- */

/* The block that --budget names, or the only one. */
static ckvc_status block_of(const ckvc_table *c, const export_options *o, const char *path,
                            uint32_t *out, ckvc_err *err) {
    CKVC_FAIL_IF(!c->share, err, CKVC_E_MISMATCH,
                 "%s: this table has no budgets by head, and the format holds nothing else", path);
    CKVC_FAIL_IF(!o->budget && c->n_budgets > 1, err, CKVC_E_USAGE,
                 "%s: the table has %u budgets, the format one number a head: --budget B says of "
                 "which",
                 path, c->n_budgets);
    for (*out = 0; o->budget && *out < c->n_budgets; (*out)++) {
        if (c->budgets[*out] == o->budget) { break; }
    }
    CKVC_FAIL_IF(*out == c->n_budgets, err, CKVC_E_USAGE,
                 "%s: --budget %g is not among the table's (ckvc inspect lists them)", path,
                 o->budget);
    return CKVC_OK;
}

/* [L][G] shares of a block over the largest; the caller frees. */
static ckvc_status graded(const ckvc_table *c, const export_options *o, const char *path,
                          double **out, ckvc_err *err) {
    uint32_t b = 0;
    *out = NULL;
    CKVC_TRY(block_of(c, o, path, &b, err));
    const size_t n = (size_t)c->n_layers * c->n_heads;
    double most = 0.0;
    *out = ckvc_alloc(n, sizeof **out);
    for (size_t i = 0; i < n; i++) {
        (*out)[i] = c->share[i * c->n_budgets + b];
        most = fmax(most, (*out)[i]);
    }
    for (size_t i = 0; i < n; i++) { (*out)[i] /= most; } /* not all are 0: ckvc_table_check */
    return CKVC_OK;
}

/* Of formats whose rows are KV heads. */
static ckvc_status must_be_kv(const ckvc_table *c, const char *path, ckvc_err *err) {
    CKVC_FAIL_IF(c->head_axis, err, CKVC_E_MISMATCH,
                 "%s: the table's rows are query heads, the format's are KV heads, and how many "
                 "share one is not known",
                 path);
    return CKVC_OK;
}

/* The full_share * n largest become 1, of equal ones the first, all others 0. */
static void split_full(double *values, size_t n, double full_share) {
    const size_t n_full = (size_t)(full_share * (double)n + 0.5);
    CKVC_AUTO_FREE double *sorted = ckvc_copy(values, n, sizeof *values);
    qsort(sorted, n, sizeof *sorted, ckvc_order_double);
    const double least = n_full ? sorted[n - n_full] : INFINITY;
    size_t equal = n_full;
    for (size_t i = 0; i < n; i++) { equal -= values[i] > least; }
    for (size_t i = 0; i < n; i++) {
        const bool takes = values[i] == least && equal;
        equal -= takes;
        values[i] = values[i] > least || takes ? 1.0 : 0.0;
    }
}

ckvc_status duo_attention_write(table_file *t, const export_options *o, const char *path,
                                ckvc_buffer *note, ckvc_err *err) {
    const ckvc_table *c = t->table;
    CKVC_AUTO_FREE double *values = NULL;
    CKVC_AUTO(ckvc_buffer_fini) ckvc_buffer tsv = {0};
    CKVC_AUTO(ckvc_buffer_fini) ckvc_buffer config = {0};
    CKVC_TRY(must_be_kv(c, path, err));
    CKVC_TRY(graded(c, o, path, &values, err));
    const size_t n = (size_t)c->n_layers * c->n_heads;
    if (o->full_share > 0.0) { split_full(values, n, o->full_share); }
    for (size_t i = 0; i < n; i++) {
        ckvc_buffer_printf(&tsv, "%.18e%c", values[i], (i + 1) % c->n_heads ? '\t' : '\n');
    }
    json_auto_t *keys = json_pack("{s:i, s:i, s:s}", "sink_size", SINK, "recent_size", RECENT,
                                  "ckvc_content_id", t->content_id);
    ckvc_json_append(&config, keys);
    ckvc_buffer_text(&config, "\n");
    ckvc_buffer_printf(note,
                       "rows are KV heads; sink_size %d and recent_size %d are DuoAttention's "
                       "defaults, not the table's",
                       SINK, RECENT);
    CKVC_TRY(export_into(path, TSV, &tsv, o, err));
    return export_into(path, "config.json", &config, o, err);
}

ckvc_status headkv_write(table_file *t, const export_options *o, const char *path,
                         ckvc_buffer *note, ckvc_err *err) {
    const ckvc_table *c = t->table;
    CKVC_AUTO_FREE double *values = NULL;
    CKVC_AUTO(ckvc_buffer_fini) ckvc_buffer text = {0};
    CKVC_TRY(expanded_check(c, path, err));
    CKVC_TRY(graded(c, o, path, &values, err));
    const uint32_t H = c->n_query_heads, group = H / c->n_heads;
    for (uint32_t i = 0; i < c->n_layers * H; i++) {
        ckvc_buffer_printf(&text, "%s\"%u-%u\": [%.17g]", i ? ", " : "{", i / H, i % H,
                           values[i / H * c->n_heads + i % H / group]);
    }
    ckvc_buffer_text(&text, "}\n");
    note_expanded(note, c);
    return ckvc_publish_bytes(path, text.data, text.size, o->force, err);
}

ckvc_status kvzip_write(table_file *t, const export_options *o, const char *path, ckvc_buffer *note,
                        ckvc_err *err) {
    const ckvc_table *c = t->table;
    CKVC_AUTO_FREE double *values = NULL;
    CKVC_AUTO(ckvc_buffer_fini) ckvc_buffer file = {0};
    CKVC_TRY(must_be_kv(c, path, err));
    CKVC_TRY(graded(c, o, path, &values, err));
    const uint64_t dims[CKVT_RANK_MAX] = {c->n_layers, c->n_heads};
    npy_append_f32(&file, values, dims, 2);
    ckvc_buffer_text(note, "rows are KV heads; torch.save(torch.from_numpy(numpy.load(F))) makes "
                           "KVzip's .pt of it");
    return ckvc_publish_bytes(path, file.data, file.size, o->force, err);
}

/* ---- reading ---- */

/* [L][G] numbers (taken over by nobody) -> a table with shares of the model. */
static ckvc_status table_of_scores(const char *path, const char *format, const model_heads *m,
                                   const double *scores, const import_options *o, table_file **out,
                                   ckvc_err *err) {
    const size_t n = (size_t)m->n_layers * m->n_kv_heads;
    double sum = 0.0;
    CKVC_FAIL_IF(!o->n_budgets, err, CKVC_E_USAGE,
                 "%s: scores of heads have no budget: --budget B,... says for which the table is",
                 path);
    for (size_t i = 0; i < n; i++) {
        CKVC_REFUSE_IF(!(scores[i] >= 0.0 && isfinite(scores[i])), err, path,
                       "layer %zu, KV head %zu: score %g, want 0 or more", i / m->n_kv_heads,
                       i % m->n_kv_heads, scores[i]);
        sum += scores[i] / (double)n;
    }
    CKVC_REFUSE_IF(!(sum > 0.0 && isfinite(sum)), err, path, "no score is above 0");
    ckvc_table *t = ckvc_table_create(m->n_layers, m->n_kv_heads, 1, 1, o->n_budgets,
                                      CKVC_HEAD_ACTIONS, CKVC_GATE_ACTIONS);
    if (!t || ckvc_table_add_shares(t, 0) != 0) { ckvc_out_of_memory(n, sizeof(double)); }
    t->n_query_heads = m->n_query_heads;
    t->window = 64;
    t->op = CKVC_OPERATOR_NO_THRESHOLD;
    memcpy(t->budgets, o->budgets, o->n_budgets * sizeof(double));
    for (int a = 0; a < CKVC_HEAD_ACTIONS; a++) { t->head_grid[a] = ckvc_head_action(a); }
    for (int a = 0; a < CKVC_GATE_ACTIONS; a++) { t->gate_grid[a] = ckvc_gate_action(a); }
    for (size_t i = 0; i < n * o->n_budgets; i++) {
        t->weight[i] = (float)ckvc_head_action(CKVC_HEAD_NEUTRAL);
        t->share[i] = scores[i / o->n_budgets] / sum;
    }
    for (uint32_t i = 0; i < m->n_layers * o->n_budgets; i++) {
        t->tau[i] = (float)ckvc_gate_action(CKVC_GATE_START);
    }
    for (uint32_t b = 0; b < o->n_budgets; b++) {
        t->c_min[b] = (ckvc_c_min){.floor = o->c_min, .recent = 8};
        t->score[b] = ckvc_default_score(CKVC_SCORE_WINDOW, 0);
        t->score[b].mode = CKVC_MODE_HEADS;
    }
    return table_of_import(t, path, format, m, out, err);
}

/* The model is needed: without it nobody knows how query heads share KV heads. */
static ckvc_status model_of(const import_options *o, const char *path, model_heads *m,
                            ckvc_err *err) {
    CKVC_FAIL_IF(!o->model, err, CKVC_E_USAGE,
                 "%s: --model DIR is needed: whose layers and heads these are, and how many query "
                 "heads read a KV head",
                 path);
    return model_heads_read(o->model, m, err);
}

/* A line of numbers and tabs. */
static ckvc_status read_tsv_line(const char *path, const ckvc_lines *line, double *row, uint32_t n,
                                 ckvc_err *err) {
    CKVC_AUTO_FREE char *text = ckvc_text_copy(line->text, line->n);
    const char *at = text;
    for (uint32_t g = 0; g < n; g++) {
        char *end;
        row[g] = strtod(at, &end);
        const char last = g + 1 < n ? '\t' : '\0';
        CKVC_REFUSE_IF(end == at || isspace((unsigned char)*at) || *end != last || isnan(row[g]),
                       err, path, "line %u: want %u numbers between tabs, one a KV head",
                       line->number, n);
        row[g] = fmin(fmax(row[g], 0.0), 1.0); /* as DuoAttention does */
        at = end + 1;
    }
    return CKVC_OK;
}

ckvc_status duo_attention_read(const char *path, const import_options *o, table_file **out,
                               ckvc_err *err) {
    model_heads m;
    CKVC_AUTO_FREE char *file = ckvc_path_join(path, TSV);
    CKVC_AUTO_FREE char *text = NULL;
    size_t size;
    CKVC_TRY(model_of(o, path, &m, err));
    CKVC_TRY(ckvc_file_read(file, TEXT_MAX, &text, &size, err));
    CKVC_AUTO_FREE double *scores = ckvc_calloc((size_t)m.n_layers * m.n_kv_heads, sizeof *scores);
    ckvc_lines line = ckvc_lines_of(text, size);
    while (ckvc_next_line(&line)) {
        CKVC_REFUSE_IF(line.number > m.n_layers, err, file, "more than the %u layers of %s",
                       m.n_layers, o->model);
        double *row = scores + (size_t)(line.number - 1) * m.n_kv_heads;
        CKVC_TRY(read_tsv_line(file, &line, row, m.n_kv_heads, err));
    }
    CKVC_REFUSE_IF(line.number != m.n_layers, err, file, "%u lines, the model %s has %u layers",
                   line.number, o->model, m.n_layers);
    return table_of_scores(path, "duo-attention", &m, scores, o, out, err);
}

/* The mean of a list of numbers; NaN where it is none. */
static double mean_of(const json_t *list) {
    const size_t n = json_array_size(list);
    double sum = 0.0;
    for (size_t i = 0; i < n; i++) {
        const json_t *v = json_array_get(list, i);
        sum += json_is_number(v) ? json_number_value(v) : NAN;
    }
    return sum / (double)n;
}

ckvc_status headkv_read(const char *path, const import_options *o, table_file **out,
                        ckvc_err *err) {
    model_heads m;
    json_auto_t *all = NULL;
    CKVC_TRY(model_of(o, path, &m, err));
    CKVC_TRY(ckvc_json_read(path, TEXT_MAX, &all, err));
    const uint32_t H = m.n_query_heads, group = H / m.n_kv_heads;
    CKVC_AUTO_FREE double *scores = ckvc_calloc((size_t)m.n_layers * m.n_kv_heads, sizeof *scores);
    CKVC_REFUSE_IF(json_object_size(all) != (size_t)m.n_layers * H, err, path,
                   "%zu heads, the model %s has %u layers of %u query heads", json_object_size(all),
                   o->model, m.n_layers, H);
    for (uint32_t i = 0; i < m.n_layers * H; i++) {
        char key[32];
        snprintf(key, sizeof key, "%u-%u", i / H, i % H);
        const double mean = mean_of(json_object_get(all, key));
        CKVC_REFUSE_IF(isnan(mean), err, path, "\"%s\" is missing, or no list of numbers", key);
        scores[i / H * m.n_kv_heads + i % H / group] += mean / group;
    }
    return table_of_scores(path, "headkv", &m, scores, o, out, err);
}

ckvc_status kvzip_read(const char *path, const import_options *o, table_file **out, ckvc_err *err) {
    model_heads m;
    table_array a = {0};
    CKVC_AUTO_FREE char *bytes = NULL;
    CKVC_TRY(model_of(o, path, &m, err));
    CKVC_TRY(npy_read_reals(path, 2, 2, &bytes, &a, err));
    CKVC_TRY(model_heads_check(&m, path, a.dims[0], a.dims[1], false, err));
    const size_t n = (size_t)m.n_layers * m.n_kv_heads;
    CKVC_AUTO_FREE double *scores = ckvc_alloc(n, sizeof *scores);
    for (size_t i = 0; i < n; i++) { scores[i] = npy_real(&a, i); }
    return table_of_scores(path, "kvzip", &m, scores, o, out, err);
}
