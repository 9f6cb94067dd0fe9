/* Index of the N-grams of a collection: see shared_spans.h.
 *
 * Open addressing over distinct N-grams; a bitmap of hash bits in front of it answers most words of
 * a foreign text from the cache. Equal N-grams at several places hang on a chain, of which the
 * longest continuation is looked for among the first MAX_PLACES: that decides which prompt is
 * named, never whether a span is found. */
#include "corpus/leaks/shared_spans.h"

#include <string.h>

#include "corpus/hashes.h"
#include "lib/base/memory.h"

enum { MAX_PLACES = 64 };
#define NOWHERE UINT32_MAX

typedef struct gram { /* a distinct N-gram */
    uint64_t hash;
    uint32_t first, last; /* places in the words: begin and end of the chain */
} gram;

struct leak_index {
    const word_list *words;
    const leak_text *texts;
    size_t n_texts;
    gram *grams;
    bool *found; /* [n_grams] */
    size_t n_grams;
    uint32_t *next;    /* [words] place of the next equal N-gram */
    uint32_t *gram_of; /* [words] NOWHERE where no N-gram begins */
    uint32_t *slots;   /* [slot_mask + 1] gram + 1, 0: free */
    size_t slot_mask;
    hash_filter filter; /* of the grams */
};

/* The text that holds place p. */
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

/* The gram of `text` at word i, or NOWHERE; *slot is where it would stand. */
static uint32_t look_up(const leak_index *x, const word_list *text, size_t i, uint64_t hash,
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
    uint32_t g = look_up(x, x->words, place, hash, &slot);
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
        uint32_t g = look_up(x, text, i, grams[i], &slot);
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
