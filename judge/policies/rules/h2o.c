/* H2O: keeps the positions with the largest sums of attention over all rows, and the last 8. The
 * sums run over the query heads of a group, whereas KVCache-Factory has a cache for each query
 * head. */
#include <string.h>

#include "judge/policies/rules/rule.h"

static void score_head(const head_score *self, const prefill_head *h, const head_output *to) {
    (void)self;
    memcpy(to->s, h->column_sum, (size_t)h->n_tokens * sizeof *to->s);
}

const policy_rule rule_h2o = {.by_head = true,
                              .score = {.on_head = score_head, .last = 8, .column_sum = true}};
