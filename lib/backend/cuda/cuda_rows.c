/* Operations on rows: checks their arguments and enqueues the kernels of rows.cu. */
#include <assert.h>
#include <string.h>

#include "lib/backend/cuda/cuda.h"
#include "lib/base/sizes.h"

/* Room for the bf16 values of y's rows beside them. */
static cuda_half half_beside(cuda_backend *c, const float *y, int64_t n_rows, int64_t width) {
    cuda_half half = {.padded = be_padded_rows(n_rows)};
    half.to = cuda_half_buffer(c, y, n_rows, width, &half.stride);
    return half;
}

void cuda_rmsnorm(backend *be, const be_buf *x, int64_t n_rows, const be_weight *w, float eps,
                  bool add, be_buf *y) {
    cuda_backend *c = cuda_of(be);
    const int64_t width = w->m.rows * w->m.cols;
    if (cuda_failed(c) || n_rows == 0) { return; }
    assert(w->data && (size_t)(n_rows * width) <= x->n && (size_t)(n_rows * width) <= y->n);
    float *to = cuda_written(c, y);
    if (add) { /* the sum is not the input of a product, so it needs no bf16 values */
        cuda_rmsnorm_add_rows(c->stream, x->data, w->data, n_rows, width, (double)eps, to);
    } else {
        const cuda_half half = half_beside(c, to, n_rows, width);
        cuda_rmsnorm_rows(c->stream, x->data, w->data, n_rows, width, (double)eps, to, &half);
    }
    cuda_check(c, "rmsnorm");
}

void cuda_gate_mul(backend *be, bool gelu, const be_buf *gate, const be_buf *up, int64_t n_rows,
                   int64_t width, be_buf *y) {
    cuda_backend *c = cuda_of(be);
    const size_t n = (size_t)(n_rows * width);
    if (cuda_failed(c) || n == 0) { return; }
    assert(n <= gate->n && n <= up->n && n <= y->n);
    float *to = cuda_written(c, y);
    const cuda_half half = half_beside(c, to, n_rows, width);
    cuda_gate_mul_rows(c->stream, gelu, gate->data, up->data, n_rows, width, to, &half);
    cuda_check(c, "gate_mul");
}

/* The device's copy may not write over memory that it reads. So rows that move by less than their
 * number are copied in pieces, those in the way first. */
void cuda_copy_rows(backend *be, const be_buf *src, int64_t src_row, be_buf *dst, int64_t dst_row,
                    int64_t n_rows, int64_t width) {
    cuda_backend *c = cuda_of(be);
    const size_t from = (size_t)(src_row * width), to = (size_t)(dst_row * width),
                 n = (size_t)(n_rows * width);
    assert(ckvc_span_ok(from, n, src->n) && ckvc_span_ok(to, n, dst->n));
    if (cuda_failed(c) || n == 0) { return; }
    const float *f = src->data + from;
    float *t = cuda_written(c, dst) + to;
    const size_t apart = (size_t)(t < f ? f - t : t - f), piece = apart < n ? apart : n;
    for (size_t done = 0; done < n && piece; done += piece) {
        const size_t part = n - done < piece ? n - done : piece,
                     at = t < f ? done : n - done - part;
        cuda_ok(
            c,
            cudaMemcpyAsync(t + at, f + at, part * sizeof *t, cudaMemcpyDeviceToDevice, c->stream),
            "copying rows");
    }
}

/* ---- positions ---- */

bool cuda_angles(cuda_backend *c, const double *inv_freq, int32_t half, int64_t n_positions) {
    cuda_angle_table *t = &c->rope;
    const size_t bytes = (size_t)half * sizeof *inv_freq;
    const bool fits = t->half == half && t->inv_freq,
               same = fits && memcmp(t->inv_freq, inv_freq, bytes) == 0;
    if (same && n_positions <= t->n_positions) { return true; }
    const int64_t rounded = (n_positions + 511) / 512 * 512,
                  n = fits && rounded < t->n_positions ? t->n_positions : rounded;
    const size_t table = (size_t)(n * half) * sizeof(float), head = cuda_align(bytes);
    t->n_positions = 0; /* so that there are none if a step below fails */
    if (!cuda_grow(c, &t->angles, head + 2 * table, "positions' angles")) { return false; }
    if (!fits) {
        free(t->inv_freq);
        t->inv_freq = ckvc_alloc(bytes, 1);
    }
    memcpy(t->inv_freq, inv_freq, bytes);
    t->half = half;
    t->cos = (float *)((char *)t->angles.data + head);
    t->sin = t->cos + n * half;
    cuda_upload(c, t->angles.data, inv_freq, bytes);
    cuda_fill_angles(c->stream, t->angles.data, half, n, t->cos, t->sin);
    cuda_check(c, "positions' angles");
    t->n_positions = cuda_failed(c) ? 0 : n;
    return !cuda_failed(c);
}

static bool lane_rows(cuda_backend *c, const be_attention_shape *s, const double *inv_freq,
                      const be_rows *rows, cuda_rows *out) {
    *out = (cuda_rows){rows->row0, rows->n_rows, be_padded_rows(rows->n_rows), rows->n_lanes};
    return !cuda_failed(c) && rows->n_rows > 0 && rows->n_lanes > 0 &&
           cuda_angles(c, inv_freq, s->head_dim / 2, rows->row0 + rows->n_rows);
}

void cuda_rope(backend *be, const be_attention_shape *s, const double *inv_freq,
               const be_rows *rows, be_buf *q) {
    cuda_backend *c = cuda_of(be);
    cuda_rows r;
    if (!lane_rows(c, s, inv_freq, rows, &r)) { return; }
    assert((size_t)(r.n_lanes * r.lane_rows * s->n_heads * s->head_dim) <= q->n);
    cuda_rope_rows(c->stream, &r, s->n_heads, s->head_dim / 2, c->rope.cos, c->rope.sin,
                   cuda_written(c, q));
    cuda_check(c, "rope");
}

void cuda_cache_rows(backend *be, const be_attention_shape *s, const double *inv_freq,
                     const be_rows *rows, const be_buf *k, const be_buf *v, const be_cache *cache) {
    cuda_backend *c = cuda_of(be);
    const int64_t width = (int64_t)s->n_kv_heads * s->head_dim;
    cuda_rows r;
    if (!lane_rows(c, s, inv_freq, rows, &r)) { return; }
    assert(r.lane_rows <= cache->capacity && (size_t)(r.n_lanes * r.lane_rows * width) <= k->n &&
           k->n == v->n);
    assert((size_t)(r.n_lanes * cache->capacity * width) <= cache->k->n &&
           cache->k->n == cache->v->n);
    cuda_cache_fill(c->stream, &r, s->n_kv_heads, s->head_dim / 2, c->rope.cos, c->rope.sin,
                    k->data, v->data, cache->capacity, cuda_written(c, cache->k),
                    cuda_written(c, cache->v));
    cuda_check(c, "cache_rows");
}

ckvc_status cuda_value_norms(backend *be, const be_attention_shape *s, int64_t n,
                             const be_cache *cache, double *norm, ckvc_err *err) {
    cuda_backend *c = cuda_of(be);
    const size_t bytes = (size_t)(s->n_kv_heads * n) * sizeof *norm;
    double *to = n ? cuda_scratch(c, bytes) : NULL;
    if (!to) { return cuda_sync(be, err); }
    cuda_value_norm_rows(c->stream, cache->v->data, s->n_kv_heads, cache->capacity, s->head_dim, n,
                         to);
    cuda_check(c, "value_norms");
    return cuda_download(c, norm, to, bytes, err);
}
