/* Where the gate can act: sizes at the ends of a grid tell whether thresholds keep other sets. */
#include "lib/stats/gate_binding.h"
#include "lib/policy/policy_parts.h"
#include "tests/unit/unit.h"

/* Over random utilities the sums count exactly where some two thresholds keep different sets. */
TEST(against_the_operator) {
    enum { T = 60, A = 21 };
    ckvc_rng rng = rng_of(5, 1, 0);
    gate_binding b = {0};
    uint64_t differ = 0, binding = 0, lo = 0;
    for (int round = 0; round < 2000; round++) {
        double u[T];
        const double spread = 0.02 + ckvc_rng_double(&rng);
        const uint32_t budget = (uint32_t)ckvc_rng_below(&rng, T + 2);
        for (int t = 0; t < T; t++) { u[t] = 0.9 + spread * (ckvc_rng_double(&rng) - 0.5); }
        uint32_t first[T], set[T], scratch[T], n_first = 0, candidates[A];
        bool any = false;
        for (int a = 0; a < A; a++) {
            const uint32_t n = ckvc_retain(T, u, (ckvc_rule){(80 + a) / 100.0, budget, 0}, set,
                                           &candidates[a], scratch);
            if (a == 0) {
                n_first = n;
                memcpy(first, set, n * sizeof *set);
            }
            any |= n != n_first || memcmp(first, set, n * sizeof *set) != 0;
        }
        gate_binding_add(&b, budget, candidates[0], candidates[A - 1], n_first, 0, T);
        differ += any;
        binding += candidates[A - 1] < budget;
        lo += candidates[0];
    }
    assert_int_equal(b.n, 2000);
    assert_int_equal(b.differ, differ);
    assert_int_equal(b.binding, binding);
    assert_int_equal(b.lo, lo);
    assert_true(differ > 300 && differ < 1900);
    assert_true(gate_binding_differ_share(&b) == (double)differ / 2000);
    gate_binding twice = b;
    gate_binding_merge(&twice, &b);
    assert_true(twice.n == 4000 && twice.tokens == 2 * b.tokens &&
                gate_binding_share(&twice) == gate_binding_share(&b));
}

TEST(advice) {
    char text[256];
    gate_binding none = {0};
    assert_true(isnan(gate_binding_share(&none)) && !gate_is_alive(&none));

    gate_binding small = {0}; /* 100 of 400 tokens pass the highest threshold, 64 may stay */
    for (int i = 0; i < 50; i++) { gate_binding_add(&small, 64, 180, 100, 64, 8, 400); }
    assert_false(gate_is_alive(&small));
    gate_advice(&small, 0.95, text, sizeof text);
    assert_non_null(strstr(text, "100 candidates of 400 tokens"));
    assert_non_null(strstr(text, "0.95"));
    assert_non_null(strstr(text, "--budget 0.26"));
    gate_binding_add(&small, 128, 180, 100, 128, 8, 400);
    assert_false(gate_is_alive(&small)); /* 1 of 51 */
    gate_binding_add(&small, 128, 180, 100, 128, 8, 400);
    gate_binding_add(&small, 128, 180, 100, 128, 8, 400);
    assert_true(gate_is_alive(&small)); /* 3 of 53 */

    gate_binding narrow = {0};
    gate_binding_add(&narrow, 200, 100, 100, 100, 8, 400);
    assert_false(gate_is_alive(&narrow));
    gate_advice(&narrow, 0.9, text, sizeof text);
    assert_non_null(strstr(text, "wider --gate-grid"));

    gate_binding all = {0}; /* thresholds near 0 */
    gate_binding_add(&all, 64, 400, 400, 64, 8, 400);
    gate_advice(&all, 0.1, text, sizeof text);
    assert_non_null(strstr(text, "goes higher"));
    assert_null(strstr(text, "--budget"));
}

RUN_TESTS(NULL, NULL)
