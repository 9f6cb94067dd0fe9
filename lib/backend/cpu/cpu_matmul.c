/* Products with weights: y = x W^T in fixed tiles, and the language model head with its
 * log-sum-exp. */
#include <assert.h>
#include <cblas.h>
#include <math.h>
#include <string.h>

#include "lib/backend/cpu/cpu.h"
#include "lib/backend/cpu/cpu_bf16.h"

#define HEAD_LOGITS 32768 /* of a task: 128 KiB */
#define HEAD_CHUNK  8     /* row tiles that are in flight at once: bounds the partial sums */
#define ROW_BLOCK   1024  /* rows that meet a piece of the weights before the next piece is read */
#define MOST_COLS   256   /* columns of a task at most */

/* y [n_rows][width] (+)= rows x times columns col ... of W^T: what every product with weights comes
 * down to. */
static void product(const cpu_backend *c, const be_weight *w, int64_t n_rows, const float *x,
                    int64_t col, int64_t width, bool onto, float *y, int64_t y_stride, int worker) {
    const int64_t n_in = w->cols;
    if (w->bf16 && cpu_bf16_packed(c)) {
        cpu_bf16_product(c, w, n_rows, x, col, width, onto, y, y_stride, worker);
        return;
    }
    const float *rows = w->bf16 ? cpu_bf16_rows(c, x, n_rows * n_in, worker) : x;
    if (c->fma) {
        c->fma->product(n_rows, width, n_in, rows, n_in, w->f32 + col * n_in, n_in, onto, y,
                        y_stride);
    } else {
        cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, (int)n_rows, (int)width, (int)n_in,
                    1.0f, rows, (int)n_in, w->f32 + col * n_in, (int)n_in, onto ? 1.0f : 0.0f, y,
                    (int)y_stride);
    }
}

/* Whether rows of a task are free to choose: our kernels' bits do not follow from the shape of a
 * call. */
static bool any_rows(const cpu_backend *c) {
    return c->fma && !cpu_bf16_packed(c);
}

/* Columns a task: equal pieces of at most `most`, in whole vectors. OpenBLAS packs a task's rows of
 * x anew, so narrow pieces pay for that more than once; wider ones leave threads without work. */
static int64_t column_tile(int64_t n_out, int64_t most) {
    const int64_t pieces = (n_out + most - 1) / most;
    return ((n_out + pieces - 1) / pieces + 15) / 16 * 16;
}

typedef struct matmul_job {
    const cpu_backend *c;
    const be_weight *w;
    const float *bias, *x;
    float *y;
    int64_t n_in, n_out, n_rows;
    int64_t tile, n_tiles;         /* columns of a task; pieces of that many */
    int64_t row_tile, n_row_tiles; /* the same of rows */
    bool add;
} matmul_job;

/* Cuts y into tasks. With OpenBLAS and oneDNN their shape shows in the bits, so it follows from the
 * weight alone; our kernels pack a task's columns of the weights, so rows are many, but not so many
 * that a thread has nothing to do. */
static void cut(matmul_job *m) {
    int64_t rows = any_rows(m->c) ? CPU_MOST_ROWS : BE_ROW_TILE, cols = MOST_COLS;
    for (;;) {
        m->row_tile = rows;
        m->n_row_tiles = (m->n_rows + rows - 1) / rows;
        m->tile = cpu_bf16_packed(m->c) ? BF16_PIECE : column_tile(m->n_out, cols);
        m->n_tiles = (m->n_out + m->tile - 1) / m->tile;
        if (!any_rows(m->c) || m->c->n_threads == 1 ||
            m->n_tiles * m->n_row_tiles >= 4 * m->c->n_threads) {
            return;
        }
        if (cols > 64) {
            cols /= 2;
        } else if (rows > BE_ROW_TILE) {
            rows /= 2;
        } else {
            return;
        }
    }
}

/* One tile: up to row_tile rows of y, up to `tile` of its columns. */
static void matmul_task(void *ctx, int64_t task, int worker) {
    const matmul_job *m = ctx;
    const int64_t whole = ROW_BLOCK / m->row_tile, block = task / (whole * m->n_tiles) * whole,
                  in_block = task - block * m->n_tiles;
    const int64_t n_block = block + whole <= m->n_row_tiles ? whole : m->n_row_tiles - block;
    const int64_t row = (block + in_block % n_block) * m->row_tile,
                  col = in_block / n_block * m->tile;
    const int64_t width = col + m->tile <= m->n_out ? m->tile : m->n_out - col;
    const int64_t n_rows = row + m->row_tile <= m->n_rows ? m->row_tile : m->n_rows - row;
    float *y = m->y + row * m->n_out + col;
    bool onto = m->add;
    if (m->bias) {
        for (int64_t r = 0; r < n_rows; r++) {
            float *y_row = y + r * m->n_out;
            for (int64_t i = 0; i < width; i++) {
                y_row[i] = (onto ? y_row[i] : 0.0f) + m->bias[col + i];
            }
        }
        onto = true;
    }
    product(m->c, m->w, n_rows, m->x + row * m->n_in, col, width, onto, y, m->n_out, worker);
}

