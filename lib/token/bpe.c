/* Byte-pair merging. Pieces are found through a table of their bytes, and merges through a table of
 * pairs (left id, right id). */
#include "lib/token/bpe.h"

#include <assert.h>
#include <math.h>

#include "lib/token/bpe_internal.h"

enum {
    MAX_WORD_BYTES = 1 << 30, /* symbol positions are 31-bit */
    /* The symbol of a character that occurs in no piece; for characters that do see FIRST_ATOM. */
    NO_ATOM = INT32_MAX,
    /* For words of up to so many symbols a linear scan for the best pair is faster than the heap
     * (measured on manuals and code). */
    SCAN_SYMBOLS = 24
};

struct bpe_symbol {
    int32_t id;         /* -1: it was joined to the symbol before it */
    int32_t prev, next; /* the neighbours, -1 at the ends */
    int32_t start;      /* under merge_by_score: its first byte in the word */
};

struct bpe_candidate {
    uint64_t order; /* rank << 32 | position; lower goes first */
    /* The ids when it was entered. The entry is stale when the symbols there have changed since. */
    int32_t left, right, joined;
};

void bpe_scratch_fini(bpe_scratch *scratch) {
    CKVC_FREE(scratch->symbols, scratch->heap);
    *scratch = (bpe_scratch){0};
}

static void symbol_add(bpe_scratch *s, size_t *n, int32_t id, size_t start) {
    s->symbols[*n] = (struct bpe_symbol){id, (int32_t)*n - 1, (int32_t)*n + 1, (int32_t)start};
    ++*n;
}

/* Whether every byte of a character that has no piece of its own has a byte piece. */
static bool as_bytes(const bpe *b, const char *text, size_t step) {
    bool all = b->spec->byte_fallback && !b->spec->byte_level;
    for (size_t k = 0; all && k < step; k++) { all = b->byte_piece[(uint8_t)text[k]] >= 0; }
    return all;
}

/* Writes the smallest symbols of a word, for at most n of which there is room: first pieces that
 * stay whole, then characters. Under fuse_unk a run of characters without a piece is one symbol. An
 * unknown symbol waits until the next known one, while byte pieces go ahead of it: this is the
 * order of the reference implementation. Under merge_by_score characters without a piece are atoms,
 * and what becomes of them is decided after merging. */
static size_t first_symbols(const bpe *b, bpe_scratch *s, const char *word, size_t n) {
    const token_spec *spec = b->spec;
    size_t used = 0;
    bool waiting = false;
    uint64_t steps = 0; /* pieces are short (MAX_SCORED_BYTES), so there is no limit */
    for (size_t i = 0, step; i < n; i += step) {
        int32_t index, id;
        step = trie_longest(&b->whole_pieces, word + i, n - i, &index, &steps);
        if (step) {
            id = spec->pieces[index].id;
        } else {
            step = symbol_step(b, word + i, n - i);
            assert(step > 0);
            id = character_id(b, word + i, step);
        }
        if (id < 0 && spec->merge_by_score) {
            const int32_t atom = atom_index(b, word + i, step);
            id = atom < 0 ? NO_ATOM : FIRST_ATOM + atom;
        }
        if (id >= 0) {
            if (waiting) { symbol_add(s, &used, spec->unk_id, i); }
            waiting = false;
            symbol_add(s, &used, id, i);
        } else if (as_bytes(b, word + i, step)) {
            for (size_t k = 0; k < step; k++) {
                symbol_add(s, &used, b->byte_piece[(uint8_t)word[i + k]], i);
            }
        } else if (spec->unk_id >= 0) {
            if (waiting && !spec->fuse_unk) { symbol_add(s, &used, spec->unk_id, i); }
            waiting = true;
        }
    }
    if (waiting) { symbol_add(s, &used, spec->unk_id, n); }
    return used;
}

/* Appends the ids of a symbol that is no piece: those of its bytes, or the unknown piece, which a
 * run gets once under fuse_unk. */
