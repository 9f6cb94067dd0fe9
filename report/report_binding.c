/* Where the gate can change what is kept: per budget, source, layer and risk cell, and what its
 * choices rest on. */
#include <math.h>
#include <stdlib.h>

#include "report/draw/html.h"
#include "lib/base/json.h"
#include "report/report_internal.h"
#include "report/report_page.h"
#include "report/report_pen.h"

/* ---- numbers ---- */

static json_t *binding_json(const gate_binding *c) {
    const double n = (double)c->n;
    json_t *o = json_object();
    json_object_set_new(o, "n", json_integer((json_int_t)c->n));
    json_object_set_new(o, "binding", ckvc_json_real(gate_binding_share(c)));
    json_object_set_new(o, "sets_differ", ckvc_json_real(gate_binding_differ_share(c)));
    json_object_set_new(o, "kept_mean", ckvc_json_real((double)c->kept / n));
    json_object_set_new(o, "budget_mean", ckvc_json_real((double)c->budget / n));
    json_object_set_new(o, "candidates_lo_mean", ckvc_json_real((double)c->lo / n));
    json_object_set_new(o, "candidates_hi_mean", ckvc_json_real((double)c->hi / n));
    json_object_set_new(o, "share_of_kept_in_window",
                        ckvc_json_real((double)c->window / (double)c->kept));
    return o;
}

/* One budget of a run: all, per source, per layer, per cell [E][P]. */
static json_t *budget_json(const report_run *run, size_t b) {
    const shard_header *h = &run->h;
    json_t *o = json_object(), *sources = json_array(), *layers = json_array(),
           *cells = json_array();
    gate_binding all = {0};
    json_int_t occupied = 0, alive = 0;
    for (size_t l = 0; l < h->n_layers; l++) {
        gate_binding layer = {0};
        for (size_t i = 0; i < (size_t)h->n_entropy_bins * h->n_ppl_bins; i++) {
            gate_binding_merge(&layer, &run->cells[report_cell(h, b, l, 0, 0) + i]);
        }
        gate_binding_merge(&all, &layer);
        json_array_append_new(layers, binding_json(&layer));
    }
    for (size_t s = 0; s < run->n_sources; s++) {
        json_t *of = binding_json(&run->sources_sum[s * h->n_budgets + b]);
        json_object_set_new(of, "source", json_string(run->sources[s]));
        json_array_append_new(sources, of);
    }
    for (size_t e = 0; e < h->n_entropy_bins; e++) {
        json_t *row = json_array();
        for (size_t p = 0; p < h->n_ppl_bins; p++) {
            gate_binding cell = {0};
            for (size_t l = 0; l < h->n_layers; l++) {
                gate_binding_merge(&cell, &run->cells[report_cell(h, b, l, e, p)]);
            }
            occupied += cell.n > 0;
            alive += gate_is_alive(&cell);
            json_array_append_new(row, binding_json(&cell));
        }
        json_array_append_new(cells, row);
    }
    json_object_set_new(o, "budget", ckvc_json_real(h->budgets[b]));
    const bool thresholds = shard_has_thresholds(h);
    json_object_set_new(o, "alive", thresholds ? json_boolean(gate_is_alive(&all)) : json_null());
    if (thresholds && all.n && !gate_is_alive(&all)) {
        char advice[256];
        gate_advice(&all, h->side[CKVC_SIDE_GATE].actions[h->side[CKVC_SIDE_GATE].n_actions - 1],
                    advice, sizeof advice);
        json_object_set_new(o, "advice", json_string(advice));
    }
    json_object_set_new(o, "cells_occupied", json_integer(occupied));
    json_object_set_new(o, "cells_alive", json_integer(alive));
    json_object_set_new(o, "all", binding_json(&all));
    json_object_set_new(o, "sources", sources);
    json_object_set_new(o, "layers", layers);
    json_object_set_new(o, "cells", cells);
    return o;
}

ckvc_status report_binding_json(report *r, ckvc_err *err) {
    (void)err;
    for (size_t i = 0; i < r->n_runs; i++) {
        const report_run *run = &r->runs[i];
        json_t *budgets = json_array();
        for (size_t b = 0; run->binned && b < run->h.n_budgets; b++) {
            json_array_append_new(budgets, budget_json(run, b));
        }
        json_object_set_new(json_array_get(json_object_get(r->json, "runs"), i), "budgets",
                            budgets);
    }
    return CKVC_OK;
}

/* What the thresholds of a table whose gate was fitted from this run rest on, at one of its
 * budgets: evidence.gate.budgets' entry; NULL: none is here. */
