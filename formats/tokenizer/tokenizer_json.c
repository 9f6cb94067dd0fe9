/* Reads tokenizer.json of Hugging Face `tokenizers` into a token_spec. */
#include <stdio.h>

#include "formats/tokenizer/tokenizer_readers.h"
#include "lib/base/json.h"

enum { MAX_STEPS = 64 /* most steps of a sequence of normalizers, pre-tokenizers or decoders */ };

/* ---- small readers ---- */

#define UNSUPPORTED_IF(r, condition, place, what)                                                  \
    REFUSE_IF(r, condition, "%s: \"%.64s\" is not supported", place, what)

static ckvc_status take_text(token_reader *r, const char *place, const json_t *v, token_text *out) {
    WANT(r, json_is_string(v), place, v, "a string");
    *out = token_copy(json_string_value(v), json_string_length(v));
    return CKVC_OK;
}

static const char *string_of(const json_t *object, const char *key) {
    return json_string_value(json_object_get(object, key));
}

static const char *type_of(const json_t *object) {
    const char *type = string_of(object, "type");
    return type ? type : "(no type)";
}

/* The index of text in a list that ends with NULL, or of this NULL. */
static size_t index_of(const char *text, const char *const *list) {
    size_t i = 0;
    while (list[i] && strcmp(list[i], text) != 0) { i++; }
    return i;
}

/* ---- model ---- */

/* Reads both spellings of a merge: "left right" and ["left", "right"]. */
static ckvc_status read_merge(token_reader *r, size_t i, const json_t *merge) {
    const json_t *a = json_array_get(merge, 0), *b = json_array_get(merge, 1);
    const char *left = json_string_value(a), *right = json_string_value(b);
    size_t n_left = json_string_length(a), n_right = json_string_length(b);
    if (json_is_string(merge)) {
        const size_t n = json_string_length(merge);
        left = json_string_value(merge);
        const char *space = memchr(left, ' ', n);
        n_left = space ? (size_t)(space - left) : 0;
        n_right = space ? n - n_left - 1 : 0;
        right = space ? space + 1 : left;
        REFUSE_IF(r, !space || memchr(right, ' ', n_right),
                  "model.merges[%zu]: \"%.64s\"; want two parts and one space", i, left);
    } else if (!left || !right || json_array_size(merge) != 2) {
        return token_refuse(r,
                            "model.merges[%zu] is %s; want \"left right\" or [\"left\", \"right\"]",
                            i, token_json_kind(merge));
    }
    REFUSE_IF(r, n_left == 0 || n_right == 0, "model.merges[%zu]: the %s part is empty", i,
              n_left ? "right" : "left");
    token_add_merge(r->spec, left, n_left, right, n_right);
    return CKVC_OK;
}

static ckvc_status read_merges(token_reader *r, const json_t *merges) {
    WANT(r, json_is_array(merges), "model.merges", merges, "an array");
    CKVC_TRY(token_reserve_merges(r, "model.merges", json_array_size(merges)));
    for (size_t i = 0; i < json_array_size(merges); i++) {
        CKVC_TRY(read_merge(r, i, json_array_get(merges, i)));
    }
    return CKVC_OK;
}

static ckvc_status read_unknown(token_reader *r, const json_t *unk) {
    if (!unk || json_is_null(unk)) { return CKVC_OK; }
    WANT(r, json_is_string(unk), "model.unk_token", unk, "a string or null");
    r->spec->unk_id = token_id_of(r->spec, json_string_value(unk));
    REFUSE_IF(r, r->spec->unk_id < 0, "model.unk_token \"%.64s\" is not in the vocabulary",
              json_string_value(unk));
    return CKVC_OK;
}

