/* Counted operations: see flops.h. */
#include "tests/bench/stages/flops.h"

/* One row through a layer's products: queries and output; keys and values; the MLP's three. */
static double row_q(const model_shape *s) { return 2.0 * s->width * s->n_heads * s->head_dim; }

static double row_kv(const model_shape *s) { return 4.0 * s->width * s->n_kv_heads * s->head_dim; }

static double row_behind_attention(const model_shape *s) /* output product and MLP */
{
    return row_q(s) + 6.0 * s->width * s->intermediate;
}

/* Scores and mix of one query row against a key. */
static double row_key(const model_shape *s) { return 4.0 * s->n_heads * s->head_dim; }

/* Keys that rows first ... n-1 of a sequence see together; window 0: none slides. */
static double window_keys(int32_t window, int64_t first, int64_t n) {
    double keys = 0;
    for (int64_t i = first; i < n; i++) {
        keys += (double)(window > 0 && i + 1 > window ? window : i + 1);
    }
    return keys;
}

static double causal_keys(const model_shape *s, int32_t layer, int64_t first, int64_t n) {
    return window_keys(model_shape_window(s, layer), first, n);
}

double flops_attention(int32_t n_heads, int32_t head_dim, int32_t window, int64_t T) {
    return 4.0 * n_heads * head_dim * window_keys(window, 0, T);
}

double flops_prefill(const model_shape *s, int64_t T, int64_t W) {
    const int32_t last = s->n_layers - 1;
    double rows = (double)T, top = (double)(W + 1), sum = 2.0 * (double)W * s->width * s->vocab;
    for (int32_t l = 0; l < last; l++) {
        sum += rows * (row_q(s) + row_kv(s) + row_behind_attention(s)) +
               row_key(s) * causal_keys(s, l, 0, T);
    }
    return sum + rows * row_kv(s) + top * (row_q(s) + row_behind_attention(s)) +
           row_key(s) * causal_keys(s, last, T - W - 1, T);
}

static double own_keys(int64_t rows) { return (double)rows * (double)(rows + 1) / 2.0; }

double flops_kept(int32_t n_heads, int32_t head_dim, double n_kept, int64_t rows) {
    return 4.0 * n_heads * head_dim * ((double)rows * n_kept + own_keys(rows));
}

static double head(const model_shape *s, int64_t rows) {
    return 2.0 * (double)rows * s->width * s->vocab;
}

static double rollout_layer(const model_shape *s, int64_t rows, double n_kept) {
    return (double)rows * (row_q(s) + row_kv(s) + row_behind_attention(s)) +
           flops_kept(s->n_heads, s->head_dim, n_kept, rows);
}

double flops_rollout(const model_shape *s, int64_t T, int64_t C, const uint32_t *n_kept) {
    double sum = head(s, C - 1);
    for (int32_t l = 0; l < s->n_layers; l++) {
        sum += rollout_layer(s, C - 1, n_kept ? (double)n_kept[l] : (double)T);
    }
    return sum;
}

double flops_demand(const model_shape *s, int64_t T, int64_t W, int64_t rows) {
    const double mix = row_key(s) / 2 * ((double)rows * (double)T + own_keys(rows));
    return flops_prefill(s, T, W) + s->n_layers * rollout_layer(s, rows, (double)T) -
           (double)rows * row_behind_attention(s) - mix;
}

double flops_variant(const model_shape *s, int64_t C, int32_t layer, uint32_t n_kept_own,
                     const uint32_t *n_kept) {
    int64_t rows = C - 1;
    double sum = head(s, rows) + (double)rows * row_behind_attention(s) +
                 row_key(s) * ((double)rows * n_kept_own + own_keys(rows));
    for (int32_t l = layer + 1; l < s->n_layers; l++) {
        sum += rollout_layer(s, rows, (double)n_kept[l]);
    }
    return sum;
}

double flops_sweep(const model_shape *s, const prompt_sets *k, const variant_list *v, uint32_t C) {
    uint32_t n_kept[MODEL_LAYERS_MAX];
    double total = flops_rollout(s, k->n_tokens, C, NULL); /* the full cache's */
    for (uint32_t b = 0; b < k->n_budgets; b++) {
        if (v->group[b] != b) { continue; }
        for (uint32_t l = 0; l < k->n_layers; l++) { n_kept[l] = prompt_sets_at(k, b, l)->n_kept; }
        total += flops_rollout(s, k->n_tokens, C, n_kept);
        for (uint32_t i = 0; i < v->n; i++) {
            const variant *item = &v->items[i];
            if (v->group[item->budget] == b) {
                total += flops_variant(s, C, (int32_t)item->layer, item->offsets[1], n_kept);
            }
        }
    }
    return total;
}
