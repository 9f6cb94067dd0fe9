/* Ranks by a table's scores, all heads of all layers together, above what each must keep. */
#include "judge/policies/rules/window_attention.h"
#include "judge/policies/rules/rule.h"

static void fill_capacities(const allot_ask *a, uint32_t *c) {
    allot_by_rank(a->n_layers * a->n_heads, a->n_tokens, a->s, a->budget, a->least, c, a->keys);
}

const policy_rule rule_pooled = {
    .by_head = true, .by_table = true, .sorts = true, .allot = fill_capacities};
