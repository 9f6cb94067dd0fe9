/* KVzip's reconstruction: the prompt once more behind an instruction, on its own full cache, chunk
 * by chunk, and what each chunk's positions get from its own repetition (Kim et al. 2025; kvpress,
 * kvzip_press.py: prepare, score_kvzip).
 *
 * T <= 2,048: instruction and prompt. Beyond: chunks of 2,048 positions, the first behind the
 * instruction, the others behind another that ends in the last 8 tokens before the chunk; a row's
 * softmax is over the chunk, the fed tokens and, but for the first chunk, the prompt's first 4
 * positions. So what is fed at a time, and what a layer's keys are gathered into, does not grow
 * with T. */
#pragma once

#include "lib/model/model.h"

#define RECONSTRUCTION_TEXT  "\n\nRepeat the previous context exactly."
#define RECONSTRUCTION_LATER "\n\nRepeat the part of the previous context exactly, starting with"

/* Tokens of the two texts. */
typedef struct reconstruction_texts {
    const int32_t *first, *later; /* [n_first], [n_later]; borrowed */
    uint32_t n_first, n_later;
    uint32_t chunk; /* positions; 0: 2,048 */
} reconstruction_texts;

/* The longest prompt that a model with this context can repeat so; less than 1 where it is none. */
int64_t reconstruction_longest(const reconstruction_texts *x, int64_t context);
/* Tokens that are fed at a time behind a prompt of n_tokens, at most, and in all. */
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

/* The prompt that the session has prefilled, tokens [T] -> s [L][G][T]: the largest attention that
 * a position gets from the rows of its chunk's repetition, the instruction's too, over the group's
 * query heads. scratch [L][G][T]. */
ckvc_status reconstruct(const reconstruction *r, session *on, const int32_t *tokens,
                        uint32_t n_tokens, double *s, double *scratch,
                        ckvc_err *err) CKVC_MUST_CHECK;
