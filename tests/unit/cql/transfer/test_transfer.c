/* Depth mapping against golden/method/transfer.json: integers and halves, compared exactly. */
#include "cql/transfer/transfer.h"
#include "tests/unit/golden.h"
#include "tests/unit/unit.h"

static uint32_t extent(const json_t *c, const char *key) {
    json_int_t n = json_integer_value(json_object_get(c, key));
    assert_true(n >= 1 && n < 1000);
    return (uint32_t)n;
}

/* Nested lists of integers, flattened behind each other. */
static size_t flatten(const json_t *v, double *out, size_t n) {
    if (json_is_integer(v)) {
        out[n] = json_number_value(v);
        return n + 1;
    }
    size_t i;
    json_t *item;
    json_array_foreach(v, i, item) { n = flatten(item, out, n); }
    return n;
}

static void same_indices(const double *got, const double *want, size_t n) {
    for (size_t i = 0; i < n; i++) { assert_int_equal(transfer_index(got[i]), want[i]); }
}

TEST(golden) {
    json_t *root = golden_read("tests/golden/method/transfer.json"), *c;
    size_t i, n_checked = 0;
    json_array_foreach(json_object_get(root, "heads"), i, c) {
        uint32_t L = extent(c, "L"), G = extent(c, "G"), L2 = extent(c, "L2"), G2 = extent(c, "G2");
        double *source = calloc((size_t)L * G, 8), *want = calloc((size_t)L2 * G2, 8),
               *got = calloc((size_t)L2 * G2, 8);
        assert_int_equal(flatten(json_object_get(c, "source"), source, 0), (size_t)L * G);
        assert_int_equal(flatten(json_object_get(c, "target"), want, 0), (size_t)L2 * G2);
        transfer_heads(L, G, source, L2, G2, got);
        same_indices(got, want, (size_t)L2 * G2);
        n_checked++;
        free(source);
        free(want);
        free(got);
    }
    json_array_foreach(json_object_get(root, "gates"), i, c) {
        uint32_t L = extent(c, "L"), cells = extent(c, "E") * extent(c, "P"), L2 = extent(c, "L2");
        double *source = calloc((size_t)L * cells, 8), *want = calloc((size_t)L2 * cells, 8),
               *got = calloc((size_t)L2 * cells, 8);
        assert_int_equal(flatten(json_object_get(c, "source"), source, 0), (size_t)L * cells);
        assert_int_equal(flatten(json_object_get(c, "target"), want, 0), (size_t)L2 * cells);
        transfer_heads(L, cells, source, L2, cells, got);
        same_indices(got, want, (size_t)L2 * cells);
        n_checked++;
        free(source);
        free(want);
        free(got);
    }
    assert_int_equal(n_checked, 20);
    json_decref(root);
}

/* The largest extents and index that the header allows are exact. */
TEST(limits) {
    enum { N = 65536 };
    double *source = malloc(N * sizeof *source), target[2];
    for (uint32_t i = 0; i < N; i++) { source[i] = 65535; }
    transfer_heads(N, 1, source, 1, 1, target);
    assert_int_equal(target[0], 65535);
    transfer_heads(256, 256, source, 1, 1, target);
    assert_int_equal(target[0], 65535);
    transfer_heads(N, 1, source, 2, 1, target);
    assert_int_equal(target[1], 65535);
    double *wide = malloc(N * sizeof *wide);
    transfer_heads(2, 1, source, N, 1, wide);
    assert_int_equal(wide[N / 2], 65535);
    /* one step of the finest grid on either side of a half, and the half itself */
    source[0] = 65534;
    transfer_heads(2, 1, source, N, 1, wide);
    assert_int_equal(transfer_index(wide[N / 2 - 1]), 65534);
    assert_int_equal(transfer_index(wide[N / 2]), 65535);
    transfer_heads(2, 1, source, 1, 1, wide);
    assert_int_equal(transfer_index(wide[0]), 65534);
    free(source);
    free(wide);
}

RUN_TESTS(NULL, NULL)
