/* The known word that a mistyped one is nearest to by edit distance, or that it is the beginning
 * of: nearest_try for each. */
#pragma once

#include <stddef.h>

typedef struct nearest {
    const char *word;
    char found[64]; /* "": none is near */
    size_t distance;
} nearest;
void nearest_try(nearest *n, const char *candidate);
/* What was found between two texts, or ""; the caller frees. */
char *nearest_hint(const nearest *n, const char *before, const char *after);
