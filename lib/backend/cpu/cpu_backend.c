/* The CPU backend: state, buffers, weights, and the operations that work row by row. */
#include "lib/backend/cpu/cpu_backend.h"

#include <assert.h>
#include <cblas.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "lib/backend/cpu/cpu.h"
#include "lib/backend/cpu/cpu_selfcheck.h"
#include "lib/base/memory.h"
#include "lib/base/sizes.h"

/* Work below this many values runs on the calling thread: waking the others costs more. Changes no
 * result. */
#define PARALLEL_MIN 65536

/* ---- scratch ---- */

static bool grow(cpu_backend *c, cpu_scratch *s, size_t need) {
    if (need <= s->n) { return true; }
    need = (need + 16383) / 16384 * 16384;
    float *data = ckvc_alloc_aligned(need, sizeof *data);
    free(s->data);
    *s = (cpu_scratch){data, need};
    return true;
}

bool cpu_reserve(cpu_backend *c, size_t per_worker, size_t shared) {
    for (int i = 0; i < c->n_threads; i++) {
        if (!grow(c, &c->worker[i], per_worker)) { return false; }
    }
    return grow(c, &c->shared, shared);
}

/* ---- life ---- */

static void destroy(backend *be) {
    cpu_backend *c = cpu_of(be);
    for (int i = 0; c->worker && i < c->n_threads; i++) {
        free(c->worker[i].data);
    }
    free(c->worker);
    free(c->shared.data);
    free(c->rope.inv_freq);
    free(c->rope.cos);
    free(c->rope.sin);
    while (c->n_spare > 0) {
        free(c->spare[--c->n_spare].data);
    }
    cpu_bf16_destroy(c);
    free(c);
}

static ckvc_status cpu_sync(backend *be, ckvc_err *err) {
    cpu_backend *c = cpu_of(be);
    if (c->failure.status == CKVC_OK) { return CKVC_OK; }
    const ckvc_status rc = ckvc_fail(err, c->failure.status, "%s", c->failure.text);
    c->failure = (ckvc_err){0};
    return rc;
}

static ckvc_status buf_create(backend *be, size_t n, be_buf **out, ckvc_err *err) {
    *out = NULL;
    size_t bytes;
    if (!ckvc_mul_size(n, sizeof(float), &bytes)) {
        return ckvc_fail(err, CKVC_E_MEMORY,
                         "a buffer of %zu values does not fit the address space", n);
    }
    be_buf *b = ckvc_calloc(1, sizeof *b);
    float *data = b ? ckvc_alloc_aligned(n ? n : 1, sizeof *data) : NULL;
    memset(data, 0, bytes);
    *b = (be_buf){data, n, data, n};
    cpu_of(be)->bytes_now += bytes;
    *out = b;
    return CKVC_OK;
}

static void buf_free(backend *be, be_buf *b) {
    if (b == NULL) { return; }
    cpu_of(be)->bytes_now -= b->own_n * sizeof *b->own;
    free(b->own);
    free(b);
}

static void buf_view(backend *be, be_buf *view, const be_buf *of, size_t offset, size_t n) {
    (void)be;
    assert(view->own_n == 0 && ckvc_span_ok(offset, n, of->n));
    view->data = of->data + offset;
    view->n = n;
}

static void buf_write(backend *be, be_buf *dst, size_t offset, const float *src, size_t n) {
    (void)be;
    assert(ckvc_span_ok(offset, n, dst->n));
    memcpy(dst->data + offset, src, n * sizeof *src);
}

static ckvc_status buf_read(backend *be, const be_buf *src, size_t offset, float *dst, size_t n,
                            ckvc_err *err) {
    assert(ckvc_span_ok(offset, n, src->n));
    memcpy(dst, src->data + offset, n * sizeof *dst);
    return cpu_sync(be, err);
}

/* ---- weights ---- */

static ckvc_status weight_create_blocks(backend *be, const void *bytes, be_type type, int64_t rows,
                                        int64_t cols, int64_t block, int64_t stride,
                                        be_weight **out, ckvc_err *err) {
    cpu_backend *c = cpu_of(be);
    assert(block >= 1 && stride >= block);
    be_weight *w = *out = ckvc_calloc(1, sizeof **out);
    if (w == NULL) { return ckvc_fail_memory(err, "a weight", sizeof **out); }
    *w = (be_weight){
        .rows = rows, .cols = cols, .block = block, .stride = stride, .type = type, .bytes = bytes};
    const ckvc_status rc = c->bf16 && rows > 0 && cols > 1 ? cpu_bf16_expect(c, w, err) : CKVC_OK;
    if (rc != CKVC_OK) {
        free(w);
        *out = NULL;
    }
    return rc;
}

