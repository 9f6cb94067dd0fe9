/* Near-duplicates: texts whose sets of SHINGLE-word shingles have a Jaccard index |A & B| / |A | B|
 * of at least a threshold.
 *
 * Exact (shingles by their 64-bit hashes), not estimated. Only texts that can reach the threshold
 * are compared in full: two such sets must meet among the |X| - ceil(t|X|) + 1 rarest shingles of
 * each (Chaudhuri, Ganti and Kaushik 2006; Xiao et al. 2008, "PPJoin"), rare being counted in the
 * collection; a foreign text with more unknown shingles than that is done after one look-up a word.
 */
#pragma once

#include "corpus/leaks/word_list.h"

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
