/* Shared spans: where a text has N words in a row that some text of a fixed collection has, too.
 * Exact: a hash finds the place, the words are compared in full.
 *
 * The collection is indexed once (about 40 bytes a word); texts to hold against it come one at a
 * time and leave nothing behind. */
#pragma once

#include "corpus/leaks/word_list.h"

/* Words in a row that count as shared (Brown et al. 2020, "Language Models are Few-Shot Learners",
 * appendix C). */
enum { LEAK_GRAM = 13 };

typedef struct leak_text { /* words [first, first+count) of the collection's list */
    uint32_t first, count;
    uint32_t owner; /* prompt */
} leak_text;

typedef struct leak_index leak_index;

typedef struct leak_span {
    size_t at, n;   /* words of the text that was looked at */
    uint32_t place; /* where they stand in the collection's words */
    /* Whose they are: of several the one with the longest span, of equal ones the first. */
    uint32_t owner;
} leak_span;

/* words and texts (ascending, not overlapping) are borrowed and stay unchanged. */
leak_index *leak_index_create(const word_list *words, const leak_text *texts, size_t n_texts);
void leak_index_free(leak_index *x);
/* The next span of `text` from word *from on; false when there is none. A span is as long as the
 * collection's place allows; the search goes on with the first N-gram that it does not cover.
 * grams: words_gram_hashes of the text. Marks the N-grams that were found. */
bool leak_next(leak_index *x, const word_list *text, const uint64_t *grams, size_t *from,
               leak_span *span);
/* touched [n_owners] (caller's, zeroed): set for owners of an N-gram found in any text so far. */
void leak_touched(const leak_index *x, bool *touched);
void leak_forget(leak_index *x); /* what was found so far */

/* Near-duplicates: texts whose sets of SHINGLE-word shingles have a Jaccard index |A & B| / |A | B|
 * of at least a threshold.
 *
 * Exact (shingles by their 64-bit hashes), not estimated. Only texts that can reach the threshold
 * are compared in full: two such sets must meet among the |X| - ceil(t|X|) + 1 rarest shingles of
 * each (Chaudhuri, Ganti and Kaushik 2006; Xiao et al. 2008, "PPJoin"), rare being counted in the
 * collection; a foreign text with more unknown shingles than that is done after one look-up a word.
 */
enum { NEAR_SHINGLE = 5 }; /* words */

typedef struct near_index near_index;

typedef struct near_match {
    size_t text; /* number in the collection */
    double jaccard;
} near_match;

/* threshold: above 0, at most 1. */
near_index *near_index_create(double threshold);
void near_index_free(near_index *x);
/* The next text of the collection: words [first, first+count) of w; below a shingle it is never
 * near. */
ckvc_status near_index_add(near_index *x, const word_list *w, size_t first, size_t count,
                           ckvc_err *err) CKVC_MUST_CHECK;
/* After the last text, before the first search. */
void near_index_build(near_index *x);
/* Whether a text of the collection is near to w; of several the first met, the same every time. */
bool near_find(near_index *x, const word_list *w, near_match *match);
/* The same for text i of the collection among those before it. */
bool near_find_earlier(near_index *x, size_t i, near_match *match);
