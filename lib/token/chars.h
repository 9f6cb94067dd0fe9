/* Characters of well-formed UTF-8. Private to lib/token. */
#ifndef CKVC_TOKEN_CHARS_H
#define CKVC_TOKEN_CHARS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <utf8proc.h>

/* The code point that begins at text; n >= 1. */
static inline int32_t char_at(const char *text, size_t n) {
    utf8proc_int32_t c = -1;
    utf8proc_iterate((const utf8proc_uint8_t *)text, (utf8proc_ssize_t)n, &c);
    return c;
}

/* Where the character in front of `at` begins; at >= 1. */
static inline size_t char_before(const char *text, size_t at) {
    do { at--; } while (at > 0 && ((uint8_t)text[at] & 0xC0) == 0x80);
    return at;
}

/* White_Space of Unicode. */
static inline bool is_white_space(int32_t c) {
    return (c >= 9 && c <= 13) || c == 0x20 || c == 0x85 || c == 0xA0 || c == 0x1680 ||
           (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F ||
           c == 0x205F || c == 0x3000;
}

#endif
