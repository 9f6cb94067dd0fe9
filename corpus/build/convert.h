/* Cleans texts for use in prompts. A clean text is UTF-8; its lines end with LF; it has no control
 * characters but LF and tab, no trailing blanks, and at most one blank line in a row. In a text
 * that is mostly ASCII, typographic quotes, dashes and spaces become ASCII. In other texts they
 * stay, because they belong to the text's language. */
#pragma once

#include "lib/base/json.h"

/* Whether a file is HTML, a man page or info, judged by its first bytes [n, and a NUL behind them].
 * scripts/plain_text.py makes text of these. */
bool text_is_markup(const char *text, size_t n);
/* Appends the cleaned text [n bytes] to out, which must be empty. With rst, the directives,
 * underlines and backticks of reStructuredText are left out. Returns whether the text is mostly
 * ASCII. */
bool text_convert(bool rst, const char *text, size_t n, ckvc_buffer *out);
