/* Scores of KV heads: see head_scores.h. */
#include "calib/policies/head_scores.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "calib/demand/expected_attention.h"
#include "calib/demand/head_features.h"
#include "lib/base/memory.h"

/* ---- one head ---- */

/* Row `row` of the window of query head q. */
static const float *row_of(const prefill_head *h, int32_t q, int64_t row) {
    return h->attention + ((int64_t)q * h->n_rows + row) * h->n_tokens;
}

static int64_t rows_of(const prefill_head *h, uint32_t window) {
    return window < h->n_rows ? window : h->n_rows;
}

/* Mean over the last `window` rows and the group -> mean [T]. */
static void mean_attention(const prefill_head *h, uint32_t window, double *mean) {
    const int64_t rows = rows_of(h, window);
    memset(mean, 0, (size_t)h->n_tokens * sizeof *mean);
    for (int32_t q = 0; q < h->group; q++) {
        for (int64_t r = h->n_rows - rows; r < h->n_rows; r++) {
            const float *a = row_of(h, q, r);
            for (int64_t t = 0; t < h->n_tokens; t++) { mean[t] += (double)a[t]; }
        }
    }
    for (int64_t t = 0; t < h->n_tokens; t++) { mean[t] /= (double)(rows * h->group); }
}

/* Of x [n] the largest, or the mean with zeros outside, of `pool` values around each -> s. */
static void pool_values(const double *x, int64_t n, uint32_t pool, bool largest, double *s) {
    const int64_t side = pool / 2;
    for (int64_t t = 0; t < n; t++) {
        const int64_t from = t > side ? t - side : 0, to = t + side < n - 1 ? t + side : n - 1;
        double best = x[t], sum = 0;
        for (int64_t i = from; i <= to; i++) {
            best = x[i] > best ? x[i] : best;
            sum += x[i];
        }
        s[t] = largest ? best : sum / pool;
    }
}

/* Mean + gamma * variance over the rows (unbiased), mean over the group -> x [n]; what it says of
 * the layer -> preference. */
static void cake(const prefill_head *h, uint32_t window, int64_t n, double *x, double *preference) {
    const double gamma = 200;
    const int64_t rows = rows_of(h, window);
    for (int64_t t = 0; t < n; t++) { x[t] = 0; }
    for (int32_t q = 0; q < h->group; q++) {
        const float *a = row_of(h, q, h->n_rows - rows);
        for (int64_t t = 0; t < n; t++) {
            double sum = 0, squares = 0;
            for (int64_t r = 0; r < rows; r++) {
                const double v = (double)a[r * h->n_tokens + t];
                sum += v;
                preference[0] -= v * log(v + 1e-10);
            }
            const double mean = sum / (double)rows;
            for (int64_t r = 0; r < rows; r++) {
                const double d = (double)a[r * h->n_tokens + t] - mean;
                squares += d * d;
            }
            const double variance = rows > 1 ? squares / (double)(rows - 1) : 0;
            preference[1] += variance;
            x[t] += (mean + gamma * variance) / h->group;
        }
    }
}

static void tova(const prefill_head *h, double *s) {
    if (h->head == 0) { memset(s, 0, (size_t)h->n_tokens * sizeof *s); }
    for (int32_t q = 0; q < h->group; q++) {
        const float *a = row_of(h, q, h->n_rows - 1);
        for (int64_t t = 0; t < h->n_tokens; t++) { s[t] += (double)a[t]; }
    }
}

static double dot(const double *a, const float *b, int64_t n) {
    double sum = 0;
    for (int64_t i = 0; i < n; i++) { sum += a[i] * (double)b[i]; }
    return sum;
}

static double length(const float *k, int64_t n) {
    double sum = 0;
    for (int64_t i = 0; i < n; i++) { sum += (double)k[i] * (double)k[i]; }
    return fmax(sqrt(sum), 1e-12);
}

/* The anchor's length is the same for all t. */
static void keydiff(const prefill_head *h, double *s, double *anchor) {
    const int64_t D = h->head_dim;
    memset(anchor, 0, (size_t)D * sizeof *anchor);
    for (int64_t t = 0; t < h->n_tokens; t++) {
        const float *k = h->keys + t * D;
        const double norm = length(k, D);
        for (int64_t i = 0; i < D; i++) { anchor[i] += (double)k[i] / norm; }
    }
    for (int64_t t = 0; t < h->n_tokens; t++) {
        s[t] = -dot(anchor, h->keys + t * D, D) / length(h->keys + t * D, D);
    }
}

