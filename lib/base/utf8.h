/* UTF-8 checks over bytes with explicit lengths, in which a NUL is an ordinary character. All
 * functions are pure. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "lib/base/utf8_step.h"

/* Returns the offset of the first byte that is not well-formed UTF-8, or n when there is none. */
size_t ckvc_utf8_check(const char *text, size_t n);
/* Whether the text is well-formed UTF-8 without ASCII control characters (bytes below 0x20, and
 * 0x7F), so that it is a single line. Other characters that a terminal acts on, such as U+009B and
 * marks of writing direction, may remain: whoever prints the text replaces them
 * (ckvc_utf8_tame). */
bool ckvc_utf8_is_line(const char *text, size_t n);
/* Returns a copy in which U+FFFD stands for every ill-formed run, with a NUL behind its *out_size
 * bytes. The caller frees it. */
char *ckvc_utf8_replace(const char *text, size_t n, size_t *out_size);
/* Returns the largest length up to n at which a well-formed text of n bytes or more can be cut
 * without cutting a character in two. */
size_t ckvc_utf8_floor(const char *text, size_t n);

/* The known word that is nearest to a mistyped one by edit distance, or that the mistyped word is
 * the beginning of. Call nearest_try for each known word. */
typedef struct nearest {
    const char *word;
    char found[64]; /* "": none is near */
    size_t distance;
} nearest;
void nearest_try(nearest *n, const char *candidate);
/* The word that was found, between the texts `before` and `after`, or "" if none was found. The
 * caller frees it. */
char *nearest_hint(const nearest *n, const char *before, const char *after);
