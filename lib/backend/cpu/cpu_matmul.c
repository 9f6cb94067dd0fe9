/* Products with weights, y = x W^T in fixed tiles, and the language model head with its
 * log-sum-exp. */
#include <assert.h>
#include <cblas.h>
#include <math.h>
#include <string.h>

#include "lib/backend/cpu/cpu.h"

/* Rows of the head at a time, in whole tiles; this limits the memory of partial sums. */
#define HEAD_CHUNK 512
#define ROW_BLOCK  1024 /* rows that use a piece of the weights before the next piece is read */
#define MOST_COLS  256  /* the most columns of a task */

/* A tile of a product: y [rows][width] (+)= rows x [rows][cols] times the columns from col on of
 * W^T. */
typedef struct cpu_tile {
    const be_weight *w;
    const float *x; /* [rows][w->places] from operand() */
    be_product_rows rows;
    int64_t col, width;
    bool onto;
    float *y;
    int64_t y_stride;
} cpu_tile;

/* Computes a tile; every product with weights is made of these. */
static void product(const cpu_backend *c, const cpu_tile *t) {
    const int64_t n_in = t->w->places;
    const float *w = t->w->data + t->col * n_in;
    if (c->fma) {
        (n_in < t->w->m.cols ? c->fma->product_pairs : c->fma->product)(
            &t->rows, t->width, n_in, t->x, n_in, w, n_in, t->onto, t->y, t->y_stride);
    } else {
        cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, (int)t->rows.n, (int)t->width,
                    (int)n_in, 1.0f, t->x, (int)n_in, w, (int)n_in, t->onto ? 1.0f : 0.0f, t->y,
                    (int)t->y_stride);
    }
}

typedef struct round_job {
    const cpu_backend *c;
    int64_t n_rows, n, places;
    const float *x;
} round_job;

static void round_task(void *ctx, int64_t task, int worker) {
    (void)worker;
    const round_job *j = ctx;
    const int64_t row = task * BE_ROW_TILE;
    cpu_round(j->c, cpu_piece_length(j->n_rows, row, BE_ROW_TILE), j->n, j->x + row * j->n,
              j->c->rounded.data + row * j->places);
}

/* The rows x [n_rows][cols] in the form in which w is multiplied with them; valid until the next
 * product. */
static const float *operand(cpu_backend *c, const be_weight *w, const float *x, int64_t n_rows) {
    if (!w->bf16) { return x; }
    round_job job = {c, n_rows, w->m.cols, w->places, x};
    cpu_grow(&c->rounded, (size_t)(n_rows * w->places));
    ckvc_pool_run(c->base.pool, cpu_pieces(n_rows, BE_ROW_TILE), round_task, &job);
    return c->rounded.data;
}

/* Whether a task may have any number of rows: with our own kernels the bits do not depend on the
 * shape of a call. */
static bool any_rows(const cpu_backend *c) { return c->fma; }

/* Columns of a task: equal pieces of at most `most`, in whole vectors. OpenBLAS packs a task's rows
 * of x anew, so narrow pieces cost this more than once; wide ones leave threads without work. */
static int64_t column_tile(int64_t n_out, int64_t most) {
    return cpu_pieces(cpu_pieces(n_out, cpu_pieces(n_out, most)), 16) * 16;
}

typedef struct matmul_job {
    const cpu_backend *c;
    const be_weight *w;
    const float *bias, *x;
    float *y;
    be_product_rows rows;
    int64_t tile, n_tiles;         /* columns of a task; number of such pieces */
    int64_t row_tile, n_row_tiles; /* rows of a task; number of such pieces */
    bool add;
} matmul_job;

/* Cuts y into tasks. With OpenBLAS the shape of a task shows in the bits, so it depends on the
 * weight alone. Our own kernels pack a task's columns of the weights, so a task has many rows, but
 * not so many that threads have nothing to do. */
