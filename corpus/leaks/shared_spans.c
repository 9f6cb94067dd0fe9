/* An index of the N-grams of a collection: see shared_spans.h.
 *
 * It is a hash table with open addressing, which holds each different N-gram once. In front of it a
 * bitmap of hash bits, small enough for the processor's caches, answers most lookups of a foreign
 * text. The places of equal N-grams form a chain. Only the first MAX_PLACES of a chain are tried
 * for the longest shared span, which may decide how long a span is and which prompt is named, but
 * never whether something is found. */
#include "corpus/leaks/shared_spans.h"

#include <string.h>
#include <assert.h>
#include <math.h>
#include <stdlib.h>

#include "corpus/texts.h"
#include "lib/base/memory.h"
#include "lib/base/order.h"

enum { MAX_PLACES = 64 };
#define NOWHERE UINT32_MAX

typedef struct gram { /* a distinct N-gram */
    uint64_t hash;
    uint32_t first, last; /* the chain's first and last place in the words */
} gram;

struct leak_index {
    const word_list *words;
    const leak_text *texts;
    size_t n_texts;
    gram *grams;
    bool *found; /* [n_grams] whether a span that was found has it */
    size_t n_grams;
    uint32_t *next;    /* [words] place of the next equal N-gram */
    uint32_t *gram_of; /* [words] NOWHERE where no N-gram begins */
    uint32_t *slots;   /* [slot_mask + 1] gram + 1, 0: free */
    size_t slot_mask;
    hash_filter filter; /* of the grams */
};

/* Returns the text that the word at place p belongs to. */
static const leak_text *text_at(const leak_index *x, uint32_t p) {
    size_t low = 0, high = x->n_texts;
    while (high - low > 1) {
        size_t middle = low + (high - low) / 2;
        if (x->texts[middle].first <= p) {
            low = middle;
        } else {
            high = middle;
        }
    }
    return &x->texts[low];
}

/* Returns the number of the N-gram of `text` at word i, or NOWHERE when the index does not have it.
 * *slot receives its place in the table, or the free place where it belongs. */
static uint32_t find_gram(const leak_index *x, const word_list *text, size_t i, uint64_t hash,
                          size_t *slot) {
    size_t s = hash_mixed(hash) & x->slot_mask;
    for (; x->slots[s]; s = (s + 1) & x->slot_mask) {
        const gram *g = &x->grams[x->slots[s] - 1];
        if (g->hash == hash && words_equal(x->words, g->first, text, i, LEAK_GRAM)) {
            *slot = s;
            return x->slots[s] - 1;
        }
    }
    *slot = s;
    return NOWHERE;
}

static void insert(leak_index *x, uint32_t place, uint64_t hash) {
    size_t slot;
    uint32_t g = find_gram(x, x->words, place, hash, &slot);
    if (g == NOWHERE) {
        g = (uint32_t)x->n_grams++;
        x->grams[g] = (gram){hash, place, place};
        x->slots[slot] = g + 1;
        hash_filter_add(&x->filter, hash);
    } else {
        x->next[x->grams[g].last] = place;
        x->grams[g].last = place;
    }
    x->gram_of[place] = g;
}

