/* The sections of a report: each file has the columns of its structs, from which report.json, the
 * csv files and the tables of the page come, and its words and figures. page.c puts them in order.
 */
#pragma once

#include "report/numbers/numbers.h"
#include "report/view/view.h"

/* page.c */
void report_page(const report_numbers *n, view *v);
json_t *report_json(const report_numbers *n);

/* Appends to the page. */
typedef void section_writer(const report_numbers *n, view *v);

/* The sections, between heading and end, in the order of the page; page.c says where there is one.
 * Each begins with its findings, lines of page and summary, where it has any. */
section_writer verdict_section, where_section, answers_section, agreement_section, shares_section,
    trust_section, comparisons_section, transfer_section, weights_section, gate_section,
    evidence_section, prompts_section, savings_section, binding_section, attention_section,
    diagnostics_section, provenance_section, words_section;
int series_of_table(const report_numbers *n, const score_series *s); /* its colour; grey: none */
/* The table of the answers' numbers as plain text. */
void answers_text(const report_numbers *n, ckvc_buffer *text);
bool where_known(const report_numbers *n);
bool savings_known(const report_numbers *n);
bool shares_known(const report_numbers *n);
bool weights_known(const report_numbers *n);
bool gates_known(const report_numbers *n);
section_writer draw_learning; /* learning.c: figures of trust */
/* leak_findings.c: what came of a table's leak check. */
const char *leak_sentence(const leak_numbers *l);

/* Parts of report.json. */
columns_of verdict_columns, score_columns, transfer_columns, pair_columns, trust_columns,
    weight_columns, threshold_columns, evidence_columns, leak_columns, table_columns, run_columns,
    coverage_columns, savings_columns, budget_columns, attention_columns, utility_columns,
    peaks_columns, damage_columns, spread_columns, under_columns, answer_columns, rests_columns;
/* Of an entry: what refits say of it, also in its csv files. */
columns_of refit_entry_columns;

/* entry_maps.c: begins the figure of a side's entries at a budget: layers by heads, or entropy bins
 * by layers with a panel for each perplexity bin; title and scale are left to the caller. */
typedef struct entry_map {
    const table_numbers *t;
    ckvc_side side;
    size_t b, member; /* offset of the double of an entry that is shown */
    columns_of *csv;  /* of entries, in the order of the map */
    bool marked;      /* where undecided */
} entry_map;
chart_heat_spec entry_map_begin(const report_numbers *n, view *v, const entry_map *m);
