/* Transfer (docs/method.md, section 10): transferred tables against those compiled for the same
 * model, and both against identity, on the same prompts; several source -> target pairs as one
 * matrix. Computed from the comparisons that report_scores.c has made. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "report/draw/html.h"
#include "lib/base/json.h"
#include "lib/base/memory.h"
#include "report/report_compare.h"
#include "report/report_internal.h"
#include "report/report_page.h"

static const report_table *table_of(const report *r, const char *content_id) {
    for (size_t i = 0; i < r->n_tables; i++) {
        if (strcmp(r->tables[i].f->content_id, content_id) == 0) { return &r->tables[i]; }
    }
    return NULL;
}

/* The model that a transferred table comes from: by name where it says so, or its source is here.
 */
static const char *source_model(const report *r, const report_table *t) {
    const char *name = report_str(t->f->xfer, "source_model");
    const report_table *source = table_of(r, report_str(t->f->xfer, "source"));
    if (!*name && source) { name = report_str(source->f->meta, "model_name"); }
    return *name ? name : "unknown";
}

static const char *target_model(const report_table *t) {
    const char *name = report_str(t->f->meta, "model_name");
    return *name ? name : "unknown";
}

/* difference, lo, hi of a comparison, turned round when `turned`. */
static json_t *difference_of(const json_t *all, bool turned) {
    double sign = turned ? -1 : 1, lo = report_num(all, "lo"), hi = report_num(all, "hi");
    return json_pack("{s:o, s:o, s:o, s:I}", "difference",
                     ckvc_json_real(sign * report_num(all, "difference")), "lo",
                     ckvc_json_real(turned ? -hi : lo), "hi", ckvc_json_real(turned ? -lo : hi),
                     "n", (json_int_t)report_num(all, "n"));
}

static bool same_setting(const json_t *a, const json_t *b) {
    return strcmp(report_str(a, "model"), report_str(b, "model")) == 0 &&
           report_num(a, "budget") == report_num(b, "budget") &&
           report_num(a, "C") == report_num(b, "C");
}

/* The table's gain over identity in the setting of `like`; null when it was not scored. */
static json_t *against_identity(const json_t *of_scores, const report_table *t,
                                const json_t *like) {
    size_t i;
    json_t *o;
    json_array_foreach(json_object_get(of_scores, "against_identity"), i, o) {
        if (same_setting(o, like) && strcmp(report_str(o, "policy"), "table") == 0 &&
            strcmp(report_str(o, "table"), t->f->content_id) == 0) {
            return difference_of(json_object_get(o, "all"), false);
        }
    }
    return json_null();
}

static bool same_matrix(const json_t *a, const json_t *b) {
    return report_num(a, "budget") == report_num(b, "budget") &&
           report_num(a, "C") == report_num(b, "C") &&
           strcmp(report_str(a, "heads"), report_str(b, "heads")) == 0;
}

/* Mean drop (compiled less transferred) over the rows like `first` from one model to another; NaN:
 * there is none. */
static double mean_drop(const json_t *rows, const json_t *first, const char *source,
                        const char *target) {
    double sum = 0, n = 0;
    size_t i;
    json_t *o;
    json_array_foreach(rows, i, o) {
        double difference = report_num(json_object_get(o, "against_compiled"), "difference");
        if (same_matrix(o, first) && strcmp(report_str(o, "source_model"), source) == 0 &&
            strcmp(report_str(o, "target_model"), target) == 0 && isfinite(difference)) {
            sum -= difference;
            n += 1;
        }
    }
    return n > 0 ? sum / n : NAN;
}

/* In order, so that models stand in one order on both sides. */
static void add_name(json_t *names, const char *name) {
    size_t i = 0;
    while (i < json_array_size(names) &&
           strcmp(json_string_value(json_array_get(names, i)), name) < 0) {
        i++;
    }
    if (i == json_array_size(names) ||
        strcmp(json_string_value(json_array_get(names, i)), name) != 0) {
        json_array_insert_new(names, i, json_string(name));
    }
}

