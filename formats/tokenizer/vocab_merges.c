/* vocab.json and merges.txt, with the rules of Qwen2's tokenizer around them. */
#include "formats/tokenizer/vocab_merges.h"

#include <stdlib.h>
#include <string.h>

#include "formats/tokenizer/tokenizer_parts.h"
#include "lib/base/files.h"
#include "lib/base/json.h"
#include "lib/base/memory.h"
#include "lib/base/utf8.h"

/* One merge a line, by rank: two parts and one space. A first line "#version: ..." and empty lines
 * are no merges. */
static ckvc_status read_merges(token_reader *r, const char *text, size_t size) {
    size_t lines = 1, line = 1;
    for (size_t i = 0; i < size; i++) {
        lines += text[i] == '\n';
    }
    if (lines > TOKENIZER_MAX_MERGES) {
        return ckvc_fail(r->err, CKVC_E_DATA, "%s: %zu lines; at most %d are read", r->path, lines,
                         TOKENIZER_MAX_MERGES);
    }
    size_t bad = ckvc_utf8_check(text, size);
    if (bad < size) {
        return ckvc_fail(r->err, CKVC_E_DATA, "%s: byte %zu is not UTF-8", r->path, bad);
    }
    r->spec->merges = ckvc_calloc(lines, sizeof *r->spec->merges);
    for (size_t at = 0; at < size; line++) {
        const char *begin = text + at, *end = memchr(begin, '\n', size - at);
        size_t n = end ? (size_t)(end - begin) : size - at;
        at += n + 1;
        n -= n > 0 && begin[n - 1] == '\r';
        if (n == 0 || (line == 1 && n >= 8 && memcmp(begin, "#version", 8) == 0)) { continue; }
        const char *space = memchr(begin, ' ', n);
        size_t left = space ? (size_t)(space - begin) : 0, right = space ? n - left - 1 : 0;
        if (left == 0 || right == 0 || memchr(space + 1, ' ', right)) {
            return ckvc_fail(r->err, CKVC_E_DATA,
                             "%s:%zu: want two parts and one space between them", r->path, line);
        }
        ckvc_status status = token_take_merge(r, r->spec->n_merges, begin, left, space + 1, right);
        if (status != CKVC_OK) { return status; }
    }
    return CKVC_OK;
}

static ckvc_status set_rules(token_reader *r, const char *model_dir, const token_config *config) {
    token_spec *spec = r->spec;
    if (!config->root) {
        return ckvc_fail(
            r->err, CKVC_E_DATA,
            "%s: vocab.json and merges.txt name neither family nor special tokens; %s is needed",
            r->path, config->path);
    }
    if (!config->class_name || (strcmp(config->class_name, "Qwen2Tokenizer") != 0 &&
                                strcmp(config->class_name, "Qwen2TokenizerFast") != 0)) {
        return ckvc_fail(r->err, CKVC_E_DATA,
                         "%s: tokenizer_class \"%.64s\" with vocab.json and merges.txt is not "
                         "supported; Qwen2Tokenizer is, and any "
                         "family with its tokenizer.json",
                         config->path, config->class_name ? config->class_name : "(none)");
    }
    token_reader at = {config->path, spec, r->err};
    spec->unk_id = -1;
    spec->byte_level = true;
    ckvc_status status = token_take_flag(&at, "tokenizer_config", config->root, "add_prefix_space",
                                         false, &spec->add_prefix_space);
    if (status == CKVC_OK && spec->add_prefix_space) {
        status =
            ckvc_fail(r->err, CKVC_E_DATA,
                      "%s: add_prefix_space is not supported with Qwen2Tokenizer", config->path);
    }
    if (status == CKVC_OK) { status = token_add_normalizer(r, TOKEN_NORM_NFC, NULL, NULL); }
    if (status == CKVC_OK) { status = token_add_split(r, token_pattern_qwen2); }
    return status == CKVC_OK ? token_config_added(r, model_dir, config)
                             : status; /* no BOS or EOS: Qwen2's template has none */
}

ckvc_status vocab_merges_read(const char *model_dir, token_spec **out, ckvc_err *err) {
    *out = NULL;
    char *vocab_path = ckvc_path_join(model_dir, "vocab.json"),
         *merges_path = ckvc_path_join(model_dir, "merges.txt");
    token_reader r = {vocab_path, ckvc_calloc(1, sizeof(token_spec)), err},
                 merges = {merges_path, r.spec, err};
    token_config config = {0};
    json_t *vocab = NULL;
    char *text = NULL;
    size_t size = 0;
    ckvc_status status = CKVC_OK;
    if (!vocab_path || !merges_path || !r.spec) {
        status = ckvc_fail_memory(err, "tokenizer", sizeof(token_spec));
    }
    if (status == CKVC_OK) {
        status = ckvc_json_read(vocab_path, TOKENIZER_MAX_BYTES, &vocab, err);
    }
    if (status == CKVC_OK) { status = token_take_vocab(&r, "the file", vocab); }
    if (status == CKVC_OK) {
        status = ckvc_file_read(merges_path, TOKENIZER_MAX_BYTES, &text, &size, err);
    }
    if (status == CKVC_OK) { status = read_merges(&merges, text, size); }
    if (status == CKVC_OK) { status = token_config_read(model_dir, &config, err); }
    if (status == CKVC_OK) { status = set_rules(&r, model_dir, &config); }
    json_decref(vocab);
    free(text);
    token_config_free(&config);
    free(vocab_path);
    free(merges_path);
    if (status != CKVC_OK) {
        token_spec_free(r.spec);
        return status;
    }
    *out = r.spec;
    return CKVC_OK;
}
