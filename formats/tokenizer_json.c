/* tokenizer.json of Hugging Face `tokenizers`, read into a token_spec. What the file asks for and we do not do is refused by its
 * name: a tokenizer that is nearly right would shift every id that follows and look like a bad model. */
#include "formats/tokenizer_json.h"

#include <stdlib.h>
#include <string.h>

#include "lib/base/files.h"
#include "lib/base/json.h"
#include "lib/base/memory.h"

enum {
    MAX_FILE_BYTES = 256 << 20,
    MAX_CONFIG_BYTES = 16 << 20,
    MAX_PIECES = 1 << 22,
    MAX_MERGES = 1 << 23,
    MAX_ADDED = 1 << 17,
    MAX_STEPS = 64 /* of a sequence of normalizers, pre-tokenizers, decoders */
};

/* What ByteLevel with use_regex splits by (GPT-2). */
static const char gpt2_pattern[] = "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";

typedef struct reader {
    const char *path;
    token_spec *spec;
    ckvc_err *err;
} reader;

/* ---- small readers ---- */
static const char *kind_name(const json_t *v)
{
    static const char *const names[] = {"an object", "an array", "a string", "a whole number", "a number", "true", "false", "null"};
    return v ? names[json_typeof(v)] : "nothing";
}

static ckvc_status bad(reader *r, const char *place, const json_t *got, const char *want)
{
    return ckvc_fail(r->err, CKVC_E_DATA, "%s: %s is %s; want %s", r->path, place, kind_name(got), want);
}

static ckvc_status unsupported(reader *r, const char *place, const char *what)
{
    return ckvc_fail(r->err, CKVC_E_DATA, "%s: %s: \"%.64s\" is not supported", r->path, place, what);
}

static ckvc_status take_bytes(reader *r, const char *bytes, size_t n, token_text *out)
{
    out->bytes = ckvc_alloc(n + 1, 1);
    if (!out->bytes) {
        return ckvc_fail_memory(r->err, "tokenizer text", n + 1);
    }
    memcpy(out->bytes, bytes, n);
    out->bytes[n] = '\0';
    out->size = n;
    return CKVC_OK;
}

static ckvc_status take_text(reader *r, const char *place, const json_t *v, token_text *out)
{
    if (!json_is_string(v)) {
        return bad(r, place, v, "a string");
    }
    return take_bytes(r, json_string_value(v), json_string_length(v), out);
}

/* true, false, or absent (the default). */
static ckvc_status take_flag(reader *r, const char *place, const json_t *object, const char *key, bool otherwise, bool *out)
{
    const json_t *v = json_object_get(object, key);
    *out = v && !json_is_null(v) ? json_is_true(v) : otherwise;
    if (v && !json_is_boolean(v) && !json_is_null(v)) {
        return ckvc_fail(r->err, CKVC_E_DATA, "%s: %s.%s is %s; want true or false", r->path, place, key, kind_name(v));
    }
    return CKVC_OK;
}

/* Refuses keys that are not in the NULL-ended list: an unknown setting may change ids. */
static ckvc_status only_keys(reader *r, const char *place, const json_t *object, const char *const *allowed)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)object, key, value)
    {
        size_t i = 0;
        while (allowed[i] && strcmp(allowed[i], key) != 0) {
            i++;
        }
        if (!allowed[i] && !json_is_null(value)) {
            return ckvc_fail(r->err, CKVC_E_DATA, "%s: %s: key \"%.64s\" is not supported", r->path, place, key);
        }
    }
    return CKVC_OK;
}

static const char *type_of(const json_t *object)
{
    const char *type = json_string_value(json_object_get(object, "type"));
    return type ? type : "(no type)";
}

static bool given(const json_t *object, const char *key)
{
    const json_t *v = json_object_get(object, key);
    return v && !json_is_null(v);
}

