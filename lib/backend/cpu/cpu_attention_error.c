/* How far attention rows move when prompt positions are left out of the cache: see attention_error
 * in backend.h.
 *
 * A task is one query head and one block of BE_ROW_TILE rows. Both lanes' scores are taken over
 * every prompt key and the lane's own keys, so that column t is position t in both; the kept
 * columns are then gathered and get a softmax of their own, as a compressed cache computes it.
 * Nothing is derived from the identity that the numbers are there to test.
 */
#include <assert.h>
#include <cblas.h>

#include "lib/backend/cpu/cpu.h"

typedef struct error_job {
    cpu_backend *c;
    const be_attention_shape *s;
    int64_t n_rows, n_prompt, capacity, own_capacity;
    int32_t lanes[2]; /* the full one, the compressed one */
    const float *q, *k, *own_k;
    const kept_set *kept;
    be_row_error *out;
} error_job;

static int64_t padded(int64_t n) {
    return (n + 15) / 16 * 16;
}

/* score = scale q k^T for n keys, by whichever product the backend computes with. */
static void product(const error_job *a, const float *q, const float *k, int64_t n, float *score,
                    int64_t stride) {
    const be_attention_shape *s = a->s;
    const int64_t ldq = (int64_t)s->n_heads * s->head_dim;
    if (n == 0) { return; }
    if (!a->c->fma) {
        cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, BE_ROW_TILE, (int)n, s->head_dim,
                    s->scale, q, (int)ldq, k, s->head_dim, 0.0f, score, (int)stride);
        return;
    }
    a->c->fma->product(BE_ROW_TILE, n, s->head_dim, q, ldq, k, s->head_dim, false, score, stride);
    for (int r = 0; r < BE_ROW_TILE; r++) {
        kernel_scale(score + r * stride, n, s->scale);
    }
}

/* Scores of one lane's block over positions 0 ... n_prompt + row0 + BE_ROW_TILE - 1,
 * [BE_ROW_TILE][stride]. */
static void block_scores(const error_job *a, int32_t lane, int64_t h, int64_t row0, float *score,
                         int64_t stride) {
    const be_attention_shape *s = a->s;
    const int64_t d = s->head_dim, g = h / (s->n_heads / s->n_kv_heads),
                  lane_rows = be_padded_rows(a->n_rows);
    const float *q = a->q + ((lane * lane_rows + row0) * s->n_heads + h) * d;
    product(a, q, a->k + g * a->capacity * d, a->n_prompt, score, stride);
    product(a, q, a->own_k + (lane * s->n_kv_heads + g) * a->own_capacity * d, row0 + BE_ROW_TILE,
            score + a->n_prompt, stride);
}

/* x: one row of scores, its positions [lo, hi). positions [n]: what is kept of the prompt (NULL:
 * all of it). Gathers the kept scores to `out`; returns how many. */
static int64_t gather(const float *x, int64_t lo, int64_t hi, int64_t n_prompt,
                      const uint32_t *positions, int64_t n, float *out) {
    int64_t m = 0;
    for (int64_t i = 0; positions && i < n; i++) {
        if ((int64_t)positions[i] >= lo) { out[m++] = x[positions[i]]; }
    }
    for (int64_t t = positions && lo < n_prompt ? n_prompt : lo; t < hi; t++) {
        out[m++] = x[t];
    }
    return m;
}

/* full: the row's scores, overwritten by their softmax; kept_full, kept_other [n_kept]: scores over
 * what is kept, likewise. */
