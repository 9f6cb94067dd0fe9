/* From a token_spec to the tables that byte-pair merging looks things up in. */
#include <stdlib.h>
#include <string.h>

#include "lib/base/memory.h"
#include "lib/token/bpe_internal.h"

static ckvc_status piece_map_init(piece_map *map, const token_text *texts, size_t n,
                                  ckvc_err *err) {
    size_t capacity = 16;
    while (capacity < n * 2) {
        capacity *= 2;
    }
    map->slots = ckvc_calloc(capacity, sizeof *map->slots);
    map->mask = capacity - 1;
    map->key = ckvc_hash_key();
    map->texts = texts;
    return map->slots ? CKVC_OK
                      : ckvc_fail_memory(err, "tokenizer pieces", capacity * sizeof *map->slots);
}

/* False when the text is there already. */
static bool piece_map_add(piece_map *map, size_t piece) {
    const token_text *text = &map->texts[piece];
    piece_slot *slot = piece_map_slot(map, text->bytes, text->size);
    if (slot->piece) { return false; }
    slot->hash = (uint32_t)(ckvc_xxh64_keyed(text->bytes, text->size, map->key) >> 32);
    slot->piece = (uint32_t)piece + 1;
    return true;
}

static ckvc_status build_raw(bpe *b, ckvc_err *err) {
    const token_spec *spec = b->spec;
    size_t total = 1;
    for (size_t i = 0; i < spec->n_pieces; i++) {
        total += spec->pieces[i].text.size; /* all of them are in memory already: no overflow */
    }
    b->raw = ckvc_calloc(spec->n_pieces, sizeof *b->raw);
    b->raw_bytes = ckvc_alloc(total, 1);
    char *at = b->raw_bytes;
    for (size_t i = 0; i < spec->n_pieces; i++) {
        const token_text *text = &spec->pieces[i].text;
        b->raw[i].bytes = at;
        if (token_unspell_bytes(text->bytes, text->size, at, &b->raw[i].size)) {
            at += b->raw[i].size;
        } else {
            b->raw[i].size = 0;
        }
    }
    return CKVC_OK;
}

