/* What the prompts cover: risk cells and sources, what was there and what was drawn. */
#include <math.h>
#include <stdlib.h>

#include "formats/run/coverage.h"
#include "report/draw/html.h"
#include "lib/base/memory.h"
#include "report/report_internal.h"
#include "report/report_page.h"
#include "report/report_pen.h"

enum { SOURCES_DRAWN = 6 }; /* panels of sources, the largest ones */

/* ---- numbers ---- */

/* A run of an older program, or one whose file is of other bins: its logged prompts alone, taken as
 * all there were. */
static ckvc_status from_prompts(const report_run *run, coverage *c, ckvc_err *err) {
    const size_t E = run->h.n_entropy_bins, P = run->h.n_ppl_bins, S = run->n_sources,
                 n = E * P * S;
    *c = (coverage){.n_entropy_bins = (uint32_t)E, .n_ppl_bins = (uint32_t)P, .logged = true};
    c->sources = ckvc_calloc(S, sizeof *c->sources);
    uint32_t *counts = ckvc_calloc(n, sizeof *counts);
    c->rows = ckvc_calloc(n < run->n_prompts ? n : run->n_prompts, sizeof *c->rows);
    ckvc_status st = c->sources && counts && c->rows
                         ? CKVC_OK
                         : ckvc_fail_memory(err, "coverage", n * sizeof *counts);
    for (; st == CKVC_OK && c->n_sources < S; c->n_sources++) {
        if (!(c->sources[c->n_sources] = ckvc_strdup(run->sources[c->n_sources]))) {
            st = ckvc_fail_memory(err, "coverage", S);
        }
    }
    for (size_t i = 0; st == CKVC_OK && i < run->n_prompts; i++) {
        const report_prompt *q = &run->prompts[i];
        counts[(q->bin_entropy * P + q->bin_ppl) * S + q->source] += !q->heldout;
    }
    for (size_t i = 0; st == CKVC_OK && i < n; i++) {
        if (counts[i]) {
            c->rows[c->n_rows++] = (coverage_row){(uint32_t)(i / S / P), (uint32_t)(i / S % P),
                                                  (uint32_t)(i % S), counts[i], counts[i]};
        }
    }
    free(counts);
    return st;
}

/* E x P numbers of one source, or of all (SIZE_MAX). */
static void cells_of(const coverage *c, size_t source, bool drawn, double *values) {
    for (size_t i = 0; i < (size_t)c->n_entropy_bins * c->n_ppl_bins; i++) {
        values[i] = 0;
    }
    for (size_t i = 0; i < c->n_rows; i++) {
        const coverage_row *row = &c->rows[i];
        if (source == SIZE_MAX || row->source == source) {
            values[row->entropy * c->n_ppl_bins + row->ppl] += drawn ? row->drawn : row->prompts;
        }
    }
}

static json_t *nested(const coverage *c, const double *values) {
    json_t *rows = json_array();
    for (uint32_t e = 0; e < c->n_entropy_bins; e++) {
        json_t *row = json_array();
        for (uint32_t p = 0; p < c->n_ppl_bins; p++) {
            json_array_append_new(row, json_integer((json_int_t)values[e * c->n_ppl_bins + p]));
        }
        json_array_append_new(rows, row);
    }
    return rows;
}

static json_t *cover_json(const coverage *c, size_t source, double *values) {
    json_t *o = json_object();
    double total[2] = {0, 0};
    json_int_t occupied = 0, thin = 0;
    for (int drawn = 0; drawn < (c->logged ? 2 : 1); drawn++) {
        cells_of(c, source, drawn, values);
        for (size_t i = 0; i < (size_t)c->n_entropy_bins * c->n_ppl_bins; i++) {
            total[drawn] += values[i];
            occupied += !drawn && values[i] > 0;
            thin += drawn == (c->logged ? 1 : 0) && values[i] > 0 && values[i] < c->min_cell;
        }
        json_object_set_new(o, drawn ? "drawn_cells" : "cells", nested(c, values));
    }
    json_object_set_new(o, "prompts", json_integer((json_int_t)total[0]));
    json_object_set_new(o, "drawn", c->logged ? json_integer((json_int_t)total[1]) : json_null());
    json_object_set_new(o, "occupied", json_integer(occupied));
    json_object_set_new(o, "thin", json_integer(thin));
    return o;
}

