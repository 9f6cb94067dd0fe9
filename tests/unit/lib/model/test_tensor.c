/* Tensors as they lie in a file: every quantised type against other code, and by hand. */
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
        assert_int_equal(tensor_n_values(&t), BLOCKS * (int64_t)block.values);
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
                const int e = (int)(i >> 10 & 31), m = (int)(i & 1023);
                const double size = e == 31  ? (m ? NAN : INFINITY)
                                    : e == 0 ? ldexp(m, -24)
                                             : ldexp(1024 + m, e - 25);
                want = (float)(i >> 15 ? -size : size);
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

/* The first values of a block given by hand. */
static const float *decoded(tensor_type type, int32_t n, const uint8_t *block) {
    static float out[256];
    tensor_decode(&(tensor_view){.type = type, .rank = 1, .dims = {n}, .data = block}, 0, n, out);
    return out;
}

/* A few values worked out by hand from the definition: 0x3C00 is 1, 0x4000 is 2, 0xB800 is -0.5. */
TEST(blocks_by_hand) {
    const uint8_t q4_0[18] = {0x00, 0x40, 0x80, 0x1F}; /* d = 2; bytes 80 1F 00 ... */
    const float *out = decoded(TENSOR_Q4_0, 32, q4_0);
    assert_true(out[0] == -16 && out[16] == 0 && out[1] == 14 && out[17] == -14 && out[2] == -16 &&
                out[18] == -16);
    const uint8_t q4_1[20] = {0x00, 0x3C, 0x00, 0xB8, 0xA3}; /* d = 1, m = -0.5 */
    out = decoded(TENSOR_Q4_1, 32, q4_1);
    assert_true(out[0] == 2.5f && out[16] == 9.5f && out[1] == -0.5f);
    /* d = 1; fifth bits of values 0 and 17 */
    const uint8_t q5_0[22] = {0x00, 0x3C, 0x01, 0x00, 0x02, 0x00, 0x51, 0xC2};
    out = decoded(TENSOR_Q5_0, 32, q5_0);
    assert_true(out[0] == 1 && out[16] == 5 - 16 && out[1] == 2 - 16 && out[17] == 12 &&
                out[5] == -16);
    /* d = 2, m = -0.5 */
    const uint8_t q5_1[24] = {0x00, 0x40, 0x00, 0xB8, 0x01, 0x00, 0x02, 0x00, 0x51, 0xC2};
    out = decoded(TENSOR_Q5_1, 32, q5_1);
    assert_true(out[0] == 33.5f && out[16] == 9.5f && out[17] == 55.5f && out[5] == -0.5f);
    const uint8_t q8_0[34] = {0x00, 0xB8, 0x7F, 0x80, 0xFF}; /* d = -0.5: 127, -128, -1 */
    out = decoded(TENSOR_Q8_0, 32, q8_0);
    assert_true(out[0] == -63.5f && out[1] == 64 && out[2] == 0.5f);
    /* d = 1, dmin = 2. Group 0: scale 3, min 5. Group 5: low nibbles of byte 9 (scale 7, min 9),
     * upper bits of bytes 1 and 5: scale 7 + 16 * 2 = 39, min 9 + 16 * 1 = 25. Its values are the
     * high nibbles of bytes 64 ... 95. */
    const uint8_t q4_k[144] = {0x00,
                               0x3C,
                               0x00,
                               0x40,
                               [4] = 3,
                               [8] = 5,
                               [4 + 9] = 0x97,
                               [4 + 1] = 2 << 6,
                               [4 + 5] = 1 << 6,
                               [16] = 0x0B,
                               [16 + 64] = 0x40};
    out = decoded(TENSOR_Q4_K, 256, q4_k);
    assert_true(out[0] == 3 * 11 - 2 * 5 && out[1] == -10 && out[5 * 32] == 39 * 4 - 2 * 25 &&
                out[5 * 32 + 1] == -50);
    /* d = 0.5. Value 128 + 64 + 3 is the high nibble of byte 64 + 3 and bits 4-5 of byte 128 + 32 +
     * 3; its scale is number 12. */
    const uint8_t q6_k[210] = {[67] = 0xA0, [163] = 3 << 4, [192 + 12] = 0xFE, [209] = 0x38};
    out = decoded(TENSOR_Q6_K, 256, q6_k);
    assert_true(out[195] == 0.5f * -2 * (10 + 48 - 32) && out[196] == 0.5f * -2 * -32 &&
                out[0] == 0);
}

RUN_TESTS(NULL, NULL)
