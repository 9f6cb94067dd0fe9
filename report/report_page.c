/* The page: verdict first, then what supports it, then where everything came from. Every number is
 * read from the JSON. */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "report/draw/html.h"
#include "lib/base/memory.h"
#include "lib/base/names.h"
#include "report/report_compare.h"
#include "report/report_diagnostics.h"
#include "report/report_page.h"

void report_page_figures(const report *r, ckvc_buffer *b, const char *section) {
    bool open = false;
    for (size_t i = 0; i < r->n_figures; i++) {
        const report_figure *f = &r->figures[i];
        if (strcmp(f->section, section) != 0) { continue; }
        if (!open) {
            html_figures_begin(b);
            open = true;
        }
        html_figure(b, &f->inline_svg, f->caption, f->name);
    }
    if (open) { html_figures_end(b); }
}

/* ---- verdict ---- */

void report_finding(ckvc_buffer *html, ckvc_buffer *summary, const char *verdict, const char *fmt,
                    ...) {
    va_list args;
    char *line = NULL;
    va_start(args, fmt);
    int n = vasprintf(&line, fmt, args);
    va_end(args);
    if (n < 0) {
        summary->failed = true;
        return;
    }
    if (html) {
        ckvc_buffer_text(html, "<p class=\"lead\">");
        if (verdict) {
            ckvc_buffer_text(html, "<strong>");
            html_textf(html, "%c%s.", verdict[0] - 'a' + 'A', verdict + 1);
            ckvc_buffer_text(html, "</strong> ");
        }
        html_text(html, line);
        ckvc_buffer_text(html, "</p>\n");
    }
    ckvc_buffer_printf(summary, "%s%s%s\n", verdict ? verdict : "", verdict ? ": " : "", line);
    free(line);
}

static void run_findings(const report *r, ckvc_buffer *html, ckvc_buffer *summary) {
    size_t i, k;
    json_t *run, *budget;
    json_array_foreach(json_object_get(r->json, "runs"), i, run) {
        ckvc_buffer shares = {0};
        json_array_foreach(json_object_get(run, "budgets"), k, budget) {
            if (json_is_null(json_object_get(budget, "alive"))) {
                report_finding(html, summary, NULL,
                               "%s %s has no thresholds: every layer keeps its whole budget.",
                               report_str(run, "tag"), report_str(run, "name"));
                break;
            }
            ckvc_buffer_printf(
                &shares, "%s%s at budget %s", k ? ", " : "",
                report_share(report_num(json_object_get(budget, "all"), "sets_differ")),
                report_budget(report_num(budget, "budget")));
        }
        if (shares.size) {
            report_finding(
                html, summary, NULL,
                "In %s %s the gate can change what is kept on this share of (prompt, layer): %s.",
                report_str(run, "tag"), report_str(run, "name"), (const char *)shares.data);
        }
        json_array_foreach(json_object_get(run, "budgets"), k, budget) {
            if (json_is_false(json_object_get(budget, "alive"))) {
                report_finding(
                    html, summary, NULL, "%s %s: at budget %s the gate is not alive: %s.",
                    report_str(run, "tag"), report_str(run, "name"),
                    report_budget(report_num(budget, "budget")), report_str(budget, "advice"));
            }
        }
        html->failed = html->failed || shares.failed;
        ckvc_buffer_fini(&shares);
    }
}

/* ---- scores ---- */

