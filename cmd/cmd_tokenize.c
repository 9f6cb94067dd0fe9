/* ckvc tokenize: text on stdin -> ids on stdout, or ids -> text. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>

#include "cmd/common/options.h"
#include "cmd/verbs.h"
#include "formats/tokenizer/tokenizer_files.h"
#include "lib/base/buffer.h"
#include "lib/base/json.h"
#include "lib/base/memory.h"
#include "lib/token/tokenizer.h"

enum { MAX_INPUT_BYTES = 1 << 30 };

typedef struct tokenize_cli {
    const char *model;
    bool decode, no_special, json;
} tokenize_cli;

static const verb_text verb = {
    "tokenize", "text to ids, ids to text",
    "ckvc tokenize --model DIR [--decode] [options] < INPUT",
    "  echo 'Keep this.' | ckvc tokenize --model models/ckvc-tiny-8l\n"
    "  echo 0 43 71 | ckvc tokenize --model models/ckvc-tiny-8l --decode\n"};

static ckvc_status read_stdin(ckvc_buffer *in, ckvc_err *err) {
    char block[65536];
    size_t n;
    while ((n = fread(block, 1, sizeof block, stdin)) > 0 && in->size <= MAX_INPUT_BYTES) {
        ckvc_buffer_append(in, block, n);
    }
    if (ferror(stdin)) { return ckvc_fail_errno(err, CKVC_E_IO, "standard input"); }
    if (in->size > MAX_INPUT_BYTES) {
        return ckvc_fail(err, CKVC_E_DATA, "standard input: more than %d bytes; split the text",
                         MAX_INPUT_BYTES);
    }
    ckvc_buffer_append(in, "", 0);
    return in->failed ? ckvc_fail_memory(err, "standard input", in->size) : CKVC_OK;
}

/* Ids as ours are printed: numbers apart by spaces, commas or brackets of a JSON array. */
static ckvc_status parse_ids(const char *text, size_t n, int32_t **ids, size_t *n_ids,
                             ckvc_err *err) {
    void *list = NULL;
    size_t capacity = 0, count = 0;
    ckvc_status status = CKVC_OK;
    for (size_t i = 0; i < n && status == CKVC_OK;) {
        if (isspace((unsigned char)text[i]) || text[i] == ',' || text[i] == '[' || text[i] == ']') {
            i++;
            continue;
        }
        int64_t id = 0;
        size_t start = i;
        while (i < n && isdigit((unsigned char)text[i]) && id <= INT32_MAX) {
            id = id * 10 + (text[i++] - '0');
        }
        if (i == start || id > INT32_MAX ||
            (i < n && !isspace((unsigned char)text[i]) && text[i] != ',' && text[i] != ']')) {
            status = ckvc_fail(err, CKVC_E_DATA,
                               "standard input: byte %zu: \"%.20s\" is not an id; want whole "
                               "numbers apart by spaces",
                               start, text + start);
            break;
        }
        status = ckvc_grow(&list, &capacity, count + 1, sizeof(int32_t), err);
        if (status == CKVC_OK) { ((int32_t *)list)[count++] = (int32_t)id; }
    }
    *ids = list;
    *n_ids = count;
    return status;
}

/* Digits by hand: printf took as long as the tokenizer itself. */
static void write_ids(ckvc_buffer *out, const int32_t *ids, size_t n, bool json) {
    if (json) { ckvc_buffer_u8(out, '['); }
    for (size_t i = 0; i < n; i++) {
        char text[12], *at = text + sizeof text;
        int32_t id = ids[i];
        do {
            *--at = (char)('0' + id % 10);
        } while (id /= 10);
        if (i > 0) { *--at = json ? ',' : ' '; }
        ckvc_buffer_append(out, at, (size_t)(text + sizeof text - at));
    }
    ckvc_buffer_text(out, json ? "]\n" : "\n");
}

static ckvc_status tokenize(void *cli, const opt *opts, ckvc_err *err) {
    const tokenize_cli *c = cli;
    (void)opts;
    if (!c->model) { return ckvc_fail(err, CKVC_E_USAGE, "--model DIR is needed"); }
    ckvc_buffer in = {0}, out = {0};
    token_spec *spec = NULL;
    tokenizer *t = NULL;
    int32_t *ids = NULL;
    char *text = NULL;
    size_t n = 0;
    char *name = NULL;
    ckvc_status status = tokenizer_files_read(c->model, &spec, &name, err);
    if (status == CKVC_OK) { status = tokenizer_build(spec, name, &t, err); }
    if (status == CKVC_OK) { status = read_stdin(&in, err); }
    if (status == CKVC_OK && c->decode) {
        status = parse_ids((char *)in.data, in.size, &ids, &n, err);
        size_t size = 0;
        if (status == CKVC_OK) {
            status = tokenizer_decode(t, ids, n, c->no_special, &text, &size, err);
        }
        if (status == CKVC_OK && c->json) {
            json_t *value = json_stringn(text, size);
            ckvc_json_append(&out, value);
            ckvc_buffer_text(&out, "\n");
            json_decref(value);
        } else if (status == CKVC_OK) {
            ckvc_buffer_append(&out, text, size);
        }
    } else if (status == CKVC_OK) {
        status = tokenizer_encode(t, (char *)in.data, in.size, !c->no_special, &ids, &n, err);
        if (status == CKVC_OK) { write_ids(&out, ids, n, c->json); }
    }
    if (status == CKVC_OK && out.failed) { status = ckvc_fail_memory(err, "output", out.size); }
    if (status == CKVC_OK && out.size && fwrite(out.data, 1, out.size, stdout) != out.size) {
        status = ckvc_fail_errno(err, CKVC_E_IO, "standard output");
    }
    free(ids);
    free(text);
    free(name);
    tokenizer_free(t);
    ckvc_buffer_fini(&in);
    ckvc_buffer_fini(&out);
    return status;
}

int cmd_tokenize(int argc, char **argv) {
    tokenize_cli c = {0};
    opt opts[] = {{OPT_TEXT, "model", 'm', &c.model, "DIR",
                   "model directory with a tokenizer, or GGUF file", 0, 0},
                  {OPT_FLAG, "decode", 'd', &c.decode, NULL,
                   "ids on stdin (numbers or a JSON array) to text", 0, 0},
                  {OPT_FLAG, "no-special", 0, &c.no_special, NULL,
                   "no BOS or EOS is added; with --decode: special tokens are left out", 0, 0},
                  {OPT_FLAG, "json", 0, &c.json, NULL,
                   "a JSON array of ids; with --decode: a JSON string", 0, 0},
                  {0}};
    return verb_run(&verb, opts, "the text comes on standard input", argc, argv, tokenize, &c);
}
