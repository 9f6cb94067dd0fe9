/* A set of strings, searched for the longest that begins at a place: added tokens, and pieces that
 * stay whole. Private to lib/token. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct trie { /* zero-initialise, trie_fini */
    struct trie_edge *edges;
    uint64_t key;
    int shift;
    size_t mask;
    int32_t *found; /* [n_nodes] index given with the string that ends here, or -1 */
    size_t found_capacity;
    uint32_t n_nodes;
    bool first[256]; /* some string begins with this byte */
} trie;

void trie_fini(trie *t);
/* The index that the string had already, or -1 when it is new. n >= 1. */
int32_t trie_add(trie *t, const char *text, size_t n, int32_t index);
/* What trie_longest does where some string begins with the text's first byte. */
size_t trie_walk(const trie *t, const char *text, size_t n, int32_t *index, uint64_t *steps);
/* Length of the longest string at text (n >= 1), 0 when none begins there:
 * MatchKind::LeftmostLongest of tokenizers' added_vocabulary.rs, and what SentencePiece's
 * PrefixMatcher (src/normalizer.cc) does for user-defined symbols. *steps grows by the bytes that
 * were looked at: strings that nearly fit at many places cost their length at each of them, and it
 * is the caller who knows how much is too much. */
static inline size_t trie_longest(const trie *t, const char *text, size_t n, int32_t *index,
                                  uint64_t *steps) {
    return t->first[(uint8_t)*text] ? trie_walk(t, text, n, index, steps) : 0;
}