static void verdict_section(const report *r, ckvc_buffer *b, ckvc_buffer *summary) {
    const json_t *of_scores = json_object_get(r->json, "scores");
    ckvc_buffer_text(b, "<section id=\"verdict\">\n<h2>Verdict</h2>\n<div class=\"verdict\">\n");
    report_leaks_found(r, b, summary);
    report_score_findings(of_scores, b, summary);
    report_transfer_findings(r, b, summary);
    report_pair_findings(r, b, summary);
    report_entry_findings(r, b, summary);
    run_findings(r, b, summary);
    report_leak_notes(r, b);
    ckvc_buffer_text(b, "</div>\n");
    if (r->n_scores) {
        double seen = report_num(of_scores, "prompts_used_in_calibration_left_out"),
               split = report_num(of_scores, "rows_of_other_splits_left_out");
        if (report_num(of_scores, "rows_used_in_calibration") > 0) {
            html_paragraph(b, "warn",
                           "%.0f of these rows are prompts that the tables were fitted from: the "
                           "differences are too favourable.",
                           report_num(of_scores, "rows_used_in_calibration"));
        } else if (!json_is_true(json_object_get(of_scores, "held_out_checked"))) {
            html_paragraph(b, "warn",
                           "The rows are not marked as held out and no run was given to check them "
                           "against: if these prompts were used for "
                           "fitting, the differences below are too favourable.");
        }
        html_paragraph(
            b, "note",
            "Rows used: %.0f. Left out: %.0f of other splits, %.0f of prompts that a run took "
            "records from. Reward is minus the "
            "rise of the continuation's mean loss through compression, in nats per token; 0 would "
            "be no loss at all. Differences "
            "are "
            "paired by prompt; the interval is Student's t at 95%% over these prompts, beside that "
            "of a bootstrap over them; both "
            "hold the table fixed: what calibrating "
            "again would change is not in it. \u201ctokens differ\u201d: by more than 2%%.",
            report_num(of_scores, "rows"), split, seen);
        report_where(of_scores, b);
        report_page_figures(r, b, "verdict");
        report_comparisons(of_scores, b);
    }
    html_section_end(b);
}

/* ---- tables ---- */

static void heads_section(const report *r, ckvc_buffer *b) {
    static const char *const columns[] = {"table", "budget", "heads",   "with records",
                                          "mean",  "lowest", "highest", "at exactly 1.0"};
    size_t i, k;
    json_t *t, *o;
    if (r->n_tables == 0) { return; }
    html_section_begin(b, "heads", "Head weights");
    report_page_figures(r, b, "heads");
    html_details_begin(b, "Numbers");
    html_table_old(b, NULL, "llrrrrrr", columns, sizeof columns / sizeof *columns);
    json_array_foreach(json_object_get(r->json, "tables"), i, t) {
        json_array_foreach(json_object_get(t, "head"), k, o) {
            html_row_begin(b);
            html_cell(b, 'l', "%s %s", report_str(t, "tag"), report_str(t, "name"));
            html_cell(b, 'l', "%s", report_budget(report_num(o, "budget")));
            html_cell(b, 'r', "%.0f", report_num(o, "n"));
            if (json_is_object(json_object_get(t, "evidence"))) {
                html_cell(b, 'r', "%.0f", report_num(o, "supported"));
            } else {
                html_cell(b, 'r', "not known");
            }
            html_cell(b, 'r', "%s", report_fixed(report_num(o, "mean"), 3));
            html_cell(b, 'r', "%s", report_fixed(report_num(o, "min"), 3));
            html_cell(b, 'r', "%s", report_fixed(report_num(o, "max"), 3));
            html_cell(b, 'r', "%s", report_share(report_num(o, "share_at_1")));
            html_row_end(b);
        }
    }
    html_table_end(b);
    html_details_end(b);
    html_section_end(b);
}

static void gate_section(const report *r, ckvc_buffer *b) {
    static const char *const columns[] = {
        "table",      "budget",      "cells with records",     "mean τ",     "pairs along entropy",
        "not rising", "not falling", "pairs along perplexity", "not rising", "not falling"};
    size_t i, k;
    json_t *t, *o;
    if (r->n_tables == 0) { return; }
    html_section_begin(b, "gate", "Gate thresholds");
    html_paragraph(b, NULL,
                   "The intended direction is: higher risk, lower threshold, more tokens kept. "
                   "Counted over neighbouring cells that both have "
                   "records; equal thresholds count as not rising and as not falling.");
    report_page_figures(r, b, "gate");
    html_details_begin(b, "Numbers: monotone in risk?");
    html_table_old(b, "Monotone in risk?", "llrrrrrrrr", columns,
                     sizeof columns / sizeof *columns);
    json_array_foreach(json_object_get(r->json, "tables"), i, t) {
        json_array_foreach(json_object_get(t, "gate"), k, o) {
            html_row_begin(b);
            html_cell(b, 'l', "%s %s", report_str(t, "tag"), report_str(t, "name"));
            html_cell(b, 'l', "%s", report_budget(report_num(o, "budget")));
            if (json_is_object(json_object_get(t, "evidence"))) {
                html_cell(b, 'r', "%.0f of %.0f", report_num(o, "supported"),
                          report_num(o, "cells"));
            } else {
                html_cell(b, 'r', "not known of %.0f", report_num(o, "cells"));
            }
            html_cell(b, 'r', "%s", report_fixed(report_num(o, "mean_tau"), 3));
            for (int axis = 0; axis < 2; axis++) {
                const json_t *m = json_object_get(o, axis ? "along_perplexity" : "along_entropy");
                html_cell(b, 'r', "%.0f", report_num(m, "pairs"));
                html_cell(b, 'r', "%s", report_share(report_num(m, "non_increasing")));
                html_cell(b, 'r', "%s", report_share(report_num(m, "non_decreasing")));
            }
            html_row_end(b);
        }
    }
    html_table_end(b);
    html_details_end(b);
    html_section_end(b);
}

