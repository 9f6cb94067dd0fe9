/* Do tables agree? Rank agreement of weights with its limits, agreement of thresholds. */
#include <math.h>

#include "report/sections/sections.h"

/* ---- columns ---- */

SHARED_TABLE(spread_columns, stability_spread, MEMBERS(mean, lo, hi), JSON_AS(n, "defined"));
TABLE(reach_columns, reach, BOTH(lo, "lo"), BOTH(hi, "hi"), OBJECT(split_half_a, spread_columns),
      OBJECT(split_half_b, spread_columns), CSV_AS(split_half_a.mean, "split_half_a"),
      CSV_AS(split_half_b.mean, "split_half_b"), BOTH(ceiling, "limit"),
      MEMBERS(replicates, replicates_defined));

/* "0.22 to 0.84, 312 refits" */
static const char *range_of(const reach *r, int decimals, const char *missing) {
    return !isfinite(r->lo)
               ? missing
               : say("%s to %s%s", say_fixed(r->lo, decimals), say_fixed(r->hi, decimals),
                     say_few_refits((double)r->replicates, false));
}

SAY(pair_of, pair_heads, say("%s, %s", o->a, o->b))
SAY(head_range_of, pair_heads, o->has_reach ? range_of(&o->reach, 2, SAY_UNDEFINED) : "not known")
MAKE(layers_of, layer_group, json_pack("[I, I]", (json_int_t)o->first, (json_int_t)o->last))

TABLE(group_columns, layer_group, JSON_AS(rho, "bins"),
      JSON_AS(first, "bin_layers", .make = layers_of));
TABLE(group_reach_columns, layer_group, JSON_AS(reach, "bin_intervals", OF(reach_columns)));
#define OF_REACH WHEN(has_reach), ABSENT("not known")
TABLE(head_columns, pair_heads, PAGE(a, "pair", .say = pair_of, .align = "nl"),
      SHOWN(budget, "budget", BUDGET, .align = "nl"), SHOWN(overall, "ρ, all heads", FIXED(3)),
      PAGE(reach.lo, "95% over prompts", .say = head_range_of),
      PAGE(reach.ceiling, "limit", FIXED(2), OF_REACH),
      PAGE(reach.split_half_a, "split half, first", SPREAD(2), OF_REACH),
      PAGE(reach.split_half_b, "split half, second", SPREAD(2), OF_REACH),
      SHOWN(bin_mean, "mean of groups", FIXED(3)), SHOWN(bin_min, "lowest group", FIXED(3)),
      SHOWN(share_equal, "equal weights", SHARE), SHOWN(mean_abs_difference, "mean |Δw|", FIXED(3)),
      MEMBERS(n, interval_missing),
      JSON_AS(reach, "interval", OF(reach_columns), OF_REACH, .omit = true),
      ARRAYS(groups, n_groups, group_columns),
      ARRAYS(groups, n_groups, group_reach_columns, OF_REACH));

SAY(shares_range_of, pair_heads,
    isfinite(o->reach.lo) ? say("%s to %s", say_fixed(o->reach.lo, 2), say_fixed(o->reach.hi, 2))
                          : SAY_UNDEFINED)
TABLE(group_ends_columns, layer_group, JSON_AS(reach.lo, "bin_lo"), JSON_AS(reach.hi, "bin_hi"));
TABLE(share_columns, pair_heads, PAGE(a, "pair", .say = pair_of, .align = "nl"),
      SHOWN(budget, "budget", BUDGET, .align = "nl"), SHOWN(overall, "ρ, all heads", FIXED(3)),
      JSON_AS(reach.lo, "lo"), JSON_AS(reach.hi, "hi"),
      PAGE(reach.lo, "95% over heads", .say = shares_range_of),
      SHOWN_AS(reach.ceiling, "ceiling", "limit", FIXED(2), ELSE("not known")),
      SHOWN_AS(reach.split_half_a.mean, "split_half_a", "split half, first", FIXED(3),
               ELSE("not known")),
      SHOWN_AS(reach.split_half_b.mean, "split_half_b", "split half, second", FIXED(3),
               ELSE("not known")),
      SHOWN(bin_mean, "mean of groups", FIXED(3)), SHOWN(bin_min, "lowest group", FIXED(3)),
      SHOWN(mean_abs_difference, "mean |Δshare|", FIXED(3)), MEMBERS(n),
      ARRAYS(groups, n_groups, group_columns), ARRAYS(groups, n_groups, group_ends_columns));

