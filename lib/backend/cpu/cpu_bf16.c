/* Products in bf16, through oneDNN or emulated: see cpu_bf16.h. */
#include "lib/backend/cpu/cpu_bf16.h"

#include <assert.h>
#include <stdatomic.h>
#include <stdio.h>

#include "lib/backend/cpu/cpu.h"
#include "lib/backend/cpu/cpu_onednn.h"

struct cpu_bf16 {
    onednn *dnn; /* NULL: emulated */
    bool halves; /* oneDNN's elements are bf16, not float32 that holds rounded numbers */
    onednn_shape **shapes;
    size_t n_shapes, cap_shapes;
    float **x; /* emulated: [n_threads] rounded rows, [CPU_MOST_ROWS][max_in] */
    int64_t max_in;
    atomic_bool failed;
};

/* ---- rounding ---- */

static inline uint32_t nearest(uint32_t bits) {
    const uint32_t rounded = bits + 0x7FFF + (bits >> 16 & 1),
                   quiet = bits | 0x400000; /* a NaN stays one */
    return ((bits & 0x7FFFFFFF) > 0x7F800000 ? quiet : rounded) >> 16;
}

void kernel_to_bf16(const float *src, uint16_t *dst, int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, src + i, sizeof bits);
        dst[i] = (uint16_t)nearest(bits);
    }
}

void kernel_round_bf16(const float *src, float *dst, int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, src + i, sizeof bits);
        bits = nearest(bits) << 16;
        memcpy(dst + i, &bits, sizeof bits);
    }
}

/* n rounded values to element `at` of dst. */
static void round_to(const cpu_bf16 *b, const float *src, void *dst, int64_t at, int64_t n) {
    if (b->halves) {
        kernel_to_bf16(src, (uint16_t *)dst + at, n);
    } else {
        kernel_round_bf16(src, (float *)dst + at, n);
    }
}

/* ---- life ---- */

void cpu_bf16_destroy(cpu_backend *c) {
    cpu_bf16 *b = c->bf16;
    if (!b) { return; }
    for (size_t i = 0; i < b->n_shapes; i++) { onednn_shape_free(b->shapes[i]); }
    onednn_close(b->dnn);
    free(b->shapes);
    for (int i = 0; i < c->n_threads; i++) { free(b->x[i]); }
    free(b->x);
    free(b);
}

ckvc_status cpu_bf16_create(cpu_backend *c, cpu_products products, ckvc_err *err) {
    assert(!c->bf16 && products != CPU_F32);
    const char *why = "as asked for";
    CKVC_AUTO(onednn_close_at)
    onednn *dnn = products == CPU_BF16_EMULATED ? NULL : onednn_open(c->n_threads, &why);
    CKVC_FAIL_IF(!dnn && products == CPU_BF16_WIDE, err, CKVC_E_DEVICE, "%s", why);
    if (dnn && products == CPU_BF16 && !dnn->bf16) {
        why = "this CPU has no bf16 arithmetic (AVX512_BF16 or AMX)";
        onednn_close(ckvc_take(&dnn));
    }
    cpu_bf16 *b = c->bf16 = ckvc_calloc(1, sizeof *b);
    b->x = ckvc_calloc((size_t)c->n_threads, sizeof *b->x);
    b->halves = dnn && products == CPU_BF16;
    b->dnn = ckvc_take(&dnn);
    if (!b->dnn) {
        snprintf(c->base.compute_warning, sizeof c->base.compute_warning,
                 "--compute bf16 is emulated in float32: its rounding can be measured here, but it "
                 "saves no time (%s)",
                 why);
    }
    const size_t used = strlen(c->base.kernel);
    snprintf(c->base.kernel + used, sizeof c->base.kernel - used, "+bf16-%s%s",
             b->dnn ? b->dnn->name : "emulated", b->dnn && !b->halves ? "-wide" : "");
    c->base.compute = CKVC_COMPUTE_BF16;
    c->base.matrix_copy_bytes = b->halves ? sizeof(uint16_t) : sizeof(float);
    return CKVC_OK;
}

