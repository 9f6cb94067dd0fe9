/* The page's parts on agreement and on trust: rank agreement with its limits, undecided entries,
 * the paper's premise, learning curves, the calibration bound, other settings of the fit. Every
 * number is read from the JSON.
 */
#include <math.h>

#include "report/draw/html.h"
#include "report/report_page.h"

#define EVEN_SHARE 0.5 /* of a profile that is common: more signal than noise */

static const json_t *side_of(const json_t *table, int side) {
    return json_object_get(json_object_get(table, "statistics"), ckvc_side_name((ckvc_side)side));
}

static bool has_refits(const json_t *side) {
    return json_is_array(json_object_get(side, "curve"));
}

/* ---- verdict ---- */

void report_pair_findings(const report *r, ckvc_buffer *html, ckvc_buffer *summary) {
    size_t i, k;
    json_t *pair, *head;
    json_array_foreach(json_object_get(r->json, "pairs"), i, pair) {
        ckvc_buffer budgets = {0};
        json_array_foreach(json_object_get(pair, "head"), k, head) {
            const json_t *of = json_object_get(head, "interval");
            double lo = report_num(of, "lo"), hi = report_num(of, "hi");
            ckvc_buffer_printf(&budgets, "%s%s at budget %s", k ? "; " : "",
                               report_fixed(report_num(head, "overall"), 2),
                               report_budget(report_num(head, "budget")));
            if (isfinite(lo) && isfinite(hi)) {
                double limit = report_num(of, "ceiling");
                ckvc_buffer_printf(&budgets, " (95%% over prompts%s: %s to %s; %s)",
                                   report_few_refits(report_num(of, "replicates"), false),
                                   report_fixed(lo, 2), report_fixed(hi, 2),
                                   isfinite(limit) ? "two such corpora of one truth reach at most "
                                                   : "a corpus does not even agree with itself");
                if (isfinite(limit)) {
                    budgets.size -= 1; /* the closing bracket moves behind the number */
                    ckvc_buffer_printf(&budgets, "%s)", report_fixed(limit, 2));
                }
            }
        }
        if (budgets.size) {
            report_finding(html, summary, NULL, "Head weights of %s and %s, Spearman's ρ: %s.",
                           report_str(pair, "a"), report_str(pair, "b"),
                           (const char *)budgets.data);
        }
        html->failed = html->failed || budgets.failed;
        ckvc_buffer_fini(&budgets);
    }
}

void report_entry_findings(const report *r, ckvc_buffer *html, ckvc_buffer *summary) {
    size_t i;
    json_t *t;
    json_array_foreach(json_object_get(r->json, "tables"), i, t) {
        ckvc_buffer sides = {0};
        for (int side = 0; side < CKVC_SIDE_COUNT; side++) {
            const json_t *o = side_of(t, side);
            double with = report_num(o, "states") - report_num(o, "without_records");
            if (has_refits(o)) {
                ckvc_buffer_printf(&sides, "%s%.0f of %.0f %s%s", sides.size ? " and " : "",
                                   report_num(o, "decided"), with,
                                   side == CKVC_SIDE_HEAD ? "head weights" : "thresholds",
                                   report_few_refits(report_num(o, "replicates"), true));
            }
        }
        if (sides.size) {
            report_finding(html, summary, NULL,
                           "%s %s: %s are better than the neutral choice beyond chance.",
                           report_str(t, "tag"), report_str(t, "name"), (const char *)sides.data);
        }
        html->failed = html->failed || sides.failed;
        ckvc_buffer_fini(&sides);
    }
}

/* ---- agreement ---- */

static void range_cell(ckvc_buffer *b, const json_t *of, int decimals, const char *missing) {
    if (isfinite(report_num(of, "lo"))) {
        html_cell(b, 'r', "%s to %s%s", report_fixed(report_num(of, "lo"), decimals),
                  report_fixed(report_num(of, "hi"), decimals),
                  report_few_refits(report_num(of, "replicates"), false));
    } else {
        html_cell(b, 'r', "%s", missing);
    }
}

/* 0.61 (0.22 to 0.84) */
static void half_cell(ckvc_buffer *b, const json_t *of, const char *key, int decimals) {
    const json_t *s = json_object_get(of, key);
    if (s) {
        html_cell(b, 'r', "%s (%s to %s)", report_fixed(report_num(s, "mean"), decimals),
                  report_fixed(report_num(s, "lo"), decimals),
                  report_fixed(report_num(s, "hi"), decimals));
    } else {
        html_cell(b, 'r', "not known");
    }
}

