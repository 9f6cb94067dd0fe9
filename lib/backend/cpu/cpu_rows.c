/* Operations of the CPU backend that work row by row. */
#include <assert.h>
#include <math.h>
#include <string.h>

#include "lib/backend/cpu/cpu.h"
#include "lib/base/sizes.h"

/* With fewer values than this the calling thread does the work by itself, because waking the others
 * takes longer. No result depends on it. */
#define PARALLEL_MIN 65536

typedef struct row_job {
    void (*row)(const struct row_job *j, int64_t row);
    int64_t n_rows; /* of all lanes */
    const float *a, *b;
    float *y;
    int64_t width;
    double eps;
    const be_attention_shape *s;
    const rope_table *rope;
    be_rows at;
    int64_t lane_rows; /* of a lane, padding included */
    const be_cache *cache;
    double *norm;
} row_job;

static void rows_task(void *ctx, int64_t task, int worker) {
    (void)worker;
    const row_job *j = ctx;
    const int64_t end = (task + 1) * BE_ROW_TILE;
    for (int64_t r = task * BE_ROW_TILE; r < end && r < j->n_rows; r++) { j->row(j, r); }
}

/* Runs tasks of BE_ROW_TILE rows on the pool, or all of them here when there is little to do. */
static void run_rows(backend *be, row_job *job, int64_t values_per_row) {
    const int64_t n_tasks = cpu_pieces(job->n_rows, BE_ROW_TILE);
    if (job->n_rows * values_per_row >= PARALLEL_MIN) {
        ckvc_pool_run(be->pool, n_tasks, rows_task, job);
        return;
    }
    for (int64_t t = 0; t < n_tasks; t++) { rows_task(job, t, 0); }
}

/* Rows after n_rows, up to the next whole tile, become 0, so that padding never contains numbers of
 * an earlier prompt (such as a NaN). */
void cpu_embed(backend *be, const be_weight *table, const int32_t *tokens, int64_t n_rows,
               be_buf *x) {
    (void)be;
    const size_t width = (size_t)table->m.cols;
    const int64_t rows = be_padded_rows(n_rows);
    assert((size_t)rows * width <= x->n);
    for (int64_t r = 0; r < n_rows; r++) {
        assert(tokens[r] >= 0 && tokens[r] < table->m.rows);
        cpu_weight_read(&table->m, tokens[r], 1, x->data + (size_t)r * width);
    }
    memset(x->data + (size_t)n_rows * width, 0, (size_t)(rows - n_rows) * width * sizeof(float));
}

static void rmsnorm_row(const row_job *j, int64_t r) {
    kernel_rmsnorm(j->a + r * j->width, j->b, j->y + r * j->width, j->width, j->eps);
}

static void rmsnorm_add_row(const row_job *j, int64_t r) {
    kernel_rmsnorm_add(j->a + r * j->width, j->b, j->y + r * j->width, j->width, j->eps);
}

void cpu_rmsnorm(backend *be, const be_buf *x, int64_t n_rows, const be_weight *w, float eps,
                 bool add, be_buf *y) {
    const int64_t width = w->m.rows * w->m.cols;
    assert(w->data && (size_t)(n_rows * width) <= x->n && (size_t)(n_rows * width) <= y->n);
    row_job job = {.row = add ? rmsnorm_add_row : rmsnorm_row,
                   .n_rows = n_rows,
                   .a = x->data,
                   .b = w->data,
                   .y = y->data,
                   .width = width,
                   .eps = (double)eps};
    run_rows(be, &job, width);
}

static void silu_row(const row_job *j, int64_t r) {
    const int64_t at = r * j->width;
    kernel_silu_mul(j->a + at, j->b + at, j->y + at, j->width);
}

static void gelu_row(const row_job *j, int64_t r) {
    const int64_t at = r * j->width;
    kernel_gelu_mul(j->a + at, j->b + at, j->y + at, j->width);
}

void cpu_gate_mul(backend *be, bool gelu, const be_buf *gate, const be_buf *up, int64_t n_rows,
                  int64_t width, be_buf *y) {
    const size_t n = (size_t)(n_rows * width);
    assert(n <= gate->n && n <= up->n && n <= y->n);
    row_job job = {.row = gelu ? gelu_row : silu_row,
                   .n_rows = n_rows,
                   .a = gate->data,
                   .b = up->data,
                   .y = y->data,
                   .width = width};
    run_rows(be, &job, width);
}

void cpu_copy_rows(backend *be, const be_buf *src, int64_t src_row, be_buf *dst, int64_t dst_row,
                   int64_t n_rows, int64_t width) {
    (void)be;
    const size_t from = (size_t)(src_row * width), to = (size_t)(dst_row * width),
                 n = (size_t)(n_rows * width);
    assert(ckvc_span_ok(from, n, src->n) && ckvc_span_ok(to, n, dst->n));
    memmove(dst->data + to, src->data + from, n * sizeof *dst->data);
}

/* ---- positions ---- */

static bool made_from(const rope_table *t, const double *inv_freq, int32_t half) {
    return t->half == half && t->inv_freq &&
           memcmp(t->inv_freq, inv_freq, (size_t)half * sizeof *inv_freq) == 0;
}

