/* VATP on H2O: ranks by the sums of attention over all rows times the 1-norm of the value; keeps
 * the first 20 positions and the last 8. */
#include <math.h>

#include "judge/policies/rules/rule.h"

static void score_head(const head_score *self, const prefill_head *h, const head_output *to) {
    (void)self;
    const float *v = h->values;
    for (int64_t t = 0; t < h->n_tokens; t++, v += h->head_dim) {
        double norm = 0;
        for (int32_t i = 0; i < h->head_dim; i++) { norm += fabs((double)v[i]); }
        to->s[t] = h->column_sum[t] * norm;
    }
}

const policy_rule rule_vatp = {
    .by_head = true, .score = {.on_head = score_head, .first = 20, .last = 8, .column_sum = true}};