static const json_t *choices_of(const report *r, size_t run, double budget, size_t nth,
                                const report_table **table) {
    for (size_t t = 0; t < r->n_tables; t++) {
        const report_table *of = &r->tables[t];
        const json_t *evidence =
            json_object_get(json_array_get(json_object_get(r->json, "tables"), t), "evidence");
        const json_t *splits = json_object_get(json_object_get(evidence, "gate"), "budgets");
        for (uint32_t b = 0; report_gate_from(r, of, run) && b < of->f->table->n_budgets; b++) {
            const json_t *split = json_array_get(splits, b);
            if (of->f->table->budgets[b] == budget && report_num(split, "supported") > 0 &&
                nth-- == 0) {
                *table = of;
                return split;
            }
        }
    }
    return NULL;
}

/* ---- figures ---- */

static void draw_budgets(report_pen *p, size_t i) {
    enum { BINDING, DIFFER, BY_LOSS, SERIES };
    const report_run *run = &p->r->runs[i];
    const json_t *budgets =
        json_object_get(json_array_get(json_object_get(p->r->json, "runs"), i), "budgets");
    const size_t n = json_array_size(budgets);
    double *values = pen_room(p, SERIES * n, sizeof *values);
    const char **names = pen_room(p, n, sizeof *names);
    const report_table *table = NULL;
    size_t n_choices = 0;
    if (values && names) {
        pen_begin(p);
        ckvc_buffer_text(&p->csv,
                         "budget,binding_share,sets_differ_share,cells_occupied,cells_alive,"
                         "candidates_at_highest_tau_mean,"
                         "kept_mean,gate_choices,by_loss_share,by_penalty_share,loss_flat_share\n");
        for (size_t b = 0; b < n; b++) {
            const json_t *o = json_array_get(budgets, b), *all = json_object_get(o, "all");
            const json_t *split = choices_of(p->r, i, run->h.budgets[b], 0, &table);
            values[BINDING * n + b] = 100 * report_num(all, "binding");
            values[DIFFER * n + b] = 100 * report_num(all, "sets_differ");
            values[BY_LOSS * n + b] = split ? 100 * report_num(split, "by_loss") : 0;
            n_choices += split != NULL;
            names[b] = pen_text(p, "%g", run->h.budgets[b]);
            pen_csv_number(p, run->h.budgets[b], ',');
            pen_csv_number(p, report_num(all, "binding"), ',');
            pen_csv_number(p, report_num(all, "sets_differ"), ',');
            pen_csv_number(p, report_num(o, "cells_occupied"), ',');
            pen_csv_number(p, report_num(o, "cells_alive"), ',');
            pen_csv_number(p, report_num(all, "candidates_hi_mean"), ',');
            pen_csv_number(p, report_num(all, "kept_mean"), ',');
            pen_csv_number(p, split ? report_num(split, "supported") : NAN, ',');
            pen_csv_number(p, split ? report_num(split, "by_loss") : NAN, ',');
            pen_csv_number(p, split ? report_num(split, "by_penalty") : NAN, ',');
            pen_csv_number(p, split ? report_num(split, "loss_flat") : NAN, '\n');
        }
        const shard_header *h = &run->h;
        const char *series[SERIES] = {
            pen_text(p, "binding: fewer candidates than the budget at τ = %.3g",
                     h->side[CKVC_SIDE_GATE].actions[h->side[CKVC_SIDE_GATE].n_actions - 1]),
            "two thresholds of the grid keep different sets",
            pen_text(p, "thresholds of %s that the loss alone would choose",
                     table ? table->tag : "")};
        const double *of[SERIES] = {values, values + n, values + 2 * n};
        const char *title = pen_text(p, "%s: where the gate can act, by budget", run->title);
        chart_bars(&p->s, &(chart_bars_spec){title, "budget: tokens, or share of the prompt",
                                             "per cent", n, n_choices == n ? SERIES : BY_LOSS,
                                             names, series, of, -1, NULL});
        pen_finish(p, "binding", pen_text(p, "binding-budgets-%s", run->tag), title,
                   "Shares of (prompt, layer), and of the table's thresholds. Where sets hardly "
                   "differ a threshold's choice rests on its "
                   "penalty.");
    }
    free(values);
    free(names);
}

