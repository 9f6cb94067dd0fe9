/* The vocabulary head: logits of a piece of the vocabulary for a piece of the rows at a time, from
 * which kernels take running maxima, sums and the targets' logits. */
#include <assert.h>

#include "lib/backend/cuda/cuda.h"

#define HEAD_ROWS 1024 /* of a piece: whole tiles */
#define HEAD_TILE                                                                                  \
    8192 /* vocabulary entries of a piece: 32 MB of logits, which the L2 holds in part */

/* Parts of the scratch memory, in bytes from its beginning. */
typedef struct head_places {
    size_t sum, nll, max, target_logit, target, logits, all;
} head_places;

static head_places places_of(int64_t rows, int64_t n_losses, int64_t vocab) {
    const int64_t piece = rows < HEAD_ROWS ? rows : HEAD_ROWS,
                  tile = vocab < HEAD_TILE ? vocab : HEAD_TILE;
    head_places at = {0};
    at.nll = cuda_align((size_t)rows * sizeof(double));
    at.max = at.nll + cuda_align((size_t)n_losses * sizeof(double));
    at.target_logit = at.max + cuda_align((size_t)rows * sizeof(float));
    at.target = at.target_logit + cuda_align((size_t)rows * sizeof(float));
    at.logits = at.target + cuda_align((size_t)n_losses * sizeof(int32_t));
    at.all = at.logits + (size_t)(piece * tile) * sizeof(float);
    return at;
}

/* Of a tile of rows over the whole vocabulary. */
static size_t logits_bytes(int64_t vocab) { return (size_t)(BE_ROW_TILE * vocab) * sizeof(float); }

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
                          const int32_t *target, double *nll, ckvc_err *err) {
    cuda_backend *c = cuda_of(be);
    const int64_t lane_rows = be_padded_rows(rows->row0 + rows->n_rows),
                  end = rows->n_lanes * lane_rows, first = rows->row0 / BE_ROW_TILE * BE_ROW_TILE,
                  n_losses = rows->n_lanes * rows->n_rows;
    if (cuda_failed(c) || n_losses == 0) { return cuda_sync(be, err); }
    assert(w->data && (size_t)(end * w->m.cols) <= x->n);
    /* whole tiles before row0 are skipped for the first lane alone */
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
                           .nll = (double *)(scratch + at.nll)};
    cuda_upload(c, scratch + at.target, target, (size_t)rows->n_rows * sizeof *target);
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
    return cuda_download(c, nll, l.nll, (size_t)n_losses * sizeof *nll, err);
}

/* A tile of rows at a time, over the whole vocabulary: these are few rows, as a step of decoding
 * has, for which one product and one copy beat pieces of both. */
ckvc_status cuda_head_logits(backend *be, const be_weight *w, const be_buf *x, int64_t row0,
                             int64_t n, float *logits, ckvc_err *err) {
    cuda_backend *c = cuda_of(be);
    const int64_t vocab = w->m.rows;
    if (cuda_failed(c) || n == 0) { return cuda_sync(be, err); }
    assert(w->data && (size_t)(be_padded_rows(row0 + n) * w->m.cols) <= x->n);
    float *scratch = cuda_scratch(c, logits_bytes(vocab));
    for (int64_t tile = row0 / BE_ROW_TILE * BE_ROW_TILE; scratch && tile < row0 + n;
         tile += BE_ROW_TILE) {
        const int64_t from = tile > row0 ? tile : row0,
                      to = tile + BE_ROW_TILE < row0 + n ? tile + BE_ROW_TILE : row0 + n;
        if (!cuda_multiply(c, &(cuda_call){.w = w,
                                           .n_out = vocab,
                                           .x = x->data + tile * w->m.cols,
                                           .rows = BE_ROW_TILE,
                                           .few = cuda_few(x, w->m.cols),
                                           .y = scratch,
                                           .stride = vocab})) {
            break;
        }
        cuda_ok(c,
                cudaMemcpyAsync(logits + (from - row0) * vocab, scratch + (from - tile) * vocab,
                                (size_t)((to - from) * vocab) * sizeof(float),
                                cudaMemcpyDeviceToHost, c->stream),
                "copying logits");
    }
    return cuda_sync(be, err);
}