/* The matrix of one budget, C and way of matching heads. */
static json_t *matrix_of(const json_t *rows, const json_t *first) {
    json_t *sources = json_array(), *targets = json_array(), *cells = json_array(), *o;
    size_t i, pairs = 0;
    double total = 0, least = INFINITY, most = -INFINITY;
    json_array_foreach(rows, i, o) {
        if (same_matrix(o, first)) {
            add_name(sources, report_str(o, "source_model"));
            add_name(targets, report_str(o, "target_model"));
        }
    }
    for (size_t s = 0; s < json_array_size(sources); s++) {
        json_t *row = json_array();
        for (size_t t = 0; t < json_array_size(targets); t++) {
            double drop = mean_drop(rows, first, json_string_value(json_array_get(sources, s)),
                                    json_string_value(json_array_get(targets, t)));
            json_array_append_new(row, ckvc_json_real(drop));
            if (!isnan(drop)) {
                total += drop;
                least = fmin(least, drop);
                most = fmax(most, drop);
                pairs++;
            }
        }
        json_array_append_new(cells, row);
    }
    return json_pack("{s:o, s:o, s:s, s:o, s:o, s:o, s:o, s:o, s:o, s:I}", "budget",
                     ckvc_json_real(report_num(first, "budget")), "C",
                     ckvc_json_real(report_num(first, "C")), "heads", report_str(first, "heads"),
                     "sources", sources, "targets", targets, "drop", cells, "mean_drop",
                     ckvc_json_real(pairs ? total / (double)pairs : NAN), "least_drop",
                     ckvc_json_real(pairs ? least : NAN), "most_drop",
                     ckvc_json_real(pairs ? most : NAN), "pairs", (json_int_t)pairs);
}

ckvc_status report_transfer_json(report *r, ckvc_err *err) {
    const json_t *of_scores = json_object_get(r->json, "scores");
    json_t *rows = json_array(), *matrices = json_array(), *o;
    json_object_set_new(r->json, "transfers",
                        json_pack("{s:o, s:o}", "rows", rows, "matrices", matrices));
    size_t i;
    json_array_foreach(json_object_get(of_scores, "between_tables"), i, o) {
        const report_table *a = table_of(r, report_str(o, "table")),
                           *b = table_of(r, report_str(o, "base_table"));
        if (!a || !b || (a->f->xfer != NULL) == (b->f->xfer != NULL) ||
            json_is_false(json_object_get(o, "one_score"))) {
            continue;
        }
        bool turned = b->f->xfer != NULL;
        const report_table *moved = turned ? b : a, *compiled = turned ? a : b;
        const json_t *all = json_object_get(o, "all");
        double ratio = report_num(all, "kept_ratio");
        json_t *row =
            json_pack("{s:s, s:s, s:s, s:s, s:s, s:o, s:o, s:o, s:o, s:o, s:o}", "source_model",
                      source_model(r, moved), "target_model", target_model(moved), "heads",
                      report_str(moved->f->xfer, "heads"), "transferred", moved->title, "compiled",
                      compiled->title, "budget", ckvc_json_real(report_num(o, "budget")), "C",
                      ckvc_json_real(report_num(o, "C")), "kept_ratio",
                      ckvc_json_real(turned ? 1 / ratio : ratio), "against_compiled",
                      difference_of(all, turned), "transferred_against_identity",
                      against_identity(of_scores, moved, o), "compiled_against_identity",
                      against_identity(of_scores, compiled, o));
        if (!row || json_array_append_new(rows, row)) { return ckvc_fail_memory(err, "report", 0); }
    }
    json_array_foreach(rows, i, o) {
        bool known = false;
        for (size_t k = 0; k < i && !known; k++) {
            known = same_matrix(json_array_get(rows, k), o);
        }
        json_t *matrix = known ? NULL : matrix_of(rows, o);
        if (!known && (!matrix || json_array_append_new(matrices, matrix))) {
            return ckvc_fail_memory(err, "report", 0);
        }
    }
    return CKVC_OK;
}

/* ---- the page ---- */

bool report_has_transfers(const report *r) {
    return json_array_size(json_object_get(json_object_get(r->json, "transfers"), "rows")) > 0;
}

static void difference_cell(ckvc_buffer *b, const json_t *of) {
    html_cell(b, 'r', "%s",
              report_interval(report_num(of, "difference"), report_num(of, "lo"),
                              report_num(of, "hi"), 4));
}

