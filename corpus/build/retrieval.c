/* Retrieval prompts: see retrieval.h. The phrasings are those that the embedded models met in
 * training (models/recipe), so that reach is what a prompt measures, not understanding of a new
 * wording. */
#include "corpus/build/retrieval.h"

#include <assert.h>
#include <ctype.h>
#include <stdio.h>

#include "corpus/build/documents.h"
#include "corpus/texts.h"
#include "lib/base/hash.h"
#include "lib/base/order.h"
#include "lib/base/utf8.h"

static const struct phrasing {
    const char *fact, *question, *answer; /* %k key, %v value */
} phrasings[] = {
    {"The special magic number for %k is %v.\n",
     "\nWhat is the special magic number for %k? The special magic number for %k is", " %v."},
    {"%k: %v\n", "\n%k:", " %v"},
    {"key %k = %v\n", "\nQ: key %k\nA:", " %v"},
    {"line %k: REGISTER_CONTENT is <%v>\n", "\nTell me the REGISTER_CONTENT in line %k. It is <",
     "%v>"},
    {"\"%k\": \"%v\",\n", "\nThe value of \"%k\" is \"", "%v\""},
    {"One of the values for %k is: %v.\n", "\nThe value for %k is:", " %v."},
};
enum { N_PHRASINGS = sizeof phrasings / sizeof *phrasings };

/* ---- words ---- */

static void add_word(vocabulary *v, const char *word, size_t n) {
    if (v->n < RETRIEVAL_MAX_WORDS && hash_set_add(&v->seen, ckvc_xxh64(word, n))) {
        memcpy(v->words[v->n++], word, n);
    }
}

static size_t add_ascii_run(vocabulary *v, const char *text, size_t n, size_t start) {
    size_t end = start;
    while (end < n && islower((unsigned char)text[end])) { end++; }
    const size_t length = end - start;
    if (length >= 4 && length <= 9 && (start == 0 || strchr(" \n(\"", text[start - 1])) &&
        (end == n || strchr(" \n.,;:)\"", text[end]))) {
        add_word(v, text + start, length);
    }
    return end;
}

/* Adds a run of letters of any script as a word and returns where the run ends. In scripts without
 * spaces only its first characters, as a reader counts them (graphemes), are a word. A run with
 * capitals or digits gives no word. */
static size_t add_run(vocabulary *v, const char *text, size_t n, size_t start) {
    const int32_t first = char_at(text + start, n - start);
    const bool spaceless = char_without_spaces(first);
    const size_t wanted = first >= 0x3040 ? 2 : 4;
    size_t end = start, stop = 0, letters = 0, step;
    bool plain = true;
    for (int32_t before = -1, c; end < n && stop == 0; end += step, before = c) {
        step = char_next(text + end, n - end, &c);
        const char kind = char_category(c);
        if (kind != 'L' && kind != 'M' && kind != 'N') { break; }
        const bool begins = before < 0 || utf8proc_grapheme_break(before, c);
        if (begins && spaceless && letters == wanted) { stop = end; }
        letters += begins;
        plain &= stop || (kind != 'N' && utf8proc_tolower(c) == c);
    }
    const size_t size = (stop ? stop : end) - start;
    if (plain && size < RETRIEVAL_WORD_BYTES &&
        (spaceless ? stop || letters == wanted : letters >= 4 && letters <= 9)) {
        add_word(v, text + start, size);
    }
    while (end < n && strchr("LMN", char_category(char_at(text + end, n - end)))) {
        end += ckvc_utf8_step(text + end, n - end, NULL);
    }
    return end;
}

void vocabulary_add(vocabulary *v, const char *text, size_t n, bool any_script) {
    if (!v->words) { v->words = ckvc_calloc(RETRIEVAL_MAX_WORDS, sizeof *v->words); }
    for (size_t i = 0, end; i < n && v->n < RETRIEVAL_MAX_WORDS; i = end + (end == i)) {
        end = (any_script ? add_run : add_ascii_run)(v, text, n, i);
    }
}

void vocabulary_fini(vocabulary *v) { CKVC_FREE(v->words, v->seen.slots); }

/* ---- drawing ---- */
static void draw_hex(ckvc_rng *rng, char *out) {
    int digits = ckvc_rng_below(rng, 2) ? 8 : 4;
    for (int i = 0; i < digits; i++) { out[i] = "0123456789abcdef"[ckvc_rng_below(rng, 16)]; }
    out[digits] = '\0';
}

static const char *draw_word(ckvc_rng *rng, const vocabulary *words) {
    return words->words[ckvc_rng_below(rng, words->n)];
}