static ckvc_status run_json(const report_run *run, json_t *into, ckvc_err *err) {
    coverage c;
    bool there;
    ckvc_status st = coverage_read(run_path(run->dir), &c, &there, err);
    if (st != CKVC_OK) { return st; }
    if (run->binned && (!there || c.n_entropy_bins != run->h.n_entropy_bins ||
                        c.n_ppl_bins != run->h.n_ppl_bins)) {
        coverage_fini(&c);
        st = from_prompts(run, &c, err);
        there = true;
    }
    if (st != CKVC_OK || !there) {
        coverage_fini(&c);
        return st;
    }
    double *values = ckvc_calloc((size_t)c.n_entropy_bins * c.n_ppl_bins, sizeof *values);
    if (values) {
        json_t *o = cover_json(&c, SIZE_MAX, values), *sources = json_array();
        json_object_set_new(o, "min_cell", c.from ? json_integer(c.min_cell) : json_null());
        json_object_set_new(o, "sample", json_integer(c.sample));
        json_object_set_new(o, "unscanned", json_integer(c.n_unscanned));
        for (size_t s = 0; s < c.n_sources; s++) {
            json_t *of = cover_json(&c, s, values);
            json_object_set_new(of, "source", json_string(c.sources[s]));
            json_array_append_new(sources, of);
        }
        json_object_set_new(o, "sources", sources);
        json_object_set_new(into, "coverage", o);
    } else {
        st = ckvc_fail_memory(err, "coverage", sizeof *values);
    }
    free(values);
    coverage_fini(&c);
    return st;
}

ckvc_status report_coverage_json(report *r, ckvc_err *err) {
    ckvc_status st = CKVC_OK;
    for (size_t i = 0; st == CKVC_OK && i < r->n_runs; i++) {
        st = run_json(&r->runs[i], json_array_get(json_object_get(r->json, "runs"), i), err);
    }
    return st;
}

/* ---- figures ---- */

/* One panel from nested lists [E][P], as [P][E]; empty cells are missing. Returns the largest
 * number. */
static double fill_panel(const json_t *cells, size_t E, size_t P, double *panel) {
    double most = 0;
    for (size_t e = 0; e < E; e++) {
        for (size_t q = 0; q < P; q++) {
            const double v = json_number_value(json_array_get(json_array_get(cells, e), q));
            panel[q * E + e] = v > 0 ? v : NAN;
            most = fmax(most, v);
        }
    }
    return most;
}

static void csv_cells(report_pen *p, const char *source, const json_t *o, size_t E, size_t P) {
    const json_t *cells = json_object_get(o, "cells"), *drawn = json_object_get(o, "drawn_cells");
    for (size_t e = 0; e < E; e++) {
        for (size_t q = 0; q < P; q++) {
            pen_csv_text(p, source, ',');
            pen_csv_number(p, (double)e, ',');
            pen_csv_number(p, (double)q, ',');
            pen_csv_number(p, json_number_value(json_array_get(json_array_get(cells, e), q)), ',');
            pen_csv_number(
                p, drawn ? json_number_value(json_array_get(json_array_get(drawn, e), q)) : NAN,
                '\n');
        }
    }
}

static void heat(report_pen *p, const char *title, size_t E, size_t P, size_t n,
                 const double *const *panels, const char *const *panel_titles, double most) {
    chart_heat(&p->s, &(chart_heat_spec){.title = title,
                                         .x_label = "entropy bin",
                                         .y_label = "perplexity bin",
                                         .rows = P,
                                         .cols = E,
                                         .n_panels = n,
                                         .values = panels,
                                         .panel_titles = panel_titles,
                                         .y_up = true,
                                         .scale = {false, 0, most, 0, "prompts", 0},
                                         .missing = "no prompts"});
}

/* All sources together: what was there, and what was drawn where that is less. */
static void draw_all(report_pen *p, const report_run *run, const json_t *o, size_t E, size_t P,
                     bool sampled) {
    double *values = pen_room(p, 2 * E * P, sizeof *values);
    if (!values) { return; }
    double most = fill_panel(json_object_get(o, "cells"), E, P, values);
    if (sampled) { fill_panel(json_object_get(o, "drawn_cells"), E, P, values + E * P); }
    const double *panels[] = {values, values + E * P};
    static const char *const titles[] = {"scanned", "drawn for logging"};
    const char *title = pen_text(p, "%s: prompts per risk cell", run->title);
    pen_begin(p);
    ckvc_buffer_text(&p->csv, "source,entropy_bin,perplexity_bin,prompts,drawn\n");
    csv_cells(p, "all", o, E, P);
    heat(p, title, E, P, sampled ? 2 : 1, panels, sampled ? titles : NULL, most);
    pen_finish(p, "prompts", pen_text(p, "coverage-%s", run->tag), title,
               sampled ? "Stratified sampling evens out the cells as far as they have prompts. "
                         "Hold-out left out."
                       : "Hold-out left out.");
    free(values);
}

