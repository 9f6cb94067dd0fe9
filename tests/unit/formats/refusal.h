/* What a step that fails says, and JSON as a test writes it. */
#pragma once

#include "tests/unit/unit.h"

/* Bad data, in a line that begins with the file's path. */
#define REFUSES(step, path, word)                                                                  \
    do {                                                                                           \
        SAYS(step, CKVC_E_DATA, word);                                                             \
        assert_ptr_equal(strstr(err.text, path), err.text);                                        \
    } while (0)

/* `text` with ' for ": one of four buffers that take turns. */
static inline const char *json_of(const char *text) {
    static char texts[4][8192];
    static unsigned turn;
    char *to = texts[turn++ % 4];
    assert_true(strlen(text) < sizeof texts[0]);
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
