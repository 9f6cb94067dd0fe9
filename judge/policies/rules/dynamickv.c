/* DynamicKV (version 11, its Llama settings): keeps the last 8 positions, and those before them
 * with the largest mean attention from these, after a mean over 7 positions. Layers get budgets by
 * how many of the largest scores of all heads so far are theirs. It goes from layer to layer: after
 * every fourth layer, and after the last, the layers so far divide among them what the whole model
 * shall keep before the window, b·L. What a layer has dropped by then it does not get back, so the
 * sum may be below L·G·B.
 *
 * DynamicKV has a cache for each query head; here a KV head has the mean of its group. */
#include <math.h>

#include "judge/policies/rules/window_attention.h"
#include "judge/policies/rules/rule.h"

enum { WINDOW = 8, EVERY = 4, MOST = 10 };

/* Counts how many of the b·G·n largest scores of the first n layers, with their G heads each,
 * belong to each layer, into `of` [n]. Returns their sum. heads [n][G] is scratch. */
static uint64_t count_kept(const allot_ask *a, uint32_t n, uint32_t b, uint32_t *heads,
                           uint32_t *of) {
    const uint32_t G = a->n_heads;
    uint64_t sum = 0;
    allot_by_rank(n * G, a->n_tokens, a->s, b + WINDOW, WINDOW, heads, a->keys);
    for (uint32_t l = 0; l < n; l++) {
        uint32_t own = 0;
        for (uint32_t g = 0; g < G; g++) { own += heads[l * G + g] - WINDOW; }
        of[l] = own / n;
        sum += of[l];
    }
    if (n == a->n_layers) {
        of[n - 1] += (uint32_t)(b * G - sum);
        sum = b * G;
    }
    return sum;
}

/* Divides `total` entries, b·L, among the first n layers by their counts [n], in place: first as
 * parts of K, rounded down, then these parts, the last layer getting the rest. It computes in float
 * and double as DynamicKV does: where a quotient is a whole number, one entry may be lost. */
static void share_out(uint32_t n, uint64_t sum, uint32_t K, uint64_t total, uint32_t *of) {
    uint64_t parts = 0, left = total;
    for (uint32_t l = 0; l < n; l++) {
        of[l] = (uint32_t)((float)K * ((float)of[l] / (float)sum));
        parts += of[l];
    }
    const double ratio = (double)parts / (double)total;
    for (uint32_t l = 0; l < n; l++) {
        of[l] = parts ? (uint32_t)rint((of[l] - fmod(of[l], ratio)) / ratio) : 0;
        left -= of[l];
    }
    of[n - 1] += (uint32_t)left;
}

static void fill_capacities(const allot_ask *a, uint32_t *c) {
    const uint32_t L = a->n_layers, T = a->n_tokens, b = a->budget - rule_min(a->budget, WINDOW);
    if (b == 0) {
        allot_evenly(a, a->budget, c);
        return;
    }
    const uint64_t most = (uint64_t)b * MOST;
    const uint32_t K = most < T - WINDOW ? (uint32_t)most : T - WINDOW;
    uint32_t *of = a->scratch, *heads = of + L;
    allot_evenly(a, K + WINDOW, c);
    for (uint32_t n = 1; n <= L; n++) {
        if (n % EVERY != 0 && n != L) { continue; }
        const uint64_t sum = count_kept(a, n, b, heads, of);
        if (sum == 0) { continue; }
        share_out(n, sum, K, (uint64_t)b * L, of);
        for (uint32_t l = 0; l < n; l++) {
            allot_layer(a, l, rule_min(c[l * a->n_heads], rule_min(of[l], K) + WINDOW), c);
        }
    }
}

const policy_rule rule_dynamickv = {
    .by_head = true,
    .sorts = true,
    .score = {.on_head = window_see_mean, .window = WINDOW, .pool = 7, .last = WINDOW},
    .allot = fill_capacities};
