/* DuoAttention with L·G·B entries: the heads with the largest shares keep everything (of equal ones
 * the earlier), the others keep sinks and recent positions, and one head between them gets what is
 * left. The shares are those of a table, whereas DuoAttention trains its own. */
#include "judge/policies/rules/rule.h"

static void fill_capacities(const allot_ask *a, uint32_t *c) {
    const uint32_t n = a->n_layers * a->n_heads, T = a->n_tokens, B = rule_min(a->budget, T),
                   least = rule_min(a->least, B);
    uint64_t left = (uint64_t)n * (B - least);
    allot_evenly(a, least, c);
    while (left > 0) {
        uint32_t best = n;
        for (uint32_t i = 0; i < n; i++) {
            if (c[i] < T && (best == n || a->share[i] > a->share[best])) { best = i; }
        }
        const uint64_t more = left < T - c[best] ? left : T - c[best];
        c[best] += (uint32_t)more;
        left -= more;
    }
}

const policy_rule rule_duoattention = {
    .by_head = true, .by_share = true, .rank = rank_sinks, .allot = fill_capacities};