static void evidence_section(const report *r, ckvc_buffer *b) {
    static const char *const columns[] = {"table",
                                          "side",
                                          "states with records",
                                          "records",
                                          "per state: fewest",
                                          "median",
                                          "most",
                                          "decided by α",
                                          "choice against counts, ρ",
                                          "same choice in refits",
                                          "by loss",
                                          "by penalty",
                                          "loss all equal"};
    size_t i;
    json_t *t;
    bool any = false;
    html_section_begin(b, "evidence", "What the choices rest on");
    json_array_foreach(json_object_get(r->json, "tables"), i, t) {
        any = any || json_is_object(json_object_get(t, "evidence"));
    }
    if (any) {
        html_paragraph(b, NULL,
                       "Decided by α: share of states whose choice differs from that of the plain "
                       "mean reward, that is, where "
                       "conservatism and not "
                       "the reward chose. With equal counts it is 0 for every α. By penalty: gate "
                       "choices that the loss alone "
                       "would not have made.");
        html_table_old(b, NULL, "llrrrrrrrrrrr", columns, sizeof columns / sizeof *columns);
        json_array_foreach(json_object_get(r->json, "tables"), i, t) {
            for (int side = 0; side < 2; side++) {
                const char *name = ckvc_side_name(side ? CKVC_SIDE_GATE : CKVC_SIDE_HEAD);
                const json_t *o = json_object_get(json_object_get(t, "evidence"), name);
                const json_t *per = json_object_get(o, "records_per_supported_state");
                if (!o) { continue; }
                bool records = report_num(o, "records") > 0, gate = side == 1 && records;
                html_row_begin(b);
                html_cell(b, 'l', "%s %s", report_str(t, "tag"), report_str(t, "name"));
                html_cell(b, 'l', "%s", name);
                html_cell(b, 'r', "%.0f of %.0f", report_num(o, "supported"),
                          report_num(o, "states"));
                html_cell(b, 'r', "%.0f", report_num(o, "records"));
                html_cell(b, 'r', "%s", records ? report_fixed(report_num(per, "min"), 0) : "");
                html_cell(b, 'r', "%s", records ? report_fixed(report_num(per, "median"), 0) : "");
                html_cell(b, 'r', "%s", records ? report_fixed(report_num(per, "max"), 0) : "");
                html_cell(b, 'r', "%s",
                          records ? report_share(report_num(o, "alpha_decided")) : "");
                double rho = report_num(o, "count_correlation");
                html_cell(b, 'r', "%s",
                          !records        ? ""
                          : isfinite(rho) ? report_fixed(rho, 3)
                                          : "counts equal");
                double stable = report_num(o, "choice_stability");
                html_cell(b, 'r', "%s",
                          !records           ? ""
                          : isfinite(stable) ? report_share(stable)
                                             : "not known");
                html_cell(b, 'r', "%s", gate ? report_share(report_num(o, "by_loss")) : "");
                html_cell(b, 'r', "%s", gate ? report_share(report_num(o, "by_penalty")) : "");
                html_cell(b, 'r', "%s", gate ? report_share(report_num(o, "loss_flat")) : "");
                html_row_end(b);
            }
        }
        html_table_end(b);
    }
    json_array_foreach(json_object_get(r->json, "tables"), i, t) {
        if (!json_is_object(json_object_get(t, "evidence"))) {
            html_paragraph(
                b, "note",
                "%s %s carries no counts: it was transferred or imported, not fitted here.",
                report_str(t, "tag"), report_str(t, "name"));
        }
    }
    html_details_begin(b, "Actions logged and chosen, records of every state");
    report_page_figures(r, b, "evidence");
    html_details_end(b);
    html_section_end(b);
}

