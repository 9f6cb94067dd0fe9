/* H2O: the largest sums of attention over all rows, and the last 8. Of a group of query heads the
 * sum, where KVCache-Factory has a cache a query head. */
#include <string.h>

#include "judge/policies/rules/rule.h"

static void score_head(const head_score *self, const prefill_head *h, const score_room *to) {
    (void)self;
    memcpy(to->s, h->column_sum, (size_t)h->n_tokens * sizeof *to->s);
}

const policy_rule rule_h2o = {.by_head = true,
                              .score = {.on_head = score_head, .last = 8, .column_sum = true}};
