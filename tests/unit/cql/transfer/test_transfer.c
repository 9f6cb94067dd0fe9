/* Depth mapping against golden/method/transfer.json: integers and halves, compared exactly. */
#include "cql/transfer/transfer.h"
#include "tests/unit/golden.h"

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

/* From L x G to L2 x G2. */
static void check(const json_t *c, uint32_t G, uint32_t G2) {
    const uint32_t L = extent(c, "L"), L2 = extent(c, "L2");
    CKVC_AUTO_FREE double *source = calloc((size_t)L * G, 8), *want = calloc((size_t)L2 * G2, 8),
                          *got = calloc((size_t)L2 * G2, 8);
    assert_int_equal(flatten(json_object_get(c, "source"), source, 0), (size_t)L * G);
    assert_int_equal(flatten(json_object_get(c, "target"), want, 0), (size_t)L2 * G2);
    transfer_heads(L, G, source, L2, G2, got);
    for (size_t i = 0; i < L2 * G2; i++) { assert_int_equal(transfer_index(got[i]), want[i]); }
}

TEST(golden) {
    json_auto_t *root = golden_read("tests/golden/method/transfer.json");
    json_t *c, *heads = json_object_get(root, "heads"), *gates = json_object_get(root, "gates");
    size_t i;
    json_array_foreach(heads, i, c) { check(c, extent(c, "G"), extent(c, "G2")); }
    json_array_foreach(gates, i, c) {
        const uint32_t cells = extent(c, "E") * extent(c, "P");
        check(c, cells, cells);
    }
    assert_int_equal(json_array_size(heads) + json_array_size(gates), 20);
}

/* The largest extents and index that the header allows are exact. */
TEST(limits) {
    enum { N = 65536 };
    CKVC_AUTO_FREE double *source = malloc(N * sizeof *source);
    double target[2];
    for (uint32_t i = 0; i < N; i++) { source[i] = 65535; }
    transfer_heads(N, 1, source, 1, 1, target);
    assert_int_equal(target[0], 65535);
    transfer_heads(256, 256, source, 1, 1, target);
    assert_int_equal(target[0], 65535);
    transfer_heads(N, 1, source, 2, 1, target);
    assert_int_equal(target[1], 65535);
    CKVC_AUTO_FREE double *wide = malloc(N * sizeof *wide);
    transfer_heads(2, 1, source, N, 1, wide);
    assert_int_equal(wide[N / 2], 65535);
    /* one step of the finest grid on either side of a half, and the half itself */
    source[0] = 65534;
    transfer_heads(2, 1, source, N, 1, wide);
    assert_int_equal(transfer_index(wide[N / 2 - 1]), 65534);
    assert_int_equal(transfer_index(wide[N / 2]), 65535);
    transfer_heads(2, 1, source, 1, 1, wide);
    assert_int_equal(transfer_index(wide[0]), 65534);
}

RUN_TESTS(NULL, NULL)
