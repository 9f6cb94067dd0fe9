/* FastKV: the last 8, and the largest means of their attention, the mean of 7 positions before
 * them. From layer L/2 on (16 of 32) a prefill of its own goes on with a fifth of the prompt: the
 * last 8 and the largest sums over the scores of the heads of the layer below (15 of 32), and there
 * scores, pooling and sets know these tokens alone, as if they were the prompt (its code's
 * proportional mode; budgets of T and more propagate, too). */
#include <math.h>

#include "calib/policies/rules/rules.h"
#include "calib/policies/rules/window_attention.h"

enum { WINDOW = 8, SHARE = 5 };

uint32_t fastkv_from(uint32_t n_layers) { return n_layers > 1 ? n_layers / 2 : n_layers; }

uint32_t fastkv_rows(uint32_t n_tokens) {
    return n_tokens / SHARE > WINDOW ? n_tokens / SHARE : rule_min(n_tokens, WINDOW);
}

static size_t scratch(size_t T, size_t D, size_t group) {
    (void)group;
    return 3 * T + D;
}

/* The rows that go on -> positions; how many. */
static uint32_t choose(const scored_prompt *p, uint32_t layer, uint32_t *positions) {
    const uint32_t T = p->n_tokens, G = p->n_heads;
    const double *heads = p->s + (size_t)layer * G * T;
    double *sum = p->scratch;
    uint32_t n_candidates;
    for (uint32_t t = 0; t < T; t++) {
        const bool recent = t + WINDOW >= T; /* which has no score yet */
        sum[t] = recent ? INFINITY : 0;
        for (uint32_t g = 0; g < G && !recent; g++) { sum[t] += heads[(size_t)g * T + t]; }
    }
    return ckvc_retain(T, sum, (ckvc_rule){-INFINITY, fastkv_rows(T), 0}, positions, &n_candidates,
                       positions + T);
}

typedef struct upper_layers {
    const head_score *self;
    const scored_prompt *p;
    const uint32_t *positions; /* of the rows that go on */
} upper_layers;

/* A head among the rows that go on: their scores at their positions, none elsewhere. */
static void see_rows(void *ctx, const prefill_head *h) {
    const upper_layers *u = ctx;
    const scored_prompt *p = u->p;
    const uint32_t T = p->n_tokens, n = (uint32_t)h->n_tokens;
    double *s = p->s + ((size_t)h->layer * p->n_heads + (size_t)h->head) * T, *of_rows = p->scratch;
    const score_room to = {.s = of_rows, .scratch = of_rows + 2 * (size_t)T};
    window_see_mean(u->self, h, &to);
    for (uint32_t t = 0; t < T; t++) { s[t] = -INFINITY; }
    for (uint32_t i = 0; i + WINDOW < n; i++) { s[u->positions[i]] = of_rows[i]; }
}

static ckvc_status finish(const head_score *self, const scored_prompt *p, ckvc_err *err) {
    const uint32_t from = fastkv_from(p->n_layers);
    uint32_t *positions = (uint32_t *)(p->scratch + p->n_tokens); /* [2][T], the second a scratch */
    if (from == p->n_layers) { return CKVC_OK; }
    const uint32_t offsets[] = {0, choose(p, from - 1, positions)};
    upper_layers above = {self, p, positions};
    const prefill_watcher watcher = {.n_rows = WINDOW, .see = see_rows, .ctx = &above};
    const propagate_input in = {p->tokens, &(kept_set){1, offsets, positions}, &watcher};
    return session_propagate(p->session, &in, err);
}

static void allot(const allot_ask *a, uint32_t *c) {
    allot_evenly(a, a->budget, c);
    for (uint32_t l = fastkv_from(a->n_layers); l < a->n_layers; l++) {
        allot_layer(a, l, rule_min(a->budget, fastkv_rows(a->n_tokens)), c);
    }
}

const policy_rule rule_fastkv = {.kind = SCORE_FASTKV,
                                 .by_head = true,
                                 .score = {.see = window_see_mean,
                                           .finish = finish,
                                           .scratch = scratch,
                                           .window = WINDOW,
                                           .pool = 7,
                                           .last = WINDOW},
                                 .allot = allot};
