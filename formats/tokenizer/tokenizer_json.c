/* tokenizer.json of Hugging Face `tokenizers`, read into a token_spec. What the file asks for and
 * we do not do is refused by its name: a tokenizer that is nearly right would shift every id that
 * follows and look like a bad model. */
#include "formats/tokenizer/tokenizer_json.h"

#include <stdlib.h>
#include <string.h>

#include "formats/tokenizer/tokenizer_parts.h"
#include "lib/base/files.h"
#include "lib/base/json.h"
#include "lib/base/memory.h"

enum { MAX_STEPS = 64 /* of a sequence of normalizers, pre-tokenizers, decoders */ };

typedef token_reader reader;

/* ---- small readers ---- */
static ckvc_status bad(reader *r, const char *place, const json_t *got, const char *want) {
    return ckvc_fail(r->err, CKVC_E_DATA, "%s: %s is %s; want %s", r->path, place,
                     token_json_kind(got), want);
}

static ckvc_status unsupported(reader *r, const char *place, const char *what) {
    return ckvc_fail(r->err, CKVC_E_DATA, "%s: %s: \"%.64s\" is not supported", r->path, place,
                     what);
}

static ckvc_status take_text(reader *r, const char *place, const json_t *v, token_text *out) {
    if (!json_is_string(v)) { return bad(r, place, v, "a string"); }
    return token_take_bytes(r, json_string_value(v), json_string_length(v), out);
}

static const char *type_of(const json_t *object) {
    const char *type = json_string_value(json_object_get(object, "type"));
    return type ? type : "(no type)";
}

/* ---- model ---- */
/* Both spellings: "left right" and ["left", "right"]. */
static ckvc_status read_merge(reader *r, size_t i, const json_t *merge) {
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
            return ckvc_fail(r->err, CKVC_E_DATA,
                             "%s: model.merges[%zu]: \"%.64s\"; want two parts and one space",
                             r->path, i, left);
        }
    } else if (json_is_array(merge) && json_array_size(merge) == 2 &&
               json_is_string(json_array_get(merge, 0)) &&
               json_is_string(json_array_get(merge, 1))) {
        const json_t *a = json_array_get(merge, 0), *b = json_array_get(merge, 1);
        left = json_string_value(a);
        n_left = json_string_length(a);
        right = json_string_value(b);
        n_right = json_string_length(b);
    } else {
        return ckvc_fail(
            r->err, CKVC_E_DATA,
            "%s: model.merges[%zu] is %s; want \"left right\" or [\"left\", \"right\"]", r->path, i,
            token_json_kind(merge));
    }
    if (n_left == 0 || n_right == 0) {
        return ckvc_fail(r->err, CKVC_E_DATA, "%s: model.merges[%zu]: the %s part is empty",
                         r->path, i, n_left ? "right" : "left");
    }
    return token_take_merge(r, i, left, n_left, right, n_right);
}

static ckvc_status read_merges(reader *r, const json_t *merges) {
    if (!json_is_array(merges)) { return bad(r, "model.merges", merges, "an array"); }
    size_t n = json_array_size(merges);
    if (n > TOKENIZER_MAX_MERGES) {
        return ckvc_fail(r->err, CKVC_E_DATA,
                         "%s: model.merges has %zu entries; at most %d are read", r->path, n,
                         TOKENIZER_MAX_MERGES);
    }
    r->spec->merges = ckvc_calloc(n, sizeof *r->spec->merges);
    for (size_t i = 0; i < n; i++) {
        ckvc_status status = read_merge(r, i, json_array_get(merges, i));
        if (status != CKVC_OK) { return status; }
    }
    return CKVC_OK;
}

