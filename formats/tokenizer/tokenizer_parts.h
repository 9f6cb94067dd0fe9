/* What the readers of tokenizer files share: growing a token_spec (whose fields' sources are in
 * token_spec.h), and tokenizer_config.json, whose keys are those of transformers'
 * PreTrainedTokenizerBase (tokenization_utils_base.py). Private to formats/tokenizer. */
#pragma once

#include <jansson.h>

#include "formats/model/model_readers.h"
#include "lib/token/token_spec.h"

enum {
    TOKENIZER_MAX_PIECES = 1 << 22,
    TOKENIZER_MAX_MERGES = 1 << 23,
    TOKENIZER_MAX_ADDED = 1 << 17,
    TOKENIZER_MAX_BYTES = 256 << 20
};

/* Patterns of the families, as their tokenizer.json spells them (pre_tokenizer: Split, or
 * ByteLevel's own for gpt2). */
extern const char token_pattern_gpt2[], token_pattern_llama3[], token_pattern_qwen2[];

/* tokenizer_config.json */
typedef struct token_config {
    char *path;
    json_t *root;           /* NULL: there is no such file */
    const char *class_name; /* "tokenizer_class"; NULL: absent */
} token_config;

typedef struct token_reader {
    const char *model;          /* the model's directory, or its GGUF file */
    const char *path;           /* the file at hand, for messages */
    const token_config *config; /* of a directory */
    token_spec *spec;           /* what is read goes here; freed by the caller in every case */
    ckvc_err *err;
    size_t piece_capacity; /* of token_add_piece */
} token_reader;

/* CKVC_E_DATA with the file's path, and the byte, in front. */
#define token_refuse_at(r, at, ...)                                                                \
    refuse_at(&(reading){.path = (r)->path, .err = (r)->err}, (at), __VA_ARGS__)
#define token_refuse(r, ...) token_refuse_at((r), NO_PLACE, __VA_ARGS__)
/* A rule of the file's: leaves a function that returns a ckvc_status where `condition` holds; where
 * a JSON value is not what it has to be. */
#define REFUSE_AT_IF(r, at, condition, ...)                                                        \
    do {                                                                                           \
        if (condition) { return token_refuse_at((r), (at), __VA_ARGS__); }                         \
    } while (0)
#define REFUSE_IF(r, condition, ...) REFUSE_AT_IF((r), NO_PLACE, condition, __VA_ARGS__)
#define WANT(r, holds, place, got, want)                                                           \
    REFUSE_IF(r, !(holds), "%s is %s; want " want, place, token_json_kind(got))

/* ---- growing a spec ---- */

token_text token_copy(const char *bytes, size_t n);
/* Behind the others; refuses more than TOKENIZER_MAX_PIECES. Takes over the text. */
ckvc_status token_add_piece(token_reader *r, token_piece piece) CKVC_MUST_CHECK;
/* n more merges are to come; refuses more than TOKENIZER_MAX_MERGES. `what` names them. */
ckvc_status token_reserve_merges(token_reader *r, const char *what, uint64_t n) CKVC_MUST_CHECK;
void token_add_merge(token_spec *spec, const char *left, size_t n_left, const char *right,
                     size_t n_right);
void token_add_split(token_spec *spec, const char *pattern);
/* from and to may be NULL. */
token_normalizer *token_add_normalizer(token_spec *spec, token_normalizer_kind kind,
                                       const char *from, const char *to);
void token_add_id(int32_t **ids, size_t *n, int32_t id);
/* Of an added token or a piece; -1: neither. */
int32_t token_id_of(const token_spec *spec, const char *text);

/* White space of SentencePiece: `squeeze` removes what is too much, spaces become U+2581 (unless
 * `plain`), one is put in front of what lies between added tokens (`prefix`), or of the text alone
 * (`first_only`). */
typedef struct token_spaces {
    bool squeeze, plain, prefix, first_only;
} token_spaces;
void token_set_spaces(token_spec *spec, token_spaces how);

/* ---- JSON ---- */

const char *token_json_kind(const json_t *v);            /* "an object", ... */
bool token_given(const json_t *object, const char *key); /* there and not null */
bool token_is_id(const json_t *v);                       /* a whole number from 0, 31 bits */
/* The number that the n bytes are, decimal digits alone, at most `most`; -1: they are none. */
int64_t token_number(const char *text, size_t n, int64_t most);
/* true, false, or absent or null (`otherwise`). */
ckvc_status token_take_flag(const token_reader *r, const char *place, const json_t *object,
                            const char *key, bool otherwise, bool *out) CKVC_MUST_CHECK;
/* Refuses keys that are not in the list of words: an unknown setting may change ids. */
ckvc_status token_only_keys(const token_reader *r, const char *place, json_t *object,
                            const char *allowed) CKVC_MUST_CHECK;
/* {piece: id} */
ckvc_status token_take_vocab(token_reader *r, const char *place, json_t *vocab) CKVC_MUST_CHECK;
/* Room for n more added tokens / the flags and text of one: {"content": ..., "lstrip": ...}. */
ckvc_status token_reserve_added(token_reader *r, const char *place, size_t n) CKVC_MUST_CHECK;
ckvc_status token_take_added(token_reader *r, const char *place, json_t *entry,
                             int64_t id) CKVC_MUST_CHECK;

/* ---- tokenizer_config.json ---- */

/* Field tokenizer_class, with or without "Fast". Whole numbers are read as reals in it
 * (model_max_length is often 10^30). token_config_fini in every case. */
ckvc_status token_config_read(const token_reader *r, token_config *out) CKVC_MUST_CHECK;
void token_config_fini(token_config *config);
/* Whether tokenizer_class is NAME or NAMEFast; is Llama's or InternLM2's. */
bool token_config_is(const token_config *config, const char *name);
bool token_config_is_llama(const token_config *config);
ckvc_status token_config_flag(const token_reader *r, const token_config *config, const char *key,
                              bool otherwise, bool *out) CKVC_MUST_CHECK;
/* For directories without tokenizer.json: the field added_tokens_decoder into r->spec, each entry
 * in the place of one of the same text. Refuses what such a directory may ask for and we do not do
 * (added_tokens.json with other tokens, split_special_tokens). */
ckvc_status token_config_added(token_reader *r, const token_config *config) CKVC_MUST_CHECK;
/* add_bos_token into the prefix; an absent key leaves it as it is. */
ckvc_status token_config_bos(token_reader *r, const token_config *config) CKVC_MUST_CHECK;
/* Text of "bos_token" or "eos_token" (a string or an object with content), or NULL. */
const char *token_config_token(const token_config *config, const char *key);
/* What the directory says of conversations: the text of its chat template, bos and eos. */
ckvc_status token_config_chat(token_reader *r) CKVC_MUST_CHECK;