bool cpu_bf16_packed(const cpu_backend *c) { return c->bf16 && c->bf16->dnn; }

size_t cpu_bf16_scratch_bytes(const cpu_backend *c) {
    const cpu_bf16 *b = c->bf16;
    size_t bytes = b->dnn ? 0 : (size_t)(c->n_threads * CPU_MOST_ROWS * b->max_in) * sizeof(float);
    for (size_t i = 0; i < b->n_shapes; i++) { bytes += b->shapes[i]->buffer_bytes; }
    return bytes;
}

/* ---- weights ---- */

static int64_t piece_width(int64_t n_out, int64_t col) {
    return cpu_piece_length(n_out, col, BF16_PIECE);
}

static int64_t n_pieces(const be_weight *w) { return cpu_pieces(w->m.rows, BF16_PIECE); }

static const onednn_shape *shape_of(const cpu_bf16 *b, int64_t n, int64_t k) {
    for (size_t i = 0; i < b->n_shapes; i++) {
        if (b->shapes[i]->n == n && b->shapes[i]->k == k) { return b->shapes[i]; }
    }
    return NULL;
}

static ckvc_status need_shape(cpu_bf16 *b, int64_t n, int64_t k, ckvc_err *err) {
    if (shape_of(b, n, k)) { return CKVC_OK; }
    CKVC_GROW(b->shapes, b->cap_shapes, b->n_shapes + 1);
    CKVC_TRY(
        onednn_shape_create(b->dnn, b->halves, BE_ROW_TILE, n, k, &b->shapes[b->n_shapes], err));
    b->n_shapes++;
    return CKVC_OK;
}

ckvc_status cpu_bf16_expect(cpu_backend *c, be_weight *w, ckvc_err *err) {
    cpu_bf16 *b = c->bf16;
    w->bf16 = true;
    if (b->dnn) {
        const int64_t last = (n_pieces(w) - 1) * BF16_PIECE;
        CKVC_TRY(need_shape(b, piece_width(w->m.rows, 0), w->m.cols, err));
        CKVC_TRY(need_shape(b, piece_width(w->m.rows, last), w->m.cols, err));
        w->pieces = ckvc_calloc((size_t)n_pieces(w), sizeof *w->pieces);
        return CKVC_OK;
    }
    for (int i = 0; w->m.cols > b->max_in && i < c->n_threads; i++) {
        free(b->x[i]);
        b->x[i] = ckvc_alloc_aligned((size_t)(CPU_MOST_ROWS * w->m.cols), sizeof **b->x);
    }
    b->max_in = w->m.cols > b->max_in ? w->m.cols : b->max_in;
    return CKVC_OK;
}

/* Floats that a piece takes in the weight's copy, and the copy as a whole. */
static size_t piece_floats(const cpu_bf16 *b, const be_weight *w, int64_t col) {
    const int64_t width = piece_width(w->m.rows, col);
    if (!b->dnn) { return (size_t)(width * w->m.cols); }
    return (shape_of(b, width, w->m.cols)->packed_bytes + 63) / 64 * (64 / sizeof(float));
}

size_t cpu_bf16_copy_floats(const cpu_backend *c, const be_weight *w) {
    const int64_t last = n_pieces(w) - 1;
    return (size_t)last * piece_floats(c->bf16, w, 0) + piece_floats(c->bf16, w, last * BF16_PIECE);
}

typedef struct pack_job {
    cpu_bf16 *b;
    be_weight *w;
} pack_job;

/* A task is a piece: its rows of W, rounded, into the copy; through the worker's buffer where
 * oneDNN packs them. */
