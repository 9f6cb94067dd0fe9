/* Comparisons of policies as tables of the page. */
#ifndef CKVC_REPORT_COMPARE_H
#define CKVC_REPORT_COMPARE_H

#include <jansson.h>

#include "lib/base/buffer.h"

/* "better", "worse", "no difference shown", "too few prompts to tell": by the interval of a paired difference. */
const char *report_judged(const json_t *difference);
/* The comparison with its own matched control of the table that `series` (a member of any list) is about; NULL without one. */
const json_t *report_fair_opponent(const json_t *of_scores, const json_t *series);
/* From the member "scores": what is compared at equal tokens and with the controls, every policy in one table; by source and by length
 * behind a fold. */
void report_comparisons(const json_t *of_scores, ckvc_buffer *html);

#endif