static void draw_value(ckvc_rng *rng, const vocabulary *words, char *out, size_t size) {
    static const int powers[] = {1000, 10000, 100000, 1000000, 10000000};
    const char *first;
    switch (ckvc_rng_below(rng, 4)) {
    case 0:
        snprintf(out, size, "%llu",
                 (unsigned long long)ckvc_rng_below(rng, (uint64_t)powers[ckvc_rng_below(rng, 5)]));
        break;
    case 1: draw_hex(rng, out); break;
    case 2: snprintf(out, size, "%s", draw_word(rng, words)); break;
    default: /* in this order, whatever the compiler does with arguments */
        first = draw_word(rng, words);
        snprintf(out, size, "%s-%s", first, draw_word(rng, words));
    }
}

void retrieval_draw(retrieval_plan *plan, ckvc_rng *rng, const vocabulary *words, int n_facts) {
    assert(words->n >= RETRIEVAL_MIN_WORDS && n_facts >= 1 && n_facts <= RETRIEVAL_MAX_FACTS);
    *plan = (retrieval_plan){0};
    plan->phrasing = (int)ckvc_rng_below(rng, N_PHRASINGS);
    plan->scattered = ckvc_rng_below(rng, 2) == 1;
    plan->n_facts = n_facts;
    double list_place = 0.5 * ckvc_rng_double(rng);
    for (int i = 0; i < n_facts;) {
        if (ckvc_rng_below(rng, 5) < 3) {
            snprintf(plan->key[i], sizeof plan->key[i], "%s", draw_word(rng, words));
        } else {
            draw_hex(rng, plan->key[i]);
        }
        bool repeated = false;
        for (int k = 0; k < i; k++) { repeated |= strcmp(plan->key[k], plan->key[i]) == 0; }
        if (repeated) { continue; /* 64 words and 2^16 hexadecimal keys: a new one comes soon */ }
        draw_value(rng, words, plan->value[i], sizeof plan->value[i]);
        plan->place[i] = plan->scattered ? 0.9 * ckvc_rng_double(rng) : list_place;
        i++;
    }
    qsort(plan->place, (size_t)n_facts, sizeof *plan->place, ckvc_order_double);
    uint32_t order[RETRIEVAL_MAX_FACTS];
    for (int i = 0; i < n_facts; i++) { order[i] = (uint32_t)i; }
    ckvc_rng_shuffle_u32(rng, order, (uint64_t)n_facts);
    for (int i = 0; i < n_facts; i++) { plan->asked[i] = (int)order[i]; }
}

/* ---- rendering ---- */
static void fill_in(const char *form, const char *key, const char *value, ckvc_buffer *out) {
    for (; *form; form++) {
        if (form[0] == '%' && (form[1] == 'k' || form[1] == 'v')) {
            ckvc_buffer_text(out, *++form == 'k' ? key : value);
        } else {
            ckvc_buffer_u8(out, (uint8_t)*form);
        }
    }
}

/* Returns the first place from `at` on where a fact may stand in the filler: after a line end that
 * is near, else at a space or a cut. */
static size_t gap_after(const char *filler, size_t n, size_t at) {
    enum { NEAR = 160 };
    const size_t end = n - at < NEAR ? n : at + NEAR;
    const char *line = memchr(filler + at, '\n', end - at);
    if (line) { return (size_t)(line - filler) + 1; }
    while (at < n && filler[at] != ' ' &&
           (filler[at] == '\t' || cut_at(filler, n, at) < (at < end ? CUT_GOOD : CUT_FINE))) {
        at++;
    }
    return at;
}

void retrieval_prompt(const retrieval_plan *plan, const char *filler, size_t n, ckvc_buffer *out) {
    const struct phrasing *p = &phrasings[plan->phrasing];
    size_t done = 0;
    out->size = 0;
    for (int i = 0; i < plan->n_facts; i++) {
        size_t at = (size_t)(plan->place[i] * (double)n);
        at = at > done ? gap_after(filler, n, at) : done;
        ckvc_buffer_append(out, filler + done, at - done);
        if (out->size && out->data[out->size - 1] != '\n') { ckvc_buffer_u8(out, '\n'); }
        done = at;
        fill_in(p->fact, plan->key[i], plan->value[i], out);
    }
    while (done < n && filler[done] == ' ') { done++; }
    ckvc_buffer_append(out, filler + done, n - done);
    if (!plan->unseen) {
        fill_in(p->question, plan->key[plan->asked[0]], plan->value[plan->asked[0]], out);
    }
}

void retrieval_answers(const retrieval_plan *plan, int n_questions, ckvc_buffer *out) {
    const struct phrasing *p = &phrasings[plan->phrasing];
    out->size = 0;
    for (int i = 0; i < n_questions; i++) {
        const char *key = plan->key[plan->asked[i]], *value = plan->value[plan->asked[i]];
        if (i || plan->unseen) { fill_in(p->question, key, value, out); }
        fill_in(p->answer, key, value, out);
    }
}
