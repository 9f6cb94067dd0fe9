/* The statistics of one prompt (paper.md section 1). T tokens, W window rows, L layers, H query
 * heads, G KV heads:
 *
 *   alpha[t] = (T/W) * sum over window rows j of mean over l, h of A[l][h][j][t]
 *   rho[l][g][t] = ||v[l][g][t]|| / (mean_k ||v[l][g][k]|| + 1e-6)
 *   r_struct = -sum p log p, p = alpha / sum alpha */
#include "lib/model/window_stats.h"

#include <assert.h>
#include <string.h>

enum { READ_ROWS = 16 /* rows of queries that are read at once */ };

void window_stats_init(window_stats *s, const model_shape *shape, int64_t max_prompt) {
    const size_t t = (size_t)max_prompt, g = (size_t)shape->n_kv_heads,
                 lg = (size_t)shape->n_layers * g;
    *s = (window_stats){
        .n_layers = shape->n_layers, .n_heads = shape->n_heads, .n_kv_heads = shape->n_kv_heads};
    s->alpha = ckvc_calloc(t, sizeof *s->alpha);
    s->alpha_f32 = ckvc_calloc(t, sizeof *s->alpha_f32);
    s->rho = ckvc_calloc(lg * t, sizeof *s->rho);
    s->rho_sd = ckvc_calloc(lg, sizeof *s->rho_sd);
    s->own_recent = ckvc_calloc(lg, sizeof *s->own_recent);
    s->own_entropy = ckvc_calloc(lg, sizeof *s->own_entropy);
    s->mass = ckvc_calloc(g * t, sizeof *s->mass);
    s->norm = ckvc_calloc(g * t, sizeof *s->norm);
}

void window_stats_fini(window_stats *s) {
    CKVC_FREE(s->alpha, s->alpha_f32, s->rho, s->rho_sd, s->own_recent, s->own_entropy, s->mass,
              s->norm);
    *s = (window_stats){0};
}

size_t window_stats_bytes(const model_shape *shape, int64_t max_prompt) {
    const size_t t = (size_t)max_prompt, g = (size_t)shape->n_kv_heads,
                 lg = (size_t)shape->n_layers * g;
    return t * (sizeof(double) + sizeof(float)) + lg * t * sizeof(float) + 3 * lg * sizeof(double) +
           2 * g * t * sizeof(double);
}

void window_stats_layer(window_stats *s, int32_t layer, int64_t n_tokens, int64_t window) {
    /* how many attention rows, each of sum 1, make up one mass */
    const int32_t per_group = s->n_heads / s->n_kv_heads;
    const double rows = (double)window * per_group;
    for (int32_t g = 0; g < s->n_kv_heads; g++) {
        const double *mass = s->mass + g * n_tokens, *norm = s->norm + g * n_tokens;
        const size_t lg = (size_t)layer * (size_t)s->n_kv_heads + (size_t)g;
        float *rho = s->rho + lg * (size_t)n_tokens;

        double recent = 0, entropy = 0, sum = 0;
        for (int64_t t = 0; t < n_tokens; t++) {
            const double share = mass[t] / rows;
            s->alpha[t] = (layer || g ? s->alpha[t] : 0) + mass[t];
            entropy -= share > 0 ? share * log(share) : 0;
            recent += t >= n_tokens - window ? share : 0;
            sum += norm[t];
        }
        s->own_recent[lg] = recent;
        s->own_entropy[lg] = entropy;

        const double mean = sum / (double)n_tokens, scale = 1.0 / (mean + 1e-6);
        double squares = 0;
        for (int64_t t = 0; t < n_tokens; t++) {
            const double away = (norm[t] - mean) * scale;
            rho[t] = (float)(norm[t] * scale);
            squares += away * away;
        }
        s->rho_sd[lg] = sqrt(squares / (double)n_tokens);
    }
}

/* A window row j sees only t <= j, so the last W positions are seen by fewer rows. This divides
 * alpha by the share of rows that see a position, and scales it back to mean 1 (paper.md section
 * 12). */