/* float32 values that its copy takes. */
static size_t copy_floats(const cpu_backend *c, const be_weight *w) {
    return w->bf16 ? cpu_bf16_copy_floats(c, w) : (size_t)(w->rows * w->cols);
}

static ckvc_status weight_create(backend *be, const void *bytes, be_type type, int64_t rows,
                                 int64_t cols, be_weight **out, ckvc_err *err) {
    const int64_t block = rows ? rows : 1;
    return weight_create_blocks(be, bytes, type, rows, cols, block, block, out, err);
}

static void weight_free(backend *be, be_weight *w) {
    if (w == NULL) { return; }
    if (w->own) { cpu_of(be)->bytes_now -= copy_floats(cpu_of(be), w) * sizeof *w->own; }
    cpu_bf16_drop(w);
    free(w->pieces);
    free(w->own);
    free(w);
}

static void weight_limit(backend *be, size_t bytes) {
    cpu_of(be)->bytes_max = bytes;
}

/* n values from value `first` of row `row`, as float32; they may run on into the rows behind it of
 * the same block. */
static void weight_read(const be_weight *w, int64_t row, int64_t first, float *dst, int64_t n) {
    const int64_t at = (row / w->block * w->stride + row % w->block) * w->cols + first;
    if (w->type == BE_F32) {
        memcpy(dst, (const char *)w->bytes + at * 4, (size_t)n * 4);
        return;
    }
    uint16_t piece[4096]; /* a tensor in a file need not be aligned to its type */
    for (int64_t i = 0; i < n; i += 4096) {
        const int64_t m = i + 4096 < n ? 4096 : n - i;
        memcpy(piece, (const char *)w->bytes + (at + i) * 2, (size_t)m * 2);
        if (w->type == BE_BF16) {
            kernel_from_bf16(piece, dst + i, m);
        } else {
            kernel_from_f16(piece, dst + i, m);
        }
    }
}

#define CONVERT_TILE 262144 /* values a task, rounded up to whole rows */

typedef struct convert_job {
    const be_weight *w;
    int64_t rows; /* a task */
} convert_job;

static void convert_task(void *ctx, int64_t task, int worker) {
    (void)worker;
    const convert_job *job = ctx;
    const be_weight *w = job->w;
    const int64_t end = (task + 1) * job->rows < w->rows ? (task + 1) * job->rows : w->rows;
    for (int64_t row = task * job->rows; row < end;) {
        const int64_t rest = w->block - row % w->block, n = row + rest < end ? rest : end - row;
        weight_read(w, row, 0, w->own + row * w->cols, n * w->cols);
        row += n;
    }
}

/* float32 that lies aligned and in one piece in the file is used in place; anything else is
 * converted into a copy, and so is every matrix that is multiplied in bf16. */
static ckvc_status weight_acquire(backend *be, be_weight *w, ckvc_err *err) {
    cpu_backend *c = cpu_of(be);
    if (w->f32) { return CKVC_OK; }
    if (!w->bf16 && w->type == BE_F32 && w->block == w->stride &&
        (uintptr_t)w->bytes % sizeof(float) == 0) {
        w->f32 = w->bytes;
        return CKVC_OK;
    }
    const size_t n = copy_floats(c, w), bytes = n * sizeof *w->own;
    for (int i = 0; i < c->n_spare && w->own == NULL; i++) {
        if (c->spare[i].n == n) {
            w->own = c->spare[i].data;
            c->spare[i] = c->spare[--c->n_spare];
        }
    }
    if (w->own == NULL) {
        w->own = ckvc_alloc_aligned(n ? n : 1, sizeof *w->own);
        c->bytes_now += bytes;
    }
    if (w->bf16) { return cpu_bf16_pack(c, w, weight_read, err); }
    convert_job job = {w, w->cols < CONVERT_TILE ? (CONVERT_TILE + w->cols - 1) / w->cols : 1};
    ckvc_pool_run(c->base.pool, (w->rows + job.rows - 1) / job.rows, convert_task, &job);
    w->f32 = w->own;
    return CKVC_OK;
}

