/* Growing a token_spec from foreign files, and tokenizer_config.json. */
#include "formats/tokenizer/tokenizer_parts.h"

#include <stdlib.h>
#include <string.h>

#include "lib/base/files.h"
#include "lib/base/json.h"
#include "lib/base/memory.h"

enum { MAX_CONFIG_BYTES = 16 << 20, MAX_ADDED = 1 << 17 };

/* What ByteLevel with use_regex splits by (tokenizers, pre_tokenizers/byte_level.rs). */
const char token_pattern_gpt2[] =
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";
/* Tokenizer.pat_str of Meta's llama3/tokenizer.py, which is the Split of Llama-3's tokenizer.json.
 */
const char token_pattern_llama3[] =
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| "
    "?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";
/* PRETOKENIZE_REGEX of transformers, models/qwen2/tokenization_qwen2.py. */
const char token_pattern_qwen2[] =
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| "
    "?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";

const char *token_json_kind(const json_t *v) {
    static const char *const names[] = {"an object", "an array", "a string", "a whole number",
                                        "a number",  "true",     "false",    "null"};
    return v ? names[json_typeof(v)] : "nothing";
}

bool token_given(const json_t *object, const char *key) {
    const json_t *v = json_object_get(object, key);
    return v && !json_is_null(v);
}

ckvc_status token_take_flag(token_reader *r, const char *place, const json_t *object,
                            const char *key, bool otherwise, bool *out) {
    const json_t *v = json_object_get(object, key);
    *out = v && !json_is_null(v) ? json_is_true(v) : otherwise;
    if (v && !json_is_boolean(v) && !json_is_null(v)) {
        return ckvc_fail(r->err, CKVC_E_DATA, "%s: %s.%s is %s; want true or false", r->path, place,
                         key, token_json_kind(v));
    }
    return CKVC_OK;
}

ckvc_status token_only_keys(token_reader *r, const char *place, const json_t *object,
                            const char *const *allowed) {
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)object, key, value) {
        size_t i = 0;
        while (allowed[i] && strcmp(allowed[i], key) != 0) {
            i++;
        }
        if (!allowed[i] && !json_is_null(value)) {
            return ckvc_fail(r->err, CKVC_E_DATA, "%s: %s: key \"%.64s\" is not supported", r->path,
                             place, key);
        }
    }
    return CKVC_OK;
}

/* ---- growing a spec ---- */
ckvc_status token_take_bytes(token_reader *r, const char *bytes, size_t n, token_text *out) {
    out->bytes = ckvc_alloc(n + 1, 1);
    memcpy(out->bytes, bytes, n);
    out->bytes[n] = '\0';
    out->size = n;
    return CKVC_OK;
}

ckvc_status token_take_vocab(token_reader *r, const char *place, const json_t *vocab) {
    token_spec *spec = r->spec;
    if (!json_is_object(vocab)) {
        return ckvc_fail(r->err, CKVC_E_DATA, "%s: %s is %s; want an object of piece: id", r->path,
                         place, token_json_kind(vocab));
    }
    size_t n = json_object_size(vocab);
    if (n > TOKENIZER_MAX_PIECES) {
        return ckvc_fail(r->err, CKVC_E_DATA, "%s: %s has %zu pieces; at most %d are read", r->path,
                         place, n, TOKENIZER_MAX_PIECES);
    }
    spec->pieces = ckvc_calloc(n, sizeof *spec->pieces);
    const char *key;
    json_t *id;
    json_object_foreach((json_t *)(uintptr_t)vocab, key, id) {
        if (!json_is_integer(id) || json_integer_value(id) < 0 ||
            json_integer_value(id) > INT32_MAX) {
            return ckvc_fail(r->err, CKVC_E_DATA,
                             "%s: %s: \"%.64s\" has no id that is a whole number from 0", r->path,
                             place, key);
        }
        token_piece *piece = &spec->pieces[spec->n_pieces];
        ckvc_status status = token_take_bytes(r, key, strlen(key), &piece->text);
        if (status != CKVC_OK) { return status; }
        piece->id = (int32_t)json_integer_value(id);
        spec->n_pieces++;
    }
    return CKVC_OK;
}

