/* What the files of the page share. */
#ifndef CKVC_REPORT_PAGE_H
#define CKVC_REPORT_PAGE_H

#include "report/report_internal.h"

/* All figures of a section, side by side. */
void report_page_figures(const report *r, ckvc_buffer *b, const char *section);
/* One finding: a line of the summary and a paragraph of the page (html NULL: none), its verdict
 * (may be NULL) in front. */
void report_finding(ckvc_buffer *html, ckvc_buffer *summary, const char *verdict, const char *fmt,
                    ...) CKVC_PRINTF(4, 5);

/* report_leaks.c: what is no held-out result, which the verdict says first; checks passed and
 * checks missing. */
void report_leaks_found(const report *r, ckvc_buffer *html, ckvc_buffer *summary);
void report_leak_notes(const report *r, ckvc_buffer *html);

/* report_verdict.c: what tables bring against identity and references; from the member "scores". */
void report_score_findings(const json_t *of_scores, ckvc_buffer *html, ckvc_buffer *summary);

/* report_transfer.c: one line a pair of a transferred table and one compiled for its model */
void report_transfer_findings(const report *r, ckvc_buffer *html, ckvc_buffer *summary);

/* report_stats_page.c */
void report_pair_findings(const report *r, ckvc_buffer *html, ckvc_buffer *summary);
void report_entry_findings(const report *r, ckvc_buffer *html, ckvc_buffer *summary);
void report_agreement_section(const report *r, ckvc_buffer *b);
void report_trust_section(const report *r, ckvc_buffer *b);

#endif
