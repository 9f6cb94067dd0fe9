/* Reading and writing little-endian numbers, and a cursor over bytes from outside. This header
 * needs libc alone and has no .c file.
 *
 * The cursor never reads past its end. A read that finds too few bytes sets `failed`, and from then
 * on every read gives zeros, so a parser may read a whole header and test cursor.failed once
 * afterwards. `pos` stays where the first failure happened, for the message "... at byte N". */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

static inline void ckvc_put_u16(uint8_t *p, uint16_t v) {
    p[0] = (uint8_t)v;
    p[1] = (uint8_t)(v >> 8);
}
static inline void ckvc_put_u32(uint8_t *p, uint32_t v) {
    ckvc_put_u16(p, (uint16_t)v);
    ckvc_put_u16(p + 2, (uint16_t)(v >> 16));
}
static inline void ckvc_put_u64(uint8_t *p, uint64_t v) {
    ckvc_put_u32(p, (uint32_t)v);
    ckvc_put_u32(p + 4, (uint32_t)(v >> 32));
}
static inline void ckvc_put_f64(uint8_t *p, double v) {
    uint64_t bits;
    memcpy(&bits, &v, 8);
    ckvc_put_u64(p, bits);
}
static inline uint16_t ckvc_get_u16(const uint8_t *p) { return (uint16_t)(p[0] | p[1] << 8); }
static inline uint32_t ckvc_get_u32(const uint8_t *p) {
    return (uint32_t)ckvc_get_u16(p) | (uint32_t)ckvc_get_u16(p + 2) << 16;
}
static inline uint64_t ckvc_get_u64(const uint8_t *p) {
    return (uint64_t)ckvc_get_u32(p) | (uint64_t)ckvc_get_u32(p + 4) << 32;
}
static inline float ckvc_f32_of_bits(uint32_t bits) {
    float v;
    memcpy(&v, &bits, 4);
    return v;
}
static inline uint32_t ckvc_bits_of_f32(float v) {
    uint32_t bits;
    memcpy(&bits, &v, 4);
    return bits;
}
static inline float ckvc_get_f32(const uint8_t *p) { return ckvc_f32_of_bits(ckvc_get_u32(p)); }
/* Converts IEEE binary16 exactly; its subnormals are multiples of 2^-24. */
static inline float ckvc_f32_of_f16(uint16_t half) {
    const uint32_t h = half, sign = (h & 0x8000u) << 16, exponent = h >> 10 & 31,
                   mantissa = h & 0x3FFu;
    if (exponent == 31) { return ckvc_f32_of_bits(sign | 0x7F800000u | mantissa << 13); }
    if (exponent == 0) { return ckvc_f32_of_bits(sign | 0x3F800000u) * (float)mantissa * 0x1p-24f; }
    return ckvc_f32_of_bits(sign | (exponent + 112) << 23 | mantissa << 13);
}
/* Rounds to the nearest binary16, of two equally near to the even one; from 65,520 on to infinity.
 */
static inline uint16_t ckvc_f16_of_f32(float v) {
    const uint32_t bits = ckvc_bits_of_f32(v), sign = bits >> 16 & 0x8000u,
                   magnitude = bits & 0x7FFFFFFFu;
    if (magnitude > 0x7F800000u) { return (uint16_t)(sign | 0x7E00u); }
    if (magnitude >= 0x477FF000u) { return (uint16_t)(sign | 0x7C00u); }
    if (magnitude < 0x38800000u) { /* below 2^-14: the sum rounds to a multiple of 2^-24 */
        const uint32_t at = ckvc_bits_of_f32(ckvc_f32_of_bits(magnitude) + 0.5f);
        return (uint16_t)(sign | (at - 0x3F000000u));
    }
    const uint32_t rounded = magnitude + 0xFFFu + (magnitude >> 13 & 1u);
    return (uint16_t)(sign | (rounded - 0x38000000u) >> 13);
}
static inline double ckvc_get_f64(const uint8_t *p) {
    uint64_t bits = ckvc_get_u64(p);
    double v;
    memcpy(&v, &bits, 8);
    return v;
}
static inline bool ckvc_f16_is_finite(uint16_t half) { return (half & 0x7C00u) != 0x7C00u; }

/* Whether n bytes begin as a Git LFS pointer does: the small text file that a clone without Git LFS
 * has in the place of a large file (docs/spec.md of git-lfs). */
#define CKVC_LFS_ADVICE                                                                            \
    "a Git LFS pointer in the file's place; get the file: git lfs pull, or hf download"
static inline bool ckvc_is_lfs_pointer(const void *bytes, uint64_t n) {
    static const char begin[] = "version https://git-lfs.github.com/spec/v1";
    return n >= sizeof begin - 1 && memcmp(bytes, begin, sizeof begin - 1) == 0;
}

typedef struct ckvc_cursor {
    const uint8_t *data; /* borrowed */
    uint64_t size;
    uint64_t pos;
    bool failed;
} ckvc_cursor;

/* The next n bytes, or NULL (and failed) when fewer remain. */
static inline const uint8_t *ckvc_cursor_take(ckvc_cursor *c, uint64_t n) {
    if (c->failed || n > c->size - c->pos) {
        c->failed = true;
        return NULL;
    }
    const uint8_t *p = c->data + c->pos;
    c->pos += n;
    return p;
}
static inline uint8_t ckvc_cursor_u8(ckvc_cursor *c) {
    const uint8_t *p = ckvc_cursor_take(c, 1);
    return p ? *p : 0;
}
static inline uint16_t ckvc_cursor_u16(ckvc_cursor *c) {
    const uint8_t *p = ckvc_cursor_take(c, 2);
    return p ? ckvc_get_u16(p) : 0;
}
static inline uint32_t ckvc_cursor_u32(ckvc_cursor *c) {
    const uint8_t *p = ckvc_cursor_take(c, 4);
    return p ? ckvc_get_u32(p) : 0;
}
static inline uint64_t ckvc_cursor_u64(ckvc_cursor *c) {
    const uint8_t *p = ckvc_cursor_take(c, 8);
    return p ? ckvc_get_u64(p) : 0;
}
