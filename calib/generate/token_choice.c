/* Which token comes next: see token_choice.h. */
#include "calib/generate/token_choice.h"

#include <math.h>
#include <stdlib.h>

/* The larger first, of equal ones the lower id. */
static int by_weight(const void *a, const void *b) {
    const token_weight *x = a, *y = b;
    return x->p != y->p ? (x->p < y->p ? 1 : -1) : (x->id > y->id) - (x->id < y->id);
}

/* w [n] are exp(logit - the largest), `sum` all of them. */
static int32_t draw(double top_p, token_weight *w, int32_t n, double sum, ckvc_rng *rng) {
    /* What is below (1 - top_p) / n cannot be needed: all such together have at most 1 - top_p. */
    const double least = (1 - top_p) / n * sum;
    int32_t n_left = 0, n_in = 0;
    double mass = 0, below = 0;
    for (int32_t v = 0; v < n; v++) {
        if (w[v].p >= least) { w[n_left++] = w[v]; }
    }
    qsort(w, (size_t)n_left, sizeof *w, by_weight);
    while (n_in < n_left && mass < top_p * sum) { mass += w[n_in++].p; }
    const double at = ckvc_rng_double(rng) * mass;
    int32_t i = 0;
    while (i + 1 < n_in && (below += w[i].p) <= at) { i++; }
    return w[i].id;
}

int32_t token_draw(const token_choice *how, const float *logits, int32_t vocab, ckvc_rng *rng,
                   token_weight *scratch, double *nll) {
    double top = (double)logits[0], sum = 0, weights = 0;
    for (int32_t v = 1; v < vocab; v++) { top = (double)logits[v] > top ? (double)logits[v] : top; }
    for (int32_t v = 0; v < vocab; v++) {
        sum += exp((double)logits[v] - top);
        scratch[v] = (token_weight){exp(((double)logits[v] - top) / how->temperature), v};
        weights += scratch[v].p;
    }
    const int32_t id = draw(how->top_p, scratch, vocab, weights, rng);
    *nll = log(sum) + top - (double)logits[id];
    return id;
}
