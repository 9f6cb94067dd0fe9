/* The parts that sketches of models are made of, and the decision whether two are of one model: see
 * sketch.h. */
#include "lib/base/sketch.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "lib/base/bytes.h"
#include "lib/base/hash.h"

uint32_t sketch_signs(uint32_t i) {
    uint32_t h = (i + 1) * 0x9E3779B1u;
    h = (h ^ h >> 15) * 0x85EBCA77u;
    h = (h ^ h >> 13) * 0xC2B2AE3Du;
    return h ^ h >> 16;
}

uint64_t sketch_digest(const void *text, size_t n) {
    uint8_t digest[CKVC_SHA256_BYTES];
    ckvc_sha256_bytes(text, n, digest);
    return ckvc_get_u64(digest) & 0xffffffffffff;
}

/* The places of its parts, which are all hexadecimal digits (docs/formats.md). */
enum { ROUNDING = 2, WORDS = 7, SHAPE = 20, VECTORS = 33, MATRICES = 130, LENGTH = 226 };

static bool is_sketch(const char *s) {
    return strlen(s) == LENGTH && memcmp(s, "1 ", 2) == 0 &&
           strspn(s, "0123456789abcdef ") == LENGTH;
}

/* Whether the parts at a place differ. 0 means that a part is not known, and differs from
 * nothing. */
static bool hashes_differ(const char *a, const char *b, int at) {
    static const char unknown[] = "000000000000";
    return memcmp(a + at, b + at, 12) != 0 && memcmp(a + at, unknown, 12) != 0 &&
           memcmp(b + at, unknown, 12) != 0;
}

static double read_hex_number(const char *digits) {
    const char four[5] = {digits[0], digits[1], digits[2], digits[3], '\0'};
    return (double)strtol(four, NULL, 16);
}

/* The root mean square of the differences: the distance of the weights that the numbers stand for,
 * whose norm is 1. */
static double weight_distance(const char *a, const char *b, int at) {
    double sum = 0.0;
    for (int i = at; i < at + 4 * SKETCH_NUMBERS; i += 4) {
        const double d = (read_hex_number(a + i) - read_hex_number(b + i)) / 8192.0;
        sum += d * d;
    }
    return sqrt(sum / SKETCH_NUMBERS);
}

/* The bounds were measured (docs/formats.md). No type of vectors rounds more than BF16. What two
 * types do to matrices adds up in squares, and 24 numbers estimate the sum to within a half. */
bool sketch_same(const char *a, const char *b, char why[SKETCH_TEXT]) {
    const bool both = is_sketch(a) && is_sketch(b), known = both &&
                                                            memcmp(a + ROUNDING, "ffff", 4) != 0 &&
                                                            memcmp(b + ROUNDING, "ffff", 4) != 0;
    const char *other = !both                        ? "one of them has no sketch of its model"
                        : hashes_differ(a, b, SHAPE) ? "their shapes differ"
                        : hashes_differ(a, b, WORDS) ? "their tokenizers differ"
                                                     : NULL;
    snprintf(why, SKETCH_TEXT, "%s", other ? other : "");
    if (other) { return false; }
    const double vectors = weight_distance(a, b, VECTORS), most = 0.003,
                 matrices = known ? weight_distance(a, b, MATRICES) : 0.0,
                 within = 0.001 + 1.5e-4 * hypot(read_hex_number(a + ROUNDING),
                                                 read_hex_number(b + ROUNDING));
    snprintf(why, SKETCH_TEXT,
             "their norms differ by %.4f and their matrices by %.4f, where rounding may by %.4f "
             "and %.4f",
             vectors, matrices, most, known ? within : 0.0);
    return vectors <= most && matrices <= within;
}