/* ---- runs ---- */

static void runs_sections(const report *r, ckvc_buffer *b) {
    if (r->n_runs == 0) { return; }
    report_coverage_section(r, b);
    report_memo_section(r, b);
    report_binding_section(r, b);
}

/* ---- provenance ---- */

static bool is_hash(const char *text) {
    return strlen(text) == 64 && strspn(text, "0123456789abcdef") == 64;
}

static void value_text(ckvc_buffer *b, const json_t *v) {
    const char *text = json_string_value(v);
    if (text) {
        html_textf(b, is_hash(text) ? "%.12s\u2026" : "%.400s", text);
    } else if (json_is_array(v)) {
        for (size_t i = 0; i < json_array_size(v) && i < 32; i++) {
            ckvc_buffer_text(b, i ? ", " : "");
            value_text(b, json_array_get(v, i));
        }
    } else if (json_is_number(v)) {
        html_textf(b, "%.10g", json_number_value(v));
    } else {
        html_text(b, json_is_true(v) ? "yes" : json_is_false(v) ? "no" : "none");
    }
}

/* Nested objects flattened as a.b; what the page shows elsewhere is left out. */
static void flat_rows(ckvc_buffer *b, const char *prefix, const json_t *object, int depth) {
    const char *key;
    json_t *v;
    json_object_foreach((json_t *)(uintptr_t)object, key, v) {
        char name[256];
        if (depth == 0 && (strcmp(key, "diagnostics") == 0 || strcmp(key, "shape") == 0 ||
                           strcmp(key, "leak_check") == 0)) {
            continue;
        }
        snprintf(name, sizeof name, "%.120s%s%.120s", prefix, *prefix ? "." : "", key);
        if (json_is_object(v) && depth < 4) {
            flat_rows(b, name, v, depth + 1);
            continue;
        }
        html_row_begin(b);
        html_cell(b, 'n', "%s", name);
        ckvc_buffer_text(b, "<td class=\"l\">");
        value_text(b, v);
        ckvc_buffer_text(b, "</td>");
        html_row_end(b);
    }
}

