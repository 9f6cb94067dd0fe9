/* Attention as its keys see it: what a row gives to each position, over the rows of a prompt's
 * window or of a continuation (window_mass, window_rows and attention_targets in backend.h).
 *
 * A task is one query head and a piece of its blocks of BE_ROW_TILE rows, in order. A block's
 * scores are taken over every key that some row of it sees, so that column t is position k0 + t;
 * each row gets its softmax, and is then added to, or compared with, what the piece has so far.
 * Pieces are brought together in their order: they follow from the shapes alone.
 */
#include <assert.h>
#include <string.h>

#include "lib/backend/cpu/cpu.h"

#define TARGET_PIECES 8

typedef enum column_fold { FOLD_SUM, FOLD_LARGEST, FOLD_NONE } column_fold;

typedef struct column_job {
    cpu_backend *c;
    const be_attention_shape *s;
    const float *q;                /* [..][H*D], the first row is position row0 */
    int64_t row0;                  /* blocks begin here */
    int64_t first, end;            /* positions of the rows that count */
    be_cache prompt, own;          /* positions 0 ... n_prompt-1, and those behind them */
    int64_t n_prompt;              /* rows of the prompt itself: INT64_MAX, and no `own` */
    int64_t n_columns;             /* of the result: positions 0 ... n_columns-1 */
    int64_t first_block, n_blocks; /* of all rows that count; of a piece */
    int32_t n_pieces;
    column_fold fold;
    double *columns; /* [n_pieces][H][n_columns] */
    float *rows;     /* FOLD_NONE: [H][end - first][n_columns] */
} column_job;

static int64_t min64(int64_t a, int64_t b) { return a < b ? a : b; }

static int64_t max64(int64_t a, int64_t b) { return a > b ? a : b; }

/* Scores of the block at position `at` over positions k0 ... at + BE_ROW_TILE - 1. */
static void block_scores(const column_job *a, int64_t h, int64_t at, int64_t k0, float *score,
                         int64_t stride) {
    const be_attention_shape *s = a->s;
    const int64_t d = s->head_dim, g = h / (s->n_heads / s->n_kv_heads), top = at + BE_ROW_TILE,
                  n = min64(top, a->n_prompt) - k0;
    const float *q = a->q + ((at - a->row0) * s->n_heads + h) * d;
    cpu_scores(a->c, s, q, a->prompt.k->data + (g * a->prompt.capacity + k0) * d, n, score, stride);
    if (top > a->n_prompt) {
        cpu_scores(a->c, s, q, a->own.k->data + g * a->own.capacity * d, top - a->n_prompt,
                   score + n, stride);
    }
}

static void fold_block(const column_job *a, int64_t h, int64_t at, float *score, double *columns) {
    const int64_t k0 = cpu_first_key(a->s, at), stride = cpu_score_stride(at + BE_ROW_TILE - k0);
    if (k0 >= a->n_columns) { return; } /* a sliding window has left the columns behind */
    block_scores(a, h, at, k0, score, stride);
    for (int64_t j = max64(at, a->first); j < min64(at + BE_ROW_TILE, a->end); j++) {
        const int64_t lo = cpu_first_seen(a->s, j), n = min64(j + 1, a->n_columns) - lo;
        float *row = score + (j - at) * stride + lo - k0;
        if (n <= 0) { break; }
        const double inverse = 1.0 / kernel_softmax(row, j + 1 - lo, NULL);
        if (a->fold == FOLD_SUM) {
            kernel_mass_add(columns + lo, row, n, inverse);
        } else if (a->fold == FOLD_LARGEST) {
            kernel_mass_max(columns + lo, row, n, inverse);
        } else {
            float *out = a->rows + (h * (a->end - a->first) + j - a->first) * a->n_columns;
            memset(out, 0, (size_t)a->n_columns * sizeof *out);
            memcpy(out + lo, row, (size_t)n * sizeof *out);
            kernel_scale(out + lo, n, (float)inverse);
        }
    }
}

static void fold_task(void *ctx, int64_t task, int worker) {
    const column_job *a = ctx;
    const int64_t h = task % a->s->n_heads,
                  block = a->first_block + task / a->s->n_heads * a->n_blocks;
    double *columns = a->columns ? a->columns + task * a->n_columns : NULL;
    if (columns) { memset(columns, 0, (size_t)a->n_columns * sizeof *columns); }
    for (int64_t i = block; i < block + a->n_blocks && a->row0 + i * BE_ROW_TILE < a->end; i++) {
        fold_block(a, h, a->row0 + i * BE_ROW_TILE, a->c->worker[worker].data, columns);
    }
}