/* While everything fits the limit a copy stays: nothing is won by converting it again. Beyond it
 * the memory waits for the next weight of its size, so that from the second pass over a model on
 * nothing is allocated: what is taken is then what fits the limit, or the buffers, the largest
 * layer and the head, whichever is more. */
static void weight_release(backend *be, be_weight *w) {
    cpu_backend *c = cpu_of(be);
    if (w->own == NULL || c->bytes_max == 0 || c->bytes_now <= c->bytes_max) { return; }
    cpu_bf16_drop(w);
    const size_t n = copy_floats(c, w);
    int n_same = 0;
    for (int i = 0; i < c->n_spare; i++) {
        n_same += c->spare[i].n == n;
    }
    if (n_same < SPARE_PER_SIZE && c->n_spare < SPARE_COPIES) {
        c->spare[c->n_spare++] = (spare_copy){w->own, n};
    } else {
        c->bytes_now -= n * sizeof *w->own;
        free(w->own);
    }
    w->own = NULL;
    w->f32 = NULL;
}

/* ---- rows ---- */

/* Rows behind n_rows up to the next whole tile are zeroed, so that padding never carries an old
 * prompt's numbers (a NaN, say). */
static void embed(backend *be, const be_weight *table, const int32_t *tokens, int64_t n_rows,
                  be_buf *x) {
    (void)be;
    const size_t width = (size_t)table->cols;
    const int64_t rows = be_padded_rows(n_rows);
    assert((size_t)rows * width <= x->n);
    for (int64_t r = 0; r < n_rows; r++) {
        assert(tokens[r] >= 0 && tokens[r] < table->rows);
        weight_read(table, tokens[r], 0, x->data + (size_t)r * width, table->cols);
    }
    memset(x->data + (size_t)n_rows * width, 0, (size_t)(rows - n_rows) * width * sizeof(float));
}

typedef struct row_job {
    const float *a, *b;
    float *y;
    int64_t n_rows, width;
    double eps;
    /* rope, cache_rows */
    const rope_table *rope;
    const be_attention_shape *s;
    int64_t pos0, capacity, lane_rows, n_tiles; /* n_tiles: of a lane */
    const float *k, *v;
    float *cache_k, *cache_v;
    /* value_norms */
    double *norm;
} row_job;

/* Tasks of BE_ROW_TILE rows over the pool, or all of them here when there is little to do. */
static void run_rows(cpu_backend *c, ckvc_task_fn fn, row_job *job, int64_t rows, int64_t values) {
    const int64_t n_tasks = (rows + BE_ROW_TILE - 1) / BE_ROW_TILE;
    if (values >= PARALLEL_MIN) {
        ckvc_pool_run(c->base.pool, n_tasks, fn, job);
    } else {
        for (int64_t t = 0; t < n_tasks; t++) {
            fn(job, t, 0);
        }
    }
}

static int64_t tile_end(const row_job *j, int64_t task) {
    return (task + 1) * BE_ROW_TILE < j->n_rows ? (task + 1) * BE_ROW_TILE : j->n_rows;
}

static void rmsnorm_task(void *ctx, int64_t task, int worker) {
    (void)worker;
    const row_job *j = ctx;
    for (int64_t r = task * BE_ROW_TILE; r < tile_end(j, task); r++) {
        kernel_rmsnorm(j->a + r * j->width, j->b, j->y + r * j->width, j->width, j->eps);
    }
}

static void rmsnorm(backend *be, const be_buf *x, int64_t n_rows, const be_weight *w, float eps,
                    be_buf *y) {
    const int64_t width = w->rows * w->cols;
    assert(w->f32 && (size_t)(n_rows * width) <= x->n && (size_t)(n_rows * width) <= y->n);
    row_job job = {.a = x->data,
                   .b = w->f32,
                   .y = y->data,
                   .n_rows = n_rows,
                   .width = width,
                   .eps = (double)eps};
    run_rows(cpu_of(be), rmsnorm_task, &job, n_rows, n_rows * width);
}

