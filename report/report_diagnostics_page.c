/* The words and tables of the diagnostics' sections. */
#include <math.h>
#include <string.h>

#include "report/draw/html.h"
#include "report/report_diagnostics.h"
#include "report/report_page.h"

static double layer_mean(const json_t *layers, const char *key) {
    double sum = 0;
    for (size_t l = 0; l < json_array_size(layers); l++) {
        sum += report_num(json_array_get(layers, l), key);
    }
    return sum / (double)json_array_size(layers);
}

static double layer_most(const json_t *layers, const char *key) {
    double most = NAN;
    for (size_t l = 0; l < json_array_size(layers); l++) {
        most = fmax(most, report_num(json_array_get(layers, l), key));
    }
    return most;
}

static void correlation_cell(ckvc_buffer *b, const json_t *v, const char *key) {
    html_cell(b, 'r', "%s",
              report_interval(report_num(v, key), report_num(v, "lo"), report_num(v, "hi"), 2));
}

void report_attention_section(const report *r, ckvc_buffer *b) {
    static const char *const columns[] = {"policy",
                                          "n",
                                          "ε",
                                          "bound",
                                          "measured",
                                          "of the bound",
                                          "closest",
                                          "with drift",
                                          "drift above bound",
                                          "bound against damage, ρ",
                                          "measured against damage, ρ"};
    enum { COLUMNS = sizeof columns / sizeof *columns };
    const json_t *list = json_object_get(r->json, "attention");
    if (json_array_size(list) == 0) { return; }
    html_section_begin(b, "attention", "Attention that is left out, against the paper's bound");
    html_paragraph(b, NULL,
                   "The tail bound of the paper's Proposition, on each layer: with m the attention "
                   "mass that a continuation query "
                   "puts on dropped "
                   "prompt positions, a row restricted to what is kept and renormalised differs "
                   "from the full row by exactly 2m in "
                   "sum, so the mean "
                   "over heads of \u2016A \u2212 A\u2032\u2016 (Frobenius) is at most "
                   "2\u00B7√(C\u22121)\u00B7ε, ε being the mean "
                   "over heads of "
                   "the root mean square of m over the C\u22121 queries.");
    report_page_figures(r, b, "attention");
    html_details_begin(b, "Numbers: every policy, means over layers and prompts");
    html_table_old(b, NULL, "lrrrrrrrrrr", columns, COLUMNS);
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *o = json_array_get(list, i), *layers = json_object_get(o, "layers");
        const json_t *before = i ? json_array_get(list, i - 1) : NULL;
        if (!before || report_num(before, "budget") != report_num(o, "budget") ||
            report_num(before, "C") != report_num(o, "C") ||
            strcmp(report_str(before, "model"), report_str(o, "model")) != 0) {
            html_group(b, COLUMNS, "budget %s, C = %.0f, model %.12s",
                       report_budget(report_num(o, "budget")), report_num(o, "C"),
                       report_str(o, "model"));
        }
        double bound = layer_mean(layers, "bound"), error = layer_mean(layers, "error");
        html_row_begin(b);
        html_cell(b, 'l', "%s", report_str(o, "title"));
        html_cell(b, 'r', "%.0f", report_num(o, "n"));
        html_cell(b, 'r', "%s", report_fixed(layer_mean(layers, "epsilon"), 3));
        html_cell(b, 'r', "%s", report_fixed(bound, 2));
        html_cell(b, 'r', "%s", report_fixed(error, 2));
        html_cell(b, 'r', "%s", report_share(error / bound));
        html_cell(b, 'r', "%s", report_share(layer_most(layers, "most_error_of_bound")));
        html_cell(b, 'r', "%s", report_fixed(layer_mean(layers, "drift"), 2));
        html_cell(b, 'r', "%s", report_share(layer_mean(layers, "drift_above_bound")));
        correlation_cell(b, json_object_get(o, "bound_with_damage"), "spearman");
        correlation_cell(b, json_object_get(o, "error_with_damage"), "spearman");
        html_row_end(b);
    }
    html_table_end(b);
    html_paragraph(b, "note",
                   "Closest: the largest share of the bound that any layer of any prompt reaches. "
                   "With drift: against the rows of the "
                   "compressed "
                   "rollout itself, whose hidden states have moved in the layers below; the "
                   "Proposition says nothing about these, so they may "
                   "pass the bound. Against damage: Spearman over prompts of the mean over layers "
                   "with the rise of the loss, 95%% interval "
                   "over "
                   "resampled prompts.");
    html_details_end(b);
    html_section_end(b);
}

