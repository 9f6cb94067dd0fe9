/* A set of strings, which is searched for the longest one that begins at a place: added tokens, and
 * pieces that stay whole. Private to lib/token. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct trie { /* begin with {0}; release with trie_fini */
    struct trie_edge *edges;
    uint64_t key;
    int shift;
    size_t mask;
    int32_t *found; /* [n_nodes] the index of the string that ends at a node, or -1 */
    size_t found_capacity;
    uint32_t n_nodes;
    bool first[256]; /* whether some string begins with this byte */
} trie;

void trie_fini(trie *t);
/* Adds a string of n >= 1 bytes with its index. Returns the index that the string had already, or
 * -1 when it is new. */
int32_t trie_add(trie *t, const char *text, size_t n, int32_t index);
/* Does trie_longest's work where some string begins with the text's first byte. */
size_t trie_walk(const trie *t, const char *text, size_t n, int32_t *index, uint64_t *steps);
/* Returns the length of the longest string at text (n >= 1), or 0 when none begins there. This is
 * MatchKind::LeftmostLongest of tokenizers' added_vocabulary.rs, and what SentencePiece's
 * PrefixMatcher (src/normalizer.cc) does for user-defined symbols. *steps grows by the bytes that
 * were looked at. Strings that nearly match at many places cost their length at each of them, so
 * the caller must decide how many steps are too many. */
static inline size_t trie_longest(const trie *t, const char *text, size_t n, int32_t *index,
                                  uint64_t *steps) {
    return t->first[(uint8_t)*text] ? trie_walk(t, text, n, index, steps) : 0;
}