static void silu_task(void *ctx, int64_t task, int worker) {
    (void)worker;
    const row_job *j = ctx;
    const int64_t begin = task * BE_ROW_TILE * j->width, end = tile_end(j, task) * j->width;
    kernel_silu_mul(j->a + begin, j->b + begin, j->y + begin, end - begin);
}

static void silu_mul(backend *be, const be_buf *gate, const be_buf *up, int64_t n_rows,
                     int64_t width, be_buf *y) {
    assert((size_t)(n_rows * width) <= gate->n && (size_t)(n_rows * width) <= up->n &&
           (size_t)(n_rows * width) <= y->n);
    row_job job = {.a = gate->data, .b = up->data, .y = y->data, .n_rows = n_rows, .width = width};
    run_rows(cpu_of(be), silu_task, &job, n_rows, n_rows * width);
}

static void copy_rows(backend *be, const be_buf *src, int64_t src_row, be_buf *dst, int64_t dst_row,
                      int64_t n_rows, int64_t width) {
    (void)be;
    assert(ckvc_span_ok((size_t)(src_row * width), (size_t)(n_rows * width), src->n));
    assert(ckvc_span_ok((size_t)(dst_row * width), (size_t)(n_rows * width), dst->n));
    memmove(dst->data + dst_row * width, src->data + src_row * width,
            (size_t)(n_rows * width) * sizeof(float));
}

/* ---- positions ---- */

/* The table of angles for n_positions. false: no memory, as cpu_reserve. */
static bool rope_reserve(cpu_backend *c, const double *inv_freq, int32_t half,
                         int64_t n_positions) {
    rope_table *t = &c->rope;
    const bool same = t->half == half && t->inv_freq &&
                      memcmp(t->inv_freq, inv_freq, (size_t)half * sizeof *inv_freq) == 0;
    if (same && n_positions <= t->n_positions) { return true; }
    const int64_t rounded = (n_positions + 511) / 512 * 512;
    if (t->half == half && t->inv_freq &&
        rounded <= t->capacity) { /* other frequencies (dynamic scaling) in the same memory */
        memcpy(t->inv_freq, inv_freq, (size_t)half * sizeof *inv_freq);
        t->n_positions = same ? t->n_positions : 0;
    } else {
        const size_t n = (size_t)rounded * (size_t)half;
        double *own = ckvc_alloc((size_t)half, sizeof *own);
        float *cos_new = ckvc_alloc_aligned(n, sizeof *cos_new),
              *sin_new = ckvc_alloc_aligned(n, sizeof *sin_new);
        memcpy(own, inv_freq, (size_t)half * sizeof *own);
        free(t->inv_freq);
        free(t->cos);
        free(t->sin);
        *t = (rope_table){
            .half = half, .capacity = rounded, .inv_freq = own, .cos = cos_new, .sin = sin_new};
    }
    for (; t->n_positions < rounded; t->n_positions++) {
        for (int32_t i = 0; i < half; i++) {
            const double angle = (double)t->n_positions * inv_freq[i];
            t->cos[t->n_positions * half + i] = (float)cos(angle);
            t->sin[t->n_positions * half + i] = (float)sin(angle);
        }
    }
    return true;
}

/* A task is a row tile of a lane: *lane, and its rows [*begin, *end) there. */
static void lane_tile(const row_job *j, int64_t task, int64_t *lane, int64_t *begin, int64_t *end) {
    *lane = task / j->n_tiles;
    *begin = task % j->n_tiles * BE_ROW_TILE;
    *end = tile_end(j, task % j->n_tiles);
}

static void rope_task(void *ctx, int64_t task, int worker) {
    (void)worker;
    const row_job *j = ctx;
    const int64_t d = j->s->head_dim, n_heads = j->s->n_heads;
    int64_t lane, begin, end;
    lane_tile(j, task, &lane, &begin, &end);
    for (int64_t r = begin; r < end; r++) {
        const float *cos_row = j->rope->cos + (j->pos0 + r) * j->rope->half,
                    *sin_row = j->rope->sin + (j->pos0 + r) * j->rope->half;
        for (int64_t h = 0; h < n_heads; h++) {
            kernel_rope(j->y + ((lane * j->lane_rows + r) * n_heads + h) * d, cos_row, sin_row,
                        j->rope->half);
        }
    }
}