static void utilities_part(const json_t *list, ckvc_buffer *b) {
    static const char *const columns[] = {"model",           "prompts",
                                          "mean spread",     "spread between heads",
                                          "between prompts", "in neither alone"};
    if (json_array_size(list) == 0) {
        html_paragraph(b, "note",
                       "How scores are distributed by prompt and head is not known: no score file "
                       "was made with --utilities.");
        return;
    }
    html_heading(b, 3, "Utility scores by prompt and head");
    html_paragraph(b, NULL,
                   "The paper's premise is that heads differ alike in all prompts. The spread of a "
                   "head's scores in a prompt is "
                   "ln(95%% quantile / median) of α\u00B7ρ over positions; its variance is split "
                   "into what the head alone says, "
                   "what the prompt "
                   "alone says, and what neither does.");
    html_table_old(b, NULL, "lrrrrr", columns, sizeof columns / sizeof *columns);
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *o = json_array_get(list, i);
        html_row_begin(b);
        html_cell(b, 'l', "%.12s", report_str(o, "model"));
        html_cell(b, 'r', "%.0f", report_num(o, "prompts_used"));
        html_cell(b, 'r', "%s", report_fixed(report_num(o, "spread_mean"), 3));
        html_cell(b, 'r', "%s", report_share(report_num(o, "between_heads")));
        html_cell(b, 'r', "%s", report_share(report_num(o, "between_prompts")));
        html_cell(b, 'r', "%s", report_share(report_num(o, "neither")));
        html_row_end(b);
    }
    html_table_end(b);
}

static void weights_part(const json_t *list, ckvc_buffer *b) {
    static const char *const columns[] = {"table",
                                          "budget",
                                          "heads with records",
                                          "dip",
                                          "p",
                                          "Sarle's coefficient",
                                          "at the grid's ends",
                                          "two peaks?"};
    if (json_array_size(list) == 0) { return; }
    html_heading(b, 3, "Have the compiled weights two peaks?");
    html_paragraph(b, NULL,
                   "The paper reads two kinds of heads from a histogram with two peaks. Hartigan's "
                   "dip test asks whether one peak "
                   "would do: p is "
                   "the share of samples drawn evenly from the same grid whose dip is as large. "
                   "Sarle's coefficient is 0.56 for an "
                   "even spread, more "
                   "points to two peaks or a long tail.");
    html_table_old(b, NULL, "llrrrrrn", columns, sizeof columns / sizeof *columns);
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *o = json_array_get(list, i);
        double p = report_num(o, "p");
        html_row_begin(b);
        html_cell(b, 'l', "%s", report_str(o, "table"));
        html_cell(b, 'l', "%s", report_budget(report_num(o, "budget")));
        html_cell(b, 'r', "%.0f", report_num(o, "n"));
        html_cell(b, 'r', "%s", report_fixed(report_num(o, "dip"), 3));
        html_cell(b, 'r', "%s", report_fixed(p, 4));
        html_cell(b, 'r', "%s", report_fixed(report_num(o, "sarle"), 3));
        html_cell(b, 'r', "%s", report_share(report_num(o, "at_ends")));
        html_cell(b, 'n', "%s", !isfinite(p) ? REPORT_UNDEFINED : p <= 0.05 ? "yes" : "not shown");
        html_row_end(b);
    }
    html_table_end(b);
    html_paragraph(b, "note",
                   "Two peaks are no proof of two kinds of heads: where reward rises or falls "
                   "along the grid, the best action is "
                   "an end of it, and "
                   "weights pile up at both ends whatever the heads do.");
}

static const json_t *correlation(const json_t *list, const char *risk, const char *given,
                                 const char *of) {
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *v = json_array_get(list, i);
        if (strcmp(report_str(v, "risk"), risk) == 0 &&
            strcmp(report_str(v, "given"), given) == 0 && strcmp(report_str(v, "of"), of) == 0) {
            return v;
        }
    }
    return NULL;
}

