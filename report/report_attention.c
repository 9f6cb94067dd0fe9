/* The attention that compression leaves out, per layer: what was measured on held-out prompts
 * against the Proposition's bound. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cql/stats/partial.h"
#include "lib/base/json.h"
#include "lib/base/memory.h"
#include "report/report_diagnostics.h"
#include "report/report_rows.h"

static double attention_of(const score_row *row, int what, size_t l) {
    return row->attention[(size_t)what * row->n_layers + l];
}

/* Rows of a series that were measured, each prompt once, with the layers of the first. */
static size_t measured(const report_rows *s, const report_series *of, const score_row **out) {
    size_t n = 0;
    for (size_t i = of->first; i < of->first + of->n; i++) {
        const score_row *row = s->rows[i].row;
        if (row->attention && (n == 0 || (row->n_layers == out[0]->n_layers &&
                                          report_compare_prompts(row, out[n - 1]) != 0))) {
            out[n++] = row;
        }
    }
    return n;
}

static json_t *layers_json(const score_row *const *rows, size_t n) {
    static const char *const names[SCORE_ATTENTION_KEYS] = {"epsilon", "bound", "error", "drift"};
    json_t *layers = json_array();
    for (size_t l = 0; l < rows[0]->n_layers; l++) {
        double mean[SCORE_ATTENTION_KEYS] = {0}, closest = 0, beyond = 0;
        for (size_t i = 0; i < n; i++) {
            for (int k = 0; k < SCORE_ATTENTION_KEYS; k++) {
                mean[k] += attention_of(rows[i], k, l) / (double)n;
            }
            double bound = attention_of(rows[i], SCORE_BOUND, l);
            closest =
                bound > 0 ? fmax(closest, attention_of(rows[i], SCORE_ERROR, l) / bound) : closest;
            beyond += attention_of(rows[i], SCORE_DRIFT, l) > bound;
        }
        json_t *o = json_object();
        for (int k = 0; k < SCORE_ATTENTION_KEYS; k++) {
            json_object_set_new(o, names[k], ckvc_json_real(mean[k]));
        }
        json_object_set_new(o, "error_of_bound",
                            ckvc_json_real(mean[SCORE_ERROR] / mean[SCORE_BOUND]));
        json_object_set_new(o, "most_error_of_bound", ckvc_json_real(closest));
        json_object_set_new(o, "drift_above_bound", ckvc_json_real(beyond / (double)n));
        json_array_append_new(layers, o);
    }
    return layers;
}

/* Does the bound, or the error, say which prompts are hurt? Spearman of the prompt's mean over
 * layers with its damage. */
static ckvc_status damage_json(const report *r, const score_row *const *rows, size_t n,
                               uint64_t stream, json_t *o, ckvc_err *err) {
    static const struct {
        const char *key;
        int what;
    } measures[] = {{"bound_with_damage", SCORE_BOUND},
                    {"error_with_damage", SCORE_ERROR},
                    {"drift_with_damage", SCORE_DRIFT}};
    double *columns = ckvc_alloc(2 * n + 1, sizeof *columns);
    ckvc_status st = columns ? CKVC_OK : ckvc_fail_memory(err, "report", 2 * n * sizeof *columns);
    for (size_t k = 0; k < sizeof measures / sizeof *measures && st == CKVC_OK; k++) {
        size_t m = 0;
        for (size_t i = 0; i < n; i++) {
            if (isnan(rows[i]->reward)) { continue; }
            columns[m] = -rows[i]->reward;
            columns[n + m] = 0;
            for (size_t l = 0; l < rows[i]->n_layers; l++) {
                columns[n + m] += attention_of(rows[i], measures[k].what, l) / rows[i]->n_layers;
            }
            m++;
        }
        partial_columns c = {.x = columns + n, .y = columns, .n = m};
        const partial_result of =
            partial_correlation(&c, true, r->o->replicates, r->o->seed, stream);
        json_t *v = json_object();
        json_object_set_new(v, "spearman", ckvc_json_real(of.r));
        json_object_set_new(v, "lo", ckvc_json_real(of.lo));
        json_object_set_new(v, "hi", ckvc_json_real(of.hi));
        json_object_set_new(o, measures[k].key, v);
    }
    free(columns);
    return st;
}

