/* The memory of the CPU backend: scratch, buffers and weights. A weight is used in place where it
 * lies in the file as it is multiplied; elsewhere it is copied, as far as the limit of memory
 * allows. */
#include <assert.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "lib/backend/cpu/cpu.h"
#include "lib/base/sizes.h"

/* ---- scratch and buffers ---- */

void cpu_grow(cpu_scratch *s, size_t n) {
    if (n <= s->n) { return; }
    free(s->data);
    s->n = (n + 16383) / 16384 * 16384;
    s->data = ckvc_alloc_aligned(s->n, sizeof *s->data);
}

void cpu_need(cpu_backend *c, size_t per_worker, size_t shared) {
    for (int i = 0; i < c->n_threads; i++) { cpu_grow(&c->worker[i], per_worker); }
    cpu_grow(&c->shared, shared);
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
    assert(m->block == 0 || (m->block >= 1 && m->stride >= m->block));
    w->bf16 = be->compute == CKVC_COMPUTE_BF16 && m->rows > 0 && m->cols > 1;
    w->places = w->bf16 ? cpu_places(c, m->cols) : m->cols;
    *out = ckvc_take(&w);
    return CKVC_OK;
}

/* The floats that a weight's copy takes. */
static size_t copy_floats(const be_weight *w) { return (size_t)(w->m.rows * w->places); }

void cpu_weight_free(backend *be, be_weight *w) {
    if (!w) { return; }
    if (w->own) { cpu_of(be)->bytes_now -= copy_floats(w) * sizeof *w->own; }
    free(w->own);
    free(w);
}

void cpu_weight_read(const be_matrix *m, int64_t row, int64_t n, float *dst) {
    const int64_t at = be_matrix_row(m, row);
    if (m->type == BE_F32) {
        memcpy(dst, (const char *)m->bytes + (size_t)at * m->row_bytes, (size_t)n * m->row_bytes);
    } else {
        m->read(m->source, at, n, dst);
    }
}

void cpu_round(const cpu_backend *c, int64_t n_rows, int64_t n, const float *x, float *to) {
    if (c->fma && c->fma->pairs) {
        c->fma->pairs(n_rows, n, x, to);
    } else {
        kernel_round_bf16(x, to, n_rows * n);
    }
}

int64_t cpu_places(const cpu_backend *c, int64_t n) {
    return c->fma && c->fma->pairs ? (n + 1) / 2 : n;
}

typedef struct convert_job {
    const cpu_backend *c;
    const be_weight *w;
    int64_t rows; /* rows of a task: one, or as many as its scratch holds */
} convert_job;

static void convert_task(void *ctx, int64_t task, int worker) {
    const convert_job *job = ctx;
    const be_matrix *m = &job->w->m;
    int64_t row = task * job->rows;
    const int64_t end = row + cpu_piece_length(m->rows, row, job->rows);
    while (row < end) {
        const int64_t left = end - row, rest = m->block ? m->block - row % m->block : left,
                      n = rest < left ? rest : left;
        float *to = job->w->own + row * job->w->places, *values = to;
        if (job->w->places < m->cols) { values = job->c->worker[worker].data; }
        cpu_weight_read(m, row, n, values);
        if (job->w->bf16) { cpu_round(job->c, n, m->cols, values, to); }
        row += n;
    }
}

/* Returns a spare copy of n floats, or new memory. */
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

/* Whether a weight lies in the file as it is multiplied: as float32, or as a whole number of
 * pairs. */
static bool in_place(const be_weight *w) {
    const be_matrix *m = &w->m;
    const bool right =
        !w->bf16 ? m->type == BE_F32 : m->type == BE_BF16 && w->places * 2 == m->cols;
    return right && m->block == 0 && (uintptr_t)m->bytes % sizeof(float) == 0;
}

/* A weight that does not lie in the file aligned, in one piece and in the type of the products is
 * converted into a copy. */
ckvc_status cpu_weight_acquire(backend *be, be_weight *w, ckvc_err *err) {
    (void)err;
    cpu_backend *c = cpu_of(be);
    const be_matrix *m = &w->m;
    if (w->data) { return CKVC_OK; }
    if (in_place(w)) {
        w->data = m->bytes;
        return CKVC_OK;
    }
    if (!w->own) { w->own = take_copy(c, copy_floats(w)); }
    convert_job job = {c, w, m->cols < CPU_TASK_FLOATS ? CPU_TASK_FLOATS / m->cols : 1};
    if (w->places < m->cols) { cpu_need(c, (size_t)(job.rows * m->cols), 0); }
    ckvc_pool_run(be->pool, cpu_pieces(m->rows, job.rows), convert_task, &job);
    w->data = w->own;
    return CKVC_OK;
}

/* While everything fits the limit, a copy stays, as converting it again would gain nothing. Beyond
 * the limit its memory is kept for the next weight of the same size. So after a few passes over a
 * model nothing is allocated any more, and the same weights take turns. What is then in use is the
 * limit, or the buffers, the largest layer and the head, whichever is more. */
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
    w->data = NULL;
}

/* Asks the system to read the file's pages of a copy that will be made again, while other threads
 * compute. The copy itself is not made early: the work would be done by the same cores. For weights
 * that are used in place nothing is asked: their pages stay or go as the system decides, and asking
 * each time would cost a walk over all of them. */
void cpu_weight_prefetch(backend *be, const be_weight *w) {
    (void)be;
    const be_matrix *m = &w->m;
    if (w->data || m->rows == 0) { return; }
    const size_t first = (size_t)be_matrix_row(m, 0) * m->row_bytes,
                 end = (size_t)(be_matrix_row(m, m->rows - 1) + 1) * m->row_bytes;
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE),
                    skip = ((uintptr_t)m->bytes + first) % page;
    madvise((char *)ckvc_unconst(m->bytes) + first - skip, end - first + (size_t)skip,
            MADV_WILLNEED);
}

void cpu_weight_limit(backend *be, size_t bytes) { cpu_of(be)->bytes_max = bytes; }
