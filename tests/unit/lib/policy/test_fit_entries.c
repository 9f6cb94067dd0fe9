/* Fitted entries against a plain computation of their definition in its primal form,
 *   V_S + (w^T w + ridge * mean(diag(w w^T)) * I)^-1 w^T (o - w V_S),
 *   K_S + (X^T X + 0.01 * mean(diag(X^T X)) * I)^-1 X^T r
 * which Gaussian elimination solves; and what is fitted at the edges of what is allowed. */
#include "tests/unit/unit.h"

#include <math.h>

#include "lib/base/bytes.h"
#include "lib/base/cache_format.h"
#include "lib/policy/cache_rows.h"

enum { T = 83, D = 8, N = 21, N_MOST = 90, S_MOST = T };

typedef struct rig {
    float keys[T * D], values[T * D], queries[N_MOST * D];
    float fitted_keys[S_MOST * D], fitted[S_MOST * D];
    uint32_t positions[N_MOST], kept[S_MOST];
    ckvc_fit f;
    void *scratch;
} rig;

static double uniform(uint64_t *state) {
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (double)(*state >> 11) * 0x1p-53 * 2.0 - 1.0;
}

/* Every third position is kept, and positions 1, 2 and 3. */
static void open_rig(rig *r, double ridge) {
    uint64_t state = 20261128;
    *r = (rig){.f = {.n_tokens = T, .head_dim = D, .n_queries = N, .ridge = ridge}};
    for (size_t i = 0; i < (size_t)T * D; i++) {
        r->keys[i] = (float)(3 * uniform(&state));
        r->values[i] = (float)uniform(&state);
    }
    for (size_t i = 0; i < (size_t)N_MOST * D; i++) {
        r->queries[i] = (float)(2 * uniform(&state));
    }
    for (uint32_t i = 0; i < N_MOST; i++) { r->positions[i] = T + 4 * i; }
    for (uint32_t t = 0; t < T; t++) {
        if (t % 3 == 0 || t < 4) { r->kept[r->f.n_kept++] = t; }
    }
    r->f.keys = float_rows(r->keys, D);
    r->f.values = float_rows(r->values, D);
    r->f.queries = r->queries;
    r->f.positions = r->positions;
    r->f.kept = r->kept;
    r->f.attending = (ckvc_attending){.scale = 0.5};
    r->scratch = malloc(ckvc_fit_bytes(N_MOST, D));
}

static int fit(rig *r) { return ckvc_fit_entries(&r->f, r->scratch, r->fitted_keys, r->fitted); }

/* Writes the attention of query i over the n positions of `at`, 0 where it does not see one.
 * Returns the sum of the exponentials. */
static double softmax(const rig *r, uint32_t i, const uint32_t *at, uint32_t n, double *w) {
    const ckvc_attending *a = &r->f.attending;
    double sum = 0;
    for (uint32_t s = 0; s < n; s++) {
        double logit = 0;
        for (uint32_t d = 0; d < D; d++) {
            logit += a->scale * (double)r->queries[i * D + d] * (double)r->keys[at[s] * D + d];
        }
        if (a->cap > 0) { logit = a->cap * tanh(logit / a->cap); }
        w[s] = a->window && r->positions[i] - at[s] >= a->window ? 0 : exp(logit);
        sum += w[s];
    }
    for (uint32_t s = 0; s < n && sum > 0; s++) { w[s] /= sum; }
    return sum;
}

/* Solves a x = b [n][D] in place, a [n][n], with pivots of the largest magnitude. */
static void eliminate(double *a, double *b, uint32_t n) {
    for (uint32_t c = 0; c < n; c++) {
        uint32_t p = c;
        for (uint32_t i = c; i < n; i++) {
            if (fabs(a[i * n + c]) > fabs(a[p * n + c])) { p = i; }
        }
        for (uint32_t j = 0; j < n; j++) {
            const double swap = a[c * n + j];
            a[c * n + j] = a[p * n + j];
            a[p * n + j] = swap;
        }
        for (uint32_t d = 0; d < D; d++) {
            const double swap = b[c * D + d];
            b[c * D + d] = b[p * D + d];
            b[p * D + d] = swap;
        }
        for (uint32_t i = 0; i < n; i++) {
            const double factor = i == c ? 0 : a[i * n + c] / a[c * n + c];
            for (uint32_t j = 0; j < n && i != c; j++) { a[i * n + j] -= factor * a[c * n + j]; }
            for (uint32_t d = 0; d < D && i != c; d++) { b[i * D + d] -= factor * b[c * D + d]; }
        }
    }
    for (uint32_t i = 0; i < n; i++) {
        for (uint32_t d = 0; d < D; d++) { b[i * D + d] /= a[i * n + i]; }
    }
}

