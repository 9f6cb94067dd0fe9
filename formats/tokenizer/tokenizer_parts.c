/* What builds a token_spec from files, and reads tokenizer_config.json. */
#include "formats/tokenizer/tokenizer_parts.h"

#include <stdio.h>

#include "lib/base/files.h"
#include "lib/base/json.h"

enum { MAX_CONFIG_BYTES = 16 << 20 };

/* The pattern by which ByteLevel with use_regex splits (tokenizers,
 * pre_tokenizers/byte_level.rs). */
const char token_pattern_gpt2[] =
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";
/* Tokenizer.pat_str of Meta's llama3/tokenizer.py, which is the Split of Llama-3's
 * tokenizer.json. */
const char token_pattern_llama3[] =
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| "
    "?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";
/* PRETOKENIZE_REGEX of transformers, models/qwen2/tokenization_qwen2.py. */
const char token_pattern_qwen2[] =
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| "
    "?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";

/* ---- growing a spec ---- */

token_text token_copy(const char *bytes, size_t n) {
    return (token_text){ckvc_text_copy(bytes, n), n};
}

static token_text copy_of(const char *text) {
    return text ? token_copy(text, strlen(text)) : (token_text){0};
}

ckvc_status token_add_piece(token_reader *r, token_piece piece) {
    token_spec *spec = r->spec;
    CKVC_GROW(spec->pieces, r->piece_capacity, spec->n_pieces + 1);
    spec->pieces[spec->n_pieces++] = piece;
    REFUSE_IF(r, spec->n_pieces > TOKENIZER_MAX_PIECES, "more than %d pieces",
              TOKENIZER_MAX_PIECES);
    return CKVC_OK;
}

ckvc_status token_reserve_merges(token_reader *r, const char *what, uint64_t n) {
    REFUSE_IF(r, n > TOKENIZER_MAX_MERGES, "%s has %llu entries; at most %d are read", what,
              (unsigned long long)n, TOKENIZER_MAX_MERGES);
    r->spec->merges = ckvc_calloc(n, sizeof *r->spec->merges);
    return CKVC_OK;
}

void token_add_merge(token_spec *spec, const char *left, size_t n_left, const char *right,
                     size_t n_right) {
    spec->merges[spec->n_merges++] =
        (token_pair){token_copy(left, n_left), token_copy(right, n_right)};
}

void token_add_split(token_spec *spec, const char *pattern) {
    spec->splits = ckvc_realloc_array(spec->splits, spec->n_splits + 1, sizeof *spec->splits);
    spec->splits[spec->n_splits++] = copy_of(pattern);
}

token_normalizer *token_add_normalizer(token_spec *spec, token_normalizer_kind kind,
                                       const char *from, const char *to) {
    spec->normalizers =
        ckvc_realloc_array(spec->normalizers, spec->n_normalizers + 1, sizeof *spec->normalizers);
    token_normalizer *rule = &spec->normalizers[spec->n_normalizers++];
    *rule = (token_normalizer){kind, copy_of(from), copy_of(to)};
    return rule;
}

void token_add_id(int32_t **ids, size_t *n, int32_t id) {
    *ids = ckvc_realloc_array(*ids, *n + 1, sizeof **ids);
    (*ids)[(*n)++] = id;
}

static bool same_text(const token_text *a, const char *bytes, size_t n) {
    return a->size == n && memcmp(a->bytes, bytes, n) == 0;
}

int32_t token_id_of(const token_spec *spec, const char *text) {
    const size_t n = strlen(text);
    for (size_t i = 0; i < spec->n_added; i++) {
        if (same_text(&spec->added[i].text, text, n)) { return spec->added[i].id; }
    }
    for (size_t i = 0; i < spec->n_pieces; i++) {
        if (same_text(&spec->pieces[i].text, text, n)) { return spec->pieces[i].id; }
    }
    return -1;
}

void token_set_spaces(token_spec *spec, token_spaces how) {
    const char *mark = how.plain ? " " : TOKEN_SPACE_MARK;
    if (how.squeeze) { token_add_normalizer(spec, TOKEN_NORM_SQUEEZE, NULL, NULL); }
    if (how.prefix && how.first_only && !how.plain) {
        spec->metaspace_prefix = TOKEN_PREFIX_FIRST;
        spec->metaspace = copy_of(mark);
    } else {
        if (how.prefix) { token_add_normalizer(spec, TOKEN_NORM_PREPEND, NULL, mark); }
        if (!how.plain) { token_add_normalizer(spec, TOKEN_NORM_REPLACE, " ", mark); }
    }
    spec->decode_from = copy_of(TOKEN_SPACE_MARK);
    spec->decode_to = copy_of(" ");
    spec->decode_strip_left = how.prefix;
}

