/* How much a reconstruction feeds, and which prompts it fits; what it finds is compared with
 * kvpress in tests/unit/judge/policies/test_published_sets.c. */
#include "judge/policies/rules/reconstruction.h"
#include "tests/unit/unit.h"

/* A later chunk is behind 13 + 8 tokens. */
static const reconstruction_texts texts = {.n_first = 9, .n_later = 13};

TEST(lengths) {
    static const uint32_t cases[][4] = {/* T; fed at a time, in all, among */
                                        {1, 10, 10, 0},
                                        {2048, 2057, 2057, 0},
                                        {2049, 2057, 2079, 2049},
                                        {2100, 2057, 2130, 2052},
                                        {4096, 2069, 4126, 2052},
                                        {4097, 2069, 4148, 2052},
                                        {100000, 2069, 101017, 2052}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const uint32_t T = cases[i][0];
        assert_int_equal(reconstruction_fed(&texts, T), cases[i][1]);
        assert_int_equal(reconstruction_tokens(&texts, T), cases[i][2]);
        assert_int_equal(reconstruction_among(&texts, T), cases[i][3]);
    }
}

TEST(longest) {
    assert_int_equal(reconstruction_longest(&texts, 2048), 1019); /* twice, and the instruction */
    assert_int_equal(reconstruction_longest(&texts, 4110), 2048); /* a chunk */
    assert_int_equal(reconstruction_longest(&texts, 8192), 6123);
    assert_true(reconstruction_longest(&texts, 8) < 1);
    for (uint32_t context = 100; context < 9000; context += 7) {
        const uint32_t T = (uint32_t)reconstruction_longest(&texts, context);
        assert_true(T + reconstruction_fed(&texts, T) <= context);
        assert_true(T + 1 + reconstruction_fed(&texts, T + 1) + 12 > context);
    }
}

RUN_TESTS(NULL, NULL)