static ckvc_status read_model(token_reader *r, json_t *model) {
    token_spec *spec = r->spec;
    bool *const flags[] = {&spec->fuse_unk, &spec->byte_fallback, &spec->ignore_merges};
    static const char *const flag_keys[] = {"fuse_unk", "byte_fallback", "ignore_merges"},
                             *const affixes[] = {"continuing_subword_prefix", "end_of_word_suffix"};
    WANT(r, json_is_object(model), "model", model, "an object");
    /* Files from before 2021 have no type; that there are merges shows that it is BPE. */
    REFUSE_IF(r,
              strcmp(type_of(model), "BPE") != 0 &&
                  (json_object_get(model, "type") || !json_object_get(model, "merges")),
              "model: type \"%.64s\" is not supported; BPE is", type_of(model));
    CKVC_TRY(token_only_keys(r, "model", model,
                             "type dropout unk_token fuse_unk byte_fallback ignore_merges vocab "
                             "merges continuing_subword_prefix end_of_word_suffix"));
    UNSUPPORTED_IF(r, json_number_value(json_object_get(model, "dropout")) != 0, "model",
                   "dropout");
    for (int i = 0; i < 2; i++) { /* must be null or empty */
        const char *affix = string_of(model, affixes[i]);
        UNSUPPORTED_IF(r, token_given(model, affixes[i]) && !(affix && !*affix), "model",
                       affixes[i]);
    }
    for (int i = 0; i < 3; i++) {
        CKVC_TRY(token_take_flag(r, "model", model, flag_keys[i], false, flags[i]));
    }
    CKVC_TRY(token_take_vocab(r, "model.vocab", json_object_get(model, "vocab")));
    CKVC_TRY(read_merges(r, json_object_get(model, "merges")));
    return read_unknown(r, json_object_get(model, "unk_token"));
}

/* ---- added tokens ---- */

static ckvc_status read_added(token_reader *r, const json_t *list) {
    if (!list || json_is_null(list)) { return CKVC_OK; }
    WANT(r, json_is_array(list), "added_tokens", list, "an array");
    CKVC_TRY(token_reserve_added(r, "added_tokens", json_array_size(list)));
    for (size_t i = 0; i < json_array_size(list); i++) {
        json_t *entry = json_array_get(list, i), *id = json_object_get(entry, "id");
        char place[64];
        snprintf(place, sizeof place, "added_tokens[%zu]", i);
        REFUSE_IF(r, json_is_object(entry) && !token_is_id(id),
                  "%s.id is %s; want a whole number from 0", place, token_json_kind(id));
        CKVC_TRY(token_take_added(r, place, entry, json_integer_value(id)));
    }
    return CKVC_OK;
}

/* ---- steps: an object with a type, or a Sequence of them ---- */

/* Reads one step. last and alone describe its place in the sequence. */
typedef ckvc_status (*step_fn)(token_reader *r, const char *place, const json_t *step, bool last,
                               bool alone);

static ckvc_status each_step(token_reader *r, const json_t *root, const char *place,
                             const char *list_key, step_fn fn) {
    const json_t *value = json_object_get(root, place);
    if (!token_given(root, place)) { return CKVC_OK; }
    WANT(r, json_is_object(value), place, value, "an object or null");
    if (strcmp(type_of(value), "Sequence") != 0) { return fn(r, place, value, true, true); }
    const json_t *list = json_object_get(value, list_key);
    const size_t n = json_array_size(list);
    REFUSE_IF(r, !json_is_array(list) || n > MAX_STEPS,
              "%s.%s is %s of %zu; want an array of at most %d", place, list_key,
              token_json_kind(list), n, MAX_STEPS);
    for (size_t i = 0; i < n; i++) {
        const json_t *step = json_array_get(list, i);
        char inner[64];
        snprintf(inner, sizeof inner, "%s[%zu]", place, i);
        WANT(r, json_is_object(step), inner, step, "an object");
        CKVC_TRY(fn(r, inner, step, i + 1 == n, n == 1));
    }
    return CKVC_OK;
}

/* Reads {"pattern": {"String": from}, "content": to} of a Replace. */
static ckvc_status read_replace(token_reader *r, const char *place, const json_t *step,
                                token_text *from, token_text *to) {
    const json_t *plain = json_object_get(json_object_get(step, "pattern"), "String");
    UNSUPPORTED_IF(r, !plain, place, "Replace of a Regex");
    CKVC_TRY(take_text(r, place, plain, from));
    return take_text(r, place, json_object_get(step, "content"), to);
}

