/* Words of texts: see words.h. */
#include "corpus/leaks/words.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "lib/base/hash.h"
#include "lib/base/memory.h"
#include "lib/base/utf8.h"

/* Longest decomposition of a character is 18 code points (U+FDFA). */
enum { MAX_DECOMPOSED = 32 };

/* Room for `more` bytes of words and the words in them: no allocation while a text is taken apart.
 */
static ckvc_status make_room(word_list *w, size_t more, ckvc_err *err) {
    if (w->n_bytes + more > UINT32_MAX) {
        return ckvc_fail(err, CKVC_E_DATA, "more than %u bytes of words; compare in parts",
                         UINT32_MAX);
    }
    void *bytes = w->bytes, *begin = w->begin, *hash = w->hash;
    ckvc_status st = ckvc_grow(&bytes, &w->cap_bytes, w->n_bytes + more, 1, err);
    w->bytes = bytes;
    if (st == CKVC_OK) {
        st = ckvc_grow(&begin, &w->cap_begin, w->n + more + 1, sizeof *w->begin, err);
        w->begin = begin;
    }
    if (st == CKVC_OK) {
        st = ckvc_grow(&hash, &w->cap_hash, w->n + more, sizeof *w->hash, err);
        w->hash = hash;
    }
    return st;
}

static void end_word(word_list *w, size_t start) {
    w->begin[w->n] = (uint32_t)start;
    w->hash[w->n++] = ckvc_xxh64(w->bytes + start, w->n_bytes - start);
    w->bytes[w->n_bytes++] = ' ';
    w->begin[w->n] = (uint32_t)w->n_bytes;
}

static bool without_spaces(utf8proc_int32_t c) {
    return (c >= 0x0E00 && c <= 0x0EFF) || (c >= 0x1000 && c <= 0x109F) ||
           (c >= 0x1780 && c <= 0x17FF) || (c >= 0x3040 && c <= 0x30FF) ||
           (c >= 0x3400 && c <= 0x4DBF) || (c >= 0x4E00 && c <= 0x9FFF) ||
           (c >= 0xF900 && c <= 0xFAFF) || (c >= 0x20000 && c <= 0x3FFFF);
}

typedef enum char_class { SEPARATOR, MARK, OTHER_WORD } char_class;

static char_class class_of(utf8proc_int32_t c) {
    switch (utf8proc_category(c)) {
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
        return MARK;
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_NO:
        return OTHER_WORD;
    default:
        return SEPARATOR;
    }
}

/* One character beyond ASCII. *open: a word has begun at *start. Decomposed text is at most 18
 * times 4 bytes, each a word at most. */
static void take_character(word_list *w, const char *text, size_t n, bool *open, size_t *start) {
    utf8proc_int32_t c, parts[MAX_DECOMPOSED];
    int boundary = 0;
    utf8proc_iterate((const utf8proc_uint8_t *)text, (utf8proc_ssize_t)n, &c);
    const int how = UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT | UTF8PROC_CASEFOLD | UTF8PROC_IGNORE;
    utf8proc_ssize_t count = c < 0 ? -1
                                   : utf8proc_decompose_char(c, parts, MAX_DECOMPOSED,
                                                             (utf8proc_option_t)how, &boundary);
    if (count < 0 || count > MAX_DECOMPOSED) {
        count = 1;
        parts[0] = ' ';
    }
    for (utf8proc_ssize_t i = 0; i < count; i++) {
        char_class kind = class_of(parts[i]);
        bool alone = kind == OTHER_WORD && without_spaces(parts[i]);
        if (*open && (kind == SEPARATOR || alone)) {
            end_word(w, *start);
            *open = false;
        }
        if (kind == SEPARATOR) { continue; }
        if (!*open) {
            *start = w->n_bytes;
            *open = true;
        }
        w->n_bytes +=
            (size_t)utf8proc_encode_char(parts[i], (utf8proc_uint8_t *)w->bytes + w->n_bytes);
        if (alone) { /* a mark behind it is a word of its own: the same in both texts */
            end_word(w, *start);
            *open = false;
        }
    }
}