static void head_table(const json_t *pairs, ckvc_buffer *b) {
    static const char *const columns[] = {"pair",
                                          "budget",
                                          "ρ, all heads",
                                          "95% over prompts",
                                          "limit",
                                          "split half, first",
                                          "split half, second",
                                          "mean of groups",
                                          "lowest group",
                                          "equal weights",
                                          "mean |Δw|"};
    size_t i, k;
    json_t *pair, *o;
    html_table_old(b, "Head weights", "nnrrrrrrrrr", columns, sizeof columns / sizeof *columns);
    json_array_foreach(pairs, i, pair) {
        json_array_foreach(json_object_get(pair, "head"), k, o) {
            const json_t *of = json_object_get(o, "interval");
            html_row_begin(b);
            html_cell(b, 'l', "%s, %s", report_str(pair, "a"), report_str(pair, "b"));
            html_cell(b, 'l', "%s", report_budget(report_num(o, "budget")));
            html_cell(b, 'r', "%s", report_fixed(report_num(o, "overall"), 3));
            range_cell(b, of, 2, of ? REPORT_UNDEFINED : "not known");
            html_cell(b, 'r', "%s", of ? report_fixed(report_num(of, "ceiling"), 2) : "not known");
            half_cell(b, of, "split_half_a", 2);
            half_cell(b, of, "split_half_b", 2);
            html_cell(b, 'r', "%s", report_fixed(report_num(o, "bin_mean"), 3));
            html_cell(b, 'r', "%s", report_fixed(report_num(o, "bin_min"), 3));
            html_cell(b, 'r', "%s", report_share(report_num(o, "share_equal")));
            html_cell(b, 'r', "%s", report_fixed(report_num(o, "mean_abs_difference"), 3));
            html_row_end(b);
        }
    }
    html_table_end(b);
}

/* Cells with records in both tables, then those of them where the gate binds, with intervals and
 * what halves of one corpus reach. */
static void gate_table(const json_t *pairs, ckvc_buffer *b) {
    static const char *const columns[] = {
        "pair and budget",    "cells", "measure", "value", "95% over prompts", "split half, first",
        "split half, second", "limit"};
    static const char *const keys[3] = {"spearman", "mean_abs_difference", "share_equal"};
    static const char *const names[3] = {"Spearman's ρ", "mean |Δτ|", "equal τ"};
    enum { COLUMNS = sizeof columns / sizeof *columns };
    size_t i, k;
    json_t *pair, *o;
    html_table_old(b, "Gate thresholds", "lrlrrrrr", columns, COLUMNS);
    json_array_foreach(pairs, i, pair) {
        json_array_foreach(json_object_get(pair, "gate"), k, o) {
            for (int binding = 0; binding < 2; binding++) {
                const json_t *of = binding ? json_object_get(o, "binding") : o,
                             *intervals = json_object_get(of, "intervals");
                html_group(b, COLUMNS, "%s, %s, budget %s: cells with records in both%s%s",
                           report_str(pair, "a"), report_str(pair, "b"),
                           report_budget(report_num(o, "budget")),
                           binding ? " where the gate binds" : "",
                           binding && !json_is_object(of) ? ": not known without their runs" : "");
                for (int m = 0; m < 3 && json_is_object(of); m++) {
                    const json_t *interval = json_object_get(intervals, keys[m]);
                    html_row_begin(b);
                    html_cell(b, 'l', "%s", "");
                    html_cell(b, 'r', "%.0f", report_num(of, "cells"));
                    html_cell(b, 'l', "%s", names[m]);
                    html_cell(b, 'r', "%s",
                              m == 2 ? report_share(report_num(of, keys[m]))
                                     : report_fixed(report_num(of, keys[m]), 3));
                    range_cell(b, interval, m == 0 ? 2 : 3, binding ? "not known" : "");
                    if (binding) {
                        half_cell(b, interval, "split_half_a", m == 0 ? 2 : 3);
                        half_cell(b, interval, "split_half_b", m == 0 ? 2 : 3);
                    } else {
                        html_cell(b, 'r', "%s", "");
                        html_cell(b, 'r', "%s", "");
                    }
                    html_cell(b, 'r', "%s",
                              m == 0 && interval ? report_fixed(report_num(interval, "ceiling"), 2)
                                                 : "");
                    html_row_end(b);
                }
            }
        }
    }
    html_table_end(b);
}

