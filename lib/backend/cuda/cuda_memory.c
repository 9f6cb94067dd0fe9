/* Device memory: failures, scratch, buffers, copies between host and device, and the weights. */
#include <assert.h>
#include <string.h>

#include "lib/backend/cuda/cuda.h"
#include "lib/base/memory.h"
#include "lib/base/sizes.h"

/* ---- failures ---- */

bool cuda_ok(cuda_backend *c, cudaError_t st, const char *what) {
    if (st == cudaSuccess) { return true; }
    cudaGetLastError(); /* otherwise the check of the next launch finds it again */
    ckvc_fail(&c->failure, CKVC_E_DEVICE, "%s: %s: %s (%s)", c->base.kernel, what,
              cudaGetErrorString(st), cudaGetErrorName(st));
    return false;
}

bool cuda_check(cuda_backend *c, const char *what) { return cuda_ok(c, cudaGetLastError(), what); }

ckvc_status cuda_sync(backend *be, ckvc_err *err) {
    cuda_backend *c = cuda_of(be);
    cuda_ok(c, cudaStreamSynchronize(c->stream), "waiting for the device");
    const ckvc_err failure = c->failure;
    if (failure.status == CKVC_OK) { return CKVC_OK; }
    c->failure = (ckvc_err){0};
    return ckvc_fail(err, failure.status, "%s", failure.text);
}

/* ---- memory ---- */

static bool drop_idle_weight(cuda_backend *c);

/* Allocates device memory; weights that nobody uses are dropped to make room. Returns NULL, and
 * records it, where none is left. */
static void *allocate_device(cuda_backend *c, size_t bytes, const char *what) {
    void *data = NULL;
    if (cuda_failed(c)) { return NULL; }
    while (c->bytes_max && c->bytes_now + bytes > c->bytes_max && drop_idle_weight(c)) {}
    cudaError_t st;
    while ((st = cudaMalloc(&data, bytes ? bytes : 1)) == cudaErrorMemoryAllocation) {
        cudaGetLastError(); /* it is not a failure yet */
        if (drop_idle_weight(c)) { continue; }
        size_t left = 0, all = 0;
        cudaMemGetInfo(&left, &all);
        ckvc_fail(&c->failure, CKVC_E_MEMORY,
                  "%s is out of memory: %.1f MB for %s, %.1f of its %.1f MB are free, %.1f are "
                  "ours; lower --max-tokens, use --compute bf16 where it is f32, or end what else "
                  "runs there",
                  c->base.kernel, (double)bytes / 1e6, what, (double)left / 1e6, (double)all / 1e6,
                  (double)c->bytes_now / 1e6);
        return NULL;
    }
    if (!cuda_ok(c, st, what)) { return NULL; }
    c->bytes_now += bytes;
    return data;
}

void cuda_free(cuda_backend *c, void *data, size_t bytes) {
    if (!data) { return; }
    cudaStreamSynchronize(c->stream); /* operations that are enqueued may read it */
    cudaFree(data);
    c->bytes_now -= bytes;
}

bool cuda_grow(cuda_backend *c, cuda_memory *m, size_t bytes, const char *what) {
    if (bytes <= m->bytes) { return true; }
    cuda_free(c, m->data, m->bytes);
    bytes = (bytes + 65535) / 65536 * 65536;
    m->data = allocate_device(c, bytes, what);
    m->bytes = m->data ? bytes : 0;
    return m->data != NULL;
}

void *cuda_scratch(cuda_backend *c, size_t bytes) {
    return cuda_grow(c, &c->scratch, bytes, "scratch") ? c->scratch.data : NULL;
}

/* ---- buffers ---- */

be_buf *cuda_buf_create(backend *be, size_t n) {
    cuda_backend *c = cuda_of(be);
    be_buf *b = ckvc_calloc(1, sizeof *b);
    if (n == 0) { return b; }
    const size_t bytes = n * sizeof *b->own;
    b->n = b->buffer_size = n;
    b->own = b->data = allocate_device(c, bytes, "a buffer");
    if (!b->own) { return b; }
    b->own_n = n;
    cuda_ok(c, cudaMemsetAsync(b->own, 0, bytes, c->stream), "clearing a buffer");
    return b;
}