/* Checks r->fitted_keys, of which each must have moved by the same vector. */
static void check_keys(const rig *r) {
    const double scale = r->f.attending.scale;
    uint32_t all[T];
    double a[D * D] = {0}, b[D * D] = {0}, w[T], trace = 0;
    for (uint32_t t = 0; t < T; t++) { all[t] = t; }
    for (uint32_t i = 0; i < r->f.n_queries && r->f.attending.cap == 0; i++) {
        const float *q = r->queries + i * D;
        const double lost = log(softmax(r, i, all, T, w)),
                     left = log(softmax(r, i, r->kept, r->f.n_kept, w));
        if (isinf(left)) { continue; } /* the query sees nothing of what is kept */
        for (uint32_t d = 0; d < D; d++) {
            b[d * D] += scale * (double)q[d] * (lost - left);
            for (uint32_t e = 0; e < D; e++) {
                a[d * D + e] += scale * scale * (double)q[d] * (double)q[e];
            }
        }
    }
    for (uint32_t d = 0; d < D; d++) { trace += a[d * D + d] / D; }
    for (uint32_t d = 0; d < D; d++) { a[d * D + d] += trace > 0 ? 0.01 * trace : 1; }
    eliminate(a, b, D);
    for (uint32_t s = 0; s < r->f.n_kept; s++) {
        for (uint32_t d = 0; d < D; d++) {
            const double want = (double)r->keys[r->kept[s] * D + d] + b[d * D];
            assert_float_equal((double)r->fitted_keys[s * D + d], want, 2e-6);
        }
    }
}

/* Checks r->fitted and r->fitted_keys against the definition. */
static void check_definition(const rig *r) {
    const uint32_t S = r->f.n_kept, n = r->f.n_queries;
    uint32_t all[T];
    double *w = calloc((size_t)n * S, sizeof *w), *a = calloc((size_t)S * S, sizeof *a),
           *b = calloc((size_t)S * D, sizeof *b), full[T], missing[N_MOST][D] = {{0}}, diagonal = 0;
    for (uint32_t t = 0; t < T; t++) { all[t] = t; }
    for (uint32_t i = 0; i < n; i++) {
        softmax(r, i, all, T, full);
        softmax(r, i, r->kept, S, w + (size_t)i * S);
        for (uint32_t d = 0; d < D; d++) {
            for (uint32_t t = 0; t < T; t++) {
                missing[i][d] += full[t] * (double)r->values[t * D + d];
            }
            for (uint32_t s = 0; s < S; s++) {
                missing[i][d] -= w[i * S + s] * (double)r->values[r->kept[s] * D + d];
            }
        }
        for (uint32_t s = 0; s < S; s++) { diagonal += w[i * S + s] * w[i * S + s] / n; }
    }
    for (uint32_t s = 0; s < S; s++) {
        for (uint32_t i = 0; i < n; i++) {
            for (uint32_t u = 0; u < S; u++) { a[s * S + u] += w[i * S + s] * w[i * S + u]; }
            for (uint32_t d = 0; d < D; d++) { b[s * D + d] += w[i * S + s] * missing[i][d]; }
        }
        a[s * S + s] += r->f.ridge * diagonal;
    }
    eliminate(a, b, S);
    for (uint32_t s = 0; s < S; s++) {
        for (uint32_t d = 0; d < D; d++) {
            const double want = (double)r->values[r->kept[s] * D + d] + b[s * D + d];
            /* float32 holds a value of this size to 1e-7; both systems are well conditioned */
            assert_float_equal((double)r->fitted[s * D + d], want, 2e-6);
        }
    }
    free(w);
    free(a);
    free(b);
    check_keys(r);
}

static void close_rig(rig *r) { free(r->scratch); }

