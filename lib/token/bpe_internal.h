/* What byte-pair merging looks things up in, for bpe.c, which fills it, and bpe.c, which
 * merges. Not for other files. */
#pragma once

#include "lib/base/hash.h"
#include "lib/base/utf8.h"
#include "lib/token/token_spec.h"
#include "lib/token/trie.h"

enum {
    /* Symbols of characters without a piece, under merge_by_score: those that occur in pieces are
     * numbered from here. */
    FIRST_ATOM = 1 << 30,
    /* Of a piece that merging may make: every way to cut it in two is tried. */
    MAX_SCORED_BYTES = 1024
};

/* ---- pieces by their bytes: open addressing, at most half full ---- */
typedef struct piece_slot {
    uint32_t hash;  /* upper half of the XXH64 */
    uint32_t piece; /* index + 1; 0: free */
} piece_slot;

typedef struct piece_map {
    uint64_t key;
    piece_slot *slots;
    size_t mask;
    const token_text *texts; /* borrowed */
} piece_map;

/* The slot of this text, or the free one where it belongs. */
static inline piece_slot *piece_map_slot(const piece_map *map, const char *text, size_t n) {
    uint64_t hash = ckvc_xxh64_keyed(text, n, map->key);
    uint32_t high = (uint32_t)(hash >> 32);
    for (size_t at = hash & map->mask;; at = (at + 1) & map->mask) {
        piece_slot *slot = &map->slots[at];
        if (slot->piece == 0) { return slot; }
        const token_text *found = &map->texts[slot->piece - 1];
        if (slot->hash == high && found->size == n && memcmp(found->bytes, text, n) == 0) {
            return slot;
        }
    }
}

/* ---- merges by their pair of ids ---- */
typedef struct merge_slot {
    uint64_t pair; /* left id << 32 | right id */
    uint32_t rank;
    int32_t joined; /* id; -1: free slot */
} merge_slot;

typedef struct bpe {
    const token_spec *spec;
    /* [n_pieces] under byte_level: bytes meant; size 0 for pieces outside the alphabet */
    token_text *raw;
    char *raw_bytes;
    token_text *spelled;            /* [n_pieces] as in the file; strings borrowed from the spec */
    piece_map by_spelling, by_word; /* by_word: what words are compared with */
    merge_slot *merges;
    size_t merge_mask;
    uint64_t merge_key;
    int merge_shift;
    /* byte_level: the byte's symbol; else the byte-fallback piece <0xNN>; -1: none */
    int32_t byte_piece[256];
    int32_t ascii[128]; /* not byte_level: the one-character piece; -1: none */
    /* merge_by_score */
    trie whole_pieces; /* pieces that stay whole, by index */
    token_text *atoms; /* characters of pieces that are no pieces themselves; borrowed */
    size_t n_atoms, atom_capacity;
    /* bpe_part: words may end before U+2581 unless a piece holds this byte and U+2581 behind it. */
    bool parts, crossing[256];
} bpe;

static inline uint64_t pair_of(int32_t left, int32_t right) {
    return (uint64_t)(uint32_t)left * (UINT64_C(1) << 32) + (uint32_t)right;
}

static inline merge_slot *merge_find(const bpe *b, uint64_t pair) {
    /* multiply-shift with a secret odd factor: pairs that were chosen to collide do not know it */
    for (size_t at = (size_t)(pair * b->merge_key >> b->merge_shift);;
         at = (at + 1) & b->merge_mask) {
        merge_slot *slot = &b->merges[at];
        if (slot->joined < 0 || slot->pair == pair) { return slot; }
    }
}

static inline int32_t piece_id(const bpe *b, const piece_map *map, const char *text, size_t n) {
    const piece_slot *slot = piece_map_slot(map, text, n);
    return slot->piece ? b->spec->pieces[slot->piece - 1].id : -1;
}

/* The symbol of a character that has a piece of its own; -1: it has none. */
static inline int32_t character_id(const bpe *b, const char *text, size_t n) {
    return b->spec->byte_level ? b->byte_piece[(uint8_t)*text]
           : n == 1            ? b->ascii[(uint8_t)*text]
                               : piece_id(b, &b->by_word, text, n);
}

/* The index of the atom, a character of pieces that has none of its own; -1: it occurs in none. */
static inline int32_t atom_index(const bpe *b, const char *text, size_t n) {
    for (size_t i = 0; i < b->n_atoms; i++) {
        if (b->atoms[i].size == n && memcmp(b->atoms[i].bytes, text, n) == 0) { return (int32_t)i; }
    }
    return -1;
}

static inline bool starts_with_space_mark(const char *text, size_t n) {
    return n >= strlen(TOKEN_SPACE_MARK) &&
           memcmp(text, TOKEN_SPACE_MARK, strlen(TOKEN_SPACE_MARK)) == 0;
}

static inline size_t symbol_step(const bpe *b, const char *text, size_t n) {
    return b->spec->byte_level ? 1 : ckvc_utf8_step(text, n, NULL);
}