/* ---- the learned score ---- */

static void early_form(const ckvc_table *t, const prefill_head *h, const double *frequencies,
                       double *s, double *scratch) {
    const ckvc_head_view v = head_features_view(h, frequencies);
    double *f = scratch + 2 * h->n_tokens;
    ckvc_features(t->score->features, &v, f, scratch);
    const size_t head = (size_t)h->layer * t->n_heads + (size_t)h->head;
    ckvc_linear_form(v.n_tokens, t->n_features, f, t->theta + head * t->n_features, s);
}

/* Adds the late features' part to every head, and makes scores of the forms. */
static void finish_learned(head_scores *h, size_t kind, const double *alpha) {
    const ckvc_table *t = h->kinds[kind].table;
    const uint32_t T = h->n_tokens, D = t->n_features;
    const bool has_late = ckvc_features_rows(t->score->features) > 0;
    double *late = h->scratch;
    for (uint32_t l = 0; l < h->n_layers; l++) {
        if (has_late) { ckvc_features_late(T, h->layer_attention + (size_t)l * T, alpha, 2, late); }
        for (uint32_t g = 0; g < h->n_heads; g++) {
            const size_t head = (size_t)l * h->n_heads + g;
            const float *theta = t->theta + head * D + CKVC_FEATURES_LATE;
            double *s = head_scores_at(h, kind, l, g);
            for (uint32_t i = 0; has_late && i < T; i++) {
                s[i] += (double)theta[0] * late[2 * i] + (double)theta[1] * late[2 * i + 1];
            }
            ckvc_score_learned(T, t->mass[head], h->norms + head * T, s);
        }
    }
}

size_t head_score_scratch(head_score_kind kind, size_t T, size_t D, size_t group) {
    return kind == HEAD_SCORE_LEARNED ? T * (2 + ckvc_features_count(CKVC_FEATURES_1, (uint32_t)D))
           : kind == HEAD_SCORE_EXPECTED ? expected_attention_scratch(T, D, group)
                                         : T + D;
}

void head_score_force(uint32_t first, uint32_t last, uint32_t T, double *s) {
    for (uint32_t t = 0; t < T; t++) {
        if (t < first || t + last >= T) { s[t] = INFINITY; }
    }
}

void head_score_watched(const head_score *kind, const prefill_head *h, const double *frequencies,
                        double *s, double *preference, double *scratch) {
    const int64_t T = h->n_tokens, before = T > kind->window ? T - kind->window : 0;
    switch (kind->kind) {
    case HEAD_SCORE_WINDOW:
        mean_attention(h, kind->window, scratch);
        ckvc_score_window((uint32_t)T, scratch, kind->pool, kind->norm ? h->value_norms : NULL, s);
        break;
    case HEAD_SCORE_LEARNED: early_form(kind->table, h, frequencies, s, scratch); return;
    case HEAD_SCORE_SNAPKV:
        mean_attention(h, kind->window, scratch);
        pool_values(scratch, before, kind->pool, true, s);
        break;
    case HEAD_SCORE_CAKE:
        cake(h, kind->window, before, scratch, preference);
        pool_values(scratch, before, kind->pool, false, s);
        break;
    case HEAD_SCORE_H2O: memcpy(s, h->column_sum, (size_t)T * sizeof *s); break;
    case HEAD_SCORE_TOVA: tova(h, s); break;
    case HEAD_SCORE_KEYDIFF: keydiff(h, s, scratch); break;
    default:
        assert(kind->kind == HEAD_SCORE_EXPECTED);
        expected_attention(h, frequencies, EXPECTED_SINKS, h->value_norms, s, scratch);
    }
    head_score_force(kind->first, kind->last, (uint32_t)T, s);
}

/* ---- all of a model's ---- */

static bool is_watched(head_score_kind kind) {
    return kind != HEAD_SCORE_PAPER && kind != HEAD_SCORE_KVZIP;
}