static void draw_layers(report_pen *p, const report_run *run, const json_t *budget, size_t b) {
    const json_t *layers = json_object_get(budget, "layers");
    size_t n = json_array_size(layers);
    double *values = pen_room(p, 2 * n, sizeof *values);
    const char **names = pen_room(p, n, sizeof *names);
    if (values && names) {
        pen_begin(p);
        ckvc_buffer_text(
            &p->csv, "layer,binding_share,sets_differ_share,kept_mean,share_of_kept_in_window\n");
        for (size_t l = 0; l < n; l++) {
            const json_t *of = json_array_get(layers, l);
            values[l] = 100 * report_num(of, "binding");
            values[n + l] = 100 * report_num(of, "sets_differ");
            names[l] = pen_text(p, "%zu", l);
            pen_csv_number(p, (double)l, ',');
            pen_csv_number(p, report_num(of, "binding"), ',');
            pen_csv_number(p, report_num(of, "sets_differ"), ',');
            pen_csv_number(p, report_num(of, "kept_mean"), ',');
            pen_csv_number(p, report_num(of, "share_of_kept_in_window"), '\n');
        }
        const shard_header *h = &run->h;
        const double low = h->side[CKVC_SIDE_GATE].actions[0],
                     high = h->side[CKVC_SIDE_GATE].actions[h->side[CKVC_SIDE_GATE].n_actions - 1];
        const char *series[] = {
            pen_text(p, "fewer candidates than the budget at τ = %.3g", high),
            pen_text(p, "τ = %.3g and τ = %.3g keep different sets", low, high)};
        const double *both[] = {values, values + n};
        const char *title = pen_text(p, "%s: where the gate can act, by layer, budget %s",
                                     run->title, report_budget(run->h.budgets[b]));
        chart_bars(&p->s, &(chart_bars_spec){title, "layer", "per cent of prompts", n, 2, names,
                                             series, both, -1, NULL});
        pen_finish(p, "binding", pen_text(p, "binding-layers-%s-b%zu", run->tag, b + 1), title,
                   "Where both bars are low the gate's choice changes only its own penalty, not "
                   "what is kept.");
    }
    free(values);
    free(names);
}

static void draw_cells(report_pen *p, const report_run *run, const json_t *budget, size_t b) {
    static const char *const keys[] = {"binding", "sets_differ"};
    const size_t E = run->h.n_entropy_bins, P = run->h.n_ppl_bins;
    const json_t *cells = json_object_get(budget, "cells");
    double *values = pen_room(p, 2 * E * P, sizeof *values);
    if (!values) { return; }
    pen_begin(p);
    ckvc_buffer_text(&p->csv, "perplexity_bin,entropy_bin,binding_share,sets_differ_share\n");
    for (size_t q = 0; q < P; q++) {
        for (size_t e = 0; e < E; e++) {
            const json_t *cell = json_array_get(json_array_get(cells, e), q);
            pen_csv_number(p, (double)q, ',');
            pen_csv_number(p, (double)e, ',');
            for (size_t k = 0; k < 2; k++) {
                values[(k * P + q) * E + e] = report_num(cell, keys[k]);
                pen_csv_number(p, report_num(cell, keys[k]), k ? '\n' : ',');
            }
        }
    }
    const double *panels[] = {values, values + E * P};
    static const char *const panel_titles[] = {"binding at the highest threshold",
                                               "two thresholds keep different sets"};
    const char *title = pen_text(p, "%s: where the gate can act, by risk cell, budget %s",
                                 run->title, report_budget(run->h.budgets[b]));
    chart_heat(&p->s, &(chart_heat_spec){.title = title,
                                         .x_label = "entropy bin",
                                         .y_label = "perplexity bin",
                                         .rows = P,
                                         .cols = E,
                                         .n_panels = 2,
                                         .values = panels,
                                         .panel_titles = panel_titles,
                                         .y_up = true,
                                         .scale = {false, 0, 1, 0, "share of (prompt, layer)", 2},
                                         .missing = "no prompts"});
    pen_finish(p, "binding", pen_text(p, "binding-%s-b%zu", run->tag, b + 1), title,
               "Share of (prompt, layer) of a cell's prompts, held-out ones included.");
    free(values);
}

void report_draw_binding(report_pen *p) {
    for (size_t i = 0; i < p->r->n_runs; i++) {
        const report_run *run = &p->r->runs[i];
        const json_t *budgets =
            json_object_get(json_array_get(json_object_get(p->r->json, "runs"), i), "budgets");
        if (json_array_size(budgets) > 0) { draw_budgets(p, i); }
        for (size_t b = 0; b < json_array_size(budgets); b++) {
            draw_layers(p, run, json_array_get(budgets, b), b);
            draw_cells(p, run, json_array_get(budgets, b), b);
        }
    }
}

/* ---- section ---- */

