/* Strings by their bytes: edges of all nodes in one hash table, as most nodes have one child. */
#include "lib/token/trie.h"

#include <stdlib.h>

#include "lib/base/hash.h"
#include "lib/base/memory.h"

struct trie_edge {
    uint64_t key;  /* node << 8 | byte; 0 stands for a free slot (the root is node 1) */
    uint32_t node; /* where it leads */
};

static struct trie_edge *trie_slot(const trie *t, uint32_t node, uint8_t byte) {
    uint64_t key = (uint64_t)node << 8 | byte;
    for (size_t at = (size_t)(key * t->key >> t->shift);; at = (at + 1) & t->mask) {
        if (t->edges[at].key == key || t->edges[at].key == 0) { return &t->edges[at]; }
    }
}

ckvc_status trie_init(trie *t, size_t total_bytes, const char *what, ckvc_err *err) {
    size_t capacity = 16;
    t->shift = 60;
    for (; capacity < total_bytes * 2; capacity *= 2) {
        t->shift--;
    }
    t->key = ckvc_hash_key();
    t->edges = ckvc_calloc(capacity, sizeof *t->edges);
    t->found = ckvc_alloc(total_bytes + 2, sizeof *t->found);
    t->mask = capacity - 1;
    t->n_nodes = 2; /* 0 is unused */
    t->found[1] = -1;
    return CKVC_OK;
}

int32_t trie_add(trie *t, const char *text, size_t n, int32_t index) {
    uint32_t node = 1;
    t->first[(uint8_t)text[0]] = true;
    for (size_t i = 0; i < n; i++) {
        struct trie_edge *edge = trie_slot(t, node, (uint8_t)text[i]);
        if (edge->key == 0) {
            *edge = (struct trie_edge){(uint64_t)node << 8 | (uint8_t)text[i], t->n_nodes};
            t->found[t->n_nodes++] = -1;
        }
        node = edge->node;
    }
    int32_t old = t->found[node];
    if (old < 0) { t->found[node] = index; }
    return old;
}

size_t trie_longest(const trie *t, const char *text, size_t n, int32_t *index, uint64_t *steps) {
    size_t best = 0;
    uint32_t node = 1;
    for (size_t i = 0; i < n; i++) {
        const struct trie_edge *edge = trie_slot(t, node, (uint8_t)text[i]);
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
    free(t->edges);
    free(t->found);
    *t = (trie){0};
}