static void rope(backend *be, const be_attention_shape *s, const double *inv_freq, int64_t pos0,
                 int64_t n_rows, int64_t n_lanes, be_buf *q) {
    cpu_backend *c = cpu_of(be);
    if (!rope_reserve(c, inv_freq, s->head_dim / 2, pos0 + n_rows)) { return; }
    row_job job = {.y = q->data,
                   .n_rows = n_rows,
                   .lane_rows = be_padded_rows(n_rows),
                   .rope = &c->rope,
                   .s = s,
                   .pos0 = pos0};
    job.n_tiles = job.lane_rows / BE_ROW_TILE;
    assert((size_t)(n_lanes * job.lane_rows * s->n_heads * s->head_dim) <= q->n);
    run_rows(c, rope_task, &job, n_lanes * job.lane_rows,
             n_lanes * n_rows * s->n_heads * s->head_dim);
}

/* Slots behind the last row up to the next whole tile are zeroed: attention multiplies them by
 * weights of 0, and 0 * NaN is NaN. */
static void cache_task(void *ctx, int64_t task, int worker) {
    (void)worker;
    const row_job *j = ctx;
    const int64_t d = j->s->head_dim, n_kv = j->s->n_kv_heads;
    int64_t lane, begin, end;
    lane_tile(j, task, &lane, &begin, &end);
    for (int64_t g = 0; g < n_kv; g++) {
        float *k = j->cache_k + (lane * n_kv + g) * j->capacity * d,
              *v = j->cache_v + (lane * n_kv + g) * j->capacity * d;
        for (int64_t r = begin; r < end; r++) {
            const int64_t from = ((lane * j->lane_rows + r) * n_kv + g) * d;
            memcpy(k + r * d, j->k + from, (size_t)d * sizeof *k);
            memcpy(v + r * d, j->v + from, (size_t)d * sizeof *v);
            kernel_rope(k + r * d, j->rope->cos + (j->pos0 + r) * j->rope->half,
                        j->rope->sin + (j->pos0 + r) * j->rope->half, j->rope->half);
        }
        const size_t rest = (size_t)((begin + BE_ROW_TILE - end) * d) * sizeof *k;
        memset(k + end * d, 0, rest);
        memset(v + end * d, 0, rest);
    }
}

static void cache_rows(backend *be, const be_attention_shape *s, const double *inv_freq,
                       int64_t pos0, int64_t n_rows, int64_t n_lanes, const be_buf *k,
                       const be_buf *v, be_buf *cache_k, be_buf *cache_v, int64_t capacity) {
    cpu_backend *c = cpu_of(be);
    const int64_t row_width = s->n_kv_heads * s->head_dim;
    if (!rope_reserve(c, inv_freq, s->head_dim / 2, pos0 + n_rows)) { return; }
    row_job job = {.n_rows = n_rows,
                   .lane_rows = be_padded_rows(n_rows),
                   .rope = &c->rope,
                   .s = s,
                   .pos0 = pos0,
                   .capacity = capacity,
                   .k = k->data,
                   .v = v->data,
                   .cache_k = cache_k->data,
                   .cache_v = cache_v->data};
    job.n_tiles = job.lane_rows / BE_ROW_TILE;
    assert(job.lane_rows <= capacity && (size_t)(n_lanes * job.lane_rows * row_width) <= k->n &&
           k->n == v->n);
    assert((size_t)(n_lanes * capacity * row_width) <= cache_k->n && cache_k->n == cache_v->n);
    run_rows(c, cache_task, &job, n_lanes * job.lane_rows, n_lanes * n_rows * row_width);
}

static void norms_task(void *ctx, int64_t task, int worker) {
    (void)worker;
    const row_job *j = ctx;
    for (int64_t g = 0; g < j->s->n_kv_heads; g++) {
        for (int64_t t = task * BE_ROW_TILE; t < tile_end(j, task); t++) {
            j->norm[g * j->n_rows + t] =
                kernel_norm(j->a + (g * j->capacity + t) * j->width, j->width);
        }
    }
}

static ckvc_status value_norms(backend *be, const be_attention_shape *s, int64_t n,
                               const be_buf *cache_v, int64_t capacity, double *norm,
                               ckvc_err *err) {
    row_job job = {.a = cache_v->data,
                   .n_rows = n,
                   .width = s->head_dim,
                   .s = s,
                   .capacity = capacity,
                   .norm = norm};
    run_rows(cpu_of(be), norms_task, &job, n, n * s->n_kv_heads * s->head_dim);
    return cpu_sync(be, err);
}