void report_agreement_section(const report *r, ckvc_buffer *b) {
    const json_t *pairs = json_object_get(r->json, "pairs");
    size_t i;
    json_t *pair;
    if (json_array_size(pairs) == 0) { return; }
    html_section_begin(b, "agreement", "Do tables agree?");
    html_paragraph(b, NULL,
                   "Two corpora should teach the same model the same head weights if these are a "
                   "property of the model. Spearman's ρ compares "
                   "the order of the heads; what one corpus reaches with itself, between random "
                   "halves of its prompts, says how much to "
                   "expect.");
    report_page_figures(r, b, "agreement");
    html_details_begin(b, "Numbers: head weights and thresholds");
    head_table(pairs, b);
    gate_table(pairs, b);
    html_paragraph(b, "note",
                   "Split halves of |Δτ| and of equal τ are those of half as many prompts; only ρ "
                   "is corrected to the whole run.");
    json_array_foreach(pairs, i, pair) {
        const json_t *first = json_array_get(json_object_get(pair, "head"), 0);
        if (json_is_string(json_object_get(pair, "not_compared"))) {
            html_paragraph(b, "note", "%s and %s are not compared: %s.", report_str(pair, "a"),
                           report_str(pair, "b"), report_str(pair, "not_compared"));
            continue;
        }
        if (json_is_string(json_object_get(first, "interval_missing"))) {
            html_paragraph(b, "note",
                           "%s, %s: no interval over prompts and no split halves, because %s.",
                           report_str(pair, "a"), report_str(pair, "b"),
                           report_str(first, "interval_missing"));
        }
        if (!json_is_true(json_object_get(pair, "same_edges"))) {
            html_paragraph(b, "note",
                           "%s and %s have different risk-bin edges: equal cell numbers mean equal "
                           "quantiles, not equal risk.",
                           report_str(pair, "a"), report_str(pair, "b"));
        }
    }
    html_details_end(b);
    html_section_end(b);
}

/* ---- trust ---- */

static const char *premise(const json_t *variance) {
    const json_t *interval = json_object_get(variance, "action_interval");
    double lo = report_num(interval, "lo"), hi = report_num(interval, "hi"),
           rest = report_num(variance, "rest");
    double one = report_num(variance, "common_one"), all = report_num(variance, "common_all");
    double n = report_num(variance, "prompts_per_state");
    if (!isfinite(lo) || !isfinite(hi)) { return "not testable"; }
    if (lo > 0 && lo / (lo + rest) > EVEN_SHARE) { return "refuted: one prompt is enough"; }
    if (!(hi > 0) || hi / (hi + rest / n) < EVEN_SHARE) {
        return "refuted: prompts share too little";
    }
    return lo > 0 && one < EVEN_SHARE && all > EVEN_SHARE ? "supported" : "undecided";
}

/* One sentence per table: what a single prompt is worth beside all of them. */
static void premise_sentence(const json_t *t, ckvc_buffer *b) {
    const json_t *o = side_of(t, CKVC_SIDE_HEAD), *v = json_object_get(o, "variance"),
                 *curve = json_object_get(o, "curve"), *gains = json_object_get(o, "left_out");
    if (!(report_num(v, "states") > 0) || json_array_size(curve) == 0 ||
        json_array_size(gains) == 0) {
        return;
    }
    const json_t *one = json_object_get(json_array_get(curve, 0), "to_full"),
                 *first = json_array_get(gains, 0),
                 *last = json_array_get(gains, json_array_size(gains) - 1);
    html_paragraph(b, NULL,
                   "%s %s, head weights: the premise is %s. Of one prompt's ranking of actions %s "
                   "is shared by other prompts, of %.0f "
                   "prompts' mean %s. A table of one prompt agrees with the whole table at ρ = %s; "
                   "on prompts left out one change "
                   "chosen by 1 prompt (%.0f rollouts) brings %s nats per token, by %.0f prompts "
                   "(%.0f rollouts) %s.",
                   report_str(t, "tag"), report_str(t, "name"), premise(v),
                   report_share(report_num(v, "common_one")), report_num(v, "prompts_per_state"),
                   report_share(report_num(v, "common_all")),
                   report_fixed(report_num(one, "mean"), 2), report_num(first, "rollouts"),
                   report_interval(report_num(first, "mean"), report_num(first, "lo"),
                                   report_num(first, "hi"), 4),
                   report_num(last, "prompts"), report_num(last, "rollouts"),
                   report_interval(report_num(last, "mean"), report_num(last, "lo"),
                                   report_num(last, "hi"), 4));
}

