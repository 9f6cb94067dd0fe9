/* Texts as prompts: UTF-8, lines ended by LF, no control characters but LF and tab, no trailing
 * blanks, at most one blank line in a row. In a text that is mostly ASCII typographic quotes,
 * dashes and spaces are folded to it; in others they stay: they are that language's own. */
#pragma once

#include "lib/base/json.h"

/* Whether a file is HTML, a man page or info, by its first bytes [n, and a NUL behind them]:
 * scripts/plain_text.py makes text of these. */
bool text_is_markup(const char *text, size_t n);
/* Appends a document to out, which is empty. rst: less the directives, underlines and backticks of
 * reStructuredText. Whether it is mostly ASCII. */
bool text_convert(bool rst, const char *text, size_t n, ckvc_buffer *out);
