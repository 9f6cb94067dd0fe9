/* Texts as words, for comparisons that must not depend on case, punctuation or spacing.
 *
 * Every character is decomposed (with Unicode's compatibility mappings, so that ligatures and
 * full-width forms become plain letters) and casefolded. Characters that are invisible by default
 * (soft hyphen, zero-width space) are dropped. A word is a maximal run of letters, marks and digits
 * (categories L, M, N). Everything else, including bytes that are not UTF-8 and NUL, only separates
 * words. In scripts written without spaces (Han, kana, Thai, Lao, Myanmar, Khmer) every letter is a
 * word of its own. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/status.h"

typedef struct word_list {
    char *bytes;     /* each word followed by one space */
    uint32_t *begin; /* [n+1] offsets into bytes; begin[n] is the end */
    uint64_t *hash;  /* [n] XXH64 of a word */
    size_t n, n_bytes, cap_bytes, cap_begin, cap_hash;
} word_list;

/* Appends the words of text. A list of more than 2^32-1 bytes of words is CKVC_E_DATA. */
ckvc_status words_append(word_list *w, const char *text, size_t n, ckvc_err *err) CKVC_MUST_CHECK;
void words_clear(word_list *w); /* drops the words, keeps the memory */
void words_fini(word_list *w);
/* True when the n words from i on are those of b from j on, compared in full. */
bool words_equal(const word_list *a, size_t i, const word_list *b, size_t j, size_t n);

/* Writes the hashes of the n-grams of the words first ... first+count-1, in order, to out
 * [count-n+1]; it writes nothing when count < n. Words in another order, or split otherwise, hash
 * differently; equal n-grams have the same hash in every list. */
void words_gram_hashes(const word_list *w, size_t first, size_t count, unsigned n, uint64_t *out);