static void push_unknown(const bpe *b, const char *text, size_t step, bool *after_unknown,
                         id_list *out) {
    const token_spec *spec = b->spec;
    const bool bytes = as_bytes(b, text, step);
    for (size_t k = 0; bytes && k < step; k++) {
        id_list_push(out, b->byte_piece[(uint8_t)text[k]]);
    }
    if (!bytes && spec->unk_id >= 0 && !(*after_unknown && spec->fuse_unk)) {
        id_list_push(out, spec->unk_id);
    }
    *after_unknown = !bytes;
}

static void join(struct bpe_symbol *symbols, int32_t at, int32_t joined) {
    int32_t gone = symbols[at].next, after = symbols[gone].next;
    symbols[at].id = joined;
    symbols[at].next = after;
    symbols[gone].id = -1;
    if (after >= 0) { symbols[after].prev = at; }
}

static void merge_by_scan(const bpe *b, struct bpe_symbol *symbols, size_t n) {
    /* The merge of a symbol with its right neighbour is looked up again only when one of them has
     * changed. */
    const merge_slot *pair[SCAN_SYMBOLS];
    for (size_t i = 0; i + 1 < n; i++) {
        pair[i] = merge_find(b, pair_of(symbols[i].id, symbols[i + 1].id));
    }
    for (;;) {
        int32_t best = -1;
        for (int32_t i = 0; i >= 0 && symbols[i].next >= 0; i = symbols[i].next) {
            if (pair[i]->joined >= 0 && (best < 0 || pair[i]->rank < pair[best]->rank)) {
                best = i;
            }
        }
        if (best < 0) { return; }
        join(symbols, best, pair[best]->joined);
        if (symbols[best].next >= 0) {
            pair[best] = merge_find(b, pair_of(symbols[best].id, symbols[symbols[best].next].id));
        }
        if (symbols[best].prev >= 0) {
            pair[symbols[best].prev] =
                merge_find(b, pair_of(symbols[symbols[best].prev].id, symbols[best].id));
        }
    }
}

static void heap_push(struct bpe_candidate *heap, size_t *n, struct bpe_candidate item) {
    size_t at = (*n)++;
    for (; at > 0 && heap[(at - 1) / 2].order > item.order; at = (at - 1) / 2) {
        heap[at] = heap[(at - 1) / 2];
    }
    heap[at] = item;
}

static struct bpe_candidate heap_pop(struct bpe_candidate *heap, size_t *n) {
    struct bpe_candidate top = heap[0], last = heap[--*n];
    size_t at = 0;
    for (size_t child; (child = 2 * at + 1) < *n; at = child) {
        if (child + 1 < *n && heap[child + 1].order < heap[child].order) { child++; }
        if (heap[child].order >= last.order) { break; }
        heap[at] = heap[child];
    }
    heap[at] = last;
    return top;
}

static void push_pair(const bpe *b, bpe_scratch *s, size_t *n_heap, int32_t at) {
    int32_t left = s->symbols[at].id, right = s->symbols[s->symbols[at].next].id;
    const merge_slot *merge = merge_find(b, pair_of(left, right));
    if (merge->joined >= 0) {
        heap_push(s->heap, n_heap,
                  (struct bpe_candidate){(uint64_t)merge->rank << 32 | (uint32_t)at, left, right,
                                         merge->joined});
    }
}

static void merge_by_heap(const bpe *b, bpe_scratch *s, size_t n) {
    size_t n_heap = 0;
    for (size_t i = 0; i + 1 < n; i++) { push_pair(b, s, &n_heap, (int32_t)i); }
    while (n_heap) {
        struct bpe_candidate best = heap_pop(s->heap, &n_heap);
        int32_t at = (int32_t)(uint32_t)best.order, next = s->symbols[at].next;
        if (s->symbols[at].id != best.left || next < 0 || s->symbols[next].id != best.right) {
            continue;
        }
        join(s->symbols, at, best.joined);
        if (s->symbols[at].prev >= 0) { push_pair(b, s, &n_heap, s->symbols[at].prev); }
        if (s->symbols[at].next >= 0) { push_pair(b, s, &n_heap, at); }
    }
}

