/* Tensors as they lie in a file: every quantised type against other code (gguf-py's:
 * tests/outside/gguf_types.py). */
#include "tests/unit/quantised_blocks.h"

TEST(blocks_of_every_type) {
    ckvc_rng rng = rng_of(1, 2, 3);
    for (size_t k = 0; k < N_QUANTISED; k++) {
        const tensor_block block = tensor_block_of(quantised[k].type);
        assert_int_equal(block.values, quantised[k].values);
        assert_int_equal(block.bytes, quantised[k].bytes);
        enum { BLOCKS = 40 };
        static uint8_t data[BLOCKS * 210];
        static float out[BLOCKS * 256];
        for (int b = 0; b < BLOCKS; b++) { random_block(&rng, k, data + (size_t)b * block.bytes); }
        const tensor_view t = {.type = quantised[k].type,
                               .rank = 2,
                               .dims = {BLOCKS / 2, 2 * (int64_t)block.values},
                               .data = data,
                               .bytes = (uint64_t)BLOCKS * block.bytes};
        tensor_decode(&t, 0, BLOCKS * (int64_t)block.values, out);
        for (uint32_t i = 0; i < BLOCKS * block.values; i++) {
            const float want = (float)quantised_value(
                quantised[k].type, data + i / block.values * block.bytes, (int)(i % block.values));
            if (out[i] != want) {
                fail_msg("type %zu, value %u: %a, wanted %a", k, i, (double)out[i], (double)want);
            }
        }
        float part[256];
        tensor_decode(&t, 3 * (int64_t)block.values, block.values, part);
        assert_memory_equal(part, out + 3 * block.values, block.values * sizeof *part);
    }
}

/* Every float16 and bfloat16 bit pattern, and floats, at addresses that are aligned to nothing. */
TEST(plain_types) {
    static uint8_t bytes[65536 * 4 + 1];
    static float got[65536];
    for (tensor_type type = TENSOR_F32; type <= TENSOR_BF16; type++) {
        const size_t each = type == TENSOR_F32 ? 4 : 2;
        for (uint32_t i = 0; i < 65536; i++) { /* the low bytes come first */
            memcpy(bytes + 1 + i * each, &(uint32_t){type == TENSOR_F32 ? i * 60013u : i}, each);
        }
        const tensor_view t = {.type = type, .rank = 2, .dims = {256, 256}, .data = bytes + 1};
        tensor_read_rows(&t, 0, 256, got);
        for (uint32_t i = 0; i < 65536; i++) {
            const uint32_t f = type == TENSOR_F32 ? i * 60013u : i << 16;
            float want;
            memcpy(&want, &f, 4);
            if (type == TENSOR_F16) {
                const double size = i & 1023 ? NAN : i >> 15 ? -INFINITY : INFINITY;
                want = (float)((i >> 10 & 31) == 31 ? size : half_of(bytes + 1 + i * each));
            }
            assert_true(isnan(want) ? isnan(got[i]) : memcmp(&got[i], &want, 4) == 0);
        }
    }
}

/* Rows of two heads of 6, from any row on: in pairwise order 0 2 4 1 3 5 of each; of the first four
 * values rotated, 0 1 4 2 3 5 of the first, and the second as it lies. */
TEST(rows_in_the_runtimes_order) {
    static const float order[2][12] = {{0, 2, 4, 1, 3, 5, 6, 8, 10, 7, 9, 11},
                                       {0, 1, 4, 2, 3, 5, 6, 7, 8, 9, 10, 11}};
    float values[12][2], got[9][2];
    for (int r = 0; r < 12; r++) { values[r][0] = (float)r, values[r][1] = (float)-r; }
    tensor_view t = {.rank = 2, .dims = {12, 2}, .pairwise = 6, .data = (const uint8_t *)values};
    for (int k = 0; k < 2; k++) {
        assert_false(tensor_as_stored(&t));
        tensor_read_rows(&t, 2, 9, &got[0][0]);
        for (int r = 0; r < 9; r++) {
            assert_true(got[r][0] == order[k][2 + r] && got[r][1] == -order[k][2 + r]);
        }
        t.pairwise = 0;
        t.partial = (struct partial_rows){.rows = 6, .head = 6, .rotated = 4};
    }
}

RUN_TESTS(NULL, NULL)
