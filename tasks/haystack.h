/* What needles lie in: sentences made up from a seed, or those of a text of the user's. */
#pragma once

#include "lib/base/buffer.h"
#include "lib/base/memory.h"
#include "lib/base/rng.h"

typedef struct haystack { /* of made-up sentences: all zero */
    char *text;
    size_t *ends; /* of each sentence, its white space behind not included */
    size_t n;
} haystack;

/* Reads a text file of at most 256 MiB: CKVC_E_DATA where it is no UTF-8 or has no sentence. A
 * sentence ends at '.', '!', '?' before white space, at an empty line, or at the first space behind
 * 400 bytes. */
ckvc_status haystack_read(const char *path, haystack *out, ckvc_err *err) CKVC_MUST_CHECK;
void haystack_fini(haystack *h);

/* Sentences one behind the other; of a file, from a place drawn, and from its beginning again. */
typedef struct haystack_walk {
    const haystack *hay;
    size_t next;
} haystack_walk;
haystack_walk haystack_begin(const haystack *hay, ckvc_rng *rng);
/* Appends the next sentence, its white space made single spaces. */
void haystack_sentence(haystack_walk *walk, ckvc_rng *rng, ckvc_buffer *out);

/* The one line that a context of RULER's kind "noise" repeats. */
#define HAYSTACK_REPEATED                                                                          \
    "The tide comes in. The tide goes out. Gulls sit on the wall. Nothing else happens here."
