/* Set-similarity search with prefix filtering: see near_duplicates.h. */
#include "corpus/leaks/near_duplicates.h"

#include <assert.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/memory.h"

enum { MAX_SHINGLES = 1 << 30, DISTINCT_BITS = 1 << 17 };

typedef struct shingle { /* one of the collection */
    uint64_t hash;
    uint32_t texts;         /* that have it */
    uint32_t first_posting; /* texts in whose prefix it stands: postings[first_posting ... +
                               n_postings) */
    uint32_t n_postings;
} shingle;

typedef struct set {
    size_t begin; /* in hashes */
    uint32_t n;
} set;

struct near_index {
    double threshold;
    uint64_t *hashes; /* of all texts, each text's ascending and distinct */
    size_t n_hashes, cap_hashes;
    set *sets;
    size_t n_sets, cap_sets;
    shingle *slots; /* open addressing; texts 0: free */
    uint64_t *bits;
    size_t slot_mask, bit_mask;
    uint32_t *postings;
    uint32_t *seen; /* [n_sets] number of the search that compared it last */
    uint32_t search;
    /* of the text in hand */
    uint64_t *query, *order, *distinct_bits;
    size_t cap_query, cap_order;
};

static size_t mixed(uint64_t h) {
    h ^= h >> 32;
    h *= 0xD6E8FEB86659FD93u;
    return (size_t)(h ^ h >> 32);
}

static int by_hash(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static size_t distinct(uint64_t *v, size_t n) {
    size_t kept = 0;
    qsort(v, n, sizeof *v, by_hash);
    for (size_t i = 0; i < n; i++) {
        if (i == 0 || v[i] != v[kept - 1]) { v[kept++] = v[i]; }
    }
    return kept;
}

/* ceil(t * n), never too large by rounding: a prefix may be longer than needed, not shorter. */
static size_t share_of(double t, size_t n) {
    double least = ceil(t * (double)n - 1e-9 * (double)n);
    return least < 1 ? 1 : (size_t)least;
}

ckvc_status near_index_create(double threshold, near_index **out, ckvc_err *err) {
    assert(threshold > 0 && threshold <= 1);
    *out = ckvc_calloc(1, sizeof **out);
    if (!*out) { return ckvc_fail_memory(err, "an index of shingles", sizeof **out); }
    (*out)->threshold = threshold;
    if (!((*out)->distinct_bits = ckvc_alloc(DISTINCT_BITS / 64, sizeof(uint64_t)))) {
        near_index_free(*out);
        *out = NULL;
        return ckvc_fail_memory(err, "an index of shingles", DISTINCT_BITS / 8);
    }
    return CKVC_OK;
}

void near_index_free(near_index *x) {
    if (!x) { return; }
    free(x->hashes);
    free(x->sets);
    free(x->slots);
    free(x->bits);
    free(x->postings);
    free(x->seen);
    free(x->query);
    free(x->order);
    free(x->distinct_bits);
    free(x);
}

ckvc_status near_index_add(near_index *x, const word_list *w, size_t first, size_t count,
                           ckvc_err *err) {
    size_t n = count >= NEAR_SHINGLE ? count - NEAR_SHINGLE + 1 : 0;
    void *hashes = x->hashes, *sets = x->sets;
    ckvc_status st =
        ckvc_grow(&hashes, &x->cap_hashes, x->n_hashes + n + 1, sizeof *x->hashes, err);
    x->hashes = hashes;
    if (st == CKVC_OK) {
        st = ckvc_grow(&sets, &x->cap_sets, x->n_sets + 1, sizeof *x->sets, err);
        x->sets = sets;
    }
    if (st != CKVC_OK) { return st; }
    uint64_t *mine = x->hashes + x->n_hashes;
    words_gram_hashes(w, first, count, NEAR_SHINGLE, mine);
    n = distinct(mine, n);
    x->sets[x->n_sets++] = (set){x->n_hashes, (uint32_t)n};
    x->n_hashes += n;
    return x->n_hashes <= MAX_SHINGLES
               ? CKVC_OK
               : ckvc_fail(err, CKVC_E_DATA, "more than %d shingles; compare in parts",
                           MAX_SHINGLES);
}

/* The shingle's slot, or the free one where it would stand. */
static shingle *slot_of(const near_index *x, uint64_t hash) {
    size_t s = mixed(hash) & x->slot_mask;
    while (x->slots[s].texts && x->slots[s].hash != hash) {
        s = (s + 1) & x->slot_mask;
    }
    return &x->slots[s];
}

static uint32_t texts_with(const near_index *x, uint64_t hash) {
    size_t bit = mixed(hash) & x->bit_mask;
    return x->bits[bit >> 6] >> (bit & 63) & 1 ? slot_of(x, hash)->texts : 0;
}

static int by_rarity(const void *a, const void *b, void *ctx) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    uint32_t n = texts_with(ctx, x), m = texts_with(ctx, y);
    return n != m ? (n < m ? -1 : 1) : (x > y) - (x < y);
}