/* ---- model ---- */
static ckvc_status read_vocab(reader *r, const json_t *vocab)
{
    token_spec *spec = r->spec;
    if (!json_is_object(vocab)) {
        return bad(r, "model.vocab", vocab, "an object of piece: id");
    }
    size_t n = json_object_size(vocab);
    if (n > MAX_PIECES) {
        return ckvc_fail(r->err, CKVC_E_DATA, "%s: model.vocab has %zu pieces; at most %d are read", r->path, n, MAX_PIECES);
    }
    spec->pieces = ckvc_calloc(n, sizeof *spec->pieces);
    if (!spec->pieces) {
        return ckvc_fail_memory(r->err, "tokenizer pieces", n * sizeof *spec->pieces);
    }
    const char *key;
    json_t *id;
    json_object_foreach((json_t *)(uintptr_t)vocab, key, id)
    {
        if (!json_is_integer(id) || json_integer_value(id) < 0 || json_integer_value(id) > INT32_MAX) {
            return ckvc_fail(r->err, CKVC_E_DATA, "%s: model.vocab: \"%.64s\" has no id that is a whole number from 0", r->path,
                             key);
        }
        token_piece *piece = &spec->pieces[spec->n_pieces];
        ckvc_status status = take_bytes(r, key, strlen(key), &piece->text);
        if (status != CKVC_OK) {
            return status;
        }
        piece->id = (int32_t)json_integer_value(id);
        spec->n_pieces++;
    }
    return CKVC_OK;
}

/* Both spellings: "left right" and ["left", "right"]. */
static ckvc_status read_merge(reader *r, size_t i, const json_t *merge)
{
    struct token_merge *out = &r->spec->merges[i];
    r->spec->n_merges = i + 1;
    const char *left = NULL, *right = NULL;
    size_t n_left = 0, n_right = 0;
    if (json_is_string(merge)) {
        left = json_string_value(merge);
        size_t n = json_string_length(merge);
        const char *space = memchr(left, ' ', n);
        if (space) {
            n_left = (size_t)(space - left);
            right = space + 1;
            n_right = n - n_left - 1;
        }
        if (!space || memchr(right, ' ', n_right)) {
            return ckvc_fail(r->err, CKVC_E_DATA, "%s: model.merges[%zu]: \"%.64s\"; want two parts and one space", r->path, i,
                             left);
        }
    } else if (json_is_array(merge) && json_array_size(merge) == 2 && json_is_string(json_array_get(merge, 0)) &&
               json_is_string(json_array_get(merge, 1))) {
        const json_t *a = json_array_get(merge, 0), *b = json_array_get(merge, 1);
        left = json_string_value(a);
        n_left = json_string_length(a);
        right = json_string_value(b);
        n_right = json_string_length(b);
    } else {
        return ckvc_fail(r->err, CKVC_E_DATA, "%s: model.merges[%zu] is %s; want \"left right\" or [\"left\", \"right\"]", r->path,
                         i, kind_name(merge));
    }
    if (n_left == 0 || n_right == 0) {
        return ckvc_fail(r->err, CKVC_E_DATA, "%s: model.merges[%zu]: the %s part is empty", r->path, i, n_left ? "right" : "left");
    }
    ckvc_status status = take_bytes(r, left, n_left, &out->left);
    return status == CKVC_OK ? take_bytes(r, right, n_right, &out->right) : status;
}

static ckvc_status read_merges(reader *r, const json_t *merges)
{
    if (!json_is_array(merges)) {
        return bad(r, "model.merges", merges, "an array");
    }
    size_t n = json_array_size(merges);
    if (n > MAX_MERGES) {
        return ckvc_fail(r->err, CKVC_E_DATA, "%s: model.merges has %zu entries; at most %d are read", r->path, n, MAX_MERGES);
    }
    r->spec->merges = ckvc_calloc(n, sizeof *r->spec->merges);
    if (!r->spec->merges) {
        return ckvc_fail_memory(r->err, "tokenizer merges", n * sizeof *r->spec->merges);
    }
    for (size_t i = 0; i < n; i++) {
        ckvc_status status = read_merge(r, i, json_array_get(merges, i));
        if (status != CKVC_OK) {
            return status;
        }
    }
    return CKVC_OK;
}

