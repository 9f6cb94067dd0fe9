/* The paper's diagnostics: scores by prompt and head, two peaks of weights, damage by risk, the
 * worst tenth. */
#include <math.h>

#include "report/sections/sections.h"

/* ---- columns ---- */

SAY(short_model, utility_numbers, say("%.12s", o->model))
SHARED_TABLE(utility_columns, utility_numbers, SHOWN(model, "model", .say = short_model),
             SHOWN(prompts_used, "prompts"), SHOWN(spread_mean, "mean spread", FIXED(3)),
             SHOWN(between_heads, "spread between heads", SHARE),
             SHOWN(between_prompts, "between prompts", SHARE),
             SHOWN(neither, "in neither alone", SHARE), MEMBERS(n),
             JSON(alpha_quantiles, BY(n, n_quantiles)),
             JSON(spread_by_head, BY(n_layers, n_heads)));

SAY(two_peaks, peaks_numbers,
    !isfinite(o->of.p) ? SAY_UNDEFINED
    : o->of.p <= 0.05  ? "yes"
                       : "not shown")
#define PEAKS(m, head, ...) SHOWN_AS(of.m, #m, head, __VA_ARGS__)
SHARED_TABLE(peaks_columns, peaks_numbers, SHOWN(table, "table"), SHOWN(budget, "budget", BUDGET),
             PEAKS(n, "heads with records", FIXED(0)), PEAKS(dip, "dip", FIXED(3)),
             PEAKS(p, "p", FIXED(4)), PEAKS(sarle, "Sarle's coefficient", FIXED(3)),
             PEAKS(at_ends, "at the grid's ends", SHARE),
             PAGE(of.p, "two peaks?", .say = two_peaks, .align = "nn"));

TABLE(cell_columns, damage_cell, CSV_AS(entropy, "entropy_cell"),
      CSV_AS(perplexity, "perplexity_cell"), BOTH(n, "prompts"),
      BOTH(damage, "damage_nats_per_token"));
TABLE(prompt_columns, damage_prompt, BOTH(id, "id"), BOTH(r_struct, "r_struct_nats"),
      BOTH(r_sem, "r_sem_perplexity"), BOTH(T, "T"), BOTH(damage, "damage_nats_per_token"),
      CSV(worst));
TABLE(correlation_columns, damage_correlation, MEMBERS(risk, given, of), JSON_AS(r.r, "r"),
      JSON_AS(r.lo, "lo"), JSON_AS(r.hi, "hi"), JSON_AS(r.n_controls, "controls_used"));

SAY(share_of, worst_share,
    !isfinite(o->lo)
        ? say_share(o->share)
        : say("%s (%s to %s)", say_share(o->share), say_share(o->lo), say_share(o->hi)))
TABLE(worst_columns, worst_share, SHOWN(n_worst, "worst tenth"),
      SHOWN_AS(n_worst_low, "n_worst_low_risk", "of them low risk"),
      SHOWN(share, "share (95% interval)", .say = share_of), MEMBERS(lo, hi),
      SHOWN_AS(base, "share_of_all_low_risk", "low risk among all prompts", SHARE));
SHARED_TABLE(damage_columns, damage_numbers, MERGE(of, under_columns),
             PAGE(of.budget, "budget", BUDGET), SHOWN(n, "n"),
             SHOWN(damage, "mean damage", FIXED(4)),
             JSON_AS(worst, "worst_tenth", OF(worst_columns)), JSON(edges_entropy, BY(n_edges)),
             JSON(edges_perplexity, BY(n_edges)), OBJECTS(prompts, n, prompt_columns),
             JSON(cells, OF(cell_columns), BY(n_cells, n_cells)),
             OBJECTS(correlations, n_correlations, correlation_columns));

/* ---- figures ---- */

static void draw_heads(view *v, const utility_numbers *o, size_t number) {
    const double *values = o->spread_by_head;
    double lo = INFINITY, hi = -INFINITY;
    figure_begin(v, "layer,head,spread");
    for (size_t l = 0, i = 0; l < o->n_layers; l++) {
        for (size_t h = 0; h < o->n_heads; h++, i++) {
            figure_line(v, (double)l, (double)h, values[i]);
            lo = fmin(lo, values[i]);
            hi = fmax(hi, values[i]);
        }
    }
    figure_heat(
        v,
        .text = {say("Spread of utility scores by head, model %.12s", o->model), "KV head",
                 "layer"},
        .grid = {o->n_layers, o->n_heads, o->n_heads * sizeof *values, sizeof *values, 1},
        .values = &values,
        .scale = {"ln(95% quantile / median) of α·ρ over positions", 2, lo, hi, 0, false, false},
        .missing = "undefined");
    figure_end(v, say("scores-heads-%zu", number),
               "Mean over prompts. A head of wide range decides the maximum over heads more often "
               "at equal weights.");
}

