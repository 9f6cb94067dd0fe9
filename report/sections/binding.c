/* Where the gate can change what is kept: per budget, source, layer and risk cell, and what its
 * choices rest on. */

#include "report/sections/sections.h"

/* ---- columns ---- */

TABLE(share_columns, binding_numbers, BOTH(binding, "binding_share"),
      BOTH(sets_differ, "sets_differ_share"));
TABLE(binding_columns, binding_numbers,
      MEMBERS(n, kept_mean, budget_mean, candidates_lo_mean, candidates_hi_mean,
              share_of_kept_in_window),
      INCLUDE(share_columns), JSON(source, .omit = true));
TABLE(choices_columns, gate_choices, JSON_AS(tag, "table"), MERGE(all, rests_columns));
SHARED_TABLE(budget_columns, budget_numbers, MEMBERS(budget, alive, cells_occupied, cells_alive),
             JSON(advice, .omit = true), OBJECT(all, binding_columns),
             OBJECTS(sources, n_sources, binding_columns),
             OBJECTS(layers, n_layers, binding_columns),
             JSON(cells, OF(binding_columns), BY(n_entropy, n_perplexity)),
             OBJECTS(choices, n_choices, choices_columns));

TABLE(cell_csv, binding_numbers, CSV_AS(perplexity, "perplexity_bin"),
      CSV_AS(entropy, "entropy_bin"), INCLUDE(share_columns));

/* ---- figures ---- */

static void draw_cells(view *v, const run_numbers *run, const budget_numbers *o, size_t number) {
    static const char *const titles[] = {"binding at the highest threshold",
                                         "two thresholds keep different sets"};
    const binding_numbers *c = o->cells;
    const size_t E = o->n_entropy, P = o->n_perplexity;
    figure_table(v, cell_csv, NULL, 0);
    for (size_t i = 0; i < E * P; i++) { csv_row(&v->csv, cell_csv, &c[i % E * P + i / E]); }
    figure_heat(v,
                .text = {say("%s: where the gate can act, by risk cell, budget %s", run->in.title,
                             say_budget(o->budget)),
                         "entropy bin", "perplexity bin"},
                .grid = {P, E, sizeof *c, P * sizeof *c, 2},
                .values = (const double *[]){&c->binding, &c->sets_differ}, .panel_titles = titles,
                .y_up = true,
                .scale = {.hi = 1, .label = "share of (prompt, layer)", .decimals = 2},
                .missing = "no prompts");
    figure_end(v, say("binding-%s-b%zu", run->in.tag, number),
               "Share of (prompt, layer) of a cell's prompts, held-out ones included.");
}

/* ---- findings ---- */

static const char *not_alive(const budget_numbers *o) {
    return say("%s: at budget %s the gate is not alive: %s.", o->run, say_budget(o->budget),
               o->advice ? o->advice : "");
}

static void run_findings(const report_numbers *n, view *v) {
    EACH(run_numbers, run, n->runs, n->n_runs) {
        const char *shares = "", *title = run->in.title;
        EACH(budget_numbers, o, run->budgets, run->n_budgets) {
            if (o->alive < 0) {
                finding(v, NULL, "%s has no thresholds: every layer keeps its whole budget.",
                        title);
                break;
            }
            shares = say_more(shares, ", ", "%s at budget %s", say_share(o->all.sets_differ),
                              say_budget(o->budget));
        }
        if (*shares) {
            finding(v, NULL,
                    "In %s the gate can change what is kept on this share of (prompt, layer): %s.",
                    title, shares);
        }
        EACH(budget_numbers, o, run->budgets, run->n_budgets) {
            if (o->alive == 0) { finding(v, NULL, "%s", not_alive(o)); }
        }
    }
}

/* ---- tables ---- */

/* Budget by budget: does the gate act, in how many cells, and what its choices rest on: a row for
 * each table whose gate was fitted from the run. */
static void alive_rows(view *v, const budget_numbers *o) {
    for (size_t k = 0; k == 0 || k < o->n_choices; k++) {
        const rests *r = &(k ? &o->choices[k] : &o->first)->all;
        const bool any = o->n_choices > 0;
        html_row(page(v), "llrrrlrrrr", k ? " " : o->run, k ? "" : say_budget(o->budget),
                 k ? "" : say_share(o->all.binding), k ? "" : say_share(o->all.sets_differ),
                 k ? "" : say("%zu of %zu", o->cells_alive, o->cells_occupied),
                 any ? o->choices[k].title : "", any ? say_fixed(r->supported, 0) : "",
                 any ? say_share(r->by_loss) : "", any ? say_share(r->by_penalty) : "",
                 any ? say_share(r->loss_flat) : "");
    }
}

