/* The values of a tensor in float32, from each type that weights are stored in.
 *
 * The quantised types are ggml's (ggml-common.h has the blocks, ggml-quants.c the arithmetic). A
 * block holds a few float16 scales and small integers. Values are computed in the order and with
 * the float32 operations of ggml's dequantize_row functions, so that they have the same bits. */
#include "lib/model/model_spec.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>

#include "lib/base/bytes.h"

static const struct {
    const char *name;
    tensor_block block;
} types[TENSOR_OTHER] = {
    [TENSOR_F32] = {"F32", {1, 4}},       [TENSOR_F16] = {"F16", {1, 2}},
    [TENSOR_BF16] = {"BF16", {1, 2}},     [TENSOR_Q4_0] = {"Q4_0", {32, 18}},
    [TENSOR_Q4_1] = {"Q4_1", {32, 20}},   [TENSOR_Q5_0] = {"Q5_0", {32, 22}},
    [TENSOR_Q5_1] = {"Q5_1", {32, 24}},   [TENSOR_Q8_0] = {"Q8_0", {32, 34}},
    [TENSOR_Q4_K] = {"Q4_K", {256, 144}}, [TENSOR_Q6_K] = {"Q6_K", {256, 210}},
};

tensor_type tensor_type_named(const char *name) {
    tensor_type t = 0;
    while (t < TENSOR_OTHER && strcmp(types[t].name, name) != 0) { t++; }
    return t;
}

tensor_block tensor_block_of(tensor_type type) {
    assert(type < TENSOR_OTHER);
    return types[type].block;
}

const char *tensor_dims(const int64_t *dims, int32_t rank, char text[TENSOR_DIMS_TEXT]) {
    size_t n = (size_t)snprintf(text, TENSOR_DIMS_TEXT, "[");
    for (int32_t i = 0; i < rank; i++) {
        n += (size_t)snprintf(text + n, TENSOR_DIMS_TEXT - n, "%s%" PRId64, i ? "," : "", dims[i]);
    }
    snprintf(text + n, TENSOR_DIMS_TEXT - n, "]");
    return text;
}

static bool in_order(const tensor_view *t) { return t->pairwise == 0 && t->partial.rows == 0; }

bool tensor_as_stored(const tensor_view *t) {
    return in_order(t) && t->plus == 0.0f && t->times == 0.0f;
}

static float from_half(const uint8_t *p) { return ckvc_f32_of_f16(ckvc_get_u16(p)); }

/* ---- blocks of 32 values: scale d, in _1 types minimum m; low nibbles first, then high ---- */

/* Decodes a block of 4-bit or 5-bit values: the scale, a minimum if `has_min` (otherwise the
 * integers are centred at zero), the fifth bits if `five` (of value i bit i of a 32-bit word), and
 * the nibbles. */
static inline __attribute__((always_inline)) void nibbles(const uint8_t *b, bool five, bool has_min,
                                                          float *out) {
    const float d = from_half(b), m = has_min ? from_half(b + 2) : 0;
    const uint8_t *high_at = b + (has_min ? 4 : 2), *q = high_at + (five ? 4 : 0);
    const uint32_t high = five ? ckvc_get_u32(high_at) : 0;
    const int zero = has_min ? 0 : five ? 16 : 8;
    for (int i = 0; i < 16; i++) {
        const uint32_t first = (q[i] & 15u) | (high >> i & 1) << 4,
                       second = (uint32_t)q[i] >> 4 | (high >> (i + 16) & 1) << 4;
        const float u = (float)((int)first - zero) * d, v = (float)((int)second - zero) * d;
        out[i] = has_min ? u + m : u;
        out[i + 16] = has_min ? v + m : v;
    }
}

static void q4_0(const uint8_t *b, float *out) { nibbles(b, false, false, out); }
static void q4_1(const uint8_t *b, float *out) { nibbles(b, false, true, out); }
static void q5_0(const uint8_t *b, float *out) { nibbles(b, true, false, out); }
static void q5_1(const uint8_t *b, float *out) { nibbles(b, true, true, out); }

static void q8_0(const uint8_t *b, float *out) {
    const float d = from_half(b);
    for (int i = 0; i < 32; i++) { out[i] = (float)(int8_t)b[2 + i] * d; }
}

/* ---- blocks of 256 ---- */

/* Eight groups of 32 values, each with a 6-bit scale and a 6-bit minimum, packed in 12 bytes. Those
 * of the first four groups are the low six bits of bytes 0-3 and 4-7. The others have their low
 * nibbles in bytes 8-11 and their upper two bits at the top of bytes 0-3 and 4-7. */