static void draw_cells(view *v, const damage_numbers *o, size_t number) {
    static const char *const names[RISK_CELLS] = {"low", "", "", "high"};
    const double *values = &o->cells->damage;
    double lo = INFINITY, hi = -INFINITY;
    for (size_t i = 0; i < o->n_cells * o->n_cells; i++) {
        lo = fmin(lo, o->cells[i].damage);
        hi = fmax(hi, o->cells[i].damage);
    }
    figure_table(v, cell_columns, o->cells, o->n_cells * o->n_cells);
    figure_heat(
        v,
        .text = {say("Damage by risk: %s, budget %s", o->of.title, say_budget(o->of.budget)),
                 "attention entropy, quarters of these prompts", "perplexity, quarters"},
        .grid = {o->n_cells, o->n_cells, sizeof *o->cells, o->n_cells * sizeof *o->cells, 1},
        .values = &values, .row_names = names, .col_names = names, .y_up = true,
        .scale = {"mean damage, nats per token", 3, lo, hi, 0, false, false},
        .missing = "no prompts");
    figure_end(v, say("damage-%zu", number),
               "Mean rise of the continuation's loss when every prompt is compressed alike. If the "
               "risks told who is hurt, damage would rise to the upper right.");
}

/* ---- page ---- */

static void utilities_part(const report_numbers *n, view *v) {
    if (n->n_utilities == 0) {
        page_note(v, "How scores are distributed by prompt and head is not known: no score file "
                     "was made with --utilities.");
        return;
    }
    html_heading(page(v), 3, "Utility scores by prompt and head");
    page_text(v, "The paper's premise is that heads differ alike in all prompts. The spread of a "
                 "head's scores in a prompt is ln(95%% quantile / median) of α\u00B7ρ over "
                 "positions; its variance is split into what the head alone says, what the prompt "
                 "alone says, and what neither does.");
    page_table(v, NULL, utility_columns, n->utilities, n->n_utilities);
}

static void peaks_part(const report_numbers *n, view *v) {
    if (n->n_peaks == 0) { return; }
    html_heading(page(v), 3, "Have the compiled weights two peaks?");
    page_text(v, "The paper reads two kinds of heads from a histogram with two peaks. Hartigan's "
                 "dip test asks whether one peak would do: p is the share of samples drawn evenly "
                 "from the same grid whose dip is as large. Sarle's coefficient is 0.56 for an "
                 "even spread, more points to two peaks or a long tail.");
    page_table(v, NULL, peaks_columns, n->peaks, n->n_peaks);
    page_note(
        v,
        "Two peaks are no proof of two kinds of heads: where reward rises or falls along the grid, "
        "the best action is an end of it, and weights pile up at both ends whatever the heads do.");
}

/* The correlations of one risk: ranks alone, given T, given both; values given T
 * (diagnostic_numbers.c has the order). */
static void correlation_row(view *v, const damage_correlation *of, const char *risk) {
    static const size_t shown[] = {0, 2, 4, 3};
    html_row_begin(page(v));
    html_cell(page(v), 'l', "%s", risk);
    for (size_t k = 0; k < sizeof shown / sizeof *shown; k++) {
        const partial_result *r = &of[shown[k]].r;
        html_cell(page(v), 'r', "%s", say_interval(r->r, r->lo, r->hi, 2));
    }
    html_row_end(page(v));
}

static void damage_part(const report_numbers *n, view *v) {
    bool flat = false;
    if (n->n_damages == 0) {
        page_note(v, "Damage by risk is not known: it takes scores of the policy window, "
                     "no-threshold or identity on at least 10 prompts.");
        return;
    }
    html_heading(page(v), 3, "Damage of a fixed policy by risk");
    page_text(v, "Damage is the rise of the continuation's mean loss, in nats per token, when "
                 "every prompt is compressed by the same rule (the paper's fixed Top-k: the policy "
                 "window where it was scored, else a table's no-threshold, else identity). The "
                 "entropy of a longer prompt is larger by itself, so its relation with damage is "
                 "also given at equal length: partial correlations given T, of ranks and of "
                 "values, with 95%% intervals over resampled prompts.");
    page_heads(v, "Damage against risk", "lrrrr", "policy and risk", "ranks, alone",
               "ranks, given T", "ranks, given T and the other risk", "values, given T");
    EACH(damage_numbers, o, n->damages, n->n_damages) {
        const damage_correlation *second = o->correlations + CORRELATIONS / 2;
        html_group(page(v), 5, "%s, budget %s, C = %u, model %.12s, %zu prompts", o->of.title,
                   say_budget(o->of.budget), o->of.continuation, o->of.model, o->n);
        correlation_row(v, o->correlations, "attention entropy R_struct");
        correlation_row(v, second, "perplexity R_sem");
        flat |= o->correlations[2].r.n_controls == 0 || second[2].r.n_controls == 0;
    }
    page_table_end(v);
    if (flat) {
        page_note(v,
                  "Where all prompts have the same length, T says nothing and the columns agree.");
    }
    html_heading(page(v), 3, "Where is the worst tenth?");
    page_text(
        v, "The paper states that fewer than 8%% of failures lie outside the two risks, without "
           "saying what counts as either. Here: the tenth of the prompts with the largest damage, "
           "and low risk is both risks below their medians over the same prompts. If damage had "
           "nothing to do with the risks, the share would be that of low risk among all prompts.");
    page_table(v, NULL, damage_columns, n->damages, n->n_damages);
}

void diagnostics_section(const report_numbers *n, view *v) {
    const bool scored = n->in->scores.n_files > 0;
    if (scored) { utilities_part(n, v); }
    peaks_part(n, v);
    if (scored) { damage_part(n, v); }
    for (size_t i = 0; i < n->n_utilities; i++) { draw_heads(v, &n->utilities[i], i + 1); }
    for (size_t i = 0; i < n->n_damages; i++) { draw_cells(v, &n->damages[i], i + 1); }
}
