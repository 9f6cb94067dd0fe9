/* HeadKV (beta 1.01): ranks by SnapKV's scores of 8 rows. A head's capacity follows from a table's
 * share, whereas HeadKV has scores of its own for this. What a head would get beyond T is not given
 * to others, so the sum may be below L·G·B. */
#include <math.h>

#include "judge/policies/rules/rule.h"
#include "judge/policies/rules/window_attention.h"

enum { WINDOW = 8 };

static void fill_capacities(const allot_ask *a, uint32_t *c) {
    const uint32_t n = a->n_layers * a->n_heads, window = rule_min(a->budget, WINDOW);
    const double beta = 1.01, b = a->budget - window, pool = floor(b / beta);
    double sum = 0;
    for (uint32_t i = 0; i < n; i++) { sum += a->share[i]; }
    for (uint32_t i = 0; i < n; i++) {
        const double share = sum > 0 ? a->share[i] / sum : 1.0 / n;
        c[i] = (uint32_t)fmin(rint(share * pool * n + b - pool) + window, a->n_tokens);
    }
}

const policy_rule rule_headkv = {
    .by_head = true,
    .by_share = true,
    .score = {.on_head = window_see_largest, .window = WINDOW, .pool = 7, .last = WINDOW},
    .allot = fill_capacities};
