/* Ranks by identity's utility (every weight 1) without its threshold, in each layer: the control
 * with the full budget (paper.md section 2, confound). */
#include "judge/policies/rules/rule.h"

static void rank(const rank_ask *a, double *u) {
    ckvc_utility(a->n_tokens, a->n_heads, a->alpha, a->rho, a->ones, u);
}

const policy_rule rule_top_k = {.rank = rank, .by_unit = true, .as_tables = true};