leak_index *leak_index_create(const word_list *words, const leak_text *texts, size_t n_texts) {
    size_t places = 0, longest = 0;
    for (size_t i = 0; i < n_texts; i++) {
        places += texts[i].count >= LEAK_GRAM ? texts[i].count - LEAK_GRAM + 1 : 0;
        longest = texts[i].count > longest ? texts[i].count : longest;
    }
    const size_t n_slots = power_of_two(places * 2, 64);
    CKVC_AUTO_FREE uint64_t *hashes = ckvc_alloc(longest, sizeof *hashes);
    leak_index *x = ckvc_alloc(1, sizeof *x);
    *x = (leak_index){.words = words,
                      .texts = texts,
                      .n_texts = n_texts,
                      .grams = ckvc_alloc(places, sizeof *x->grams),
                      .found = ckvc_calloc(places, sizeof *x->found),
                      .next = ckvc_alloc(words->n, sizeof *x->next),
                      .gram_of = ckvc_alloc(words->n, sizeof *x->gram_of),
                      .slots = ckvc_calloc(n_slots, sizeof *x->slots),
                      .slot_mask = n_slots - 1,
                      .filter = hash_filter_make(places)};
    memset(x->next, 0xFF, words->n * sizeof *x->next);
    memset(x->gram_of, 0xFF, words->n * sizeof *x->gram_of);
    for (size_t i = 0; i < n_texts; i++) {
        words_gram_hashes(words, texts[i].first, texts[i].count, LEAK_GRAM, hashes);
        for (uint32_t k = 0; k + LEAK_GRAM <= texts[i].count; k++) {
            insert(x, texts[i].first + k, hashes[k]);
        }
    }
    return x;
}

void leak_index_free(leak_index *x) {
    if (!x) { return; }
    CKVC_FREE(x->grams, x->found, x->next, x->gram_of, x->slots, x->filter.bits, x);
}

bool leak_next(leak_index *x, const word_list *text, const uint64_t *grams, size_t *from,
               leak_span *span) {
    for (size_t i = *from; i + LEAK_GRAM <= text->n; i++) {
        size_t slot;
        if (!hash_filter_may_have(&x->filter, grams[i])) { continue; }
        uint32_t g = find_gram(x, text, i, grams[i], &slot);
        if (g == NOWHERE) { continue; }
        *span = (leak_span){.at = i};
        uint32_t place = x->grams[g].first;
        for (int tried = 0; place != NOWHERE && tried < MAX_PLACES;
             place = x->next[place], tried++) {
            const leak_text *home = text_at(x, place);
            size_t n = LEAK_GRAM, most = home->first + home->count - place;
            while (n < most && i + n < text->n &&
                   words_equal(x->words, place + n, text, i + n, 1)) {
                n++;
            }
            if (n > span->n) {
                span->n = n;
                span->place = place;
                span->owner = home->owner;
            }
        }
        for (size_t k = 0; k + LEAK_GRAM <= span->n; k++) {
            x->found[x->gram_of[span->place + k]] = true;
        }
        *from = i + span->n - LEAK_GRAM + 1;
        return true;
    }
    return false;
}

void leak_touched(const leak_index *x, bool *touched) {
    for (size_t t = 0; t < x->n_texts; t++) {
        const leak_text *text = &x->texts[t];
        for (uint32_t k = 0; k + LEAK_GRAM <= text->count; k++) {
            touched[text->owner] |= x->found[x->gram_of[text->first + k]];
        }
    }
}

void leak_forget(leak_index *x) { memset(x->found, 0, x->n_grams * sizeof *x->found); }

enum { MAX_SHINGLES = 1 << 30, DISTINCT_BITS = 1 << 17 };

typedef struct shingle { /* one of the collection */
    uint64_t hash;
    uint32_t texts; /* that have it */
    uint32_t first; /* posting + 1 of the texts in whose prefix it stands, ascending; 0: none */
} shingle;

typedef struct posting {
    uint32_t text, next; /* posting + 1; 0: the last */
} posting;

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
    size_t slot_mask;
    hash_filter filter; /* of the shingles */
    posting *postings;
    uint32_t *seen; /* [n_sets] number of the search that compared it last */
    uint32_t search;
    /* of the text in hand */
    uint64_t *query, *order, *distinct_bits;
    size_t cap_query, cap_order;
};

static size_t distinct(uint64_t *v, size_t n) {
    size_t kept = 0;
    qsort(v, n, sizeof *v, ckvc_order_u64);
    for (size_t i = 0; i < n; i++) {
        if (i == 0 || v[i] != v[kept - 1]) { v[kept++] = v[i]; }
    }
    return kept;
}

/* Returns ceil(t * n), the least number of a set's n shingles that a near set shares. Rounding must
 * not make it too large, because prefixes would then be too short; a prefix that is too long only
 * costs time. */
