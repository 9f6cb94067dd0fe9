/* Sizes from outside: the one home of overflow-checked arithmetic. Header-only; libc alone. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* *out = a*b (or a+b); false, with *out untouched in meaning, when the result does not fit. */
static inline bool ckvc_mul_size(size_t a, size_t b, size_t *out) {
    return !__builtin_mul_overflow(a, b, out);
}
static inline bool ckvc_add_size(size_t a, size_t b, size_t *out) {
    return !__builtin_add_overflow(a, b, out);
}

/* Does the span [offset, offset+length) lie inside a thing of `total` bytes? Never overflows. */
static inline bool ckvc_span_ok(uint64_t offset, uint64_t length, uint64_t total) {
    return offset <= total && length <= total - offset;
}