static be_row_error row_error(float *full, int64_t lo, int64_t hi, int64_t n_prompt,
                              const uint32_t *positions, int64_t n, float *kept_full,
                              float *kept_other, int64_t n_kept) {
    const double whole = 1.0 / kernel_softmax(full + lo, hi - lo, NULL);
    const double restricted = 1.0 / kernel_softmax(kept_full, n_kept, NULL),
                 other = 1.0 / kernel_softmax(kept_other, n_kept, NULL);
    be_row_error e = {0};
    int64_t i = 0, m = 0;
    for (int64_t t = lo; t < hi; t++) {
        const double p = (double)full[t] * whole;
        while (positions && i < n && (int64_t)positions[i] < t) {
            i++;
        }
        if (positions && t < n_prompt && (i == n || (int64_t)positions[i] != t)) {
            e.mass += p;
            e.restricted += p * p;
            e.actual += p * p;
            continue;
        }
        const double to_restricted = p - (double)kept_full[m] * restricted,
                     to_other = p - (double)kept_other[m] * other;
        e.restricted += to_restricted * to_restricted;
        e.actual += to_other * to_other;
        m++;
    }
    assert(m == n_kept);
    return e;
}

static void error_task(void *ctx, int64_t task, int worker) {
    const error_job *a = ctx;
    const be_attention_shape *s = a->s;
    const int64_t h = task % s->n_heads, row0 = task / s->n_heads * BE_ROW_TILE,
                  g = h / (s->n_heads / s->n_kv_heads);
    const int64_t stride = padded(a->n_prompt + row0 + BE_ROW_TILE);
    float *full = a->c->worker[worker].data, *other = full + BE_ROW_TILE * stride,
          *kept_full = other + BE_ROW_TILE * stride, *kept_other = kept_full + stride;
    const uint32_t *positions = NULL;
    int64_t n = 0;
    if (a->kept) {
        const int64_t set = a->kept->n_sets == 1 ? 0 : g;
        positions = a->kept->positions + a->kept->offsets[set];
        n = (int64_t)a->kept->offsets[set + 1] - (int64_t)a->kept->offsets[set];
    }
    block_scores(a, a->lanes[0], h, row0, full, stride);
    block_scores(a, a->lanes[1], h, row0, other, stride);
    for (int64_t r = row0; r < row0 + BE_ROW_TILE && r < a->n_rows; r++) {
        float *x = full + (r - row0) * stride;
        const int64_t hi = a->n_prompt + r + 1,
                      lo = s->window && hi > s->window ? hi - s->window : 0;
        const int64_t n_kept = gather(x, lo, hi, a->n_prompt, positions, n, kept_full);
        gather(other + (r - row0) * stride, lo, hi, a->n_prompt, positions, n, kept_other);
        a->out[h * a->n_rows + r] =
            row_error(x, lo, hi, a->n_prompt, positions, n, kept_full, kept_other, n_kept);
    }
}

ckvc_status cpu_attention_error(backend *be, const be_attention_shape *s, int64_t n_rows,
                                int64_t n_prompt, const be_buf *q, const be_buf *cache_k,
                                int64_t capacity, const be_buf *own_k, int64_t own_capacity,
                                int32_t full, int32_t other, const kept_set *kept,
                                be_row_error *out, ckvc_err *err) {
    cpu_backend *c = cpu_of(be);
    const int64_t rows = be_padded_rows(n_rows);
    assert(n_prompt <= capacity && rows <= own_capacity &&
           (!kept || kept->n_sets == 1 || kept->n_sets == s->n_kv_heads));
    if (!cpu_reserve(c, (size_t)((2 * BE_ROW_TILE + 2) * padded(n_prompt + rows)), 0)) {
        return be->ops->sync(be, err);
    }
    error_job a = {.c = c,
                   .s = s,
                   .n_rows = n_rows,
                   .n_prompt = n_prompt,
                   .capacity = capacity,
                   .own_capacity = own_capacity,
                   .lanes = {full, other},
                   .q = q->data,
                   .k = cache_k->data,
                   .own_k = own_k->data,
                   .kept = kept,
                   .out = out};
    ckvc_pool_run(c->base.pool, rows / BE_ROW_TILE * s->n_heads, error_task, &a);
    return be->ops->sync(be, err);
}