ckvc_status bpe_encode(const bpe *b, bpe_scratch *scratch, const char *word, size_t n, id_list *out,
                       ckvc_err *err) {
    if (n == 0) { return CKVC_OK; }
    CKVC_FAIL_IF(n >= MAX_WORD_BYTES, err, CKVC_E_DATA,
                 "text of %zu bytes without a place to split it; at most %d can be tokenised", n,
                 MAX_WORD_BYTES);
    if (b->spec->ignore_merges) {
        int32_t id = piece_id(b, &b->by_word, word, n);
        if (id >= 0) {
            id_list_push(out, id);
            return CKVC_OK;
        }
    }
    CKVC_GROW(scratch->symbols, scratch->symbol_capacity, n);
    const size_t used = first_symbols(b, scratch, word, n);
    assert(used <= n);
    if (used == 0) { return CKVC_OK; }
    scratch->symbols[used - 1].next = -1;
    if (used > SCAN_SYMBOLS) {
        /* there are n-1 pairs at the start, and each of the at most n-1 joins adds two */
        CKVC_GROW(scratch->heap, scratch->heap_capacity, 3 * used);
        merge_by_heap(b, scratch, used);
    } else if (used > 1) {
        merge_by_scan(b, scratch->symbols, used);
    }
    bool after_unknown = false;
    for (int32_t i = 0; i >= 0; i = scratch->symbols[i].next) {
        const struct bpe_symbol *symbol = &scratch->symbols[i];
        if (symbol->id >= FIRST_ATOM) {
            const char *text = word + symbol->start;
            push_unknown(b, text, symbol_step(b, text, n - (size_t)symbol->start), &after_unknown,
                         out);
        } else {
            id_list_push(out, symbol->id);
            after_unknown = false;
        }
    }
    return CKVC_OK;
}

size_t bpe_part(const bpe *b, const char *text, size_t n) {
    if (!b->parts) { return n; }
    for (const char *at = text + 1, *end = text + n; at < end; at++) {
        at = memchr(at, TOKEN_SPACE_MARK[0], (size_t)(end - at));
        if (!at) { break; }
        if (starts_with_space_mark(at, (size_t)(end - at)) && !b->crossing[(uint8_t)at[-1]]) {
            return (size_t)(at - text);
        }
    }
    return n;
}

/* The tables that byte-pair merging looks things up in are built from a token_spec. */

CKVC_AUTO_OF(bpe, bpe_free)

/* ---- pieces ---- */

static void piece_map_init(piece_map *map, const token_text *texts, size_t n) {
    size_t capacity = 16;
    while (capacity < n * 2) { capacity *= 2; }
    *map = (piece_map){.key = ckvc_hash_key(),
                       .slots = ckvc_calloc(capacity, sizeof *map->slots),
                       .mask = capacity - 1,
                       .texts = texts};
}

/* Adds a piece. Returns false when its text is there already. */
static bool piece_map_add(piece_map *map, size_t piece) {
    const token_text *text = &map->texts[piece];
    piece_slot *slot = piece_map_slot(map, text->bytes, text->size);
    if (slot->piece) { return false; }
    slot->hash = (uint32_t)(ckvc_xxh64_keyed(text->bytes, text->size, map->key) >> 32);
    slot->piece = (uint32_t)piece + 1;
    return true;
}