static size_t shared_at_least(double t, size_t n) {
    double least = ceil(t * (double)n - 1e-9 * (double)n);
    return least < 1 ? 1 : (size_t)least;
}

/* Returns the length of a set's prefix. If two sets are near each other, the prefixes of both, in
 * the same order of shingles, have at least one shingle in common. */
static size_t prefix_length(const near_index *x, size_t n) {
    return n ? n - shared_at_least(x->threshold, n) + 1 : 0;
}

near_index *near_index_create(double threshold) {
    assert(threshold > 0 && threshold <= 1);
    near_index *x = ckvc_calloc(1, sizeof *x);
    x->threshold = threshold;
    x->distinct_bits = ckvc_alloc(DISTINCT_BITS / 64, sizeof *x->distinct_bits);
    return x;
}

void near_index_free(near_index *x) {
    if (!x) { return; }
    CKVC_FREE(x->hashes, x->sets, x->slots, x->filter.bits, x->postings, x->seen, x->query,
              x->order, x->distinct_bits, x);
}

ckvc_status near_index_add(near_index *x, const word_list *w, size_t first, size_t count,
                           ckvc_err *err) {
    size_t n = count >= NEAR_SHINGLE ? count - NEAR_SHINGLE + 1 : 0;
    CKVC_GROW(x->hashes, x->cap_hashes, x->n_hashes + n + 1);
    CKVC_GROW(x->sets, x->cap_sets, x->n_sets + 1);
    uint64_t *mine = x->hashes + x->n_hashes;
    words_gram_hashes(w, first, count, NEAR_SHINGLE, mine);
    n = distinct(mine, n);
    x->sets[x->n_sets++] = (set){x->n_hashes, (uint32_t)n};
    x->n_hashes += n;
    CKVC_FAIL_IF(x->n_hashes > MAX_SHINGLES, err, CKVC_E_DATA,
                 "more than %d shingles; compare in parts", MAX_SHINGLES);
    return CKVC_OK;
}

/* Returns the slot of a shingle, or the free slot where it belongs. */
static shingle *find_slot(const near_index *x, uint64_t hash) {
    size_t s = hash_mixed(hash) & x->slot_mask;
    while (x->slots[s].texts && x->slots[s].hash != hash) { s = (s + 1) & x->slot_mask; }
    return &x->slots[s];
}

static uint32_t texts_with(const near_index *x, uint64_t hash) {
    return hash_filter_may_have(&x->filter, hash) ? find_slot(x, hash)->texts : 0;
}

static int by_rarity(const void *a, const void *b, void *ctx) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    uint32_t n = texts_with(ctx, x), m = texts_with(ctx, y);
    return n != m ? (n < m ? -1 : 1) : (x > y) - (x < y);
}

/* Writes the set's shingles to x->order, the rarest first, and returns how many of them are its
 * prefix. */
static size_t prefix_of(near_index *x, const uint64_t *hashes, size_t n) {
    if (n == 0) { return 0; }
    CKVC_GROW(x->order, x->cap_order, n);
    memcpy(x->order, hashes, n * sizeof *hashes);
    qsort_r(x->order, n, sizeof *x->order, by_rarity, x);
    return prefix_length(x, n);
}

