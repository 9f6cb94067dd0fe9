/* What a prefill_watcher is shown: see head_watch.h. */
#include "lib/model/head_watch.h"

#include <assert.h>

static int64_t shown_rows(const prefill_watcher *watcher, int64_t n_tokens) {
    return watcher->n_rows < n_tokens ? watcher->n_rows : n_tokens;
}

void head_watch_init(head_watch *w, const model_shape *s, int64_t max_prompt, int64_t max_rows) {
    *w = (head_watch){0};
    if (max_rows == 0) { return; }
    const size_t t = (size_t)max_prompt, h = (size_t)s->n_heads, g = (size_t)s->n_kv_heads,
                 d = (size_t)s->head_dim;
    w->attention = ckvc_calloc(h * t * (size_t)max_rows, sizeof *w->attention);
    w->keys = ckvc_calloc(t * d, sizeof *w->keys);
    w->values = ckvc_calloc(t * d, sizeof *w->values);
    w->queries = ckvc_calloc(h / g * t * d, sizeof *w->queries);
    w->column_sum = ckvc_calloc(g * t, sizeof *w->column_sum);
}

void head_watch_fini(head_watch *w) {
    CKVC_FREE(w->attention, w->keys, w->values, w->queries, w->column_sum);
    *w = (head_watch){0};
}

size_t head_watch_bytes(const model_shape *s, int64_t max_prompt, int64_t max_rows) {
    const size_t t = (size_t)max_prompt, h = (size_t)s->n_heads, g = (size_t)s->n_kv_heads,
                 d = (size_t)s->head_dim;
    if (max_rows == 0) { return 0; }
    return t * ((h * (size_t)max_rows + (2 + h / g) * d) * sizeof(float) + g * sizeof(double));
}

int64_t head_watch_first_row(const prefill_watcher *watcher, int64_t n_tokens, int64_t first_row) {
    const int64_t shown = n_tokens - shown_rows(watcher, n_tokens);
    if (watcher->queries || watcher->column_sum) { return 0; }
    return shown < first_row ? shown : first_row;
}

/* The queries of KV head g's group, [T][H*D] -> [H/G][T][D]. */
static ckvc_status read_queries(head_watch *w, backend *be, const be_attention_shape *s, int32_t g,
                                const layer_seen *seen, ckvc_err *err) {
    const int32_t group = s->n_heads / s->n_kv_heads;
    const size_t d = (size_t)s->head_dim;
    float *to = w->queries;
    for (int32_t h = g * group; h < (g + 1) * group; h++) {
        for (int64_t t = 0; t < seen->n_tokens; t++, to += d) {
            CKVC_TRY(be->ops->read(be, seen->q, (size_t)(t * s->n_heads + h) * d, to, d, err));
        }
    }
    return CKVC_OK;
}

ckvc_status head_watch_layer(head_watch *w, model *m, const prefill_watcher *watcher,
                             const layer_seen *seen, ckvc_err *err) {
    backend *be = m->be;
    const be_attention_shape attention = layer_attention(m, seen->layer), *s = &attention;
    const int64_t n = seen->n_tokens, d = s->head_dim;
    prefill_head head = {.layer = seen->layer,
                         .group = s->n_heads / s->n_kv_heads,
                         .n_tokens = n,
                         .head_dim = d,
                         .n_rows = shown_rows(watcher, n),
                         .keys = w->keys,
                         .values = w->values};
    const be_window shown = {n, head.n_rows, seen->row0}, all = {n, n, 0};
    assert(!(watcher->queries || watcher->column_sum) || seen->row0 == 0);
    CKVC_TRY(be->ops->window_rows(be, s, &shown, seen->q, seen->cache, w->attention, err));
    if (watcher->column_sum) {
        CKVC_TRY(be->ops->window_mass(be, s, &all, seen->q, seen->cache, w->column_sum, err));
    }
    for (int32_t g = 0; g < s->n_kv_heads; g++) {
        const size_t at = (size_t)(g * seen->cache->capacity * d), size = (size_t)(n * d);
        CKVC_TRY(be->ops->read(be, seen->cache->k, at, w->keys, size, err));
        CKVC_TRY(be->ops->read(be, seen->cache->v, at, w->values, size, err));
        if (watcher->queries) { CKVC_TRY(read_queries(w, be, s, g, seen, err)); }
        head.head = g;
        head.attention = w->attention + g * head.group * head.n_rows * n;
        head.value_norms = seen->value_norms + g * n;
        head.queries = watcher->queries ? w->queries : NULL;
        head.column_sum = watcher->column_sum ? w->column_sum + g * n : NULL;
        watcher->see(watcher->ctx, &head);
    }
    return CKVC_OK;
}