static ckvc_status map_pieces(bpe *b, const char *name, ckvc_err *err) {
    const token_spec *spec = b->spec;
    size_t total = 0;
    b->spelled = ckvc_alloc(spec->n_pieces, sizeof *b->spelled);
    piece_map_init(&b->by_spelling, b->spelled, spec->n_pieces);
    for (size_t i = 0; i < spec->n_pieces; i++) {
        b->spelled[i] = spec->pieces[i].text;
        /* all of them are in memory already, so this cannot overflow */
        total += b->spelled[i].size;
        CKVC_FAIL_IF(!piece_map_add(&b->by_spelling, i), err, CKVC_E_DATA,
                     "%s: model.vocab: piece \"%.64s\" stands there twice", name,
                     b->spelled[i].bytes);
    }
    b->by_word = b->by_spelling;
    if (!spec->byte_level) { return CKVC_OK; }
    b->raw = ckvc_calloc(spec->n_pieces, sizeof *b->raw);
    b->raw_bytes = ckvc_alloc(total, 1);
    piece_map_init(&b->by_word, b->raw, spec->n_pieces);
    char *at = b->raw_bytes;
    for (size_t i = 0; i < spec->n_pieces; i++) {
        b->raw[i].bytes = at;
        if (!token_unspell_bytes(b->spelled[i].bytes, b->spelled[i].size, at, &b->raw[i].size)) {
            b->raw[i].size = 0;
        }
        at += b->raw[i].size;
        if (b->raw[i].size) { piece_map_add(&b->by_word, i); /* the alphabet is one to one */ }
    }
    return CKVC_OK;
}