static void entries_table(const json_t *tables, ckvc_buffer *b) {
    static const char *const columns[] = {
        "table",     "side",    "neutral choice", "decided",
        "undecided", "neutral", "no records",     "same choice in refits",
        "refits",    "prompts", "rollouts"};
    size_t i;
    json_t *t;
    html_table_old(b, "Entries: better than the neutral choice beyond chance?", "llrrrrrrrrr",
                     columns, sizeof columns / sizeof *columns);
    json_array_foreach(tables, i, t) {
        for (int side = 0; side < CKVC_SIDE_COUNT; side++) {
            const json_t *o = side_of(t, side);
            if (!has_refits(o)) { continue; }
            html_row_begin(b);
            html_cell(b, 'l', "%s %s", report_str(t, "tag"), report_str(t, "name"));
            html_cell(b, 'l', "%s", ckvc_side_name((ckvc_side)side));
            html_cell(b, 'r', "%s %s", side == CKVC_SIDE_HEAD ? "weight" : "threshold",
                      report_fixed(report_num(o, "neutral_choice"), 2));
            static const char *const keys[] = {"decided", "undecided", "neutral",
                                               "without_records"};
            for (size_t k = 0; k < 4; k++) {
                html_cell(b, 'r', "%.0f", report_num(o, keys[k]));
            }
            html_cell(b, 'r', "%s", report_share(report_num(o, "agree")));
            html_cell(b, 'r', "%.0f", report_num(o, "replicates"));
            html_cell(b, 'r', "%.0f", report_num(o, "prompts"));
            html_cell(b, 'r', "%.0f", report_num(o, "rollouts"));
            html_row_end(b);
        }
    }
    html_table_end(b);
}

/* The standard deviation of a component; below 0 there is none. */
static const char *deviation(double component) {
    return report_fixed(component > 0 ? sqrt(component) : component, 4);
}

static void variance_row(const json_t *t, int side, const json_t *v, ckvc_buffer *b) {
    static const char *const keys[] = {"share_prompt_raw", "share_prompt", "share_action",
                                       "share_rest",       "common_one",   "common_all"};
    const json_t *in = json_object_get(v, "action_interval");
    html_row_begin(b);
    html_cell(b, 'l', "%s %s", report_str(t, "tag"), report_str(t, "name"));
    html_cell(b, 'l', "%s", side == CKVC_SIDE_HEAD ? "head" : "gate, loss part");
    html_cell(b, 'l', "%s", premise(v));
    html_cell(b, 'r', "%s", report_fixed(report_num(v, "prompts_per_state"), 1));
    for (size_t k = 0; k < 6; k++) {
        double share = report_num(v, keys[k]);
        html_cell(b, 'r', "%s%s",
                  share > 0.995 ? report_fixed(100 * share, 2) : report_share(share),
                  share > 0.995 ? "%" : "");
    }
    html_cell(b, 'r', "%s (%s to %s)", deviation(report_num(v, "action")),
              deviation(fmax(report_num(in, "lo"), 0)), deviation(fmax(report_num(in, "hi"), 0)));
    html_row_end(b);
}

static void variance_table(const json_t *tables, ckvc_buffer *b) {
    static const char *const columns[] = {
        "table",   "side",     "premise",   "prompts/state", "raw: prompts",       "prompts",
        "actions", "the rest", "shared, 1", "shared, all",   "actions, nats (95%)"};
    size_t i, rows = 0;
    json_t *t;
    for (int draw = 0; draw < 2; draw++) {
        json_array_foreach(tables, i, t) {
            for (int side = 0; side < CKVC_SIDE_COUNT; side++) {
                const json_t *v = json_object_get(side_of(t, side), "variance");
                if (!(report_num(v, "states") > 0)) { continue; }
                if (draw) { variance_row(t, side, v, b); }
                rows++;
            }
        }
        if (rows == 0) {
            html_paragraph(b, "note",
                           "No state has two prompts that logged its whole grid: where rewards "
                           "vary cannot be said.");
            return;
        }
        if (draw) {
            html_table_end(b);
        } else {
            html_table_old(b,
                             "Where rewards vary: shares of the sums of squares of advantages "
                             "within states, pooled",
                             "lllrrrrrrrr", columns, sizeof columns / sizeof *columns);
        }
    }
    html_paragraph(b, "note",
                   "Two-way analysis per state, reward = prompt + action + rest, over prompts that "
                   "logged the whole grid; raw: the same of "
                   "rewards before the baseline is taken off. Shared: the variance of actions over "
                   "itself plus the rest divided by the number "
                   "of prompts. Supported: one prompt's ranking is mostly its own (below 50%% "
                   "shared), that of all prompts mostly shared, and "
                   "the variance of actions is above 0 (jackknife over prompts). Refuted: 50%% is "
                   "out of reach even at the upper end, or "
                   "reached by one prompt. Last column: standard deviation between actions.");
}

