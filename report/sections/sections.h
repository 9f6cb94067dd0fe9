/* The sections of a report: each file has the columns of its structs, from which report.json, the
 * csv files and the tables of the page come, and its words and figures. page.c puts them in order.
 */
#ifndef CKVC_REPORT_SECTIONS_H
#define CKVC_REPORT_SECTIONS_H

#include "report/numbers/numbers.h"
#include "report/view/view.h"

/* page.c */
void report_page(const report_numbers *n, view *v);
json_t *report_json(const report_numbers *n);

/* What the verdict says of its subject: lines of page and summary. In the order of the page. */
void leak_findings(const report_numbers *n, view *v);
void score_findings(const report_numbers *n, view *v);
void transfer_findings(const report_numbers *n, view *v);
void pair_findings(const report_numbers *n, view *v);
void entry_findings(const report_numbers *n, view *v);
void run_findings(const report_numbers *n, view *v);
void leak_notes(const report_numbers *n, view *v);

/* The sections, in order; nothing where there is nothing to say. */
void verdict_section(const report_numbers *n, view *v);
void comparison_tables(const report_numbers *n, view *v); /* of the verdict's: comparisons.c */
void transfer_section(const report_numbers *n, view *v);
void agreement_section(const report_numbers *n, view *v);
void trust_section(const report_numbers *n, view *v);
void weights_section(const report_numbers *n, view *v);
void gate_section(const report_numbers *n, view *v);
void evidence_section(const report_numbers *n, view *v);
void prompts_section(const report_numbers *n, view *v);
void savings_section(const report_numbers *n, view *v);
void binding_section(const report_numbers *n, view *v);
void attention_section(const report_numbers *n, view *v);
void diagnostics_section(const report_numbers *n, view *v);
void provenance_section(const report_numbers *n, view *v);
void words_section(view *v);

/* learning.c: figures of trust, and those behind its fold. */
void draw_learning(const report_numbers *n, view *v);
void draw_learning_more(const report_numbers *n, view *v);

/* Parts of report.json. */
columns_of score_columns, transfer_columns, pair_columns, trust_columns, weight_columns,
    threshold_columns, evidence_columns, leak_columns, table_columns, run_columns, coverage_columns,
    savings_columns, budget_columns, attention_columns, utility_columns, peaks_columns,
    damage_columns, spread_columns, under_columns;
/* Of an entry: what refits say of it, also in its csv files. */
columns_of refit_entry_columns, bound_entry_columns;

/* entry_maps.c: the map of a side's entries at a budget: layers by heads, or entropy bins by layers
 * with a panel for each perplexity bin. Shows the double at this offset of an entry. */
chart_heat_spec entry_map(const report_numbers *n, const side_evidence *e, const ckvc_table *k,
                          size_t b, size_t offset);
/* The entries that it shows, as csv in the order of the map. */
void entry_map_csv(ckvc_buffer *csv, const chart_heat_spec *map, size_t offset, columns_of *of);
/* Hatches undecided entries. */
void entry_map_hatch(chart_heat_spec *map, size_t offset);

#endif