ckvc_status token_take_merge(token_reader *r, size_t i, const char *left, size_t n_left,
                             const char *right, size_t n_right) {
    struct token_merge *out = &r->spec->merges[i];
    r->spec->n_merges = i + 1;
    ckvc_status status = token_take_bytes(r, left, n_left, &out->left);
    return status == CKVC_OK ? token_take_bytes(r, right, n_right, &out->right) : status;
}

ckvc_status token_add_split(token_reader *r, const char *pattern) {
    token_spec *spec = r->spec;
    token_text *grown = ckvc_realloc_array(spec->splits, spec->n_splits + 1, sizeof *grown);
    spec->splits = grown;
    spec->splits[spec->n_splits] = (token_text){0};
    return token_take_bytes(r, pattern, strlen(pattern), &spec->splits[spec->n_splits++]);
}

ckvc_status token_add_normalizer(token_reader *r, token_normalizer_kind kind, const char *from,
                                 const char *to) {
    token_spec *spec = r->spec;
    token_normalizer *grown =
        ckvc_realloc_array(spec->normalizers, spec->n_normalizers + 1, sizeof *grown);
    spec->normalizers = grown;
    token_normalizer *rule = &grown[spec->n_normalizers++];
    *rule = (token_normalizer){kind, {0}, {0}};
    ckvc_status status = from ? token_take_bytes(r, from, strlen(from), &rule->from) : CKVC_OK;
    return status == CKVC_OK && to ? token_take_bytes(r, to, strlen(to), &rule->to) : status;
}

ckvc_status token_push_id(token_reader *r, int32_t **ids, size_t *n, int32_t id) {
    int32_t *grown = ckvc_realloc_array(*ids, *n + 1, sizeof *grown);
    *ids = grown;
    grown[(*n)++] = id;
    return CKVC_OK;
}

int32_t token_id_of(const token_spec *spec, const char *text) {
    size_t n = strlen(text);
    for (size_t i = 0; i < spec->n_added; i++) {
        if (spec->added[i].text.size == n && memcmp(spec->added[i].text.bytes, text, n) == 0) {
            return spec->added[i].id;
        }
    }
    for (size_t i = 0; i < spec->n_pieces; i++) {
        if (spec->pieces[i].text.size == n && memcmp(spec->pieces[i].text.bytes, text, n) == 0) {
            return spec->pieces[i].id;
        }
    }
    return -1;
}

/* ---- added tokens ---- */
ckvc_status token_reserve_added(token_reader *r, const char *place, size_t n) {
    if (n > MAX_ADDED - r->spec->n_added) { /* never more than MAX_ADDED are there */
        return ckvc_fail(r->err, CKVC_E_DATA, "%s: %s: more than %d added tokens", r->path, place,
                         MAX_ADDED);
    }
    token_added *grown = ckvc_realloc_array(r->spec->added, r->spec->n_added + n, sizeof *grown);
    r->spec->added = grown;
    return CKVC_OK;
}