/* The largest sources, what was drawn of them (or scanned, where nothing is logged). */
static void draw_sources(report_pen *p, const report_run *run, const json_t *o, size_t E,
                         size_t P) {
    const json_t *sources = json_object_get(o, "sources");
    const size_t n = json_array_size(sources), shown = n < SOURCES_DRAWN ? n : SOURCES_DRAWN;
    const bool logged = json_is_integer(json_object_get(o, "drawn"));
    double *values = pen_room(p, shown * E * P, sizeof *values);
    size_t *order = pen_room(p, n, sizeof *order);
    const double *panels[SOURCES_DRAWN];
    const char *titles[SOURCES_DRAWN];
    double most = 0;
    if (values && order) {
        for (size_t i = 0; i < n; i++) { /* by number of prompts, most first; of equals the first */
            size_t at = i;
            const double size = report_num(json_array_get(sources, i), "prompts");
            for (; at > 0 && report_num(json_array_get(sources, order[at - 1]), "prompts") < size;
                 at--) {
                order[at] = order[at - 1];
            }
            order[at] = i;
        }
        pen_begin(p);
        ckvc_buffer_text(&p->csv, "source,entropy_bin,perplexity_bin,prompts,drawn\n");
        for (size_t i = 0; i < n; i++) {
            const json_t *of = json_array_get(sources, order[i]);
            const char *name = *report_str(of, "source") ? report_str(of, "source") : "(no source)";
            csv_cells(p, report_str(of, "source"), of, E, P);
            if (i < shown) {
                panels[i] = values + i * E * P;
                titles[i] = name;
                most = fmax(most, fill_panel(json_object_get(of, logged ? "drawn_cells" : "cells"),
                                             E, P, values + i * E * P));
            }
        }
        const char *title = pen_text(p, "%s: %s per risk cell and source", run->title,
                                     logged ? "logged prompts" : "scanned prompts");
        heat(p, title, E, P, shown, panels, titles, most);
        pen_finish(p, "prompts", pen_text(p, "coverage-sources-%s", run->tag), title,
                   shown < n ? "The largest sources; the numbers beside the picture have all."
                             : "A cell that one source fills alone "
                               "says as much of the source as of "
                               "the risk.");
    }
    free(values);
    free(order);
}

void report_draw_coverage(report_pen *p) {
    for (size_t i = 0; i < p->r->n_runs; i++) {
        const report_run *run = &p->r->runs[i];
        const json_t *o =
            json_object_get(json_array_get(json_object_get(p->r->json, "runs"), i), "coverage");
        const json_t *cells = json_object_get(o, "cells");
        const size_t E = json_array_size(cells), P = json_array_size(json_array_get(cells, 0));
        if (!o || report_num(o, "prompts") == 0) { continue; }
        draw_all(p, run, o, E, P, report_num(o, "drawn") < report_num(o, "prompts"));
        if (json_array_size(json_object_get(o, "sources")) > 1) { draw_sources(p, run, o, E, P); }
    }
}

/* ---- section ---- */

static void coverage_table(const report *r, ckvc_buffer *b) {
    static const char *const columns[] = {"run",    "source",     "scanned",
                                          "logged", "risk cells", "thin"};
    size_t i;
    json_t *run;
    html_table_old(b, NULL, "llrrrr", columns, sizeof columns / sizeof *columns);
    json_array_foreach(json_object_get(r->json, "runs"), i, run) {
        const json_t *o = json_object_get(run, "coverage"),
                     *sources = json_object_get(o, "sources");
        const json_t *cells = json_object_get(o, "cells");
        const size_t n = json_array_size(sources);
        const double all =
            (double)json_array_size(cells) * (double)json_array_size(json_array_get(cells, 0));
        for (size_t s = 0; o && s <= (n > 1 ? n : 0); s++) {
            const json_t *of = s ? json_array_get(sources, s - 1) : o;
            const double drawn = report_num(of, "drawn"), least = report_num(o, "min_cell");
            html_row_begin(b);
            html_cell(b, 'l', "%s %s", s ? "" : report_str(run, "tag"),
                      s ? "" : report_str(run, "name"));
            html_cell(b, 'l', "%s",
                      s == 0                      ? "all"
                      : *report_str(of, "source") ? report_str(of, "source")
                                                  : "(no source)");
            html_cell(b, 'r', "%.0f", report_num(of, "prompts"));
            html_cell(b, 'r', "%s", isfinite(drawn) ? report_fixed(drawn, 0) : "");
            html_cell(b, 'r', "%.0f of %.0f", report_num(of, "occupied"), all);
            if (s == 0 && isfinite(least)) {
                html_cell(b, 'r', "%.0f below %.0f", report_num(of, "thin"), least);
            } else {
                html_cell(b, 'r', "%s", "");
            }
            html_row_end(b);
        }
    }
    html_table_end(b);
}

void report_coverage_section(const report *r, ckvc_buffer *b) {
    size_t i;
    json_t *run;
    bool any = false;
    html_section_begin(b, "prompts", "Prompts");
    json_array_foreach(json_object_get(r->json, "runs"), i, run) {
        any = any || json_object_get(run, "coverage") != NULL;
    }
    html_paragraph(b, NULL,
                   "Prompts by risk cell, scanned and logged; held-out prompts are not counted. A "
                   "cell with fewer logged prompts than "
                   "--min-cell gives thresholds that rest on little.");
    report_page_figures(r, b, "prompts");
    if (any) {
        html_details_begin(b, "Numbers, by source");
        coverage_table(r, b);
        html_details_end(b);
    }
    html_section_end(b);
}
