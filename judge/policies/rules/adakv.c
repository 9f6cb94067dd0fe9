/* AdaKV: ranks by SnapKV's scores. Each head gets a fifth of B; the rest of a layer goes to the
 * best positions of all its heads. The floor and the sum are kvpress's, which keeps G·B entries of
 * a layer. */
#include "judge/policies/rules/window_attention.h"
#include "judge/policies/rules/rule.h"

enum { WINDOW = 32 };

static void fill_capacities(const allot_ask *a, uint32_t *c) {
    const uint32_t floor = (uint32_t)(0.2 * a->budget), G = a->n_heads;
    for (uint32_t l = 0; l < a->n_layers; l++) {
        allot_by_rank(G, a->n_tokens, a->s + (size_t)l * G * a->n_tokens, a->budget,
                      floor > WINDOW ? floor : WINDOW, c + (size_t)l * G, a->keys);
    }
}

const policy_rule rule_adakv = {
    .by_head = true,
    .sorts = true,
    .score = {.on_head = window_see_largest, .window = WINDOW, .pool = 7, .last = WINDOW},
    .allot = fill_capacities};