static void bound_sentences(const json_t *tables, ckvc_buffer *b) {
    size_t i;
    json_t *t;
    json_array_foreach(tables, i, t) {
        for (int side = 0; side < CKVC_SIDE_COUNT; side++) {
            const json_t *o = json_object_get(side_of(t, side), "bound");
            if (!(report_num(o, "states") > 0)) { continue; }
            double informative = report_num(o, "informative"), states = report_num(o, "states");
            html_paragraph(b, "note",
                           "%s %s, %s: the paper's bound on the excess, 2Δ√(log(2|A|/δ)/2N) with δ "
                           "= %.2g, |A| = %.0f and, on average, N = "
                           "%.1f prompts and Δ = %s nats (advantages, as seen), is below the "
                           "spread of the actions' means in %.0f of %.0f "
                           "states (raw rewards: %.0f): %s.",
                           report_str(t, "tag"), report_str(t, "name"),
                           ckvc_side_name((ckvc_side)side), report_num(o, "delta"),
                           report_num(o, "actions"), report_num(o, "mean_prompts"),
                           report_fixed(report_num(o, "mean_width"), 3), informative, states,
                           report_num(o, "informative_raw"),
                           informative == 0           ? "it says nothing here"
                           : informative < states / 2 ? "it says something in few states"
                                                      : "it says something");
        }
    }
}

static void settings_tables(const json_t *tables, ckvc_buffer *b) {
    static const char *const columns[] = {"α", "changed from 0.75", "changed from 0", "mean entry",
                                          "advantage on prompts left out (half)"};
    enum { COLUMNS = sizeof columns / sizeof *columns };
    size_t i, k;
    json_t *t, *row;
    html_table_old(b, "The same records under other weights of conservatism", "rrrrr", columns,
                     COLUMNS);
    json_array_foreach(tables, i, t) {
        for (int side = 0; side < CKVC_SIDE_COUNT; side++) {
            const json_t *o = side_of(t, side);
            if (!json_is_array(json_object_get(o, "alpha"))) { continue; }
            bool vacuous = json_is_true(json_object_get(o, "even_counts"));
            html_group(
                b, COLUMNS, "%s %s, %s%s", report_str(t, "tag"), report_str(t, "name"),
                ckvc_side_name((ckvc_side)side),
                vacuous ? ": counts are equal within states, so no α can change a choice (vacuous)"
                        : "");
            json_array_foreach(json_object_get(o, "alpha"), k, row) {
                const json_t *gain = json_object_get(row, "left_out");
                if (vacuous && report_num(row, "alpha") != 0.75) { continue; }
                html_row_begin(b);
                html_cell(b, 'r', "%s",
                          vacuous ? "0 to 5" : report_fixed(report_num(row, "alpha"), 2));
                html_cell(b, 'r', "%s", report_share(report_num(row, "changed_from_default")));
                html_cell(b, 'r', "%s", report_share(report_num(row, "changed_from_0")));
                html_cell(b, 'r', "%s", report_fixed(report_num(row, "mean_entry"), 3));
                html_cell(b, 'r', "%s",
                          report_interval(report_num(gain, "mean"), report_num(gain, "lo"),
                                          report_num(gain, "hi"), 4));
                html_row_end(b);
            }
        }
    }
    html_table_end(b);
    static const char *const other[] = {
        "table",         "side",    "decided by α",   "turned by random counts",
        "other rewards", "changed", "AdamW: changed", "distance of Q",
        "updates"};
    html_table_old(b, "Other ways to fit the same records", "llrrlrrrr", other,
                     sizeof other / sizeof *other);
    json_array_foreach(tables, i, t) {
        for (int side = 0; side < CKVC_SIDE_COUNT; side++) {
            const json_t *o = side_of(t, side), *reward = json_object_get(o, "other_reward"),
                         *adamw = json_object_get(o, "adamw");
            const json_t *evidence =
                json_object_get(json_object_get(t, "evidence"), ckvc_side_name((ckvc_side)side));
            if (!reward) { continue; }
            html_row_begin(b);
            html_cell(b, 'l', "%s %s", report_str(t, "tag"), report_str(t, "name"));
            html_cell(b, 'l', "%s", ckvc_side_name((ckvc_side)side));
            html_cell(b, 'r', "%s", report_share(report_num(evidence, "alpha_decided")));
            html_cell(b, 'r', "%s", report_share(report_num(o, "count_noise")));
            html_cell(b, 'l', "%s", report_str(reward, "kind"));
            html_cell(b, 'r', "%s", report_share(report_num(reward, "changed")));
            if (json_is_string(json_object_get(adamw, "skipped"))) {
                html_cell(b, 'r', "left out");
                html_cell(b, 'r', "%s", report_str(adamw, "skipped"));
                html_cell(b, 'r', "%s", "");
            } else {
                html_cell(b, 'r', "%s", report_share(report_num(adamw, "changed")));
                html_cell(b, 'r', "%s", report_fixed(report_num(adamw, "distance"), 2));
                html_cell(b, 'r', "%.0f", report_num(adamw, "updates"));
            }
            html_row_end(b);
        }
    }
    html_table_end(b);
    html_paragraph(b, "note",
                   "Decided by α: states whose choice is not that of the plain mean reward. Turned "
                   "by random counts: choices that would "
                   "change had as many records been drawn uniformly, with the same means. AdamW: "
                   "the paper's optimiser from zeros, %s.",
                   "10 epochs of batches of 4,096 at 3e-4; each update moves an entry by about "
                   "that much, so few updates end far from "
                   "the minimum");
}

