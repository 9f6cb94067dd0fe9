/* What a report says in sentences: the same on the page, in report.json and on the terminal. */
#pragma once

#include "report/numbers/numbers.h"

/* Adds the findings to report.json, and what it says of each table's leak check and verdict;
 * numbers_make comes before. */
void findings_make(report_numbers *n);
/* The findings as plain text, one a line. */
void findings_text(const report_numbers *n, ckvc_buffer *text);
/* The answers' numbers as a table of plain text. */
void answers_text(const report_numbers *n, ckvc_buffer *text);
