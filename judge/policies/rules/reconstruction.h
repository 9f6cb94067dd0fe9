/* KVzip's reconstruction. The prompt is fed once more after an instruction, on its own full cache,
 * chunk by chunk; the score of each chunk's positions is what they get from their own repetition
 * (Kim et al. 2025; kvpress, kvzip_press.py: prepare, score_kvzip).
 *
 * For T <= 2,048 the instruction and the whole prompt are fed. Longer prompts are cut into chunks
 * of 2,048 positions. The first follows the instruction; each later one follows another text that
 * ends in the last 8 tokens before the chunk. A row's softmax is over the chunk, the fed tokens
 * and, except for the first chunk, the prompt's first 4 positions. So neither the tokens that are
 * fed at a time nor the keys that are gathered for a layer grow with T. */
#pragma once

#include "lib/model/model.h"

#define RECONSTRUCTION_TEXT  "\n\nRepeat the previous context exactly."
#define RECONSTRUCTION_LATER "\n\nRepeat the part of the previous context exactly, starting with"

/* The tokens of the two texts. */
typedef struct reconstruction_texts {
    const int32_t *first, *later; /* [n_first], [n_later]; borrowed */
    uint32_t n_first, n_later;
    uint32_t chunk; /* positions of a chunk; 0: 2,048 */
} reconstruction_texts;

/* The longest prompt that a model with this context can repeat in this way; below 1 where it can
 * repeat none. */
int64_t reconstruction_longest(const reconstruction_texts *x, int64_t context);
/* The most tokens that are fed at a time after a prompt of n_tokens (reconstruction_fed), and the
 * tokens that are fed in all (reconstruction_tokens). */
uint32_t reconstruction_fed(const reconstruction_texts *x, uint32_t n_tokens);
uint32_t reconstruction_tokens(const reconstruction_texts *x, uint32_t n_tokens);
/* session_limits.max_counted for prompts of up to max_tokens. */
uint32_t reconstruction_among(const reconstruction_texts *x, uint32_t max_tokens);

typedef struct reconstruction {
    reconstruction_texts texts;
    size_t n_units;      /* L·G */
    int32_t *fed;        /* [reconstruction_fed of the longest prompt] */
    uint32_t *positions; /* [reconstruction_among] */
} reconstruction;

/* Scores the prompt that the session has prefilled, tokens [T]. s [L][G][T] receives the largest
 * attention that a position gets from the rows of its chunk's repetition, those of the instruction
 * included, over the query heads of the group. scratch is [L][G][T]. */
ckvc_status reconstruct(const reconstruction *r, session *on, const int32_t *tokens,
                        uint32_t n_tokens, double *s, double *scratch,
                        ckvc_err *err) CKVC_MUST_CHECK;