void cpu_matmul(backend *be, const be_weight *w, const be_weight *bias, const be_buf *x,
                int64_t n_rows, bool add, be_buf *y) {
    const int64_t rows = be_padded_rows(n_rows);
    assert(w->f32 && (!bias || (bias->f32 && bias->rows * bias->cols == w->rows)));
    assert((size_t)(rows * w->cols) <= x->n && (size_t)(rows * w->rows) <= y->n);
    matmul_job m = {.c = cpu_of(be),
                    .w = w,
                    .bias = bias ? bias->f32 : NULL,
                    .x = x->data,
                    .y = y->data,
                    .n_in = w->cols,
                    .n_out = w->rows,
                    .n_rows = rows,
                    .add = add};
    cut(&m);
    ckvc_pool_run(be->pool, m.n_row_tiles * m.n_tiles, matmul_task, &m);
    cpu_bf16_check(cpu_of(be));
}

/* ---- head ---- */

typedef struct head_job {
    const cpu_backend *c;
    const be_weight *w;
    const float *x;
    int64_t n_in, vocab;
    int64_t tile, n_tiles;      /* vocabulary entries of a task; pieces of that many */
    int64_t row_tile;           /* rows of a task */
    int64_t tile0, n_row_tiles; /* row tiles of this chunk */
    int64_t row0, n_rows;       /* rows of a lane that are asked for */
    int64_t lane_rows;
    const int32_t *target; /* [n_rows] */
    float *target_logit;   /* [n_lanes][n_rows] */
    float *max;            /* [HEAD_CHUNK * BE_ROW_TILE][n_tiles] */
    double *sum;           /* the same: sum of exp(logit - max) */
    float *logits;         /* head_logits: [vocab] of row row0 */
} head_job;

static void head_task(void *ctx, int64_t task, int worker) {
    const head_job *h = ctx;
    /* A piece of the vocabulary meets all rows of the chunk while it is in the cache. */
    const int64_t chunk = h->n_row_tiles * BE_ROW_TILE,
                  pieces = (chunk + h->row_tile - 1) / h->row_tile;
    const int64_t tile = task / pieces, chunk_row = task % pieces * h->row_tile;
    const int64_t n_rows = chunk_row + h->row_tile <= chunk ? h->row_tile : chunk - chunk_row;
    const int64_t row = h->tile0 * BE_ROW_TILE + chunk_row, col = tile * h->tile;
    const int64_t width = col + h->tile <= h->vocab ? h->tile : h->vocab - col;
    float *logits = h->c->worker[worker].data; /* [n_rows][tile] */
    product(h->c, h->w, n_rows, h->x + row * h->n_in, col, width, false, logits, h->tile, worker);
    for (int64_t r = 0; r < n_rows; r++) {
        const int64_t lane = (row + r) / h->lane_rows, i = row + r - lane * h->lane_rows - h->row0;
        if (i < 0 || i >= h->n_rows) { continue; }
        float *z = logits + r * h->tile;
        if (h->logits) {
            memcpy(h->logits + col, z, (size_t)width * sizeof *z);
            continue;
        }
        if (h->target[i] >= col && h->target[i] < col + width) {
            h->target_logit[lane * h->n_rows + i] = z[h->target[i] - col];
        }
        const int64_t at = (chunk_row + r) * h->n_tiles + tile;
        h->sum[at] = h->c->fma ? h->c->fma->exp_sum(z, width, &h->max[at])
                               : kernel_softmax(z, width, &h->max[at]);
    }
}

/* As in a matrix product, tasks of OpenBLAS have the rows of a tile and ours have more. */
static void cut_head(head_job *h) {
    h->row_tile = any_rows(h->c) ? CPU_MOST_ROWS : BE_ROW_TILE;
    h->tile = HEAD_LOGITS / h->row_tile;
    h->n_tiles = (h->vocab + h->tile - 1) / h->tile;
}

