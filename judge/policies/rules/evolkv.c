/* EvolKV: SnapKV with budgets by layer. They are the means of a table's shares, where EvolKV
 * searches for some by the tasks that they shall serve. Rounded, at most T: the sum may be off L·B.
 */
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
