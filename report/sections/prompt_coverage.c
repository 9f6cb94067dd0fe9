/* What the prompts cover: risk cells and sources, what was there and what was drawn. */
#include <math.h>

#include "report/sections/sections.h"

TABLE(cover_columns, cover_numbers, MEMBERS(prompts, drawn, occupied, thin),
      JSON(source, .omit = true), JSON(cells, BY(n_entropy, n_perplexity)),
      JSON(drawn_cells, BY(n_entropy, n_perplexity), WHEN(logged), .omit = true));
SHARED_TABLE(coverage_columns, coverage_numbers, MERGE(all, cover_columns),
             MEMBERS(min_cell, sample, unscanned), OBJECTS(sources, n_sources, cover_columns));
static const char *named(const char *source) { return *source ? source : "(no source)"; }

/* ---- figures ---- */

static void cells_csv(view *v, const char *source, const cover_numbers *c) {
    for (size_t e = 0, i = 0; e < c->n_entropy; e++) {
        for (size_t p = 0; p < c->n_perplexity; p++, i++) {
            const double drawn = c->logged ? c->drawn_cells[i] : NAN;
            csv_text(&v->csv, source);
            figure_line(v, (double)e, (double)p, c->cells[i], drawn);
        }
    }
}

/* What was there, and what was drawn where that is less; the sources' are in the csv. */
static void draw_cells(view *v, const run_numbers *run) {
    static const char *const titles[] = {"scanned", "drawn for logging"};
    const cover_numbers *c = &run->coverage->all;
    const size_t E = c->n_entropy, P = c->n_perplexity;
    const bool sampled = c->drawn < (double)c->prompts;
    const double *panels[] = {c->cells, c->drawn_cells};
    double most = 0;
    for (size_t i = 0; i < E * P; i++) { most = fmax(most, c->cells[i]); }
    figure_begin(v, "source,entropy_bin,perplexity_bin,prompts,drawn");
    cells_csv(v, "all", c);
    EACH(cover_numbers, s, run->coverage->sources, run->coverage->n_sources) {
        cells_csv(v, s->source, s);
    }
    figure_heat(
        v,
        .text = {say("%s: prompts per risk cell", run->in.title), "entropy bin", "perplexity bin"},
        .grid = {P, E, sizeof **panels, P * sizeof **panels, sampled ? 2 : 1}, .values = panels,
        .zero_is_blank = true, .panel_titles = sampled ? titles : NULL, .y_up = true,
        .scale = {.hi = most, .label = "prompts"}, .missing = "no prompts");
    figure_end(v, say("coverage-%s", run->in.tag),
               sampled ? "Stratified sampling evens out the cells as far as they have prompts. "
                         "Hold-out left out."
                       : "Hold-out left out.");
}

/* ---- page ---- */

/* s: 0 for all, else one of the sources. */
static void table_row(view *v, const run_numbers *run, size_t s) {
    const coverage_numbers *o = run->coverage;
    const cover_numbers *c = s ? &o->sources[s - 1] : &o->all;
    html_row(page(v), "llrrrr", s ? " " : run->in.title, s == 0 ? "all" : named(c->source),
             say("%zu", c->prompts), c->logged ? say_fixed(c->drawn, 0) : "",
             say("%zu of %zu", c->occupied, c->n_entropy * c->n_perplexity),
             s == 0 && isfinite(o->min_cell) ? say("%zu below %.0f", c->thin, o->min_cell) : "");
}

static void coverage_table(const report_numbers *n, view *v) {
    page_heads(v, "By source", "llrrrr", "run", "source", "scanned", "logged", "risk cells",
               "thin");
    EACH(run_numbers, run, n->runs, n->n_runs) {
        const coverage_numbers *c = run->coverage;
        for (size_t s = 0; c && s <= (c->n_sources > 1 ? c->n_sources : 0); s++) {
            table_row(v, run, s);
        }
    }
    page_table_end(v);
}

void prompts_section(const report_numbers *n, view *v) {
    bool any = false;
    page_text(v,
              "Prompts by risk cell, scanned and logged; held-out prompts are not counted. A cell "
              "with fewer logged prompts than --min-cell gives thresholds that rest on little.");
    EACH(run_numbers, run, n->runs, n->n_runs) {
        any |= run->coverage != NULL;
        if (run->coverage && run->coverage->all.prompts) { draw_cells(v, run); }
    }
    if (any) { coverage_table(n, v); }
}
