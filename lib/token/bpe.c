/* Byte-pair merging. Pieces are found through a hash table of their bytes, merges through one of (left id, right id). */
#include "lib/token/bpe.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/hash.h"
#include "lib/base/memory.h"
#include "lib/base/utf8.h"
#include "lib/token/trie.h"

enum {
    MAX_WORD_BYTES = 1 << 30, /* symbol positions are 31-bit */
    MAX_SCORED_BYTES = 1024,  /* of a piece that merging may make: every way to cut it in two is tried */
    /* Symbols of characters without a piece, under merge_by_score: those that occur in pieces are numbered from FIRST_ATOM. */
    FIRST_ATOM = 1 << 30,
    NO_ATOM = INT32_MAX,
    SCAN_SYMBOLS = 24 /* up to here a linear scan for the best pair beats the heap (measured on manuals and code) */
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

static ckvc_status piece_map_init(piece_map *map, const token_text *texts, size_t n, ckvc_err *err)
{
    size_t capacity = 16;
    while (capacity < n * 2)
        capacity *= 2;
    map->slots = ckvc_calloc(capacity, sizeof *map->slots);
    map->mask = capacity - 1;
    map->key = ckvc_hash_key();
    map->texts = texts;
    return map->slots ? CKVC_OK : ckvc_fail_memory(err, "tokenizer pieces", capacity * sizeof *map->slots);
}

/* The slot of this text, or the free one where it belongs. */
static piece_slot *piece_map_slot(const piece_map *map, const char *text, size_t n)
{
    uint64_t hash = ckvc_xxh64_keyed(text, n, map->key);
    uint32_t high = (uint32_t)(hash >> 32);
    for (size_t at = hash & map->mask;; at = (at + 1) & map->mask) {
        piece_slot *slot = &map->slots[at];
        if (slot->piece == 0)
            return slot;
        const token_text *found = &map->texts[slot->piece - 1];
        if (slot->hash == high && found->size == n && memcmp(found->bytes, text, n) == 0)
            return slot;
    }
}

/* False when the text is there already. */
static bool piece_map_add(piece_map *map, size_t piece)
{
    const token_text *text = &map->texts[piece];
    piece_slot *slot = piece_map_slot(map, text->bytes, text->size);
    if (slot->piece)
        return false;
    slot->hash = (uint32_t)(ckvc_xxh64_keyed(text->bytes, text->size, map->key) >> 32);
    slot->piece = (uint32_t)piece + 1;
    return true;
}

/* ---- merges by their pair of ids ---- */
typedef struct merge_slot {
    uint64_t pair; /* left id << 32 | right id */
    uint32_t rank;
    int32_t joined; /* id; -1: free slot */
} merge_slot;

struct bpe {
    const token_spec *spec;
    token_text *raw; /* [n_pieces] under byte_level: bytes meant; size 0 and unreachable for pieces outside the alphabet */
    char *raw_bytes;
    token_text *spelled;            /* [n_pieces] as in the file; strings borrowed from the spec */
    piece_map by_spelling, by_word; /* by_word: what words are compared with */
    merge_slot *merges;
    size_t merge_mask;
    uint64_t merge_key;
    int merge_shift;
    int32_t byte_piece[256]; /* byte_level: the byte's symbol; else the byte-fallback piece <0xNN>; -1: none */
    int32_t ascii[128];      /* not byte_level: the one-character piece; -1: none */
    /* merge_by_score */
    trie whole;        /* pieces that stay whole, by index */
    token_text *atoms; /* characters of pieces that are no pieces themselves; borrowed */
    size_t n_atoms, atom_capacity;
    /* bpe_part: words may end before U+2581 unless a piece holds this byte and U+2581 behind it. */
    bool parts, crossing[256];
};

#define METASPACE "\xE2\x96\x81"
enum { METASPACE_BYTES = 3 };

static uint64_t pair_of(int32_t left, int32_t right)
{
    return (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
}

static merge_slot *merge_find(const bpe *b, uint64_t pair)
{
    /* multiply-shift with a secret odd factor: pairs that were chosen to collide do not know it */
    for (size_t at = (size_t)(pair * b->merge_key >> b->merge_shift);; at = (at + 1) & b->merge_mask) {
        merge_slot *slot = &b->merges[at];
        if (slot->joined < 0 || slot->pair == pair)
            return slot;
    }
}

/* ---- GPT-2's byte alphabet: printable Latin-1 stands for itself, the other 68 bytes for U+0100 ... U+0143 in order ---- */
static bool stands_for_itself(unsigned byte)
{
    return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

bool byte_level_raw(const char *text, size_t n, char *raw, size_t *raw_size)
{
    static const uint8_t shifted[68] = {/* the bytes that do not stand for themselves, ascending */
                                        0,   1,   2,   3,   4,   5,   6,   7,   8,   9,   10,  11,  12,  13,  14,  15,  16,
                                        17,  18,  19,  20,  21,  22,  23,  24,  25,  26,  27,  28,  29,  30,  31,  32,  127,
                                        128, 129, 130, 131, 132, 133, 134, 135, 136, 137, 138, 139, 140, 141, 142, 143, 144,
                                        145, 146, 147, 148, 149, 150, 151, 152, 153, 154, 155, 156, 157, 158, 159, 160, 173};
    const uint8_t *p = (const uint8_t *)text;
    size_t used = 0;
    for (size_t i = 0; i < n;) {
        unsigned code = p[i];
        if (code >= 0xC2 && code <= 0xC5 && i + 1 < n) {
            code = (code & 0x1F) << 6 | (p[i + 1] & 0x3F);
            i += 2;
        } else if (code < 0x80) {
            i++;
        } else {
            return false;
        }
        if (code < 256 ? !stands_for_itself(code) : code - 256 >= sizeof shifted)
            return false;
        raw[used++] = (char)(code < 256 ? code : shifted[code - 256]);
    }
    *raw_size = used;
    return true;
}

/* ---- building ---- */
static ckvc_status build_raw(bpe *b, ckvc_err *err)
{
    const token_spec *spec = b->spec;
    size_t total = 1;
    for (size_t i = 0; i < spec->n_pieces; i++)
        total += spec->pieces[i].text.size; /* all of them are in memory already: no overflow */
    b->raw = ckvc_calloc(spec->n_pieces, sizeof *b->raw);
    b->raw_bytes = ckvc_alloc(total, 1);
    if (!b->raw || !b->raw_bytes)
        return ckvc_fail_memory(err, "tokenizer pieces", total);
    char *at = b->raw_bytes;
    for (size_t i = 0; i < spec->n_pieces; i++) {
        const token_text *text = &spec->pieces[i].text;
        b->raw[i].bytes = at;
        if (byte_level_raw(text->bytes, text->size, at, &b->raw[i].size))
            at += b->raw[i].size;
        else
            b->raw[i].size = 0;
    }
    return CKVC_OK;
}

static int hex_digit(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

static ckvc_status find_byte_pieces(bpe *b, const char *name, ckvc_err *err)
{
    const token_spec *spec = b->spec;
    for (int i = 0; i < 256; i++)
        b->byte_piece[i] = -1;
    for (size_t i = 0; i < spec->n_pieces; i++) {
        const token_text *text = &spec->pieces[i].text;
        if (spec->byte_level) {
            if (b->raw[i].size == 1)
                b->byte_piece[(uint8_t)b->raw[i].bytes[0]] = spec->pieces[i].id;
        } else if (spec->byte_fallback && text->size == 6 && memcmp(text->bytes, "<0x", 3) == 0 && text->bytes[5] == '>') {
            int high = hex_digit(text->bytes[3]), low = hex_digit(text->bytes[4]);
            if (high < 0 || low < 0)
                return ckvc_fail(err, CKVC_E_DATA, "%s: model.vocab: piece \"%s\" is not a byte; want <0x00> ... <0xFF>", name,
                                 text->bytes);
            b->byte_piece[high * 16 + low] = spec->pieces[i].id;
        }
    }
    return CKVC_OK;
}

static ckvc_status merges_init(bpe *b, size_t n, ckvc_err *err)
{
    size_t capacity = 16;
    b->merge_shift = 60;
    for (; capacity < n * 2; capacity *= 2)
        b->merge_shift--;
    b->merge_key = ckvc_hash_key();
    b->merges = ckvc_calloc(capacity, sizeof *b->merges);
    if (!b->merges)
        return ckvc_fail_memory(err, "tokenizer merges", capacity * sizeof *b->merges);
    b->merge_mask = capacity - 1;
    for (size_t i = 0; i < capacity; i++)
        b->merges[i].joined = -1;
    return CKVC_OK;
}

static bool starts_with_metaspace(const char *text, size_t n)
{
    return n >= METASPACE_BYTES && memcmp(text, METASPACE, METASPACE_BYTES) == 0;
}

static bool is_byte_piece(const bpe *b, int32_t id)
{
    for (int i = 0; i < 256; i++)
        if (b->byte_piece[i] == id)
            return true;
    return false;
}

static ckvc_status build_merges(bpe *b, const char *name, ckvc_err *err)
{
    const token_spec *spec = b->spec;
    char *joined = NULL;
    size_t room = 0;
    ckvc_status status = merges_init(b, spec->n_merges, err);
    for (size_t i = 0; i < spec->n_merges && status == CKVC_OK; i++) {
        const token_text *left = &spec->merges[i].left, *right = &spec->merges[i].right;
        int32_t left_id = bpe_piece_id(b, left->bytes, left->size), right_id = bpe_piece_id(b, right->bytes, right->size);
        size_t size = left->size + right->size;
        if (size > room) {
            free(joined);
            room = size * 2;
            joined = ckvc_alloc(room, 1);
            if (!joined) {
                status = ckvc_fail_memory(err, "tokenizer merges", room);
                break;
            }
        }
        if (size) {
            memcpy(joined, left->bytes, left->size);
            memcpy(joined + left->size, right->bytes, right->size);
        }
        int32_t joined_id = left_id < 0 || right_id < 0 || !size ? -1 : bpe_piece_id(b, joined, size);
        if (joined_id < 0) {
            status =
                ckvc_fail(err, CKVC_E_DATA, "%s: model.merges[%zu]: \"%.64s %.64s\": %s \"%.64s%.64s\" is not in the vocabulary",
                          name, i, left->bytes, right->bytes,
                          left_id < 0    ? "left part"
                          : right_id < 0 ? "right part"
                                         : "the joined piece",
                          left_id < 0 || right_id >= 0 ? left->bytes : "", left_id < 0 ? "" : right->bytes);
            break;
        }
        merge_slot *slot = merge_find(b, pair_of(left_id, right_id));
        if (slot->joined >= 0)
            status = ckvc_fail(err, CKVC_E_DATA, "%s: model.merges[%zu]: \"%.64s %.64s\" stands there already, at %u", name, i,
                               left->bytes, right->bytes, slot->rank);
        *slot = (merge_slot){pair_of(left_id, right_id), (uint32_t)i, joined_id};
        if (starts_with_metaspace(right->bytes, right->size)) {
            b->crossing[(uint8_t)left->bytes[left->size - 1]] = true;
            if (left_id == spec->unk_id || is_byte_piece(b, left_id))
                b->parts = false; /* such a piece stands for another character than it spells */
        }
    }
    free(joined);
    return status;
}

/* ---- merges that follow from the pieces and their scores ---- */
static int32_t piece_index(const piece_map *map, const char *text, size_t n)
{
    const piece_slot *slot = piece_map_slot(map, text, n);
    return (int32_t)slot->piece - 1;
}

/* The symbol of one character or byte of a piece, an atom when it has no piece. */
static ckvc_status symbol_of_character(bpe *b, const char *text, size_t n, int32_t *id, ckvc_err *err)
{
    int32_t index = piece_index(&b->by_word, text, n);
    if (index >= 0) {
        *id = b->spec->pieces[index].id;
        return CKVC_OK;
    }
    for (size_t i = 0; i < b->n_atoms; i++) {
        if (b->atoms[i].size == n && memcmp(b->atoms[i].bytes, text, n) == 0) {
            *id = FIRST_ATOM + (int32_t)i;
            return CKVC_OK;
        }
    }
    enum { MAX_ATOMS = 256 }; /* a vocabulary holds the characters of its pieces; they are searched one by one */
    if (b->n_atoms == MAX_ATOMS)
        return ckvc_fail(err, CKVC_E_DATA, "tokenizer: more than %d characters of pieces are no pieces themselves", MAX_ATOMS);
    void *atoms = b->atoms;
    ckvc_status status = ckvc_grow(&atoms, &b->atom_capacity, b->n_atoms + 1, sizeof *b->atoms, err);
    b->atoms = atoms;
    if (status == CKVC_OK) {
        *id = FIRST_ATOM + (int32_t)b->n_atoms;
        b->atoms[b->n_atoms++] = (token_text){(char *)(uintptr_t)text, n};
    }
    return status;
}

static size_t symbol_step(const bpe *b, const char *text, size_t n)
{
    return b->spec->byte_level ? 1 : ckvc_utf8_step(text, n, NULL);
}

/* A half of a piece: one character, or a piece that merging makes. -1: neither. */
static ckvc_status half_id(bpe *b, const char *text, size_t n, int32_t *id, ckvc_err *err)
{
    if (symbol_step(b, text, n) == n)
        return symbol_of_character(b, text, n, id, err);
    int32_t index = piece_index(&b->by_word, text, n);
    *id = index >= 0 && b->spec->pieces[index].kind == TOKEN_PIECE_NORMAL ? b->spec->pieces[index].id : -1;
    return CKVC_OK;
}

static int descending(const void *a, const void *b)
{
    const float x = *(const float *)a, y = *(const float *)b;
    return x > y ? -1 : x < y;
}

/* Pieces of one score share a rank, so that the leftmost of their pairs goes first. */
static ckvc_status score_ranks(const bpe *b, const char *name, uint32_t **out, ckvc_err *err)
{
    const token_spec *spec = b->spec;
    float *scores = ckvc_alloc(spec->n_pieces, sizeof *scores);
    uint32_t *ranks = ckvc_alloc(spec->n_pieces, sizeof *ranks);
    *out = ranks;
    ckvc_status status = scores && ranks ? CKVC_OK : ckvc_fail_memory(err, "tokenizer scores", spec->n_pieces * sizeof *scores);
    size_t distinct = 0;
    for (size_t i = 0; i < spec->n_pieces && status == CKVC_OK; i++) {
        scores[i] = spec->pieces[i].score;
        if (scores[i] != scores[i])
            status = ckvc_fail(err, CKVC_E_DATA, "%s: piece %zu, \"%.64s\": its score is not a number", name, i,
                               spec->pieces[i].text.bytes);
    }
    if (status == CKVC_OK)
        qsort(scores, spec->n_pieces, sizeof *scores, descending);
    for (size_t i = 0; i < spec->n_pieces && status == CKVC_OK; i++)
        if (i == 0 || scores[i] != scores[distinct - 1])
            scores[distinct++] = scores[i];
    for (size_t i = 0; i < spec->n_pieces && status == CKVC_OK; i++) {
        const float *found = bsearch(&spec->pieces[i].score, scores, distinct, sizeof *scores, descending);
        ranks[i] = (uint32_t)(found - scores);
    }
    free(scores);
    return status;
}

/* Pairs of halves of one piece, appended to list. */
static ckvc_status add_halves(bpe *b, size_t piece, uint32_t rank, const char *name, void **list, size_t *n, size_t *capacity,
                              ckvc_err *err)
{
    const token_text *text = &b->by_word.texts[piece];
    if (text->size > MAX_SCORED_BYTES)
        return ckvc_fail(err, CKVC_E_DATA, "%s: piece %zu has %zu bytes; at most %d can be merged by score", name, piece,
                         text->size, MAX_SCORED_BYTES);
    ckvc_status status = CKVC_OK;
    size_t step;
    for (size_t at = 0; at < text->size && status == CKVC_OK; at += step) {
        step = symbol_step(b, text->bytes + at, text->size - at);
        if (step == 0)
            return ckvc_fail(err, CKVC_E_DATA, "%s: piece %zu is not UTF-8 at its byte %zu", name, piece, at);
        if (at > 0 && starts_with_metaspace(text->bytes + at, text->size - at))
            b->crossing[(uint8_t)text->bytes[at - 1]] = true;
        int32_t left = -1, right = -1;
        if (at > 0 && b->spec->pieces[piece].kind == TOKEN_PIECE_NORMAL)
            status = half_id(b, text->bytes, at, &left, err);
        if (status == CKVC_OK && left >= 0)
            status = half_id(b, text->bytes + at, text->size - at, &right, err);
        if (status != CKVC_OK || right < 0)
            continue;
        status = ckvc_grow(list, capacity, *n + 1, sizeof(merge_slot), err);
        if (status == CKVC_OK)
            ((merge_slot *)*list)[(*n)++] = (merge_slot){pair_of(left, right), rank, b->spec->pieces[piece].id};
    }
    return status;
}

static ckvc_status build_score_merges(bpe *b, const char *name, ckvc_err *err)
{
    const token_spec *spec = b->spec;
    uint32_t *ranks;
    void *list = NULL;
    size_t n = 0, capacity = 0, whole_bytes = 0;
    ckvc_status status = score_ranks(b, name, &ranks, err);
    for (size_t i = 0; i < spec->n_pieces && status == CKVC_OK; i++) {
        if (spec->pieces[i].kind == TOKEN_PIECE_WHOLE)
            whole_bytes += b->by_word.texts[i].size;
        if (spec->pieces[i].kind != TOKEN_PIECE_RESERVED)
            status = add_halves(b, i, ranks[i], name, &list, &n, &capacity, err);
    }
    if (status == CKVC_OK)
        status = trie_init(&b->whole, whole_bytes, "user-defined pieces", err);
    for (size_t i = 0; i < spec->n_pieces && status == CKVC_OK; i++)
        if (spec->pieces[i].kind == TOKEN_PIECE_WHOLE && b->by_word.texts[i].size)
            trie_add(&b->whole, b->by_word.texts[i].bytes, b->by_word.texts[i].size, (int32_t)i);
    if (status == CKVC_OK)
        status = merges_init(b, n, err);
    for (size_t i = 0; i < n && status == CKVC_OK; i++) {
        const merge_slot *merge = &((merge_slot *)list)[i];
        *merge_find(b, merge->pair) = *merge; /* pieces and their halves are distinct, so are the pairs */
    }
    free(list);
    free(ranks);
    return status;
}

ckvc_status bpe_build(const token_spec *spec, const char *name, bpe **out, ckvc_err *err)
{
    *out = NULL;
    bpe *b = ckvc_calloc(1, sizeof *b);
    if (!b)
        return ckvc_fail_memory(err, "tokenizer", sizeof *b);
    b->spec = spec;
    ckvc_status status = CKVC_OK;
    b->spelled = ckvc_alloc(spec->n_pieces, sizeof *b->spelled);
    if (!b->spelled)
        status = ckvc_fail_memory(err, "tokenizer pieces", spec->n_pieces * sizeof *b->spelled);
    for (size_t i = 0; status == CKVC_OK && i < spec->n_pieces; i++)
        b->spelled[i] = spec->pieces[i].text;
    if (status == CKVC_OK)
        status = piece_map_init(&b->by_spelling, b->spelled, spec->n_pieces, err);
    for (size_t i = 0; status == CKVC_OK && i < spec->n_pieces; i++)
        if (!piece_map_add(&b->by_spelling, i))
            status = ckvc_fail(err, CKVC_E_DATA, "%s: model.vocab: piece \"%.64s\" stands there twice", name, b->spelled[i].bytes);
    if (status == CKVC_OK && spec->byte_level) {
        status = build_raw(b, err);
        if (status == CKVC_OK)
            status = piece_map_init(&b->by_word, b->raw, spec->n_pieces, err);
        for (size_t i = 0; status == CKVC_OK && i < spec->n_pieces; i++)
            if (b->raw[i].size)
                piece_map_add(&b->by_word, i); /* the alphabet is one to one: no duplicates */
    } else if (status == CKVC_OK) {
        b->by_word = b->by_spelling;
    }
    if (status == CKVC_OK)
        status = find_byte_pieces(b, name, err);
    b->parts = !spec->byte_level && !spec->ignore_merges;
    if (status == CKVC_OK)
        status = spec->merge_by_score ? build_score_merges(b, name, err) : build_merges(b, name, err);
    if (status == CKVC_OK && b->parts)
        b->parts = bpe_piece_id(b, METASPACE, METASPACE_BYTES) >= 0;
    for (int c = 0; status == CKVC_OK && c < 128; c++) {
        char text = (char)c;
        b->ascii[c] = bpe_piece_id(b, &text, 1);
    }
    if (status != CKVC_OK) {
        bpe_free(b);
        return status;
    }
    *out = b;
    return CKVC_OK;
}

void bpe_free(bpe *b)
{
    if (!b)
        return;
    if (b->by_word.slots != b->by_spelling.slots)
        free(b->by_word.slots);
    free(b->by_spelling.slots);
    free(b->raw);
    free(b->raw_bytes);
    free(b->spelled);
    free(b->merges);
    free(b->atoms);
    trie_fini(&b->whole);
    free(b);
}

static int32_t piece_id(const bpe *b, const piece_map *map, const char *text, size_t n)
{
    const piece_slot *slot = piece_map_slot(map, text, n);
    return slot->piece ? b->spec->pieces[slot->piece - 1].id : -1;
}

int32_t bpe_piece_id(const bpe *b, const char *text, size_t n)
{
    return piece_id(b, &b->by_spelling, text, n);
}

/* ---- encoding ---- */
ckvc_status id_list_push(id_list *list, int32_t id, ckvc_err *err)
{
    if (list->n == list->capacity) {
        void *ids = list->ids;
        ckvc_status status = ckvc_grow(&ids, &list->capacity, list->n + 1, sizeof *list->ids, err);
        list->ids = ids;
        if (status != CKVC_OK)
            return status;
    }
    list->ids[list->n++] = id;
    return CKVC_OK;
}

struct bpe_symbol {
    int32_t id;         /* -1: joined to the symbol before it */
    int32_t prev, next; /* neighbours, -1 at the ends */
    int32_t start;      /* merge_by_score: its first byte in the word */
};

struct bpe_candidate {
    uint64_t order;              /* rank << 32 | position: lower first */
    int32_t left, right, joined; /* ids at the time; stale when the symbols there have changed */
};

void bpe_scratch_fini(bpe_scratch *scratch)
{
    free(scratch->symbols);
    free(scratch->heap);
    *scratch = (bpe_scratch){0};
}

static void symbol_add(bpe_scratch *s, size_t *n, int32_t id)
{
    s->symbols[*n] = (struct bpe_symbol){id, (int32_t)*n - 1, (int32_t)*n + 1, 0};
    ++*n;
}

/* Writes the word's smallest symbols; room for n of them is there. A run of unknown characters is one symbol under fuse_unk.
 * An unknown symbol waits until the next known one, byte pieces overtake it: the order of the reference implementation. */
static size_t first_symbols(const bpe *b, bpe_scratch *s, const char *word, size_t n)
{
    const token_spec *spec = b->spec;
    size_t used = 0;
    bool waiting = false;
    for (size_t i = 0; i < n;) {
        size_t step = 1;
        int32_t id;
        if (spec->byte_level) {
            id = b->byte_piece[(uint8_t)word[i]];
        } else {
            step = ckvc_utf8_step(word + i, n - i, NULL);
            assert(step > 0);
            id = step == 1 ? b->ascii[(uint8_t)word[i]] : piece_id(b, &b->by_word, word + i, step);
        }
        if (id >= 0) {
            if (waiting)
                symbol_add(s, &used, spec->unk_id);
            waiting = false;
            symbol_add(s, &used, id);
            i += step;
            continue;
        }
        bool as_bytes = spec->byte_fallback && !spec->byte_level;
        for (size_t k = 0; as_bytes && k < step; k++)
            as_bytes = b->byte_piece[(uint8_t)word[i + k]] >= 0;
        for (size_t k = 0; as_bytes && k < step; k++)
            symbol_add(s, &used, b->byte_piece[(uint8_t)word[i + k]]);
        if (!as_bytes && spec->unk_id >= 0) {
            if (waiting && !spec->fuse_unk)
                symbol_add(s, &used, spec->unk_id);
            waiting = true;
        }
        i += step;
    }
    if (waiting)
        symbol_add(s, &used, spec->unk_id);
    if (used)
        s->symbols[used - 1].next = -1;
    return used;
}

/* The same under merge_by_score: pieces that stay whole, then characters, with a piece or without. */
static size_t first_scored_symbols(const bpe *b, bpe_scratch *s, const char *word, size_t n)
{
    size_t used = 0;
    uint64_t steps = 0; /* pieces are short (MAX_SCORED_BYTES): no limit is needed */
    for (size_t i = 0, step; i < n; i += step) {
        int32_t index = -1, id = -1;
        step = b->whole.first[(uint8_t)word[i]] ? trie_longest(&b->whole, word + i, n - i, &index, &steps) : 0;
        if (step) {
            id = b->spec->pieces[index].id;
        } else {
            step = symbol_step(b, word + i, n - i);
            assert(step > 0);
            id = b->spec->byte_level ? b->byte_piece[(uint8_t)word[i]]
                 : step == 1         ? b->ascii[(uint8_t)word[i]]
                                     : piece_id(b, &b->by_word, word + i, step);
            for (size_t k = 0; id < 0 && k < b->n_atoms; k++)
                if (b->atoms[k].size == step && memcmp(b->atoms[k].bytes, word + i, step) == 0)
                    id = FIRST_ATOM + (int32_t)k;
            id = id < 0 ? NO_ATOM : id;
        }
        symbol_add(s, &used, id);
        s->symbols[used - 1].start = (int32_t)i;
    }
    if (used)
        s->symbols[used - 1].next = -1;
    return used;
}

/* A symbol that is no piece: its bytes, or the unknown piece, once for a run of them under fuse_unk. */
static ckvc_status push_unknown(const bpe *b, const char *text, size_t step, bool *after_unknown, id_list *out, ckvc_err *err)
{
    const token_spec *spec = b->spec;
    bool as_bytes = spec->byte_fallback && !spec->byte_level;
    for (size_t k = 0; as_bytes && k < step; k++)
        as_bytes = b->byte_piece[(uint8_t)text[k]] >= 0;
    ckvc_status status = CKVC_OK;
    for (size_t k = 0; as_bytes && k < step && status == CKVC_OK; k++)
        status = id_list_push(out, b->byte_piece[(uint8_t)text[k]], err);
    if (!as_bytes && spec->unk_id >= 0 && !(*after_unknown && spec->fuse_unk))
        status = id_list_push(out, spec->unk_id, err);
    *after_unknown = !as_bytes;
    return status;
}

static void join(struct bpe_symbol *symbols, int32_t at, int32_t joined)
{
    int32_t gone = symbols[at].next, after = symbols[gone].next;
    symbols[at].id = joined;
    symbols[at].next = after;
    symbols[gone].id = -1;
    if (after >= 0)
        symbols[after].prev = at;
}

static void merge_by_scan(const bpe *b, struct bpe_symbol *symbols, size_t n)
{
    /* The merge of each symbol with its right neighbour is looked up once and again only when one of the two changes. */
    const merge_slot *pair[SCAN_SYMBOLS];
    for (size_t i = 0; i + 1 < n; i++)
        pair[i] = merge_find(b, pair_of(symbols[i].id, symbols[i + 1].id));
    for (;;) {
        int32_t best = -1;
        for (int32_t i = 0; i >= 0 && symbols[i].next >= 0; i = symbols[i].next)
            if (pair[i]->joined >= 0 && (best < 0 || pair[i]->rank < pair[best]->rank))
                best = i;
        if (best < 0)
            return;
        join(symbols, best, pair[best]->joined);
        if (symbols[best].next >= 0)
            pair[best] = merge_find(b, pair_of(symbols[best].id, symbols[symbols[best].next].id));
        if (symbols[best].prev >= 0)
            pair[symbols[best].prev] = merge_find(b, pair_of(symbols[symbols[best].prev].id, symbols[best].id));
    }
}

static void heap_push(struct bpe_candidate *heap, size_t *n, struct bpe_candidate item)
{
    size_t at = (*n)++;
    for (; at > 0 && heap[(at - 1) / 2].order > item.order; at = (at - 1) / 2)
        heap[at] = heap[(at - 1) / 2];
    heap[at] = item;
}

static struct bpe_candidate heap_pop(struct bpe_candidate *heap, size_t *n)
{
    struct bpe_candidate top = heap[0], last = heap[--*n];
    size_t at = 0;
    for (size_t child; (child = 2 * at + 1) < *n; at = child) {
        if (child + 1 < *n && heap[child + 1].order < heap[child].order)
            child++;
        if (heap[child].order >= last.order)
            break;
        heap[at] = heap[child];
    }
    heap[at] = last;
    return top;
}

static void consider(const bpe *b, bpe_scratch *s, size_t *n_heap, int32_t at)
{
    int32_t left = s->symbols[at].id, right = s->symbols[s->symbols[at].next].id;
    const merge_slot *merge = merge_find(b, pair_of(left, right));
    if (merge->joined >= 0)
        heap_push(s->heap, n_heap, (struct bpe_candidate){(uint64_t)merge->rank << 32 | (uint32_t)at, left, right, merge->joined});
}

static void merge_by_heap(const bpe *b, bpe_scratch *s, size_t n)
{
    size_t n_heap = 0;
    for (size_t i = 0; i + 1 < n; i++)
        consider(b, s, &n_heap, (int32_t)i);
    while (n_heap) {
        struct bpe_candidate best = heap_pop(s->heap, &n_heap);
        int32_t at = (int32_t)(uint32_t)best.order, next = s->symbols[at].next;
        if (s->symbols[at].id != best.left || next < 0 || s->symbols[next].id != best.right)
            continue;
        join(s->symbols, at, best.joined);
        if (s->symbols[at].prev >= 0)
            consider(b, s, &n_heap, s->symbols[at].prev);
        if (s->symbols[at].next >= 0)
            consider(b, s, &n_heap, at);
    }
}

ckvc_status bpe_encode(const bpe *b, bpe_scratch *scratch, const char *word, size_t n, id_list *out, ckvc_err *err)
{
    if (n == 0)
        return CKVC_OK;
    if (n >= MAX_WORD_BYTES)
        return ckvc_fail(err, CKVC_E_DATA, "text of %zu bytes without a place to split it; at most %d can be tokenised", n,
                         MAX_WORD_BYTES);
    if (b->spec->ignore_merges) {
        int32_t id = piece_id(b, &b->by_word, word, n);
        if (id >= 0)
            return id_list_push(out, id, err);
    }
    ckvc_status status = CKVC_OK;
    if (scratch->symbol_capacity < n) {
        void *symbols = scratch->symbols;
        status = ckvc_grow(&symbols, &scratch->symbol_capacity, n, sizeof *scratch->symbols, err);
        scratch->symbols = symbols;
        if (status != CKVC_OK)
            return status;
    }
    size_t used = b->spec->merge_by_score ? first_scored_symbols(b, scratch, word, n) : first_symbols(b, scratch, word, n);
    assert(used <= n);
    if (used <= SCAN_SYMBOLS) {
        if (used > 1)
            merge_by_scan(b, scratch->symbols, used);
    } else {
        /* n-1 pairs at the start, and each of the at most n-1 joins adds two */
        if (scratch->heap_capacity < 3 * used) {
            void *heap = scratch->heap;
            status = ckvc_grow(&heap, &scratch->heap_capacity, 3 * used, sizeof *scratch->heap, err);
            scratch->heap = heap;
            if (status != CKVC_OK)
                return status;
        }
        merge_by_heap(b, scratch, used);
    }
    bool after_unknown = false;
    for (int32_t i = used ? 0 : -1; i >= 0 && status == CKVC_OK; i = scratch->symbols[i].next) {
        const struct bpe_symbol *symbol = &scratch->symbols[i];
        if (symbol->id >= FIRST_ATOM && b->spec->merge_by_score) {
            const char *text = word + symbol->start;
            status = push_unknown(b, text, symbol_step(b, text, n - (size_t)symbol->start), &after_unknown, out, err);
        } else {
            status = id_list_push(out, symbol->id, err);
            after_unknown = false;
        }
    }
    return status;
}

size_t bpe_part(const bpe *b, const char *text, size_t n)
{
    if (!b->parts)
        return n;
    for (const char *at = text + 1, *end = text + n; at < end; at++) {
        at = memchr(at, METASPACE[0], (size_t)(end - at));
        if (!at)
            break;
        if (starts_with_metaspace(at, (size_t)(end - at)) && !b->crossing[(uint8_t)at[-1]])
            return (size_t)(at - text);
    }
    return n;
}
