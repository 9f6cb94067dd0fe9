/* Strings, found by their bytes. The edges of all nodes are in one hash table, as most nodes have
 * one child. */
#include "lib/token/trie.h"

#include <stdlib.h>

#include "lib/base/hash.h"
#include "lib/base/memory.h"

struct trie_edge {
    uint64_t key;  /* node << 8 | byte; 0 means a free slot (the root is node 1) */
    uint32_t node; /* where it leads */
};

static struct trie_edge *trie_slot(const trie *t, uint64_t key) {
    for (size_t at = (size_t)(key * t->key >> t->shift);; at = (at + 1) & t->mask) {
        if (t->edges[at].key == key || t->edges[at].key == 0) { return &t->edges[at]; }
    }
}

static uint64_t key_of(uint32_t node, char byte) { return (uint64_t)node << 8 | (uint8_t)byte; }

/* Makes room for n more nodes. The table of edges is kept at most half full. */
static void reserve(trie *t, size_t n) {
    const size_t old = t->edges ? t->mask + 1 : 0;
    size_t capacity = old ? old : 16;
    if (!old) {
        t->key = ckvc_hash_key();
        t->shift = 60;
        t->n_nodes = 2; /* 0 is unused */
    }
    CKVC_GROW(t->found, t->found_capacity, t->n_nodes + n);
    t->found[1] = old ? t->found[1] : -1;
    for (; capacity < 2 * (t->n_nodes + n); capacity *= 2) { t->shift--; }
    if (capacity == old) { return; }
    struct trie_edge *edges = t->edges;
    t->edges = ckvc_calloc(capacity, sizeof *t->edges);
    t->mask = capacity - 1;
    for (size_t i = 0; i < old; i++) {
        if (edges[i].key) { *trie_slot(t, edges[i].key) = edges[i]; }
    }
    free(edges);
}

int32_t trie_add(trie *t, const char *text, size_t n, int32_t index) {
    uint32_t node = 1;
    reserve(t, n);
    t->first[(uint8_t)text[0]] = true;
    for (size_t i = 0; i < n; i++) {
        struct trie_edge *edge = trie_slot(t, key_of(node, text[i]));
        if (edge->key == 0) {
            *edge = (struct trie_edge){key_of(node, text[i]), t->n_nodes};
            t->found[t->n_nodes++] = -1;
        }
        node = edge->node;
    }
    int32_t old = t->found[node];
    if (old < 0) { t->found[node] = index; }
    return old;
}

size_t trie_walk(const trie *t, const char *text, size_t n, int32_t *index, uint64_t *steps) {
    size_t best = 0;
    uint32_t node = 1;
    for (size_t i = 0; i < n; i++) {
        const struct trie_edge *edge = trie_slot(t, key_of(node, text[i]));
        ++*steps;
        if (edge->key == 0) { break; }
        node = edge->node;
        if (t->found[node] >= 0) {
            best = i + 1;
            *index = t->found[node];
        }
    }
    return best;
}

void trie_fini(trie *t) {
    CKVC_FREE(t->edges, t->found);
    *t = (trie){0};
}
