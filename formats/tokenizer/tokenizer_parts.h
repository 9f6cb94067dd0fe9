/* What the readers of tokenizer files share: growing a token_spec (whose fields' sources are in
 * token_spec.h), and tokenizer_config.json, whose keys are those of transformers'
 * PreTrainedTokenizerBase (tokenization_utils_base.py). Private to formats. */
#ifndef CKVC_TOKENIZER_PARTS_H
#define CKVC_TOKENIZER_PARTS_H

#include <jansson.h>

#include "lib/base/status.h"
#include "lib/token/token_spec.h"

enum {
    TOKENIZER_MAX_PIECES = 1 << 22,
    TOKENIZER_MAX_MERGES = 1 << 23,
    TOKENIZER_MAX_BYTES = 256 << 20
};

/* Patterns of the families, as their tokenizer.json spells them (pre_tokenizer: Split, or
 * ByteLevel's own for gpt2). */
extern const char token_pattern_gpt2[], token_pattern_llama3[], token_pattern_qwen2[];

typedef struct token_reader {
    const char *path; /* for messages */
    token_spec *spec;
    ckvc_err *err;
} token_reader;

const char *token_json_kind(const json_t *v);            /* "an object", ... */
bool token_given(const json_t *object, const char *key); /* there and not null */
/* true, false, or absent or null (`otherwise`). */
ckvc_status token_take_flag(token_reader *r, const char *place, const json_t *object,
                            const char *key, bool otherwise, bool *out) CKVC_MUST_CHECK;
/* Refuses keys that are not in the NULL-ended list: an unknown setting may change ids. */
ckvc_status token_only_keys(token_reader *r, const char *place, const json_t *object,
                            const char *const *allowed) CKVC_MUST_CHECK;

ckvc_status token_take_bytes(token_reader *r, const char *bytes, size_t n,
                             token_text *out) CKVC_MUST_CHECK;
ckvc_status token_take_vocab(token_reader *r, const char *place,
                             const json_t *vocab) CKVC_MUST_CHECK; /* {piece: id} */
ckvc_status
token_take_merge(token_reader *r, size_t i, const char *left, size_t n_left, const char *right,
                 size_t n_right) CKVC_MUST_CHECK; /* merges[i], allocated by the caller */
ckvc_status token_add_split(token_reader *r, const char *pattern) CKVC_MUST_CHECK;
ckvc_status token_add_normalizer(token_reader *r, token_normalizer_kind kind, const char *from,
                                 const char *to) CKVC_MUST_CHECK;
ckvc_status token_push_id(token_reader *r, int32_t **ids, size_t *n, int32_t id) CKVC_MUST_CHECK;
int32_t token_id_of(const token_spec *spec,
                    const char *text); /* an added token or a piece; -1: neither */
/* Room for n more added tokens / the flags and text of one ({"content": ..., "lstrip": ...}), which
 * goes behind the others. */
ckvc_status token_reserve_added(token_reader *r, const char *place, size_t n) CKVC_MUST_CHECK;
ckvc_status token_take_added(token_reader *r, const char *place, const json_t *entry,
                             int64_t id) CKVC_MUST_CHECK;

/* ---- tokenizer_config.json ---- */
typedef struct token_config {
    char *path;
    json_t *root;           /* NULL: there is no such file */
    const char *class_name; /* "tokenizer_class"; NULL: absent */
} token_config;
/* Field tokenizer_class, with or without "Fast". Whole numbers are read as reals in it
 * (model_max_length is often 10^30). */
ckvc_status token_config_read(const char *model_dir, token_config *out,
                              ckvc_err *err) CKVC_MUST_CHECK;
void token_config_free(token_config *config);
/* For directories without tokenizer.json: the field added_tokens_decoder into r->spec, each entry
 * in the place of one of the same text. Refuses what such a directory may ask for and we do not do
 * (added_tokens.json with other tokens, split_special_tokens). */
ckvc_status token_config_added(token_reader *r, const char *model_dir,
                               const token_config *config) CKVC_MUST_CHECK;
/* The fields add_bos_token and add_eos_token into prefix and suffix; a key that is absent leaves
 * them as they are. */
ckvc_status token_config_ends(token_reader *r, const token_config *config) CKVC_MUST_CHECK;
/* Text of "bos_token" or "eos_token" (a string or an object with content), or NULL. */
const char *token_config_token(const token_config *config, const char *key);

#endif
