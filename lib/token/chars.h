/* Characters of texts, as they lie in bytes. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <utf8proc.h>

/* Returns the bytes of the character at text, n >= 1; *c receives its code point. Where the bytes
 * are not UTF-8 it returns 1, and *c is -1. */
static inline size_t char_next(const char *text, size_t n, int32_t *c) {
    if ((uint8_t)*text < 0x80) {
        *c = *text;
        return 1;
    }
    const utf8proc_ssize_t step =
        utf8proc_iterate((const utf8proc_uint8_t *)text, (utf8proc_ssize_t)n, c);
    return step > 0 ? (size_t)step : 1;
}

static inline int32_t char_at(const char *text, size_t n) {
    int32_t c;
    char_next(text, n, &c);
    return c;
}

/* Returns where the character before `at` begins; at >= 1. */
static inline size_t char_before(const char *text, size_t at) {
    do { at--; } while (at > 0 && ((uint8_t)text[at] & 0xC0) == 0x80);
    return at;
}

/* Unicode's White_Space. */
static inline bool is_white_space(int32_t c) {
    return (c >= 9 && c <= 13) || c == 0x20 || c == 0x85 || c == 0xA0 || c == 0x1680 ||
           (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F ||
           c == 0x205F || c == 0x3000;
}

/* What Python's str.isspace() accepts. */
static inline bool is_python_space(int32_t c) {
    return is_white_space(c) || (c >= 0x1C && c <= 0x1F);
}
