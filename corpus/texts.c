/* Lengths of texts and words in lists: see texts.h. */
#include "corpus/texts.h"

#include <stdio.h>

bool word_in_list(const char *word, const char *list) {
    char padded[32];
    const int n = snprintf(padded, sizeof padded, " %s ", word);
    return n < (int)sizeof padded && strstr(list, padded);
}

ckvc_status text_length(const tokenizer *tok, const char *text, size_t n, bool special,
                        int64_t *length, ckvc_err *err) {
    *length = 0;
    if (tok) {
        CKVC_AUTO_FREE int32_t *ids = NULL;
        size_t n_ids;
        CKVC_TRY(tokenizer_encode(tok, text, n, special, &ids, &n_ids, err));
        *length = (int64_t)n_ids;
        return CKVC_OK;
    }
    for (size_t i = 0; i < n; i++) { *length += ((uint8_t)text[i] & 0xC0) != 0x80; }
    return CKVC_OK;
}
