/* Scores of KV heads: see head_scores.h. */
#include "calib/policies/head_scores.h"

#include <math.h>
#include <string.h>

#include "calib/demand/head_features.h"
#include "lib/base/memory.h"

size_t head_score_scratch(const head_score *kind, size_t T, size_t D, size_t group) {
    return kind->scratch ? kind->scratch(T, D, group) : T + D;
}

void head_score_force(uint32_t first, uint32_t last, uint32_t T, double *s) {
    for (uint32_t t = 0; t < T; t++) {
        if (t < first || t + last >= T) { s[t] = INFINITY; }
    }
}

static bool same(const head_score *a, const head_score *b) {
    return a->see == b->see && a->finish == b->finish && a->window == b->window &&
           a->pool == b->pool && a->norm == b->norm && a->first == b->first && a->last == b->last &&
           (a->table ? a->table->theta : NULL) == (b->table ? b->table->theta : NULL);
}

size_t head_scores_add(head_scores *h, head_score kind) {
    for (size_t i = 0; i < h->n; i++) {
        if (same(&h->kinds[i], &kind)) { return i; }
    }
    CKVC_GROW(h->kinds, h->cap, h->n + 1);
    CKVC_GROW(h->values, h->cap_values, h->n + 1);
    h->kinds[h->n] = kind;
    h->values[h->n] = NULL;
    if (kind.see && h->watcher.n_rows < (kind.window ? kind.window : 1)) {
        h->watcher.n_rows = kind.window ? kind.window : 1;
    }
    h->watcher.queries |= kind.queries;
    h->watcher.column_sum |= kind.column_sum;
    return h->n++;
}

static double *reserve(head_scores *h, size_t n) {
    h->bytes += n * sizeof(double);
    return ckvc_calloc(n, sizeof(double));
}

void head_scores_reserve(head_scores *h, const model_shape *shape, uint32_t max_tokens) {
    h->n_layers = (uint32_t)shape->n_layers;
    h->n_heads = (uint32_t)shape->n_kv_heads;
    const size_t T = max_tokens, all = (size_t)h->n_layers * h->n_heads * T;
    size_t most = 0;
    h->layer = reserve(h, 2 * (size_t)h->n_layers);
    for (size_t i = 0; i < h->n; i++) {
        const head_score *kind = &h->kinds[i];
        const size_t n = head_score_scratch(kind, T, (size_t)shape->head_dim,
                                            (size_t)(shape->n_heads / shape->n_kv_heads));
        most = n > most ? n : most;
        h->values[i] = reserve(h, all);
        if (!kind->table) { continue; }
        if (!h->norms) { h->norms = reserve(h, all); }
        if (kind->window && !h->layer_attention) {
            h->layer_attention = reserve(h, h->n_layers * T);
        }
    }
    h->scratch = reserve(h, most);
    if (h->reconstruction) { h->more = reserve(h, all); }
}

void head_scores_fini(head_scores *h) {
    for (size_t i = 0; i < h->n; i++) { free(h->values[i]); }
    CKVC_FREE(h->values, h->kinds, h->layer, h->more, h->scratch, h->layer_attention, h->norms);
}

static void see(void *ctx, const prefill_head *head) {
    head_scores *h = ctx;
    const uint32_t l = (uint32_t)head->layer, g = (uint32_t)head->head;
    h->n_tokens = (uint32_t)head->n_tokens;
    const size_t T = h->n_tokens;
    if (h->layer_attention) { head_features_add(head, h->n_heads, h->layer_attention + l * T); }
    if (h->norms) {
        memcpy(h->norms + ((size_t)l * h->n_heads + g) * T, head->value_norms,
               T * sizeof *h->norms);
    }
    for (size_t i = 0; i < h->n; i++) {
        const head_score *kind = &h->kinds[i];
        const score_room to = {h->frequencies, head_scores_at(h, i, l, g), h->layer + 2 * l,
                               h->scratch};
        if (!kind->see) { continue; }
        kind->see(kind, head, &to);
        if (!kind->finish) { head_score_force(kind->first, kind->last, h->n_tokens, to.s); }
    }
}

const prefill_watcher *head_scores_watch(head_scores *h, const session *s) {
    if (h->watcher.n_rows == 0) { return NULL; }
    h->frequencies = session_key_frequencies(s);
    h->watcher.see = see;
    h->watcher.ctx = h;
    memset(h->layer, 0, 2 * (size_t)h->n_layers * sizeof *h->layer);
    return &h->watcher;
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
                       .layer_attention = h->layer_attention,
                       .norms = h->norms,
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
