/* Sets of 64-bit hashes: one of all that were met, and a bitmap in front of a larger table. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "lib/base/memory.h"

/* The least power of two that is at least n and `least`, a power of two. */
static inline size_t power_of_two(size_t n, size_t least) {
    while (least < n) { least *= 2; }
    return least;
}

/* Hashes of words' spans are sums; their low bits want mixing. */
static inline size_t hash_mixed(uint64_t h) {
    h ^= h >> 32;
    h *= 0xD6E8FEB86659FD93u;
    return (size_t)(h ^ h >> 32);
}

typedef struct hash_set { /* zero-initialise; free(slots) */
    uint64_t *slots;      /* open addressing; 0: free */
    size_t capacity, used;
} hash_set;

/* Whether it is new. */
static inline bool hash_set_add(hash_set *s, uint64_t hash) {
    hash += hash == 0;
    if (s->used * 2 >= s->capacity) {
        hash_set grown = {.capacity = s->capacity ? s->capacity * 2 : 4096};
        grown.slots = ckvc_calloc(grown.capacity, sizeof *grown.slots);
        for (size_t i = 0; i < s->capacity; i++) {
            if (s->slots[i]) { hash_set_add(&grown, s->slots[i]); }
        }
        free(s->slots);
        *s = grown;
    }
    size_t at = hash & (s->capacity - 1);
    while (s->slots[at] && s->slots[at] != hash) { at = (at + 1) & (s->capacity - 1); }
    const bool is_new = s->slots[at] == 0;
    s->used += is_new;
    s->slots[at] = hash;
    return is_new;
}

typedef struct hash_filter { /* free(bits) */
    uint64_t *bits;
    size_t mask;
} hash_filter;

/* For about n hashes. */
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
