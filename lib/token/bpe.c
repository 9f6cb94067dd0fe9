/* Byte-pair merging. Pieces are found through a hash table of their bytes, merges through one of
 * (left id, right id). */
#include "lib/token/bpe.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/memory.h"
#include "lib/base/utf8.h"
#include "lib/token/bpe_internal.h"

enum {
    MAX_WORD_BYTES = 1 << 30, /* symbol positions are 31-bit */
    NO_ATOM = INT32_MAX, /* symbol of a character that occurs in no piece; the others: FIRST_ATOM */
    SCAN_SYMBOLS = 24    /* up to here a linear scan for the best pair beats the heap (measured on
                            manuals and code) */
};

ckvc_status id_list_push(id_list *list, int32_t id, ckvc_err *err) {
    if (list->n == list->capacity) {
        void *ids = list->ids;
        ckvc_status status = ckvc_grow(&ids, &list->capacity, list->n + 1, sizeof *list->ids, err);
        list->ids = ids;
        if (status != CKVC_OK) { return status; }
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

void bpe_scratch_fini(bpe_scratch *scratch) {
    free(scratch->symbols);
    free(scratch->heap);
    *scratch = (bpe_scratch){0};
}

static void symbol_add(bpe_scratch *s, size_t *n, int32_t id) {
    s->symbols[*n] = (struct bpe_symbol){id, (int32_t)*n - 1, (int32_t)*n + 1, 0};
    ++*n;
}

/* Writes the word's smallest symbols; room for n of them is there. A run of unknown characters is
 * one symbol under fuse_unk. An unknown symbol waits until the next known one, byte pieces overtake
 * it: the order of the reference implementation. */
static size_t first_symbols(const bpe *b, bpe_scratch *s, const char *word, size_t n) {
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
            if (waiting) { symbol_add(s, &used, spec->unk_id); }
            waiting = false;
            symbol_add(s, &used, id);
            i += step;
            continue;
        }
        bool as_bytes = spec->byte_fallback && !spec->byte_level;
        for (size_t k = 0; as_bytes && k < step; k++) {
            as_bytes = b->byte_piece[(uint8_t)word[i + k]] >= 0;
        }
        for (size_t k = 0; as_bytes && k < step; k++) {
            symbol_add(s, &used, b->byte_piece[(uint8_t)word[i + k]]);
        }
        if (!as_bytes && spec->unk_id >= 0) {
            if (waiting && !spec->fuse_unk) { symbol_add(s, &used, spec->unk_id); }
            waiting = true;
        }
        i += step;
    }
    if (waiting) { symbol_add(s, &used, spec->unk_id); }
    if (used) { s->symbols[used - 1].next = -1; }
    return used;
}

/* The same under merge_by_score: pieces that stay whole, then characters, with a piece or without.
 */
static size_t first_scored_symbols(const bpe *b, bpe_scratch *s, const char *word, size_t n) {
    size_t used = 0;
    uint64_t steps = 0; /* pieces are short (MAX_SCORED_BYTES): no limit is needed */
    for (size_t i = 0, step; i < n; i += step) {
        int32_t index = -1, id = -1;
        step = b->whole.first[(uint8_t)word[i]]
                   ? trie_longest(&b->whole, word + i, n - i, &index, &steps)
                   : 0;
        if (step) {
            id = b->spec->pieces[index].id;
        } else {
            step = symbol_step(b, word + i, n - i);
            assert(step > 0);
            id = b->spec->byte_level ? b->byte_piece[(uint8_t)word[i]]
                 : step == 1         ? b->ascii[(uint8_t)word[i]]
                                     : piece_id(b, &b->by_word, word + i, step);
            for (size_t k = 0; id < 0 && k < b->n_atoms; k++) {
                if (b->atoms[k].size == step && memcmp(b->atoms[k].bytes, word + i, step) == 0) {
                    id = FIRST_ATOM + (int32_t)k;
                }
            }
            id = id < 0 ? NO_ATOM : id;
        }
        symbol_add(s, &used, id);
        s->symbols[used - 1].start = (int32_t)i;
    }
    if (used) { s->symbols[used - 1].next = -1; }
    return used;
}

/* A symbol that is no piece: its bytes, or the unknown piece, once for a run of them under
 * fuse_unk. */
