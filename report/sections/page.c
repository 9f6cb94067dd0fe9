/* The page: verdict first, then what supports it, then where everything came from; and report.json.
 */
#include "lib/base/names.h"
#include "report/sections/sections.h"

TABLE(diagnostics_columns, report_numbers, OBJECTS(utilities, n_utilities, utility_columns),
      JSON_AS(peaks, "weights", OF(peaks_columns), BY(n_peaks)),
      JSON_AS(damages, "damage", OF(damage_columns), BY(n_damages)));
TABLE(report_columns, report_numbers, OBJECTS(tables, n_tables, table_columns),
      OBJECTS(pairs, n_pairs, pair_columns), OBJECTS(runs, n_runs, run_columns),
      OBJECT(scores, score_columns), OBJECTS(attention, n_attention, attention_columns),
      GROUP("diagnostics", diagnostics_columns), GROUP("transfers", transfer_columns));

json_t *report_json(const report_numbers *n) {
    json_t *o = columns_json(report_columns, n);
    json_object_set_new(o, "schema", json_string("ckvc-report-1"));
    json_object_set_new(o, "ckvc_version", json_string(CKVC_VERSION));
    return o;
}

void verdict_section(const report_numbers *n, view *v) {
    const score_files *f = &n->in->scores;
    ckvc_buffer *b = &v->html;
    ckvc_buffer_text(b, "<section id=\"verdict\">\n<h2>Verdict</h2>\n<div class=\"verdict\">\n");
    leak_findings(n, v);
    score_findings(n, v);
    transfer_findings(n, v);
    pair_findings(n, v);
    entry_findings(n, v);
    run_findings(n, v);
    leak_notes(n, v);
    ckvc_buffer_text(b, "</div>\n");
    if (f->n_files) {
        if (f->used_seen) {
            html_paragraph(b, "warn",
                           "%zu of these rows are prompts that the tables were fitted from: the "
                           "differences are too favourable.",
                           f->used_seen);
        } else if (!n->scores.held_out_checked) {
            html_paragraph(b, "warn",
                           "The rows are not marked as held out and no run was given to check them "
                           "against: if these prompts were used for fitting, the differences below "
                           "are too favourable.");
        }
        html_paragraph(
            b, "note",
            "Rows used: %zu. Left out: %zu of other splits, %zu of prompts that a run took records "
            "from. Reward is minus the rise of the continuation's mean loss through compression, "
            "in nats per token; 0 would be no loss at all. Differences are paired by prompt; the "
            "interval is Student's t at 95%% over these prompts, beside that of a bootstrap over "
            "them; both hold the table fixed: what calibrating again would change is not in it. "
            "\u201ctokens differ\u201d: by more than 2%%.",
            f->n_rows, f->dropped_split, f->dropped_seen);
        comparison_tables(n, v);
    }
    html_section_end(b);
}

static const char *plural(size_t n) { return n == 1 ? "" : "s"; }

static void navigation(const report_numbers *n, ckvc_buffer *b) {
    const size_t tables = n->n_tables, runs = n->n_runs, files = n->in->scores.n_files;
    const struct {
        bool there;
        const char *id, *word;
    } links[] = {{true, "verdict", "Verdict"},
                 {n->n_transfers, "transfer", "Transfer"},
                 {tables > 1, "agreement", "Agreement"},
                 {tables, "trust", "Trust"},
                 {tables, "heads", "Head weights"},
                 {tables, "gate", "Gate"},
                 {tables, "evidence", "Evidence"},
                 {runs, "prompts", "Prompts"},
                 {runs, "binding", "Can the gate act?"},
                 {n->n_attention, "attention", "Attention left out"},
                 {tables || files, "diagnostics", "Diagnostics"},
                 {true, "provenance", "Provenance"},
                 {true, "words", "Words"}};
    ckvc_buffer_text(b, "<nav>");
    for (size_t i = 0; i < sizeof links / sizeof *links; i++) {
        if (links[i].there) {
            ckvc_buffer_printf(b, "<a href=\"#%s\">%s</a>", links[i].id, links[i].word);
        }
    }
    ckvc_buffer_text(b, "</nav>\n");
}

void report_page(const report_numbers *n, view *v) {
    static void (*const sections[])(const report_numbers *n, view *v) = {
        verdict_section,   transfer_section,    agreement_section, trust_section,   weights_section,
        gate_section,      evidence_section,    prompts_section,   savings_section, binding_section,
        attention_section, diagnostics_section, provenance_section};
    const size_t tables = n->n_tables, runs = n->n_runs, files = n->in->scores.n_files;
    ckvc_buffer *b = &v->html;
    html_page_begin(b, "ckvc report");
    ckvc_buffer_text(b, "<header>\n<h1>How good and how stable are these tables?</h1>\n");
    html_paragraph(b, "note",
                   "ckvc %s report over %zu table%s, %zu run%s, %zu score file%s. All numbers: "
                   "report.json.",
                   CKVC_VERSION, tables, plural(tables), runs, plural(runs), files, plural(files));
    navigation(n, b);
    ckvc_buffer_text(b, "</header>\n<main>\n");
    for (size_t i = 0; i < sizeof sections / sizeof *sections; i++) { sections[i](n, v); }
    words_section(v);
    ckvc_buffer_text(b, "</main>\n");
    html_page_end(b);
}
