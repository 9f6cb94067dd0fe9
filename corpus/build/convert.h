/* Markup to plain text, good enough to be prompts: not a renderer. Input is UTF-8; output is UTF-8,
 * lines ended by LF, no control characters but LF and tab, no trailing blanks, at most one blank
 * line in a row. In a text that is mostly ASCII typographic quotes, dashes and spaces are folded to
 * it; in others they stay: they are that language's own. */
#pragma once

#include "lib/base/buffer.h"

typedef enum text_kind {
    TEXT_PLAIN,
    TEXT_HTML,
    TEXT_MAN,
    TEXT_INFO,
    TEXT_RST,
    TEXT_KIND_COUNT
} text_kind;

/* By the file's name (without .gz) and its first bytes. */
text_kind text_kind_guess(const char *name, const char *text, size_t n);
/* Appends the plain text of a document to out, which is empty. Whether it is mostly ASCII. */
bool text_convert(text_kind kind, const char *text, size_t n, ckvc_buffer *out);