static void q4_k(const uint8_t *b, float *out) {
    const float d = from_half(b), dmin = from_half(b + 2);
    const uint8_t *s = b + 4, *q = b + 16;
    for (int g = 0; g < 8; g++) {
        const int scale = g < 4 ? s[g] & 63 : (s[g + 4] & 15) | s[g - 4] >> 6 << 4;
        const int min = g < 4 ? s[g + 4] & 63 : s[g + 4] >> 4 | s[g] >> 6 << 4;
        const float step = d * (float)scale, offset = dmin * (float)min;
        const uint8_t *nibbles = &q[(size_t)g / 2 * 32]; /* groups 2j and 2j+1 share 32 bytes */
        for (int i = 0; i < 32; i++) {
            out[g * 32 + i] = step * (float)(nibbles[i] >> g % 2 * 4 & 15) - offset;
        }
    }
}

/* Two halves of 128 values, each with 64 bytes of low nibbles, 32 bytes of upper bit pairs, and 8
 * signed scales, one for every 16 values. */
static void q6_k(const uint8_t *b, float *out) {
    const float d = from_half(b + 208);
    for (size_t part = 0; part < 2; part++, out += 128) {
        const uint8_t *low = &b[part * 64], *high = &b[128 + part * 32],
                      *scales = &b[192 + part * 8];
        for (int i = 0; i < 128; i++) {
            const int nibble = low[i % 64] >> i / 64 * 4 & 15,
                      pair = high[i % 32] >> i / 32 * 2 & 3;
            out[i] = d * (float)(int8_t)scales[i / 16] * (float)((nibble | pair << 4) - 32);
        }
    }
}

void tensor_decode(const tensor_view *t, int64_t first, int64_t n, float *out) {
    static void (*const block_fn[])(const uint8_t *, float *) = {
        [TENSOR_Q4_0] = q4_0, [TENSOR_Q4_1] = q4_1, [TENSOR_Q5_0] = q5_0, [TENSOR_Q5_1] = q5_1,
        [TENSOR_Q8_0] = q8_0, [TENSOR_Q4_K] = q4_k, [TENSOR_Q6_K] = q6_k,
    };
    const tensor_block block = tensor_block_of(t->type);
    assert(first % block.values == 0 && n % block.values == 0);
    const uint8_t *p = t->data + (uint64_t)first / block.values * block.bytes;
    switch (t->type) {
    case TENSOR_F32:
        for (int64_t i = 0; i < n; i++) { out[i] = ckvc_get_f32(p + i * 4); }
        return;
    case TENSOR_F16:
        for (int64_t i = 0; i < n; i++) { out[i] = from_half(p + i * 2); }
        return;
    case TENSOR_BF16:
        for (int64_t i = 0; i < n; i++) {
            out[i] = ckvc_f32_of_bits((uint32_t)ckvc_get_u16(p + i * 2) << 16);
        }
        return;
    default:
        for (int64_t i = 0; i < n; i += block.values, p += block.bytes) {
            block_fn[t->type](p, out + i);
        }
    }
}

/* Where row i + h D/2 of a head lies in the file: in pairwise order at row 2i + h; under a partial
 * rotary embedding of R values at row i + h R/2, or after these R rows. */
static int64_t stored_row(const tensor_view *t, int64_t row) {
    const int64_t head = t->pairwise ? t->pairwise : t->partial.head, r = row % head,
                  i = r % (head / 2), h = r / (head / 2), rotated = t->partial.rotated;
    if (t->pairwise) { return row - r + 2 * i + h; }
    if (row >= t->partial.rows) { return row; }
    return row - r +
           (i < rotated / 2 ? i + h * rotated / 2 : rotated / 2 + i + h * (head - rotated) / 2);
}

void tensor_read_rows(const tensor_view *t, int64_t row, int64_t n, float *out) {
    const int64_t cols = t->rank > 1 ? t->dims[1] : 1;
    if (in_order(t)) {
        tensor_decode(t, row * cols, n * cols, out);
    } else {
        for (int64_t i = 0; i < n; i++) {
            tensor_decode(t, stored_row(t, row + i) * cols, cols, out + i * cols);
        }
    }
    if (t->plus != 0.0f || t->times != 0.0f) {
        const float times = t->times != 0.0f ? t->times : 1.0f;
        for (int64_t i = 0; i < n * cols; i++) { out[i] = (out[i] + t->plus) * times; }
    }
}