/* What the thresholds rest on, by risk cell: every one with choices. */
static void cell_rows(view *v, const budget_numbers *o) {
    EACH(gate_choices, c, o->choices, o->n_choices) {
        EACH(binding_numbers, of, o->cells, o->n_entropy * o->n_perplexity) {
            const rests *r = &c->cells[of - o->cells];
            if (!(r->supported > 0)) { continue; }
            html_row(page(v), "lllrrrrrrrr", c->title, o->tag, say_budget(o->budget),
                     say("%.0f", of->entropy), say("%.0f", of->perplexity), say_share(of->binding),
                     say_share(of->sets_differ), say("%.0f", r->supported), say("%.0f", r->by_loss),
                     say("%.0f", r->by_penalty), say("%.0f", r->loss_flat));
        }
    }
}

/* The tokens that are kept, by source. */
static void kept_rows(view *v, const budget_numbers *o) {
    for (size_t s = 0; s <= (o->n_sources > 1 ? o->n_sources : 0); s++) {
        const binding_numbers *of = s ? &o->sources[s - 1] : &o->all;
        html_row(page(v), "lllrrrrrr", s ? " " : o->run, s ? "" : say_budget(o->budget),
                 s == 0        ? "all"
                 : *of->source ? of->source
                               : "(no source)",
                 say("%llu", (unsigned long long)of->n), say_share(of->binding),
                 say_share(of->sets_differ), say_fixed(of->kept_mean, 1),
                 say_fixed(of->budget_mean, 1), say_share(of->share_of_kept_in_window));
    }
}

/* Rows of every budget of every run. */
static void all_rows(const report_numbers *n, view *v,
                     void (*rows)(view *v, const budget_numbers *o)) {
    EACH(run_numbers, run, n->runs, n->n_runs) {
        EACH(budget_numbers, o, run->budgets, run->n_budgets) { rows(v, o); }
    }
}

/* What is the matter with a gate. */
static void note(view *v, const budget_numbers *o) {
    if (o->alive < 0) {
        page_note(v, "%s: at budget %s no thresholds are in use (--operator no-threshold).", o->run,
                  say_budget(o->budget));
    } else if (o->alive == 0) {
        page_warn(v, "%s", not_alive(o));
    }
}

void binding_section(const report_numbers *n, view *v) {
    size_t budgets = 0, choices = 0;
    run_findings(n, v);
    page_text(
        v,
        "A threshold matters only where fewer candidates than the budget pass it. Binding: even "
        "the highest threshold of the grid leaves fewer candidates than the budget. Sets differ: "
        "some two thresholds keep different tokens. Elsewhere every threshold keeps the same set "
        "and only its penalty differs. A budget, or a risk cell, is called alive where sets differ "
        "on %.0f%% of (prompt, layer) or more. By the loss: thresholds that the loss alone would "
        "choose, too. Measured under the tables in force during the run, hold-out included.",
        100 * GATE_ALIVE_SHARE);
    all_rows(n, v, note);
    EACH(run_numbers, run, n->runs, n->n_runs) {
        budgets += run->n_budgets;
        EACH(budget_numbers, o, run->budgets, run->n_budgets) { choices += o->n_choices; }
    }
    if (budgets) {
        page_heads(v, NULL, "llrrrlrrrr", "run", "budget", "binding", "sets differ", "cells alive",
                   "thresholds of", "choices", "by the loss", "by the penalty", "the loss is flat");
        all_rows(n, v, alive_rows);
        page_table_end(v);
    } else {
        page_note(v, "The runs hold a scan alone: nothing was kept yet.");
    }
    EACH(run_numbers, run, n->runs, n->n_runs) {
        for (size_t k = 0; k < run->n_budgets; k++) { draw_cells(v, run, &run->budgets[k], k + 1); }
    }
    if (choices) {
        page_heads(v, "What the thresholds rest on, by risk cell (layers counted)", "lllrrrrrrrr",
                   "thresholds of", "run", "budget", "entropy bin", "perplexity bin", "binding",
                   "sets differ", "choices", "by the loss", "by the penalty", "the loss is flat");
        all_rows(n, v, cell_rows);
        page_table_end(v);
    }
    if (budgets) {
        page_heads(v, "Tokens kept, by source", "lllrrrrrr", "run", "budget", "prompts from",
                   "(prompt, layer)", "binding", "sets differ", "kept/layer", "allowed",
                   "of them in window");
        all_rows(n, v, kept_rows);
        page_table_end(v);
    }
}
