/* The page of a report: what tables say, how far to trust them, and what they bring
 * (docs/method.md, section 7).
 *
 * report_write reads tables, runs, score and answers files and computes every number once, into
 * report.json (numbers/numbers.h). The page draws that file and the findings are read from it, so
 * that these cannot disagree. The folder appears whole. */
#pragma once

#include "lib/base/status.h"
#include "report/load/report_options.h"

/* Reads the inputs and writes the report. *summary is the verdict as plain text, one finding a
 * line, and *json is the text of report.json; the caller frees both. A folder that holds a
 * report already is CKVC_E_CREATE without force. One that holds anything else is CKVC_E_CREATE
 * in every case, except for scores.jsonl, which stays. Under require_deploy the result is
 * CKVC_CHECK_FAILED, with the report written and both texts given, unless there are tables and
 * all of them are to be deployed. */
ckvc_status report_write(const report_options *o, char **summary, char **json,
                         ckvc_err *err) CKVC_MUST_CHECK;

/* Writes what a report's section of answers says of lines of `ckvc eval` that are in memory [n
 * bytes], as a plain table with the intervals of a report with built-in values. The caller frees
 * *text. */
ckvc_status report_answers(const uint8_t *lines, size_t n, char **text,
                           ckvc_err *err) CKVC_MUST_CHECK;