static ckvc_status read_model(reader *r, const json_t *model) {
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
    if (!json_is_object(model)) { return bad(r, "model", model, "an object"); }
    /* Files of before 2021 have no type; merges say that it is BPE. */
    if (strcmp(type_of(model), "BPE") != 0 &&
        (json_object_get(model, "type") || !json_object_get(model, "merges"))) {
        return ckvc_fail(r->err, CKVC_E_DATA, "%s: model: type \"%.64s\" is not supported; BPE is",
                         r->path, type_of(model));
    }
    ckvc_status status = token_only_keys(r, "model", model, keys);
    if (status != CKVC_OK) { return status; }
    const json_t *dropout = json_object_get(model, "dropout");
    if (token_given(model, "dropout") && json_number_value(dropout) != 0) {
        return unsupported(r, "model", "dropout");
    }
    for (int i = 3; i <= 4; i++) { /* an affix, null or empty */
        const json_t *affix = json_object_get(model, keys[i]);
        if (token_given(model, keys[i]) &&
            !(json_is_string(affix) && json_string_length(affix) == 0)) {
            return unsupported(r, "model", keys[i]);
        }
    }
    status = token_take_flag(r, "model", model, "fuse_unk", false, &r->spec->fuse_unk);
    if (status == CKVC_OK) {
        status =
            token_take_flag(r, "model", model, "byte_fallback", false, &r->spec->byte_fallback);
    }
    if (status == CKVC_OK) {
        status =
            token_take_flag(r, "model", model, "ignore_merges", false, &r->spec->ignore_merges);
    }
    if (status == CKVC_OK) {
        status = token_take_vocab(r, "model.vocab", json_object_get(model, "vocab"));
    }
    if (status == CKVC_OK) { status = read_merges(r, json_object_get(model, "merges")); }
    r->spec->unk_id = -1;
    if (status == CKVC_OK && token_given(model, "unk_token")) {
        const json_t *unk = json_object_get(model, "unk_token");
        if (!json_is_string(unk)) { return bad(r, "model.unk_token", unk, "a string or null"); }
        r->spec->unk_id = token_id_of(r->spec, json_string_value(unk));
        if (r->spec->unk_id < 0) {
            return ckvc_fail(r->err, CKVC_E_DATA,
                             "%s: model.unk_token \"%.64s\" is not in the vocabulary", r->path,
                             json_string_value(unk));
        }
    }
    return status;
}

/* ---- added tokens ---- */
static ckvc_status read_added(reader *r, const json_t *list) {
    if (!list || json_is_null(list)) { return CKVC_OK; }
    if (!json_is_array(list)) { return bad(r, "added_tokens", list, "an array"); }
    ckvc_status status = token_reserve_added(r, "added_tokens", json_array_size(list));
    for (size_t i = 0; i < json_array_size(list) && status == CKVC_OK; i++) {
        const json_t *entry = json_array_get(list, i), *id = json_object_get(entry, "id");
        char place[64];
        snprintf(place, sizeof place, "added_tokens[%zu]", i);
        if (json_is_object(entry) && (!json_is_integer(id) || json_integer_value(id) < 0 ||
                                      json_integer_value(id) > INT32_MAX)) {
            return ckvc_fail(r->err, CKVC_E_DATA, "%s: %s.id is %s; want a whole number from 0",
                             r->path, place, token_json_kind(id));
        }
        status = token_take_added(r, place, entry, json_integer_value(id));
    }
    return status;
}

/* ---- steps: an object with a type, or a Sequence of them ---- */
typedef ckvc_status (*step_fn)(reader *r, const char *place, const json_t *step, size_t i,
                               size_t n);

static ckvc_status each_step(reader *r, const char *place, const json_t *value,
                             const char *list_key, step_fn fn) {
    if (!value || json_is_null(value)) { return CKVC_OK; }
    if (!json_is_object(value)) { return bad(r, place, value, "an object or null"); }
    if (strcmp(type_of(value), "Sequence") != 0) { return fn(r, place, value, 0, 1); }
    const json_t *list = json_object_get(value, list_key);
    size_t n = json_array_size(list);
    if (!json_is_array(list) || n > MAX_STEPS) {
        return ckvc_fail(r->err, CKVC_E_DATA, "%s: %s.%s is %s of %zu; want an array of at most %d",
                         r->path, place, list_key, token_json_kind(list), n, MAX_STEPS);
    }
    ckvc_status status = CKVC_OK;
    for (size_t i = 0; i < n && status == CKVC_OK; i++) {
        char inner[64];
        snprintf(inner, sizeof inner, "%s[%zu]", place, i);
        status = json_is_object(json_array_get(list, i))
                     ? fn(r, inner, json_array_get(list, i), i, n)
                     : bad(r, inner, json_array_get(list, i), "an object");
    }
    return status;
}

/* {"String": "..."}: a plain text. {"Regex": ...} is told apart by the caller. */
static const json_t *plain_pattern(const json_t *step) {
    return json_object_get(json_object_get(step, "pattern"), "String");
}