static bool refits_were_cut(const report *r) {
    bool cut = false;
    for (size_t i = 0; i < r->n_tables; i++) {
        for (int side = 0; side < CKVC_SIDE_COUNT; side++) {
            const json_t *o = side_of(json_array_get(json_object_get(r->json, "tables"), i), side);
            cut = cut || (has_refits(o) && report_num(o, "replicates") < r->o->replicates);
        }
    }
    return cut;
}

void report_trust_section(const report *r, ckvc_buffer *b) {
    const json_t *tables = json_object_get(r->json, "tables");
    size_t i, with = 0;
    json_t *t;
    json_array_foreach(tables, i, t) {
        with += json_is_null(json_object_get(side_of(t, CKVC_SIDE_HEAD), "missing")) ||
                json_is_null(json_object_get(side_of(t, CKVC_SIDE_GATE), "missing"));
    }
    if (r->n_tables == 0) { return; }
    html_section_begin(b, "trust", "How far to trust them");
    if (with > 0) {
        html_paragraph(b, NULL,
                       "The paper's premise is that heads and risks show more regularity across "
                       "prompts than one prompt can show: then "
                       "curves rise with prompts, and few choices stay undecided.");
        json_array_foreach(tables, i, t) {
            premise_sentence(t, b);
        }
        entries_table(tables, b);
        if (refits_were_cut(r)) {
            html_paragraph(b, "note",
                           "%u refits were asked for; under uniform logging or with large grids "
                           "they are cut to what takes seconds, "
                           "to 100 at least. The column says how many there are.",
                           (unsigned)r->o->replicates);
        }
        report_page_figures(r, b, "trust");
        html_details_begin(
            b,
            "Where rewards vary, the paper's bound, ranks of actions, other settings of the fit");
        variance_table(tables, b);
        bound_sentences(tables, b);
        report_page_figures(r, b, "trust-more");
        settings_tables(tables, b);
        html_details_end(b);
    }
    json_array_foreach(tables, i, t) {
        const json_t *o = side_of(t, CKVC_SIDE_HEAD), *gate = side_of(t, CKVC_SIDE_GATE);
        const char *why = report_str(o, "missing"), *gate_why = report_str(gate, "missing");
        if (*why || *gate_why) {
            html_paragraph(b, "note", "%s %s: nothing is said about %s, because %s.",
                           report_str(t, "tag"), report_str(t, "name"),
                           *why && *gate_why ? "its stability"
                           : *why            ? "its head weights"
                                             : "its thresholds",
                           *why ? why : gate_why);
        }
    }
    html_section_end(b);
}
