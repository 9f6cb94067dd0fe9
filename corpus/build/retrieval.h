/* Long-range retrieval prompts of our own: facts (a key and its value) stated in real text, as one
 * list or scattered, and asked for at the end. The prompt ends inside the first question; the
 * continuation is its answer, followed by more questions and answers. Every value that the
 * continuation asks for stands in the prompt exactly once beside its key. */
#pragma once

#include "corpus/texts.h"
#include "lib/base/json.h"
#include "lib/base/hash.h"

enum {
    RETRIEVAL_MAX_FACTS = 32,
    RETRIEVAL_MIN_WORDS = 64,
    RETRIEVAL_MAX_WORDS = 4096,
    RETRIEVAL_WORD_BYTES = 40 /* nine characters, and a NUL */
};

/* Keys and values are made of words of the corpus, so that they are ordinary to the model. */
typedef struct vocabulary {
    char (*words)[RETRIEVAL_WORD_BYTES];
    size_t n;
    hash_set seen; /* of the words */
} vocabulary;
/* Adds the new words of text; stops at RETRIEVAL_MAX_WORDS. Words are 4 to 9 lower-case letters of
 * ASCII; with any_script, of any script that puts spaces between words, and the two characters that
 * a clause begins with (four of Thai, Lao, Myanmar, Khmer) in those that do not. */
void vocabulary_add(vocabulary *v, const char *text, size_t n, bool any_script);
void vocabulary_fini(vocabulary *v);

typedef struct retrieval_plan { /* everything that is drawn; rendering it draws nothing */
    int phrasing;
    bool scattered; /* else: one list, somewhere in the first half */
    int n_facts;
    char key[RETRIEVAL_MAX_FACTS][RETRIEVAL_WORD_BYTES];
    char value[RETRIEVAL_MAX_FACTS][2 * RETRIEVAL_WORD_BYTES];
    double place[RETRIEVAL_MAX_FACTS]; /* ascending, share of the filler before fact i */
    int asked[RETRIEVAL_MAX_FACTS];    /* a permutation: the order of the questions */
} retrieval_plan;

/* words must hold RETRIEVAL_MIN_WORDS; n_facts is 1 ... RETRIEVAL_MAX_FACTS. */
void retrieval_draw(retrieval_plan *plan, ckvc_rng *rng, const vocabulary *words, int n_facts);
/* The prompt with the first n bytes of filler (n at a cut) / the answer to the first question, and
 * the next n_questions-1 questions with theirs; in place of what is in out. */
void retrieval_prompt(const retrieval_plan *plan, const char *filler, size_t n, ckvc_buffer *out);
void retrieval_answers(const retrieval_plan *plan, int n_questions, ckvc_buffer *out);