/* ---- scratch of the largest calls ---- */

static void scratch_of(const cpu_backend *c, const be_attention_shape *s, const be_extent *most,
                       size_t *per_worker, size_t *shared) {
    size_t worker_head, shared_head;
    cpu_attention_scratch(c, s, most, per_worker, shared);
    cpu_head_scratch(c, most, &worker_head, &shared_head);
    *per_worker = *per_worker > worker_head ? *per_worker : worker_head;
    *shared = *shared > shared_head ? *shared : shared_head;
}

static ckvc_status reserve(backend *be, const be_attention_shape *s, const double *inv_freq,
                           const be_extent *most, ckvc_err *err) {
    size_t per_worker, shared;
    scratch_of(cpu_of(be), s, most, &per_worker, &shared);
    if (cpu_reserve(cpu_of(be), per_worker, shared)) {
        rope_reserve(cpu_of(be), inv_freq, s->head_dim / 2, most->n_prompt + most->n_rows);
    }
    return cpu_sync(be, err);
}

static size_t scratch_bytes(const backend *be, const be_attention_shape *s, const be_extent *most) {
    const cpu_backend *c = (const cpu_backend *)be;
    const size_t n_threads = (size_t)c->n_threads;
    size_t per_worker, shared;
    scratch_of(c, s, most, &per_worker, &shared);
    return (n_threads * per_worker + shared +
            (size_t)((most->n_prompt + most->n_rows) * s->head_dim)) *
               sizeof(float) +
           (c->bf16 ? cpu_bf16_scratch_bytes(c) : 0);
}

/* ---- which kernel ---- */

static bool is_one_of(const char *name, const char *const *names) {
    for (; *names; names++) {
        if (strcasecmp(name, *names) == 0) { return true; }
    }
    return false;
}

/* OpenBLAS chooses its kernel by CPU model when it is loaded, or as OPENBLAS_CORETYPE says. One
 * that leaves vector units idle is worth a warning, since it halves the speed. */
static void warn_of_slow_blas(backend *be, const char *core) {
#if defined(__x86_64__)
    static const char *const with_avx512[] = {"SkylakeX", "Cooperlake", "Sapphirerapids", NULL};
    static const char *const with_avx2[] = {"Haswell", "Zen", "Excavator", NULL};
    __builtin_cpu_init();
    if (is_one_of(core, with_avx512)) { return; }
    const bool has_avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl");
    if (!has_avx512 && (!__builtin_cpu_supports("avx2") || is_one_of(core, with_avx2))) { return; }
    const char *unused = has_avx512 ? "AVX-512" : "AVX2", *variable = "OPENBLAS_CORETYPE";
    const char *preset = getenv(variable);
    if (!preset) { preset = getenv(variable = "OPENBLAS_L2_SIZE"); }
    char advice[128];
    if (preset) {
        snprintf(advice, sizeof advice, "%s=%s is set; unset it for speed", variable, preset);
    } else {
        snprintf(advice, sizeof advice, "a newer OpenBLAS, or OPENBLAS_CORETYPE=%s, is faster",
                 has_avx512 ? "SkylakeX" : "Haswell");
    }
    snprintf(be->warning, sizeof be->warning,
             "OpenBLAS runs its %s kernel although this CPU has %s: %s (results change in the "
             "last bits)",
             core, unused, advice);
#else
    (void)be, (void)core;
#endif
}

static const backend_ops ops = {
    .name = "cpu",
    .destroy = destroy,
    .sync = cpu_sync,
    .reserve = reserve,
    .scratch_bytes = scratch_bytes,
    .buf_create = buf_create,
    .buf_free = buf_free,
    .buf_view = buf_view,
    .write = buf_write,
    .read = buf_read,
    .weight_create = weight_create,
    .weight_create_blocks = weight_create_blocks,
    .weight_free = weight_free,
    .weight_acquire = weight_acquire,
    .weight_release = weight_release,
    .weight_limit = weight_limit,
    .embed = embed,
    .rmsnorm = rmsnorm,
    .matmul = cpu_matmul,
    .rope = rope,
    .cache_rows = cache_rows,
    .attention_causal = cpu_attention_causal,
    .attention_kept = cpu_attention_kept,
    .window_mass = cpu_window_mass,
    .attention_error = cpu_attention_error,
    .value_norms = value_norms,
    .silu_mul = silu_mul,
    .head_nll = cpu_head_nll,
    .head_logits = cpu_head_logits,
    .copy_rows = copy_rows,
};

