/* ZigZagKV: ranks by SnapKV's scores. A layer gets a fifth of B; the rest is divided by how many
 * positions it takes to collect 0.9 of what a query head attends to, as the mean over the layer's
 * query heads (LMBA; equation 6, as kvpress's pull request 238 has it). Capacities are rounded and
 * at most T, so the sum may differ from L·B. */
#include <math.h>
#include <stdlib.h>

#include "judge/policies/rules/rule.h"
#include "judge/policies/rules/window_attention.h"
#include "lib/base/order.h"

enum { WINDOW = 32 };

static void score_head(const head_score *self, const prefill_head *h, const head_output *to) {
    const size_t T = (size_t)h->n_tokens;
    for (int32_t q = 0; q < h->group; q++) {
        prefill_head one = *h;
        one.group = 1;
        one.attention = window_row(h, q, 0);
        window_mean(&one, self->window, to->scratch);
        qsort(to->scratch, T, sizeof *to->scratch, ckvc_order_double);
        double all = 0, sum = 0;
        for (size_t t = 0; t < T; t++) { all += to->scratch[t]; }
        for (size_t n = T; n > 0 && sum < 0.9 * all; n--) {
            sum += to->scratch[n - 1];
            to->layer->positions++;
        }
    }
    window_see_largest(self, h, to);
}

static void fill_capacities(const allot_ask *a, uint32_t *c) {
    const uint32_t L = a->n_layers;
    const double B = a->budget, least = 0.2 * B;
    double sum = 0;
    for (uint32_t l = 0; l < L; l++) { sum += a->layer[l].positions; }
    for (uint32_t l = 0; l < L; l++) {
        const double share = sum > 0 ? a->layer[l].positions / sum * L : 1;
        allot_layer(a, l, (uint32_t)fmin(rint(least + (B - least) * share), a->n_tokens), c);
    }
}

const policy_rule rule_zigzagkv = {
    .by_head = true,
    .score = {.on_head = score_head, .window = WINDOW, .pool = 7, .last = WINDOW},
    .allot = fill_capacities};