const rope_table *cpu_rope_reserve(cpu_backend *c, const double *inv_freq, int32_t half,
                                   int64_t n_positions) {
    if (!made_from(&c->rope[c->rope_last], inv_freq, half)) { c->rope_last = 1 - c->rope_last; }
    rope_table *t = &c->rope[c->rope_last];
    const size_t bytes = (size_t)half * sizeof *inv_freq;
    const bool fits = t->half == half && t->inv_freq, same = made_from(t, inv_freq, half);
    if (same && n_positions <= t->n_positions) { return t; }
    const int64_t rounded = (n_positions + 511) / 512 * 512;
    if (!fits || rounded > t->capacity) {
        CKVC_FREE(t->inv_freq, t->cos, t->sin);
        const size_t n = (size_t)rounded * (size_t)half;
        *t = (rope_table){.half = half,
                          .capacity = rounded,
                          .inv_freq = ckvc_alloc(bytes, 1),
                          .cos = ckvc_alloc_aligned(n, sizeof *t->cos),
                          .sin = ckvc_alloc_aligned(n, sizeof *t->sin)};
    } else if (!same) { /* other frequencies (dynamic scaling) use the same memory */
        t->n_positions = 0;
    }
    memcpy(t->inv_freq, inv_freq, bytes);
    for (; t->n_positions < rounded; t->n_positions++) {
        for (int32_t i = 0; i < half; i++) {
            const double angle = (double)t->n_positions * inv_freq[i];
            t->cos[t->n_positions * half + i] = (float)cos(angle);
            t->sin[t->n_positions * half + i] = (float)sin(angle);
        }
    }
    return t;
}

static row_job lane_job(backend *be, const be_attention_shape *s, const double *inv_freq,
                        const be_rows *rows) {
    const int64_t lane_rows = be_padded_rows(rows->n_rows);
    return (row_job){
        .n_rows = rows->n_lanes * lane_rows,
        .s = s,
        .rope = cpu_rope_reserve(cpu_of(be), inv_freq, s->head_dim / 2, rows->row0 + rows->n_rows),
        .at = *rows,
        .lane_rows = lane_rows};
}

static void rotate(const row_job *j, float *x, int64_t r) {
    const int64_t at = (j->at.row0 + r) * j->rope->half;
    kernel_rope(x, j->rope->cos + at, j->rope->sin + at, j->rope->half);
}

static void rope_row(const row_job *j, int64_t row) {
    const int64_t r = row % j->lane_rows, n_heads = j->s->n_heads;
    for (int64_t h = 0; h < n_heads && r < j->at.n_rows; h++) {
        rotate(j, j->y + (row * n_heads + h) * j->s->head_dim, r);
    }
}

void cpu_rope(backend *be, const be_attention_shape *s, const double *inv_freq, const be_rows *rows,
              be_buf *q) {
    const int64_t width = (int64_t)s->n_heads * s->head_dim;
    row_job job = lane_job(be, s, inv_freq, rows);
    job.row = rope_row;
    job.y = q->data;
    assert((size_t)(job.n_rows * width) <= q->n);
    run_rows(be, &job, width);
}

/* Slots after the last row, up to the next whole tile, become 0: attention multiplies them by
 * weights of 0, and 0 * NaN is NaN. */
static void cache_row(const row_job *j, int64_t row) {
    static const float nothing[CACHE_HEAD_MAX];
    const int64_t d = j->s->head_dim, n_kv = j->s->n_kv_heads, lane = row / j->lane_rows,
                  r = row % j->lane_rows;
    float key[CACHE_HEAD_MAX];
    for (int64_t g = 0; g < n_kv; g++) {
        const int64_t from = (row * n_kv + g) * d, to = (lane * n_kv + g) * j->cache->capacity + r;
        key_run slot =
            cpu_rows_of(j->cache->k, j->cache->v, j->cache->formats, j->s->head_dim, to, 1);
        if (r >= j->at.n_rows) {
            cpu_hold_row(&slot, j->s->head_dim, 0, nothing, nothing);
            continue;
        }
        slot.mean = cpu_mean_of(j->cache->formats, &j->cache->means, j->rope, j->s->head_dim, g,
                                NULL, j->at.row0 + r);
        memcpy(key, j->a + from, (size_t)d * sizeof *key);
        rotate(j, key, r);
        cpu_hold_row(&slot, j->s->head_dim, 0, key, j->b + from);
    }
}

void cpu_cache_rows(backend *be, const be_attention_shape *s, const double *inv_freq,
                    const be_rows *rows, const be_buf *k, const be_buf *v, const be_cache *cache) {
    const int64_t width = (int64_t)s->n_kv_heads * s->head_dim;
    row_job job = lane_job(be, s, inv_freq, rows);
    job.row = cache_row;
    job.a = k->data;
    job.b = v->data;
    job.cache = cache;
    assert(job.lane_rows <= cache->capacity && (size_t)(job.n_rows * width) <= k->n &&
           k->n == v->n);
    run_rows(be, &job, width);
}

static void norm_row(const row_job *j, int64_t t) {
    const int64_t d = j->s->head_dim;
    for (int64_t g = 0; g < j->s->n_kv_heads; g++) {
        j->norm[g * j->n_rows + t] =
            kernel_norm(j->cache->v->data + (g * j->cache->capacity + t) * d, d);
    }
}

ckvc_status cpu_value_norms(backend *be, const be_attention_shape *s, int64_t n,
                            const be_cache *cache, double *norm, ckvc_err *err) {
    row_job job = {.row = norm_row, .n_rows = n, .s = s, .cache = cache};
    job.norm = norm;
    run_rows(be, &job, (int64_t)s->n_kv_heads * s->head_dim);
    return cpu_sync(be, err);
}
