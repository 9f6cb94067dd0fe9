/* Shared spans are places where a text has N words in a row that some text of a fixed collection
 * has, too. The search is exact: a hash finds the place, and the words are then compared in full.
 *
 * The collection is indexed once (about 40 bytes a word). The texts that are compared with it come
 * one at a time and leave nothing behind. */
#pragma once

#include "corpus/leaks/word_list.h"

/* The number of words in a row that count as shared (Brown et al. 2020, "Language Models are
 * Few-Shot Learners", appendix C). */
enum { LEAK_GRAM = 13 };

typedef struct leak_text { /* the words [first, first+count) of the collection's list */
    uint32_t first, count;
    uint32_t owner; /* the prompt that it belongs to */
} leak_text;

typedef struct leak_index leak_index;

typedef struct leak_span {
    /* where the span begins in the text that was looked at, and its length, in words */
    size_t at, n;
    uint32_t place; /* where these words stand in the collection's list */
    /* The prompt that these words belong to. If several have them, it is the one with the longest
     * span, and of equally long ones the first. */
    uint32_t owner;
} leak_span;

/* Indexes the collection. words and texts (ascending, not overlapping) are borrowed and must stay
 * unchanged while the index is in use. */
leak_index *leak_index_create(const word_list *words, const leak_text *texts, size_t n_texts);
void leak_index_free(leak_index *x);
/* Finds the next span of `text` from word *from on; false when there is none. A span is as long as
 * the collection's text allows. *from moves to the first N-gram that the span does not cover, where
 * the next search goes on. grams are the words_gram_hashes of the text. The N-grams that were found
 * are marked for leak_touched. */
bool leak_next(leak_index *x, const word_list *text, const uint64_t *grams, size_t *from,
               leak_span *span);
/* Sets touched [n_owners] (the caller's, zeroed) for each owner of an N-gram that was found in any
 * text so far. */
void leak_touched(const leak_index *x, bool *touched);
void leak_forget(leak_index *x); /* forgets what was found so far */

/* Near-duplicates are texts whose sets of shingles (NEAR_SHINGLE words in a row) have a Jaccard
 * index |A & B| / |A | B| of at least a threshold.
 *
 * The index is computed exactly (of the shingles' 64-bit hashes), not estimated. Only texts that
 * can reach the threshold are compared in full: two such sets must meet among the |X| - ceil(t|X|)
 * + 1 rarest shingles of each (Chaudhuri, Ganti and Kaushik 2006; Xiao et al. 2008, "PPJoin"),
 * where rare means rare in the collection. A text from outside that has more unknown shingles than
 * that number is done with after one look-up a word. */
enum { NEAR_SHINGLE = 5 }; /* words */

typedef struct near_index near_index;

typedef struct near_match {
    size_t text; /* the text's number in the collection */
    double jaccard;
} near_match;

/* The threshold is above 0 and at most 1. */
near_index *near_index_create(double threshold);
void near_index_free(near_index *x);
/* Adds the next text of the collection, the words [first, first+count) of w. A text that is shorter
 * than a shingle is never near to another. */
ckvc_status near_index_add(near_index *x, const word_list *w, size_t first, size_t count,
                           ckvc_err *err) CKVC_MUST_CHECK;
/* Must be called after the last text was added and before the first search. */
void near_index_build(near_index *x);
/* Whether a text of the collection is near to w. If several are, *match is the one that is met
 * first, which is the same every time. */
bool near_find(near_index *x, const word_list *w, near_match *match);
/* The same for text i of the collection, among the texts before it. */
bool near_find_earlier(near_index *x, size_t i, near_match *match);