static int32_t id_of(const token_spec *spec, const char *text)
{
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

static ckvc_status read_model(reader *r, const json_t *model)
{
    static const char *const keys[] = {"type",
                                       "dropout",
                                       "unk_token",
                                       "continuing_subword_prefix",
                                       "end_of_word_suffix",
                                       "fuse_unk",
                                       "byte_fallback",
                                       "ignore_merges",
                                       "vocab",
                                       "merges",
                                       NULL};
    if (!json_is_object(model)) {
        return bad(r, "model", model, "an object");
    }
    /* Files of before 2021 have no type; merges say that it is BPE. */
    if (strcmp(type_of(model), "BPE") != 0 && (json_object_get(model, "type") || !json_object_get(model, "merges"))) {
        return ckvc_fail(r->err, CKVC_E_DATA, "%s: model: type \"%.64s\" is not supported; BPE is", r->path, type_of(model));
    }
    ckvc_status status = only_keys(r, "model", model, keys);
    if (status != CKVC_OK) {
        return status;
    }
    const json_t *dropout = json_object_get(model, "dropout");
    if (given(model, "dropout") && json_number_value(dropout) != 0) {
        return unsupported(r, "model", "dropout");
    }
    for (int i = 3; i <= 4; i++) { /* an affix, null or empty */
        const json_t *affix = json_object_get(model, keys[i]);
        if (given(model, keys[i]) && !(json_is_string(affix) && json_string_length(affix) == 0)) {
            return unsupported(r, "model", keys[i]);
        }
    }
    status = take_flag(r, "model", model, "fuse_unk", false, &r->spec->fuse_unk);
    if (status == CKVC_OK) {
        status = take_flag(r, "model", model, "byte_fallback", false, &r->spec->byte_fallback);
    }
    if (status == CKVC_OK) {
        status = take_flag(r, "model", model, "ignore_merges", false, &r->spec->ignore_merges);
    }
    if (status == CKVC_OK) {
        status = read_vocab(r, json_object_get(model, "vocab"));
    }
    if (status == CKVC_OK) {
        status = read_merges(r, json_object_get(model, "merges"));
    }
    r->spec->unk_id = -1;
    if (status == CKVC_OK && given(model, "unk_token")) {
        const json_t *unk = json_object_get(model, "unk_token");
        if (!json_is_string(unk)) {
            return bad(r, "model.unk_token", unk, "a string or null");
        }
        r->spec->unk_id = id_of(r->spec, json_string_value(unk));
        if (r->spec->unk_id < 0) {
            return ckvc_fail(r->err, CKVC_E_DATA, "%s: model.unk_token \"%.64s\" is not in the vocabulary", r->path,
                             json_string_value(unk));
        }
    }
    return status;
}

/* ---- added tokens ---- */
static ckvc_status read_added(reader *r, const json_t *list)
{
    static const char *const keys[] = {"id", "content", "single_word", "lstrip", "rstrip", "normalized", "special", NULL};
    if (!list || json_is_null(list)) {
        return CKVC_OK;
    }
    if (!json_is_array(list)) {
        return bad(r, "added_tokens", list, "an array");
    }
    size_t n = json_array_size(list);
    if (n > MAX_ADDED) {
        return ckvc_fail(r->err, CKVC_E_DATA, "%s: added_tokens has %zu entries; at most %d are read", r->path, n, MAX_ADDED);
    }
    r->spec->added = ckvc_calloc(n, sizeof *r->spec->added);
    if (!r->spec->added) {
        return ckvc_fail_memory(r->err, "added tokens", n * sizeof *r->spec->added);
    }
    ckvc_status status = CKVC_OK;
    for (size_t i = 0; i < n && status == CKVC_OK; i++) {
        const json_t *entry = json_array_get(list, i), *id = json_object_get(entry, "id");
        char place[64];
        snprintf(place, sizeof place, "added_tokens[%zu]", i);
        if (!json_is_object(entry)) {
            return bad(r, place, entry, "an object");
        }
        status = only_keys(r, place, entry, keys);
        if (status == CKVC_OK && (!json_is_integer(id) || json_integer_value(id) < 0 || json_integer_value(id) > INT32_MAX)) {
            return ckvc_fail(r->err, CKVC_E_DATA, "%s: %s.id is %s; want a whole number from 0", r->path, place, kind_name(id));
        }
        token_added *added = &r->spec->added[i];
        r->spec->n_added = i + 1;
        added->id = (int32_t)json_integer_value(id);
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
            status = take_flag(r, place, entry, flags[k].key, flags[k].otherwise, flags[k].flag);
        }
        if (status == CKVC_OK) {
            snprintf(place, sizeof place, "added_tokens[%zu].content", i);
            status = take_text(r, place, json_object_get(entry, "content"), &added->text);
        }
    }
    return status;
}

/* ---- steps: an object with a type, or a Sequence of them ---- */
typedef ckvc_status (*step_fn)(reader *r, const char *place, const json_t *step, size_t i, size_t n);