static ckvc_status normalizer_step(reader *r, const char *place, const json_t *step, size_t i,
                                   size_t n) {
    (void)i, (void)n;
    const char *type = type_of(step);
    token_spec *spec = r->spec;
    ckvc_status status = token_add_normalizer(r, TOKEN_NORM_NFC, NULL, NULL);
    if (status != CKVC_OK) { return status; }
    token_normalizer *rule = &spec->normalizers[spec->n_normalizers - 1];
    if (strcmp(type, "NFC") == 0) { return CKVC_OK; }
    if (strcmp(type, "Prepend") == 0) {
        rule->kind = TOKEN_NORM_PREPEND;
        return take_text(r, place, json_object_get(step, "prepend"), &rule->to);
    }
    if (strcmp(type, "Replace") == 0) {
        rule->kind = TOKEN_NORM_REPLACE;
        if (!plain_pattern(step)) { return unsupported(r, place, "Replace of a Regex"); }
        status = take_text(r, place, plain_pattern(step), &rule->from);
        return status == CKVC_OK ? take_text(r, place, json_object_get(step, "content"), &rule->to)
                                 : status;
    }
    return ckvc_fail(
        r->err, CKVC_E_DATA,
        "%s: %s: type \"%.64s\" is not supported; NFC, Prepend, Replace and Sequence are", r->path,
        place, type);
}

/* Both generations: prepend_scheme and split, or add_prefix_space (true: always) with split always
 * on. */
static ckvc_status read_metaspace(reader *r, const char *place, const json_t *step) {
    static const char *const schemes[] = {"never", "first", "always"};
    const char *scheme = json_string_value(json_object_get(step, "prepend_scheme"));
    token_spec *spec = r->spec;
    bool older, split;
    ckvc_status status =
        take_text(r, place, json_object_get(step, "replacement"), &spec->metaspace);
    if (status == CKVC_OK) {
        status = token_take_flag(r, place, step, "add_prefix_space", true, &older);
    }
    if (status == CKVC_OK) { status = token_take_flag(r, place, step, "split", true, &split); }
    if (status != CKVC_OK) { return status; }
    if (strcmp(spec->metaspace.bytes, "\xE2\x96\x81") != 0) {
        return ckvc_fail(r->err, CKVC_E_DATA, "%s: %s.replacement is \"%.16s\"; want U+2581",
                         r->path, place, spec->metaspace.bytes);
    }
    int k = 0;
    while (scheme && k < 3 && strcmp(schemes[k], scheme) != 0) {
        k++;
    }
    if (k == 3 || (token_given(step, "prepend_scheme") && !scheme)) {
        return ckvc_fail(r->err, CKVC_E_DATA,
                         "%s: %s.prepend_scheme is not one of never, first and always", r->path,
                         place);
    }
    spec->metaspace_prefix = scheme  ? (token_prefix)k
                             : older ? TOKEN_PREFIX_ALWAYS
                                     : TOKEN_PREFIX_NEVER;
    return split ? token_add_split(r, "\\x{2581}[^\\x{2581}]*") : CKVC_OK;
}

static ckvc_status pre_tokenizer_step(reader *r, const char *place, const json_t *step, size_t i,
                                      size_t n) {
    const char *type = type_of(step);
    token_spec *spec = r->spec;
    if (strcmp(type, "Split") == 0) {
        const json_t *regex = json_object_get(json_object_get(step, "pattern"), "Regex");
        const char *behavior = json_string_value(json_object_get(step, "behavior"));
        bool invert;
        ckvc_status status = token_take_flag(r, place, step, "invert", false, &invert);
        if (status != CKVC_OK) { return status; }
        if (!json_is_string(regex)) {
            return unsupported(r, place, "Split by a pattern that is not a Regex");
        }
        if (!behavior || strcmp(behavior, "Isolated") != 0 || invert) {
            return ckvc_fail(
                r->err, CKVC_E_DATA,
                "%s: %s: Split with behavior \"%.32s\"%s is not supported; Isolated is", r->path,
                place, behavior ? behavior : "(none)", invert ? " and invert" : "");
        }
        return token_add_split(r, json_string_value(regex));
    }
    if (strcmp(type, "Digits") == 0) {
        bool individual;
        ckvc_status status =
            token_take_flag(r, place, step, "individual_digits", false, &individual);
        return status != CKVC_OK ? status : token_add_split(r, individual ? "\\p{N}" : "\\p{N}+");
    }
    if (strcmp(type, "ByteLevel") == 0) {
        if (i + 1 != n) { return unsupported(r, place, "ByteLevel before another pre-tokenizer"); }
        bool use_regex;
        ckvc_status status =
            token_take_flag(r, place, step, "add_prefix_space", true, &spec->add_prefix_space);
        if (status == CKVC_OK) {
            status = token_take_flag(r, place, step, "use_regex", true, &use_regex);
        }
        if (status != CKVC_OK) { return status; }
        if (spec->add_prefix_space && spec->n_splits) {
            return unsupported(r, place, "add_prefix_space after a Split");
        }
        spec->byte_level = true;
        return use_regex ? token_add_split(r, token_pattern_gpt2) : CKVC_OK;
    }
    if (strcmp(type, "Metaspace") == 0) {
        return n == 1 ? read_metaspace(r, place, step)
                      : unsupported(r, place, "Metaspace beside another pre-tokenizer");
    }
    return ckvc_fail(r->err, CKVC_E_DATA,
                     "%s: %s: type \"%.64s\" is not supported; Split, Digits, ByteLevel, Metaspace "
                     "and Sequence are",
                     r->path, place, type);
}

