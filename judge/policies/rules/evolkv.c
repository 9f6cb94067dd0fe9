/* EvolKV: SnapKV with a budget for each layer. The budgets here are the means of a table's shares,
 * whereas EvolKV searches for budgets by the tasks that they shall serve. They are rounded and at
 * most T, so the sum may differ from L·B. */
#include <math.h>

#include "judge/policies/rules/rule.h"
#include "judge/policies/rules/window_attention.h"

static void fill_capacities(const allot_ask *a, uint32_t *c) {
    const uint32_t G = a->n_heads;
    for (uint32_t l = 0; l < a->n_layers; l++) {
        double share = 0;
        for (uint32_t g = 0; g < G; g++) { share += a->share[l * G + g] / G; }
        allot_layer(a, l, (uint32_t)fmin(rint(share * a->budget), a->n_tokens), c);
    }
}

const policy_rule rule_evolkv = {
    .by_head = true,
    .by_share = true,
    .score = {.on_head = window_see_largest, .window = 32, .pool = 7, .last = 32},
    .allot = fill_capacities};