static void provenance_section(const report *r, ckvc_buffer *b) {
    static const char *const columns[] = {"what", "value"};
    size_t i;
    json_t *o;
    html_section_begin(b, "provenance", "Where this came from");
    html_details_begin(b, "Files, models, plans, settings");
    html_paragraph(
        b, "note",
        "Hashes are shortened here and whole in report.json. Equal content ids mean equal tables.");
    static const char *const table_columns[] = {"table", "file",        "content id",
                                                "model", "fingerprint", "layers × heads",
                                                "bins",  "window",      "fitted from"};
    html_table_old(b, "Tables", "lllllllrl", table_columns,
                     sizeof table_columns / sizeof *table_columns);
    json_array_foreach(json_object_get(r->json, "tables"), i, o) {
        const json_t *meta = json_object_get(o, "meta"), *shape = json_object_get(o, "shape");
        html_row_begin(b);
        html_cell(b, 'l', "%s %s", report_str(o, "tag"), report_str(o, "name"));
        html_cell(b, 'l', "%s", report_str(o, "file"));
        html_cell(b, 'l', "%.12s…", report_str(o, "content_id"));
        html_cell(b, 'l', "%s", report_str(meta, "model_name"));
        html_cell(b, 'l', "%.12s…", report_str(meta, "fingerprint"));
        html_cell(b, 'l', "%.0f × %.0f %ss", report_num(shape, "layers"),
                  report_num(shape, "heads"), report_str(shape, "head_axis"));
        html_cell(b, 'l', "%.0f entropy × %.0f perplexity", report_num(shape, "entropy_bins"),
                  report_num(shape, "perplexity_bins"));
        html_cell(b, 'r', "%.0f", report_num(shape, "window"));
        html_cell(b, 'l', "%s",
                  json_is_string(json_object_get(o, "run")) ? report_str(o, "run")
                                                            : "not among the inputs");
        html_row_end(b);
    }
    html_table_end(b);
    if (r->n_runs) {
        static const char *const rows[][2] = {{"model", "model"},
                                              {"fingerprint", "fingerprint"},
                                              {"manifest", "manifest"},
                                              {"plan", "plan_hash"},
                                              {"behaviour", "behaviour"},
                                              {"seed", "seed"},
                                              {"prompts", "n_prompts"},
                                              {"of them held out", "n_heldout"},
                                              {"skipped", "skipped"},
                                              {"window W", "window"},
                                              {"continuation C", "continuation"},
                                              {"keep-window", "keep_window"},
                                              {"score α", "alpha_kind"},
                                              {"gate penalty β", "lambda"},
                                              {"pass shown here", "pass"},
                                              {"records of it", "records"}};
        const json_t *runs = json_object_get(r->json, "runs");
        ckvc_buffer_text(
            b, "<div class=\"scroll\" tabindex=\"0\"><table><caption>Runs</caption><thead><tr><th "
               "scope=\"col\">what</th>");
        for (size_t k = 0; k < r->n_runs; k++) {
            ckvc_buffer_text(b, "<th scope=\"col\" class=\"l\">");
            html_text(b, r->runs[k].title);
            ckvc_buffer_text(b, "</th>");
        }
        ckvc_buffer_text(b, "</tr></thead>\n<tbody>\n");
        for (size_t k = 0; k < sizeof rows / sizeof *rows; k++) {
            html_row_begin(b);
            html_cell(b, 'n', "%s", rows[k][0]);
            json_array_foreach(runs, i, o) {
                ckvc_buffer_text(b, "<td class=\"l\">");
                value_text(b, json_object_get(o, rows[k][1]));
                ckvc_buffer_text(b, "</td>");
            }
            html_row_end(b);
        }
        html_table_end(b);
    }
    json_array_foreach(json_object_get(r->json, "tables"), i, o) {
        char caption[300];
        snprintf(caption, sizeof caption, "How %.200s %.60s was made", report_str(o, "tag"),
                 report_str(o, "name"));
        html_table_old(b, caption, "ll", columns, 2);
        flat_rows(b, "", json_object_get(o, "meta"), 0);
        if (json_is_object(json_object_get(o, "transfer"))) {
            flat_rows(b, "transfer", json_object_get(o, "transfer"), 0);
        }
        html_table_end(b);
    }
    html_details_end(b);
    html_section_end(b);
}

