/* The vocabulary head: it computes the logits of a piece of the vocabulary for a piece of the rows
 * at a time, from which kernels take running maxima, sums and the targets' logits. */
#include <assert.h>

#include "lib/backend/cuda/cuda.h"

#define HEAD_ROWS 1024 /* rows of a piece: whole tiles */
#define HEAD_TILE                                                                                  \
    8192 /* vocabulary entries of a piece: 32 MB of logits, part of which the L2 cache holds */

/* The places of the parts of the scratch memory, in bytes from its beginning. */
typedef struct head_places {
    size_t sum, dot, log_p, nll, kl, max, target_logit, target, logits, all;
} head_places;

static head_places places_of(int64_t rows, int64_t n_losses, int64_t vocab) {
    const int64_t piece = rows < HEAD_ROWS ? rows : HEAD_ROWS,
                  tile = vocab < HEAD_TILE ? vocab : HEAD_TILE;
    head_places at = {0};
    at.dot = cuda_align((size_t)rows * sizeof(double));
    at.log_p = 2 * at.dot;
    at.nll = at.log_p + cuda_align((size_t)n_losses * sizeof(double));
    at.kl = at.nll + cuda_align((size_t)n_losses * sizeof(double));
    at.max = at.kl + cuda_align((size_t)n_losses * sizeof(double));
    at.target_logit = at.max + cuda_align((size_t)rows * sizeof(float));
    at.target = at.target_logit + cuda_align((size_t)rows * sizeof(float));
    at.logits = at.target + cuda_align((size_t)n_losses * sizeof(int32_t));
    at.all = at.logits + (size_t)(piece * tile) * sizeof(float);
    return at;
}

typedef struct greedy_rows { /* of a tile */
    double nll[BE_ROW_TILE]; /* or the sums of p log p */
    int32_t id[BE_ROW_TILE];
} greedy_rows;

/* The bytes of a tile of rows over the whole vocabulary; logits_bytes adds the likeliest entries of
 * its rows. */
static size_t tile_bytes(int64_t vocab) {
    return cuda_align((size_t)(BE_ROW_TILE * vocab) * sizeof(float));
}
static size_t logits_bytes(int64_t vocab) { return tile_bytes(vocab) + sizeof(greedy_rows); }

size_t cuda_head_scratch(const cuda_backend *c, const be_extent *most) {
    const int64_t prompt = be_padded_rows(most->n_prompt),
                  lanes = most->n_lanes * be_padded_rows(most->n_rows),
                  rows = prompt > lanes ? prompt : lanes;
    (void)c;
    const size_t losses = places_of(rows > 0 ? rows : BE_ROW_TILE, rows, most->vocab).all,
                 logits = logits_bytes(most->vocab);
    return losses > logits ? losses : logits;
}

ckvc_status cuda_head_nll(backend *be, const be_weight *w, const be_buf *x, const be_rows *rows,
                          const be_losses *out, ckvc_err *err) {
    cuda_backend *c = cuda_of(be);
    const int64_t lane_rows = be_padded_rows(rows->row0 + rows->n_rows),
                  end = rows->n_lanes * lane_rows, first = rows->row0 / BE_ROW_TILE * BE_ROW_TILE,
                  n_losses = rows->n_lanes * rows->n_rows;
    if (cuda_failed(c) || n_losses == 0) { return cuda_sync(be, err); }
    assert(w->data && (size_t)(end * w->m.cols) <= x->n);
    /* whole tiles before row0 are skipped only for the first lane */
    assert(rows->n_lanes == 1 || rows->row0 < BE_ROW_TILE);
    const head_places at = places_of(end - first, n_losses, w->m.rows);
    char *scratch = cuda_scratch(c, at.all);
    if (!scratch) { return cuda_sync(be, err); }
    const cuda_losses l = {.first = first,
                           .lane_rows = lane_rows,
                           .row0 = rows->row0,
                           .n_rows = rows->n_rows,
                           .n_lanes = rows->n_lanes,
                           .target = (const int32_t *)(scratch + at.target),
                           .max = (float *)(scratch + at.max),
                           .target_logit = (float *)(scratch + at.target_logit),
                           .sum = (double *)scratch,
                           .nll = (double *)(scratch + at.nll),
                           .p = out->kl ? out->full->p->data : NULL,
                           .log_p = (const double *)(scratch + at.log_p),
                           .dot = (double *)(scratch + at.dot),
                           .kl = (double *)(scratch + at.kl),
                           .vocab = w->m.rows};
    cuda_upload(c, scratch + at.target, out->target, (size_t)rows->n_rows * sizeof *out->target);
    if (l.p) {
        cuda_upload(c, scratch + at.log_p, out->full->log_p,
                    (size_t)rows->n_rows * sizeof *out->full->log_p);
    }
    for (int64_t row = first; row < end; row += HEAD_ROWS) {
        cuda_call piece = {.w = w,
                           .x = x->data + row * w->m.cols,
                           .rows = end - row < HEAD_ROWS ? end - row : HEAD_ROWS,
                           .y = (float *)(scratch + at.logits)};
        for (int64_t col = 0; col < w->m.rows; col += HEAD_TILE) {
            const int64_t rest = w->m.rows - col;
            piece.first = col;
            piece.n_out = piece.stride = rest < HEAD_TILE ? rest : HEAD_TILE;
            if (!cuda_multiply(c, &piece)) { return cuda_sync(be, err); }
            cuda_head_tile(c->stream, &l, piece.y, row - first, piece.rows, col, piece.n_out);
        }
    }
    cuda_head_losses(c->stream, &l);
    cuda_check(c, "the vocabulary head");
    const size_t bytes = (size_t)n_losses * sizeof *out->nll;
    if (l.p) { CKVC_TRY(cuda_download(c, out->kl, l.kl, bytes, err)); }
    return cuda_download(c, out->nll, l.nll, bytes, err);
}