#define MEASURE(i, name) JSON_AS(measures[i], name)
#define REACH(i, name)   JSON_AS(reach[i], name, OF(reach_columns))
TABLE(cells_columns, pair_cells, MEMBERS(cells), MEASURE(MEASURE_SPEARMAN, "spearman"),
      MEASURE(MEASURE_DIFFERENCE, "mean_abs_difference"), MEASURE(MEASURE_EQUAL, "share_equal"));
TABLE(measure_columns, pair_cells, REACH(MEASURE_SPEARMAN, "spearman"),
      REACH(MEASURE_DIFFERENCE, "mean_abs_difference"), REACH(MEASURE_EQUAL, "share_equal"));
TABLE(binding_columns, pair_cells, INCLUDE(cells_columns), MEMBERS(interval_missing),
      {.json = "intervals", OF(measure_columns), WHEN(has_reach), .omit = true});
TABLE(gate_columns, pair_gates, MEMBERS(budget), MERGE(all, cells_columns),
      JSON_AS(binding, "binding", OF(binding_columns), WHEN(runs_known)));
TABLE(compared_columns, pair_numbers, OBJECTS(head, n_head, head_columns),
      OBJECTS(gate, n_gate, gate_columns),
      {FIELD(shares), .json = "shares", OF(share_columns), BY(n_shares), WHEN(has_shares),
       .omit = true},
      MEMBERS(same_edges));
SHARED_TABLE(pair_columns, pair_numbers, MEMBERS(a, b, not_compared, same_model),
             INCLUDE(compared_columns, WHEN(compared)));

/* ---- findings ---- */

/* "0.71 at budget 25% of T (95% over prompts: 0.5 to 0.8; ...)" */
static const char *agreement_of(const pair_heads *h) {
    const reach *r = &h->reach;
    const char *rho = say("%s at budget %s", say_fixed(h->overall, 2), say_budget(h->budget));
    if (!isfinite(r->lo) || !isfinite(r->hi)) { return rho; }
    return say("%s (95%% over prompts%s: %s to %s; %s)", rho,
               say_few_refits((double)r->replicates, false), say_fixed(r->lo, 2),
               say_fixed(r->hi, 2),
               isfinite(r->ceiling)
                   ? say("two such corpora of one truth reach at most %s", say_fixed(r->ceiling, 2))
                   : "a corpus does not even agree with itself");
}

static void pair_findings(const report_numbers *n, view *v) {
    EACH(pair_numbers, p, n->pairs, n->n_pairs) {
        const char *budgets = "";
        const bool by_shares = p->tables[0]->shape->share || p->tables[1]->shape->share;
        EACH(pair_heads, h, p->head, p->n_head) {
            if (by_shares && !isfinite(h->overall)) { continue; /* weights that decide nothing */ }
            budgets = say_more(budgets, "; ", "%s", agreement_of(h));
        }
        if (*budgets) {
            finding(v, NULL, "Head weights of %s and %s, Spearman's ρ: %s.", p->a, p->b, budgets);
        }
        budgets = "";
        EACH(pair_heads, s, p->shares, p->n_shares) {
            budgets = say_more(budgets, "; ", "%s at budget %s (95%% over heads: %s)",
                               say_fixed(s->overall, 3), say_budget(s->budget), shares_range_of(s));
        }
        if (*budgets) {
            finding(v, NULL, "Shares of heads of %s and %s, Spearman's ρ: %s.", p->a, p->b,
                    budgets);
        }
    }
}

/* ---- figures ---- */

TABLE(agreement_columns, layer_group, CSV_AS(rho, "spearman"), MERGE(reach, reach_columns));

