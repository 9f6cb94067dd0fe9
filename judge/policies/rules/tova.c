/* TOVA: keeps the last position, and those that it attends to most, summed over all heads of a
 * layer: one set for each layer. */
#include <string.h>

#include "judge/policies/rules/rule.h"
#include "judge/policies/rules/window_attention.h"

static void score_head(const head_score *self, const prefill_head *h, const head_output *to) {
    (void)self;
    double *all = to->s - (int64_t)h->head * h->n_tokens; /* of head 0 */
    if (h->head == 0) { memset(all, 0, (size_t)h->n_tokens * sizeof *all); }
    for (int32_t q = 0; q < h->group; q++) {
        const float *a = window_row(h, q, h->n_rows - 1);
        for (int64_t t = 0; t < h->n_tokens; t++) { all[t] += (double)a[t]; }
    }
}

const policy_rule rule_tova = {.score = {.on_head = score_head, .window = 1, .last = 1}};
