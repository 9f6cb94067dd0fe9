/* The formats in which caches hold keys and values, as engines have them, and rows in these
 * formats.
 *
 *   f32    float32, 4 bytes a number
 *   f16    IEEE binary16, rounded to nearest even; too large numbers become infinite
 *   bf16   bfloat16, rounded to nearest even
 *   fp8    8 bits with 4 of exponent, e4m3fn of the OCP specification (Micikevicius et al. 2022,
 *          arXiv 2209.05433), rounded to nearest even as PyTorch 2.15 does; larger numbers than
 *          448 become 448
 *   q8_0   ggml's blocks of 32 numbers: a float16 scale d, and 32 signed bytes (34 bytes a block)
 *   q4_0   the same with 32 numbers of 4 bits in 16 bytes: byte i has number i in its low half and
 *          number i + 16 in its high half (18 bytes a block)
 *   q4_0+mean   q4_0 of a key k at position p less R(p) c, for keys alone. c is the mean of the
 *          head's keys over a prompt before they are rotated by their positions, and R(p) is the
 *          rotation by p (RoPE). What is read gets R(p) c added again, so the position of a row
 *          has to be known. A model whose keys have a large bias (Qwen2) wastes most of the 4 bits
 *          on it otherwise: all numbers of a block have one scale.
 *
 * Each has a twin with "+rot": a row is multiplied by an orthonormal Hadamard matrix before it is
 * rounded, as llama.cpp does (pull request 21038). The matrix is symmetric, so it is its own
 * inverse. Products of queries and keys stay what they are where queries are rotated, too, and the
 * mixed values are rotated back. llama.cpp rotates only heads whose size is a multiple of 64: keys
 * in blocks of the largest power of two that divides the size, values in blocks of 64. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/status.h"

typedef enum cache_format {
    CACHE_F32,
    CACHE_F32_ROT,
    CACHE_F16,
    CACHE_F16_ROT,
    CACHE_BF16,
    CACHE_BF16_ROT,
    CACHE_FP8,
    CACHE_FP8_ROT,
    CACHE_Q8_0,
    CACHE_Q8_0_ROT,
    CACHE_Q4_0,
    CACHE_Q4_0_ROT,
    CACHE_Q4_0_MEAN,
    CACHE_Q4_0_MEAN_ROT,
    CACHE_FORMATS
} cache_format;
#define CACHE_FORMAT_NAMES                                                                         \
    "f32|f32+rot|f16|f16+rot|bf16|bf16+rot|fp8|fp8+rot|q8_0|q8_0+rot|q4_0|q4_0+rot|"               \
    "q4_0+mean|q4_0+mean+rot"

/* The most numbers that a head has. */
enum { CACHE_HEAD_MAX = 1024 };

/* How a cache holds keys and values; {0}: both in float32. */
typedef struct cache_formats {
    cache_format keys, values;
} cache_formats;

static inline bool cache_is_plain(cache_formats f) {
    return f.keys == CACHE_F32 && f.values == CACHE_F32;
}

/* Are keys held less their mean? Then what is kept of a prompt is held with its positions. */
static inline bool cache_takes_mean(cache_formats f) { return f.keys >= CACHE_Q4_0_MEAN; }
enum { CACHE_POSITION_BYTES = 4 };

/* Returns the name of a format. */
const char *cache_format_name(cache_format f);
/* Writes the names of both formats, such as "q8_0/q4_0+rot", or one name where they are the same,
 * and returns `out`. */
enum { CACHE_FORMATS_TEXT = 24 };
const char *cache_formats_name(cache_formats f, char out[CACHE_FORMATS_TEXT]);
/* Reads formats that are written so. One name with "+mean" means values without it. Returns false
 * where `text` names none. */
bool cache_formats_named(const char *text, cache_formats *f);

/* The bytes of n numbers; n is a multiple of the format's block (32 for q8_0 and q4_0). */
size_t cache_bytes(cache_format f, size_t n);
/* The bytes of what is kept at one position: a key and a value of head_dim numbers each, and the
 * position where it has to be known. */
static inline size_t cache_entry_bytes(cache_formats f, int32_t head_dim) {
    return cache_bytes(f.keys, (size_t)head_dim) + cache_bytes(f.values, (size_t)head_dim) +
           (cache_takes_mean(f) ? CACHE_POSITION_BYTES : 0);
}
/* The share of the entries that fits into this share of the bytes that the whole cache takes in 16
 * bits, for heads of head_dim numbers. */
static inline double cache_entries_share(double bytes, cache_formats f, int32_t head_dim) {
    enum { N = 32 }; /* numbers of a key or value: a block, so that its scale counts */
    const double position = cache_takes_mean(f) ? (double)CACHE_POSITION_BYTES * N / head_dim : 0;
    return bytes * (2 * 2 * N) /
           ((double)(cache_bytes(f.keys, N) + cache_bytes(f.values, N)) + position);
}
/* Over how many numbers a rotation goes; 1: they stay as they are. */
int32_t cache_key_rotation(cache_formats f, int32_t head_dim);
int32_t cache_value_rotation(cache_formats f, int32_t head_dim);
/* What the size of a head must be a multiple of, so that heads go into whole blocks and can be
 * rotated: 1, 32 or 64. */
int32_t cache_format_multiple(cache_format f);

/* Multiplies each block of `rotation` numbers among the n of x by the orthonormal Hadamard matrix
 * (Sylvester's), in place. `rotation` is 1, or a power of two from 8 to CACHE_HEAD_MAX. */
void cache_rotate(float *x, size_t n, int32_t rotation);
/* x += factor R(p) c, for a key x [head_dim], its head's mean key c, and cos and sin [head_dim/2]
 * of the angles at x's position p. */
void cache_add_mean(const float *c, const float *cos, const float *sin, int32_t head_dim,
                    float factor, float *x);
/* Rotates the n numbers of x block by block, and writes them to `to` as the format has them
 * (cache_bytes). */
void cache_write(cache_format f, int32_t rotation, const float *x, size_t n, void *to);
/* Reads n numbers of the format, which stay rotated. */
void cache_read(cache_format f, const void *from, size_t n, float *x);
/* Makes the n numbers of x what is read of them, rotated back. Doing it twice changes nothing
 * more. */
void cache_round(cache_format f, int32_t rotation, float *x, size_t n);