/* Budget by budget: does the gate act, in how many cells, and what its choices rest on. */
static void alive_table(const report *r, ckvc_buffer *b) {
    static const char *const columns[] = {
        "run",           "budget",  "binding",     "sets differ",    "cells alive",
        "thresholds of", "choices", "by the loss", "by the penalty", "the loss is flat"};
    size_t i, k;
    json_t *run, *budget;
    html_table_old(b, NULL, "llrrrlrrrr", columns, sizeof columns / sizeof *columns);
    json_array_foreach(json_object_get(r->json, "runs"), i, run) {
        json_array_foreach(json_object_get(run, "budgets"), k, budget) {
            const json_t *all = json_object_get(budget, "all"), *split = NULL;
            const report_table *t = NULL;
            size_t nth = 0;
            split = choices_of(r, i, report_num(budget, "budget"), 0, &t);
            do { /* a row for each table whose gate was fitted from the run */
                html_row_begin(b);
                html_cell(b, 'l', "%s %s", nth ? "" : report_str(run, "tag"),
                          nth ? "" : report_str(run, "name"));
                html_cell(b, 'l', "%s", nth ? "" : report_budget(report_num(budget, "budget")));
                html_cell(b, 'r', "%s", nth ? "" : report_share(report_num(all, "binding")));
                html_cell(b, 'r', "%s", nth ? "" : report_share(report_num(all, "sets_differ")));
                if (nth) {
                    html_cell(b, 'r', "%s", "");
                } else {
                    html_cell(b, 'r', "%.0f of %.0f", report_num(budget, "cells_alive"),
                              report_num(budget, "cells_occupied"));
                }
                html_cell(b, 'l', "%s", split ? t->title : "");
                html_cell(b, 'r', "%s",
                          split ? report_fixed(report_num(split, "supported"), 0) : "");
                html_cell(b, 'r', "%s", split ? report_share(report_num(split, "by_loss")) : "");
                html_cell(b, 'r', "%s", split ? report_share(report_num(split, "by_penalty")) : "");
                html_cell(b, 'r', "%s", split ? report_share(report_num(split, "loss_flat")) : "");
                html_row_end(b);
                split = choices_of(r, i, report_num(budget, "budget"), ++nth, &t);
            } while (split);
        }
    }
    html_table_end(b);
}

/* One budget of a run and a table whose gate was fitted from it, cell by cell: every risk cell with
 * choices. */
static void cell_rows(ckvc_buffer *b, const char *title, const char *run, const json_t *budget,
                      const json_t *split) {
    size_t e, q;
    json_t *row, *cell;
    json_array_foreach(json_object_get(split, "cells"), e, row) {
        json_array_foreach(row, q, cell) {
            const json_t *binding =
                json_array_get(json_array_get(json_object_get(budget, "cells"), e), q);
            if (!(report_num(cell, "supported") > 0)) { continue; }
            html_row_begin(b);
            html_cell(b, 'l', "%s", title);
            html_cell(b, 'l', "%s", run);
            html_cell(b, 'l', "%s", report_budget(report_num(budget, "budget")));
            html_cell(b, 'r', "%zu", e);
            html_cell(b, 'r', "%zu", q);
            html_cell(b, 'r', "%s", report_share(report_num(binding, "binding")));
            html_cell(b, 'r', "%s", report_share(report_num(binding, "sets_differ")));
            html_cell(b, 'r', "%.0f", report_num(cell, "supported"));
            html_cell(b, 'r', "%.0f", report_num(cell, "by_loss"));
            html_cell(b, 'r', "%.0f", report_num(cell, "by_penalty"));
            html_cell(b, 'r', "%.0f", report_num(cell, "loss_flat"));
            html_row_end(b);
        }
    }
}

/* What the thresholds rest on, by risk cell. */
static void cells_table(const report *r, ckvc_buffer *b) {
    static const char *const columns[] = {
        "thresholds of", "run",     "budget",      "entropy bin",    "perplexity bin",  "binding",
        "sets differ",   "choices", "by the loss", "by the penalty", "the loss is flat"};
    size_t i, k;
    json_t *run, *budget;
    html_table_old(b, NULL, "lllrrrrrrrr", columns, sizeof columns / sizeof *columns);
    json_array_foreach(json_object_get(r->json, "runs"), i, run) {
        json_array_foreach(json_object_get(run, "budgets"), k, budget) {
            const report_table *t = NULL;
            const json_t *split = NULL;
            for (size_t nth = 0;
                 (split = choices_of(r, i, report_num(budget, "budget"), nth, &t)) != NULL; nth++) {
                cell_rows(b, t->title, report_str(run, "tag"), budget, split);
            }
        }
    }
    html_table_end(b);
}

