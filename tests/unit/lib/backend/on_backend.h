/* What the tests of a backend's operations share: random values, and host arrays to and from its
 * buffers and weights. */
#pragma once

#include "lib/base/hash.h"
#include "tests/unit/golden_model.h"
#include "tests/unit/unit.h"

static ckvc_rng rng;

/* In [-scale, scale). */
static inline float *values(size_t n, double scale) {
    float *v = ckvc_alloc_aligned(n, sizeof *v);
    for (size_t i = 0; i < n; i++) { v[i] = (float)((ckvc_rng_double(&rng) * 2 - 1) * scale); }
    return v;
}

/* n values; data NULL: zeros. */
static inline be_buf *buffer(backend *be, size_t n, const float *data) {
    be_buf *b = be->ops->buf_create(be, n);
    if (data) { be->ops->write(be, b, 0, data, n); }
    return b;
}

static inline float *contents(backend *be, const be_buf *b, size_t n) {
    ckvc_err err = {0};
    float *v = ckvc_alloc(n, sizeof *v);
    assert_int_equal(be->ops->read(be, b, 0, v, n, &err), CKVC_OK);
    return v;
}

/* Acquired. */
static inline be_weight *weight_of(backend *be, const void *bytes, be_type type, int64_t rows,
                                   int64_t cols) {
    be_weight *w;
    ckvc_err err = {0};
    const be_matrix m = {.bytes = bytes, .type = type, .rows = rows, .cols = cols};
    assert_int_equal(be->ops->weight_create(be, &m, &w, &err), CKVC_OK);
    assert_int_equal(be->ops->weight_acquire(be, w, &err), CKVC_OK);
    return w;
}

static inline be_weight *weight(backend *be, const float *data, int64_t rows, int64_t cols) {
    return weight_of(be, data, BE_F32, rows, cols);
}

static inline ckvc_status head_nll(backend *be, const be_weight *w, const be_buf *x, be_rows rows,
                                   const int32_t *target, double *nll) {
    ckvc_err err = {0};
    return be->ops->head_nll(be, w, x, &rows, target, nll, &err);
}

/* sum (got - want)^2 / sum want^2 */
static inline double nmse(const float *got, const double *want, size_t n) {
    double error = 0, size = 0;
    for (size_t i = 0; i < n; i++) {
        error += ((double)got[i] - want[i]) * ((double)got[i] - want[i]);
        size += want[i] * want[i];
    }
    return error == 0 ? 0 : error / size;
}
