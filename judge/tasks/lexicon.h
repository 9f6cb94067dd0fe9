/* Words that tasks are made of: ordinary English, which begins with a consonant but for places; no
 * noun is part of another. */
#pragma once

#include <stdint.h>

#include "lib/base/hash.h"
#include "lib/base/json.h"
#include "lib/base/memory.h"

enum { LEXICON_NAME_BYTES = 40 };

uint32_t lexicon_nouns(void); /* how many */
const char *lexicon_noun(uint32_t i);

/* n different numbers below `of` (n <= of), in the order in which they are drawn. */
void lexicon_draw(ckvc_rng *rng, uint32_t of, uint32_t *out, uint32_t n);

/* Into out[LEXICON_NAME_BYTES]: "bronze-barrel", number i of lexicon_names(); seven digits that do
 * not begin with 0; a UUID of version 4 (RFC 9562). */
uint32_t lexicon_names(void);
void lexicon_name(uint32_t i, char out[LEXICON_NAME_BYTES]);
void lexicon_number(ckvc_rng *rng, char out[LEXICON_NAME_BYTES]);
void lexicon_uuid(ckvc_rng *rng, char out[LEXICON_NAME_BYTES]);

/* What needles lie in: sentences made up from a seed, or those of a text of the user's. */
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
