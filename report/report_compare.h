/* Comparisons of policies as tables of the page. */
#ifndef CKVC_REPORT_COMPARE_H
#define CKVC_REPORT_COMPARE_H

#include <jansson.h>

#include "lib/base/buffer.h"

/* "better", "worse", "no difference shown", "too few prompts to tell": by the interval of a paired difference. */
const char *report_judged(const json_t *difference);
/* From the member "scores": what is compared at equal tokens and with the controls, every policy in one table; by source and by length
 * behind a fold. */
void report_comparisons(const json_t *of_scores, ckvc_buffer *html);

#endif
