/* What a report says in sentences: the same on the page, in report.json and on the terminal. */
#pragma once

#include <stdarg.h>

#include "report/numbers/numbers.h"

/* Each text of say_... stays valid for the next 64 calls (reports are made by one thread), so that
 * one line can hold many. What is not finite is "undefined". */
#define SAY_UNDEFINED "undefined"
#define SAY_REFITS    1000 /* fewer than this behind an interval stand beside it */

const char *say(const char *fmt, ...) CKVC_PRINTF(1, 2);
const char *say_list(const char *fmt, va_list args);
/* One more of a list that begins as "", behind the joint. */
const char *say_more(const char *list, const char *joint, const char *fmt, ...) CKVC_PRINTF(3, 4);
const char *say_fixed(double v, int decimals);
const char *say_signed(double v, int decimals); /* +0.0031 */
const char *say_share(double v);                /* 37.5% */
const char *say_interval(double mean, double lo, double hi,
                         int decimals);                                  /* +0.31 (-0.4 to +1.1) */
const char *say_spread(double mean, double lo, double hi, int decimals); /* without signs */
#define SAY_INTERVAL(x, decimals) say_interval((x).mean, (x).lo, (x).hi, decimals)
#define SAY_SPREAD(x, decimals)   say_spread((x).mean, (x).lo, (x).hi, decimals)
const char *say_budget(double budget); /* 96 tokens, 25% of T */
/* ", 312 refits", " (312 refits)", nothing where they are not few. */
const char *say_few_refits(double n, bool brackets);

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