static void test_definition(void **state) {
    static const double ridges[] = {0.03, 0.1, 1, 10};
    (void)state;
    for (size_t i = 0; i < sizeof ridges / sizeof *ridges; i++) {
        rig r;
        open_rig(&r, ridges[i]);
        assert_int_equal(fit(&r), 1);
        check_definition(&r);
        close_rig(&r);
    }
}

/* Many queries, so that they go in several blocks; entries from few, whose own system is solved, to
 * nearly all of the prompt. */
static void test_many_queries(void **state) {
    static const uint32_t kept[] = {1, 15, 16, 17, 40, 63, 64, 65, 80};
    (void)state;
    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++) {
        rig r;
        open_rig(&r, 0.1);
        r.f.n_queries = N_MOST;
        r.f.n_kept = kept[i];
        for (uint32_t s = 0; s < kept[i]; s++) { r.kept[s] = s * T / kept[i]; }
        assert_int_equal(fit(&r), 1);
        check_definition(&r);
        r.f.attending.window = 100; /* most queries see nothing at all */
        assert_int_equal(fit(&r), 1);
        check_definition(&r);
        close_rig(&r);
    }
}

static void test_window_and_cap(void **state) {
    rig r;
    (void)state;
    open_rig(&r, 0.1);
    r.f.attending.window = 60; /* the last queries, at T + 60 and on, see nothing at all */
    assert_int_equal(fit(&r), 1);
    check_definition(&r);
    r.f.attending.cap = 2;
    assert_int_equal(fit(&r), 1);
    check_definition(&r);
    close_rig(&r);
}

static void test_one_entry(void **state) {
    rig r;
    (void)state;
    open_rig(&r, 0.1);
    r.f.n_kept = 1;
    assert_int_equal(fit(&r), 1);
    check_definition(&r);
    close_rig(&r);
}

/* All values are as they were, and the function says so. */
static void check_unchanged(rig *r) {
    assert_int_equal(fit(r), 0);
    for (uint32_t s = 0; s < r->f.n_kept; s++) {
        assert_memory_equal(r->fitted + s * D, r->values + r->kept[s] * D, D * sizeof(float));
        assert_memory_equal(r->fitted_keys + s * D, r->keys + r->kept[s] * D, D * sizeof(float));
    }
}

static void test_nothing_to_mend(void **state) {
    rig r;
    (void)state;
    open_rig(&r, 0);
    check_unchanged(&r);
    r.f.ridge = 0.1;
    r.f.n_queries = 0;
    check_unchanged(&r);
    r.f.n_queries = N;
    r.f.n_kept = 0;
    check_unchanged(&r);
    r.f.n_kept = T;
    for (uint32_t t = 0; t < T; t++) { r.kept[t] = t; }
    check_unchanged(&r);
    close_rig(&r);
}

static void test_not_finite(void **state) {
    rig r;
    (void)state;
    open_rig(&r, 0.1);
    r.keys[7 * D] = NAN; /* of a dropped position */
    check_unchanged(&r);
    r.keys[7 * D] = INFINITY;
    check_unchanged(&r);
    close_rig(&r);
}

static void test_singular(void **state) {
    rig r;
    (void)state;
    open_rig(&r, 1e-300); /* equal queries, and no ridge that doubles could tell */
    for (uint32_t i = 1; i < N; i++) { memcpy(r.queries + i * D, r.queries, D * sizeof(float)); }
    check_unchanged(&r);
    r.f.ridge = 0.1;
    assert_int_equal(fit(&r), 1);
    check_definition(&r);
    close_rig(&r);
}

/* What one fit found of the whole prompt serves another one, of other entries and by another ridge,
 * to the bit. */
