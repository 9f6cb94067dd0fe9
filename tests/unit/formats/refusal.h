/* Checks what a step that fails says, and takes JSON as a test writes it. */
#pragma once

#include "tests/unit/unit.h"

/* Requires that a step refuses bad data, in a line that begins with the file's path. */
#define REFUSES(step, path, word)                                                                  \
    do {                                                                                           \
        SAYS(step, CKVC_E_DATA, word);                                                             \
        assert_ptr_equal(strstr(err.text, path), err.text);                                        \
    } while (0)

/* Returns `text` with ' for ". It is valid as long as the program runs. */
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

/* Returns a text in which the first `from` is replaced. */
static inline const char *bent(const char *good, const char *from, const char *to) {
    static char text[4096];
    const char *at = strstr(good, from);
    assert_non_null(at);
    snprintf(text, sizeof text, "%.*s%s%s", (int)(at - good), good, to, at + strlen(from));
    return text;
}