/* ---- JSON ---- */

const char *token_json_kind(const json_t *v) {
    static const char *const names[] = {"an object", "an array", "a string", "a whole number",
                                        "a number",  "true",     "false",    "null"};
    return v ? names[json_typeof(v)] : "nothing";
}

bool token_given(const json_t *object, const char *key) {
    const json_t *v = json_object_get(object, key);
    return v && !json_is_null(v);
}

bool token_is_id(const json_t *v) {
    return json_is_integer(v) && json_integer_value(v) >= 0 && json_integer_value(v) <= INT32_MAX;
}

int64_t token_number(const char *text, size_t n, int64_t most) {
    int64_t number = n ? 0 : -1;
    for (size_t i = 0; i < n && number >= 0; i++) {
        number = text[i] >= '0' && text[i] <= '9' ? number * 10 + (text[i] - '0') : -1;
        number = number <= most ? number : -1;
    }
    return number;
}

ckvc_status token_take_flag(const token_reader *r, const char *place, const json_t *object,
                            const char *key, bool otherwise, bool *out) {
    const json_t *v = json_object_get(object, key);
    *out = token_given(object, key) ? json_is_true(v) : otherwise;
    REFUSE_IF(r, token_given(object, key) && !json_is_boolean(v), "%s.%s is %s; want true or false",
              place, key, token_json_kind(v));
    return CKVC_OK;
}

static bool is_word_of(const char *list, const char *word) {
    const size_t n = strlen(word);
    if (!n || strchr(word, ' ')) { return false; }
    for (const char *at = list; (at = strstr(at, word)); at += n) {
        if ((at == list || at[-1] == ' ') && (at[n] == ' ' || !at[n])) { return true; }
    }
    return false;
}

ckvc_status token_only_keys(const token_reader *r, const char *place, json_t *object,
                            const char *allowed) {
    const char *key;
    json_t *value;
    json_object_foreach(object, key, value) {
        REFUSE_IF(r, !json_is_null(value) && !is_word_of(allowed, key),
                  "%s: key \"%.64s\" is not supported", place, key);
    }
    return CKVC_OK;
}

ckvc_status token_take_vocab(token_reader *r, const char *place, json_t *vocab) {
    token_spec *spec = r->spec;
    WANT(r, json_is_object(vocab), place, vocab, "an object of piece: id");
    const size_t n = json_object_size(vocab);
    REFUSE_IF(r, n > TOKENIZER_MAX_PIECES, "%s has %zu pieces; at most %d are read", place, n,
              TOKENIZER_MAX_PIECES);
    spec->pieces = ckvc_calloc(n, sizeof *spec->pieces);
    const char *key;
    json_t *id;
    json_object_foreach(vocab, key, id) {
        REFUSE_IF(r, !token_is_id(id), "%s: \"%.64s\" has no id that is a whole number from 0",
                  place, key);
        spec->pieces[spec->n_pieces++] =
            (token_piece){.text = copy_of(key), .id = (int32_t)json_integer_value(id)};
    }
    return CKVC_OK;
}

ckvc_status token_reserve_added(token_reader *r, const char *place, size_t n) {
    token_spec *spec = r->spec;
    if (n > TOKENIZER_MAX_ADDED - spec->n_added) { /* there are never more than that */
        return token_refuse(r, "%s: more than %d added tokens", place, TOKENIZER_MAX_ADDED);
    }
    spec->added = ckvc_realloc_array(spec->added, spec->n_added + n, sizeof *spec->added);
    return CKVC_OK;
}

