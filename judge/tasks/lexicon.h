/* The words that tasks are made of. They are ordinary English and, except for places, begin with a
 * consonant; no noun is part of another. */
#pragma once

#include <stdint.h>

#include "lib/base/hash.h"
#include "lib/base/json.h"
#include "lib/base/memory.h"

enum { LEXICON_NAME_BYTES = 40 };

uint32_t lexicon_nouns(void);         /* number of nouns */
const char *lexicon_noun(uint32_t i); /* i below lexicon_nouns() */

/* Draws n different numbers below `of` (n <= of) into out, in random order. */
void lexicon_draw(ckvc_rng *rng, uint32_t of, uint32_t *out, uint32_t n);

/* All three write a NUL-terminated text to out. lexicon_name writes a name such as "bronze-barrel",
 * which is number i of lexicon_names(). lexicon_number draws seven digits that do not begin with 0,
 * and lexicon_uuid draws a UUID of version 4 (RFC 9562). */
uint32_t lexicon_names(void);
void lexicon_name(uint32_t i, char out[LEXICON_NAME_BYTES]);
void lexicon_number(ckvc_rng *rng, char out[LEXICON_NAME_BYTES]);
void lexicon_uuid(ckvc_rng *rng, char out[LEXICON_NAME_BYTES]);

/* The text that needles lie in: sentences made up from a seed, or those of a text that the user
 * gives. */
typedef struct haystack { /* all zero: made-up sentences */
    char *text;
    size_t *ends; /* of each sentence, without the white space after it */
    size_t n;
} haystack;

/* Reads a text file of at most 256 MiB into *out, which the caller releases with haystack_fini. A
 * sentence ends at '.', '!' or '?' before white space, at an empty line, or at the first space
 * after 400 bytes. The status is CKVC_E_DATA where the file is not UTF-8 or has no sentence, and
 * CKVC_E_NOINPUT where there is none. */
ckvc_status haystack_read(const char *path, haystack *out, ckvc_err *err) CKVC_MUST_CHECK;
void haystack_fini(haystack *h);

/* A walk over the sentences of `hay`, which is borrowed, in their order. In a file it begins at a
 * random place, and goes on from the file's beginning after its end. */
typedef struct haystack_walk {
    const haystack *hay;
    size_t next;
} haystack_walk;
haystack_walk haystack_begin(const haystack *hay, ckvc_rng *rng);
/* Appends the next sentence, with single spaces in place of its white space. */
void haystack_sentence(haystack_walk *walk, ckvc_rng *rng, ckvc_buffer *out);

/* The one line that contexts of RULER's kind "noise" repeat. */
#define HAYSTACK_REPEATED                                                                          \
    "The tide comes in. The tide goes out. Gulls sit on the wall. Nothing else happens here."