/* ---- decoder: ByteLevel, or the steps Replace, ByteFallback, Fuse, Strip in this order ---- */
static ckvc_status check_decoder(reader *r, const json_t *decoder) {
    static const char *const order[] = {"Replace", "ByteFallback", "Fuse", "Strip"};
    token_spec *spec = r->spec;
    const char *type = type_of(decoder);
    if (spec->byte_level || strcmp(type, "ByteLevel") == 0) {
        if (spec->byte_level && strcmp(type, "ByteLevel") == 0) { return CKVC_OK; }
        return ckvc_fail(r->err, CKVC_E_DATA,
                         "%s: decoder \"%.64s\" does not belong to a pre_tokenizer %s ByteLevel",
                         r->path, type, spec->byte_level ? "with" : "without");
    }
    const json_t *list = json_object_get(decoder, "decoders");
    if (strcmp(type, "Sequence") != 0 || !json_is_array(list)) {
        return ckvc_fail(r->err, CKVC_E_DATA,
                         "%s: decoder: type \"%.64s\" is not supported; ByteLevel and Sequence are",
                         r->path, type);
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
            return ckvc_fail(r->err, CKVC_E_DATA,
                             "%s: %s: \"%.64s\" is not supported here; Replace, ByteFallback, Fuse "
                             "and Strip, each once in this order, are",
                             r->path, place, type);
        }
        next = k + 1;
        ckvc_status status = CKVC_OK;
        if (k == 0) {
            status = plain_pattern(step)
                         ? take_text(r, place, plain_pattern(step), &spec->decode_from)
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
            if (!content || strcmp(content, " ") != 0 ||
                json_integer_value(json_object_get(step, "start")) != 1 ||
                json_integer_value(json_object_get(step, "stop")) != 0 || !fused) {
                status = unsupported(
                    r, place, "Strip of anything but one space at the start of the fused text");
            }
            spec->decode_strip_left = true;
        }
        if (status != CKVC_OK) { return status; }
    }
    if (byte_fallback != spec->byte_fallback) {
        return ckvc_fail(r->err, CKVC_E_DATA,
                         "%s: model.byte_fallback is %s, but the decoder has %s ByteFallback",
                         r->path, spec->byte_fallback ? "true" : "false",
                         byte_fallback ? "a" : "no");
    }
    return CKVC_OK;
}

/* ---- template ---- */
static ckvc_status read_template(reader *r, const char *place, const json_t *step) {
    token_spec *spec = r->spec;
    const json_t *single = json_object_get(step, "single");
    bool after = false;
    if (!json_is_array(single) || json_array_size(single) > MAX_STEPS) {
        return ckvc_fail(r->err, CKVC_E_DATA, "%s: %s.single is %s; want an array of at most %d",
                         r->path, place, token_json_kind(single), MAX_STEPS);
    }
    for (size_t i = 0; i < json_array_size(single); i++) {
        const json_t *part = json_array_get(single, i);
        const char *sequence =
            json_string_value(json_object_get(json_object_get(part, "Sequence"), "id"));
        const char *special =
            json_string_value(json_object_get(json_object_get(part, "SpecialToken"), "id"));
        if (sequence && strcmp(sequence, "A") == 0 && !after) {
            after = true;
            continue;
        }
        if (!special) {
            return ckvc_fail(r->err, CKVC_E_DATA,
                             "%s: %s.single[%zu] is neither a SpecialToken nor the one Sequence A",
                             r->path, place, i);
        }
        const json_t *ids = json_object_get(
            json_object_get(json_object_get(step, "special_tokens"), special), "ids");
        if (!json_is_array(ids) || json_array_size(ids) == 0 || json_array_size(ids) > MAX_STEPS) {
            return ckvc_fail(r->err, CKVC_E_DATA, "%s: %s.special_tokens has no ids for \"%.64s\"",
                             r->path, place, special);
        }
        for (size_t k = 0; k < json_array_size(ids); k++) {
            const json_t *id = json_array_get(ids, k);
            if (!json_is_integer(id) || json_integer_value(id) < 0 ||
                json_integer_value(id) > INT32_MAX) {
                return ckvc_fail(
                    r->err, CKVC_E_DATA,
                    "%s: %s.special_tokens: \"%.64s\" has an id that is no whole number from 0",
                    r->path, place, special);
            }
            ckvc_status status = after ? token_push_id(r, &spec->suffix_ids, &spec->n_suffix,
                                                       (int32_t)json_integer_value(id))
                                       : token_push_id(r, &spec->prefix_ids, &spec->n_prefix,
                                                       (int32_t)json_integer_value(id));
            if (status != CKVC_OK) { return status; }
        }
    }
    if (!after) {
        return ckvc_fail(r->err, CKVC_E_DATA, "%s: %s.single has no Sequence A", r->path, place);
    }
    return CKVC_OK;
}

