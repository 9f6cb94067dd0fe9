/* Two rankings by the window's attention alpha, averaged over all layers and heads: as it is, and
 * pooled as SnapKV pools. In the pooled one the last W positions come first; then come positions
 * before the window, by the largest alpha within 3 positions to either side (max pooling, kernel 7,
 * stride 1), where pooling does not reach into the window. */
#include <math.h>

#include "judge/policies/rules/rule.h"

static void rank_alpha(const rank_ask *a, double *u) {
    for (uint32_t t = 0; t < a->n_tokens; t++) { u[t] = (double)a->alpha[t]; }
}

static void rank_pooled(const rank_ask *a, double *u) {
    enum { SIDE = 3 };
    const uint32_t T = a->n_tokens, before_window = a->window < T ? T - a->window : 0;
    for (uint32_t t = 0; t < T; t++) {
        u[t] = t < before_window ? 0.0 : INFINITY; /* before all others, as alpha is not negative */
        for (uint32_t i = t > SIDE ? t - SIDE : 0; i <= t + SIDE && i < before_window; i++) {
            u[t] = (double)a->alpha[i] > u[t] ? (double)a->alpha[i] : u[t];
        }
    }
}

const policy_rule rule_window = {.rank = rank_alpha, .as_tables = true};

const policy_rule rule_window_pooled = {.rank = rank_pooled};