/* A row of the figure, and its line of the csv: a group of layers, or all heads. */
static chart_interval_row agreement_row(const report_numbers *n, view *v, const pair_heads *h,
                                        const layer_group *g, bool all) {
    room *r = &n->in->room;
    const bool one = !all && g->first == g->last;
    const char *layers = all   ? "all"
                         : one ? room_text(r, "%zu", g->first)
                               : room_text(r, "%zu to %zu", g->first, g->last),
               *refits = h->has_reach ? say_few_refits((double)g->reach.replicates, false) : "";
    csv_text(&v->csv, h->a);
    csv_text(&v->csv, h->b);
    csv_number(&v->csv, h->budget);
    csv_text(&v->csv, layers);
    csv_row(&v->csv, agreement_columns, g);
    chart_interval_row row = {
        .mean = g->rho, .lo = g->reach.lo, .hi = g->reach.hi, .series = VIEW_REFERENCE};
    row.label = all ? "all heads" : room_text(r, "layer%s %s", one ? "" : "s", layers);
    row.limit = g->reach.ceiling;
    row.remark = room_text(
        r, "%s%s%s", say_fixed(g->rho, 2),
        isfinite(row.limit) || h->has_reach ? say(", limit %s", say_fixed(row.limit, 2)) : "",
        refits);
    return row;
}

/* A pair's agreement at one budget: all heads, then each group of layers. What is undefined, one
 * side being constant, stands in the csv alone. */
static size_t agreement_rows(const report_numbers *n, view *v, const pair_heads *h,
                             chart_interval_row *rows) {
    const layer_group all = {.rho = h->overall, .reach = h->reach};
    size_t k = 0;
    for (size_t i = 0; i <= h->n_groups; i++) {
        rows[k] = agreement_row(n, v, h, i ? &h->groups[i - 1] : &all, i == 0);
        k += isfinite(rows[k].mean);
    }
    if (k) {
        rows->heading =
            room_text(&n->in->room, "%s and %s, budget %s", h->a, h->b, say_budget(h->budget));
    }
    return k;
}

/* All pairs and budgets in one figure, of weights or of shares: every row with its interval and its
 * limit. */
static void draw_spearman(const report_numbers *n, view *v, bool shares) {
    size_t rows = 0, k = 0;
    bool limits = false;
    EACH(pair_numbers, p, n->pairs, n->n_pairs) {
        EACH(pair_heads, h, shares ? p->shares : p->head, shares ? p->n_shares : p->n_head) {
            rows += 1 + h->n_groups;
        }
    }
    if (rows == 0) { return; }
    chart_interval_row *list = NEW(n, rows, chart_interval_row);
    figure_begin(v, NULL);
    ckvc_buffer_text(&v->csv, "a,b,budget,layers,");
    csv_names(&v->csv, agreement_columns);
    EACH(pair_numbers, p, n->pairs, n->n_pairs) {
        EACH(pair_heads, h, shares ? p->shares : p->head, shares ? p->n_shares : p->n_head) {
            k += agreement_rows(n, v, h, list + k);
        }
    }
    if (k == 0) {
        figure_drop(v);
        return;
    }
    for (size_t i = 0; i < k; i++) { limits |= isfinite(list[i].limit); }
    figure_intervals(v,
                     .title = shares ? "Rank agreement of heads' shares between tables"
                                     : "Rank agreement of head weights between tables",
                     .x_label = "Spearman's ρ (1: the same order, −1: the opposite)",
                     .reference_label = "no relation", .n = k, .rows = list,
                     .limit_label = limits ? "limit: what two corpora of one truth can reach when "
                                             "each is only as sure of itself"
                                           : NULL);
    figure_end(v, shares ? "spearman-shares" : "spearman",
               say("%s%s",
                   shares ? "Lines are 95% intervals over resampled heads."
                          : "Lines are 95% intervals over refits from resampled prompts.",
                   limits ? " The limit is the root of the product of both corpora's "
                            "reliabilities: ρ between random halves of a corpus's own prompts, "
                            "corrected for their length (Spearman and Brown)."
                          : ""));
}

