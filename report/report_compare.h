/* Comparisons of policies as tables of the page. */
#ifndef CKVC_REPORT_COMPARE_H
#define CKVC_REPORT_COMPARE_H

#include <jansson.h>
#include <stdbool.h>

#include "lib/base/buffer.h"

/* "better", "worse", "no difference shown", "too few prompts to tell": by the interval of a paired
 * difference. */
const char *report_judged(const json_t *difference);
/* Judged better or worse. */
bool report_decided(const json_t *difference);
/* Judged, from REPORT_PART_MIN prompts at least: what a part of the prompts (a source, a kind) may
 * be called better or worse by. */
bool report_part_decided(const json_t *difference);
#define REPORT_PART_MIN 10
/* Two members of the lists, or series: of one table or policy at one budget, model and C. */
bool report_same_series(const json_t *a, const json_t *b);
/* The comparison with its own matched control of the table that `series` (a member of any list) is
 * about; NULL without one. */
const json_t *report_fair_opponent(const json_t *of_scores, const json_t *series);
/* The comparison that says what a table brings: with its matched control, else `series` itself,
 * which is with plain identity. */
const json_t *report_gain_of(const json_t *of_scores, const json_t *series);
/* "text prompts", "retrieval prompts", the source, "(no source)". */
const char *report_part_name(const json_t *part);
/* What tables bring, a column a table, a row a part of the prompts: kinds of source, sources.
 * Nothing when there are no parts. */
void report_where(const json_t *of_scores, ckvc_buffer *html);
/* From the member "scores": what is compared at equal tokens and with the controls, every policy in
 * one table; by source and by length behind a fold. */
void report_comparisons(const json_t *of_scores, ckvc_buffer *html);

#endif
