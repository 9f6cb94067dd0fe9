/* What a built tokenizer holds. tokenizer_build.c fills it and tokenizer.c uses it; other files do
 * not see it. */
#pragma once

#include "lib/base/hash.h"
#include "lib/token/bpe.h"
#include "lib/token/normalize.h"
#include "lib/token/trie.h"

enum { MAX_SPLITS = 16 };

typedef struct id_text {
    /* What decoding starts from: raw bytes under byte_level. NULL: there is no such id. */
    const char *bytes;
    uint32_t size;
    bool special;
} id_text;

typedef struct tokenizer {
    token_spec *spec;
    char *name;
    bpe *model;
    trie raw_added, normal_added;
    pcre2_code *splits[MAX_SPLITS];
    id_text *texts; /* [vocab_size] */
    char *text_bytes;
    int32_t vocab_size;
    char fingerprint[CKVC_SHA256_HEX];
} tokenizer;

/* Whether the id stands for anything. */
static inline bool tokenizer_has_id(const tokenizer *t, int32_t id) {
    return id >= 0 && id < t->vocab_size && t->texts[id].bytes;
}
