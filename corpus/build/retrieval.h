/* Retrieval prompts of our own, which test whether far-off facts are kept. Facts (a key and its
 * value each) are stated in real text, as one list or scattered, and asked for at the end. The
 * prompt ends inside the first question. The continuation is its answer, followed by more questions
 * and answers. Where questions are unseen, the prompt ends before the first one, and the
 * continuation begins with it. Every value that the continuation asks for stands in the prompt
 * exactly once, beside its key. */
#pragma once

#include "corpus/texts.h"
#include "lib/base/json.h"
#include "lib/base/hash.h"

enum {
    RETRIEVAL_MAX_FACTS = 32,
    RETRIEVAL_MIN_WORDS = 64,
    RETRIEVAL_MAX_WORDS = 4096,
    RETRIEVAL_WORD_BYTES = 40 /* room for nine characters and a NUL */
};

/* Keys and values are made of words of the corpus, so that they are ordinary to the model. */
typedef struct vocabulary {
    char (*words)[RETRIEVAL_WORD_BYTES];
    size_t n;
    hash_set seen; /* the hashes of the words */
} vocabulary;
/* Adds those words of text that are new, and stops at RETRIEVAL_MAX_WORDS. A word is 4 to 9
 * lower-case ASCII letters. With any_script, the letters may be of any script that puts spaces
 * between words; in scripts without spaces a word is the first two characters of a clause (the
 * first four in Thai, Lao, Myanmar and Khmer). */
void vocabulary_add(vocabulary *v, const char *text, size_t n, bool any_script);
void vocabulary_fini(vocabulary *v);

typedef struct retrieval_plan { /* everything that is drawn at random; rendering draws nothing */
    int phrasing;
    bool scattered; /* true: facts are spread; false: one list, somewhere in the first half */
    bool unseen;    /* the first question stands in the continuation, not in the prompt */
    int n_facts;
    char key[RETRIEVAL_MAX_FACTS][RETRIEVAL_WORD_BYTES];
    char value[RETRIEVAL_MAX_FACTS][2 * RETRIEVAL_WORD_BYTES];
    /* ascending; which share of the filler stands before fact i */
    double place[RETRIEVAL_MAX_FACTS];
    int asked[RETRIEVAL_MAX_FACTS]; /* the order of the questions, a permutation of the facts */
} retrieval_plan;

/* Draws a plan whose questions are seen. words must hold at least RETRIEVAL_MIN_WORDS, and n_facts
 * is 1 ... RETRIEVAL_MAX_FACTS. */
void retrieval_draw(retrieval_plan *plan, ckvc_rng *rng, const vocabulary *words, int n_facts);
/* Both replace what is in out. The first writes the prompt, with the first n bytes of filler (n
 * must be at a cut). The second writes the answer to the first question, behind the question itself
 * where it is unseen, then the next n_questions-1 questions with their answers. */
void retrieval_prompt(const retrieval_plan *plan, const char *filler, size_t n, ckvc_buffer *out);
void retrieval_answers(const retrieval_plan *plan, int n_questions, ckvc_buffer *out);
