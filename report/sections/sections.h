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

/* What the verdict says of its subject: lines of page and summary. In the order of the page. */
section_writer leak_findings, score_findings, transfer_findings, pair_findings, entry_findings,
    run_findings, leak_notes;

/* The sections, between heading and end; page.c says where there is one. */
section_writer verdict_section, transfer_section, agreement_section, trust_section, shares_section,
    weights_section, gate_section, evidence_section, prompts_section, savings_section,
    binding_section, attention_section, diagnostics_section, provenance_section, words_section;
/* comparisons.c: tables and figures of the verdict; learning.c: figures of trust, and those behind
 * its fold. */
section_writer comparison_tables, draw_learning, draw_learning_more;
bool savings_known(const report_numbers *n);
bool shares_known(const report_numbers *n);
/* comparisons.c: one of the first n of a list is of such a series. */
bool comparison_among(const comparison_list *list, size_t n, const score_series *s,
                      bool (*alike)(const score_series *a, const score_series *b));

/* Parts of report.json. */
columns_of verdict_columns, score_columns, transfer_columns, pair_columns, trust_columns,
    weight_columns, threshold_columns, evidence_columns, leak_columns, table_columns, run_columns,
    coverage_columns, savings_columns, budget_columns, attention_columns, utility_columns,
    peaks_columns, damage_columns, spread_columns, under_columns;
/* Of an entry: what refits say of it, also in its csv files. */
columns_of refit_entry_columns, bound_entry_columns;

/* entry_maps.c: begins the figure of a side's entries at a budget: layers by heads, or entropy bins
 * by layers with a panel for each perplexity bin; title and scale are left to the caller. */
typedef struct entry_map {
    const table_numbers *t;
    ckvc_side side;
    size_t b, member; /* offset of the double of an entry that is shown */
    columns_of *csv;  /* of entries, in the order of the map */
    bool hatched;     /* where undecided */
} entry_map;
chart_heat_spec entry_map_begin(const report_numbers *n, view *v, const entry_map *m);