ckvc_status words_append(word_list *w, const char *text, size_t n, ckvc_err *err) {
    /* ASCII letters and digits, lower case; 0 separates. */
    static const char fold[128] = {
        ['0'] = '0', ['1'] = '1', ['2'] = '2', ['3'] = '3', ['4'] = '4', ['5'] = '5', ['6'] = '6',
        ['7'] = '7', ['8'] = '8', ['9'] = '9', ['A'] = 'a', ['B'] = 'b', ['C'] = 'c', ['D'] = 'd',
        ['E'] = 'e', ['F'] = 'f', ['G'] = 'g', ['H'] = 'h', ['I'] = 'i', ['J'] = 'j', ['K'] = 'k',
        ['L'] = 'l', ['M'] = 'm', ['N'] = 'n', ['O'] = 'o', ['P'] = 'p', ['Q'] = 'q', ['R'] = 'r',
        ['S'] = 's', ['T'] = 't', ['U'] = 'u', ['V'] = 'v', ['W'] = 'w', ['X'] = 'x', ['Y'] = 'y',
        ['Z'] = 'z', ['a'] = 'a', ['b'] = 'b', ['c'] = 'c', ['d'] = 'd', ['e'] = 'e', ['f'] = 'f',
        ['g'] = 'g', ['h'] = 'h', ['i'] = 'i', ['j'] = 'j', ['k'] = 'k', ['l'] = 'l', ['m'] = 'm',
        ['n'] = 'n', ['o'] = 'o', ['p'] = 'p', ['q'] = 'q', ['r'] = 'r', ['s'] = 's', ['t'] = 't',
        ['u'] = 'u', ['v'] = 'v', ['w'] = 'w', ['x'] = 'x', ['y'] = 'y', ['z'] = 'z'};
    enum { CHUNK = 4096, ROOM = 2 * CHUNK + 256 };
    bool open = false;
    size_t start = 0;
    ckvc_status st = CKVC_OK;
    for (size_t at = 0; at < n;) {
        /* ASCII: a character adds at most itself and a space. Others are given room one by one. */
        if ((st = make_room(w, ROOM, err)) != CKVC_OK) { return st; }
        size_t end = n - at < CHUNK ? n : at + CHUNK;
        while (at < end && (unsigned char)text[at] < 128) {
            char c = fold[(unsigned char)text[at++]];
            if (c) {
                if (!open) {
                    start = w->n_bytes;
                    open = true;
                }
                w->bytes[w->n_bytes++] = c;
            } else if (open) {
                end_word(w, start);
                open = false;
            }
        }
        if (at == n || (unsigned char)text[at] < 128) { continue; }
        if ((st = make_room(w, ROOM, err)) != CKVC_OK) { return st; }
        size_t bad = 1, step = ckvc_utf8_step(text + at, n - at, &bad);
        if (step) {
            take_character(w, text + at, step, &open, &start);
        } else if (open) {
            end_word(w, start);
            open = false;
        }
        at += step ? step : bad;
    }
    if (open) { end_word(w, start); }
    return st;
}

void words_clear(word_list *w) {
    w->n = w->n_bytes = 0;
}

void words_fini(word_list *w) {
    free(w->bytes);
    free(w->begin);
    free(w->hash);
    *w = (word_list){0};
}

int words_equal(const word_list *a, size_t i, const word_list *b, size_t j, size_t n) {
    size_t size = a->begin[i + n] - a->begin[i];
    return size == b->begin[j + n] - b->begin[j] &&
           memcmp(a->bytes + a->begin[i], b->bytes + b->begin[j], size) == 0;
}

/* H(i) = sum_k hash[i+k] * M^(n-1-k) mod 2^64, rolled: H(i+1) = (H(i) - hash[i] * M^(n-1)) * M +
 * hash[i+n]. */
void words_gram_hashes(const word_list *w, size_t first, size_t count, unsigned n, uint64_t *out) {
    const uint64_t M = 0x9E3779B97F4A7C15u; /* odd, so that no word's bits are lost */
    const uint64_t *h = w->hash + first;
    uint64_t sum = 0, top = 1;
    if (count < n) { return; }
    for (unsigned k = 0; k + 1 < n; k++) {
        top *= M;
    }
    for (unsigned k = 0; k < n; k++) {
        sum = sum * M + h[k];
    }
    out[0] = sum;
    for (size_t i = n; i < count; i++) {
        sum = (sum - h[i - n] * top) * M + h[i];
        out[i - n + 1] = sum;
    }
}
