/* What a report says in sentences: the same on the page, in report.json and on the terminal. */
#pragma once

#include "report/numbers/numbers.h"

/* A text of say_... stays valid for the next 64 that this room makes. */
const char *say_leak(const leak_numbers *l);      /* what came of a table's leak check */
const char *say_reason(const verdict_at *x);      /* why to deploy at a budget, or why not */
const char *say_premise(const variance_split *v); /* "supported", "undecided", "refuted: ..." */
const char *say_part(const difference *of);       /* which prompts: "T from 40 to 90", "text ..." */

/* n->findings, and each verdict's objection; numbers_make comes before. */
void findings_make(report_numbers *n);
/* The findings as plain text, one a line. */
void findings_text(const report_numbers *n, ckvc_buffer *text);
/* The answers' numbers as a table of plain text. */
void answers_text(const report_numbers *n, ckvc_buffer *text);
