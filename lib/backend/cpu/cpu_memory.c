/* Memory of the CPU backend: scratch and buffers; weights, which are bytes of a file in place where
 * they are float32, elsewhere copies, as far as the limit of memory allows. */
#include <assert.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "lib/backend/cpu/cpu.h"
#include "lib/base/sizes.h"

/* ---- scratch and buffers ---- */

static void grow_scratch(cpu_scratch *s, size_t need) {
    if (need <= s->n) { return; }
    free(s->data);
    s->n = (need + 16383) / 16384 * 16384;
    s->data = ckvc_alloc_aligned(s->n, sizeof *s->data);
}

void cpu_need(cpu_backend *c, size_t per_worker, size_t shared) {
    for (int i = 0; i < c->n_threads; i++) { grow_scratch(&c->worker[i], per_worker); }
    grow_scratch(&c->shared, shared);
}

be_buf *cpu_buf_create(backend *be, size_t n) {
    be_buf *b = ckvc_alloc(1, sizeof *b);
    float *data = ckvc_alloc_aligned(n, sizeof *data);
    memset(data, 0, n * sizeof *data);
    *b = (be_buf){data, n, data, n};
    cpu_of(be)->bytes_now += n * sizeof *data;
    return b;
}

void cpu_buf_free(backend *be, be_buf *b) {
    if (!b) { return; }
    cpu_of(be)->bytes_now -= b->own_n * sizeof *b->own;
    free(b->own);
    free(b);
}

void cpu_buf_view(backend *be, be_buf *view, const be_buf *of, size_t offset, size_t n) {
    (void)be;
    assert(view->own_n == 0 && ckvc_span_ok(offset, n, of->n));
    view->data = of->data + offset;
    view->n = n;
}

void cpu_write(backend *be, be_buf *dst, size_t offset, const float *src, size_t n) {
    (void)be;
    assert(ckvc_span_ok(offset, n, dst->n));
    memcpy(dst->data + offset, src, n * sizeof *src);
}

ckvc_status cpu_read(backend *be, const be_buf *src, size_t offset, float *dst, size_t n,
                     ckvc_err *err) {
    assert(ckvc_span_ok(offset, n, src->n));
    memcpy(dst, src->data + offset, n * sizeof *dst);
    return cpu_sync(be, err);
}

ckvc_status cpu_sync(backend *be, ckvc_err *err) {
    (void)be, (void)err;
    return CKVC_OK;
}

/* ---- weights ---- */

ckvc_status cpu_weight_create(backend *be, const be_matrix *m, be_weight **out, ckvc_err *err) {
    (void)err;
    cpu_backend *c = cpu_of(be);
    CKVC_AUTO_FREE be_weight *w = ckvc_calloc(1, sizeof *w);
    *out = NULL;
    w->m = *m;
    if (m->block == 0) { w->m.block = w->m.stride = m->rows ? m->rows : 1; }
    assert(w->m.block >= 1 && w->m.stride >= w->m.block);
    w->bf16 = be->compute == CKVC_COMPUTE_BF16 && m->rows > 0 && m->cols > 1;
    for (int i = 0; w->bf16 && i < c->n_threads; i++) {
        grow_scratch(&c->rounded[i], (size_t)(CPU_MOST_ROWS * m->cols));
    }
    *out = ckvc_take(&w);
    return CKVC_OK;
}

/* float32 values that its copy takes. */
static size_t copy_floats(const be_weight *w) { return (size_t)(w->m.rows * w->m.cols); }

void cpu_weight_free(backend *be, be_weight *w) {
    if (!w) { return; }
    if (w->own) { cpu_of(be)->bytes_now -= copy_floats(w) * sizeof *w->own; }
    free(w->own);
    free(w);
}

