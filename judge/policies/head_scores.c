/* Scores of KV heads: see head_scores.h. */
#include "judge/policies/head_scores.h"

#include <math.h>
#include <string.h>

#include "lib/base/memory.h"

size_t head_score_scratch(const head_score *kind, size_t T, size_t D, size_t group) {
    return kind->scratch ? kind->scratch(T, D, group) : T + D;
}

void head_score_force(uint32_t first, uint32_t last, uint32_t T, double *s) {
    for (uint32_t t = 0; t < T; t++) {
        if (t < first || t + last >= T) { s[t] = INFINITY; }
    }
}

static bool same_score(const head_score *a, const head_score *b) {
    return a->on_head == b->on_head && a->finish == b->finish && a->window == b->window &&
           a->pool == b->pool && a->first == b->first && a->last == b->last;
}

size_t head_scores_add(head_scores *h, head_score kind) {
    for (size_t i = 0; i < h->n; i++) {
        if (same_score(&h->kinds[i], &kind)) { return i; }
    }
    CKVC_GROW(h->kinds, h->cap, h->n + 1);
    CKVC_GROW(h->values, h->cap_values, h->n + 1);
    h->kinds[h->n] = kind;
    h->values[h->n] = NULL;
    if (kind.on_head && h->wanted.n_rows < (kind.window ? kind.window : 1)) {
        h->wanted.n_rows = kind.window ? kind.window : 1;
    }
    h->wanted.queries |= kind.queries;
    h->wanted.column_sum |= kind.column_sum;
    return h->n++;
}

static double *reserve_doubles(head_scores *h, size_t n) {
    h->bytes += n * sizeof(double);
    return ckvc_calloc(n, sizeof(double));
}

void head_scores_reserve(head_scores *h, const model_shape *shape, uint32_t max_tokens) {
    h->n_layers = (uint32_t)shape->n_layers;
    h->n_heads = (uint32_t)shape->n_kv_heads;
    const size_t T = max_tokens, all = (size_t)h->n_layers * h->n_heads * T;
    size_t most = 0;
    h->layer = ckvc_calloc(h->n_layers, sizeof *h->layer);
    h->bytes += h->n_layers * sizeof *h->layer;
    for (size_t i = 0; i < h->n; i++) {
        const head_score *kind = &h->kinds[i];
        const size_t n = head_score_scratch(kind, T, (size_t)shape->head_dim,
                                            (size_t)(shape->n_heads / shape->n_kv_heads));
        most = n > most ? n : most;
        h->values[i] = reserve_doubles(h, all);
    }
    h->scratch = reserve_doubles(h, most);
    if (h->reconstruction) { h->more = reserve_doubles(h, all); }
}

void head_scores_fini(head_scores *h) {
    for (size_t i = 0; i < h->n; i++) { free(h->values[i]); }
    CKVC_FREE(h->values, h->kinds, h->layer, h->more, h->scratch);
}

void head_scores_see(head_scores *h, const prefill_head *head) {
    const uint32_t l = (uint32_t)head->layer, g = (uint32_t)head->head;
    h->n_tokens = (uint32_t)head->n_tokens;
    for (size_t i = 0; i < h->n; i++) {
        const head_score *kind = &h->kinds[i];
        const head_output to = {h->frequencies, head_scores_at(h, i, l, g), h->layer + l,
                                h->scratch};
        if (!kind->on_head) { continue; }
        kind->on_head(kind, head, &to);
        if (!kind->finish) { head_score_force(kind->first, kind->last, h->n_tokens, to.s); }
    }
}

void head_scores_begin(head_scores *h, const double *frequencies) {
    h->frequencies = frequencies;
    memset(h->layer, 0, h->n_layers * sizeof *h->layer);
}

ckvc_status head_scores_finish(head_scores *h, session *s, const int32_t *tokens,
                               const prefill_stats *stats, ckvc_err *err) {
    const uint32_t T = h->n_tokens = (uint32_t)stats->n_tokens;
    scored_prompt p = {.n_layers = h->n_layers,
                       .n_heads = h->n_heads,
                       .n_tokens = T,
                       .session = s,
                       .tokens = tokens,
                       .stats = stats,
                       .reconstruction = h->reconstruction,
                       .more = h->more,
                       .scratch = h->scratch};
    for (size_t i = 0; i < h->n; i++) {
        const head_score *kind = &h->kinds[i];
        if (!kind->finish) { continue; }
        p.s = h->values[i];
        CKVC_TRY(kind->finish(kind, &p, err));
        for (uint32_t u = 0; u < h->n_layers * h->n_heads; u++) {
            head_score_force(kind->first, kind->last, T, h->values[i] + (size_t)u * T);
        }
    }
    return CKVC_OK;
}
