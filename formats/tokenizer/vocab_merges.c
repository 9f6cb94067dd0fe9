/* Reads vocab.json and merges.txt, and adds the rules of Qwen2's tokenizer. */
#include "formats/tokenizer/tokenizer_readers.h"
#include "lib/base/json.h"
#include "lib/base/text_lines.h"
#include "lib/base/utf8.h"

/* Reads one merge from each line, by rank: two parts and a space between them. "#version: ..." and
 * empty lines are skipped. */
static ckvc_status read_merges(token_reader *r) {
    CKVC_AUTO_FREE char *text = NULL;
    size_t size, lines = 1;
    CKVC_TRY(ckvc_file_read(r->path, TOKENIZER_MAX_BYTES, &text, &size, r->err));
    const size_t bad = ckvc_utf8_check(text, size);
    REFUSE_IF(r, bad < size, "byte %zu is not UTF-8", bad);
    for (size_t i = 0; i < size; i++) { lines += text[i] == '\n'; }
    CKVC_TRY(token_reserve_merges(r, "the file", lines));
    for (ckvc_lines at = ckvc_lines_of(text, size); ckvc_next_line(&at);) {
        const char *begin = at.text;
        const size_t n = at.n - (at.n > 0 && begin[at.n - 1] == '\r');
        if (n == 0 || (at.number == 1 && n >= 8 && memcmp(begin, "#version", 8) == 0)) { continue; }
        const char *space = memchr(begin, ' ', n);
        size_t left = space ? (size_t)(space - begin) : 0, right = space ? n - left - 1 : 0;
        CKVC_FAIL_IF(left == 0 || right == 0 || memchr(space + 1, ' ', right), r->err, CKVC_E_DATA,
                     "%s:%u: want two parts and one space between them", r->path, at.number);
        token_add_merge(r->spec, begin, left, space + 1, right);
    }
    return CKVC_OK;
}

static ckvc_status set_rules(token_reader *r, const token_config *config) {
    token_spec *spec = r->spec;
    REFUSE_IF(r, !config->root,
              "vocab.json and merges.txt name neither family nor special tokens; %s is needed",
              config->path);
    CKVC_FAIL_IF(!token_config_is(config, "Qwen2Tokenizer"), r->err, CKVC_E_DATA,
                 "%s: tokenizer_class \"%.64s\" with vocab.json and merges.txt is not supported; "
                 "Qwen2Tokenizer is, and any family with its tokenizer.json",
                 config->path, config->class_name ? config->class_name : "(none)");
    spec->byte_level = true;
    CKVC_TRY(token_config_flag(r, config, "add_prefix_space", false, &spec->add_prefix_space));
    CKVC_FAIL_IF(spec->add_prefix_space, r->err, CKVC_E_DATA,
                 "%s: add_prefix_space is not supported with Qwen2Tokenizer", config->path);
    token_add_normalizer(spec, TOKEN_NORM_NFC, NULL, NULL);
    token_add_split(spec, token_pattern_qwen2);
    return token_config_added(r, config); /* there is no BOS or EOS, as Qwen2's template has none */
}

ckvc_status vocab_merges_read(token_reader *r) {
    CKVC_AUTO_FREE char *merges_path = ckvc_path_join(r->model, "merges.txt");
    json_auto_t *vocab = NULL;
    token_reader merges = *r;
    merges.path = merges_path;
    CKVC_TRY(ckvc_json_read(r->path, TOKENIZER_MAX_BYTES, &vocab, r->err));
    CKVC_TRY(token_take_vocab(r, "the file", vocab));
    CKVC_TRY(read_merges(&merges));
    return set_rules(r, r->config);
}