static int hex_digit(char c) {
    return c >= '0' && c <= '9' ? c - '0' : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

static ckvc_status find_byte_pieces(bpe *b, const char *name, ckvc_err *err) {
    const token_spec *spec = b->spec;
    memset(b->byte_piece, -1, sizeof b->byte_piece);
    for (size_t i = 0; i < spec->n_pieces; i++) {
        const token_text *text = &spec->pieces[i].text;
        if (spec->byte_level) {
            if (b->raw[i].size == 1) {
                b->byte_piece[(uint8_t)b->raw[i].bytes[0]] = spec->pieces[i].id;
            }
        } else if (spec->byte_fallback && text->size == 6 && memcmp(text->bytes, "<0x", 3) == 0 &&
                   text->bytes[5] == '>') {
            int high = hex_digit(text->bytes[3]), low = hex_digit(text->bytes[4]);
            CKVC_FAIL_IF(high < 0 || low < 0, err, CKVC_E_DATA,
                         "%s: model.vocab: piece \"%s\" is not a byte; want <0x00> ... <0xFF>",
                         name, text->bytes);
            b->byte_piece[high * 16 + low] = spec->pieces[i].id;
        }
    }
    return CKVC_OK;
}

/* ---- merges that the file lists ---- */

static void merges_init(bpe *b, size_t n) {
    size_t capacity = 16;
    b->merge_shift = 60;
    for (; capacity < n * 2; capacity *= 2) { b->merge_shift--; }
    b->merge_key = ckvc_hash_key();
    b->merges = ckvc_calloc(capacity, sizeof *b->merges);
    b->merge_mask = capacity - 1;
    for (size_t i = 0; i < capacity; i++) { b->merges[i].joined = -1; }
}

static bool is_byte_piece(const bpe *b, int32_t id) {
    for (int i = 0; i < 256; i++) {
        if (b->byte_piece[i] == id) { return true; }
    }
    return false;
}

static ckvc_status add_merge(bpe *b, size_t i, char *joined, const char *name, ckvc_err *err) {
    const token_text *left = &b->spec->merges[i].left, *right = &b->spec->merges[i].right;
    const size_t size = left->size + right->size;
    const int32_t left_id = bpe_piece_id(b, left->bytes, left->size),
                  right_id = bpe_piece_id(b, right->bytes, right->size);
    if (size) {
        memcpy(joined, left->bytes, left->size);
        memcpy(joined + left->size, right->bytes, right->size);
    }
    int32_t joined_id = left_id < 0 || right_id < 0 || !size ? -1 : bpe_piece_id(b, joined, size);
    CKVC_FAIL_IF(
        joined_id < 0, err, CKVC_E_DATA,
        "%s: model.merges[%zu]: \"%.64s %.64s\": %s \"%.64s%.64s\" is not in the vocabulary", name,
        i, left->bytes, right->bytes,
        left_id < 0    ? "left part"
        : right_id < 0 ? "right part"
                       : "the joined piece",
        left_id < 0 || right_id >= 0 ? left->bytes : "", left_id < 0 ? "" : right->bytes);
    merge_slot *slot = merge_find(b, pair_of(left_id, right_id));
    CKVC_FAIL_IF(slot->joined >= 0, err, CKVC_E_DATA,
                 "%s: model.merges[%zu]: \"%.64s %.64s\" stands there already, at %u", name, i,
                 left->bytes, right->bytes, slot->rank);
    *slot = (merge_slot){pair_of(left_id, right_id), (uint32_t)i, joined_id};
    if (starts_with_space_mark(right->bytes, right->size)) {
        b->crossing[(uint8_t)left->bytes[left->size - 1]] = true;
        if (left_id == b->spec->unk_id || is_byte_piece(b, left_id)) {
            b->parts = false; /* such a piece stands for another character than the one it spells */
        }
    }
    return CKVC_OK;
}

static ckvc_status build_merges(bpe *b, const char *name, ckvc_err *err) {
    const token_spec *spec = b->spec;
    size_t longest = 0;
    for (size_t i = 0; i < spec->n_merges; i++) {
        const size_t size = spec->merges[i].left.size + spec->merges[i].right.size;
        longest = size > longest ? size : longest;
    }
    CKVC_AUTO_FREE char *joined = ckvc_alloc(longest, 1);
    merges_init(b, spec->n_merges);
    for (size_t i = 0; i < spec->n_merges; i++) { CKVC_TRY(add_merge(b, i, joined, name, err)); }
    return CKVC_OK;
}

/* ---- merges that follow from the pieces and their scores ---- */

typedef struct merge_list {
    merge_slot *items;
    size_t n, capacity;
} merge_list;

static void merge_list_fini(merge_list *list) { free(list->items); }

/* The symbol of one character or byte of a piece; it is an atom when it has no piece of its own. */
static ckvc_status symbol_of_character(bpe *b, char *text, size_t n, int32_t *id, ckvc_err *err) {
    /* vocabularies contain the characters of their pieces, so atoms are few and searched one by
     * one */
    enum { MAX_ATOMS = 256 };
    *id = character_id(b, text, n);
    if (*id >= 0) { return CKVC_OK; }
    int32_t atom = atom_index(b, text, n);
    if (atom < 0) {
        CKVC_FAIL_IF(b->n_atoms == MAX_ATOMS, err, CKVC_E_DATA,
                     "tokenizer: more than %d characters of pieces are no pieces themselves",
                     MAX_ATOMS);
        CKVC_GROW(b->atoms, b->atom_capacity, b->n_atoms + 1);
        atom = (int32_t)b->n_atoms;
        b->atoms[b->n_atoms++] = (token_text){text, n};
    }
    *id = FIRST_ATOM + atom;
    return CKVC_OK;
}

/* Finds the id of a half of a piece: of one character, or of a piece that merging makes. -1: it is
 * neither. */
static ckvc_status half_id(bpe *b, char *text, size_t n, int32_t *id, ckvc_err *err) {
    if (symbol_step(b, text, n) == n) { return symbol_of_character(b, text, n, id, err); }
    const uint32_t piece = piece_map_slot(&b->by_word, text, n)->piece;
    const token_piece *found = piece ? &b->spec->pieces[piece - 1] : NULL;
    *id = found && found->kind == TOKEN_PIECE_NORMAL ? found->id : -1;
    return CKVC_OK;
}

/* A number that is lower for a higher score, and equal for equal scores, so that among equal pairs
 * the leftmost goes first. It is made of the bits of the float. */
static uint32_t rank_of(float score) {
    uint32_t bits;
    score += 0.0f; /* makes -0 to 0 */
    memcpy(&bits, &score, sizeof bits);
    return bits >> 31 ? bits : ~bits & 0x7FFFFFFF;
}

/* Appends to list the pairs of halves of one piece. */
static ckvc_status add_halves(bpe *b, size_t i, merge_list *list, const char *name, ckvc_err *err) {
    const token_piece *piece = &b->spec->pieces[i];
    char *text = b->by_word.texts[i].bytes;
    const size_t size = b->by_word.texts[i].size;
    CKVC_FAIL_IF(size > MAX_SCORED_BYTES, err, CKVC_E_DATA,
                 "%s: piece %zu has %zu bytes; at most %d can be merged by score", name, i, size,
                 MAX_SCORED_BYTES);
    for (size_t at = 0, step; at < size; at += step) {
        step = symbol_step(b, text + at, size - at);
        CKVC_FAIL_IF(step == 0, err, CKVC_E_DATA, "%s: piece %zu is not UTF-8 at its byte %zu",
                     name, i, at);
        if (at == 0) { continue; }
        if (starts_with_space_mark(text + at, size - at)) {
            b->crossing[(uint8_t)text[at - 1]] = true;
        }
        int32_t left = -1, right = -1;
        if (piece->kind == TOKEN_PIECE_NORMAL) { CKVC_TRY(half_id(b, text, at, &left, err)); }
        if (left >= 0) { CKVC_TRY(half_id(b, text + at, size - at, &right, err)); }
        if (right < 0) { continue; }
        CKVC_GROW(list->items, list->capacity, list->n + 1);
        list->items[list->n++] =
            (merge_slot){pair_of(left, right), rank_of(piece->score), piece->id};
    }
    return CKVC_OK;
}

static ckvc_status build_score_merges(bpe *b, const char *name, ckvc_err *err) {
    const token_spec *spec = b->spec;
    CKVC_AUTO(merge_list_fini) merge_list list = {0};
    for (size_t i = 0; i < spec->n_pieces; i++) {
        const token_text *text = &b->by_word.texts[i];
        CKVC_FAIL_IF(isnan(spec->pieces[i].score), err, CKVC_E_DATA,
                     "%s: piece %zu, \"%.64s\": its score is not a number", name, i,
                     spec->pieces[i].text.bytes);
        if (spec->pieces[i].kind == TOKEN_PIECE_RESERVED) { continue; }
        CKVC_TRY(add_halves(b, i, &list, name, err));
        if (spec->pieces[i].kind == TOKEN_PIECE_WHOLE && text->size) {
            trie_add(&b->whole_pieces, text->bytes, text->size, (int32_t)i);
        }
    }
    merges_init(b, list.n);
    for (size_t i = 0; i < list.n; i++) { /* pieces and halves are distinct, and so are the pairs */
        *merge_find(b, list.items[i].pair) = list.items[i];
    }
    return CKVC_OK;
}

ckvc_status bpe_build(const token_spec *spec, const char *name, bpe **out, ckvc_err *err) {
    CKVC_AUTO(bpe_free_at) bpe *b = ckvc_calloc(1, sizeof *b);
    *out = NULL;
    b->spec = spec;
    CKVC_TRY(map_pieces(b, name, err));
    CKVC_TRY(find_byte_pieces(b, name, err));
    for (int c = 0; c < 128; c++) { b->ascii[c] = bpe_piece_id(b, &(char){(char)c}, 1); }
    b->parts = !spec->byte_level && !spec->ignore_merges &&
               bpe_piece_id(b, TOKEN_SPACE_MARK, strlen(TOKEN_SPACE_MARK)) >= 0;
    CKVC_TRY(spec->merge_by_score ? build_score_merges(b, name, err) : build_merges(b, name, err));
    *out = ckvc_take(&b);
    return CKVC_OK;
}

void bpe_free(bpe *b) {
    if (!b) { return; }
    if (b->by_word.slots != b->by_spelling.slots) { free(b->by_word.slots); }
    CKVC_FREE(b->by_spelling.slots, b->raw, b->raw_bytes, b->spelled, b->merges, b->atoms);
    trie_fini(&b->whole_pieces);
    free(b);
}

int32_t bpe_piece_id(const bpe *b, const char *text, size_t n) {
    return piece_id(b, &b->by_spelling, text, n);
}