static ckvc_status normalizer_step(token_reader *r, const char *place, const json_t *step,
                                   bool last, bool alone) {
    static const char *const types[] = {[TOKEN_NORM_PREPEND] = "Prepend",
                                        [TOKEN_NORM_REPLACE] = "Replace",
                                        [TOKEN_NORM_NFC] = "NFC",
                                        NULL};
    const token_normalizer_kind kind = (token_normalizer_kind)index_of(type_of(step), types);
    (void)last, (void)alone;
    REFUSE_IF(r, !types[kind],
              "%s: type \"%.64s\" is not supported; NFC, Prepend, Replace and Sequence are", place,
              type_of(step));
    token_normalizer *rule = token_add_normalizer(r->spec, kind, NULL, NULL);
    return kind == TOKEN_NORM_NFC ? CKVC_OK
           : kind == TOKEN_NORM_PREPEND
               ? take_text(r, place, json_object_get(step, "prepend"), &rule->to)
               : read_replace(r, place, step, &rule->from, &rule->to);
}

/* Whether the normalizers leave no `text` to split by, as Gemma's do with their Replace of each
 * space. */
static bool is_replaced(const token_spec *spec, const char *text) {
    if (spec->n_normalizers == 0) { return false; }
    const token_normalizer *last = &spec->normalizers[spec->n_normalizers - 1];
    return last->kind == TOKEN_NORM_REPLACE && strcmp(last->from.bytes, text) == 0 &&
           !strpbrk(last->to.bytes, text);
}

static ckvc_status read_split(token_reader *r, const char *place, const json_t *step) {
    const json_t *pattern = json_object_get(step, "pattern");
    const char *regex = string_of(pattern, "Regex"), *plain = string_of(pattern, "String");
    const char *behavior = string_of(step, "behavior");
    bool invert;
    CKVC_TRY(token_take_flag(r, place, step, "invert", false, &invert));
    if (plain && !invert && is_replaced(r->spec, plain)) { return CKVC_OK; }
    UNSUPPORTED_IF(r, !regex, place, "Split by text that no Replace before it takes out");
    REFUSE_IF(r, !behavior || strcmp(behavior, "Isolated") != 0 || invert,
              "%s: Split with behavior \"%.32s\"%s is not supported; Isolated is", place,
              behavior ? behavior : "(none)", invert ? " and invert" : "");
    const bool known = strcmp(regex, token_pattern_gpt2) == 0 ||
                       strcmp(regex, token_pattern_llama3) == 0 ||
                       strcmp(regex, token_pattern_qwen2) == 0;
    /* at most 16 patterns are compiled */
    r->spec->costly_splits |= (uint32_t)!known << r->spec->n_splits % 32;
    token_add_split(r->spec, regex);
    return CKVC_OK;
}

static ckvc_status read_byte_level(token_reader *r, const char *place, const json_t *step) {
    token_spec *spec = r->spec;
    bool use_regex;
    CKVC_TRY(token_take_flag(r, place, step, "add_prefix_space", true, &spec->add_prefix_space));
    CKVC_TRY(token_take_flag(r, place, step, "use_regex", true, &use_regex));
    UNSUPPORTED_IF(r, spec->add_prefix_space && spec->n_splits, place,
                   "add_prefix_space after a Split");
    spec->byte_level = true;
    if (use_regex) { token_add_split(spec, token_pattern_gpt2); }
    return CKVC_OK;
}

/* Reads both generations: prepend_scheme and split; or add_prefix_space (true: always), which
 * always splits. */
static ckvc_status read_metaspace(token_reader *r, const char *place, const json_t *step) {
    static const char *const schemes[] = {[TOKEN_PREFIX_NEVER] = "never",
                                          [TOKEN_PREFIX_FIRST] = "first",
                                          [TOKEN_PREFIX_ALWAYS] = "always",
                                          NULL};
    const char *scheme = string_of(step, "prepend_scheme");
    token_spec *spec = r->spec;
    bool older, split;
    CKVC_TRY(take_text(r, place, json_object_get(step, "replacement"), &spec->metaspace));
    CKVC_TRY(token_take_flag(r, place, step, "add_prefix_space", true, &older));
    CKVC_TRY(token_take_flag(r, place, step, "split", true, &split));
    REFUSE_IF(r, strcmp(spec->metaspace.bytes, TOKEN_SPACE_MARK) != 0,
              "%s.replacement is \"%.16s\"; want U+2581", place, spec->metaspace.bytes);
    const size_t k = scheme ? index_of(scheme, schemes) : 0;
    REFUSE_IF(r, !schemes[k] || (token_given(step, "prepend_scheme") && !scheme),
              "%s.prepend_scheme is not one of never, first and always", place);
    spec->metaspace_prefix = scheme  ? (token_prefix)k
                             : older ? TOKEN_PREFIX_ALWAYS
                                     : TOKEN_PREFIX_NEVER;
    if (split) { token_add_split(spec, "\\x{2581}[^\\x{2581}]*"); }
    return CKVC_OK;
}