ckvc_status token_take_added(token_reader *r, const char *place, const json_t *entry, int64_t id) {
    static const char *const keys[] = {"id",         "content", "single_word", "lstrip", "rstrip",
                                       "normalized", "special", "__type",      NULL};
    if (!json_is_object(entry)) {
        return ckvc_fail(r->err, CKVC_E_DATA, "%s: %s is %s; want an object", r->path, place,
                         token_json_kind(entry));
    }
    ckvc_status status = token_only_keys(r, place, entry, keys);
    token_added *added = &r->spec->added[r->spec->n_added];
    *added = (token_added){.id = (int32_t)id};
    const struct {
        const char *key;
        bool otherwise;
        bool *flag;
    } flags[] = {{"single_word", false, &added->single_word},
                 {"lstrip", false, &added->lstrip},
                 {"rstrip", false, &added->rstrip},
                 {"normalized", true, &added->normalized},
                 {"special", false, &added->special}};
    for (size_t k = 0; k < sizeof flags / sizeof *flags && status == CKVC_OK; k++) {
        status = token_take_flag(r, place, entry, flags[k].key, flags[k].otherwise, flags[k].flag);
    }
    const json_t *content = json_object_get(entry, "content");
    if (status == CKVC_OK && !json_is_string(content)) {
        status = ckvc_fail(r->err, CKVC_E_DATA, "%s: %s.content is %s; want a string", r->path,
                           place, token_json_kind(content));
    }
    if (status == CKVC_OK) {
        status = token_take_bytes(r, json_string_value(content), json_string_length(content),
                                  &added->text);
        r->spec->n_added++;
    }
    return status;
}

/* ---- tokenizer_config.json ---- */
ckvc_status token_config_read(const char *model_dir, token_config *out, ckvc_err *err) {
    *out = (token_config){ckvc_path_join(model_dir, "tokenizer_config.json"), NULL, NULL};
    if (!out->path) { return ckvc_fail_memory(err, "a path", strlen(model_dir)); }
    if (!ckvc_file_exists(out->path)) { return CKVC_OK; }
    char *text;
    size_t size;
    ckvc_status status = ckvc_file_read(out->path, MAX_CONFIG_BYTES, &text, &size, err);
    if (status != CKVC_OK) { return status; }
    json_error_t problem;
    out->root = json_loadb(text, size, JSON_REJECT_DUPLICATES | JSON_DECODE_INT_AS_REAL, &problem);
    free(text);
    if (!out->root) {
        return ckvc_fail(err, CKVC_E_DATA, "%s:%d:%d: not valid JSON: %s", out->path, problem.line,
                         problem.column, problem.text);
    }
    if (!json_is_object(out->root)) {
        return ckvc_fail(err, CKVC_E_DATA, "%s: the file is %s; want an object", out->path,
                         token_json_kind(out->root));
    }
    out->class_name = json_string_value(json_object_get(out->root, "tokenizer_class"));
    return CKVC_OK;
}

void token_config_free(token_config *config) {
    free(config->path);
    json_decref(config->root);
    *config = (token_config){0};
}

const char *token_config_token(const token_config *config, const char *key) {
    const json_t *token = json_object_get(config->root, key);
    return json_string_value(json_is_object(token) ? json_object_get(token, "content") : token);
}

/* A key of added_tokens_decoder: decimal digits alone. */
static int64_t id_of_key(const char *key) {
    int64_t id = *key ? 0 : -1;
    for (; *key && id >= 0; key++) {
        id = *key >= '0' && *key <= '9' && id <= INT32_MAX ? id * 10 + (*key - '0') : -1;
    }
    return id <= INT32_MAX ? id : -1;
}

static ckvc_status check_added_json(token_reader *r, const char *model_dir) {
    char *path = ckvc_path_join(model_dir, "added_tokens.json");
    json_t *older = NULL;
    ckvc_status status = path ? CKVC_OK : ckvc_fail_memory(r->err, "a path", strlen(model_dir));
    if (status == CKVC_OK && ckvc_file_exists(path)) {
        status = ckvc_json_read(path, MAX_CONFIG_BYTES, &older, r->err);
    }
    const char *key;
    json_t *id;
    json_object_foreach(older, key, id) {
        bool known = false;
        for (size_t i = 0; i < r->spec->n_added && !known; i++) {
            known = strcmp(r->spec->added[i].text.bytes, key) == 0 &&
                    r->spec->added[i].id == json_integer_value(id);
        }
        if (!known && status == CKVC_OK) {
            status = ckvc_fail(r->err, CKVC_E_DATA,
                               "%s: \"%.64s\" is not in added_tokens_decoder of "
                               "tokenizer_config.json, which says how to find it; "
                               "save the tokenizer anew with a current transformers",
                               path, key);
        }
    }
    json_decref(older);
    free(path);
    return status;
}

