/* UTF-8 checks over bytes with explicit lengths (NUL is an ordinary character). Pure functions. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "lib/base/utf8_step.h"

/* Offset of the first byte that is not well-formed UTF-8; n when all is well. */
size_t ckvc_utf8_check(const char *text, size_t n);
/* Well-formed and of one line: no control characters, so that it can be printed anywhere. */
bool ckvc_utf8_is_line(const char *text, size_t n);
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