static ckvc_status push_unknown(const bpe *b, const char *text, size_t step, bool *after_unknown,
                                id_list *out, ckvc_err *err) {
    const token_spec *spec = b->spec;
    bool as_bytes = spec->byte_fallback && !spec->byte_level;
    for (size_t k = 0; as_bytes && k < step; k++) {
        as_bytes = b->byte_piece[(uint8_t)text[k]] >= 0;
    }
    ckvc_status status = CKVC_OK;
    for (size_t k = 0; as_bytes && k < step && status == CKVC_OK; k++) {
        status = id_list_push(out, b->byte_piece[(uint8_t)text[k]], err);
    }
    if (!as_bytes && spec->unk_id >= 0 && !(*after_unknown && spec->fuse_unk)) {
        status = id_list_push(out, spec->unk_id, err);
    }
    *after_unknown = !as_bytes;
    return status;
}

static void join(struct bpe_symbol *symbols, int32_t at, int32_t joined) {
    int32_t gone = symbols[at].next, after = symbols[gone].next;
    symbols[at].id = joined;
    symbols[at].next = after;
    symbols[gone].id = -1;
    if (after >= 0) { symbols[after].prev = at; }
}

static void merge_by_scan(const bpe *b, struct bpe_symbol *symbols, size_t n) {
    /* The merge of each symbol with its right neighbour is looked up once and again only when one
     * of the two changes. */
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

static void consider(const bpe *b, bpe_scratch *s, size_t *n_heap, int32_t at) {
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
    for (size_t i = 0; i + 1 < n; i++) {
        consider(b, s, &n_heap, (int32_t)i);
    }
    while (n_heap) {
        struct bpe_candidate best = heap_pop(s->heap, &n_heap);
        int32_t at = (int32_t)(uint32_t)best.order, next = s->symbols[at].next;
        if (s->symbols[at].id != best.left || next < 0 || s->symbols[next].id != best.right) {
            continue;
        }
        join(s->symbols, at, best.joined);
        if (s->symbols[at].prev >= 0) { consider(b, s, &n_heap, s->symbols[at].prev); }
        if (s->symbols[at].next >= 0) { consider(b, s, &n_heap, at); }
    }
}

ckvc_status bpe_encode(const bpe *b, bpe_scratch *scratch, const char *word, size_t n, id_list *out,
                       ckvc_err *err) {
    if (n == 0) { return CKVC_OK; }
    if (n >= MAX_WORD_BYTES) {
        return ckvc_fail(
            err, CKVC_E_DATA,
            "text of %zu bytes without a place to split it; at most %d can be tokenised", n,
            MAX_WORD_BYTES);
    }
    if (b->spec->ignore_merges) {
        int32_t id = piece_id(b, &b->by_word, word, n);
        if (id >= 0) { return id_list_push(out, id, err); }
    }
    ckvc_status status = CKVC_OK;
    if (scratch->symbol_capacity < n) {
        void *symbols = scratch->symbols;
        status = ckvc_grow(&symbols, &scratch->symbol_capacity, n, sizeof *scratch->symbols, err);
        scratch->symbols = symbols;
        if (status != CKVC_OK) { return status; }
    }
    size_t used = b->spec->merge_by_score ? first_scored_symbols(b, scratch, word, n)
                                          : first_symbols(b, scratch, word, n);
    assert(used <= n);
    if (used <= SCAN_SYMBOLS) {
        if (used > 1) { merge_by_scan(b, scratch->symbols, used); }
    } else {
        /* n-1 pairs at the start, and each of the at most n-1 joins adds two */
        if (scratch->heap_capacity < 3 * used) {
            void *heap = scratch->heap;
            status =
                ckvc_grow(&heap, &scratch->heap_capacity, 3 * used, sizeof *scratch->heap, err);
            scratch->heap = heap;
            if (status != CKVC_OK) { return status; }
        }
        merge_by_heap(b, scratch, used);
    }
    bool after_unknown = false;
    for (int32_t i = used ? 0 : -1; i >= 0 && status == CKVC_OK; i = scratch->symbols[i].next) {
        const struct bpe_symbol *symbol = &scratch->symbols[i];
        if (symbol->id >= FIRST_ATOM && b->spec->merge_by_score) {
            const char *text = word + symbol->start;
            status = push_unknown(b, text, symbol_step(b, text, n - (size_t)symbol->start),
                                  &after_unknown, out, err);
        } else {
            status = id_list_push(out, symbol->id, err);
            after_unknown = false;
        }
    }
    return status;
}

size_t bpe_part(const bpe *b, const char *text, size_t n) {
    if (!b->parts) { return n; }
    for (const char *at = text + 1, *end = text + n; at < end; at++) {
        at = memchr(at, METASPACE[0], (size_t)(end - at));
        if (!at) { break; }
        if (starts_with_metaspace(at, (size_t)(end - at)) && !b->crossing[(uint8_t)at[-1]]) {
            return (size_t)(at - text);
        }
    }
    return n;
}