static void run_head(head_job *h) {
    const int64_t pieces = (h->n_row_tiles * BE_ROW_TILE + h->row_tile - 1) / h->row_tile;
    ckvc_pool_run(h->c->base.pool, pieces * h->n_tiles, head_task, h);
}

void cpu_head_scratch(const cpu_backend *c, const be_extent *most, size_t *per_worker,
                      size_t *shared) {
    head_job h = {.c = c, .vocab = most->vocab};
    cut_head(&h);
    const int64_t rows = most->n_prompt > most->n_lanes * most->n_rows
                             ? most->n_prompt
                             : most->n_lanes * most->n_rows;
    *per_worker = HEAD_LOGITS;
    *shared = (size_t)(3 * HEAD_CHUNK * BE_ROW_TILE * h.n_tiles + rows);
}

ckvc_status cpu_head_nll(backend *be, const be_weight *w, const be_buf *x, int64_t row0,
                         int64_t n_rows, int64_t n_lanes, const int32_t *target, double *nll,
                         ckvc_err *err) {
    cpu_backend *c = cpu_of(be);
    head_job h = {.c = c,
                  .w = w,
                  .x = x->data,
                  .n_in = w->cols,
                  .vocab = w->rows,
                  .row0 = row0,
                  .n_rows = n_rows,
                  .lane_rows = be_padded_rows(row0 + n_rows),
                  .target = target};
    assert(w->f32 && (size_t)(n_lanes * h.lane_rows * w->cols) <= x->n);
    if (n_rows == 0 || n_lanes == 0) { return be->ops->sync(be, err); }
    assert(n_lanes == 1 ||
           row0 < BE_ROW_TILE); /* whole tiles before row0 are skipped for the first lane alone */
    size_t per_worker, shared;
    cpu_head_scratch(c, &(be_extent){.n_rows = n_rows, .n_lanes = n_lanes, .vocab = w->rows},
                     &per_worker, &shared);
    if (!cpu_reserve(c, per_worker, shared)) { return be->ops->sync(be, err); }
    cut_head(&h);
    const int64_t n_partial = HEAD_CHUNK * BE_ROW_TILE * h.n_tiles;
    h.sum = (double *)c->shared.data;
    h.max = c->shared.data + 2 * n_partial;
    h.target_logit = h.max + n_partial;

    const int64_t tile_end = n_lanes * h.lane_rows / BE_ROW_TILE;
    for (h.tile0 = row0 / BE_ROW_TILE; h.tile0 < tile_end; h.tile0 += HEAD_CHUNK) {
        h.n_row_tiles = h.tile0 + HEAD_CHUNK < tile_end ? HEAD_CHUNK : tile_end - h.tile0;
        run_head(&h);
        for (int64_t r = 0; r < h.n_row_tiles * BE_ROW_TILE; r++) {
            const int64_t row = h.tile0 * BE_ROW_TILE + r, lane = row / h.lane_rows,
                          i = row - lane * h.lane_rows - row0;
            if (i < 0 || i >= n_rows) { continue; }
            const float *max = h.max + r * h.n_tiles;
            const double *sum = h.sum + r * h.n_tiles;
            double top = (double)max[0], total = 0;
            for (int64_t t = 1; t < h.n_tiles; t++) {
                top = (double)max[t] > top ? (double)max[t] : top;
            }
            for (int64_t t = 0; t < h.n_tiles; t++) {
                total += sum[t] * exp((double)max[t] - top);
            }
            nll[lane * n_rows + i] = log(total) + top - (double)h.target_logit[lane * n_rows + i];
        }
    }
    cpu_bf16_check(c);
    return be->ops->sync(be, err);
}

ckvc_status cpu_head_logits(backend *be, const be_weight *w, const be_buf *x, int64_t row,
                            float *logits, ckvc_err *err) {
    cpu_backend *c = cpu_of(be);
    head_job h = {.c = c,
                  .w = w,
                  .x = x->data,
                  .n_in = w->cols,
                  .vocab = w->rows,
                  .row0 = row,
                  .n_rows = 1,
                  .lane_rows = be_padded_rows(row + 1),
                  .n_row_tiles = 1,
                  .logits = logits};
    assert(w->f32 && (size_t)(h.lane_rows * w->cols) <= x->n);
    cut_head(&h);
    h.tile0 = row / BE_ROW_TILE;
    if (cpu_reserve(c, HEAD_LOGITS, 0)) { run_head(&h); }
    cpu_bf16_check(c);
    return be->ops->sync(be, err);
}
