/* The sections on the paper's diagnostics: each has its numbers (one member of the JSON), its
 * figures, and its words on the page. */
#ifndef CKVC_REPORT_DIAGNOSTICS_H
#define CKVC_REPORT_DIAGNOSTICS_H

#include "report/report_pen.h"

/* report_attention.c: the Proposition, measured against bound by layer ("attention"), from score
 * lines with --attention-error. */
ckvc_status report_attention_json(report *r, ckvc_err *err) CKVC_MUST_CHECK;
void report_attention_draw(report_pen *p);

/* report_diagnostics.c: score distributions, bimodality of weights, damage by risk, the worst tenth
 * ("diagnostics"). */
ckvc_status report_diagnostics_json(report *r, ckvc_err *err) CKVC_MUST_CHECK;
/* report_diagnostics_figures.c */
void report_diagnostics_draw(report_pen *p);

/* report_diagnostics_page.c; nothing where there is nothing to say. */
void report_attention_section(const report *r, ckvc_buffer *b);
void report_diagnostics_section(const report *r, ckvc_buffer *b);

#endif