void cuda_buf_free(backend *be, be_buf *b) {
    if (!b) { return; }
    cuda_written(cuda_of(be), b);
    cuda_free(cuda_of(be), b->own, b->own_n * sizeof *b->own);
    free(b);
}

void cuda_buf_view(backend *be, be_buf *view, const be_buf *of, size_t offset, size_t n) {
    (void)be;
    assert(view->own_n == 0 && ckvc_span_ok(offset, n, of->n));
    view->data = of->data ? of->data + offset : NULL;
    view->n = n;
    view->buffer_size = of->buffer_size;
}

void cuda_write(backend *be, be_buf *dst, size_t offset, const float *src, size_t n) {
    assert(ckvc_span_ok(offset, n, dst->n));
    if (cuda_failed(cuda_of(be))) { return; }
    cuda_upload(cuda_of(be), cuda_written(cuda_of(be), dst) + offset, src, n * sizeof *src);
}

ckvc_status cuda_read(backend *be, const be_buf *src, size_t offset, float *dst, size_t n,
                      ckvc_err *err) {
    assert(ckvc_span_ok(offset, n, src->n));
    const float *from = src->data ? src->data + offset : NULL;
    return cuda_download(cuda_of(be), dst, from, n * sizeof *dst, err);
}

/* ---- between host and device ---- */

void *cuda_upload_begin(cuda_backend *c, size_t bytes) {
    assert(bytes <= CUDA_UPLOAD);
    if (cuda_failed(c)) { return NULL; }
    if (c->upload_at + bytes > CUDA_UPLOAD) {
        const char *what = "copying to the device";
        if (!cuda_ok(c, cudaEventRecord(c->uploaded[c->upload_half], c->stream), what)) {
            return NULL;
        }
        c->upload_half = 1 - c->upload_half;
        c->upload_at = 0;
        if (!cuda_ok(c, cudaEventSynchronize(c->uploaded[c->upload_half]), what)) { return NULL; }
    }
    return (char *)c->upload.data + (size_t)c->upload_half * CUDA_UPLOAD + c->upload_at;
}

void cuda_upload_end(cuda_backend *c, void *to, const void *from, size_t bytes) {
    cuda_ok(c, cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, c->stream),
            "copying to the device");
    c->upload_at += cuda_align(bytes);
}

void cuda_upload(cuda_backend *c, void *to, const void *from, size_t bytes) {
    for (size_t at = 0; at < bytes;) {
        const size_t part = bytes - at < CUDA_UPLOAD ? bytes - at : CUDA_UPLOAD;
        void *pinned = cuda_upload_begin(c, part);
        if (!pinned) { return; }
        memcpy(pinned, (const char *)from + at, part);
        cuda_upload_end(c, (char *)to + at, pinned, part);
        at += part;
    }
}

ckvc_status cuda_download(cuda_backend *c, void *to, const void *from, size_t bytes,
                          ckvc_err *err) {
    const char *what = "copying from the device";
    for (size_t at = 0, part; at < bytes; at += part) {
        part = bytes - at < CUDA_UPLOAD ? bytes - at : CUDA_UPLOAD;
        /* it is free again before anybody else asks for it */
        void *pinned = cuda_upload_begin(c, part);
        if (!pinned ||
            !cuda_ok(c,
                     cudaMemcpyAsync(pinned, (const char *)from + at, part, cudaMemcpyDeviceToHost,
                                     c->stream),
                     what) ||
            !cuda_ok(c, cudaStreamSynchronize(c->stream), what)) {
            break;
        }
        memcpy((char *)to + at, pinned, part);
    }
    return cuda_sync(&c->base, err);
}

