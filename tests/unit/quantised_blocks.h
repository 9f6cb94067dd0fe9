/* Makes random blocks of the quantised types, and works out their values independently. */
#pragma once

#include "lib/model/model_spec.h"
#include "tests/unit/gguf_maker.h"

static inline double half_of(const uint8_t *p) {
    const int h = p[0] | p[1] << 8, exponent = h >> 10 & 31, mantissa = h & 1023;
    const double v = exponent ? ldexp(1024 + mantissa, exponent - 25) : ldexp(mantissa, -24);
    return h & 0x8000 ? -v : v;
}

static inline int bits(const uint8_t *p, int from,
                       int n) /* n bits from bit `from` of a little-endian string of bits */
{
    int v = 0;
    for (int i = 0; i < n; i++) { v |= (p[(from + i) / 8] >> (from + i) % 8 & 1) << i; }
    return v;
}

/* Returns value i of a block in double, worked out independently from bit positions. Each value
 * is exact there, so one rounding to float32 must give the reader's bits. */
static inline double quantised_value(tensor_type type, const uint8_t *b, int i) {
    const int at = i % 16 * 8 + i / 16 * 4; /* bit of the nibble of value i of 32 */
    switch (type) {
    case TENSOR_Q4_0: return half_of(b) * (bits(b + 2, at, 4) - 8);
    case TENSOR_Q4_1: return half_of(b) * bits(b + 4, at, 4) + half_of(b + 2);
    case TENSOR_Q5_0: return half_of(b) * (bits(b + 6, at, 4) + 16 * bits(b + 2, i, 1) - 16);
    case TENSOR_Q5_1:
        return half_of(b) * (bits(b + 8, at, 4) + 16 * bits(b + 4, i, 1)) + half_of(b + 2);
    case TENSOR_Q8_0: return half_of(b) * (b[2 + i] < 128 ? b[2 + i] : b[2 + i] - 256);
    case TENSOR_Q4_K: {
        const int g = i / 32;
        const int scale = g < 4
                              ? bits(b + 4, g * 8, 6)
                              : bits(b + 4, (g + 4) * 8, 4) + 16 * bits(b + 4, (g - 4) * 8 + 6, 2);
        const int min = g < 4 ? bits(b + 4, (g + 4) * 8, 6)
                              : bits(b + 4, (g + 4) * 8 + 4, 4) + 16 * bits(b + 4, g * 8 + 6, 2);
        const int q = bits(b + 16, g / 2 * 256 + i % 32 * 8 + g % 2 * 4, 4);
        return half_of(b) * scale * q - half_of(b + 2) * min;
    }
    default: { /* Q6_K */
        const int part = i / 128, j = i % 128;
        const int low = bits(b, part * 512 + j % 64 * 8 + j / 64 * 4, 4),
                  high = bits(b + 128, part * 256 + j % 32 * 8 + j / 32 * 2, 2);
        const int scale = b[192 + i / 16] < 128 ? b[192 + i / 16] : b[192 + i / 16] - 256;
        return half_of(b + 208) * scale * (low + 16 * high - 32);
    }
    }
}

static const struct {
    tensor_type type;
    uint32_t ggml, values, bytes, halfs[2]; /* where the float16 scales are; equal: one */
} quantised[] = {
    {TENSOR_Q4_0, G_TYPE_Q4_0, 32, 18, {0, 0}},       {TENSOR_Q4_1, G_TYPE_Q4_1, 32, 20, {0, 2}},
    {TENSOR_Q5_0, G_TYPE_Q5_0, 32, 22, {0, 0}},       {TENSOR_Q5_1, G_TYPE_Q5_1, 32, 24, {0, 2}},
    {TENSOR_Q8_0, G_TYPE_Q8_0, 32, 34, {0, 0}},       {TENSOR_Q4_K, G_TYPE_Q4_K, 256, 144, {0, 2}},
    {TENSOR_Q6_K, G_TYPE_Q6_K, 256, 210, {208, 208}},
};
#define N_QUANTISED (sizeof quantised / sizeof *quantised)

static inline void random_block(ckvc_rng *rng, size_t kind, uint8_t *b) {
    for (uint32_t i = 0; i < quantised[kind].bytes; i++) {
        b[i] = (uint8_t)ckvc_rng_below(rng, 256);
    }
    for (int k = 0; k < 2; k++) { /* scales of moderate size, now and then subnormal or zero */
        b[quantised[kind].halfs[k] + 1] =
            (uint8_t)((b[quantised[kind].halfs[k] + 1] & 0x83) |
                      (ckvc_rng_below(rng, 8) ? 0x20 + ckvc_rng_below(rng, 6) * 4 : 0));
    }
}
