/* A table's scores, all heads of all layers by rank above their floors. */
#include "calib/policies/rules/by_rank.h"
#include "calib/policies/rules/rules.h"

static void allot(const allot_ask *a, uint32_t *c) {
    allot_by_rank(a->n_layers * a->n_heads, a->n_tokens, a->s, a->budget, a->least, c, a->keys);
}

const policy_rule rule_pooled = {
    .kind = SCORE_POOLED, .by_head = true, .sorts = true, .allot = allot};