/* ---- page ---- */

/* The three measures of one set of cells. */
static void measure_rows(view *v, const pair_cells *c, bool binding) {
    static const char *const names[GATE_MEASURES] = {"Spearman's ρ", "mean |Δτ|", "equal τ"};
    const char *missing = binding ? "not known" : "";
    for (int m = 0; m < GATE_MEASURES; m++) {
        const reach *r = c->has_reach ? &c->reach[m] : NULL;
        const double value = c->measures[m];
        const bool rho = m == MEASURE_SPEARMAN;
        const int decimals = rho ? 2 : 3;
        html_row(page(v), "lrlrrrrr", "", say("%zu", c->cells), names[m],
                 m == MEASURE_EQUAL ? say_share(value) : say_fixed(value, 3),
                 r ? range_of(r, decimals, missing) : missing,
                 r ? SAY_SPREAD(r->split_half_a, decimals) : missing,
                 r ? SAY_SPREAD(r->split_half_b, decimals) : missing,
                 r && rho ? say_fixed(r->ceiling, 2) : "");
    }
}

/* Cells with records in both tables, then those of them where the gate binds, with intervals and
 * what halves of one corpus reach. */
static void gate_table(const report_numbers *n, view *v) {
    page_heads(v, "Gate thresholds", "lrlrrrrr", "pair and budget", "cells", "measure", "value",
               "95% over prompts", "split half, first", "split half, second", "limit");
    EACH(pair_numbers, p, n->pairs, n->n_pairs) {
        EACH(pair_gates, g, p->gate, p->n_gate) {
            const char *title = say("%s, %s, budget %s: cells with records in both", g->a, g->b,
                                    say_budget(g->budget));
            html_group(page(v), 8, "%s", title);
            measure_rows(v, &g->all, false);
            html_group(page(v), 8, "%s where the gate binds%s", title,
                       g->runs_known ? "" : ": not known without their runs");
            if (g->runs_known) { measure_rows(v, &g->binding, true); }
        }
    }
    page_table_end(v);
}

static void pair_notes(const pair_numbers *p, view *v) {
    if (!p->compared) {
        page_note(v, "%s and %s are not compared: %s.", p->a, p->b, p->not_compared);
        return;
    }
    if (p->n_head && p->head[0].interval_missing) {
        page_note(v, "%s, %s: no interval over prompts and no split halves, because %s.", p->a,
                  p->b, p->head[0].interval_missing);
    }
    if (!p->same_edges) {
        page_note(v,
                  "%s and %s have different risk-bin edges: equal cell numbers mean equal "
                  "quantiles, not equal risk.",
                  p->a, p->b);
    }
}

void agreement_section(const report_numbers *n, view *v) {
    pair_findings(n, v);
    page_text(
        v, "Two corpora should teach the same model the same budgets or weights of heads if these "
           "are a property of the model. Spearman's ρ compares the order of the heads; what one "
           "corpus reaches "
           "with itself, between random halves of its prompts, says how much to expect.");
    draw_spearman(n, v, false);
    draw_spearman(n, v, true);
    page_fold(v, "Numbers: head weights and thresholds");
    page_table_begin(v, "Head weights", head_columns);
    EACH(pair_numbers, p, n->pairs, n->n_pairs) { page_rows(v, head_columns, p->head, p->n_head); }
    page_table_end(v);
    bool shares = false;
    EACH(pair_numbers, p, n->pairs, n->n_pairs) { shares |= p->n_shares > 0; }
    if (shares) {
        page_table_begin(v, "Shares of heads", share_columns);
        EACH(pair_numbers, p, n->pairs, n->n_pairs) {
            page_rows(v, share_columns, p->shares, p->n_shares);
        }
        page_table_end(v);
    }
    gate_table(n, v);
    page_note(v, "Split halves of |Δτ| and of equal τ are those of half as many prompts; only ρ is "
                 "corrected to the whole run.");
    EACH(pair_numbers, p, n->pairs, n->n_pairs) { pair_notes(p, v); }
    page_fold_end(v);
}