static void matrix_table(ckvc_buffer *b, const json_t *m) {
    const json_t *targets = json_object_get(m, "targets"), *sources = json_object_get(m, "sources");
    size_t n = json_array_size(targets);
    const char **columns = ckvc_alloc(n + 1, sizeof *columns);
    char *align = ckvc_alloc(n + 2, 1), caption[256];
    if (!columns || !align) {
        b->failed = true;
    } else {
        columns[0] = "from \\ to";
        align[0] = 'l';
        for (size_t t = 0; t < n; t++) {
            columns[t + 1] = json_string_value(json_array_get(targets, t));
            align[t + 1] = 'r';
        }
        align[n + 1] = '\0';
        snprintf(caption, sizeof caption,
                 "Drop of reward, nats per token: heads by %.32s, budget %s",
                 report_str(m, "heads"), report_budget(report_num(m, "budget")));
        html_table_old(b, caption, align, columns, n + 1);
        for (size_t s = 0; s < json_array_size(sources); s++) {
            html_row_begin(b);
            html_cell(b, 'l', "%s", json_string_value(json_array_get(sources, s)));
            for (size_t t = 0; t < n; t++) {
                const json_t *v = json_array_get(json_array_get(json_object_get(m, "drop"), s), t);
                html_cell(b, 'r', "%s",
                          json_is_number(v) ? report_signed(json_number_value(v), 4) : "");
            }
            html_row_end(b);
        }
        html_table_end(b);
        html_paragraph(b, NULL, "Mean drop over %.0f pair%s of models: %s nats per token.",
                       report_num(m, "pairs"), report_num(m, "pairs") == 1 ? "" : "s",
                       report_signed(report_num(m, "mean_drop"), 4));
    }
    free(columns);
    free(align);
}

void report_transfer_findings(const report *r, ckvc_buffer *html, ckvc_buffer *summary) {
    size_t i;
    json_t *o;
    json_array_foreach(json_object_get(json_object_get(r->json, "transfers"), "rows"), i, o) {
        const json_t *against = json_object_get(o, "against_compiled");
        report_finding(html, summary, report_judged(against),
                       "transfer %s to %s, heads by %s, budget %s: %s %s nats per token against "
                       "%s, %.0f prompts.",
                       report_str(o, "source_model"), report_str(o, "target_model"),
                       report_str(o, "heads"), report_budget(report_num(o, "budget")),
                       report_str(o, "transferred"),
                       report_interval(report_num(against, "difference"), report_num(against, "lo"),
                                       report_num(against, "hi"), 4),
                       report_str(o, "compiled"), report_num(against, "n"));
    }
}

void report_transfer_section(const report *r, ckvc_buffer *html) {
    static const char *const columns[] = {"transferred",
                                          "compiled there",
                                          "n",
                                          "kept \u00f7",
                                          "transferred \u2212 compiled (95% interval)",
                                          "transferred \u2212 identity",
                                          "compiled \u2212 identity"};
    if (!report_has_transfers(r)) { return; }
    const json_t *transfers = json_object_get(r->json, "transfers");
    size_t i;
    json_t *o;
    html_section_begin(html, "transfer", "What a transfer costs");
    html_paragraph(html, "note",
                   "Reward on the same prompts, nats per token, paired by prompt. Drop is compiled "
                   "less transferred: above 0 the transfer "
                   "loses. \u201ckept \u00f7\u201d is the transferred table's tokens kept over the "
                   "compiled one's; away from 1 the two are "
                   "not compared at equal memory.");
    json_array_foreach(json_object_get(transfers, "matrices"), i, o) {
        matrix_table(html, o);
    }
    html_table_old(html, NULL, "llrrrrr", columns, sizeof columns / sizeof *columns);
    json_array_foreach(json_object_get(transfers, "rows"), i, o) {
        const json_t *against = json_object_get(o, "against_compiled");
        html_group(html, sizeof columns / sizeof *columns, "%s \u2192 %s, heads by %s, budget %s",
                   report_str(o, "source_model"), report_str(o, "target_model"),
                   report_str(o, "heads"), report_budget(report_num(o, "budget")));
        html_row_begin(html);
        html_cell(html, 'l', "%s", report_str(o, "transferred"));
        html_cell(html, 'l', "%s", report_str(o, "compiled"));
        html_cell(html, 'r', "%.0f", report_num(against, "n"));
        html_cell(html, 'r', "%s", report_fixed(report_num(o, "kept_ratio"), 3));
        difference_cell(html, against);
        difference_cell(html, json_object_get(o, "transferred_against_identity"));
        difference_cell(html, json_object_get(o, "compiled_against_identity"));
        html_row_end(html);
    }
    html_table_end(html);
    html_section_end(html);
}
