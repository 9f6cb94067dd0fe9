/* Rows of numbers in the formats of caches: see cache_format.h. */
#include "lib/base/cache_format.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "lib/base/bytes.h"

enum {
    BLOCK = 32,
    ROTATED_HEADS = 64 /* heads are rotated whose size is a multiple of this */
};
#define INLINE static inline __attribute__((always_inline))

static bool is_rotated(cache_format f) { return f % 2 != 0; }
/* The format in which the numbers that are left are stored. */
static cache_format stored(cache_format f) {
    return f >= CACHE_Q4_0_MEAN ? CACHE_Q4_0 : (cache_format)(f - f % 2);
}
static bool has_blocks(cache_format f) { return f >= CACHE_Q8_0; }

static const char *const names[CACHE_FORMATS] = {
    "f32",     "f32+rot", "f16",      "f16+rot", "bf16",     "bf16+rot",  "fp8",
    "fp8+rot", "q8_0",    "q8_0+rot", "q4_0",    "q4_0+rot", "q4_0+mean", "q4_0+mean+rot"};

const char *cache_format_name(cache_format f) { return names[f]; }

const char *cache_formats_name(cache_formats f, char out[CACHE_FORMATS_TEXT]) {
    const bool same = f.keys == f.values;
    snprintf(out, CACHE_FORMATS_TEXT, "%s%s%s", names[f.keys], same ? "" : "/",
             same ? "" : names[f.values]);
    return out;
}

static bool format_named(const char *text, size_t n, cache_format *f) {
    for (int i = 0; i < CACHE_FORMATS; i++) {
        if (strncmp(text, names[i], n) == 0 && !names[i][n]) {
            *f = (cache_format)i;
            return true;
        }
    }
    return false;
}

bool cache_formats_named(const char *text, cache_formats *f) {
    const char *slash = strchr(text, '/'), *values = slash ? slash + 1 : text;
    if (!format_named(text, slash ? (size_t)(slash - text) : strlen(text), &f->keys) ||
        !format_named(values, strlen(values), &f->values)) {
        return false;
    }
    if (!slash && cache_takes_mean(*f)) { f->values = (cache_format)(f->keys - 2); }
    return true;
}

size_t cache_bytes(cache_format f, size_t n) {
    switch (stored(f)) {
    case CACHE_F16:
    case CACHE_BF16: return 2 * n;
    case CACHE_FP8: return n;
    case CACHE_Q8_0: return n / BLOCK * (2 + BLOCK);
    case CACHE_Q4_0: return n / BLOCK * (2 + BLOCK / 2);
    default: return sizeof(float) * n;
    }
}

/* ---- rotation ---- */

int32_t cache_key_rotation(cache_formats f, int32_t head_dim) {
    return is_rotated(f.keys) ? head_dim & -head_dim : 1;
}

int32_t cache_value_rotation(cache_formats f, int32_t head_dim) {
    (void)head_dim;
    return is_rotated(f.values) ? ROTATED_HEADS : 1;
}

int32_t cache_format_multiple(cache_format f) {
    return is_rotated(f) ? ROTATED_HEADS : has_blocks(f) ? BLOCK : 1;
}

enum { LANES = 8 };
typedef float lanes __attribute__((vector_size(LANES * sizeof(float))));

/* Sums and differences of numbers `step` apart, for step = 1, 2, 4 ... (Fino and Algazi 1976),
 * among n vectors, and all times `scale`. Those of steps within a vector are a[i] + sign * b[i],
 * where a has the first number of each pair twice and b the second one: the same bits as a - b. */
INLINE void rotate_lanes(float *x, size_t n, float scale) {
    const lanes by_1 = {1, -1, 1, -1, 1, -1, 1, -1}, by_2 = {1, 1, -1, -1, 1, 1, -1, -1},
                by_4 = {1, 1, 1, 1, -1, -1, -1, -1};
    lanes v[CACHE_HEAD_MAX / LANES];
    memcpy(v, x, n * sizeof *v);
    for (size_t i = 0; i < n; i++) {
        v[i] = __builtin_shufflevector(v[i], v[i], 0, 0, 2, 2, 4, 4, 6, 6) +
               by_1 * __builtin_shufflevector(v[i], v[i], 1, 1, 3, 3, 5, 5, 7, 7);
        v[i] = __builtin_shufflevector(v[i], v[i], 0, 1, 0, 1, 4, 5, 4, 5) +
               by_2 * __builtin_shufflevector(v[i], v[i], 2, 3, 2, 3, 6, 7, 6, 7);
        v[i] = __builtin_shufflevector(v[i], v[i], 0, 1, 2, 3, 0, 1, 2, 3) +
               by_4 * __builtin_shufflevector(v[i], v[i], 4, 5, 6, 7, 4, 5, 6, 7);
    }
    for (size_t step = 1; step < n; step *= 2) {
        for (size_t i = 0; i < n; i += 2 * step) {
            for (size_t j = i; j < i + step; j++) {
                const lanes first = v[j], second = v[j + step];
                v[j] = first + second;
                v[j + step] = first - second;
            }
        }
    }
    for (size_t i = 0; i < n; i++) { v[i] *= scale; }
    memcpy(x, v, n * sizeof *v);
}

