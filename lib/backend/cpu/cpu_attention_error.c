/* How far attention rows move when prompt positions are left out of the cache: see attention_error
 * in backend.h.
 *
 * A task is one query head and one block of BE_ROW_TILE rows. The scores of both lanes are computed
 * over every prompt key and the lane's own keys, so that column t is position t in both. Then the
 * kept columns are gathered and get a softmax of their own, as a compressed cache computes it.
 * Nothing is derived from the identity that these numbers are meant to test. */
#include <assert.h>

#include "lib/backend/cpu/cpu.h"

typedef struct error_job {
    cpu_backend *c;
    const be_attention_shape *s;
    const be_continuation *r;
    const be_compared *lanes;
    be_row_error *out;
} error_job;

/* Computes the scores of one lane's block over positions 0 ... n_prompt + row0 + BE_ROW_TILE - 1,
 * [BE_ROW_TILE][stride]. */
static void block_scores(const error_job *a, int32_t lane, int64_t h, int64_t row0, float *score,
                         int64_t stride) {
    const be_attention_shape *s = a->s;
    const be_continuation *r = a->r;
    const int64_t d = s->head_dim, g = h / (s->n_heads / s->n_kv_heads),
                  lane_rows = be_padded_rows(r->n_rows);
    const float *q = r->q->data + ((lane * lane_rows + row0) * s->n_heads + h) * d;
    cpu_scores(a->c, s, q, r->prompt.k->data + g * r->prompt.capacity * d, r->n_prompt, score,
               stride);
    cpu_scores(a->c, s, q, r->own.k->data + (lane * s->n_kv_heads + g) * r->own.capacity * d,
               row0 + BE_ROW_TILE, score + r->n_prompt, stride);
}

/* What a row sees: positions [lo, hi). Of the prompt's first n_prompt positions, the n in
 * `positions` are kept (NULL: all of them). */
typedef struct seen {
    int64_t lo, hi, n_prompt, n;
    const uint32_t *positions;
} seen;

/* Gathers those of a row's scores x that are kept into `out`. Returns how many they are. */
static int64_t gather_kept(const seen *v, const float *x, float *out) {
    int64_t m = 0;
    for (int64_t i = 0; v->positions && i < v->n; i++) {
        if ((int64_t)v->positions[i] >= v->lo) { out[m++] = x[v->positions[i]]; }
    }
    for (int64_t t = v->positions && v->lo < v->n_prompt ? v->n_prompt : v->lo; t < v->hi; t++) {
        out[m++] = x[t];
    }
    return m;
}

/* Computes the errors of one row. full has the row's scores, kept_full and kept_other [n_kept] the
 * scores of both lanes over what is kept; all are overwritten by their softmax. */
static be_row_error row_error(const seen *v, float *full, float *kept_full, float *kept_other,
                              int64_t n_kept) {
    const double whole = 1.0 / kernel_softmax(full + v->lo, v->hi - v->lo, NULL),
                 restricted = 1.0 / kernel_softmax(kept_full, n_kept, NULL),
                 other = 1.0 / kernel_softmax(kept_other, n_kept, NULL);
    be_row_error e = {0};
    int64_t i = 0, m = 0;
    for (int64_t t = v->lo; t < v->hi; t++) {
        const double p = (double)full[t] * whole;
        while (v->positions && i < v->n && (int64_t)v->positions[i] < t) { i++; }
        if (v->positions && t < v->n_prompt && (i == v->n || (int64_t)v->positions[i] != t)) {
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
                  stride = cpu_score_stride(a->r->n_prompt + row0 + BE_ROW_TILE);
    float *full = a->c->worker[worker].data, *other = full + BE_ROW_TILE * stride,
          *kept_full = other + BE_ROW_TILE * stride, *kept_other = kept_full + stride;
    seen v = {.n_prompt = a->r->n_prompt};
    if (a->lanes->kept) {
        v.positions = cpu_kept_of(a->lanes->kept, h / (s->n_heads / s->n_kv_heads), &v.n);
    }
    block_scores(a, a->lanes->full, h, row0, full, stride);
    block_scores(a, a->lanes->other, h, row0, other, stride);
    for (int64_t r = row0; r < row0 + BE_ROW_TILE && r < a->r->n_rows; r++) {
        float *x = full + (r - row0) * stride;
        v.hi = v.n_prompt + r + 1;
        v.lo = s->window && v.hi > s->window ? v.hi - s->window : 0;
        const int64_t n_kept = gather_kept(&v, x, kept_full);
        gather_kept(&v, other + (r - row0) * stride, kept_other);
        a->out[h * a->r->n_rows + r] = row_error(&v, x, kept_full, kept_other, n_kept);
    }
}

ckvc_status cpu_attention_error(backend *be, const be_attention_shape *s, const be_continuation *r,
                                const be_compared *lanes, be_row_error *out, ckvc_err *err) {
    const int64_t rows = be_padded_rows(r->n_rows), stride = cpu_score_stride(r->n_prompt + rows);
    assert(r->n_prompt <= r->prompt.capacity && rows <= r->own.capacity);
    assert(!lanes->kept || lanes->kept->n_sets == 1 || lanes->kept->n_sets == s->n_kv_heads);
    cpu_need(cpu_of(be), (size_t)((2 * BE_ROW_TILE + 2) * stride), 0);
    error_job a = {.c = cpu_of(be), .s = s, .r = r, .lanes = lanes, .out = out};
    ckvc_pool_run(be->pool, rows / BE_ROW_TILE * s->n_heads, error_task, &a);
    return cpu_sync(be, err);
}