size_t head_scores_add(head_scores *h, head_score kind) {
    for (size_t i = 0; i < h->n; i++) {
        const head_score *k = &h->kinds[i];
        if (k->kind == kind.kind && k->window == kind.window && k->pool == kind.pool &&
            k->norm == kind.norm && k->first == kind.first && k->last == kind.last &&
            (k->table ? k->table->theta : NULL) == (kind.table ? kind.table->theta : NULL)) {
            return i;
        }
    }
    CKVC_GROW(h->kinds, h->cap, h->n + 1);
    CKVC_GROW(h->values, h->cap_values, h->n + 1);
    h->kinds[h->n] = kind;
    h->values[h->n] = NULL;
    if (is_watched(kind.kind) && h->watcher.n_rows < (kind.window ? kind.window : 1)) {
        h->watcher.n_rows = kind.window ? kind.window : 1;
    }
    h->watcher.queries |= kind.kind == HEAD_SCORE_EXPECTED;
    h->watcher.column_sum |= kind.kind == HEAD_SCORE_H2O;
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
    h->preference = reserve(h, 3 * (size_t)h->n_layers);
    for (size_t i = 0; i < h->n; i++) {
        const head_score_kind kind = h->kinds[i].kind;
        const size_t n = head_score_scratch(kind, T, (size_t)shape->head_dim,
                                            (size_t)(shape->n_heads / shape->n_kv_heads));
        most = n > most ? n : most;
        h->values[i] = reserve(h, all);
        if (kind != HEAD_SCORE_LEARNED) { continue; }
        if (!h->norms) { h->norms = reserve(h, all); }
        if (h->kinds[i].window && !h->layer_attention) {
            h->layer_attention = reserve(h, h->n_layers * T);
        }
    }
    h->scratch = reserve(h, most);
    if (h->repeat) { h->more = reserve(h, all); }
}

void head_scores_fini(head_scores *h) {
    for (size_t i = 0; i < h->n; i++) { free(h->values[i]); }
    CKVC_FREE(h->values, h->kinds, h->preference, h->more, h->scratch, h->layer_attention,
              h->norms);
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
        const bool whole_layer = h->kinds[i].kind == HEAD_SCORE_TOVA;
        if (!is_watched(h->kinds[i].kind)) { continue; }
        head_score_watched(&h->kinds[i], head, h->frequencies,
                           head_scores_at(h, i, l, whole_layer ? 0 : g),
                           h->preference + h->n_layers + 2 * l, h->scratch);
    }
}

const prefill_watcher *head_scores_watch(head_scores *h, const session *s) {
    if (h->watcher.n_rows == 0) { return NULL; }
    h->frequencies = session_key_frequencies(s);
    h->watcher.see = see;
    h->watcher.ctx = h;
    memset(h->preference, 0, 3 * (size_t)h->n_layers * sizeof *h->preference);
    return &h->watcher;
}

ckvc_status head_scores_finish(head_scores *h, session *s, const int32_t *tokens,
                               const prefill_stats *stats, ckvc_err *err) {
    const uint32_t T = h->n_tokens = (uint32_t)stats->n_tokens, heads = h->n_layers * h->n_heads;
    for (uint32_t l = 0; h->n && l < h->n_layers; l++) {
        const double *of = h->preference + h->n_layers + 2 * (size_t)l;
        h->preference[l] = of[0] * of[1];
    }
    for (size_t i = 0; i < h->n; i++) {
        const head_score_kind kind = h->kinds[i].kind;
        const bool learned = kind == HEAD_SCORE_LEARNED;
        if (learned) { finish_learned(h, i, stats->alpha); }
        if (kind == HEAD_SCORE_KVZIP) {
            CKVC_TRY(repeat_targets(h->repeat, s, tokens, T, h->values[i], h->more, err));
        }
        for (uint32_t u = 0; (learned || !is_watched(kind)) && u < heads; u++) {
            double *score = h->values[i] + (size_t)u * T;
            if (kind == HEAD_SCORE_PAPER) {
                ckvc_score_paper(T, stats->alpha_f32, stats->rho + (size_t)u * T, 1.0, score);
            }
            head_score_force(h->kinds[i].first, h->kinds[i].last, T, score);
        }
    }
    return CKVC_OK;
}
