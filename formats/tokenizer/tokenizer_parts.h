/* What the readers of tokenizer files share: building a token_spec (token_spec.h names the sources
 * of its fields), and reading tokenizer_config.json, whose keys are those of transformers'
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

/* The patterns of the families, as their tokenizer.json spells them (pre_tokenizer: Split; for gpt2
 * the one built into ByteLevel). */
extern const char token_pattern_gpt2[], token_pattern_llama3[], token_pattern_qwen2[];

/* The contents of tokenizer_config.json. */
typedef struct token_config {
    char *path;
    json_t *root;           /* NULL: there is no such file */
    const char *class_name; /* "tokenizer_class"; NULL: there is no such key */
} token_config;

typedef struct token_reader {
    const char *model;          /* the model's directory, or its GGUF file */
    const char *path;           /* the current file, for messages */
    const token_config *config; /* of a directory; NULL for a file */
    token_spec *spec;           /* receives what is read; the caller frees it in every case */
    ckvc_err *err;
    size_t piece_capacity; /* the room of token_add_piece */
} token_reader;

/* Fails with CKVC_E_DATA; the message begins with the file's path, and the byte if there is one. */
#define token_refuse_at(r, at, ...)                                                                \
    refuse_at(&(reading){.path = (r)->path, .err = (r)->err}, (at), __VA_ARGS__)
#define token_refuse(r, ...) token_refuse_at((r), NO_PLACE, __VA_ARGS__)
/* States rules of the file. The function, which must return a ckvc_status, returns with a failure
 * where `condition` holds; the last one, where a JSON value is not what it has to be. */
#define REFUSE_AT_IF(r, at, condition, ...)                                                        \
    do {                                                                                           \
        if (condition) { return token_refuse_at((r), (at), __VA_ARGS__); }                         \
    } while (0)
#define REFUSE_IF(r, condition, ...) REFUSE_AT_IF((r), NO_PLACE, condition, __VA_ARGS__)
#define WANT(r, holds, place, got, want)                                                           \
    REFUSE_IF(r, !(holds), "%s is %s; want " want, place, token_json_kind(got))

/* ---- growing a spec ---- */

token_text token_copy(const char *bytes, size_t n);
/* Adds a piece after the others and takes over its text. Refuses more than TOKENIZER_MAX_PIECES. */
ckvc_status token_add_piece(token_reader *r, token_piece piece) CKVC_MUST_CHECK;
/* Makes room for n more merges. Refuses more than TOKENIZER_MAX_MERGES; `what` names them in the
 * message. */
ckvc_status token_reserve_merges(token_reader *r, const char *what, uint64_t n) CKVC_MUST_CHECK;
void token_add_merge(token_spec *spec, const char *left, size_t n_left, const char *right,
                     size_t n_right);
void token_add_split(token_spec *spec, const char *pattern);
/* Adds a normalizer; from and to may be NULL. */
token_normalizer *token_add_normalizer(token_spec *spec, token_normalizer_kind kind,
                                       const char *from, const char *to);
void token_add_id(int32_t **ids, size_t *n, int32_t id);
/* Returns the id of the added token or piece with this text, or -1 where there is neither. */
int32_t token_id_of(const token_spec *spec, const char *text);

/* How SentencePiece treats white space. With `squeeze`, spaces at the ends are removed and runs of
 * them become one. Unless `plain` is set, spaces then become U+2581. With `prefix`, one is put in
 * front of every piece of text between added tokens, or with `first_only`, which does nothing under
 * `plain`, in front of the first. */
typedef struct token_spaces {
    bool squeeze, plain, prefix, first_only;
} token_spaces;
void token_set_spaces(token_spec *spec, token_spaces how);

/* ---- JSON ---- */

const char *token_json_kind(const json_t *v);            /* "an object", ... */
bool token_given(const json_t *object, const char *key); /* it is there and not null */
/* it is a whole number from 0 up that has 31 bits */
bool token_is_id(const json_t *v);
/* The number that the n bytes are, if they are decimal digits only and it is at most `most`; -1:
 * they are not. */
int64_t token_number(const char *text, size_t n, int64_t most);
/* Reads true or false; where the key is absent or null, *out is `otherwise`. */
ckvc_status token_take_flag(const token_reader *r, const char *place, const json_t *object,
                            const char *key, bool otherwise, bool *out) CKVC_MUST_CHECK;
/* Refuses keys that are not in the list of words, as an unknown setting may change ids. */
ckvc_status token_only_keys(const token_reader *r, const char *place, json_t *object,
                            const char *allowed) CKVC_MUST_CHECK;
/* Reads a vocabulary {piece: id}. */
ckvc_status token_take_vocab(token_reader *r, const char *place, json_t *vocab) CKVC_MUST_CHECK;
/* token_reserve_added makes room for n more added tokens; token_take_added reads the flags and text
 * of one: {"content": ..., "lstrip": ...}. */
ckvc_status token_reserve_added(token_reader *r, const char *place, size_t n) CKVC_MUST_CHECK;
ckvc_status token_take_added(token_reader *r, const char *place, json_t *entry,
                             int64_t id) CKVC_MUST_CHECK;

/* ---- tokenizer_config.json ---- */

/* Reads the config; the field tokenizer_class may end in "Fast". Whole numbers in the file are read
 * as reals (model_max_length is often 10^30). Call token_config_fini in every case. */
ckvc_status token_config_read(const token_reader *r, token_config *out) CKVC_MUST_CHECK;
void token_config_fini(token_config *config);
/* token_config_is: whether tokenizer_class is NAME or NAMEFast. token_config_is_llama: whether it
 * is Llama's or InternLM2's. */
bool token_config_is(const token_config *config, const char *name);
bool token_config_is_llama(const token_config *config);
ckvc_status token_config_flag(const token_reader *r, const token_config *config, const char *key,
                              bool otherwise, bool *out) CKVC_MUST_CHECK;
/* For directories without tokenizer.json: reads the field added_tokens_decoder into r->spec; each
 * entry takes the place of one with the same text. It refuses what such a directory may ask for and
 * we do not do (added_tokens.json with other tokens, split_special_tokens). */
ckvc_status token_config_added(token_reader *r, const token_config *config) CKVC_MUST_CHECK;
/* Reads add_bos_token into the prefix; without the key the prefix stays as it is. */
ckvc_status token_config_bos(token_reader *r, const token_config *config) CKVC_MUST_CHECK;
/* The text of "bos_token" or "eos_token" (a string, or an object with content), or NULL. */
const char *token_config_token(const token_config *config, const char *key);
/* Reads what the directory says about conversations: the text of its chat template, bos and eos. */
ckvc_status token_config_chat(token_reader *r) CKVC_MUST_CHECK;
