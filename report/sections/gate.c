/* The gate's thresholds of each table. */
#include "report/sections/sections.h"

TABLE(monotone_columns, monotone, SHOWN(non_increasing, "not rising", SHARE),
      SHOWN(non_decreasing, "not falling", SHARE), MEMBERS(pairs, equal));

SAY(cells_of, threshold_numbers,
    o->counted ? say("%zu of %zu", o->supported, o->cells) : say("not known of %zu", o->cells))

SHARED_TABLE(threshold_columns, threshold_numbers, PAGE(title, "table"),
             SHOWN(budget, "budget", BUDGET), SHOWN(cells, "cells with records", .say = cells_of),
             SHOWN(mean_tau, "mean τ", FIXED(3)), PAGE(along_entropy.pairs, "pairs along entropy"),
             OBJECT(along_entropy, monotone_columns),
             PAGE(along_perplexity.pairs, "pairs along perplexity"),
             OBJECT(along_perplexity, monotone_columns), MEMBERS(supported),
             JSON(histogram, BY(n_actions)), JSON(tau, BY(n_layers, n_entropy, n_perplexity)));

SAY(rests_on, entry, o->by_loss < 0 ? "" : o->by_loss ? "loss" : "penalty")

TABLE(map_columns, entry, CSV_AS(perplexity, "perplexity_bin"), CSV_AS(entropy, "entropy_bin"),
      CSV(layer), CSV_AS(value, "tau"), CSV(supported),
      CSV_AS(by_loss, "rests_on", .say = rests_on), CSV_AS(loss_flat, "loss_is_flat"),
      INCLUDE(refit_entry_columns));

/* "perplexity bin 0: below 12.3" */
static const char *bin_title(room *r, const ckvc_table *k, size_t q) {
    const double *edges = k->edges_ppl;
    return k->n_ppl_bins == 1 ? "all perplexities"
           : q == 0           ? room_text(r, "perplexity bin 0: below %.3g", edges[0])
           : q == k->n_ppl_bins - 1
               ? room_text(r, "perplexity bin %zu: from %.3g", q, edges[q - 1])
               : room_text(r, "perplexity bin %zu: %.3g to %.3g", q, edges[q - 1], edges[q]);
}

static void draw_thresholds(const report_numbers *n, view *v, const table_numbers *t, size_t b) {
    const ckvc_actions *a = &t->evidence[CKVC_SIDE_GATE].side.actions;
    const entry_map m = {t, CKVC_SIDE_GATE, b, offsetof(entry, shown), map_columns, true};
    chart_heat_spec map = entry_map_begin(n, v, &m);
    const char **titles = NEW(n, map.grid.panels, const char *);
    for (size_t q = 0; q < map.grid.panels; q++) {
        titles[q] = bin_title(&n->in->room, t->shape, q);
    }
    map.text.title =
        say("%s: gate thresholds by risk, budget %s", t->title, say_budget(t->gate[b].budget));
    map.panel_titles = titles;
    map.scale = (chart_scale){"threshold τ: dark keeps more tokens, bright keeps fewer",
                              2,
                              a->grid[0],
                              a->grid[a->n - 1],
                              0,
                              false,
                              false};
    map.missing = "no records: the fit chose nothing here";
    chart_heat(&v->s, &map);
    figure_end(
        v, say("tau-%s-b%zu", t->tag, b + 1),
        t->f.has_evidence
            ? "One panel per perplexity bin, entropy rising upwards. Blank cells have no records."
            : "One panel per perplexity bin, entropy rising upwards. This table carries no counts, "
              "so every cell is shown.");
}

/* Thresholds may stand below shares, too. */
static bool all_alike(const table_numbers *t, size_t b) {
    const threshold_numbers *g = &t->gate[b];
    size_t used = 0;
    for (size_t a = 0; a < g->n_actions; a++) { used += g->histogram[a] > 0; }
    return used < 2;
}

bool gates_known(const report_numbers *n) {
    bool any = false;
    EACH(table_numbers, t, n->tables, n->n_tables) {
        any |= !t->shares_alone;
        for (size_t k = 0; k < t->n_budgets; k++) { any |= !all_alike(t, k); }
    }
    return any;
}

void gate_section(const report_numbers *n, view *v) {
    page_text(v, "The intended direction is: higher risk, lower threshold, more tokens kept. "
                 "Counted over neighbouring cells that both have records; equal thresholds count "
                 "as not rising and as not falling.");
    EACH(table_numbers, t, n->tables, n->n_tables) {
        for (size_t k = 0; k < t->n_budgets; k++) {
            if (!all_alike(t, k)) { draw_thresholds(n, v, t, k); }
        }
    }
    page_table_begin(v, "Monotone in risk? Thresholds that are all the same have no map",
                     threshold_columns);
    EACH(table_numbers, t, n->tables, n->n_tables) {
        page_rows(v, threshold_columns, t->gate, t->shares_alone ? 0 : t->n_budgets);
    }
    page_table_end(v);
}