void near_index_build(near_index *x) {
    const size_t n_slots = power_of_two(x->n_hashes * 2, 64);
    size_t n_postings = 0, k = 0;
    for (size_t i = 0; i < x->n_sets; i++) { n_postings += prefix_length(x, x->sets[i].n); }
    x->slots = ckvc_calloc(n_slots, sizeof *x->slots);
    x->slot_mask = n_slots - 1;
    x->filter = hash_filter_make(x->n_hashes);
    x->postings = ckvc_alloc(n_postings, sizeof *x->postings);
    x->seen = ckvc_calloc(x->n_sets, sizeof *x->seen);
    for (size_t i = 0; i < x->n_hashes; i++) {
        shingle *s = find_slot(x, x->hashes[i]);
        s->hash = x->hashes[i];
        s->texts++;
        hash_filter_add(&x->filter, s->hash);
    }
    for (size_t i = x->n_sets; i-- > 0;) {
        const size_t prefix = prefix_of(x, x->hashes + x->sets[i].begin, x->sets[i].n);
        for (size_t j = 0; j < prefix; j++) {
            shingle *s = find_slot(x, x->order[j]);
            x->postings[k++] = (posting){(uint32_t)i, s->first};
            s->first = (uint32_t)k;
        }
    }
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

/* Finds a text that is near the query among the texts before `end`. query [n] must be ascending and
 * without repeats. */
static bool find_near_duplicate(near_index *x, const uint64_t *query, size_t n, size_t end,
                                near_match *match) {
    if (++x->search == 0) { /* after 2^32 searches old marks would look new */
        memset(x->seen, 0, x->n_sets * sizeof *x->seen);
        x->search = 1;
    }
    const size_t prefix = prefix_of(x, query, n);
    for (size_t j = 0; j < prefix; j++) {
        if (!texts_with(x, x->order[j])) { continue; }
        for (uint32_t k = find_slot(x, x->order[j])->first; k; k = x->postings[k - 1].next) {
            const uint32_t i = x->postings[k - 1].text;
            if (i >= end) { break; /* ascending */ }
            if (x->seen[i] == x->search) { continue; }
            x->seen[i] = x->search;
            const size_t m = x->sets[i].n;
            if (m < shared_at_least(x->threshold, n) || n < shared_at_least(x->threshold, m)) {
                continue;
            }
            *match = (near_match){i, jaccard_of(query, n, x->hashes + x->sets[i].begin, m)};
            if (match->jaccard >= x->threshold) { return true; }
        }
    }
    return false;
}

/* Whether there may be no more than `limit` different ones among n hashes. False is certain,
 * because hashes that set different bits are different; true is not, because different hashes may
 * set the same bit. */
static bool may_be_at_most(near_index *x, const uint64_t *hashes, size_t n, size_t limit) {
    if (n <= limit || limit >= DISTINCT_BITS / 2) { return true; }
    size_t bits = 64, seen = 0;
    while (bits < DISTINCT_BITS && bits < n * 4) { bits *= 2; }
    memset(x->distinct_bits, 0, bits / 8);
    for (size_t i = 0; i < n && seen <= limit; i++) {
        size_t bit = hash_mixed(hashes[i]) & (bits - 1);
        uint64_t mask = (uint64_t)1 << (bit & 63);
        seen += !(x->distinct_bits[bit >> 6] & mask);
        x->distinct_bits[bit >> 6] |= mask;
    }
    return seen <= limit;
}

static size_t count_known(const near_index *x, const uint64_t *hashes, size_t n) {
    size_t known = 0;
    for (size_t i = 0; i < n; i++) { known += texts_with(x, hashes[i]) > 0; }
    return known;
}

bool near_find(near_index *x, const word_list *w, near_match *match) {
    if (w->n < NEAR_SHINGLE || x->n_sets == 0) { return false; }
    size_t n = w->n - NEAR_SHINGLE + 1;
    CKVC_GROW(x->query, x->cap_query, n);
    words_gram_hashes(w, 0, w->n, NEAR_SHINGLE, x->query);
    const size_t known = count_known(x, x->query, n);
    /* Where B, the query's set, is near a set A, |A & B| is at most `known` and at least t|B|. So B
     * has at most known / t shingles. */
    if (known == 0 || !may_be_at_most(x, x->query, n, (size_t)((double)known / x->threshold) + 1)) {
        return false;
    }
    n = distinct(x->query, n);
    return count_known(x, x->query, n) >= shared_at_least(x->threshold, n) &&
           find_near_duplicate(x, x->query, n, x->n_sets, match);
}

bool near_find_earlier(near_index *x, size_t i, near_match *match) {
    return x->sets[i].n &&
           find_near_duplicate(x, x->hashes + x->sets[i].begin, x->sets[i].n, i, match);
}
