/* Products with weights: y = x W^T in fixed tiles, and the language model head with its log-sum-exp. */
#include <assert.h>
#include <cblas.h>
#include <math.h>
#include <string.h>

#include "lib/backend/cpu/cpu.h"

#define HEAD_TILE  512 /* vocabulary entries a task; 64 x 512 floats are 128 KiB of logits */
#define HEAD_CHUNK 8   /* row tiles that are in flight at once: bounds the partial sums */
#define ROW_BLOCK  16  /* row tiles that meet a piece of the weights before the next piece is read */

/* Columns a task: equal pieces of at most 256, in whole vectors. Each task packs its rows of x anew, so narrow pieces pay for that more
 * than once; wider ones leave threads without work. A function of the weight alone. */
static int64_t column_tile(int64_t n_out)
{
    const int64_t pieces = (n_out + 255) / 256;
    return ((n_out + pieces - 1) / pieces + 15) / 16 * 16;
}

typedef struct matmul_job {
    const float *w, *bias, *x;
    float *y;
    int64_t n_in, n_out, tile, n_tiles, n_row_tiles;
    bool add;
} matmul_job;

/* One tile: BE_ROW_TILE rows of y, `tile` of its columns. */
static void matmul_task(void *ctx, int64_t task, int worker)
{
    (void)worker;
    const matmul_job *m = ctx;
    const int64_t block = task / (ROW_BLOCK * m->n_tiles) * ROW_BLOCK, in_block = task - block * m->n_tiles;
    const int64_t n_block = block + ROW_BLOCK <= m->n_row_tiles ? ROW_BLOCK : m->n_row_tiles - block;
    const int64_t row = (block + in_block % n_block) * BE_ROW_TILE, col = in_block / n_block * m->tile;
    const int64_t width = col + m->tile <= m->n_out ? m->tile : m->n_out - col;
    float *y = m->y + row * m->n_out + col;
    bool onto = m->add;
    if (m->bias) {
        for (int64_t r = 0; r < BE_ROW_TILE; r++) {
            float *y_row = y + r * m->n_out;
            for (int64_t i = 0; i < width; i++)
                y_row[i] = (onto ? y_row[i] : 0.0f) + m->bias[col + i];
        }
        onto = true;
    }
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, BE_ROW_TILE, (int)width, (int)m->n_in, 1.0f, m->x + row * m->n_in,
                (int)m->n_in, m->w + col * m->n_in, (int)m->n_in, onto ? 1.0f : 0.0f, y, (int)m->n_out);
}

void cpu_matmul(backend *be, const be_weight *w, const be_weight *bias, const be_buf *x, int64_t n_rows, bool add, be_buf *y)
{
    const int64_t rows = be_padded_rows(n_rows);
    assert(w->f32 && (!bias || (bias->f32 && bias->rows * bias->cols == w->rows)));
    assert((size_t)(rows * w->cols) <= x->n && (size_t)(rows * w->rows) <= y->n);
    matmul_job m = {
        .w = w->f32, .bias = bias ? bias->f32 : NULL, .x = x->data, .y = y->data, .n_in = w->cols, .n_out = w->rows, .add = add};
    m.tile = column_tile(m.n_out);
    m.n_tiles = (m.n_out + m.tile - 1) / m.tile;
    m.n_row_tiles = rows / BE_ROW_TILE;
    ckvc_pool_run(cpu_of(be)->pool, m.n_row_tiles * m.n_tiles, matmul_task, &m);
}

/* ---- head ---- */

typedef struct head_job {
    cpu_backend *c;
    const float *w, *x;
    int64_t n_in, vocab, n_tiles;
    int64_t tile0, n_row_tiles; /* row tiles of this chunk */
    int64_t row0, n_rows;       /* rows of a lane that are asked for */
    int64_t lane_rows;
    const int32_t *target; /* [n_rows] */
    float *target_logit;   /* [n_lanes][n_rows] */
    float *max;            /* [HEAD_CHUNK * BE_ROW_TILE][n_tiles] */
    double *sum;           /* the same: sum of exp(logit - max) */
    float *logits;         /* head_logits: [vocab] of row row0 */
} head_job;

static void head_task(void *ctx, int64_t task, int worker)
{
    const head_job *h = ctx;
    /* A piece of the vocabulary meets all row tiles of the chunk while it is in the cache. */
    const int64_t tile = task / h->n_row_tiles, chunk_row = task % h->n_row_tiles * BE_ROW_TILE;
    const int64_t row = h->tile0 * BE_ROW_TILE + chunk_row, col = tile * HEAD_TILE;
    const int64_t width = col + HEAD_TILE <= h->vocab ? HEAD_TILE : h->vocab - col;
    float *logits = h->c->worker[worker].data; /* [BE_ROW_TILE][HEAD_TILE] */
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, BE_ROW_TILE, (int)width, (int)h->n_in, 1.0f, h->x + row * h->n_in,
                (int)h->n_in, h->w + col * h->n_in, (int)h->n_in, 0.0f, logits, HEAD_TILE);
    for (int64_t r = 0; r < BE_ROW_TILE; r++) {
        const int64_t lane = (row + r) / h->lane_rows, i = row + r - lane * h->lane_rows - h->row0;
        if (i < 0 || i >= h->n_rows)
            continue;
        float *z = logits + r * HEAD_TILE;
        if (h->logits) {
            memcpy(h->logits + col, z, (size_t)width * sizeof *z);
            continue;
        }
        if (h->target[i] >= col && h->target[i] < col + width)
            h->target_logit[lane * h->n_rows + i] = z[h->target[i] - col];
        const int64_t at = (chunk_row + r) * h->n_tiles + tile;
        h->sum[at] = kernel_softmax(z, width, &h->max[at]);
    }
}