static void words_section(ckvc_buffer *b) {
    static const char *const words[][2] = {
        {"reward", "\u2212(loss with the compressed cache \u2212 loss with the full cache) on the "
                   "continuation, nats per token; 0 "
                   "is best, negative is loss"},
        {"identity", "every head weight 1.0, every threshold 0.90: what runs start from, at their "
                     "own grid's nearest threshold"},
        {"matched", "identity with the one threshold that keeps as many tokens as a table does: "
                    "the fair opponent"},
        {"budget", "most tokens that a layer may keep; a percentage is a share of the prompt"},
        {"kept/layer", "tokens kept, mean over layers and prompts"},
        {"head weight",
         "factor on a KV head's utility before the maximum over heads; 1.0 changes nothing"},
        {"threshold τ", "utility from which a token is a candidate; lower keeps more"},
        {"entropy, perplexity", "the two risks of a prompt: R_struct of the window's attention, in "
                                "nats; R_sem of the window's tokens"},
        {"Spearman's ρ",
         "correlation of ranks, average ranks for ties; undefined where one side is constant"},
        {"95% interval", "of a mean: Student's t over prompts, the table held fixed; of ρ: "
                         "percentiles over refits from resampled "
                         "prompts, whose added "
                         "noise draws it towards 0"},
        {"split half", "mean ρ between refits from random halves of one run's prompts, corrected "
                       "to the whole run (Spearman and Brown), with "
                       "95% of the splits: how far a corpus agrees with itself"},
        {"limit", "root of the product of two corpora's split halves: the ρ that they can reach "
                  "when both show one truth"},
        {"decided",
         "the entry's advantage over the neutral choice (weight 1.0; threshold 0.90, or the one of "
         "the grid nearest to "
         "it) is above 0 by a one-sided 95% bound from the "
         "bootstrap, which allows for its having been picked as the best of many; else undecided"},
        {"advantage on prompts left out", "mean advantage of a choice over prompts that it was not "
                                          "fitted from, one change at a time"},
        {"damage", "minus the reward of a policy that compresses every prompt alike"},
        {"partial correlation", "correlation of what is left of two quantities when a third has "
                                "explained what it can of each"},
        {"decided by α", "states whose choice differs from that of the plain mean reward"},
        {"choice against counts",
         "Spearman, over logged actions, of being chosen against how often the action was logged"},
        {"same choice in refits",
         "share of bootstrap refits that choose what the table chose, mean over states"},
    };
    static const char *const columns[] = {"word", "meaning"};
    html_section_begin(b, "words", "What the words mean");
    html_details_begin(b, "Reward, identity, limit, undecided ...");
    html_table_old(b, NULL, "ll", columns, 2);
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        html_row_begin(b);
        html_cell(b, 'l', "%s", words[i][0]);
        html_cell(b, 'l', "%s", words[i][1]);
        html_row_end(b);
    }
    html_table_end(b);
    html_details_end(b);
    html_section_end(b);
}

ckvc_status report_page(const report *r, ckvc_buffer *html, ckvc_buffer *summary, ckvc_err *err) {
    html_page_begin(html, "ckvc report");
    ckvc_buffer_text(html, "<header>\n<h1>How good and how stable are these tables?</h1>\n");
    html_paragraph(
        html, "note",
        "ckvc %s report over %zu table%s, %zu run%s, %zu score file%s. All numbers: report.json.",
        CKVC_VERSION, r->n_tables, r->n_tables == 1 ? "" : "s", r->n_runs,
        r->n_runs == 1 ? "" : "s", r->n_scores, r->n_scores == 1 ? "" : "s");
    ckvc_buffer_text(html, "<nav><a href=\"#verdict\">Verdict</a>");
    if (report_has_transfers(r)) { ckvc_buffer_text(html, "<a href=\"#transfer\">Transfer</a>"); }
    if (r->n_tables > 1) { ckvc_buffer_text(html, "<a href=\"#agreement\">Agreement</a>"); }
    if (r->n_tables) {
        ckvc_buffer_text(html, "<a href=\"#trust\">Trust</a><a href=\"#heads\">Head weights</a><a "
                               "href=\"#gate\">Gate</a><a "
                               "href=\"#evidence\">Evidence</a>");
    }
    if (r->n_runs) {
        ckvc_buffer_text(
            html, "<a href=\"#prompts\">Prompts</a><a href=\"#binding\">Can the gate act?</a>");
    }
    if (json_array_size(json_object_get(r->json, "attention"))) {
        ckvc_buffer_text(html, "<a href=\"#attention\">Attention left out</a>");
    }
    if (r->n_tables || r->n_scores) {
        ckvc_buffer_text(html, "<a href=\"#diagnostics\">Diagnostics</a>");
    }
    ckvc_buffer_text(html, "<a href=\"#provenance\">Provenance</a><a "
                           "href=\"#words\">Words</a></nav>\n</header>\n<main>\n");
    verdict_section(r, html, summary);
    report_transfer_section(r, html);
    report_agreement_section(r, html);
    report_trust_section(r, html);
    heads_section(r, html);
    gate_section(r, html);
    if (r->n_tables) { evidence_section(r, html); }
    runs_sections(r, html);
    report_attention_section(r, html);
    report_diagnostics_section(r, html);
    provenance_section(r, html);
    words_section(html);
    ckvc_buffer_text(html, "</main>\n");
    html_page_end(html);
    return html->failed || summary->failed ? ckvc_fail_memory(err, "report", html->size) : CKVC_OK;
}