CKVC_CLONES void cache_rotate(float *x, size_t n, int32_t rotation) {
    const size_t size = (size_t)rotation;
    const float scale = (float)(1.0 / sqrt((double)rotation));
    assert(size == 1 || (size >= LANES && size <= CACHE_HEAD_MAX));
    for (float *b = x; size > 1 && b < x + n; b += size) {
        if (size == 64) { /* the usual one, whose loops are unrolled */
            rotate_lanes(b, 64 / LANES, scale);
        } else {
            rotate_lanes(b, size / LANES, scale);
        }
    }
}

CKVC_CLONES void cache_add_mean(const float *c, const float *cos, const float *sin,
                                int32_t head_dim, float factor, float *x) {
    const int32_t half = head_dim / 2;
    for (int32_t i = 0; i < half; i++) {
        x[i] += factor * (c[i] * cos[i] - c[half + i] * sin[i]);
        x[half + i] += factor * (c[half + i] * cos[i] + c[i] * sin[i]);
    }
}

/* ---- writing ---- */

/* PyTorch's round_to_nearest_even (c10/util/BFloat16.h) */
static uint16_t bf16_of(float v) {
    const uint32_t bits = ckvc_bits_of_f32(v);
    return isnan(v) ? 0x7FC0 : (uint16_t)((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}

/* PyTorch's fp8e4m3fn_from_fp32_value (headeronly/util/Float8_e4m3fn.h) */
static uint8_t fp8_of(float v) {
    const uint32_t all = ckvc_bits_of_f32(v), sign = all >> 24 & 0x80, bits = all & 0x7FFFFFFF,
                   least = UINT32_C(121) << 23, /* 2^-6, the smallest normal number */
        steps = UINT32_C(141) << 23;            /* 2^14, whose last place is 2^-9 */
    uint32_t out;
    if (isnan(v)) {
        out = 0x7F;
    } else if (bits < least) { /* the sum is rounded to the step of subnormal numbers */
        out = ckvc_bits_of_f32(ckvc_f32_of_bits(bits) + ckvc_f32_of_bits(steps)) - steps;
    } else {
        out = (bits - (UINT32_C(120) << 23) + 0x7FFFF + (bits >> 20 & 1)) >> 20;
        out = out < 0x7E ? out : 0x7E;
    }
    return (uint8_t)(sign | out);
}

/* The number of a block that is largest in size, the first of equals; NaN where one of them is not
 * finite, so that the scale shows it. */
static float largest_of(const float *x) {
    float most = 0.0f, size = 0.0f, zero = 0.0f;
    for (int i = 0; i < BLOCK; i++) {
        zero += x[i] * 0.0f;
        if (fabsf(x[i]) > size) { size = fabsf(most = x[i]); }
    }
    return isnan(zero) ? NAN : most;
}

/* Scale and integers of ggml's quantize_row_q8_0_ref and quantize_row_q4_0_ref (ggml-quants.c);
 * inverse is 0 for a scale of 0, and where the scale is NaN. */
static float inverse_of(float d) { return d != 0.0f && !isnan(d) ? 1.0f / d : 0.0f; }

/* x cut to least ... most; least for NaN. */
INLINE float within(float x, float least, float most) {
    const float low = x >= least ? x : least;
    return low <= most ? low : most;
}

/* To the nearest integer, halves away from 0, as roundf does. */
INLINE int nearest(float x) {
    const int whole = (int)x;
    const float rest = x - (float)whole;
    return whole + (rest >= 0.5f) - (rest <= -0.5f);
}

CKVC_CLONES static void write_q8_0(const float *x, uint8_t *to) {
    const float d = fabsf(largest_of(x)) / 127.0f, inverse = inverse_of(d);
    ckvc_put_u16(to, ckvc_f16_of_f32(d));
    for (int i = 0; i < BLOCK; i++) {
        to[2 + i] = (uint8_t)nearest(within(x[i] * inverse, -127.0f, 127.0f));
    }
}

CKVC_CLONES static void write_q4_0(const float *x, uint8_t *to) {
    const float d = largest_of(x) / -8.0f, inverse = inverse_of(d);
    ckvc_put_u16(to, ckvc_f16_of_f32(d));
    for (int i = 0; i < BLOCK / 2; i++) {
        const int low = (int)within(x[i] * inverse + 8.5f, 0.0f, 15.0f),
                  high = (int)within(x[i + BLOCK / 2] * inverse + 8.5f, 0.0f, 15.0f);
        to[2 + i] = (uint8_t)(low | high << 4);
    }
}

static void encode(cache_format f, const float *x, size_t n, uint8_t *to) {
    switch (stored(f)) {
    case CACHE_F16:
        for (size_t i = 0; i < n; i++) { ckvc_put_u16(to + 2 * i, ckvc_f16_of_f32(x[i])); }
        return;
    case CACHE_BF16:
        for (size_t i = 0; i < n; i++) { ckvc_put_u16(to + 2 * i, bf16_of(x[i])); }
        return;
    case CACHE_FP8:
        for (size_t i = 0; i < n; i++) { to[i] = fp8_of(x[i]); }
        return;
    case CACHE_Q8_0:
        for (size_t i = 0; i < n; i += BLOCK) { write_q8_0(x + i, to + cache_bytes(f, i)); }
        return;
    case CACHE_Q4_0:
        for (size_t i = 0; i < n; i += BLOCK) { write_q4_0(x + i, to + cache_bytes(f, i)); }
        return;
    default: memcpy(to, x, n * sizeof *x);
    }
}

void cache_write(cache_format f, int32_t rotation, const float *x, size_t n, void *to) {
    float piece[CACHE_HEAD_MAX];
    const size_t size = (size_t)rotation;
    if (rotation <= 1) {
        encode(f, x, n, to);
        return;
    }
    for (size_t i = 0; i < n; i += size) {
        memcpy(piece, x + i, size * sizeof *x);
        cache_rotate(piece, size, rotation);
        encode(f, piece, size, (uint8_t *)to + cache_bytes(f, i));
    }
}

/* ---- reading ---- */

/* `where`, 0 or all bits, chooses the bits of a or those of b. Compilers make vector code of this,
 * but not of a choice between floats. */
INLINE uint32_t choose(uint32_t where, uint32_t a, uint32_t b) {
    return (where & a) | (~where & b);
}
INLINE uint32_t where(bool yes) { return 0 - (uint32_t)yes; }

/* The bits of a number without its sign whose exponent and mantissa stand where those of float32
 * do, with `bias` to be added to the exponent. A subnormal number is made without one of float32,
 * which processors compute slowly: as a normal one, less the number that it then stands above. */
INLINE uint32_t moved(uint32_t bits, uint32_t bias) {
    const uint32_t above = (bias + 1) << 23,
                   small =
                       ckvc_bits_of_f32(ckvc_f32_of_bits(bits + above) - ckvc_f32_of_bits(above));
    return choose(where(bits < UINT32_C(1) << 23), small, bits + (bias << 23));
}

CKVC_CLONES static void read_f16(const uint8_t *from, size_t n, float *x) {
    for (size_t i = 0; i < n; i++) {
        const uint32_t h = ckvc_get_u16(from + 2 * i), bits = (h & 0x7FFF) << 13;
        const uint32_t huge = where(bits >= 0x7C00 << 13); /* infinite, or NaN */
        x[i] = ckvc_f32_of_bits((h & 0x8000) << 16 |
                                choose(huge, bits | 0x7F800000, moved(bits, 112)));
    }
}

CKVC_CLONES static void read_bf16(const uint8_t *from, size_t n, float *x) {
    for (size_t i = 0; i < n; i++) {
        x[i] = ckvc_f32_of_bits((uint32_t)ckvc_get_u16(from + 2 * i) << 16);
    }
}

CKVC_CLONES static void read_fp8(const uint8_t *from, size_t n, float *x) {
    for (size_t i = 0; i < n; i++) {
        const uint32_t b = from[i], bits = (b & 0x7F) << 20;
        x[i] = ckvc_f32_of_bits((b & 0x80) << 24 |
                                choose(where(bits == 0x7F << 20), 0x7FC00000, moved(bits, 120)));
    }
}

CKVC_CLONES static void read_q8_0(const uint8_t *from, size_t n, float *x) {
    for (size_t i = 0; i < n; i += BLOCK, from += 2 + BLOCK) {
        const float d = ckvc_f32_of_f16(ckvc_get_u16(from));
        for (int j = 0; j < BLOCK; j++) { x[i + j] = (float)(int8_t)from[2 + j] * d; }
    }
}

CKVC_CLONES static void read_q4_0(const uint8_t *from, size_t n, float *x) {
    for (size_t i = 0; i < n; i += BLOCK, from += 2 + BLOCK / 2) {
        const float d = ckvc_f32_of_f16(ckvc_get_u16(from));
        for (int j = 0; j < BLOCK / 2; j++) {
            x[i + j] = (float)((from[2 + j] & 15) - 8) * d;
            x[i + j + BLOCK / 2] = (float)((from[2 + j] >> 4) - 8) * d;
        }
    }
}

void cache_read(cache_format f, const void *from, size_t n, float *x) {
    switch (stored(f)) {
    case CACHE_F16: read_f16(from, n, x); return;
    case CACHE_BF16: read_bf16(from, n, x); return;
    case CACHE_FP8: read_fp8(from, n, x); return;
    case CACHE_Q8_0: read_q8_0(from, n, x); return;
    case CACHE_Q4_0: read_q4_0(from, n, x); return;
    default: memcpy(x, from, n * sizeof *x);
    }
}

void cache_round(cache_format f, int32_t rotation, float *x, size_t n) {
    uint8_t held[CACHE_HEAD_MAX * sizeof(float)];
    const size_t size = rotation > 1 ? (size_t)rotation : BLOCK;
    for (size_t i = 0; i < n; i += size) {
        const size_t count = n - i < size ? n - i : size;
        cache_write(f, rotation, x + i, count, held);
        cache_read(f, held, count, x + i);
    }
    cache_rotate(x, n, rotation);
}
