/* What a report says in sentences. The sentences are the same on the page, in report.json and on
 * the terminal. */
#pragma once

#include "report/numbers/numbers.h"

/* Adds the findings to report.json, with what it says of each table's leak check and verdict.
 * numbers_make must come before. */
void findings_make(report_numbers *n);
/* Appends the findings as plain text, one a line. */
void findings_text(const report_numbers *n, ckvc_buffer *text);
/* Appends the answers' numbers as a table of plain text. */
void answers_text(const report_numbers *n, ckvc_buffer *text);