static void make_visible(double *alpha, int64_t n_tokens, int64_t window) {
    double sum = 0;
    for (int64_t t = 0; t < n_tokens; t++) {
        if (t > n_tokens - window) { alpha[t] /= (double)(n_tokens - t) / (double)window; }
        sum += alpha[t];
    }
    for (int64_t t = 0; t < n_tokens; t++) { alpha[t] *= (double)n_tokens / sum; }
}

void window_stats_finish(window_stats *s, int64_t n_tokens, int64_t window, ckvc_alpha_kind kind,
                         prefill_stats *out) {
    const double scale = (double)n_tokens / ((double)window * s->n_layers * s->n_heads);
    for (int64_t t = 0; t < n_tokens; t++) { s->alpha[t] *= scale; }
    if (kind == CKVC_ALPHA_VISIBLE) { make_visible(s->alpha, n_tokens, window); }
    double sum = 0, entropy = 0;
    for (int64_t t = 0; t < n_tokens; t++) {
        s->alpha_f32[t] = (float)s->alpha[t];
        sum += s->alpha[t];
    }
    for (int64_t t = 0; t < n_tokens; t++) {
        const double p = s->alpha[t] / sum;
        entropy -= p > 0 ? p * log(p) : 0;
    }
    *out = (prefill_stats){.n_tokens = n_tokens,
                           .window = window,
                           .alpha = s->alpha,
                           .alpha_f32 = s->alpha_f32,
                           .rho = s->rho,
                           .rho_sd = s->rho_sd,
                           .own_recent = s->own_recent,
                           .own_entropy = s->own_entropy,
                           .r_struct = entropy};
}

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
    w->rows = ckvc_calloc(READ_ROWS * h * d, sizeof *w->rows);
    w->column_sum = ckvc_calloc(g * t, sizeof *w->column_sum);
}

void head_watch_fini(head_watch *w) {
    CKVC_FREE(w->attention, w->keys, w->values, w->queries, w->rows, w->column_sum);
    *w = (head_watch){0};
}

size_t head_watch_bytes(const model_shape *s, int64_t max_prompt, int64_t max_rows) {
    const size_t t = (size_t)max_prompt, h = (size_t)s->n_heads, g = (size_t)s->n_kv_heads,
                 d = (size_t)s->head_dim;
    if (max_rows == 0) { return 0; }
    return t * ((h * (size_t)max_rows + (2 + h / g) * d) * sizeof(float) + g * sizeof(double)) +
           READ_ROWS * h * d * sizeof(float);
}

int64_t head_watch_first_row(const prefill_watcher *watcher, int64_t n_tokens, int64_t first_row) {
    const int64_t shown = n_tokens - shown_rows(watcher, n_tokens);
    if (watcher->queries || watcher->column_sum) { return 0; }
    return shown < first_row ? shown : first_row;
}

/* Copies the queries of KV head g's group, [T][H*D], to [H/G][T][D]. It reads many rows at once,
 * because every read waits for the device. */
static ckvc_status read_queries(head_watch *w, backend *be, const be_attention_shape *s, int32_t g,
                                const layer_seen *seen, ckvc_err *err) {
    const int64_t n = seen->n_tokens, d = s->head_dim, group = s->n_heads / s->n_kv_heads,
                  row = s->n_heads * d;
    for (int64_t first = 0; first < n; first += READ_ROWS) {
        const int64_t rows = n - first < READ_ROWS ? n - first : READ_ROWS;
        CKVC_TRY(
            be->ops->read(be, seen->q, (size_t)(first * row), w->rows, (size_t)(rows * row), err));
        for (int64_t t = 0; t < rows; t++) {
            for (int64_t h = 0; h < group; h++) {
                memcpy(w->queries + (h * n + first + t) * d,
                       w->rows + t * row + (g * group + h) * d, (size_t)d * sizeof(float));
            }
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
        watcher->on_head(watcher->ctx, &head);
    }
    return CKVC_OK;
}
