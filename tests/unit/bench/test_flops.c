/* Counted operations of a shape small enough to count by hand. */
#include "tests/bench/stages/flops.c"
#include "tests/unit/unit.h"

/* Two layers of width 4, two query heads of 3 on one KV head, MLP of 5, vocabulary of 7. A row
 * costs, in multiply-adds: queries 4*6 = 24, keys and values 2*4*3 = 24, output 24, MLP 3*4*5 = 60,
 * head 28; a key costs 2*2*3 = 12. */
static const model_shape shape = {.n_layers = 2,
                                  .n_heads = 2,
                                  .n_kv_heads = 1,
                                  .head_dim = 3,
                                  .width = 4,
                                  .intermediate = 5,
                                  .vocab = 7};

TEST(prefill_is_counted_by_hand) {
    /* T = 6, W = 2. First layer: 6 rows of 132, 1+...+6 = 21 keys. Last: 6 rows of 24, then rows 3,
     * 4, 5 with 108 each and 4+5+6 keys. Head: 2 rows. */
    assert_true(flops_prefill(&shape, 6, 2) ==
                2.0 * (6 * 132 + 21 * 12 + 6 * 24 + 3 * 108 + 15 * 12 + 2 * 28));
    model_shape sliding = shape;
    sliding.sliding_window = 3; /* rows see 1, 2, 3, 3, 3, 3 keys */
    assert_true(flops_prefill(&sliding, 6, 2) ==
                2.0 * (6 * 132 + 15 * 12 + 6 * 24 + 3 * 108 + 9 * 12 + 2 * 28));
}

TEST(rollouts_are_counted_by_hand) {
    const uint32_t n_kept[2] = {4, 2};
    /* C = 4: 3 rows, which see 1+2+3 = 6 keys of their own. */
    assert_true(flops_rollout(&shape, 9, 4, n_kept) ==
                2.0 * (3 * 28 + 2 * 3 * 132 + (3 * 4 + 6 + 3 * 2 + 6) * 12));
    assert_true(flops_rollout(&shape, 9, 4, NULL) ==
                2.0 * (3 * 28 + 2 * 3 * 132 + 2 * (3 * 9 + 6) * 12));
    /* A variant at layer 0 that keeps 5 there shares queries, keys and values with the baseline;
     * one at the last layer has no more. */
    assert_true(flops_variant(&shape, 4, 0, 5, n_kept) ==
                2.0 * (3 * 28 + 3 * 84 + (3 * 5 + 6) * 12 + 3 * 132 + (3 * 2 + 6) * 12));
    assert_true(flops_variant(&shape, 4, 1, 5, n_kept) ==
                2.0 * (3 * 28 + 3 * 84 + (3 * 5 + 6) * 12));
}

RUN_TESTS(NULL, NULL)