static int hex_digit(char c) {
    return c >= '0' && c <= '9' ? c - '0' : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

static ckvc_status find_byte_pieces(bpe *b, const char *name, ckvc_err *err) {
    const token_spec *spec = b->spec;
    for (int i = 0; i < 256; i++) {
        b->byte_piece[i] = -1;
    }
    for (size_t i = 0; i < spec->n_pieces; i++) {
        const token_text *text = &spec->pieces[i].text;
        if (spec->byte_level) {
            if (b->raw[i].size == 1) {
                b->byte_piece[(uint8_t)b->raw[i].bytes[0]] = spec->pieces[i].id;
            }
        } else if (spec->byte_fallback && text->size == 6 && memcmp(text->bytes, "<0x", 3) == 0 &&
                   text->bytes[5] == '>') {
            int high = hex_digit(text->bytes[3]), low = hex_digit(text->bytes[4]);
            if (high < 0 || low < 0) {
                return ckvc_fail(
                    err, CKVC_E_DATA,
                    "%s: model.vocab: piece \"%s\" is not a byte; want <0x00> ... <0xFF>", name,
                    text->bytes);
            }
            b->byte_piece[high * 16 + low] = spec->pieces[i].id;
        }
    }
    return CKVC_OK;
}

static ckvc_status merges_init(bpe *b, size_t n, ckvc_err *err) {
    size_t capacity = 16;
    b->merge_shift = 60;
    for (; capacity < n * 2; capacity *= 2) {
        b->merge_shift--;
    }
    b->merge_key = ckvc_hash_key();
    b->merges = ckvc_calloc(capacity, sizeof *b->merges);
    b->merge_mask = capacity - 1;
    for (size_t i = 0; i < capacity; i++) {
        b->merges[i].joined = -1;
    }
    return CKVC_OK;
}

static bool is_byte_piece(const bpe *b, int32_t id) {
    for (int i = 0; i < 256; i++) {
        if (b->byte_piece[i] == id) { return true; }
    }
    return false;
}

static ckvc_status build_merges(bpe *b, const char *name, ckvc_err *err) {
    const token_spec *spec = b->spec;
    char *joined = NULL;
    size_t room = 0;
    ckvc_status status = merges_init(b, spec->n_merges, err);
    for (size_t i = 0; i < spec->n_merges && status == CKVC_OK; i++) {
        const token_text *left = &spec->merges[i].left, *right = &spec->merges[i].right;
        int32_t left_id = bpe_piece_id(b, left->bytes, left->size),
                right_id = bpe_piece_id(b, right->bytes, right->size);
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
        int32_t joined_id =
            left_id < 0 || right_id < 0 || !size ? -1 : bpe_piece_id(b, joined, size);
        if (joined_id < 0) {
            status = ckvc_fail(err, CKVC_E_DATA,
                               "%s: model.merges[%zu]: \"%.64s %.64s\": %s \"%.64s%.64s\" is not "
                               "in the vocabulary",
                               name, i, left->bytes, right->bytes,
                               left_id < 0    ? "left part"
                               : right_id < 0 ? "right part"
                                              : "the joined piece",
                               left_id < 0 || right_id >= 0 ? left->bytes : "",
                               left_id < 0 ? "" : right->bytes);
            break;
        }
        merge_slot *slot = merge_find(b, pair_of(left_id, right_id));
        if (slot->joined >= 0) {
            status = ckvc_fail(err, CKVC_E_DATA,
                               "%s: model.merges[%zu]: \"%.64s %.64s\" stands there already, at %u",
                               name, i, left->bytes, right->bytes, slot->rank);
        }
        *slot = (merge_slot){pair_of(left_id, right_id), (uint32_t)i, joined_id};
        if (starts_with_metaspace(right->bytes, right->size)) {
            b->crossing[(uint8_t)left->bytes[left->size - 1]] = true;
            if (left_id == spec->unk_id || is_byte_piece(b, left_id)) {
                b->parts = false; /* such a piece stands for another character than it spells */
            }
        }
    }
    free(joined);
    return status;
}

/* ---- merges that follow from the pieces and their scores ---- */
static int32_t piece_index(const piece_map *map, const char *text, size_t n) {
    const piece_slot *slot = piece_map_slot(map, text, n);
    return (int32_t)slot->piece - 1;
}

/* The symbol of one character or byte of a piece, an atom when it has no piece. */
static ckvc_status symbol_of_character(bpe *b, const char *text, size_t n, int32_t *id,
                                       ckvc_err *err) {
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
    enum {
        MAX_ATOMS = 256
    }; /* a vocabulary holds the characters of its pieces; they are searched one by one */
    if (b->n_atoms == MAX_ATOMS) {
        return ckvc_fail(err, CKVC_E_DATA,
                         "tokenizer: more than %d characters of pieces are no pieces themselves",
                         MAX_ATOMS);
    }
    void *atoms = b->atoms;
    ckvc_status status =
        ckvc_grow(&atoms, &b->atom_capacity, b->n_atoms + 1, sizeof *b->atoms, err);
    b->atoms = atoms;
    if (status == CKVC_OK) {
        *id = FIRST_ATOM + (int32_t)b->n_atoms;
        b->atoms[b->n_atoms++] = (token_text){(char *)(uintptr_t)text, n};
    }
    return status;
}

/* A half of a piece: one character, or a piece that merging makes. -1: neither. */
static ckvc_status half_id(bpe *b, const char *text, size_t n, int32_t *id, ckvc_err *err) {
    if (symbol_step(b, text, n) == n) { return symbol_of_character(b, text, n, id, err); }
    int32_t index = piece_index(&b->by_word, text, n);
    *id = index >= 0 && b->spec->pieces[index].kind == TOKEN_PIECE_NORMAL
              ? b->spec->pieces[index].id
              : -1;
    return CKVC_OK;
}

static int descending(const void *a, const void *b) {
    const float x = *(const float *)a, y = *(const float *)b;
    return x > y ? -1 : x < y;
}

/* Pieces of one score share a rank, so that the leftmost of their pairs goes first. */
static ckvc_status score_ranks(const bpe *b, const char *name, uint32_t **out, ckvc_err *err) {
    const token_spec *spec = b->spec;
    float *scores = ckvc_alloc(spec->n_pieces, sizeof *scores);
    uint32_t *ranks = ckvc_alloc(spec->n_pieces, sizeof *ranks);
    *out = ranks;
    ckvc_status status = scores && ranks ? CKVC_OK
                                         : ckvc_fail_memory(err, "tokenizer scores",
                                                            spec->n_pieces * sizeof *scores);
    size_t distinct = 0;
    for (size_t i = 0; i < spec->n_pieces && status == CKVC_OK; i++) {
        scores[i] = spec->pieces[i].score;
        if (scores[i] != scores[i]) {
            status =
                ckvc_fail(err, CKVC_E_DATA, "%s: piece %zu, \"%.64s\": its score is not a number",
                          name, i, spec->pieces[i].text.bytes);
        }
    }
    if (status == CKVC_OK) { qsort(scores, spec->n_pieces, sizeof *scores, descending); }
    for (size_t i = 0; i < spec->n_pieces && status == CKVC_OK; i++) {
        if (i == 0 || scores[i] != scores[distinct - 1]) { scores[distinct++] = scores[i]; }
    }
    for (size_t i = 0; i < spec->n_pieces && status == CKVC_OK; i++) {
        const float *found =
            bsearch(&spec->pieces[i].score, scores, distinct, sizeof *scores, descending);
        ranks[i] = (uint32_t)(found - scores);
    }
    free(scores);
    return status;
}

/* Pairs of halves of one piece, appended to list. */
static ckvc_status add_halves(bpe *b, size_t piece, uint32_t rank, const char *name, void **list,
                              size_t *n, size_t *capacity, ckvc_err *err) {
    const token_text *text = &b->by_word.texts[piece];
    if (text->size > MAX_SCORED_BYTES) {
        return ckvc_fail(err, CKVC_E_DATA,
                         "%s: piece %zu has %zu bytes; at most %d can be merged by score", name,
                         piece, text->size, MAX_SCORED_BYTES);
    }
    ckvc_status status = CKVC_OK;
    size_t step;
    for (size_t at = 0; at < text->size && status == CKVC_OK; at += step) {
        step = symbol_step(b, text->bytes + at, text->size - at);
        if (step == 0) {
            return ckvc_fail(err, CKVC_E_DATA, "%s: piece %zu is not UTF-8 at its byte %zu", name,
                             piece, at);
        }
        if (at > 0 && starts_with_metaspace(text->bytes + at, text->size - at)) {
            b->crossing[(uint8_t)text->bytes[at - 1]] = true;
        }
        int32_t left = -1, right = -1;
        if (at > 0 && b->spec->pieces[piece].kind == TOKEN_PIECE_NORMAL) {
            status = half_id(b, text->bytes, at, &left, err);
        }
        if (status == CKVC_OK && left >= 0) {
            status = half_id(b, text->bytes + at, text->size - at, &right, err);
        }
        if (status != CKVC_OK || right < 0) { continue; }
        status = ckvc_grow(list, capacity, *n + 1, sizeof(merge_slot), err);
        if (status == CKVC_OK) {
            ((merge_slot *)*list)[(*n)++] =
                (merge_slot){pair_of(left, right), rank, b->spec->pieces[piece].id};
        }
    }
    return status;
}

static ckvc_status build_score_merges(bpe *b, const char *name, ckvc_err *err) {
    const token_spec *spec = b->spec;
    uint32_t *ranks;
    void *list = NULL;
    size_t n = 0, capacity = 0, whole_bytes = 0;
    ckvc_status status = score_ranks(b, name, &ranks, err);
    for (size_t i = 0; i < spec->n_pieces && status == CKVC_OK; i++) {
        if (spec->pieces[i].kind == TOKEN_PIECE_WHOLE) { whole_bytes += b->by_word.texts[i].size; }
        if (spec->pieces[i].kind != TOKEN_PIECE_RESERVED) {
            status = add_halves(b, i, ranks[i], name, &list, &n, &capacity, err);
        }
    }
    if (status == CKVC_OK) {
        status = trie_init(&b->whole, whole_bytes, "user-defined pieces", err);
    }
    for (size_t i = 0; i < spec->n_pieces && status == CKVC_OK; i++) {
        if (spec->pieces[i].kind == TOKEN_PIECE_WHOLE && b->by_word.texts[i].size) {
            trie_add(&b->whole, b->by_word.texts[i].bytes, b->by_word.texts[i].size, (int32_t)i);
        }
    }
    if (status == CKVC_OK) { status = merges_init(b, n, err); }
    for (size_t i = 0; i < n && status == CKVC_OK; i++) {
        const merge_slot *merge = &((merge_slot *)list)[i];
        *merge_find(b, merge->pair) =
            *merge; /* pieces and their halves are distinct, so are the pairs */
    }
    free(list);
    free(ranks);
    return status;
}

ckvc_status bpe_build(const token_spec *spec, const char *name, bpe **out, ckvc_err *err) {
    *out = NULL;
    bpe *b = ckvc_calloc(1, sizeof *b);
    b->spec = spec;
    ckvc_status status = CKVC_OK;
    b->spelled = ckvc_alloc(spec->n_pieces, sizeof *b->spelled);
    for (size_t i = 0; status == CKVC_OK && i < spec->n_pieces; i++) {
        b->spelled[i] = spec->pieces[i].text;
    }
    if (status == CKVC_OK) {
        status = piece_map_init(&b->by_spelling, b->spelled, spec->n_pieces, err);
    }
    for (size_t i = 0; status == CKVC_OK && i < spec->n_pieces; i++) {
        if (!piece_map_add(&b->by_spelling, i)) {
            status =
                ckvc_fail(err, CKVC_E_DATA, "%s: model.vocab: piece \"%.64s\" stands there twice",
                          name, b->spelled[i].bytes);
        }
    }
    if (status == CKVC_OK && spec->byte_level) {
        status = build_raw(b, err);
        if (status == CKVC_OK) {
            status = piece_map_init(&b->by_word, b->raw, spec->n_pieces, err);
        }
        for (size_t i = 0; status == CKVC_OK && i < spec->n_pieces; i++) {
            if (b->raw[i].size) {
                piece_map_add(&b->by_word, i); /* the alphabet is one to one: no duplicates */
            }
        }
    } else if (status == CKVC_OK) {
        b->by_word = b->by_spelling;
    }
    if (status == CKVC_OK) { status = find_byte_pieces(b, name, err); }
    b->parts = !spec->byte_level && !spec->ignore_merges;
    if (status == CKVC_OK) {
        status =
            spec->merge_by_score ? build_score_merges(b, name, err) : build_merges(b, name, err);
    }
    if (status == CKVC_OK && b->parts) {
        b->parts = bpe_piece_id(b, METASPACE, METASPACE_BYTES) >= 0;
    }
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

void bpe_free(bpe *b) {
    if (!b) { return; }
    if (b->by_word.slots != b->by_spelling.slots) { free(b->by_word.slots); }
    free(b->by_spelling.slots);
    free(b->raw);
    free(b->raw_bytes);
    free(b->spelled);
    free(b->merges);
    free(b->atoms);
    trie_fini(&b->whole);
    free(b);
}

int32_t bpe_piece_id(const bpe *b, const char *text, size_t n) {
    return piece_id(b, &b->by_spelling, text, n);
}