static void test_whole_is_known(void **state) {
    rig r;
    double whole[N * (D + 1)];
    float fitted[S_MOST * D], keys[S_MOST * D];
    uint8_t known = 0;
    (void)state;
    open_rig(&r, 3);
    r.f.whole = whole;
    r.f.known = &known;
    r.f.n_kept -= 7;
    assert_int_equal(fit(&r), 1);
    assert_int_equal(known, 1);
    r.f.n_kept += 7;
    r.f.ridge = 0.1;
    assert_int_equal(fit(&r), 1);
    check_definition(&r);
    memcpy(fitted, r.fitted, sizeof fitted);
    memcpy(keys, r.fitted_keys, sizeof keys);
    r.f.whole = NULL;
    assert_int_equal(fit(&r), 1);
    assert_memory_equal(r.fitted, fitted, r.f.n_kept * D * sizeof *fitted);
    assert_memory_equal(r.fitted_keys, keys, r.f.n_kept * D * sizeof *keys);
    r.f.whole = whole;
    whole[0] += 1; /* it is read, and not found again */
    assert_int_equal(fit(&r), 1);
    assert_memory_not_equal(r.fitted, fitted, r.f.n_kept * D * sizeof *fitted);
    known = 0;
    r.f.n_queries = 0; /* a fit that finds nothing leaves nothing behind */
    check_unchanged(&r);
    assert_int_equal(known, 0);
    close_rig(&r);
}

static void test_range(void **state) {
    rig r;
    (void)state;
    open_rig(&r, 0.1);
    for (size_t i = 0; i < (size_t)T * D; i++) { r.values[i] *= 60000; }
    assert_int_equal(fit(&r), 1);
    float most = 0;
    for (size_t i = 0; i < (size_t)r.f.n_kept * D; i++) { most = fmaxf(most, fabsf(r.fitted[i])); }
    assert_true(most > 65504); /* otherwise this test would show nothing */
    r.f.attending.most = 65504;
    assert_int_equal(fit(&r), 1);
    for (size_t i = 0; i < (size_t)r.f.n_kept * D; i++) {
        assert_true(fabsf(r.fitted[i]) <= 65504);
        assert_true(isfinite(ckvc_f32_of_f16(ckvc_f16_of_f32(r.fitted[i]))));
    }
    close_rig(&r);
}

static void test_too_many_bytes(void **state) {
    (void)state;
    assert_true(ckvc_fit_bytes(UINT32_MAX, UINT32_MAX) == SIZE_MAX);
    assert_true(ckvc_fit_bytes(168, 64) < 2 << 20);
    const ckvc_table t = {.n_query_heads = 65535, .n_heads = 1, .bank_dim = 2};
    assert_true(ckvc_bank_fit_bytes(&t, 65535) == SIZE_MAX);
}

/* Under next to no ridge the queries are answered as with the whole cache, by the keys as they are
 * held: values are fitted to these. */
static void test_held_keys(void **state) {
    rig r, held;
    float rounded[S_MOST * D];
    double full[T], w[T], off = 0, size = 0;
    uint32_t all[T];
    open_rig(&r, 1e-10);
    for (uint32_t t = 0; t < T; t++) { all[t] = t; }
    r.f.hold.format = CKVC_HELD_FP8;
    assert_int_equal(ckvc_fit_entries(&r.f, r.scratch, r.fitted_keys, r.fitted), 1);
    held = r;
    memcpy(rounded, r.fitted_keys, sizeof rounded);
    cache_round(CACHE_FP8, 1, rounded, (size_t)r.f.n_kept * D);
    for (uint32_t i = 0; i < r.f.n_kept * D; i++) {
        assert_true(r.fitted_keys[i] == rounded[i]);
        held.keys[r.kept[i / D] * D + i % D] = r.fitted_keys[i];
    }
    for (uint32_t i = 0; i < N; i++) {
        softmax(&r, i, all, T, full);
        softmax(&held, i, r.kept, r.f.n_kept, w);
        for (uint32_t d = 0; d < D; d++) {
            double want = 0, got = 0;
            for (uint32_t t = 0; t < T; t++) { want += full[t] * (double)r.values[t * D + d]; }
            for (uint32_t s = 0; s < r.f.n_kept; s++) { got += w[s] * (double)r.fitted[s * D + d]; }
            off += (got - want) * (got - want);
            size += want * want;
        }
    }
    if (sqrt(off / size) > 1e-3) { fail_msg("off by %g", sqrt(off / size)); }
    close_rig(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_definition),      cmocka_unit_test(test_many_queries),
        cmocka_unit_test(test_window_and_cap),  cmocka_unit_test(test_one_entry),
        cmocka_unit_test(test_nothing_to_mend), cmocka_unit_test(test_not_finite),
        cmocka_unit_test(test_singular),        cmocka_unit_test(test_whole_is_known),
        cmocka_unit_test(test_range),           cmocka_unit_test(test_too_many_bytes),
        cmocka_unit_test(test_held_keys),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
