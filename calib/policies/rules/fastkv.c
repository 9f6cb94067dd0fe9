/* What FastKV selects on one prefill: the last 8, and the largest means of their attention, the
 * mean of 7 positions before them; above layer L/2 - 1 (15 of 32) only positions among a fifth of
 * the prompt, those of the largest sums over that layer's heads and the last 8.
 *
 * FastKV itself runs the layers above on these tokens alone: its prefill costs less, and their
 * keys, values and attention are others. That forward pass is not run here, and so the name is
 * `fastkv-selection`. */
#include <math.h>

#include "calib/policies/rules/rules.h"
#include "calib/policies/rules/window_attention.h"

enum { WINDOW = 8, SHARE = 5 };

/* Layers up from here see the propagated tokens alone. */
static uint32_t first_above(uint32_t n_layers) { return n_layers > 1 ? n_layers / 2 : 1; }
static uint32_t propagated(uint32_t T) {
    return T / SHARE > WINDOW ? T / SHARE : rule_min(T, WINDOW);
}

static size_t scratch(size_t T, size_t D, size_t group) {
    (void)group;
    return 2 * T + D;
}

static ckvc_status finish(const head_score *self, const scored_prompt *p, ckvc_err *err) {
    (void)self, (void)err;
    const uint32_t T = p->n_tokens, G = p->n_heads, from = first_above(p->n_layers);
    const double *heads = p->s + (size_t)(from - 1) * G * T;
    double *sum = p->scratch;
    uint32_t *kept = (uint32_t *)(sum + T), n_candidates, at = 0;
    for (uint32_t t = 0; t < T; t++) {
        const bool recent = t + WINDOW >= T; /* which has no score yet */
        sum[t] = recent ? INFINITY : 0;
        for (uint32_t g = 0; g < G && !recent; g++) { sum[t] += heads[(size_t)g * T + t]; }
    }
    const uint32_t n = ckvc_retain(T, sum, (ckvc_rule){-INFINITY, propagated(T), 0}, kept,
                                   &n_candidates, kept + T);
    for (uint32_t t = 0; t < T; t++) {
        if (at < n && kept[at] == t) {
            at++;
            continue;
        }
        for (uint32_t u = from * G; u < p->n_layers * G; u++) {
            p->s[(size_t)u * T + t] = -INFINITY;
        }
    }
    return CKVC_OK;
}

static void allot(const allot_ask *a, uint32_t *c) {
    allot_evenly(a, a->budget, c);
    for (uint32_t l = first_above(a->n_layers); l < a->n_layers; l++) {
        allot_layer(a, l, rule_min(a->budget, propagated(a->n_tokens)), c);
    }
}

const policy_rule rule_fastkv_selection = {.kind = SCORE_FASTKV_SELECTION,
                                           .by_head = true,
                                           .score = {.see = window_see_mean,
                                                     .finish = finish,
                                                     .scratch = scratch,
                                                     .window = WINDOW,
                                                     .pool = 7,
                                                     .last = WINDOW},
                                           .allot = allot};