void cpu_weight_read(const be_weight *w, int64_t row, int64_t first, float *dst, int64_t n) {
    const be_matrix *m = &w->m;
    const int64_t at = (row / m->block * m->stride + row % m->block) * m->cols + first;
    if (m->type == BE_F32) {
        memcpy(dst, (const char *)m->bytes + at * 4, (size_t)n * 4);
        return;
    }
    uint16_t piece[4096]; /* a tensor in a file need not be aligned to its type */
    for (int64_t i = 0; i < n; i += 4096) {
        const int64_t part = cpu_piece_length(n, i, 4096);
        memcpy(piece, (const char *)m->bytes + (at + i) * 2, (size_t)part * 2);
        (m->type == BE_BF16 ? kernel_from_bf16 : kernel_from_f16)(piece, dst + i, part);
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
    const be_matrix *m = &job->w->m;
    int64_t row = task * job->rows;
    const int64_t end = row + cpu_piece_length(m->rows, row, job->rows);
    while (row < end) {
        const int64_t rest = m->block - row % m->block, n = row + rest < end ? rest : end - row;
        float *to = job->w->own + row * m->cols;
        cpu_weight_read(job->w, row, 0, to, n * m->cols);
        if (job->w->bf16) { kernel_round_bf16(to, to, n * m->cols); }
        row += n;
    }
}

/* A spare copy of n floats, or fresh memory. */
static float *take_copy(cpu_backend *c, size_t n) {
    for (int i = 0; i < c->n_spare; i++) {
        if (c->spare[i].n == n) {
            float *copy = c->spare[i].data;
            c->spare[i] = c->spare[--c->n_spare];
            c->bytes_spare -= n * sizeof(float);
            return copy;
        }
    }
    c->bytes_now += n * sizeof(float);
    return ckvc_alloc_aligned(n, sizeof(float));
}

/* float32 that lies aligned and in one piece in the file is used in place; anything else is
 * converted into a copy, and so is every matrix that is multiplied in bf16. */
ckvc_status cpu_weight_acquire(backend *be, be_weight *w, ckvc_err *err) {
    (void)err;
    cpu_backend *c = cpu_of(be);
    const be_matrix *m = &w->m;
    if (w->f32) { return CKVC_OK; }
    if (!w->bf16 && m->type == BE_F32 && m->block == m->stride &&
        (uintptr_t)m->bytes % sizeof(float) == 0) {
        w->f32 = m->bytes;
        return CKVC_OK;
    }
    if (!w->own) { w->own = take_copy(c, copy_floats(w)); }
    convert_job job = {w, cpu_pieces(CONVERT_TILE, m->cols)};
    ckvc_pool_run(be->pool, cpu_pieces(m->rows, job.rows), convert_task, &job);
    w->f32 = w->own;
    return CKVC_OK;
}

/* While everything fits the limit a copy stays: nothing is won by converting it again. Beyond it
 * the memory waits for the next weight of its size, so that after a few passes over a model nothing
 * is allocated and the same weights take turns: what is taken is then what fits the limit, or the
 * buffers, the largest layer and the head, whichever is more. */
void cpu_weight_release(backend *be, be_weight *w) {
    cpu_backend *c = cpu_of(be);
    if (!w->own || c->bytes_max == 0 ||
        c->bytes_now - c->bytes_spare + c->bytes_turns <= c->bytes_max) {
        return;
    }
    const size_t n = copy_floats(w);
    int n_same = 0;
    for (int i = 0; i < c->n_spare; i++) { n_same += c->spare[i].n == n; }
    if (n_same < SPARE_PER_SIZE && c->n_spare < SPARE_COPIES) {
        c->spare[c->n_spare++] = (cpu_scratch){w->own, n};
        c->bytes_spare += n * sizeof *w->own;
        c->bytes_turns = c->bytes_spare > c->bytes_turns ? c->bytes_spare : c->bytes_turns;
    } else {
        c->bytes_now -= n * sizeof *w->own;
        free(w->own);
    }
    w->own = NULL;
    w->f32 = NULL;
}

/* The file's pages of a copy that is to be made again: where they are not in memory, the system
 * reads them while other threads compute. Making the copy is work for the same cores, of which
 * nothing is won by beginning early; and of what is used in place the pages stay, or go as the
 * system sees fit: asking each time would cost a walk over all of them. */
void cpu_weight_prefetch(backend *be, const be_weight *w) {
    (void)be;
    const be_matrix *m = &w->m;
    if (w->f32 || m->rows == 0) { return; }
    const int64_t last = m->rows - 1,
                  n = (last / m->block * m->stride + last % m->block + 1) * m->cols;
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), begin = (uintptr_t)m->bytes,
                    skip = begin % page;
    madvise((char *)ckvc_unconst(m->bytes) - skip,
            (size_t)n * (m->type == BE_F32 ? 4 : 2) + (size_t)skip, MADV_WILLNEED);
}

void cpu_weight_limit(backend *be, size_t bytes) { cpu_of(be)->bytes_max = bytes; }
