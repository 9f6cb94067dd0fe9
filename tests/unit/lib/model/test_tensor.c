/* Tensors as they lie in a file: every quantised type against values worked out another way, and by
 * hand. */
#include "tests/unit/quantised_blocks.h"
#include "tests/unit/unit.h"

TEST(blocks_of_every_type) {
    ckvc_rng rng;
    ckvc_rng_init(&rng, 1, 2, 3);
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
        assert_int_equal(tensor_n_values(&t), BLOCKS * (int64_t)block.values);
        tensor_decode(&t, 0, BLOCKS * (int64_t)block.values, out);
        for (uint32_t i = 0; i < BLOCKS * block.values; i++) {
            const float want = (float)quantised_value(
                quantised[k].type, data + i / block.values * block.bytes, (int)(i % block.values));
            if (out[i] != want) {
                fail_msg("type %zu, value %u: got %a, wanted %a", k, i, (double)out[i],
                         (double)want);
            }
        }
        float part[256];
        tensor_decode(&t, 3 * (int64_t)block.values, block.values, part);
        assert_memory_equal(part, out + 3 * block.values, block.values * sizeof *part);
    }
}

/* A few values worked out by hand from the definition: 0x3C00 is 1, 0x4000 is 2, 0xB800 is -0.5. */
TEST(blocks_by_hand) {
    float out[256];
    {
        uint8_t b[18] = {0x00, 0x40, 0x80, 0x1F}; /* d = 2; bytes 80 1F 00 ... */
        tensor_decode(&(tensor_view){.type = TENSOR_Q4_0, .rank = 1, .dims = {32}, .data = b}, 0,
                      32, out);
        assert_true(out[0] == -16 && out[16] == 0 && out[1] == 14 && out[17] == -14 &&
                    out[2] == -16 && out[18] == -16);
    }
    {
        uint8_t b[20] = {0x00, 0x3C, 0x00, 0xB8, 0xA3}; /* d = 1, m = -0.5 */
        tensor_decode(&(tensor_view){.type = TENSOR_Q4_1, .rank = 1, .dims = {32}, .data = b}, 0,
                      32, out);
        assert_true(out[0] == 2.5f && out[16] == 9.5f && out[1] == -0.5f);
    }
    {
        uint8_t b[22] = {0x00, 0x3C, 0x01, 0x00,
                         0x02, 0x00, 0x51, 0xC2}; /* fifth bits of values 0 and 17 */
        tensor_decode(&(tensor_view){.type = TENSOR_Q5_0, .rank = 1, .dims = {32}, .data = b}, 0,
                      32, out);
        assert_true(out[0] == 1 && out[16] == 5 - 16 && out[1] == 2 - 16 && out[17] == 12 &&
                    out[5] == -16);
    }
    {
        uint8_t b[24] = {0x00, 0x40, 0x00, 0xB8, 0x01,
                         0x00, 0x02, 0x00, 0x51, 0xC2}; /* d = 2, m = -0.5 */
        tensor_decode(&(tensor_view){.type = TENSOR_Q5_1, .rank = 1, .dims = {32}, .data = b}, 0,
                      32, out);
        assert_true(out[0] == 33.5f && out[16] == 9.5f && out[17] == 55.5f && out[5] == -0.5f);
    }
    {
        uint8_t b[34] = {0x00, 0xB8, 0x7F, 0x80, 0xFF}; /* d = -0.5: 127, -128, -1 */
        tensor_decode(&(tensor_view){.type = TENSOR_Q8_0, .rank = 1, .dims = {32}, .data = b}, 0,
                      32, out);
        assert_true(out[0] == -63.5f && out[1] == 64 && out[2] == 0.5f);
    }
    {
        /* d = 1, dmin = 2. Group 0: scale 3, min 5. Group 5: low nibbles of byte 9 (scale 7, min
         * 9), upper bits of bytes 1 and 5: scale 7 + 16 * 2 = 39, min 9 + 16 * 1 = 25. Its values
         * are the high nibbles of bytes 64 ... 95. */
        uint8_t b[144] = {0x00, 0x3C, 0x00, 0x40};
        b[4] = 3, b[8] = 5, b[4 + 9] = 0x97, b[4 + 1] = 2 << 6, b[4 + 5] = 1 << 6;
        b[16] = 0x0B, b[16 + 64] = 0x40;
        tensor_decode(&(tensor_view){.type = TENSOR_Q4_K, .rank = 1, .dims = {256}, .data = b}, 0,
                      256, out);
        assert_true(out[0] == 3 * 11 - 2 * 5 && out[1] == -10 && out[5 * 32] == 39 * 4 - 2 * 25 &&
                    out[5 * 32 + 1] == -50);
    }
    {
        /* d = 0.5. Value 128 + 64 + 3 is the high nibble of byte 64 + 3 and bits 4-5 of byte 128 +
         * 32 + 3; its scale is number 12. */
        uint8_t b[210] = {0};
        b[67] = 0xA0, b[163] = 3 << 4, b[192 + 12] = 0xFE, b[209] = 0x38;
        tensor_decode(&(tensor_view){.type = TENSOR_Q6_K, .rank = 1, .dims = {256}, .data = b}, 0,
                      256, out);
        assert_true(out[195] == 0.5f * -2 * (10 + 48 - 32) && out[196] == 0.5f * -2 * -32 &&
                    out[0] == 0);
    }
}

RUN_TESTS(NULL, NULL)