static void damage_part(const json_t *list, ckvc_buffer *b) {
    static const char *const columns[] = {"policy and risk", "ranks, alone", "ranks, given T",
                                          "ranks, given T and the other risk", "values, given T"};
    static const char *const worst_columns[] = {"policy",
                                                "budget",
                                                "n",
                                                "mean damage",
                                                "worst tenth",
                                                "of them low risk",
                                                "share (95% interval)",
                                                "low risk among all prompts"};
    static const char *const risks[] = {"r_struct", "r_sem"}, *const names[] = {
                                                                  "attention entropy R_struct",
                                                                  "perplexity R_sem"};
    bool flat = false;
    if (json_array_size(list) == 0) {
        html_paragraph(b, "note",
                       "Damage by risk is not known: it takes scores of the policy window, "
                       "no-threshold or identity on at least 10 prompts.");
        return;
    }
    html_heading(b, 3, "Damage of a fixed policy by risk");
    html_paragraph(b, NULL,
                   "Damage is the rise of the continuation's mean loss, in nats per token, when "
                   "every prompt is compressed by the same rule "
                   "(the paper's fixed Top-k: the policy window where it was scored, else a "
                   "table's no-threshold, else identity). The entropy "
                   "of a longer prompt is larger by itself, so its "
                   "relation "
                   "with damage is also given at equal length: partial correlations given T, of "
                   "ranks and of values, with 95%% intervals over "
                   "resampled prompts.");
    html_table_old(b, "Damage against risk", "lrrrr", columns, sizeof columns / sizeof *columns);
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *o = json_array_get(list, i), *of = json_object_get(o, "correlations");
        html_group(b, sizeof columns / sizeof *columns,
                   "%s, budget %s, C = %.0f, model %.12s, %.0f prompts", report_str(o, "title"),
                   report_budget(report_num(o, "budget")), report_num(o, "C"),
                   report_str(o, "model"), report_num(o, "n"));
        for (size_t k = 0; k < 2; k++) {
            html_row_begin(b);
            html_cell(b, 'l', "%s", names[k]);
            correlation_cell(b, correlation(of, risks[k], "nothing", "ranks"), "r");
            correlation_cell(b, correlation(of, risks[k], "T", "ranks"), "r");
            correlation_cell(b, correlation(of, risks[k], "T and the other risk", "ranks"), "r");
            correlation_cell(b, correlation(of, risks[k], "T", "values"), "r");
            html_row_end(b);
            flat =
                flat || report_num(correlation(of, risks[k], "T", "ranks"), "controls_used") == 0;
        }
    }
    html_table_end(b);
    if (flat) {
        html_paragraph(
            b, "note",
            "Where all prompts have the same length, T says nothing and the columns agree.");
    }
    html_heading(b, 3, "Where is the worst tenth?");
    html_paragraph(
        b, NULL,
        "The paper states that fewer than 8%% of failures lie outside the two risks, without "
        "saying what counts as "
        "either. Here: the "
        "tenth of the prompts with the largest damage, and low risk is both risks below their "
        "medians over the same "
        "prompts. If damage "
        "had nothing to do with the risks, the share would be that of low risk among all prompts.");
    html_table_old(b, NULL, "llrrrrrr", worst_columns,
                     sizeof worst_columns / sizeof *worst_columns);
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *o = json_array_get(list, i), *w = json_object_get(o, "worst_tenth");
        html_row_begin(b);
        html_cell(b, 'l', "%s", report_str(o, "title"));
        html_cell(b, 'l', "%s", report_budget(report_num(o, "budget")));
        html_cell(b, 'r', "%.0f", report_num(o, "n"));
        html_cell(b, 'r', "%s", report_fixed(report_num(o, "damage"), 4));
        html_cell(b, 'r', "%.0f", report_num(w, "n_worst"));
        html_cell(b, 'r', "%.0f", report_num(w, "n_worst_low_risk"));
        if (isfinite(report_num(w, "lo"))) {
            html_cell(b, 'r', "%s (%s to %s)", report_share(report_num(w, "share")),
                      report_share(report_num(w, "lo")), report_share(report_num(w, "hi")));
        } else {
            html_cell(b, 'r', "%s", report_share(report_num(w, "share")));
        }
        html_cell(b, 'r', "%s", report_share(report_num(w, "share_of_all_low_risk")));
        html_row_end(b);
    }
    html_table_end(b);
}

void report_diagnostics_section(const report *r, ckvc_buffer *b) {
    const json_t *of = json_object_get(r->json, "diagnostics");
    if (r->n_scores == 0 && r->n_tables == 0) { return; }
    html_section_begin(b, "diagnostics", "The paper's diagnostics");
    if (r->n_scores) { utilities_part(json_object_get(of, "utilities"), b); }
    weights_part(json_object_get(of, "weights"), b);
    if (r->n_scores) { damage_part(json_object_get(of, "damage"), b); }
    report_page_figures(r, b, "diagnostics");
    html_section_end(b);
}
