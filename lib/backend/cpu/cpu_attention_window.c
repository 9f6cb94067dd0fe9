/* Attention of the last rows of a prompt, as its positions see it: their sum over rows and heads
 * (window_mass), or the rows themselves (window_rows). */
#include <assert.h>
#include <string.h>

#include "lib/backend/cpu/cpu.h"

typedef struct window_job {
    cpu_backend *c;
    const be_attention_shape *s;
    const be_window *w;
    const float *q; /* [..][H*D], the first row is w->row0 */
    const be_cache *cache;
    double *head_mass; /* [H][n], or NULL */
    float *rows;       /* [H][window][n], or NULL */
} window_job;

/* Rows j >= first of the block that begins at row0. */
static void window_block(const window_job *a, int64_t h, int64_t row0, int64_t first,
                         float *score) {
    const be_attention_shape *s = a->s;
    const int64_t n_tokens = a->w->n, k0 = cpu_first_key(s, row0), n_keys = row0 + BE_ROW_TILE - k0,
                  stride = cpu_score_stride(n_keys), g = h / (s->n_heads / s->n_kv_heads);
    cpu_scores(a->c, s, a->q + ((row0 - a->w->row0) * s->n_heads + h) * s->head_dim,
               a->cache->k->data + (g * a->cache->capacity + k0) * s->head_dim, n_keys, score,
               stride);
    for (int64_t j = row0 > first ? row0 : first; j < row0 + BE_ROW_TILE && j < n_tokens; j++) {
        const int64_t lo = cpu_first_seen(s, j), n = j + 1 - lo;
        float *row = score + (j - row0) * stride + lo - k0;
        const double inverse = 1.0 / kernel_softmax(row, n, NULL);
        if (a->head_mass) { kernel_mass_add(a->head_mass + h * n_tokens + lo, row, n, inverse); }
        if (a->rows) {
            float *out = a->rows + (h * a->w->window + j - first) * n_tokens;
            memset(out, 0, (size_t)n_tokens * sizeof *out);
            memcpy(out + lo, row, (size_t)n * sizeof *out);
            kernel_scale(out + lo, n, (float)inverse);
        }
    }
}

static void window_task(void *ctx, int64_t h, int worker) {
    const window_job *a = ctx;
    const int64_t first = a->w->n - a->w->window;
    if (a->head_mass) {
        memset(a->head_mass + h * a->w->n, 0, (size_t)a->w->n * sizeof *a->head_mass);
    }
    for (int64_t row0 = first / BE_ROW_TILE * BE_ROW_TILE; row0 < a->w->n; row0 += BE_ROW_TILE) {
        window_block(a, h, row0, first, a->c->worker[worker].data);
    }
}

static void run_window(window_job *a, size_t shared) {
    const be_window *w = a->w;
    const int64_t rows = be_padded_rows(w->n);
    assert(w->window <= w->n && rows <= a->cache->capacity && w->row0 % BE_ROW_TILE == 0 &&
           w->row0 <= w->n - w->window);
    cpu_need(a->c, (size_t)(BE_ROW_TILE * cpu_score_stride(rows)), shared);
    if (shared) { a->head_mass = (double *)a->c->shared.data; }
    ckvc_pool_run(a->c->base.pool, a->s->n_heads, window_task, a);
}

ckvc_status cpu_window_mass(backend *be, const be_attention_shape *s, const be_window *w,
                            const be_buf *q, const be_cache *cache, double *mass, ckvc_err *err) {
    const int64_t n = w->n, group = s->n_heads / s->n_kv_heads;
    window_job a = {.c = cpu_of(be), .s = s, .w = w, .q = q->data, .cache = cache};
    run_window(&a, 2 * (size_t)(s->n_heads * n));
    for (int64_t g = 0; g < s->n_kv_heads; g++) {
        double *sum = mass + g * n;
        memcpy(sum, a.head_mass + g * group * n, (size_t)n * sizeof *sum);
        for (int64_t h = g * group + 1; h < (g + 1) * group; h++) {
            for (int64_t t = 0; t < n; t++) { sum[t] += a.head_mass[h * n + t]; }
        }
    }
    return cpu_sync(be, err);
}

/* The job writes through rows. */
ckvc_status cpu_window_rows(backend *be, const be_attention_shape *s, const be_window *w,
                            const be_buf *q, const be_cache *cache,
                            float *rows, /* NOLINT(readability-non-const-parameter) */
                            ckvc_err *err) {
    window_job a = {.c = cpu_of(be), .s = s, .w = w, .q = q->data, .cache = cache, .rows = rows};
    run_window(&a, 0);
    return cpu_sync(be, err);
}

void cpu_window_scratch(const be_attention_shape *s, const be_extent *most, size_t *per_worker,
                        size_t *shared) {
    *per_worker = (size_t)(BE_ROW_TILE * cpu_score_stride(be_padded_rows(most->n_prompt)));
    *shared = (size_t)(2 * s->n_heads * most->n_prompt);
}
