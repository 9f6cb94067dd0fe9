/* KeyDiff: keeps the keys that are least like the mean of the normalised keys. The score is minus
 * the cosine of the cached key and that mean (the anchor, whose length is the same for all t). It
 * reads no query. */
#include <math.h>
#include <string.h>

#include "judge/policies/rules/rule.h"

static double length(const float *k, int64_t n) {
    double sum = 0;
    for (int64_t i = 0; i < n; i++) { sum += (double)k[i] * (double)k[i]; }
    return fmax(sqrt(sum), 1e-12);
}

static void score_head(const head_score *self, const prefill_head *h, const head_output *to) {
    (void)self;
    const int64_t D = h->head_dim;
    double *anchor = to->scratch;
    memset(anchor, 0, (size_t)D * sizeof *anchor);
    for (int64_t t = 0; t < h->n_tokens; t++) {
        const float *k = h->keys + t * D;
        const double norm = length(k, D);
        for (int64_t i = 0; i < D; i++) { anchor[i] += (double)k[i] / norm; }
    }
    for (int64_t t = 0; t < h->n_tokens; t++) {
        to->s[t] = -rule_dot(anchor, h->keys + t * D, D) / length(h->keys + t * D, D);
    }
}

const policy_rule rule_keydiff = {.by_head = true, .score = {.on_head = score_head}};
