/* Long-range retrieval prompts of our own: facts (a key and its value) stated in real text, as one
 * list or scattered, and asked for at the end. The prompt ends inside the first question; the
 * continuation is its answer, followed by more questions and answers. Every value that the
 * continuation asks for stands in the prompt exactly once beside its key. */
#ifndef CKVC_CORPUS_RETRIEVAL_H
#define CKVC_CORPUS_RETRIEVAL_H

#include <stdbool.h>
#include <stddef.h>

#include "lib/base/buffer.h"
#include "lib/base/rng.h"
#include "lib/base/status.h"

enum { RETRIEVAL_MAX_FACTS = 32, RETRIEVAL_MIN_WORDS = 64, RETRIEVAL_MAX_WORDS = 4096 };

typedef struct word_list { /* keys and values are made of words of the corpus, so that they are
                              ordinary to the model */
    char (*words)[12];
    size_t n;
} word_list;
/* Adds the new lower-case words of 4 to 9 letters; stops at RETRIEVAL_MAX_WORDS. */
ckvc_status word_list_add(word_list *list, const char *text, size_t n,
                          ckvc_err *err) CKVC_MUST_CHECK;
void word_list_fini(word_list *list);

typedef struct retrieval_plan { /* everything that is drawn; rendering it draws nothing */
    int phrasing;
    bool scattered; /* else: one list, somewhere in the first half */
    int n_facts;
    char key[RETRIEVAL_MAX_FACTS][24], value[RETRIEVAL_MAX_FACTS][24];
    double place[RETRIEVAL_MAX_FACTS]; /* ascending, share of the filler before fact i */
    int asked[RETRIEVAL_MAX_FACTS];    /* a permutation: the order of the questions */
} retrieval_plan;

/* words must hold RETRIEVAL_MIN_WORDS; n_facts is 1 ... RETRIEVAL_MAX_FACTS. */
void retrieval_draw(retrieval_plan *plan, ckvc_rng *rng, const word_list *words, int n_facts);
/* The prompt with the first n bytes of filler (n at a white space or the end). */
void retrieval_prompt(const retrieval_plan *plan, const char *filler, size_t n, ckvc_buffer *out);
/* The answer to the first question, and the next n_questions-1 questions with theirs. */
void retrieval_answers(const retrieval_plan *plan, int n_questions, ckvc_buffer *out);

#endif
