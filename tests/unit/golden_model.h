/* What the tests on whole models share: one backend, and tolerances with their measured use. */
#pragma once

#include "formats/model/model_files.h"
#include "lib/model/model_info.h"
#include "tests/unit/golden.h"
#include "tests/unit/unit.h"

/* A backend on n threads, destroyed by bench_close. */
typedef struct bench {
    ckvc_pool *pool;
    backend *be;
} bench;

static inline bench bench_open_kind(const char *kind, int n_threads) {
    bench b = {0};
    ckvc_err err = {0};
    assert_int_equal(ckvc_pool_create(n_threads, &b.pool, &err), CKVC_OK);
    assert_int_equal(backend_create(kind, CKVC_COMPUTE_F32, b.pool, &b.be, &err), CKVC_OK);
    return b;
}

/* The CPU, or what CKVC_TEST_BACKEND names. */
static inline bench bench_open(int n_threads) {
    const char *kind = getenv("CKVC_TEST_BACKEND");
    return bench_open_kind(kind ? kind : "cpu", n_threads);
}

/* From here on the weights that are acquired are counted in `acquired`, one of a program. */
static struct {
    const backend_ops *real;
    backend_ops ops;
    int64_t n;
} acquired;
static inline ckvc_status count_acquire(backend *be, be_weight *w, ckvc_err *err) {
    acquired.n++;
    return acquired.real->weight_acquire(be, w, err);
}
static inline void bench_count_acquired(bench *b) {
    acquired.real = b->be->ops;
    acquired.ops = *acquired.real;
    acquired.ops.weight_acquire = count_acquire;
    b->be->ops = &acquired.ops;
}

static inline void bench_close(bench *b) {
    backend_destroy(b->be);
    ckvc_pool_destroy(b->pool);
}

static inline ckvc_status model_open_path(const char *path, backend *be, model **out,
                                          ckvc_err *err) {
    model_spec *spec;
    *out = NULL;
    CKVC_TRY(model_files_read(path, &spec, err));
    return model_open(spec, be, out, err);
}

static inline ckvc_status model_verify_path(const char *path, ckvc_err *err) {
    CKVC_AUTO(model_spec_free_at) model_spec *spec = NULL;
    char fingerprint[CKVC_SHA256_HEX];
    CKVC_TRY(model_files_read(path, &spec, err));
    return model_verify(spec, fingerprint, err);
}

/* The largest |difference| / tolerance seen of one quantity: how much of the tolerance is used. */
typedef struct worst {
    const char *what;
    double ratio;
} worst;

static inline void compare(worst *w, double got, double want, double tolerance) {
    const double ratio = fabs(got - want) / tolerance;
    if (!(ratio <= w->ratio)) { w->ratio = ratio; }
    if (!(ratio <= 1.0)) {
        fail_msg("%s: got %.9g, wanted %.9g, tolerance %.2g", w->what, got, want, tolerance);
    }
}

static inline void worst_print(const char *name, const worst *w, size_t n) {
    printf("%s: share of the tolerance used:", name);
    for (size_t i = 0; i < n; i++) { printf(" %s %.3f", w[i].what, w[i].ratio); }
    printf("\n");
}
