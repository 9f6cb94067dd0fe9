/* FastKV: keeps the last 8 positions, and those before them with the largest mean attention from
 * these, after a mean over 7 positions. From layer L/2 on (16 of 32) sets are chosen within a fifth
 * of the prompt: the last 8 positions, and those with the largest sum of the scores of all heads in
 * the layer below (15 of 32; this is its code's proportional mode). FastKV's own prefill goes on
 * with these tokens alone, which saves time. Here every layer's scores come from the one prefill
 * that all policies share. */
#include <math.h>

#include "judge/policies/rules/rule.h"
#include "judge/policies/rules/window_attention.h"

enum { WINDOW = 8, SHARE = 5 };

static uint32_t first_restricted(uint32_t n_layers) {
    return n_layers > 1 ? n_layers / 2 : n_layers;
}

static uint32_t n_chosen(uint32_t n_tokens) {
    return n_tokens / SHARE > WINDOW ? n_tokens / SHARE : rule_min(n_tokens, WINDOW);
}

/* Room for one sum for each position, and for two arrays of positions, which take as many
 * doubles. */
static size_t scratch(size_t T, size_t D, size_t group) {
    (void)group;
    return 2 * T + D;
}

/* Writes the positions that the layers from first_restricted on may keep, ascending, as the layer
 * below them says. Returns how many they are. */
static uint32_t choose_positions(const scored_prompt *p, uint32_t *positions) {
    const uint32_t T = p->n_tokens, G = p->n_heads;
    const double *heads = p->s + (size_t)(first_restricted(p->n_layers) - 1) * G * T;
    double *sum = p->scratch;
    uint32_t n_candidates;
    for (uint32_t t = 0; t < T; t++) {
        const bool recent = t + WINDOW >= T; /* recent positions have no score */
        sum[t] = recent ? INFINITY : 0;
        for (uint32_t g = 0; g < G && !recent; g++) { sum[t] += heads[(size_t)g * T + t]; }
    }
    return ckvc_retain(T, sum, (ckvc_rule){-INFINITY, n_chosen(T), 0}, positions, &n_candidates,
                       positions + T);
}

static ckvc_status score_prompt(const head_score *self, const scored_prompt *p, ckvc_err *err) {
    const uint32_t T = p->n_tokens, from = first_restricted(p->n_layers);
    uint32_t *positions = (uint32_t *)(p->scratch + T); /* [2][T], the second one is scratch */
    (void)self;
    (void)err;
    if (from == p->n_layers) { return CKVC_OK; }
    const uint32_t n = choose_positions(p, positions);
    for (size_t head = (size_t)from * p->n_heads; head < (size_t)p->n_layers * p->n_heads; head++) {
        double *s = p->s + head * T;
        for (uint32_t t = 0, i = 0; t < T; t++) {
            const bool chosen = i < n && positions[i] == t;
            i += chosen;
            if (!chosen) { s[t] = -INFINITY; }
        }
    }
    return CKVC_OK;
}

static void fill_capacities(const allot_ask *a, uint32_t *c) {
    allot_evenly(a, a->budget, c);
    for (uint32_t l = first_restricted(a->n_layers); l < a->n_layers; l++) {
        allot_layer(a, l, rule_min(a->budget, n_chosen(a->n_tokens)), c);
    }
}

const policy_rule rule_fastkv = {.by_head = true,
                                 .score = {.on_head = window_see_mean,
                                           .finish = score_prompt,
                                           .scratch = scratch,
                                           .window = WINDOW,
                                           .pool = 7,
                                           .last = WINDOW},
                                 .allot = fill_capacities};