static ckvc_status each_step(reader *r, const char *place, const json_t *value, const char *list_key, step_fn fn)
{
    if (!value || json_is_null(value)) {
        return CKVC_OK;
    }
    if (!json_is_object(value)) {
        return bad(r, place, value, "an object or null");
    }
    if (strcmp(type_of(value), "Sequence") != 0) {
        return fn(r, place, value, 0, 1);
    }
    const json_t *list = json_object_get(value, list_key);
    size_t n = json_array_size(list);
    if (!json_is_array(list) || n > MAX_STEPS) {
        return ckvc_fail(r->err, CKVC_E_DATA, "%s: %s.%s is %s of %zu; want an array of at most %d", r->path, place, list_key,
                         kind_name(list), n, MAX_STEPS);
    }
    ckvc_status status = CKVC_OK;
    for (size_t i = 0; i < n && status == CKVC_OK; i++) {
        char inner[64];
        snprintf(inner, sizeof inner, "%s[%zu]", place, i);
        status = json_is_object(json_array_get(list, i)) ? fn(r, inner, json_array_get(list, i), i, n)
                                                         : bad(r, inner, json_array_get(list, i), "an object");
    }
    return status;
}

/* {"String": "..."}: a plain text. {"Regex": ...} is told apart by the caller. */
static const json_t *plain_pattern(const json_t *step)
{
    return json_object_get(json_object_get(step, "pattern"), "String");
}

static ckvc_status normalizer_step(reader *r, const char *place, const json_t *step, size_t i, size_t n)
{
    (void)i, (void)n;
    const char *type = type_of(step);
    token_spec *spec = r->spec;
    token_normalizer *grown = ckvc_realloc_array(spec->normalizers, spec->n_normalizers + 1, sizeof *grown);
    if (!grown) {
        return ckvc_fail_memory(r->err, "normalizers", sizeof *grown);
    }
    spec->normalizers = grown;
    token_normalizer *rule = &spec->normalizers[spec->n_normalizers++];
    *rule = (token_normalizer){TOKEN_NORM_NFC, {0}, {0}};
    if (strcmp(type, "NFC") == 0) {
        return CKVC_OK;
    }
    if (strcmp(type, "Prepend") == 0) {
        rule->kind = TOKEN_NORM_PREPEND;
        return take_text(r, place, json_object_get(step, "prepend"), &rule->to);
    }
    if (strcmp(type, "Replace") == 0) {
        rule->kind = TOKEN_NORM_REPLACE;
        if (!plain_pattern(step)) {
            return unsupported(r, place, "Replace of a Regex");
        }
        ckvc_status status = take_text(r, place, plain_pattern(step), &rule->from);
        return status == CKVC_OK ? take_text(r, place, json_object_get(step, "content"), &rule->to) : status;
    }
    return ckvc_fail(r->err, CKVC_E_DATA, "%s: %s: type \"%.64s\" is not supported; NFC, Prepend, Replace and Sequence are",
                     r->path, place, type);
}

static ckvc_status add_split(reader *r, const char *pattern, size_t n)
{
    token_spec *spec = r->spec;
    token_text *grown = ckvc_realloc_array(spec->splits, spec->n_splits + 1, sizeof *grown);
    if (!grown) {
        return ckvc_fail_memory(r->err, "pre-tokenizer patterns", sizeof *grown);
    }
    spec->splits = grown;
    spec->splits[spec->n_splits] = (token_text){0};
    return take_bytes(r, pattern, n, &spec->splits[spec->n_splits++]);
}

