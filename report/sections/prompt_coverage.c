/* What the prompts cover: the plane of risk, risk cells and sources, what was there and what was
 * drawn. */
#include <math.h>

#include "report/sections/sections.h"

enum { SOURCES_DRAWN = 6 }; /* panels of sources, the largest ones */

TABLE(cover_columns, cover_numbers, MEMBERS(prompts, drawn, occupied, thin),
      JSON(source, .omit = true), JSON(cells, BY(n_entropy, n_perplexity)),
      JSON(drawn_cells, BY(n_entropy, n_perplexity), WHEN(logged), .omit = true));
SHARED_TABLE(coverage_columns, coverage_numbers, MERGE(all, cover_columns),
             MEMBERS(min_cell, sample, unscanned), OBJECTS(sources, n_sources, cover_columns));
TABLE(prompt_csv, input_prompt, CSV(id), CSV_AS(source_name, "source"), CSV(heldout),
      CSV_AS(r_struct, "r_struct_nats"), CSV_AS(r_sem, "r_sem_perplexity"));

static const char *named(const char *source) { return *source ? source : "(no source)"; }

/* ---- figures ---- */

static void draw_risk_plane(const report_numbers *n, view *v, const run_numbers *run) {
    const input_run *in = &run->in;
    const shard_header *h = &in->h;
    const bool tips = in->n_prompts <= 2000;
    chart_point *points = NEW(n, in->n_prompts, chart_point);
    const char **names = NEW(n, in->n_sources, const char *);
    figure_table(v, prompt_csv, in->prompts, in->n_prompts);
    for (size_t i = 0; i < in->n_prompts; i++) {
        const input_prompt *q = &in->prompts[i];
        points[i] =
            (chart_point){q->r_struct, q->r_sem, NAN, NAN, 3, (int)q->source, tips ? q->id : NULL};
    }
    for (size_t i = 0; i < in->n_sources; i++) { names[i] = named(in->sources[i].name); }
    figure_scatter(v,
                   .text = {say("%s: prompts on the plane of risk", in->title),
                            "attention entropy R_struct, nats", "window perplexity R_sem"},
                   .n = in->n_prompts, .n_series = in->n_sources, .points = points, .series = names,
                   .x_lines = h->edges_entropy, .y_lines = h->edges_ppl,
                   .n_x_lines = in->binned ? h->n_entropy_bins - 1 : 0,
                   .n_y_lines = in->binned ? h->n_ppl_bins - 1 : 0);
    figure_end(v, say("risk-%s", in->tag),
               "One point per prompt; dashed lines are the edges of the risk bins.");
}

static void cells_csv(view *v, const char *source, const cover_numbers *c) {
    for (size_t e = 0, i = 0; e < c->n_entropy; e++) {
        for (size_t p = 0; p < c->n_perplexity; p++, i++) {
            const double drawn = c->logged ? c->drawn_cells[i] : NAN;
            csv_text(&v->csv, source);
            figure_line(v, (double)e, (double)p, c->cells[i], drawn);
        }
    }
}

/* Panels [n] of cells in the shape of c, the largest number at the scale's end. */
static void draw_cells(view *v, const cover_numbers *c, const char *title,
                       const double *const *panels, const char *const *titles, size_t n) {
    const size_t E = c->n_entropy, P = c->n_perplexity;
    double most = 0;
    for (size_t k = 0; k < n; k++) {
        for (size_t i = 0; i < E * P; i++) { most = fmax(most, panels[k][i]); }
    }
    figure_heat(v, .text = {title, "entropy bin", "perplexity bin"},
                .grid = {P, E, sizeof **panels, P * sizeof **panels, n}, .values = panels,
                .zero_is_blank = true, .panel_titles = titles, .y_up = true,
                .scale = {.hi = most, .label = "prompts"}, .missing = "no prompts");
}

/* All sources together: what was there, and what was drawn where that is less. */
static void draw_all(view *v, const run_numbers *run) {
    static const char *const titles[] = {"scanned", "drawn for logging"};
    const cover_numbers *c = &run->coverage->all;
    const bool sampled = c->drawn < (double)c->prompts;
    const double *panels[] = {c->cells, c->drawn_cells};
    figure_begin(v, "source,entropy_bin,perplexity_bin,prompts,drawn");
    cells_csv(v, "all", c);
    draw_cells(v, c, say("%s: prompts per risk cell", run->in.title), panels,
               sampled ? titles : NULL, sampled ? 2 : 1);
    figure_end(v, say("coverage-%s", run->in.tag),
               sampled ? "Stratified sampling evens out the cells as far as they have prompts. "
                         "Hold-out left out."
                       : "Hold-out left out.");
}

/* The largest sources, what was drawn of them (or scanned, where nothing is logged). */
static void draw_sources(const report_numbers *n, view *v, const run_numbers *run) {
    const coverage_numbers *c = run->coverage;
    const size_t shown = c->n_sources < SOURCES_DRAWN ? c->n_sources : SOURCES_DRAWN;
    const cover_numbers **order = NEW(n, c->n_sources, const cover_numbers *);
    const double *panels[SOURCES_DRAWN] = {NULL};
    const char *titles[SOURCES_DRAWN] = {NULL};
    for (size_t i = 0; i < c->n_sources; i++) { /* most prompts first; of equals the first */
        size_t at = i;
        for (; at > 0 && order[at - 1]->prompts < c->sources[i].prompts; at--) {
            order[at] = order[at - 1];
        }
        order[at] = &c->sources[i];
    }
    figure_begin(v, "source,entropy_bin,perplexity_bin,prompts,drawn");
    for (size_t i = 0; i < c->n_sources; i++) {
        cells_csv(v, order[i]->source, order[i]);
        if (i < shown) {
            panels[i] = c->all.logged ? order[i]->drawn_cells : order[i]->cells;
            titles[i] = named(order[i]->source);
        }
    }
    draw_cells(v, &c->all,
               say("%s: %s per risk cell and source", run->in.title,
                   c->all.logged ? "logged prompts" : "scanned prompts"),
               panels, titles, shown);
    figure_end(
        v, say("coverage-sources-%s", run->in.tag),
        shown < c->n_sources
            ? "The largest sources; the numbers beside the picture have all."
            : "A cell that one source fills alone says as much of the source as of the risk.");
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
    page_fold(v, "Numbers, by source");
    page_heads(v, NULL, "llrrrr", "run", "source", "scanned", "logged", "risk cells", "thin");
    EACH(run_numbers, run, n->runs, n->n_runs) {
        const coverage_numbers *c = run->coverage;
        for (size_t s = 0; c && s <= (c->n_sources > 1 ? c->n_sources : 0); s++) {
            table_row(v, run, s);
        }
    }
    page_table_end(v);
    page_fold_end(v);
}

void prompts_section(const report_numbers *n, view *v) {
    bool any = false;
    page_text(v,
              "Prompts by risk cell, scanned and logged; held-out prompts are not counted. A cell "
              "with fewer logged prompts than --min-cell gives thresholds that rest on little.");
    EACH(run_numbers, run, n->runs, n->n_runs) {
        any |= run->coverage != NULL;
        if (run->in.n_prompts) { draw_risk_plane(n, v, run); }
    }
    EACH(run_numbers, run, n->runs, n->n_runs) {
        if (!run->coverage || run->coverage->all.prompts == 0) { continue; }
        draw_all(v, run);
        if (run->coverage->n_sources > 1) { draw_sources(n, v, run); }
    }
    if (any) { coverage_table(n, v); }
}