static void pack_task(void *ctx, int64_t task, int worker) {
    const pack_job *job = ctx;
    cpu_bf16 *b = job->b;
    be_weight *w = job->w;
    const int64_t col = task * BF16_PIECE, width = piece_width(w->m.rows, col), k = w->m.cols;
    float *copy = w->own + (size_t)task * piece_floats(b, w, 0);
    const onednn_shape *shape = b->dnn ? shape_of(b, width, k) : NULL;
    void *to = shape ? shape->worker[worker].w : copy;
    float row[4096];
    for (int64_t r = 0; r < width; r++) {
        for (int64_t at = 0; at < k; at += 4096) {
            const int64_t n = cpu_piece_length(k, at, 4096);
            cpu_weight_read(w, col + r, at, row, n);
            round_to(b, row, to, r * k + at, n);
        }
    }
    if (shape) {
        w->pieces[task] = onednn_pack(shape, worker, copy);
        if (!w->pieces[task]) { atomic_store(&b->failed, true); }
    }
}

ckvc_status cpu_bf16_pack(cpu_backend *c, be_weight *w, ckvc_err *err) {
    pack_job job = {c->bf16, w};
    ckvc_pool_run(c->base.pool, n_pieces(w), pack_task, &job);
    CKVC_FAIL_IF(atomic_load(&c->bf16->failed), err, CKVC_E_DEVICE,
                 "oneDNN failed to pack a weight of %lld x %lld; use --compute f32",
                 (long long)w->m.rows, (long long)w->m.cols);
    w->f32 = w->own;
    return CKVC_OK;
}

void cpu_bf16_drop(be_weight *w) {
    for (int64_t i = 0; w->pieces && i < n_pieces(w); i++) {
        onednn_unpack(w->pieces[i]);
        w->pieces[i] = NULL;
    }
}

/* ---- product ---- */

/* One piece through oneDNN: its result lies in a buffer of the worker's and is written or added to
 * y. */
static void run_piece(cpu_bf16 *b, const cpu_tile *t, int worker) {
    const onednn_shape *shape = shape_of(b, t->width, t->w->m.cols);
    const onednn_buffers *buffers = &shape->worker[worker];
    round_to(b, t->x, buffers->x, 0, BE_ROW_TILE * t->w->m.cols);
    if (!onednn_run(shape, worker, t->w->pieces[t->col / BF16_PIECE])) {
        atomic_store(&b->failed, true);
        return;
    }
    for (int64_t r = 0; r < BE_ROW_TILE; r++) {
        const float *from = buffers->y + r * t->width;
        float *y = t->y + r * t->y_stride;
        for (int64_t i = 0; i < t->width; i++) { y[i] = (t->onto ? y[i] : 0.0f) + from[i]; }
    }
}

void cpu_bf16_product(const cpu_backend *c, const cpu_tile *t, int worker) {
    assert(t->n_rows % BE_ROW_TILE == 0 && t->col % BF16_PIECE == 0 &&
           (t->width % BF16_PIECE == 0 || t->col + t->width == t->w->m.rows));
    for (int64_t r = 0; r < t->n_rows; r += BE_ROW_TILE) {
        for (int64_t at = 0; at < t->width; at += BF16_PIECE) {
            cpu_tile piece = *t;
            piece.x += r * t->w->m.cols;
            piece.col += at;
            piece.width = piece_width(t->w->m.rows, piece.col);
            piece.y += r * t->y_stride + at;
            run_piece(c->bf16, &piece, worker);
        }
    }
}

const float *cpu_bf16_rows(const cpu_backend *c, const float *x, int64_t n_values, int worker) {
    assert(n_values <= CPU_MOST_ROWS * c->bf16->max_in);
    kernel_round_bf16(x, c->bf16->x[worker], n_values);
    return c->bf16->x[worker];
}

void cpu_bf16_check(cpu_backend *c) {
    if (c->bf16 && atomic_load(&c->bf16->failed)) {
        ckvc_fail(&c->failure, CKVC_E_DEVICE, "oneDNN failed in a product; use --compute f32");
    }
}
