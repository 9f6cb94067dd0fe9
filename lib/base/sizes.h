/* Arithmetic on sizes from outside, checked for overflow; it is done nowhere else. This header
 * needs libc alone and has no .c file. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Sets *out to a*b (or a+b). Returns false when the result does not fit, and *out then means
 * nothing. */
static inline bool ckvc_mul_size(size_t a, size_t b, size_t *out) {
    return !__builtin_mul_overflow(a, b, out);
}
static inline bool ckvc_add_size(size_t a, size_t b, size_t *out) {
    return !__builtin_add_overflow(a, b, out);
}

/* Whether the span [offset, offset+length) lies inside a thing of `total` bytes. It never
 * overflows. */
static inline bool ckvc_span_ok(uint64_t offset, uint64_t length, uint64_t total) {
    return offset <= total && length <= total - offset;
}