/* Weights in device memory: bytes of a file, converted while they are copied. There are two ways to
 * copy them, each a stream with a piece of pinned memory. Host functions on these streams fill the
 * piece, so that neither acquiring nor prefetching waits for anything; the operations' stream waits
 * for what it reads.
 *
 * All weights stay while they fit the limit. Beyond it, the weight that was released last and is no
 * longer read gives its memory to the next one of its size. As the layers come round in a circle,
 * this keeps as many as fit, and the next one is copied while the one before it is computed
 * with. */

#define PIECE_BYTES ((size_t)32 << 20)
#define WAYS        2
/* Threads that fill a piece, at most; one core reads slower than the bus writes. */
#define WAY_THREADS 4

typedef struct staging_way {
    cudaStream_t stream;
    ckvc_pool *pool;
    void *piece; /* pinned, PIECE_BYTES */
    /* [threads of the pool][n_row], for matrices whose rows are rounded while they are copied */
    float *rows;
    size_t n_row;
} staging_way;

struct cuda_staging {
    staging_way way[WAYS];
    cudaEvent_t joined; /* has run when the last way's copies of the current weight have */
};

/* Rows first ... first + n - 1 of a weight that are being copied. */
struct cuda_piece {
    const be_weight *w;
    staging_way *way;
    int64_t first, n;
};

bool cuda_staging_create(cuda_backend *c) {
    const char *what = "pinned memory for weights";
    cuda_staging *g = c->staging = ckvc_calloc(1, sizeof *c->staging);
    const int threads = ckvc_pool_threads(c->base.pool);
    for (int i = 0; i < WAYS; i++) {
        staging_way *way = &g->way[i];
        if (!cuda_ok(c, cudaStreamCreateWithFlags(&way->stream, cudaStreamNonBlocking), what) ||
            !cuda_ok(c, cudaMallocHost(&way->piece, PIECE_BYTES), what) ||
            ckvc_pool_create(threads < WAY_THREADS ? threads : WAY_THREADS, &way->pool,
                             &c->failure) != CKVC_OK) {
            return false;
        }
    }
    return cuda_ok(c, cudaEventCreateWithFlags(&g->joined, cudaEventDisableTiming), what);
}

void cuda_staging_free(cuda_backend *c) {
    cuda_staging *g = c->staging;
    if (!g) { return; }
    for (int i = 0; i < WAYS; i++) {
        staging_way *way = &g->way[i];
        if (way->stream) {
            cudaStreamSynchronize(way->stream);
            cudaStreamDestroy(way->stream);
        }
        if (way->piece) { cudaFreeHost(way->piece); }
        if (way->pool) { ckvc_pool_destroy(way->pool); }
        free(way->rows);
    }
    if (g->joined) { cudaEventDestroy(g->joined); }
    CKVC_FREE(g);
    c->staging = NULL;
}

/* ---- conversion ---- */