ckvc_status token_config_added(token_reader *r, const char *model_dir, const token_config *config) {
    token_reader at = {config->path, r->spec, r->err};
    const json_t *table = json_object_get(config->root, "added_tokens_decoder");
    bool cut;
    ckvc_status status =
        token_take_flag(&at, "tokenizer_config", config->root, "split_special_tokens", false, &cut);
    if (status == CKVC_OK && cut) {
        status = ckvc_fail(r->err, CKVC_E_DATA, "%s: split_special_tokens is not supported",
                           config->path);
    }
    if (status == CKVC_OK && table && !json_is_null(table) && !json_is_object(table)) {
        status = ckvc_fail(r->err, CKVC_E_DATA, "%s: added_tokens_decoder is %s; want an object",
                           config->path, token_json_kind(table));
    }
    if (status == CKVC_OK) {
        status = token_reserve_added(&at, "added_tokens_decoder", json_object_size(table));
    }
    const size_t before = r->spec->n_added;
    const char *key;
    json_t *entry;
    json_object_foreach((json_t *)(uintptr_t)table, key, entry) {
        if (status != CKVC_OK) { break; }
        char place[96];
        snprintf(place, sizeof place, "added_tokens_decoder.\"%.32s\"", key);
        int64_t id = id_of_key(key);
        status = id < 0 ? ckvc_fail(r->err, CKVC_E_DATA,
                                    "%s: %s: the key is no id; want a whole number from 0",
                                    config->path, place)
                        : token_take_added(&at, place, entry, id);
        if (status != CKVC_OK) { break; }
        const token_added *added = &r->spec->added[r->spec->n_added - 1];
        for (size_t i = 0; i < before && status == CKVC_OK; i++) {
            token_added *old = &r->spec->added[i];
            if (old->text.size != added->text.size ||
                memcmp(old->text.bytes, added->text.bytes, added->text.size) != 0) {
                continue;
            }
            if (old->id != added->id) {
                status = ckvc_fail(r->err, CKVC_E_DATA, "%s: %s: \"%.64s\" has id %d in %s",
                                   config->path, place, old->text.bytes, old->id, r->path);
                break;
            }
            free(old->text.bytes);
            *old = *added;
            r->spec->n_added--;
            break;
        }
    }
    return status == CKVC_OK ? check_added_json(r, model_dir) : status;
}

ckvc_status token_config_ends(token_reader *r, const token_config *config) {
    static const char *const flags[] = {"add_bos_token", "add_eos_token"}, *const tokens[] = {
                                                                               "bos_token",
                                                                               "eos_token"};
    token_reader at = {config->path, r->spec, r->err};
    ckvc_status status = CKVC_OK;
    for (int i = 0; i < 2 && status == CKVC_OK; i++) {
        int32_t **ids = i ? &r->spec->suffix_ids : &r->spec->prefix_ids;
        size_t *n = i ? &r->spec->n_suffix : &r->spec->n_prefix;
        bool add;
        status = token_take_flag(&at, "tokenizer_config", config->root, flags[i], *n > 0, &add);
        if (status != CKVC_OK || !token_given(config->root, flags[i])) { continue; }
        *n = 0;
        if (!add) { continue; }
        const char *content = token_config_token(config, tokens[i]);
        int32_t id = content ? token_id_of(r->spec, content) : -1;
        status = id < 0 ? ckvc_fail(r->err, CKVC_E_DATA,
                                    "%s: %s is true, but %s \"%.64s\" is not a token of %s",
                                    config->path, flags[i], tokens[i], content ? content : "(none)",
                                    r->path)
                        : token_push_id(r, ids, n, id);
    }
    return status;
}