/* order: the set's shingles, rarest first; returns how many of them the prefix has. */
static size_t prefix_of(near_index *x, const uint64_t *hashes, size_t n) {
    memcpy(x->order, hashes, n * sizeof *hashes);
    qsort_r(x->order, n, sizeof *x->order, by_rarity, x);
    return n - share_of(x->threshold, n) + 1;
}

ckvc_status near_index_build(near_index *x, ckvc_err *err) {
    size_t n_slots = 64, n_bits = 1024, longest = 1, n_postings = 0;
    while (n_slots < x->n_hashes * 2) {
        n_slots *= 2;
    }
    while (n_bits < x->n_hashes * 16) {
        n_bits *= 2;
    }
    x->slot_mask = n_slots - 1;
    x->bit_mask = n_bits - 1;
    for (size_t i = 0; i < x->n_sets; i++) {
        longest = x->sets[i].n > longest ? x->sets[i].n : longest;
        n_postings += x->sets[i].n ? x->sets[i].n - share_of(x->threshold, x->sets[i].n) + 1 : 0;
    }
    void *order = x->order;
    ckvc_status st = ckvc_grow(&order, &x->cap_order, longest, sizeof *x->order, err);
    x->order = order;
    x->slots = ckvc_calloc(n_slots, sizeof *x->slots);
    x->bits = ckvc_calloc(n_bits / 64, sizeof *x->bits);
    x->postings = ckvc_alloc(n_postings, sizeof *x->postings);
    x->seen = ckvc_calloc(x->n_sets, sizeof *x->seen);
    if (st != CKVC_OK || !x->slots || !x->bits || !x->postings || !x->seen) {
        return ckvc_fail_memory(err, "an index of shingles", n_slots * sizeof *x->slots);
    }
    for (size_t i = 0; i < x->n_hashes; i++) {
        shingle *s = slot_of(x, x->hashes[i]);
        s->hash = x->hashes[i];
        s->texts++;
        size_t bit = mixed(s->hash) & x->bit_mask;
        x->bits[bit >> 6] |= (uint64_t)1 << (bit & 63);
    }
    /* Twice over the prefixes: count, then place. */
    uint32_t *place = ckvc_alloc(n_postings, sizeof *place);
    size_t k = 0, at = 0;
    for (size_t i = 0; i < x->n_sets; i++) {
        size_t prefix = x->sets[i].n ? prefix_of(x, x->hashes + x->sets[i].begin, x->sets[i].n) : 0;
        for (size_t j = 0; j < prefix; j++) {
            shingle *s = slot_of(x, x->order[j]);
            s->n_postings++;
            place[k++] = (uint32_t)(s - x->slots);
        }
    }
    for (size_t s = 0; s < n_slots; s++) {
        x->slots[s].first_posting = (uint32_t)at;
        at += x->slots[s].n_postings;
        x->slots[s].n_postings = 0;
    }
    k = 0;
    for (size_t i = 0; i < x->n_sets; i++) {
        size_t prefix = x->sets[i].n ? x->sets[i].n - share_of(x->threshold, x->sets[i].n) + 1 : 0;
        for (size_t j = 0; j < prefix; j++) {
            shingle *s = &x->slots[place[k++]];
            x->postings[s->first_posting + s->n_postings++] = (uint32_t)i;
        }
    }
    free(place);
    return CKVC_OK;
}

