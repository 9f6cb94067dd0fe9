/* The tables that byte-pair merging looks things up in. Only bpe.c uses them, which fills them and
 * merges with them. */
#pragma once

#include "lib/base/hash.h"
#include "lib/base/utf8.h"
#include "lib/token/token_spec.h"
#include "lib/token/trie.h"

enum {
    /* Symbols from here on are characters without a piece of their own that occur in pieces, under
     * merge_by_score. */
    FIRST_ATOM = 1 << 30,
    /* The most bytes of a piece that merging may make, as every way to cut it in two is tried. */
    MAX_SCORED_BYTES = 1024
};

/* ---- pieces by their bytes: open addressing, at most half full ---- */
typedef struct piece_slot {
    uint32_t hash;  /* upper half of its XXH64 */
    uint32_t piece; /* index + 1; 0: the slot is free */
} piece_slot;

typedef struct piece_map {
    uint64_t key;
    piece_slot *slots;
    size_t mask;
    const token_text *texts; /* borrowed */
} piece_map;

/* The slot of this text, or the free slot where it belongs. */
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
    int32_t joined; /* an id; -1: the slot is free */
} merge_slot;

typedef struct bpe {
    const token_spec *spec;
    /* [n_pieces] under byte_level: the bytes that a piece stands for; size 0 for pieces outside the
     * alphabet */
    token_text *raw;
    char *raw_bytes;
    /* [n_pieces] as the file spells them; strings borrowed from the spec */
    token_text *spelled;
    piece_map by_spelling, by_word; /* by_word is what words are compared with */
    merge_slot *merges;
    size_t merge_mask;
    uint64_t merge_key;
    int merge_shift;
    /* Under byte_level the byte's symbol, else the byte-fallback piece <0xNN>; -1: there is
     * none. */
    int32_t byte_piece[256];
    /* Without byte_level: the piece of this one character; -1: there is none. */
    int32_t ascii[128];
    /* Under merge_by_score: */
    trie whole_pieces; /* pieces that stay whole, by index */
    token_text *atoms; /* characters of pieces that are no pieces themselves; borrowed */
    size_t n_atoms, atom_capacity;
    /* For bpe_part: words may end before U+2581, unless a piece has this byte with U+2581 after
     * it. */
    bool parts, crossing[256];
} bpe;

static inline uint64_t pair_of(int32_t left, int32_t right) {
    return (uint64_t)(uint32_t)left * (UINT64_C(1) << 32) + (uint32_t)right;
}

static inline merge_slot *merge_find(const bpe *b, uint64_t pair) {
    /* Multiply-shift hashing with a secret odd factor: nobody can choose pairs that collide without
     * knowing it. */
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

/* The index of the atom of a character without a piece of its own; -1: it occurs in no piece. */
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
