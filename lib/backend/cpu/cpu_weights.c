/* Weights of the CPU backend: bytes of a file in place where they are float32, elsewhere copies, as
 * far as the limit of memory allows. */
#include <assert.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "lib/backend/cpu/cpu.h"
#include "lib/backend/cpu/cpu_bf16.h"

ckvc_status cpu_weight_create(backend *be, const be_matrix *m, be_weight **out, ckvc_err *err) {
    cpu_backend *c = cpu_of(be);
    CKVC_AUTO_FREE be_weight *w = ckvc_calloc(1, sizeof *w);
    *out = NULL;
    w->m = *m;
    if (m->block == 0) { w->m.block = w->m.stride = m->rows ? m->rows : 1; }
    assert(w->m.block >= 1 && w->m.stride >= w->m.block);
    if (c->bf16 && m->rows > 0 && m->cols > 1) { CKVC_TRY(cpu_bf16_expect(c, w, err)); }
    *out = ckvc_take(&w);
    return CKVC_OK;
}

/* float32 values that its copy takes. */
static size_t copy_floats(const cpu_backend *c, const be_weight *w) {
    return w->bf16 ? cpu_bf16_copy_floats(c, w) : (size_t)(w->m.rows * w->m.cols);
}

void cpu_weight_free(backend *be, be_weight *w) {
    if (!w) { return; }
    if (w->own) { cpu_of(be)->bytes_now -= copy_floats(cpu_of(be), w) * sizeof *w->own; }
    cpu_bf16_drop(w);
    free(w->pieces);
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
        cpu_weight_read(job->w, row, 0, job->w->own + row * m->cols, n * m->cols);
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
    cpu_backend *c = cpu_of(be);
    const be_matrix *m = &w->m;
    if (w->f32) { return CKVC_OK; }
    if (!w->bf16 && m->type == BE_F32 && m->block == m->stride &&
        (uintptr_t)m->bytes % sizeof(float) == 0) {
        w->f32 = m->bytes;
        return CKVC_OK;
    }
    if (!w->own) { w->own = take_copy(c, copy_floats(c, w)); }
    if (w->bf16) { return cpu_bf16_pack(c, w, err); }
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
    cpu_bf16_drop(w);
    const size_t n = copy_floats(c, w);
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