static int64_t head_tiles(int64_t vocab)
{
    return (vocab + HEAD_TILE - 1) / HEAD_TILE;
}

void cpu_head_scratch(const be_extent *most, size_t *per_worker, size_t *shared)
{
    const int64_t rows = most->n_prompt > most->n_lanes * most->n_rows ? most->n_prompt : most->n_lanes * most->n_rows;
    *per_worker = BE_ROW_TILE * HEAD_TILE;
    *shared = (size_t)(3 * HEAD_CHUNK * BE_ROW_TILE * head_tiles(most->vocab) + rows);
}

ckvc_status cpu_head_nll(backend *be, const be_weight *w, const be_buf *x, int64_t row0, int64_t n_rows, int64_t n_lanes,
                         const int32_t *target, double *nll, ckvc_err *err)
{
    cpu_backend *c = cpu_of(be);
    head_job h = {.c = c,
                  .w = w->f32,
                  .x = x->data,
                  .n_in = w->cols,
                  .vocab = w->rows,
                  .row0 = row0,
                  .n_rows = n_rows,
                  .lane_rows = be_padded_rows(row0 + n_rows),
                  .target = target};
    assert(w->f32 && (size_t)(n_lanes * h.lane_rows * w->cols) <= x->n);
    if (n_rows == 0 || n_lanes == 0)
        return be->ops->sync(be, err);
    assert(n_lanes == 1 || row0 < BE_ROW_TILE); /* whole tiles before row0 are skipped for the first lane alone */
    size_t per_worker, shared;
    cpu_head_scratch(&(be_extent){.n_rows = n_rows, .n_lanes = n_lanes, .vocab = w->rows}, &per_worker, &shared);
    if (!cpu_reserve(c, per_worker, shared))
        return be->ops->sync(be, err);
    h.n_tiles = head_tiles(h.vocab);
    const int64_t n_partial = HEAD_CHUNK * BE_ROW_TILE * h.n_tiles;
    h.sum = (double *)c->shared.data;
    h.max = c->shared.data + 2 * n_partial;
    h.target_logit = h.max + n_partial;

    const int64_t tile_end = n_lanes * h.lane_rows / BE_ROW_TILE;
    for (h.tile0 = row0 / BE_ROW_TILE; h.tile0 < tile_end; h.tile0 += HEAD_CHUNK) {
        h.n_row_tiles = h.tile0 + HEAD_CHUNK < tile_end ? HEAD_CHUNK : tile_end - h.tile0;
        ckvc_pool_run(c->pool, h.n_row_tiles * h.n_tiles, head_task, &h);
        for (int64_t r = 0; r < h.n_row_tiles * BE_ROW_TILE; r++) {
            const int64_t row = h.tile0 * BE_ROW_TILE + r, lane = row / h.lane_rows, i = row - lane * h.lane_rows - row0;
            if (i < 0 || i >= n_rows)
                continue;
            const float *max = h.max + r * h.n_tiles;
            const double *sum = h.sum + r * h.n_tiles;
            double top = (double)max[0], total = 0;
            for (int64_t t = 1; t < h.n_tiles; t++)
                top = (double)max[t] > top ? (double)max[t] : top;
            for (int64_t t = 0; t < h.n_tiles; t++)
                total += sum[t] * exp((double)max[t] - top);
            nll[lane * n_rows + i] = log(total) + top - (double)h.target_logit[lane * n_rows + i];
        }
    }
    return be->ops->sync(be, err);
}

ckvc_status cpu_head_logits(backend *be, const be_weight *w, const be_buf *x, int64_t row, float *logits, ckvc_err *err)
{
    cpu_backend *c = cpu_of(be);
    head_job h = {.c = c,
                  .w = w->f32,
                  .x = x->data,
                  .n_in = w->cols,
                  .vocab = w->rows,
                  .row0 = row,
                  .n_rows = 1,
                  .lane_rows = be_padded_rows(row + 1),
                  .n_row_tiles = 1,
                  .logits = logits};
    assert(w->f32 && (size_t)(h.lane_rows * w->cols) <= x->n);
    h.n_tiles = head_tiles(h.vocab);
    h.tile0 = row / BE_ROW_TILE;
    if (cpu_reserve(c, BE_ROW_TILE * HEAD_TILE, 0))
        ckvc_pool_run(c->pool, h.n_tiles, head_task, &h);
    return be->ops->sync(be, err);
}
