/* Cuts texts into words: see word_list.h. */
#include "corpus/leaks/word_list.h"

#include <string.h>

#include "corpus/texts.h"
#include "lib/base/hash.h"
#include "lib/base/memory.h"
#include "lib/base/utf8.h"

/* The longest decomposition of a character has 18 code points (U+FDFA). */
enum { MAX_DECOMPOSED = 32 };

/* Makes room for `more` bytes of words, and for as many words as these can be, so that nothing is
 * allocated word by word. */
static ckvc_status reserve_words(word_list *w, size_t more, ckvc_err *err) {
    CKVC_FAIL_IF(w->n_bytes + more > UINT32_MAX, err, CKVC_E_DATA,
                 "more than %u bytes of words; compare in parts", UINT32_MAX);
    CKVC_GROW(w->bytes, w->cap_bytes, w->n_bytes + more);
    CKVC_GROW(w->begin, w->cap_begin, w->n + more + 1);
    CKVC_GROW(w->hash, w->cap_hash, w->n + more);
    return CKVC_OK;
}

/* A word that is being read. It begins at byte `start`, if `open` says that there is one. */
typedef struct open_word {
    word_list *w;
    size_t start;
    bool open;
} open_word;

static void begin_word(open_word *o) {
    if (!o->open) { o->start = o->w->n_bytes; }
    o->open = true;
}

static void end_word(open_word *o) {
    word_list *w = o->w;
    if (!o->open) { return; }
    w->begin[w->n] = (uint32_t)o->start;
    w->hash[w->n++] = ckvc_xxh64(w->bytes + o->start, w->n_bytes - o->start);
    w->bytes[w->n_bytes++] = ' ';
    w->begin[w->n] = (uint32_t)w->n_bytes;
    o->open = false;
}

/* Takes a character beyond ASCII. It decomposes to at most 18 characters of 4 bytes, each of which
 * may be a word of its own. */
static void take_character(open_word *o, const char *text, size_t n) {
    const utf8proc_option_t how =
        UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT | UTF8PROC_CASEFOLD | UTF8PROC_IGNORE;
    const int32_t c = char_at(text, n);
    utf8proc_int32_t parts[MAX_DECOMPOSED];
    int boundary = 0;
    utf8proc_ssize_t count =
        c < 0 ? -1 : utf8proc_decompose_char(c, parts, MAX_DECOMPOSED, how, &boundary);
    if (count < 0 || count > MAX_DECOMPOSED) {
        count = 1;
        parts[0] = ' ';
    }
    for (utf8proc_ssize_t i = 0; i < count; i++) {
        const char kind = char_category(parts[i]);
        const bool part_of_word = kind == 'L' || kind == 'M' || kind == 'N',
                   alone = part_of_word && kind != 'M' && char_without_spaces(parts[i]);
        if (!part_of_word || alone) { end_word(o); }
        if (!part_of_word) { continue; }
        begin_word(o);
        o->w->n_bytes +=
            (size_t)utf8proc_encode_char(parts[i], (utf8proc_uint8_t *)o->w->bytes + o->w->n_bytes);
        if (alone) { end_word(o); /* a mark behind it is a word of its own: the same everywhere */ }
    }
}

/* Returns an ASCII letter or digit in lower case, and 0 for everything else. */
static char folded(unsigned char c) {
    const unsigned letter = (c | 0x20u) - 'a', digit = c - (unsigned)'0';
    return (char)(digit < 10 ? c : letter < 26 ? letter + 'a' : 0);
}

ckvc_status words_append(word_list *w, const char *text, size_t n, ckvc_err *err) {
    enum { CHUNK = 4096, ROOM = 2 * CHUNK + 256 };
    open_word o = {.w = w};
    for (size_t at = 0; at < n;) {
        /* There is room for a chunk of ASCII, in which a character adds at most itself and a space,
         * and for the character beyond ASCII that may follow it. */
        CKVC_TRY(reserve_words(w, ROOM, err));
        const size_t end = n - at < CHUNK ? n : at + CHUNK;
        while (at < end && (unsigned char)text[at] < 128) {
            char c = folded((unsigned char)text[at]), *to = w->bytes + w->n_bytes;
            if (!c) {
                end_word(&o);
                at++;
                continue;
            }
            begin_word(&o);
            do { *to++ = c; } while (++at < end && (c = folded((unsigned char)text[at])));
            w->n_bytes = (size_t)(to - w->bytes);
        }
        if (at == n || (unsigned char)text[at] < 128) { continue; }
        size_t bad = 1, step = ckvc_utf8_step(text + at, n - at, &bad);
        if (step) {
            take_character(&o, text + at, step);
        } else {
            end_word(&o);
        }
        at += step ? step : bad;
    }
    end_word(&o);
    return CKVC_OK;
}

void words_clear(word_list *w) { w->n = w->n_bytes = 0; }

void words_fini(word_list *w) {
    CKVC_FREE(w->bytes, w->begin, w->hash);
    *w = (word_list){0};
}

bool words_equal(const word_list *a, size_t i, const word_list *b, size_t j, size_t n) {
    size_t size = a->begin[i + n] - a->begin[i];
    return size == b->begin[j + n] - b->begin[j] &&
           memcmp(a->bytes + a->begin[i], b->bytes + b->begin[j], size) == 0;
}

/* The hash of the n words from i on is H(i) = sum_k hash[i+k] * M^(n-1-k) mod 2^64. It is computed
 * from the one before: H(i+1) = (H(i) - hash[i] * M^(n-1)) * M + hash[i+n]. */
void words_gram_hashes(const word_list *w, size_t first, size_t count, unsigned n, uint64_t *out) {
    const uint64_t M = 0x9E3779B97F4A7C15u; /* odd, so that no word's bits are lost */
    const uint64_t *h = w->hash + first;
    uint64_t sum = 0, top = 1;
    if (count < n) { return; }
    for (unsigned k = 0; k + 1 < n; k++) { top *= M; }
    for (unsigned k = 0; k < n; k++) { sum = sum * M + h[k]; }
    out[0] = sum;
    for (size_t i = n; i < count; i++) {
        sum = (sum - h[i - n] * top) * M + h[i];
        out[i - n + 1] = sum;
    }
}
