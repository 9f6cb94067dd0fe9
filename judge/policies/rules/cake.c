/* CAKE: keeps the last 32 positions, and ranks others by mean and variance of their attention to
 * them. Layers get budgets by the entropy and variance of this attention (tau 1, 1). */
#include <math.h>

#include "judge/policies/rules/rule.h"
#include "judge/policies/rules/window_attention.h"

enum { WINDOW = 32 };

/* Writes mean + gamma * variance (unbiased) over the rows, and its mean over the group, to x [n];
 * adds the entropy and variance that this says of the layer. */
static void preferred(const prefill_head *h, int64_t rows, int64_t n, double *x,
                      layer_sums *layer) {
    const double gamma = 200;
    for (int64_t t = 0; t < n; t++) { x[t] = 0; }
    for (int32_t q = 0; q < h->group; q++) {
        const float *a = window_row(h, q, h->n_rows - rows);
        for (int64_t t = 0; t < n; t++) {
            double sum = 0, squares = 0;
            for (int64_t r = 0; r < rows; r++) {
                const double v = (double)a[r * h->n_tokens + t];
                sum += v;
                layer->entropy -= v * log(v + 1e-10);
            }
            const double mean = sum / (double)rows;
            for (int64_t r = 0; r < rows; r++) {
                const double d = (double)a[r * h->n_tokens + t] - mean;
                squares += d * d;
            }
            const double variance = rows > 1 ? squares / (double)(rows - 1) : 0;
            layer->variance += variance;
            x[t] += (mean + gamma * variance) / h->group;
        }
    }
}

static void score_head(const head_score *self, const prefill_head *h, const head_output *to) {
    const int64_t T = h->n_tokens, before = T > self->window ? T - self->window : 0;
    preferred(h, window_rows(h, self->window), before, to->scratch, to->layer);
    window_pool(to->scratch, before, self->pool, false, to->s);
}

/* Gives `total` more entries in equal parts to the layers [n] that are below `most`, the remainder
 * one each from the first layer on, until nothing is left or all are full. */
static void hand_out(const allot_ask *a, int64_t total, uint32_t most, uint32_t *c) {
    const uint32_t step = a->n_heads, end = a->n_layers * a->n_heads;
    while (total > 0) {
        uint32_t n_open = 0;
        for (uint32_t i = 0; i < end; i += step) { n_open += c[i] < most; }
        if (n_open == 0) { return; }
        const int64_t each = total / n_open;
        int64_t one_more = total % n_open;
        for (uint32_t i = 0; i < end; i += step) {
            if (c[i] >= most) { continue; }
            int64_t more = each + (one_more-- > 0);
            more = more < most - c[i] ? more : most - c[i];
            c[i] += (uint32_t)more;
            total -= more;
        }
    }
}

/* Does what adjust_budgets does: gives layers entries by their preferences, none more than T; what
 * is over, or left by rounding, is given out in equal parts. */
static void fill_capacities(const allot_ask *a, uint32_t *c) {
    const uint32_t L = a->n_layers, G = a->n_heads, T = a->n_tokens;
    if (a->budget <= WINDOW) {
        allot_evenly(a, a->budget, c);
        return;
    }
    const int64_t total = (int64_t)(a->budget - WINDOW) * L;
    const uint32_t most = T - WINDOW;
    double sum = 0;
    int64_t left = total;
    for (uint32_t l = 0; l < L; l++) { sum += a->layer[l].entropy * a->layer[l].variance; }
    for (uint32_t l = 0; l < L; l++) {
        const double own = a->layer[l].entropy * a->layer[l].variance,
                     share = sum > 0 ? own / sum : 1.0 / L;
        c[l * G] = (uint32_t)fmin(floor(share * (double)total), most);
        left -= c[l * G];
    }
    hand_out(a, left, most, c);
    for (uint32_t l = 0; l < L; l++) { allot_layer(a, l, c[l * G] + WINDOW, c); }
}

const policy_rule rule_cake = {
    .by_head = true,
    .score = {.on_head = score_head, .window = WINDOW, .pool = 5, .last = WINDOW},
    .allot = fill_capacities};