static ckvc_status pre_tokenizer_step(reader *r, const char *place, const json_t *step, size_t i, size_t n)
{
    const char *type = type_of(step);
    token_spec *spec = r->spec;
    if (strcmp(type, "Split") == 0) {
        const json_t *regex = json_object_get(json_object_get(step, "pattern"), "Regex");
        const char *behavior = json_string_value(json_object_get(step, "behavior"));
        bool invert;
        ckvc_status status = take_flag(r, place, step, "invert", false, &invert);
        if (status != CKVC_OK) {
            return status;
        }
        if (!json_is_string(regex)) {
            return unsupported(r, place, "Split by a pattern that is not a Regex");
        }
        if (!behavior || strcmp(behavior, "Isolated") != 0 || invert) {
            return ckvc_fail(r->err, CKVC_E_DATA, "%s: %s: Split with behavior \"%.32s\"%s is not supported; Isolated is", r->path,
                             place, behavior ? behavior : "(none)", invert ? " and invert" : "");
        }
        return add_split(r, json_string_value(regex), json_string_length(regex));
    }
    if (strcmp(type, "Digits") == 0) {
        bool individual;
        ckvc_status status = take_flag(r, place, step, "individual_digits", false, &individual);
        return status != CKVC_OK ? status : individual ? add_split(r, "\\p{N}", 5) : add_split(r, "\\p{N}+", 6);
    }
    if (strcmp(type, "ByteLevel") == 0) {
        if (i + 1 != n) {
            return unsupported(r, place, "ByteLevel before another pre-tokenizer");
        }
        bool use_regex;
        ckvc_status status = take_flag(r, place, step, "add_prefix_space", true, &spec->add_prefix_space);
        if (status == CKVC_OK) {
            status = take_flag(r, place, step, "use_regex", true, &use_regex);
        }
        if (status != CKVC_OK) {
            return status;
        }
        if (spec->add_prefix_space && spec->n_splits) {
            return unsupported(r, place, "add_prefix_space after a Split");
        }
        spec->byte_level = true;
        return use_regex ? add_split(r, gpt2_pattern, sizeof gpt2_pattern - 1) : CKVC_OK;
    }
    return ckvc_fail(r->err, CKVC_E_DATA, "%s: %s: type \"%.64s\" is not supported; Split, Digits, ByteLevel and Sequence are",
                     r->path, place, type);
}

/* ---- decoder: ByteLevel, or the steps Replace, ByteFallback, Fuse, Strip in this order ---- */
static ckvc_status check_decoder(reader *r, const json_t *decoder)
{
    static const char *const order[] = {"Replace", "ByteFallback", "Fuse", "Strip"};
    token_spec *spec = r->spec;
    const char *type = type_of(decoder);
    if (spec->byte_level || strcmp(type, "ByteLevel") == 0) {
        if (spec->byte_level && strcmp(type, "ByteLevel") == 0) {
            return CKVC_OK;
        }
        return ckvc_fail(r->err, CKVC_E_DATA, "%s: decoder \"%.64s\" does not belong to a pre_tokenizer %s ByteLevel", r->path,
                         type, spec->byte_level ? "with" : "without");
    }
    const json_t *list = json_object_get(decoder, "decoders");
    if (strcmp(type, "Sequence") != 0 || !json_is_array(list)) {
        return ckvc_fail(r->err, CKVC_E_DATA, "%s: decoder: type \"%.64s\" is not supported; ByteLevel and Sequence are", r->path,
                         type);
    }
    size_t next = 0;
    bool byte_fallback = false, fused = false;
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *step = json_array_get(list, i);
        char place[40];
        snprintf(place, sizeof place, "decoder[%zu]", i);
        type = type_of(step);
        size_t k = next;
        while (k < 4 && strcmp(order[k], type) != 0) {
            k++;
        }
        if (k == 4) {
            return ckvc_fail(
                r->err, CKVC_E_DATA,
                "%s: %s: \"%.64s\" is not supported here; Replace, ByteFallback, Fuse and Strip, each once in this order, are",
                r->path, place, type);
        }
        next = k + 1;
        ckvc_status status = CKVC_OK;
        if (k == 0) {
            status = plain_pattern(step) ? take_text(r, place, plain_pattern(step), &spec->decode_from)
                                         : unsupported(r, place, "Replace of a Regex");
            if (status == CKVC_OK) {
                status = take_text(r, place, json_object_get(step, "content"), &spec->decode_to);
            }
        } else if (k == 1) {
            byte_fallback = true;
        } else if (k == 2) {
            fused = true;
        } else {
            const char *content = json_string_value(json_object_get(step, "content"));
            if (!content || strcmp(content, " ") != 0 || json_integer_value(json_object_get(step, "start")) != 1 ||
                json_integer_value(json_object_get(step, "stop")) != 0 || !fused) {
                status = unsupported(r, place, "Strip of anything but one space at the start of the fused text");
            }
            spec->decode_strip_left = true;
        }
        if (status != CKVC_OK) {
            return status;
        }
    }
    if (byte_fallback != spec->byte_fallback) {
        return ckvc_fail(r->err, CKVC_E_DATA, "%s: model.byte_fallback is %s, but the decoder has %s ByteFallback", r->path,
                         spec->byte_fallback ? "true" : "false", byte_fallback ? "a" : "no");
    }
    return CKVC_OK;
}