/* A tile of rows at a time, over the whole vocabulary. These are few rows, as in a step of
 * decoding, for which one product is faster than pieces of it. */
typedef struct logits_tile {
    int64_t from, n;     /* the first row in x; the number of rows, at most a tile */
    const float *logits; /* [n][vocab], in the scratch memory */
    greedy_rows *greedy; /* also in the scratch memory */
} logits_tile;

/* Goes on by t->n rows to the next tile of rows row0 ... row0 + n - 1. Returns false after the last
 * one, and where this fails, which is recorded. */
static bool next_logits(cuda_backend *c, const be_weight *w, const be_buf *x, int64_t end,
                        logits_tile *t) {
    const int64_t vocab = w->m.rows, from = t->from + t->n, tile = from / BE_ROW_TILE * BE_ROW_TILE;
    float *scratch = from < end ? cuda_scratch(c, logits_bytes(vocab)) : NULL;
    if (!scratch || !cuda_multiply(c, &(cuda_call){.w = w,
                                                   .n_out = vocab,
                                                   .x = x->data + tile * w->m.cols,
                                                   .rows = BE_ROW_TILE,
                                                   .few = cuda_few(x, w->m.cols),
                                                   .y = scratch,
                                                   .stride = vocab})) {
        return false;
    }
    t->from = from;
    t->n = (tile + BE_ROW_TILE < end ? tile + BE_ROW_TILE : end) - from;
    t->logits = scratch + (from - tile) * vocab;
    t->greedy = (greedy_rows *)((char *)scratch + tile_bytes(vocab));
    return true;
}

ckvc_status cuda_head_logits(backend *be, const be_weight *w, const be_buf *x, int64_t row0,
                             int64_t n, float *logits, ckvc_err *err) {
    cuda_backend *c = cuda_of(be);
    const size_t row = (size_t)w->m.rows * sizeof *logits;
    logits_tile t = {.from = row0};
    if (cuda_failed(c) || n == 0) { return cuda_sync(be, err); }
    assert(w->data && (size_t)(be_padded_rows(row0 + n) * w->m.cols) <= x->n);
    while (next_logits(c, w, x, row0 + n, &t)) {
        CKVC_TRY(cuda_download(c, logits + (t.from - row0) * w->m.rows, t.logits, (size_t)t.n * row,
                               err));
    }
    return cuda_sync(be, err);
}

ckvc_status cuda_head_distributions(backend *be, const be_weight *w, const be_buf *x, int64_t row0,
                                    int64_t n, const be_distributions *out, ckvc_err *err) {
    cuda_backend *c = cuda_of(be);
    float *p = cuda_failed(c) ? NULL : cuda_written(c, out->p);
    logits_tile t = {.from = row0};
    if (!p || n == 0) { return cuda_sync(be, err); }
    assert(w->data && (size_t)(be_padded_rows(row0 + n) * w->m.cols) <= x->n &&
           (size_t)(n * w->m.rows) <= out->p->n);
    while (next_logits(c, w, x, row0 + n, &t)) {
        const int64_t at = t.from - row0;
        cuda_head_distribution_rows(c->stream, t.logits, t.n, w->m.rows, p + at * w->m.rows,
                                    t.greedy->nll);
        cuda_check(c, "a distribution");
        CKVC_TRY(cuda_download(c, out->log_p + at, t.greedy->nll, (size_t)t.n * sizeof *out->log_p,
                               err));
    }
    return cuda_sync(be, err);
}

ckvc_status cuda_head_greedy(backend *be, const be_weight *w, const be_buf *x, int64_t row0,
                             int64_t n, be_greedy *next, ckvc_err *err) {
    cuda_backend *c = cuda_of(be);
    logits_tile t = {.from = row0};
    if (cuda_failed(c) || n == 0) { return cuda_sync(be, err); }
    assert(w->data && (size_t)(be_padded_rows(row0 + n) * w->m.cols) <= x->n);
    while (next_logits(c, w, x, row0 + n, &t)) {
        greedy_rows got;
        cuda_head_greedy_rows(c->stream, t.logits, t.n, w->m.rows, t.greedy->id, t.greedy->nll);
        cuda_check(c, "greedy decoding");
        const size_t n_got = (size_t)t.n;
        CKVC_TRY(cuda_download(c, got.nll, t.greedy->nll, n_got * sizeof *got.nll, err));
        CKVC_TRY(cuda_download(c, got.id, t.greedy->id, n_got * sizeof *got.id, err));
        for (int64_t i = 0; i < t.n; i++) {
            next[t.from - row0 + i] = (be_greedy){.nll = got.nll[i], .id = got.id[i]};
        }
    }
    return cuda_sync(be, err);
}
