/* What a step that fails says, and JSON as a test writes it. */
#pragma once

#include "tests/unit/unit.h"

/* Bad data, in a line that begins with the file's path. */
#define REFUSES(step, path, word)                                                                  \
    do {                                                                                           \
        SAYS(step, CKVC_E_DATA, word);                                                             \
        assert_ptr_equal(strstr(err.text, path), err.text);                                        \
    } while (0)

/* `text` with ' for ", there as long as the program runs. */
static inline const char *json_of(const char *text) {
    static char texts[1 << 24];
    static size_t used;
    char *to = texts + used;
    used += strlen(text) + 1;
    assert_true(used <= sizeof texts);
    strcpy(to, text);
    for (char *quote = to; (quote = strchr(quote, '\''));) { *quote = '"'; }
    return to;
}

/* A text with its first `from` replaced. */
static inline const char *bent(const char *good, const char *from, const char *to) {
    static char text[4096];
    const char *at = strstr(good, from);
    assert_non_null(at);
    snprintf(text, sizeof text, "%.*s%s%s", (int)(at - good), good, to, at + strlen(from));
    return text;
}

/* Changes 1 to 4 of the first `within` bytes, each to a byte of text, to any, or in one bit;
 * returns how many of n bytes stay: mostly all. */
static inline size_t damage_bytes(ckvc_rng *rng, uint8_t *bytes, size_t within, size_t n) {
    for (uint64_t edits = 1 + ckvc_rng_below(rng, 4); edits > 0; edits--) {
        uint8_t *at = bytes + ckvc_rng_below(rng, within);
        switch (ckvc_rng_below(rng, 3)) {
        case 0: *at = (uint8_t)(32 + ckvc_rng_below(rng, 95)); break;
        case 1: *at = (uint8_t)ckvc_rng_u32(rng); break;
        default: *at ^= (uint8_t)(1u << ckvc_rng_below(rng, 8));
        }
    }
    return ckvc_rng_below(rng, 8) ? n : ckvc_rng_below(rng, n);
}
