/* What both stages ask of a text: its scripts, its length. */
#pragma once

#include <utf8proc.h>

#include "lib/token/chars.h"
#include "lib/token/tokenizer.h"

/* The first letter of its general category: L letters, M marks, N numbers, P punctuation, S
 * symbols, Z separators, C others. */
static inline char char_category(int32_t c) { return *utf8proc_category_string(c); }

/* Of a script that puts no space between words: Thai, Lao, Myanmar, Khmer, kana, Han. */
static inline bool char_without_spaces(int32_t c) {
    return (c >= 0x0E00 && c <= 0x0EFF) || (c >= 0x1000 && c <= 0x109F) ||
           (c >= 0x1780 && c <= 0x17FF) || (c >= 0x3005 && c <= 0x3007) ||
           (c >= 0x3040 && c <= 0x30FF) || (c >= 0x31F0 && c <= 0x31FF) ||
           (c >= 0x3400 && c <= 0x4DBF) || (c >= 0x4E00 && c <= 0x9FFF) ||
           (c >= 0xF900 && c <= 0xFAFF) || (c >= 0x20000 && c <= 0x3FFFF);
}

/* Whether a short word stands in a list of them, each between spaces: " png jpg ". */
bool word_in_list(const char *word, const char *list);

/* In tokens (`special`: with those put around a text), in characters where tok is NULL. */
ckvc_status text_length(const tokenizer *tok, const char *text, size_t n, bool special,
                        int64_t *length, ckvc_err *err) CKVC_MUST_CHECK;