ckvc_status token_take_added(token_reader *r, const char *place, json_t *entry, int64_t id) {
    static const char *const keys[] = {"single_word", "lstrip", "rstrip", "normalized", "special"};
    const json_t *content = json_object_get(entry, "content");
    token_added added = {.id = (int32_t)id};
    bool *const flags[] = {&added.single_word, &added.lstrip, &added.rstrip, &added.normalized,
                           &added.special};
    WANT(r, json_is_object(entry), place, entry, "an object");
    CKVC_TRY(token_only_keys(r, place, entry,
                             "id content single_word lstrip rstrip normalized special __type"));
    /* `normalized` is the only flag that is true unless it is given */
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++) {
        const bool otherwise = flags[i] == &added.normalized;
        CKVC_TRY(token_take_flag(r, place, entry, keys[i], otherwise, flags[i]));
    }
    REFUSE_IF(r, !json_is_string(content), "%s.content is %s; want a string", place,
              token_json_kind(content));
    added.text = token_copy(json_string_value(content), json_string_length(content));
    r->spec->added[r->spec->n_added++] = added;
    return CKVC_OK;
}

/* ---- tokenizer_config.json ---- */

/* The reader whose errors name the config's file. */
static token_reader of_config(const token_reader *r, const token_config *config) {
    token_reader at = *r;
    at.path = config->path;
    return at;
}

ckvc_status token_config_read(const token_reader *r, token_config *out) {
    *out = (token_config){.path = ckvc_path_join(r->model, "tokenizer_config.json")};
    if (!ckvc_file_exists(out->path)) { return CKVC_OK; }
    CKVC_AUTO_FREE char *text = NULL;
    size_t size;
    CKVC_TRY(ckvc_file_read(out->path, MAX_CONFIG_BYTES, &text, &size, r->err));
    json_error_t problem;
    out->root = json_loadb(text, size, JSON_REJECT_DUPLICATES | JSON_DECODE_INT_AS_REAL, &problem);
    CKVC_FAIL_IF(!out->root, r->err, CKVC_E_DATA, "%s:%d:%d: not valid JSON: %s", out->path,
                 problem.line, problem.column, problem.text);
    const token_reader at = of_config(r, out);
    WANT(&at, json_is_object(out->root), "the file", out->root, "an object");
    out->class_name = json_string_value(json_object_get(out->root, "tokenizer_class"));
    return CKVC_OK;
}

void token_config_fini(token_config *config) {
    free(config->path);
    json_decref(config->root);
    *config = (token_config){0};
}

bool token_config_is(const token_config *config, const char *name) {
    const size_t n = strlen(name);
    return config->class_name && strncmp(config->class_name, name, n) == 0 &&
           (!config->class_name[n] || strcmp(config->class_name + n, "Fast") == 0);
}

bool token_config_is_llama(const token_config *config) {
    return token_config_is(config, "LlamaTokenizer") ||
           token_config_is(config, "InternLM2Tokenizer");
}

ckvc_status token_config_flag(const token_reader *r, const token_config *config, const char *key,
                              bool otherwise, bool *out) {
    const token_reader at = of_config(r, config);
    return token_take_flag(&at, "tokenizer_config", config->root, key, otherwise, out);
}

const char *token_config_token(const token_config *config, const char *key) {
    const json_t *token = json_object_get(config->root, key);
    return json_string_value(json_is_object(token) ? json_object_get(token, "content") : token);
}

/* The indices of the added tokens by their texts, as a config may have as many again. New
 * reference. */
static json_t *index_added(const token_spec *spec) {
    json_t *index = json_object();
    for (size_t i = 0; i < spec->n_added; i++) {
        json_object_set_new_nocheck(index, spec->added[i].text.bytes, json_integer((json_int_t)i));
    }
    return index;
}

static token_added *find_added(const token_spec *spec, const json_t *index, const char *text,
                               size_t n) {
    const json_t *at = json_object_get(index, text);
    token_added *found = at ? &spec->added[json_integer_value(at)] : NULL;
    return found && same_text(&found->text, text, n) ? found : NULL;
}

/* Checks added_tokens.json, which older versions wrote: it may hold only what the config has,
 * too. */
static ckvc_status check_added_json(const token_reader *r) {
    CKVC_AUTO_FREE char *path = ckvc_path_join(r->model, "added_tokens.json");
    json_auto_t *older = NULL;
    if (ckvc_file_exists(path)) {
        CKVC_TRY(ckvc_json_read(path, MAX_CONFIG_BYTES, &older, r->err));
    }
    json_auto_t *index = index_added(r->spec);
    const char *key;
    json_t *id;
    json_object_foreach(older, key, id) {
        const token_added *known = find_added(r->spec, index, key, strlen(key));
        CKVC_FAIL_IF(!known || known->id != json_integer_value(id), r->err, CKVC_E_DATA,
                     "%s: \"%.64s\" is not in added_tokens_decoder of tokenizer_config.json, which "
                     "says how to find it; save the tokenizer anew with a current transformers",
                     path, key);
    }
    return CKVC_OK;
}

