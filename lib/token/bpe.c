/* Byte-pair merging. Pieces are found through a table of their bytes, merges by (left id, right
 * id). */
#include "lib/token/bpe.h"

#include <assert.h>

#include "lib/token/bpe_internal.h"

enum {
    MAX_WORD_BYTES = 1 << 30, /* symbol positions are 31-bit */
    /* Symbol of a character that occurs in no piece; the others: FIRST_ATOM. */
    NO_ATOM = INT32_MAX,
    /* Up to here a linear scan for the best pair beats the heap (measured on manuals and code). */
    SCAN_SYMBOLS = 24
};

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
    CKVC_FREE(scratch->symbols, scratch->heap);
    *scratch = (bpe_scratch){0};
}

static void symbol_add(bpe_scratch *s, size_t *n, int32_t id, size_t start) {
    s->symbols[*n] = (struct bpe_symbol){id, (int32_t)*n - 1, (int32_t)*n + 1, (int32_t)start};
    ++*n;
}

/* Whether every byte of a character without a piece has a byte piece that stands in. */
static bool as_bytes(const bpe *b, const char *text, size_t step) {
    bool all = b->spec->byte_fallback && !b->spec->byte_level;
    for (size_t k = 0; all && k < step; k++) { all = b->byte_piece[(uint8_t)text[k]] >= 0; }
    return all;
}

/* Writes the word's smallest symbols; room for n of them is there: pieces that stay whole, then
 * characters. Of those without a piece a run is one symbol under fuse_unk; an unknown symbol waits
 * until the next known one, byte pieces overtake it: the order of the reference implementation.
 * Under merge_by_score they are atoms, and what becomes of them is found out after merging. */
static size_t first_symbols(const bpe *b, bpe_scratch *s, const char *word, size_t n) {
    const token_spec *spec = b->spec;
    size_t used = 0;
    bool waiting = false;
    uint64_t steps = 0; /* pieces are short (MAX_SCORED_BYTES): no limit is needed */
    for (size_t i = 0, step; i < n; i += step) {
        int32_t index, id;
        step = trie_longest(&b->whole, word + i, n - i, &index, &steps);
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

/* A symbol that is no piece: its bytes, or the unknown piece, under fuse_unk once for a run. */
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
    /* The merge of a symbol with its right neighbour is looked up again only when one of them
     * changes. */
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
    for (size_t i = 0; i + 1 < n; i++) { consider(b, s, &n_heap, (int32_t)i); }
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
        /* n-1 pairs at the start, and each of the at most n-1 joins adds two */
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