/* ---- template ---- */
static ckvc_status push_id(reader *r, int32_t **ids, size_t *n, int32_t id)
{
    int32_t *grown = ckvc_realloc_array(*ids, *n + 1, sizeof *grown);
    if (!grown) {
        return ckvc_fail_memory(r->err, "template ids", sizeof *grown);
    }
    *ids = grown;
    grown[(*n)++] = id;
    return CKVC_OK;
}

static ckvc_status read_template(reader *r, const char *place, const json_t *step)
{
    token_spec *spec = r->spec;
    const json_t *single = json_object_get(step, "single");
    bool after = false;
    if (!json_is_array(single) || json_array_size(single) > MAX_STEPS) {
        return ckvc_fail(r->err, CKVC_E_DATA, "%s: %s.single is %s; want an array of at most %d", r->path, place, kind_name(single),
                         MAX_STEPS);
    }
    for (size_t i = 0; i < json_array_size(single); i++) {
        const json_t *part = json_array_get(single, i);
        const char *sequence = json_string_value(json_object_get(json_object_get(part, "Sequence"), "id"));
        const char *special = json_string_value(json_object_get(json_object_get(part, "SpecialToken"), "id"));
        if (sequence && strcmp(sequence, "A") == 0 && !after) {
            after = true;
            continue;
        }
        if (!special) {
            return ckvc_fail(r->err, CKVC_E_DATA, "%s: %s.single[%zu] is neither a SpecialToken nor the one Sequence A", r->path,
                             place, i);
        }
        const json_t *ids = json_object_get(json_object_get(json_object_get(step, "special_tokens"), special), "ids");
        if (!json_is_array(ids) || json_array_size(ids) == 0 || json_array_size(ids) > MAX_STEPS) {
            return ckvc_fail(r->err, CKVC_E_DATA, "%s: %s.special_tokens has no ids for \"%.64s\"", r->path, place, special);
        }
        for (size_t k = 0; k < json_array_size(ids); k++) {
            const json_t *id = json_array_get(ids, k);
            if (!json_is_integer(id) || json_integer_value(id) < 0 || json_integer_value(id) > INT32_MAX) {
                return ckvc_fail(r->err, CKVC_E_DATA, "%s: %s.special_tokens: \"%.64s\" has an id that is no whole number from 0",
                                 r->path, place, special);
            }
            ckvc_status status = after ? push_id(r, &spec->suffix_ids, &spec->n_suffix, (int32_t)json_integer_value(id))
                                       : push_id(r, &spec->prefix_ids, &spec->n_prefix, (int32_t)json_integer_value(id));
            if (status != CKVC_OK) {
                return status;
            }
        }
    }
    if (!after) {
        return ckvc_fail(r->err, CKVC_E_DATA, "%s: %s.single has no Sequence A", r->path, place);
    }
    return CKVC_OK;
}

static ckvc_status post_processor_step(reader *r, const char *place, const json_t *step, size_t i, size_t n)
{
    (void)i, (void)n;
    const char *type = type_of(step);
    if (strcmp(type, "ByteLevel") == 0) {
        return CKVC_OK; /* trims offsets, which we do not have */
    }
    if (strcmp(type, "TemplateProcessing") == 0) {
        if (r->spec->n_prefix || r->spec->n_suffix) {
            return unsupported(r, place, "a second TemplateProcessing");
        }
        return read_template(r, place, step);
    }
    return ckvc_fail(r->err, CKVC_E_DATA, "%s: %s: type \"%.64s\" is not supported; TemplateProcessing, ByteLevel and Sequence are",
                     r->path, place, type);
}

/* ---- tokenizer_config.json ---- */

/* For Llama's own tokenizer classes add_bos_token and add_eos_token rebuild the template when a model is loaded, so they
 * decide; for every other class the template of tokenizer.json does. */