static ckvc_status post_processor_step(reader *r, const char *place, const json_t *step, size_t i,
                                       size_t n) {
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
    return ckvc_fail(
        r->err, CKVC_E_DATA,
        "%s: %s: type \"%.64s\" is not supported; TemplateProcessing, ByteLevel and Sequence are",
        r->path, place, type);
}

/* For Llama's and InternLM2's own tokenizer classes add_bos_token and add_eos_token rebuild the
 * template when a model is loaded (update_post_processor in transformers,
 * models/llama/tokenization_llama_fast.py), so they decide; for every other class the template of
 * tokenizer.json does. */
static bool config_rebuilds_template(const char *class_name) {
    static const char *const classes[] = {"LlamaTokenizer", "LlamaTokenizerFast",
                                          "InternLM2Tokenizer", "InternLM2TokenizerFast"};
    for (size_t i = 0; class_name && i < sizeof classes / sizeof *classes; i++) {
        if (strcmp(class_name, classes[i]) == 0) { return true; }
    }
    return false;
}

static ckvc_status read_all(reader *r, const json_t *root) {
    /* truncation and padding belong to a batch, not to the tokenizer: whoever loads one sets them
     * anew at each call. */
    static const char *const keys[] = {
        "version",       "truncation",     "padding", "added_tokens", "normalizer",
        "pre_tokenizer", "post_processor", "decoder", "model",        NULL};
    if (!json_is_object(root)) { return bad(r, "the file", root, "an object"); }
    ckvc_status status = token_only_keys(r, "top level", root, keys);
    if (status == CKVC_OK) { status = read_added(r, json_object_get(root, "added_tokens")); }
    if (status == CKVC_OK) { status = read_model(r, json_object_get(root, "model")); }
    if (status == CKVC_OK) {
        status = each_step(r, "normalizer", json_object_get(root, "normalizer"), "normalizers",
                           normalizer_step);
    }
    if (status == CKVC_OK) {
        status = each_step(r, "pre_tokenizer", json_object_get(root, "pre_tokenizer"),
                           "pretokenizers", pre_tokenizer_step);
    }
    if (status == CKVC_OK) { status = check_decoder(r, json_object_get(root, "decoder")); }
    if (status == CKVC_OK) {
        status = each_step(r, "post_processor", json_object_get(root, "post_processor"),
                           "processors", post_processor_step);
    }
    return status;
}

ckvc_status tokenizer_json_read(const char *model_dir, token_spec **out, ckvc_err *err) {
    *out = NULL;
    char *path = ckvc_path_join(model_dir, "tokenizer.json");
    token_config config = {0};
    reader r = {path, ckvc_calloc(1, sizeof(token_spec)), err};
    json_t *root = NULL;
    ckvc_status status = CKVC_OK;
    if (!path || !r.spec) {
        status = ckvc_fail_memory(err, "tokenizer", sizeof(token_spec));
    } else if (!ckvc_file_exists(path)) {
        status = ckvc_fail(
            err, CKVC_E_NOINPUT,
            "%s: no such file; give prompts as \"tokens\", or a model directory with a tokenizer",
            path);
    }
    if (status == CKVC_OK) { status = ckvc_json_read(path, TOKENIZER_MAX_BYTES, &root, err); }
    if (status == CKVC_OK) { status = read_all(&r, root); }
    if (status == CKVC_OK) { status = token_config_read(model_dir, &config, err); }
    if (status == CKVC_OK && config_rebuilds_template(config.class_name)) {
        status = token_config_ends(&r, &config);
    }
    json_decref(root);
    free(path);
    token_config_free(&config);
    if (status != CKVC_OK) {
        token_spec_free(r.spec);
        return status;
    }
    *out = r.spec;
    return CKVC_OK;
}
