/* What building a manifest and checking it for leaks both need of a text: its scripts, its length,
 * and sets of hashes. */
#pragma once

#include <utf8proc.h>
#include <stdbool.h>
#include <stdint.h>

#include "lib/token/chars.h"
#include "lib/token/chat_template.h"
#include "lib/token/tokenizer.h"
#include "lib/base/memory.h"

/* The first letter of the character's general category in Unicode: L letters, M marks, N numbers, P
 * punctuation, S symbols, Z separators, C others. */
static inline char char_category(int32_t c) { return *utf8proc_category_string(c); }

/* Whether the character belongs to a script that puts no space between words: Thai, Lao, Myanmar,
 * Khmer, kana, Han. */
static inline bool char_without_spaces(int32_t c) {
    return (c >= 0x0E00 && c <= 0x0EFF) || (c >= 0x1000 && c <= 0x109F) ||
           (c >= 0x1780 && c <= 0x17FF) || (c >= 0x3005 && c <= 0x3007) ||
           (c >= 0x3040 && c <= 0x30FF) || (c >= 0x31F0 && c <= 0x31FF) ||
           (c >= 0x3400 && c <= 0x4DBF) || (c >= 0x4E00 && c <= 0x9FFF) ||
           (c >= 0xF900 && c <= 0xFAFF) || (c >= 0x20000 && c <= 0x3FFFF);
}

/* The length of a text [n bytes]: in tokens, with `special` counting those that are put around a
 * text; in characters where tok is NULL. */
static inline ckvc_status text_length(const tokenizer *tok, const char *text, size_t n,
                                      bool special, int64_t *length, ckvc_err *err) {
    *length = 0;
    if (tok) {
        CKVC_AUTO_FREE int32_t *ids = NULL;
        size_t n_ids;
        CKVC_TRY(tokenizer_encode(tok, text, n, special, &ids, &n_ids, err));
        *length = (int64_t)n_ids;
        return CKVC_OK;
    }
    for (size_t i = 0; i < n; i++) { *length += ((uint8_t)text[i] & 0xC0) != 0x80; }
    return CKVC_OK;
}

/* The number of tokens of a conversation as the model is asked it, with all that its template
 * adds. */
static inline ckvc_status messages_length(const tokenizer *tok, const chat_template *chat,
                                          const chat_message *messages, size_t n, int64_t *length,
                                          ckvc_err *err) {
    CKVC_AUTO_FREE char *text = NULL;
    size_t size;
    CKVC_TRY(chat_render(chat, messages, n, &text, &size, err));
    return text_length(tok, text, size, false, length, err);
}

/* Two sets of 64-bit hashes follow: hash_set holds all hashes that it has met, and hash_filter is a
 * bitmap that is asked before a larger table. */
/* The least power of two that is at least n and at least `least`, which must be a power of two. */
static inline size_t power_of_two(size_t n, size_t least) {
    while (least < n) { least *= 2; }
    return least;
}

/* The hash of a span of words is a sum, so its low bits must be mixed with the others before they
 * can serve as an index. */
static inline size_t hash_mixed(uint64_t h) {
    h ^= h >> 32;
    h *= 0xD6E8FEB86659FD93u;
    return (size_t)(h ^ h >> 32);
}

typedef struct hash_set { /* zero-initialise; free(slots) releases it */
    uint64_t *slots;      /* open addressing; 0 marks a free slot */
    size_t capacity, used;
} hash_set;

/* Adds a hash, and returns whether it was new. The hash 0 counts as 1. */
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

typedef struct hash_filter { /* free(bits) releases it */
    uint64_t *bits;
    size_t mask;
} hash_filter;

/* Makes an empty filter with room for about n hashes. */
static inline hash_filter hash_filter_make(size_t n) {
    const size_t bits = power_of_two(n * 16, 1024);
    return (hash_filter){ckvc_calloc(bits / 64, sizeof(uint64_t)), bits - 1};
}

static inline void hash_filter_add(hash_filter *f, uint64_t hash) {
    const size_t bit = hash_mixed(hash) & f->mask;
    f->bits[bit >> 6] |= (uint64_t)1 << (bit & 63);
}

/* Whether the filter may hold the hash. False is certain; true may be a collision of bits. */
static inline bool hash_filter_may_have(const hash_filter *f, uint64_t hash) {
    const size_t bit = hash_mixed(hash) & f->mask;
    return f->bits[bit >> 6] >> (bit & 63) & 1;
}