/* OpenBLAS takes a buffer of this size for every thread that calls it, at the thread's first call,
 * and tries for ever when the system refuses one (0.3.21, blas_memory_alloc). */
#define BLAS_BUFFER_BYTES ((size_t)128 << 20)

/* Asks the system for as much as OpenBLAS will and gives it back: under a limit of memory (ulimit
 * -v, -d) a refusal is an error now and not a process that never ends. */
static ckvc_status check_blas_buffers(int n_threads, ckvc_err *err) {
    const size_t bytes = BLAS_BUFFER_BYTES * (size_t)n_threads;
    void *probe = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (probe == MAP_FAILED) {
        return ckvc_fail(err, CKVC_E_MEMORY,
                         "OpenBLAS needs %zu MiB for %d threads and the system refuses them; raise "
                         "the limit (ulimit -v, -d) or "
                         "use fewer --threads",
                         bytes >> 20, n_threads);
    }
    munmap(probe, bytes);
    return CKVC_OK;
}

static void destroy_at(cpu_backend **c) {
    if (*c) { destroy(&(*c)->base); }
}

/* fma NULL: products in float32, and attention, by OpenBLAS. */
static ckvc_status make(const cpu_fma *fma, cpu_products products, ckvc_pool *pool,
                        cpu_backend **out, ckvc_err *err) {
    CKVC_AUTO(destroy_at) cpu_backend *c = ckvc_calloc(1, sizeof *c);
    *out = NULL;
    c->base.ops = &ops;
    c->base.pool = pool;
    c->n_threads = ckvc_pool_threads(pool);
    c->worker = ckvc_calloc((size_t)c->n_threads, sizeof *c->worker);
    c->fma = fma;
    openblas_set_num_threads(1);
    if (fma) {
        snprintf(c->base.kernel, sizeof c->base.kernel, "cpu/%s", fma->name);
    } else {
        const char *core = openblas_get_corename();
        CKVC_TRY(check_blas_buffers(c->n_threads, err));
        snprintf(c->base.kernel, sizeof c->base.kernel, "cpu/OpenBLAS-%s", core);
        warn_of_slow_blas(&c->base, core);
    }
    if (products != CPU_F32) { CKVC_TRY(cpu_bf16_create(c, products, err)); }
    *out = ckvc_take(&c);
    return CKVC_OK;
}

/* Makes one, and lets it show what it can. */
static ckvc_status try_out(const cpu_fma *fma, cpu_products products, ckvc_pool *pool,
                           const char *advice, ckvc_err *err) {
    CKVC_AUTO(destroy_at) cpu_backend *c = NULL;
    ckvc_err wrong = {0};
    CKVC_TRY(make(fma, products, pool, &c, err));
    const ckvc_status st = cpu_selfcheck(&c->base, &wrong);
    return st == CKVC_OK ? st : ckvc_fail(err, st, "%s%s", wrong.text, advice);
}

ckvc_status cpu_backend_create(bool openblas, cpu_products products, ckvc_pool *pool, backend **out,
                               ckvc_err *err) {
    static const cpu_fma *const none = NULL;
    const cpu_fma *const *fma = openblas ? &none : cpu_fma_list();
    ckvc_err wrong = {0};
    cpu_backend *c;
    *out = NULL;
    while (*fma && try_out(*fma, CPU_F32, pool, "", &wrong) != CKVC_OK) {
        fma++;
    }
    if (!*fma) {
        CKVC_TRY(try_out(NULL, CPU_F32, pool, openblas ? "; use --backend cpu" : "", err));
    }
    if (products != CPU_F32) {
        CKVC_TRY(try_out(*fma, products, pool, "; use --compute f32", err));
    }
    CKVC_TRY(make(*fma, products, pool, &c, err));
    if (wrong.status != CKVC_OK) {
        snprintf(c->base.warning, sizeof c->base.warning, "%.500s; going on with %s", wrong.text,
                 c->base.kernel);
    }
    *out = &c->base;
    return CKVC_OK;
}
