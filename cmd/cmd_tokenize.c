/* ckvc tokenize: text on stdin -> ids on stdout, or ids -> text. */
#include <ctype.h>

#include "cmd/common/opened_inputs.h"
#include "cmd/verbs.h"
#include "lib/base/json.h"

typedef struct tokenize_cli {
    const char *model;
    bool decode, no_special, json;
} tokenize_cli;

static bool is_gap(char c) { return isspace((unsigned char)c) || c == ',' || c == '[' || c == ']'; }

/* Reads ids as this verb prints them: numbers apart by spaces, commas or brackets of a JSON
 * array. *ids is the caller's, also after a failure. */
static ckvc_status parse_ids(const char *text, size_t n, int32_t **ids, size_t *n_ids,
                             ckvc_err *err) {
    size_t capacity = 0;
    for (size_t i = 0; i < n;) {
        if (is_gap(text[i])) {
            i++;
            continue;
        }
        int64_t id = 0;
        const size_t start = i;
        while (i < n && isdigit((unsigned char)text[i]) && id <= INT32_MAX) {
            id = id * 10 + (text[i++] - '0');
        }
        FAIL_IF(
            i == start || id > INT32_MAX || (i < n && (!is_gap(text[i]) || text[i] == '[')),
            CKVC_E_DATA,
            "standard input: byte %zu: \"%.20s\" is not an id; want whole numbers apart by spaces",
            start, text + start);
        CKVC_GROW(*ids, capacity, *n_ids + 1);
        (*ids)[(*n_ids)++] = (int32_t)id;
    }
    return CKVC_OK;
}

/* Writes ids, with the digits by hand, because printf took as long as the tokenizer itself. */
static void write_ids(ckvc_buffer *out, const int32_t *ids, size_t n, bool json) {
    if (json) { ckvc_buffer_u8(out, '['); }
    for (size_t i = 0; i < n; i++) {
        char text[12], *at = text + sizeof text;
        int32_t id = ids[i];
        do { *--at = (char)('0' + id % 10); } while (id /= 10);
        if (i > 0) { *--at = json ? ',' : ' '; }
        ckvc_buffer_append(out, at, (size_t)(text + sizeof text - at));
    }
    ckvc_buffer_text(out, json ? "]\n" : "\n");
}

static ckvc_status decode_ids(const tokenize_cli *c, const tokenizer *t, const ckvc_buffer *in,
                              ckvc_buffer *out, ckvc_err *err) {
    CKVC_AUTO_FREE int32_t *ids = NULL;
    CKVC_AUTO_FREE char *text = NULL;
    size_t n = 0, size = 0;
    CKVC_TRY(parse_ids((char *)in->data, in->size, &ids, &n, err));
    CKVC_TRY(tokenizer_decode(t, ids, n, c->no_special, &text, &size, err));
    if (c->json) {
        json_auto_t *value = json_stringn(text, size);
        ckvc_json_append(out, value);
        ckvc_buffer_text(out, "\n");
    } else {
        ckvc_buffer_append(out, text, size);
    }
    return CKVC_OK;
}

static ckvc_status encode_input(const tokenize_cli *c, const tokenizer *t, const ckvc_buffer *in,
                                ckvc_buffer *out, ckvc_err *err) {
    CKVC_AUTO_FREE int32_t *ids = NULL;
    size_t n = 0;
    CKVC_TRY(tokenizer_encode(t, (char *)in->data, in->size, !c->no_special, &ids, &n, err));
    write_ids(out, ids, n, c->json);
    return CKVC_OK;
}

static ckvc_status tokenize(const verb_call *call, ckvc_err *err) {
    const tokenize_cli *c = call->options;
    USAGE_IF(!c->model, "--model DIR is needed");
    CKVC_AUTO(ckvc_buffer_fini) ckvc_buffer in = {0};
    CKVC_AUTO(ckvc_buffer_fini) ckvc_buffer out = {0};
    CKVC_AUTO(tokenizer_free_at) tokenizer *t = NULL;
    CKVC_TRY(inputs_need_tokenizer(c->model, &t, err));
    CKVC_TRY(inputs_read_stdin(&in, err));
    CKVC_TRY(c->decode ? decode_ids(c, t, &in, &out, err) : encode_input(c, t, &in, &out, err));
    fwrite(out.data, 1, out.size, stdout);
    return CKVC_OK;
}

#define OPTIONS_OF tokenize_cli
static const opt rows[] = {
    OPT_INPUT("model", model, "DIR", "Read the tokenizer from this model directory or GGUF file.",
              .letter = 'm'),
    OPT_FLAG("decode", decode, "Turn ids on standard input, numbers or a JSON array, into text.",
             .letter = 'd'),
    OPT_FLAG("no-special", no_special,
             "Add no BOS or EOS; with --decode, leave out special tokens."),
    OPT_FLAG("json", json, "Print a JSON array of ids, or with --decode a JSON string."),
    {0}};

const verb verb_tokenize = {
    .name = "tokenize",
    .about = "turn text into token ids, or ids into text",
    .usage = "ckvc tokenize --model DIR [--decode] [options] < INPUT",
    .examples = "  echo 'Keep this.' | ckvc tokenize --model models/ckvc-tiny-8l\n"
                "  echo 0 43 71 | ckvc tokenize --model models/ckvc-tiny-8l --decode\n",
    VERB_OPTIONS(rows),
    .instead = "the text comes on standard input",
    .work = tokenize};