static double jaccard_of(const uint64_t *a, size_t n, const uint64_t *b, size_t m) {
    size_t both = 0;
    for (size_t i = 0, j = 0; i < n && j < m;) {
        both += a[i] == b[j];
        bool step_a = a[i] <= b[j], step_b = b[j] <= a[i];
        i += step_a;
        j += step_b;
    }
    return (double)both / (double)(n + m - both);
}

/* query [n] ascending and distinct; texts from `end` on are not looked at. */
static ckvc_status find(near_index *x, const uint64_t *query, size_t n, size_t end, int64_t *match,
                        double *jaccard, ckvc_err *err) {
    void *order = x->order;
    ckvc_status st = ckvc_grow(&order, &x->cap_order, n, sizeof *x->order, err);
    x->order = order;
    if (st != CKVC_OK) { return st; }
    if (++x->search == 0) { /* after 2^32 searches old marks would look new */
        memset(x->seen, 0, x->n_sets * sizeof *x->seen);
        x->search = 1;
    }
    size_t prefix = prefix_of(x, query, n);
    for (size_t j = 0; j < prefix; j++) {
        if (!texts_with(x, x->order[j])) { continue; }
        const shingle *s = slot_of(x, x->order[j]);
        for (uint32_t k = 0; k < s->n_postings; k++) {
            uint32_t i = x->postings[s->first_posting + k];
            if (i >= end) { break; /* ascending */ }
            if (x->seen[i] == x->search) { continue; }
            x->seen[i] = x->search;
            size_t m = x->sets[i].n;
            if (m < share_of(x->threshold, n) || n < share_of(x->threshold, m)) { continue; }
            double near = jaccard_of(query, n, x->hashes + x->sets[i].begin, m);
            if (near >= x->threshold) {
                *match = i;
                *jaccard = near;
                return CKVC_OK;
            }
        }
    }
    return CKVC_OK;
}

/* Whether the n hashes (repeats among them) can hold at most `limit` different ones: false is sure.
 * Different bits are different hashes. */
static bool may_be_at_most(near_index *x, const uint64_t *hashes, size_t n, size_t limit) {
    if (n <= limit || limit >= DISTINCT_BITS / 2) { return true; }
    size_t bits = 64, seen = 0;
    while (bits < DISTINCT_BITS && bits < n * 4) {
        bits *= 2;
    }
    memset(x->distinct_bits, 0, bits / 8);
    for (size_t i = 0; i < n && seen <= limit; i++) {
        size_t bit = mixed(hashes[i]) & (bits - 1);
        uint64_t mask = (uint64_t)1 << (bit & 63);
        seen += !(x->distinct_bits[bit >> 6] & mask);
        x->distinct_bits[bit >> 6] |= mask;
    }
    return seen <= limit;
}

ckvc_status near_find(near_index *x, const word_list *w, int64_t *match, double *jaccard,
                      ckvc_err *err) {
    *match = -1;
    if (w->n < NEAR_SHINGLE || x->n_sets == 0) { return CKVC_OK; }
    size_t n = w->n - NEAR_SHINGLE + 1, known = 0;
    void *query = x->query;
    ckvc_status st = ckvc_grow(&query, &x->cap_query, n, sizeof *x->query, err);
    x->query = query;
    if (st != CKVC_OK) { return st; }
    words_gram_hashes(w, 0, w->n, NEAR_SHINGLE, x->query);
    for (size_t i = 0; i < n; i++) {
        known += texts_with(x, x->query[i]) > 0;
    }
    /* |A & B| is at most `known` and at least t|B|. */
    if (known == 0 || !may_be_at_most(x, x->query, n, (size_t)((double)known / x->threshold) + 1)) {
        return CKVC_OK;
    }
    n = distinct(x->query, n);
    known = 0;
    for (size_t i = 0; i < n; i++) {
        known += texts_with(x, x->query[i]) > 0;
    }
    return known < share_of(x->threshold, n) ? CKVC_OK
                                             : find(x, x->query, n, x->n_sets, match, jaccard, err);
}

ckvc_status near_find_earlier(near_index *x, size_t i, int64_t *match, double *jaccard,
                              ckvc_err *err) {
    *match = -1;
    return x->sets[i].n
               ? find(x, x->hashes + x->sets[i].begin, x->sets[i].n, i, match, jaccard, err)
               : CKVC_OK;
}