static ckvc_status pre_tokenizer_step(token_reader *r, const char *place, const json_t *step,
                                      bool last, bool alone) {
    const char *type = type_of(step);
    if (strcmp(type, "Split") == 0) { return read_split(r, place, step); }
    if (strcmp(type, "Digits") == 0) {
        bool individual;
        CKVC_TRY(token_take_flag(r, place, step, "individual_digits", false, &individual));
        token_add_split(r->spec, individual ? "\\p{N}" : "\\p{N}+");
        return CKVC_OK;
    }
    if (strcmp(type, "ByteLevel") == 0) {
        UNSUPPORTED_IF(r, !last, place, "ByteLevel before another pre-tokenizer");
        return read_byte_level(r, place, step);
    }
    if (strcmp(type, "Metaspace") == 0) {
        UNSUPPORTED_IF(r, !alone, place, "Metaspace beside another pre-tokenizer");
        return read_metaspace(r, place, step);
    }
    return token_refuse(
        r,
        "%s: type \"%.64s\" is not supported; Split, Digits, ByteLevel, Metaspace and Sequence are",
        place, type);
}

/* ---- decoder: ByteLevel, or the steps Replace, ByteFallback, Fuse, Strip in this order ---- */

static bool is_leading_space(const json_t *strip) {
    const char *content = string_of(strip, "content");
    return content && strcmp(content, " ") == 0 &&
           json_integer_value(json_object_get(strip, "start")) == 1 &&
           json_integer_value(json_object_get(strip, "stop")) == 0;
}

static ckvc_status read_decoder_steps(token_reader *r, const json_t *list) {
    enum { REPLACE, BYTE_FALLBACK, FUSE, STRIP };
    static const char *const order[] = {"Replace", "ByteFallback", "Fuse", "Strip", NULL};
    token_spec *spec = r->spec;
    bool done[4] = {false};
    size_t next = 0;
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *step = json_array_get(list, i);
        const size_t k = next + index_of(type_of(step), order + next);
        char place[40];
        snprintf(place, sizeof place, "decoder[%zu]", i);
        REFUSE_IF(r, !order[k],
                  "%s: \"%.64s\" is not supported here; Replace, ByteFallback, Fuse and Strip, "
                  "each once in this order, are",
                  place, type_of(step));
        if (k == REPLACE) {
            CKVC_TRY(read_replace(r, place, step, &spec->decode_from, &spec->decode_to));
        }
        UNSUPPORTED_IF(r, k == STRIP && !(is_leading_space(step) && done[FUSE]), place,
                       "Strip of anything but one space at the start of the fused text");
        done[k] = true;
        next = k + 1;
    }
    spec->decode_strip_left = done[STRIP];
    REFUSE_IF(r, done[BYTE_FALLBACK] != spec->byte_fallback,
              "model.byte_fallback is %s, but the decoder has %s ByteFallback",
              spec->byte_fallback ? "true" : "false", done[BYTE_FALLBACK] ? "a" : "no");
    return CKVC_OK;
}

static ckvc_status read_decoder(token_reader *r, const json_t *decoder) {
    const char *type = type_of(decoder);
    const bool bytes = strcmp(type, "ByteLevel") == 0;
    const json_t *list = json_object_get(decoder, "decoders");
    if (bytes && r->spec->byte_level) { return CKVC_OK; }
    REFUSE_IF(r, bytes || r->spec->byte_level,
              "decoder \"%.64s\" does not belong to a pre_tokenizer %s ByteLevel", type,
              bytes ? "without" : "with");
    REFUSE_IF(r, strcmp(type, "Sequence") != 0 || !json_is_array(list),
              "decoder: type \"%.64s\" is not supported; ByteLevel and Sequence are", type);
    return read_decoder_steps(r, list);
}

