/* Words that tasks are made of: ordinary English, which begins with a consonant but for places; no
 * noun is part of another. */
#pragma once

#include <stdint.h>

#include "lib/base/rng.h"

enum { LEXICON_NAME_BYTES = 40 };

uint32_t lexicon_nouns(void); /* how many */
const char *lexicon_noun(uint32_t i);
const char *lexicon_adjective(ckvc_rng *rng);
const char *lexicon_person(ckvc_rng *rng); /* "baker" */
const char *lexicon_place(ckvc_rng *rng);  /* "harbour" */

/* n different numbers below `of` (n <= of), in the order in which they are drawn. */
void lexicon_draw(ckvc_rng *rng, uint32_t of, uint32_t *out, uint32_t n);

/* Into out[LEXICON_NAME_BYTES]: "bronze-barrel", number i of lexicon_names(); seven digits that do
 * not begin with 0; a UUID of version 4 (RFC 9562). */
uint32_t lexicon_names(void);
void lexicon_name(uint32_t i, char out[LEXICON_NAME_BYTES]);
void lexicon_number(ckvc_rng *rng, char out[LEXICON_NAME_BYTES]);
void lexicon_uuid(ckvc_rng *rng, char out[LEXICON_NAME_BYTES]);