static void cut_tasks(matmul_job *m) {
    const int64_t n_out = m->w->m.rows;
    int64_t rows = any_rows(m->c) ? CPU_MOST_ROWS : BE_ROW_TILE, cols = MOST_COLS;
    for (;;) {
        m->row_tile = rows;
        m->n_row_tiles = cpu_pieces(m->rows.n, rows);
        m->tile = column_tile(n_out, cols);
        m->n_tiles = cpu_pieces(n_out, m->tile);
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

/* Computes one task: up to row_tile rows of y, and up to `tile` of its columns. */
static void matmul_task(void *ctx, int64_t task, int worker) {
    (void)worker;
    const matmul_job *m = ctx;
    const int64_t n_out = m->w->m.rows, whole = ROW_BLOCK / m->row_tile,
                  block = task / (whole * m->n_tiles) * whole, in_block = task - block * m->n_tiles,
                  n_block = cpu_piece_length(m->n_row_tiles, block, whole);
    const int64_t row = (block + in_block % n_block) * m->row_tile,
                  col = in_block / n_block * m->tile;
    cpu_tile t = {.w = m->w,
                  .x = m->x + row * m->w->places,
                  .rows = m->rows,
                  .col = col,
                  .width = cpu_piece_length(n_out, col, m->tile),
                  .onto = m->add || m->bias,
                  .y = m->y + row * n_out + col,
                  .y_stride = n_out};
    t.rows.n = cpu_piece_length(m->rows.n, row, m->row_tile);
    t.rows.first += row;
    for (int64_t r = 0; m->bias && r < t.rows.n; r++) {
        float *y = t.y + r * n_out;
        for (int64_t i = 0; i < t.width; i++) { y[i] = (m->add ? y[i] : 0.0f) + m->bias[col + i]; }
    }
    product(m->c, &t);
}

void cpu_matmul(backend *be, const be_weight *w, const be_weight *bias, const be_buf *x,
                const be_product_rows *rows, bool add, be_buf *y) {
    const int64_t padded = be_padded_rows(rows->n);
    assert(w->data && (!bias || (bias->data && bias->m.rows * bias->m.cols == w->m.rows)));
    assert((size_t)(padded * w->m.cols) <= x->n && (size_t)(padded * w->m.rows) <= y->n);
    matmul_job m = {.c = cpu_of(be),
                    .w = w,
                    .bias = bias ? bias->data : NULL,
                    .y = y->data,
                    .rows = *rows,
                    .add = add};
    if (!any_rows(m.c)) { m.rows.n = padded; }
    m.x = operand(cpu_of(be), w, x->data, m.rows.n);
    cut_tasks(&m);
    ckvc_pool_run(be->pool, m.n_row_tiles * m.n_tiles, matmul_task, &m);
}

/* ---- head ---- */

typedef struct head_job {
    cpu_backend *c;
    const be_weight *w;
    const float *x;
    /* the chunk's rows from `first` on, in the form in which they are multiplied */
    const float *chunk;
    int64_t tile, n_tiles; /* vocabulary entries of a task; number of such pieces */
    int64_t row_tile;      /* rows of a task */
    int64_t first, n;      /* rows of the current chunk */
    be_rows asked;         /* the rows that are asked for, in every lane */
    int64_t lane_rows;
    const be_losses *losses;
    float *target_logit; /* [n_lanes][n_rows] */
    /* for head_greedy: [rows][n_tiles] the first entry with the piece's maximum */
    int32_t *first_max;
    float *max;    /* [HEAD_CHUNK][n_tiles] */
    double *sum;   /* [HEAD_CHUNK][n_tiles] sum of exp(logit - max) */
    double *dot;   /* [HEAD_CHUNK][n_tiles] sum of p logit; NULL: not asked for */
    float *logits; /* for head_logits: [n_rows][vocab] */
} head_job;

/* The place of row `row` of x in [n_lanes][n_rows] of what is asked for; -1: it is not asked
 * for. */
static int64_t asked_of(const head_job *h, int64_t row) {
    const int64_t lane = row / h->lane_rows, i = row - lane * h->lane_rows - h->asked.row0;
    return i < 0 || i >= h->asked.n_rows ? -1 : lane * h->asked.n_rows + i;
}

/* Finds the first of the largest logits of a piece. Returns the sum of exp(logit - it), in
 * double. */
static double greedy_piece(const float *logits, int64_t width, float *max, int32_t *first_max) {
    double sum = 0;
    int32_t best = 0;
    for (int32_t i = 1; i < width; i++) { best = logits[i] > logits[best] ? i : best; }
    for (int64_t i = 0; i < width; i++) { sum += exp((double)logits[i] - (double)logits[best]); }
    *max = logits[best];
    *first_max = best;
    return sum;
}

static void head_task(void *ctx, int64_t task, int worker) {
    const head_job *h = ctx;
    /* One piece of the vocabulary is multiplied with all rows of the chunk while it is in the
     * cache. */
    const int64_t pieces = cpu_pieces(h->n, h->row_tile), tile = task / pieces,
                  row = task % pieces * h->row_tile,
                  n_rows = cpu_piece_length(h->n, row, h->row_tile);
    const int64_t col = tile * h->tile, width = cpu_piece_length(h->w->m.rows, col, h->tile);
    float *logits = h->c->worker[worker].data; /* [n_rows][tile] */
    product(h->c, &(cpu_tile){.w = h->w,
                              .x = h->chunk + row * h->w->places,
                              .rows = {n_rows, h->first + row, h->asked.row0 + h->asked.n_rows,
                                       h->lane_rows},
                              .col = col,
                              .width = width,
                              .y = logits,
                              .y_stride = h->tile});
    for (int64_t r = row; r < row + n_rows; r++, logits += h->tile) {
        const int64_t place = asked_of(h, h->first + r), at = r * h->n_tiles + tile;
        if (place < 0) { continue; }
        if (h->logits) {
            memcpy(h->logits + place * h->w->m.rows + col, logits, (size_t)width * sizeof *logits);
            continue;
        }
        if (h->first_max) {
            h->sum[at] = greedy_piece(logits, width, &h->max[at], &h->first_max[at]);
            continue;
        }
        const int64_t i = place % h->asked.n_rows, target = h->losses->target[i] - col;
        if (target >= 0 && target < width) { h->target_logit[place] = logits[target]; }
        if (h->dot) {
            const float *p = h->losses->full->p->data + i * h->w->m.rows + col;
            h->dot[at] = kernel_dot(p, logits, width);
        }
        h->sum[at] = h->c->fma ? h->c->fma->exp_sum(logits, width, &h->max[at])
                               : kernel_softmax(logits, width, &h->max[at]);
    }
}

/* As in a matrix product, tasks of OpenBLAS have the rows of one tile, and ours have more. */
static void cut_head(head_job *h, const cpu_backend *c, int64_t vocab) {
    h->row_tile = any_rows(c) ? CPU_MOST_ROWS : BE_ROW_TILE;
    h->tile = CPU_TASK_FLOATS / h->row_tile;
    h->n_tiles = cpu_pieces(vocab, h->tile);
}

static void run_head(head_job *h) {
    h->chunk = operand(h->c, h->w, h->x + h->first * h->w->m.cols, h->n);
    ckvc_pool_run(h->c->base.pool, cpu_pieces(h->n, h->row_tile) * h->n_tiles, head_task, h);
}

void cpu_head_scratch(const cpu_backend *c, const be_extent *most, size_t *per_worker,
                      size_t *shared) {
    head_job h = {0};
    cut_head(&h, c, most->vocab);
    const int64_t lanes = most->n_lanes * most->n_rows,
                  rows = most->n_prompt > lanes ? most->n_prompt : lanes;
    *per_worker = CPU_TASK_FLOATS;
    *shared = (size_t)(5 * HEAD_CHUNK * h.n_tiles + rows);
}

/* Combines the sums of a row's pieces, one after the other, into its log-sum-exp. */
static double log_sum_of(const head_job *h, int64_t r) {
    const float *max = h->max + r * h->n_tiles;
    const double *sum = h->sum + r * h->n_tiles;
    double top = (double)max[0], total = 0;
    for (int64_t t = 1; t < h->n_tiles; t++) { top = (double)max[t] > top ? (double)max[t] : top; }
    for (int64_t t = 0; t < h->n_tiles; t++) { total += sum[t] * exp((double)max[t] - top); }
    return log(total) + top;
}

/* The sum of p log p - p (logit - log_sum); where rounding makes it negative it becomes 0; a NaN
 * stays. */
static double divergence_of(const head_job *h, int64_t r, int64_t place, double log_sum) {
    double kl = h->losses->full->log_p[place % h->asked.n_rows] + log_sum;
    for (int64_t t = 0; t < h->n_tiles; t++) { kl -= h->dot[r * h->n_tiles + t]; }
    return kl < 0 ? 0 : kl;
}

static head_job head_of(cpu_backend *c, const be_weight *w, const be_buf *x, const be_rows *rows) {
    head_job h = {.c = c,
                  .w = w,
                  .x = x->data,
                  .asked = *rows,
                  .lane_rows = be_padded_rows(rows->row0 + rows->n_rows)};
    assert(w->data && (size_t)(rows->n_lanes * h.lane_rows * w->m.cols) <= x->n);
    cut_head(&h, c, w->m.rows);
    return h;
}

/* A job for n rows of one lane: with our own kernels for these alone, else for the whole tiles that
 * contain them. */
static head_job head_of_lane(cpu_backend *c, const be_weight *w, const be_buf *x, int64_t row0,
                             int64_t n) {
    head_job h = head_of(c, w, x, &(be_rows){.row0 = row0, .n_rows = n, .n_lanes = 1});
    h.first = any_rows(c) ? row0 : row0 / BE_ROW_TILE * BE_ROW_TILE;
    h.n = (any_rows(c) ? row0 + n : h.lane_rows) - h.first;
    return h;
}

ckvc_status cpu_head_nll(backend *be, const be_weight *w, const be_buf *x, const be_rows *rows,
                         const be_losses *out, ckvc_err *err) {
    cpu_backend *c = cpu_of(be);
    head_job h = head_of(c, w, x, rows);
    const int64_t end = rows->n_lanes * h.lane_rows;
    if (rows->n_rows == 0 || rows->n_lanes == 0) { return cpu_sync(be, err); }
    /* whole tiles before row0 are skipped only for the first lane */
    assert(rows->n_lanes == 1 || rows->row0 < BE_ROW_TILE);
    size_t per_worker, shared;
    const be_extent most = {.n_rows = rows->n_rows, .n_lanes = rows->n_lanes, .vocab = w->m.rows};
    cpu_head_scratch(c, &most, &per_worker, &shared);
    cpu_need(c, per_worker, shared);
    h.losses = out;
    h.sum = (double *)c->shared.data;
    if (out->kl) { h.dot = h.sum + HEAD_CHUNK * h.n_tiles; }
    h.max = c->shared.data + 4 * HEAD_CHUNK * h.n_tiles;
    h.target_logit = h.max + HEAD_CHUNK * h.n_tiles;
    for (h.first = rows->row0 / BE_ROW_TILE * BE_ROW_TILE; h.first < end; h.first += HEAD_CHUNK) {
        h.n = cpu_piece_length(end, h.first, HEAD_CHUNK);
        run_head(&h);
        for (int64_t r = 0; r < h.n; r++) {
            const int64_t place = asked_of(&h, h.first + r);
            if (place < 0) { continue; }
            const double log_sum = log_sum_of(&h, r);
            out->nll[place] = log_sum - (double)h.target_logit[place];
            if (h.dot) { out->kl[place] = divergence_of(&h, r, place, log_sum); }
        }
    }
    return cpu_sync(be, err);
}

ckvc_status cpu_head_logits(backend *be, const be_weight *w, const be_buf *x, int64_t row0,
                            int64_t n, float *logits, ckvc_err *err) {
    cpu_backend *c = cpu_of(be);
    head_job h = head_of_lane(c, w, x, row0, n);
    h.logits = logits;
    cpu_need(c, CPU_TASK_FLOATS, 0);
    run_head(&h);
    return cpu_sync(be, err);
}

typedef struct distributions_job {
    const be_distributions *out;
    int64_t vocab;
} distributions_job;

/* Turns a row's logits into its distribution. */
static void distribution_task(void *ctx, int64_t row, int worker) {
    (void)worker;
    const distributions_job *d = ctx;
    float *p = d->out->p->data + row * d->vocab;
    double sum = 0;
    kernel_scale(p, d->vocab, (float)(1 / kernel_softmax(p, d->vocab, NULL)));
    for (int64_t i = 0; i < d->vocab; i++) {
        if (p[i] != 0) { sum += (double)p[i] * log((double)p[i]); }
    }
    d->out->log_p[row] = sum;
}

ckvc_status cpu_head_distributions(backend *be, const be_weight *w, const be_buf *x, int64_t row0,
                                   int64_t n, const be_distributions *out, ckvc_err *err) {
    assert((size_t)(n * w->m.rows) <= out->p->n);
    CKVC_TRY(cpu_head_logits(be, w, x, row0, n, out->p->data, err));
    distributions_job d = {out, w->m.rows};
    ckvc_pool_run(be->pool, n, distribution_task, &d);
    return CKVC_OK;
}

/* It takes a tile of rows at a time, so that it needs no more scratch than cpu_head_scratch counts
 * for losses. */
ckvc_status cpu_head_greedy(backend *be, const be_weight *w, const be_buf *x, int64_t row0,
                            int64_t n, be_greedy *next, ckvc_err *err) {
    cpu_backend *c = cpu_of(be);
    head_job h = head_of_lane(c, w, x, row0, n);
    const int64_t end = h.first + h.n;
    cpu_need(c, CPU_TASK_FLOATS, (size_t)(4 * BE_ROW_TILE * h.n_tiles));
    h.sum = (double *)c->shared.data;
    h.max = c->shared.data + 2 * BE_ROW_TILE * h.n_tiles;
    h.first_max = (int32_t *)(h.max + BE_ROW_TILE * h.n_tiles);
    for (; h.first < end; h.first += BE_ROW_TILE) {
        h.n = cpu_piece_length(end, h.first, BE_ROW_TILE);
        run_head(&h);
        for (int64_t r = 0; r < h.n; r++) {
            const int64_t place = asked_of(&h, h.first + r), at = r * h.n_tiles;
            int64_t best = 0;
            if (place < 0) { continue; }
            for (int64_t t = 1; t < h.n_tiles; t++) {
                best = h.max[at + t] > h.max[at + best] ? t : best;
            }
            next[place] = (be_greedy){.nll = log_sum_of(&h, r) - (double)h.max[at + best],
                                      .id = (int32_t)(best * h.tile) + h.first_max[at + best]};
        }
    }
    return cpu_sync(be, err);
}
