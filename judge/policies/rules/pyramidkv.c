/* PyramidKV (beta 20): ranks by SnapKV's scores of 8 rows; capacities fall from the lowest layer to
 * the highest. The steps between layers are whole tokens, rounded down, so the sum is above L·B.
 * Where B <= W, and where T < 2(B - W), all layers have the same. */
#include "judge/policies/rules/rule.h"
#include "judge/policies/rules/window_attention.h"

enum { WINDOW = 8, BETA = 20 };

static void fill_capacities(const allot_ask *a, uint32_t *c) {
    const uint32_t B = a->budget, T = a->n_tokens, b = B - rule_min(B, WINDOW);
    if (b == 0 || T < 2 * (uint64_t)b || a->n_layers == 1) {
        allot_evenly(a, B, c);
        return;
    }
    uint32_t least = b / BETA, most = 2 * b - least;
    if (most >= T - WINDOW) {
        most = T - WINDOW;
        least = 2 * b - most;
    }
    const uint32_t step = (most - least) / (a->n_layers - 1);
    for (uint32_t l = 0; l < a->n_layers; l++) { allot_layer(a, l, most - l * step + WINDOW, c); }
}

const policy_rule rule_pyramidkv = {
    .by_head = true,
    .score = {.on_head = window_see_largest, .window = WINDOW, .pool = 7, .last = WINDOW},
    .allot = fill_capacities};
