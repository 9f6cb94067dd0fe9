/* What a built tokenizer holds, for tokenizer_build.c, which fills it, and tokenizer.c, which uses
 * it. Not for other files. */
#ifndef CKVC_TOKENIZER_INTERNAL_H
#define CKVC_TOKENIZER_INTERNAL_H

#include "lib/base/hash.h"
#include "lib/token/bpe.h"
#include "lib/token/split_pattern.h"
#include "lib/token/tokenizer.h"
#include "lib/token/trie.h"

enum { MAX_SPLITS = 16 };

typedef struct id_text {
    const char *bytes; /* what decoding starts from: raw bytes under byte_level; NULL: no such id */
    uint32_t size;
    bool special;
} id_text;

struct tokenizer {
    token_spec *spec;
    char *name;
    bpe *model;
    trie raw_added, normal_added;
    pcre2_code *splits[MAX_SPLITS];
    id_text *texts; /* [vocab_size] */
    char *text_bytes;
    int32_t vocab_size;
    char fingerprint[CKVC_SHA256_HEX];
};

#endif