static ckvc_status apply_config(reader *r, const char *path)
{
    char *text;
    size_t size;
    ckvc_status status = ckvc_file_read(path, MAX_CONFIG_BYTES, &text, &size, r->err);
    if (status != CKVC_OK) {
        return status;
    }
    /* model_max_length is often 10^30, beyond any integer: numbers are of no interest here and read as reals. */
    json_error_t problem;
    json_t *config = json_loadb(text, size, JSON_REJECT_DUPLICATES | JSON_DECODE_INT_AS_REAL, &problem);
    free(text);
    if (!config) {
        return ckvc_fail(r->err, CKVC_E_DATA, "%s:%d:%d: not valid JSON: %s", path, problem.line, problem.column, problem.text);
    }
    const char *class_name = json_string_value(json_object_get(config, "tokenizer_class"));
    reader at = {path, r->spec, r->err};
    if (class_name && (strcmp(class_name, "LlamaTokenizer") == 0 || strcmp(class_name, "LlamaTokenizerFast") == 0)) {
        static const char *const flags[] = {"add_bos_token", "add_eos_token"}, *const tokens[] = {"bos_token", "eos_token"};
        for (int i = 0; i < 2 && status == CKVC_OK; i++) {
            int32_t **ids = i ? &r->spec->suffix_ids : &r->spec->prefix_ids;
            size_t *n = i ? &r->spec->n_suffix : &r->spec->n_prefix;
            bool add;
            status = take_flag(&at, "tokenizer_config", config, flags[i], *n > 0, &add);
            if (status != CKVC_OK || !given(config, flags[i])) {
                continue;
            }
            *n = 0;
            if (!add) {
                continue;
            }
            const json_t *token = json_object_get(config, tokens[i]);
            const char *content = json_string_value(json_is_object(token) ? json_object_get(token, "content") : token);
            int32_t id = content ? id_of(r->spec, content) : -1;
            status = id < 0 ? ckvc_fail(r->err, CKVC_E_DATA, "%s: %s is true, but %s \"%.64s\" is not a token of %s", path,
                                        flags[i], tokens[i], content ? content : "(none)", r->path)
                            : push_id(r, ids, n, id);
        }
    }
    json_decref(config);
    return status;
}

static ckvc_status read_all(reader *r, const json_t *root)
{
    /* truncation and padding belong to a batch, not to the tokenizer: whoever loads one sets them anew at each call. */
    static const char *const keys[] = {"version",       "truncation",     "padding", "added_tokens", "normalizer",
                                       "pre_tokenizer", "post_processor", "decoder", "model",        NULL};
    if (!json_is_object(root)) {
        return bad(r, "the file", root, "an object");
    }
    ckvc_status status = only_keys(r, "top level", root, keys);
    if (status == CKVC_OK) {
        status = read_added(r, json_object_get(root, "added_tokens"));
    }
    if (status == CKVC_OK) {
        status = read_model(r, json_object_get(root, "model"));
    }
    if (status == CKVC_OK) {
        status = each_step(r, "normalizer", json_object_get(root, "normalizer"), "normalizers", normalizer_step);
    }
    if (status == CKVC_OK) {
        status = each_step(r, "pre_tokenizer", json_object_get(root, "pre_tokenizer"), "pretokenizers", pre_tokenizer_step);
    }
    if (status == CKVC_OK) {
        status = check_decoder(r, json_object_get(root, "decoder"));
    }
    if (status == CKVC_OK) {
        status = each_step(r, "post_processor", json_object_get(root, "post_processor"), "processors", post_processor_step);
    }
    return status;
}

ckvc_status tokenizer_json_read(const char *model_dir, token_spec **out, ckvc_err *err)
{
    *out = NULL;
    char *path = ckvc_path_join(model_dir, "tokenizer.json"), *config = ckvc_path_join(model_dir, "tokenizer_config.json");
    reader r = {path, ckvc_calloc(1, sizeof(token_spec)), err};
    json_t *root = NULL;
    ckvc_status status = CKVC_OK;
    if (!path || !config || !r.spec) {
        status = ckvc_fail_memory(err, "tokenizer", sizeof(token_spec));
    } else if (!ckvc_file_exists(path)) {
        status = ckvc_fail(err, CKVC_E_NOINPUT,
                           "%s: no such file; give prompts as \"tokens\", or a model directory with a tokenizer", path);
    }
    if (status == CKVC_OK) {
        status = ckvc_json_read(path, MAX_FILE_BYTES, &root, err);
    }
    if (status == CKVC_OK) {
        status = read_all(&r, root);
    }
    if (status == CKVC_OK && ckvc_file_exists(config)) {
        status = apply_config(&r, config);
    }
    json_decref(root);
    free(path);
    free(config);
    if (status != CKVC_OK) {
        token_spec_free(r.spec);
        return status;
    }
    *out = r.spec;
    return CKVC_OK;
}