ckvc_status report_attention_json(report *r, ckvc_err *err) {
    json_t *list = json_array();
    report_rows s = {0};
    json_object_set_new(r->json, "attention", list);
    ckvc_status st = report_rows_gather(r, &s, err);
    const score_row **rows = st == CKVC_OK ? ckvc_alloc(s.n + 1, sizeof *rows) : NULL;
    if (st == CKVC_OK && !rows) { st = ckvc_fail_memory(err, "report", s.n * sizeof *rows); }
    for (size_t a = 0; a < s.n_series && st == CKVC_OK; a++) {
        const report_series *of = &s.series[a];
        size_t n = measured(&s, of, rows);
        if (n == 0) { continue; }
        json_t *o = json_object();
        json_object_set_new(o, "title", json_string(of->title));
        json_object_set_new(o, "policy", json_string(of->policy));
        json_object_set_new(o, "model", json_string(of->model));
        json_object_set_new(o, "budget", ckvc_json_real(of->budget));
        json_object_set_new(o, "C", json_integer(of->continuation));
        json_object_set_new(o, "n", json_integer((json_int_t)n));
        json_object_set_new(o, "layers", layers_json(rows, n));
        st = damage_json(r, rows, n, a, o, err);
        json_array_append_new(list, o);
    }
    free(rows);
    report_rows_free(&s);
    return st;
}

/* ---- figures ---- */

static bool same_setting(const json_t *a, const json_t *b) {
    return strcmp(report_str(a, "model"), report_str(b, "model")) == 0 &&
           report_num(a, "budget") == report_num(b, "budget") &&
           report_num(a, "C") == report_num(b, "C");
}

static bool before(const json_t *a, const json_t *b) {
    static const char *const order[] = {"table", "identity"};
    for (size_t i = 0; i < 2; i++) {
        bool is_a = strcmp(report_str(a, "policy"), order[i]) == 0,
             is_b = strcmp(report_str(b, "policy"), order[i]) == 0;
        if (is_a != is_b) { return is_a; }
    }
    return false;
}

static void draw_layers(report_pen *p, const json_t *o, size_t number) {
    static const char *const keys[] = {"bound", "error", "drift"};
    static const char *const names[] = {"bound, 2·√(C−1)·ε", "measured",
                                        "with drift of hidden states"};
    const json_t *layers = json_object_get(o, "layers");
    size_t n = json_array_size(layers);
    double *values = pen_room(p, 4 * n, sizeof *values);
    if (!values) { return; }
    chart_curve curves[3];
    pen_begin(p);
    ckvc_buffer_text(&p->csv, "layer,epsilon,bound,error,drift,drift_above_bound_share\n");
    for (size_t l = 0; l < n; l++) {
        const json_t *of = json_array_get(layers, l);
        values[l] = (double)l;
        pen_csv_number(p, (double)l, ',');
        pen_csv_number(p, report_num(of, "epsilon"), ',');
        for (size_t k = 0; k < 3; k++) {
            values[(k + 1) * n + l] = report_num(of, keys[k]);
            pen_csv_number(p, report_num(of, keys[k]), ',');
        }
        pen_csv_number(p, report_num(of, "drift_above_bound"), '\n');
    }
    for (size_t k = 0; k < 3; k++) {
        curves[k] = (chart_curve){.name = names[k],
                                  .n = n,
                                  .x = values,
                                  .y = values + (k + 1) * n,
                                  .dashed = k == 0,
                                  .dots = n <= 64};
    }
    const char *title = pen_text(p, "Attention left out by layer: %s, budget %s",
                                 report_str(o, "title"), report_budget(report_num(o, "budget")));
    chart_curves(&p->s, &(chart_curves_spec){.title = title,
                                             .x_label = "layer",
                                             .y_label = "Frobenius norm, mean over heads",
                                             .n_curves = 3,
                                             .curves = curves,
                                             .y_log = true});
    pen_finish(p, "attention", pen_text(p, "attention-%zu", number), title,
               "Mean over held-out prompts. The measured error never passes the bound; the "
               "rollout's own attention, whose hidden "
               "states have "
               "moved too, may.");
    free(values);
}

void report_attention_draw(report_pen *p) {
    const json_t *list = json_object_get(p->r->json, "attention");
    size_t number = 0;
    for (size_t i = 0; i < json_array_size(list);
         i++) { /* of each setting one: a table, else identity */
        const json_t *o = json_array_get(list, i);
        bool first = true;
        for (size_t k = 0; k < json_array_size(list); k++) {
            const json_t *other = json_array_get(list, k);
            first = first && !(k != i && same_setting(o, other) &&
                               (before(other, o) || (k < i && !before(o, other))));
        }
        if (first) { draw_layers(p, o, ++number); }
    }
}
