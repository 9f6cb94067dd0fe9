/* UTF-8 checks over bytes with explicit lengths (NUL is an ordinary character). Pure functions. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

/* Bytes of the character that begins at text (1 ... 4), or 0 when no well-formed one does; then
 * *bad (may be NULL) is the length of the ill-formed run that one U+FFFD stands for ("maximal
 * subpart", Unicode 3.9, as Python and WHATWG decode). n >= 1. */
size_t ckvc_utf8_step(const char *text, size_t n, size_t *bad);
/* Offset of the first byte that is not well-formed UTF-8; n when all is well. */
size_t ckvc_utf8_check(const char *text, size_t n);
/* Well-formed and of one line: no control characters, so that it can be printed anywhere. */
bool ckvc_utf8_is_line(const char *text, size_t n);
/* Makes a text with something from outside in it fit for a terminal, in place: controls (U+0000 to
 * 001F, 007F to 009F), the marks that turn writing round (U+061C, 200E, 200F, 202A to 202E, 2066 to
 * 2069), the two line ends U+2028 and 2029, and bytes that are not UTF-8 become '?', white space
 * ' '. The bytes of `kept` stay. */
void ckvc_utf8_tame(char *text, const char *kept);
/* A copy with every ill-formed run replaced by U+FFFD, NUL behind *out_size. The caller frees. */
char *ckvc_utf8_replace(const char *text, size_t n, size_t *out_size);
/* Shortens n so that no character is cut at the end of a well-formed text. */
size_t ckvc_utf8_floor(const char *text, size_t n);

/* The known word that a mistyped one is nearest to by edit distance, or that it is the beginning
 * of: nearest_try for each. */
typedef struct nearest {
    const char *word;
    char found[64]; /* "": none is near */
    size_t distance;
} nearest;
void nearest_try(nearest *n, const char *candidate);
/* What was found between two texts, or ""; the caller frees. */
char *nearest_hint(const nearest *n, const char *before, const char *after);