/* Rounds to the nearest, ties to even; a NaN stays one. */
static uint16_t to_bf16(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    if ((bits & 0x7fffffffu) > 0x7f800000u) { return (uint16_t)(bits >> 16 | 0x40u); }
    return (uint16_t)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

/* Writes row `row` of a weight as cols values of bf16 or float32. values has room for one row. */
static void convert_row(const be_matrix *m, int64_t row, bool bf16, float *values, void *to) {
    const int64_t at = be_matrix_row(m, row);
    const char *from = (const char *)m->bytes + (size_t)at * m->row_bytes;
    uint16_t *half = to;
    if (m->type == (bf16 ? BE_BF16 : BE_F32)) {
        memcpy(to, from, m->row_bytes);
        return;
    }
    if (m->type == BE_F32) {
        memcpy(values, from, m->row_bytes); /* in a file it may not be aligned */
    } else {
        m->read(m->source, at, 1, bf16 ? values : to);
    }
    for (int64_t i = 0; bf16 && i < m->cols; i++) { half[i] = to_bf16(values[i]); }
}

/* Converts rows first ... first + n - 1, or those that tokens name, to rows of `stride` bytes in
 * `to`. */
typedef struct convert_job {
    const be_matrix *m;
    bool bf16;
    int64_t first, n, rows; /* rows: those of a task */
    const int32_t *tokens;  /* or NULL */
    float *values;          /* [threads][n_values] scratch, where bf16 */
    size_t n_values;
    char *to;
    size_t stride;
} convert_job;

static void convert_task(void *ctx, int64_t task, int worker) {
    const convert_job *job = ctx;
    const int64_t rest = job->n - task * job->rows, n = rest < job->rows ? rest : job->rows;
    const size_t filled = (size_t)job->m->cols * (job->bf16 ? sizeof(uint16_t) : sizeof(float));
    float *values = job->bf16 ? job->values + (size_t)worker * job->n_values : NULL;
    for (int64_t i = task * job->rows; i < task * job->rows + n; i++) {
        char *to = job->to + (size_t)i * job->stride;
        convert_row(job->m, job->tokens ? job->tokens[i] : job->first + i, job->bf16, values, to);
        memset(to + filled, 0, job->stride - filled);
    }
}

#define CONVERT_TILE 65536 /* values of a task, rounded up to whole rows */

static void convert(ckvc_pool *pool, convert_job *job) {
    job->rows = (CONVERT_TILE + job->m->cols - 1) / job->m->cols;
    ckvc_pool_run(pool, (job->n + job->rows - 1) / job->rows, convert_task, job);
}

/* ---- weights ---- */

/* The bytes of a row in device memory. */
static size_t row_bytes(const be_weight *w) {
    return (size_t)w->stride * (w->bf16 ? sizeof(uint16_t) : sizeof(float));
}

static size_t bytes_of(const be_weight *w) { return (size_t)w->m.rows * row_bytes(w); }

/* Allocates room for a row of so many values, for each thread that fills a piece, before the first
 * piece is filled. */
static void reserve_staging_rows(cuda_backend *c, size_t n_row) {
    for (staging_way *way = c->staging->way; way < c->staging->way + WAYS; way++) {
        if (n_row <= way->n_row) { continue; }
        free(way->rows);
        way->n_row = n_row;
        way->rows = ckvc_alloc(n_row * (size_t)ckvc_pool_threads(way->pool), sizeof *way->rows);
    }
}

/* Decides which rows go in which piece, and gives the pieces to the ways in turn. */
static void cut_weight(cuda_backend *c, be_weight *w) {
    const int64_t rows = (int64_t)(PIECE_BYTES / row_bytes(w));
    w->n_pieces = (size_t)((w->m.rows + rows - 1) / rows);
    w->pieces = ckvc_calloc(w->n_pieces, sizeof *w->pieces);
    for (size_t i = 0; i < w->n_pieces; i++) {
        const int64_t first = (int64_t)i * rows, rest = w->m.rows - first;
        w->pieces[i] =
            (cuda_piece){w, &c->staging->way[i % WAYS], first, rest < rows ? rest : rows};
    }
}

ckvc_status cuda_weight_create(backend *be, const be_matrix *m, be_weight **out, ckvc_err *err) {
    cuda_backend *c = cuda_of(be);
    const char *what = "a weight";
    *out = NULL;
    CKVC_FAIL_IF((size_t)m->cols > PIECE_BYTES / sizeof(float), err, CKVC_E_MISMATCH,
                 "backend cuda: a weight has rows of %lld values, at most %zu are taken",
                 (long long)m->cols, PIECE_BYTES / sizeof(float));
    be_weight *w = ckvc_calloc(1, sizeof *w);
    w->m = *m;
    assert(m->block == 0 || (m->block >= 1 && m->stride >= m->block));
    w->bf16 = c->bf16 && m->cols > 1;
    w->stride = w->bf16 ? (m->cols + 7) / 8 * 8 : m->cols;
    if (w->bf16) { reserve_staging_rows(c, (size_t)m->cols); }
    cut_weight(c, w);
    CKVC_GROW(c->weights, c->cap_weights, c->n_weights + 1);
    c->weights[c->n_weights++] = w;
    if (!cuda_ok(c, cudaEventCreateWithFlags(&w->unused, cudaEventDisableTiming), what) ||
        !cuda_ok(c, cudaEventCreateWithFlags(&w->filled, cudaEventDisableTiming), what)) {
        cuda_weight_free(be, w);
        return cuda_sync(be, err);
    }
    *out = w;
    return CKVC_OK;
}

/* Frees a weight's memory, once the ways have finished its pieces and the operations' stream no
 * longer reads it. */
static void free_weight(cuda_backend *c, be_weight *w) {
    if (w->filled) { cudaEventSynchronize(w->filled); }
    if (w->unused && w->data) { cudaEventSynchronize(w->unused); }
    cuda_free(c, w->data, bytes_of(w));
    w->data = NULL;
    w->arriving = w->promised = false;
}

void cuda_weight_free(backend *be, be_weight *w) {
    cuda_backend *c = cuda_of(be);
    if (!w) { return; }
    for (size_t i = 0; i < c->n_weights; i++) {
        if (c->weights[i] == w) { c->weights[i] = c->weights[--c->n_weights]; }
    }
    free_weight(c, w);
    if (w->unused) { cudaEventDestroy(w->unused); }
    if (w->filled) { cudaEventDestroy(w->filled); }
    CKVC_FREE(w->pieces, w);
}

/* Chooses among the weights in memory that nobody uses, of one size (0: any): the one that was
 * released last and is no longer read, else the one that was released first. NULL: there is
 * none. */
static be_weight *idle_weight(const cuda_backend *c, size_t bytes) {
    be_weight *last = NULL, *first = NULL;
    for (size_t i = 0; i < c->n_weights; i++) {
        be_weight *w = c->weights[i];
        if (!w->data || w->users || w->promised || (bytes && bytes_of(w) != bytes)) { continue; }
        if (!first || w->turn < first->turn) { first = w; }
        if ((!last || w->turn > last->turn) && cudaEventQuery(w->unused) == cudaSuccess) {
            last = w;
        }
    }
    cudaGetLastError(); /* "not ready" is not a failure */
    return last ? last : first;
}

/* Drops a weight that nobody uses. Returns false where there is none. */
static bool drop_idle_weight(cuda_backend *c) {
    be_weight *w = idle_weight(c, 0);
    for (size_t i = 0; !w && i < c->n_weights; i++) {
        if (c->weights[i]->promised) { w = c->weights[i]; }
    }
    if (w) { free_weight(c, w); }
    return w != NULL;
}

/* Returns memory for a weight that nobody will read any more when it is filled. NULL: there is
 * none, which is a failure where `needed` is set. */
static void *take_memory(cuda_backend *c, const be_weight *w, bool needed) {
    const size_t bytes = bytes_of(w);
    if (c->bytes_max && c->bytes_now + bytes > c->bytes_max) {
        be_weight *idle = idle_weight(c, bytes);
        for (int i = 0; idle && i < WAYS; i++) {
            const cudaStream_t stream = c->staging->way[i].stream;
            if (!cuda_ok(c, cudaStreamWaitEvent(stream, idle->unused, 0), "a weight") ||
                !cuda_ok(c, cudaStreamWaitEvent(stream, idle->filled, 0), "a weight")) {
                return NULL;
            }
        }
        if (idle) { return ckvc_take(&idle->data); }
        if (!needed) { return NULL; }
    }
    return allocate_device(c, bytes, "a weight");
}

static void CUDART_CB fill_piece(void *ctx) {
    const cuda_piece *p = ctx;
    convert(p->way->pool, &(convert_job){.m = &p->w->m,
                                         .bf16 = p->w->bf16,
                                         .first = p->first,
                                         .n = p->n,
                                         .values = p->way->rows,
                                         .n_values = p->way->n_row,
                                         .to = p->way->piece,
                                         .stride = row_bytes(p->w)});
}

/* Enqueues the copy into w->data. */
static void enqueue_copy(cuda_backend *c, be_weight *w) {
    cuda_staging *g = c->staging;
    const char *what = "copying a weight";
    const size_t row = row_bytes(w);
    for (size_t i = 0; i < w->n_pieces && !cuda_failed(c); i++) {
        cuda_piece *p = &w->pieces[i];
        char *to = (char *)w->data + (size_t)p->first * row;
        if (cuda_ok(c, cudaLaunchHostFunc(p->way->stream, fill_piece, p), what)) {
            cuda_ok(c,
                    cudaMemcpyAsync(to, p->way->piece, (size_t)p->n * row, cudaMemcpyHostToDevice,
                                    p->way->stream),
                    what);
        }
    }
    cuda_ok(c, cudaEventRecord(g->joined, g->way[1].stream), what);
    cuda_ok(c, cudaStreamWaitEvent(g->way[0].stream, g->joined, 0), what);
    cuda_ok(c, cudaEventRecord(w->filled, g->way[0].stream), what);
    w->arriving = true;
}

ckvc_status cuda_weight_acquire(backend *be, be_weight *w, ckvc_err *err) {
    cuda_backend *c = cuda_of(be);
    if (!w->data) {
        w->data = take_memory(c, w, true);
        if (w->data) { enqueue_copy(c, w); }
    }
    if (w->data && w->arriving) {
        cuda_ok(c, cudaStreamWaitEvent(c->stream, w->filled, 0), "waiting for a weight");
        w->arriving = false;
    }
    if (cuda_failed(c)) {
        if (!w->users) { free_weight(c, w); } /* it is unknown whether all of it has arrived */
        return cuda_sync(be, err);
    }
    w->promised = false;
    w->users++;
    return CKVC_OK;
}

void cuda_weight_release(backend *be, be_weight *w) {
    cuda_backend *c = cuda_of(be);
    if (w->users == 0) { return; } /* acquiring it has failed */
    if (--w->users == 0) {
        w->turn = ++c->turn;
        cuda_ok(c, cudaEventRecord(w->unused, c->stream), "releasing a weight");
    }
}

void cuda_weight_prefetch(backend *be, const be_weight *soon) {
    cuda_backend *c = cuda_of(be);
    be_weight *w = ckvc_unconst(soon);
    if (cuda_failed(c) || w->data) { return; }
    w->data = take_memory(c, w, false);
    if (w->data) {
        w->promised = true;
        enqueue_copy(c, w);
    }
    if (cuda_failed(c)) {
        free_weight(c, w);
        c->failure = (ckvc_err){0}; /* whoever acquires it will get the failure again */
    }
}

void cuda_weight_limit(backend *be, size_t bytes) { cuda_of(be)->bytes_max = bytes; }

/* The rows are copied from the file through pinned memory: in device memory, a table of 128k rows
 * would take more than a layer does, for a few thousand rows of a prompt. Padding up to the next
 * whole tile becomes 0, so that it never contains numbers of an earlier prompt (such as a NaN). */
void cuda_embed(backend *be, const be_weight *table, const int32_t *tokens, int64_t n_rows,
                be_buf *x) {
    cuda_backend *c = cuda_of(be);
    const size_t row = (size_t)table->m.cols * sizeof(float);
    const int64_t padded = be_padded_rows(n_rows), most = (int64_t)(CUDA_UPLOAD / 4 / row);
    assert((size_t)(padded * table->m.cols) <= x->n && most >= 1);
    if (cuda_failed(c)) { return; }
    char *to = (char *)cuda_written(c, x);
    for (int64_t first = 0; first < n_rows; first += most) {
        const int64_t n = n_rows - first < most ? n_rows - first : most;
        for (int64_t i = first; i < first + n; i++) {
            assert(tokens[i] >= 0 && tokens[i] < table->m.rows);
        }
        void *pinned = cuda_upload_begin(c, (size_t)n * row);
        if (!pinned) { return; }
        convert(c->base.pool,
                &(convert_job){
                    .m = &table->m, .n = n, .tokens = tokens + first, .to = pinned, .stride = row});
        cuda_upload_end(c, to + (size_t)first * row, pinned, (size_t)n * row);
    }
    cuda_ok(
        c,
        cudaMemsetAsync(to + (size_t)n_rows * row, 0, (size_t)(padded - n_rows) * row, c->stream),
        "embedding tokens");
}