/* Runs the job in so many pieces a head at most. */
static void fold_rows(column_job *a, int64_t most_pieces) {
    const be_attention_shape *s = a->s;
    a->first_block = (a->first - a->row0) / BE_ROW_TILE;
    const int64_t n = (a->end - a->row0 + BE_ROW_TILE - 1) / BE_ROW_TILE - a->first_block;
    a->n_blocks = (n + most_pieces - 1) / most_pieces;
    a->n_pieces = (int32_t)((n + a->n_blocks - 1) / a->n_blocks);
    const size_t keys = (size_t)(BE_ROW_TILE *
                                 cpu_score_stride(be_padded_rows(a->end - a->row0) + a->row0)),
                 columns = (size_t)(2 * a->n_pieces * s->n_heads * a->n_columns);
    cpu_need(a->c, keys, a->fold == FOLD_NONE ? 0 : columns);
    a->columns = a->fold == FOLD_NONE ? NULL : (double *)a->c->shared.data;
    ckvc_pool_run(a->c->base.pool, a->n_pieces * s->n_heads, fold_task, a);
}

/* Brings a group's heads and their pieces together -> out [G][n_columns]. */
static void fold_groups(const column_job *a, double *out) {
    const int64_t n = a->n_columns, n_heads = a->s->n_heads, group = n_heads / a->s->n_kv_heads;
    for (int64_t g = 0; g < a->s->n_kv_heads; g++) {
        double *to = out + g * n;
        memcpy(to, a->columns + g * group * n, (size_t)n * sizeof *to);
        for (int64_t i = 1; i < a->n_pieces * group; i++) {
            const double *from = a->columns + (i / group * n_heads + g * group + i % group) * n;
            for (int64_t t = 0; t < n; t++) {
                to[t] = a->fold == FOLD_SUM ? to[t] + from[t] : from[t] > to[t] ? from[t] : to[t];
            }
        }
    }
}

/* Over the window of a prompt. */
static column_job window_job(backend *be, const be_attention_shape *s, const be_window *w,
                             const be_buf *q, const be_cache *cache) {
    assert(w->window <= w->n && be_padded_rows(w->n) <= cache->capacity &&
           w->row0 % BE_ROW_TILE == 0 && w->row0 <= w->n - w->window);
    return (column_job){.c = cpu_of(be),
                        .s = s,
                        .q = q->data,
                        .row0 = w->row0,
                        .first = w->n - w->window,
                        .end = w->n,
                        .prompt = *cache,
                        .n_prompt = INT64_MAX,
                        .n_columns = w->n};
}

ckvc_status cpu_window_mass(backend *be, const be_attention_shape *s, const be_window *w,
                            const be_buf *q, const be_cache *cache, double *mass, ckvc_err *err) {
    column_job a = window_job(be, s, w, q, cache);
    fold_rows(&a, 1);
    fold_groups(&a, mass);
    return cpu_sync(be, err);
}

ckvc_status cpu_window_rows(backend *be, const be_attention_shape *s, const be_window *w,
                            const be_buf *q, const be_cache *cache, float *rows, ckvc_err *err) {
    column_job a = window_job(be, s, w, q, cache);
    a.fold = FOLD_NONE;
    a.rows = rows;
    fold_rows(&a, TARGET_PIECES);
    return cpu_sync(be, err);
}

ckvc_status cpu_attention_targets(backend *be, const be_attention_shape *s,
                                  const be_continuation *r, int64_t first_row, bool largest,
                                  double *out, ckvc_err *err) {
    assert(first_row >= 0 && first_row < r->n_rows && r->n_prompt <= r->prompt.capacity &&
           be_padded_rows(r->n_rows) <= r->own.capacity);
    column_job a = {.c = cpu_of(be),
                    .s = s,
                    .q = r->q->data,
                    .row0 = r->n_prompt,
                    .first = r->n_prompt + first_row,
                    .end = r->n_prompt + r->n_rows,
                    .prompt = r->prompt,
                    .own = r->own,
                    .n_prompt = r->n_prompt,
                    .n_columns = r->n_prompt,
                    .fold = largest ? FOLD_LARGEST : FOLD_SUM};
    fold_rows(&a, TARGET_PIECES);
    fold_groups(&a, out);
    return cpu_sync(be, err);
}

void cpu_columns_scratch(const be_attention_shape *s, const be_extent *most, size_t *per_worker,
                         size_t *shared) {
    const int64_t pieces = most->n_targets > 0 ? TARGET_PIECES : 1,
                  keys = be_padded_rows(most->n_prompt) +
                         (most->n_targets > 0 ? be_padded_rows(most->n_targets) : 0);
    *per_worker = (size_t)(BE_ROW_TILE * cpu_score_stride(keys));
    *shared = (size_t)(2 * pieces * s->n_heads * most->n_prompt);
}
