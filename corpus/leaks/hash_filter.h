/* A bitmap in front of a hash table: most hashes that are not in the table are told from the cache.
 */
#ifndef CKVC_CORPUS_HASH_FILTER_H
#define CKVC_CORPUS_HASH_FILTER_H

#include <stdbool.h>
#include <stdint.h>

#include "lib/base/memory.h"

typedef struct hash_filter { /* free(bits) */
    uint64_t *bits;
    size_t mask;
} hash_filter;

/* Hashes of words' spans are sums; their low bits want mixing. */
static inline size_t hash_mixed(uint64_t h) {
    h ^= h >> 32;
    h *= 0xD6E8FEB86659FD93u;
    return (size_t)(h ^ h >> 32);
}

/* The least power of two that is at least n and `least`, a power of two. */
static inline size_t power_of_two(size_t n, size_t least) {
    while (least < n) {
        least *= 2;
    }
    return least;
}

static inline hash_filter hash_filter_make(size_t n) {
    const size_t bits = power_of_two(n * 16, 1024);
    return (hash_filter){ckvc_calloc(bits / 64, sizeof(uint64_t)), bits - 1};
}

static inline void hash_filter_add(hash_filter *f, uint64_t hash) {
    const size_t bit = hash_mixed(hash) & f->mask;
    f->bits[bit >> 6] |= (uint64_t)1 << (bit & 63);
}

/* False is sure. */
static inline bool hash_filter_may_have(const hash_filter *f, uint64_t hash) {
    const size_t bit = hash_mixed(hash) & f->mask;
    return f->bits[bit >> 6] >> (bit & 63) & 1;
}

#endif