/* ---- template ---- */

/* Adds the ids of a special token after those of the prefix. */
static ckvc_status add_special(token_reader *r, const char *place, const json_t *step,
                               const char *special) {
    const json_t *named = json_object_get(json_object_get(step, "special_tokens"), special),
                 *ids = json_object_get(named, "ids");
    REFUSE_IF(r, json_array_size(ids) == 0 || json_array_size(ids) > MAX_STEPS,
              "%s.special_tokens has no ids for \"%.64s\"", place, special);
    for (size_t k = 0; k < json_array_size(ids); k++) {
        const json_t *id = json_array_get(ids, k);
        REFUSE_IF(r, !token_is_id(id),
                  "%s.special_tokens: \"%.64s\" has an id that is no whole number from 0", place,
                  special);
        token_add_id(&r->spec->prefix_ids, &r->spec->n_prefix, (int32_t)json_integer_value(id));
    }
    return CKVC_OK;
}

static ckvc_status read_template(token_reader *r, const char *place, const json_t *step) {
    const json_t *single = json_object_get(step, "single");
    bool after = false;
    REFUSE_IF(r, !json_is_array(single) || json_array_size(single) > MAX_STEPS,
              "%s.single is %s; want an array of at most %d", place, token_json_kind(single),
              MAX_STEPS);
    for (size_t i = 0; i < json_array_size(single); i++) {
        const json_t *part = json_array_get(single, i);
        const char *sequence = string_of(json_object_get(part, "Sequence"), "id");
        const char *special = string_of(json_object_get(part, "SpecialToken"), "id");
        const bool text = sequence && strcmp(sequence, "A") == 0 && !after;
        REFUSE_IF(r, !text && !special,
                  "%s.single[%zu] is neither a SpecialToken nor the one Sequence A", place, i);
        if (!text && !after) { CKVC_TRY(add_special(r, place, step, special)); }
        after |= text;
    }
    REFUSE_IF(r, !after, "%s.single has no Sequence A", place);
    return CKVC_OK;
}

static ckvc_status post_processor_step(token_reader *r, const char *place, const json_t *step,
                                       bool last, bool alone) {
    const char *type = type_of(step);
    (void)last, (void)alone;
    if (strcmp(type, "ByteLevel") == 0) {
        return CKVC_OK; /* it trims offsets, which we do not have */
    }
    REFUSE_IF(r, strcmp(type, "TemplateProcessing") != 0,
              "%s: type \"%.64s\" is not supported; TemplateProcessing, ByteLevel and Sequence are",
              place, type);
    UNSUPPORTED_IF(r, r->spec->n_prefix, place, "a second TemplateProcessing");
    return read_template(r, place, step);
}

/* ---- the whole ---- */

ckvc_status tokenizer_json_read(token_reader *r) {
    json_auto_t *root = NULL;
    CKVC_TRY(ckvc_json_read(r->path, TOKENIZER_MAX_BYTES, &root, r->err));
    WANT(r, json_is_object(root), "the file", root, "an object");
    /* Truncation and padding belong to a batch: whoever loads a tokenizer sets them again. */
    CKVC_TRY(token_only_keys(r, "top level", root,
                             "version truncation padding added_tokens normalizer pre_tokenizer "
                             "post_processor decoder model"));
    CKVC_TRY(read_added(r, json_object_get(root, "added_tokens")));
    CKVC_TRY(read_model(r, json_object_get(root, "model")));
    CKVC_TRY(each_step(r, root, "normalizer", "normalizers", normalizer_step));
    CKVC_TRY(each_step(r, root, "pre_tokenizer", "pretokenizers", pre_tokenizer_step));
    CKVC_TRY(read_decoder(r, json_object_get(root, "decoder")));
    CKVC_TRY(each_step(r, root, "post_processor", "processors", post_processor_step));
    /* For Llama's and InternLM2's own tokenizer classes, add_bos_token decides, because it rebuilds
     * the template when a model is loaded (update_post_processor in transformers,
     * models/llama/tokenization_llama_fast.py). For every other class the template of
     * tokenizer.json decides. */
    return token_config_is_llama(r->config) ? token_config_bos(r, r->config) : CKVC_OK;
}