/* Puts the last added token in the place of an earlier one with the same text. */
static ckvc_status replace_same(token_reader *at, const char *place, const json_t *before,
                                const char *other_path) {
    const token_added *added = &at->spec->added[at->spec->n_added - 1];
    token_added *old = find_added(at->spec, before, added->text.bytes, added->text.size);
    if (!old) { return CKVC_OK; }
    REFUSE_IF(at, old->id != added->id, "%s: \"%.64s\" has id %d in %s", place, old->text.bytes,
              old->id, other_path);
    free(old->text.bytes);
    *old = *added;
    at->spec->n_added--;
    return CKVC_OK;
}

ckvc_status token_config_added(token_reader *r, const token_config *config) {
    token_reader at = of_config(r, config);
    json_t *table = json_object_get(config->root, "added_tokens_decoder");
    json_auto_t *before = index_added(r->spec);
    bool cut;
    CKVC_TRY(token_config_flag(r, config, "split_special_tokens", false, &cut));
    REFUSE_IF(&at, cut, "split_special_tokens is not supported");
    WANT(&at, json_is_object(table) || !token_given(config->root, "added_tokens_decoder"),
         "added_tokens_decoder", table, "an object");
    CKVC_TRY(token_reserve_added(&at, "added_tokens_decoder", json_object_size(table)));
    const char *key;
    json_t *entry;
    json_object_foreach(table, key, entry) {
        char place[96];
        snprintf(place, sizeof place, "added_tokens_decoder.\"%.32s\"", key);
        const int64_t id = token_number(key, strlen(key), INT32_MAX);
        REFUSE_IF(&at, id < 0, "%s: the key is no id; want a whole number from 0", place);
        CKVC_TRY(token_take_added(&at, place, entry, id));
        CKVC_TRY(replace_same(&at, place, before, r->path));
    }
    return check_added_json(r);
}

ckvc_status token_config_bos(token_reader *r, const token_config *config) {
    static const char flag[] = "add_bos_token";
    bool add;
    CKVC_TRY(token_config_flag(r, config, flag, false, &add));
    if (!token_given(config->root, flag)) { return CKVC_OK; }
    r->spec->n_prefix = 0;
    if (!add) { return CKVC_OK; }
    const char *content = token_config_token(config, "bos_token");
    const int32_t id = content ? token_id_of(r->spec, content) : -1;
    CKVC_FAIL_IF(id < 0, r->err, CKVC_E_DATA,
                 "%s: %s is true, but bos_token \"%.64s\" is not a token of %s", config->path, flag,
                 content ? content : "(none)", r->path);
    token_add_id(&r->spec->prefix_ids, &r->spec->n_prefix, id);
    return CKVC_OK;
}

/* It looks where transformers looks (from_pretrained, tokenization_utils_base.py): in the
 * template's own files, then at the key, which has a text or a list of named texts. */
ckvc_status token_config_chat(token_reader *r) {
    static const char *const files[] = {"additional_chat_templates/default.jinja",
                                        "chat_template.jinja"};
    token_text *out = &r->spec->chat_template;
    r->spec->bos = copy_of(token_config_token(r->config, "bos_token"));
    r->spec->eos = copy_of(token_config_token(r->config, "eos_token"));
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        CKVC_AUTO_FREE char *path = ckvc_path_join(r->model, files[i]);
        if (ckvc_file_exists(path)) {
            return ckvc_file_read(path, MAX_CONFIG_BYTES, &out->bytes, &out->size, r->err);
        }
    }
    const json_t *text = json_object_get(r->config->root, "chat_template");
    const json_t *const list = text;
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *one = json_array_get(list, i);
        const char *name = json_string_value(json_object_get(one, "name"));
        if (name && strcmp(name, "default") == 0) { text = json_object_get(one, "template"); }
    }
    *out = copy_of(json_string_value(text));
    return CKVC_OK;
}