static bool any_choices(const report *r) {
    const report_table *of = NULL;
    for (size_t i = 0; i < r->n_runs; i++) {
        for (uint32_t k = 0; k < r->runs[i].h.n_budgets; k++) {
            if (choices_of(r, i, r->runs[i].h.budgets[k], 0, &of)) { return true; }
        }
    }
    return false;
}

/* The same sources apart, with the tokens that are kept. */
static void kept_table(const report *r, ckvc_buffer *b) {
    static const char *const columns[] = {
        "run",         "budget",     "prompts from", "(prompt, layer)",  "binding",
        "sets differ", "kept/layer", "allowed",      "of them in window"};
    size_t i, k;
    json_t *run, *budget;
    html_table_old(b, NULL, "lllrrrrrr", columns, sizeof columns / sizeof *columns);
    json_array_foreach(json_object_get(r->json, "runs"), i, run) {
        json_array_foreach(json_object_get(run, "budgets"), k, budget) {
            const json_t *sources = json_object_get(budget, "sources");
            size_t n = json_array_size(sources);
            for (size_t s = 0; s <= (n > 1 ? n : 0); s++) {
                const json_t *of =
                    s == 0 ? json_object_get(budget, "all") : json_array_get(sources, s - 1);
                html_row_begin(b);
                html_cell(b, 'l', "%s %s", s ? "" : report_str(run, "tag"),
                          s ? "" : report_str(run, "name"));
                html_cell(b, 'l', "%s", s ? "" : report_budget(report_num(budget, "budget")));
                html_cell(b, 'l', "%s",
                          s == 0                      ? "all"
                          : *report_str(of, "source") ? report_str(of, "source")
                                                      : "(no source)");
                html_cell(b, 'r', "%.0f", report_num(of, "n"));
                html_cell(b, 'r', "%s", report_share(report_num(of, "binding")));
                html_cell(b, 'r', "%s", report_share(report_num(of, "sets_differ")));
                html_cell(b, 'r', "%s", report_fixed(report_num(of, "kept_mean"), 1));
                html_cell(b, 'r', "%s", report_fixed(report_num(of, "budget_mean"), 1));
                html_cell(b, 'r', "%s", report_share(report_num(of, "share_of_kept_in_window")));
                html_row_end(b);
            }
        }
    }
    html_table_end(b);
}

void report_binding_section(const report *r, ckvc_buffer *b) {
    size_t i, k;
    json_t *run, *budget;
    bool rows = false;
    html_section_begin(b, "binding", "Can the gate act?");
    html_paragraph(b, NULL,
                   "A threshold matters only where fewer candidates than the budget pass it. "
                   "Binding: even the highest threshold of the grid "
                   "leaves fewer candidates than the budget. Sets differ: some two thresholds keep "
                   "different tokens. Elsewhere every "
                   "threshold "
                   "keeps the same set and only its penalty differs. A budget, or a risk cell, is "
                   "called alive where sets differ on %.0f%% of "
                   "(prompt, layer) "
                   "or more. By the loss: thresholds that the loss alone would choose, too. "
                   "Measured under the tables in force during the "
                   "run, "
                   "hold-out included.",
                   100 * GATE_ALIVE_SHARE);
    json_array_foreach(json_object_get(r->json, "runs"), i, run) {
        json_array_foreach(json_object_get(run, "budgets"), k, budget) {
            rows = true;
            if (json_is_null(json_object_get(budget, "alive"))) {
                html_paragraph(
                    b, "note",
                    "%s %s: at budget %s no thresholds are in use (--operator no-threshold).",
                    report_str(run, "tag"), report_str(run, "name"),
                    report_budget(report_num(budget, "budget")));
            }
            if (json_is_false(json_object_get(budget, "alive"))) {
                html_paragraph(b, "warn", "%s %s: at budget %s the gate is not alive: %s.",
                               report_str(run, "tag"), report_str(run, "name"),
                               report_budget(report_num(budget, "budget")),
                               report_str(budget, "advice"));
            }
        }
    }
    if (rows) {
        alive_table(r, b);
    } else {
        html_paragraph(b, "note", "The runs hold a scan alone: nothing was kept yet.");
    }
    report_page_figures(r, b, "binding");
    if (rows) {
        if (any_choices(r)) {
            html_details_begin(b, "What the thresholds rest on, by risk cell (layers counted)");
            cells_table(r, b);
            html_details_end(b);
        }
        html_details_begin(b, "Tokens kept, by source");
        kept_table(r, b);
        html_details_end(b);
    }
    html_section_end(b);
}
