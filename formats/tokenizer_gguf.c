/* tokenizer.ggml.* of a GGUF file, read into a token_spec.
 *
 * The file names its way of cutting text into words instead of spelling it: "pre" stands for patterns that llama.cpp has in its
 * source (src/llama-vocab.cpp, llm_tokenizer_bpe) and that came from the models' tokenizer.json. A way that we do not know is
 * refused by its name, as is everything else that would give other ids than the model's own tokenizer.
 */
#include "formats/tokenizer_gguf.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "formats/gguf.h"
#include "lib/base/bytes.h"
#include "lib/base/memory.h"
#include "lib/base/utf8.h"

#define MAX_PIECES (1 << 22)
#define MAX_MERGES (1 << 23)
#define MAX_ADDED  (1 << 17)

/* tokenizer.ggml.token_type (gguf-py, TokenType). */
enum { TYPE_NORMAL = 1, TYPE_UNKNOWN, TYPE_CONTROL, TYPE_USER_DEFINED, TYPE_UNUSED, TYPE_BYTE };

#define GPT2_WORDS "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)"
#define LLAMA3_WORDS(digits)                                                                                                       \
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}" digits                                                     \
    "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"

static const struct pre {
    const char *names[4];
    const char *splits[4];
    bool ignore_merges, add_bos; /* add_bos: where the file does not say */
    bool nfc;                    /* the models' own tokenizer.json normalises; llama.cpp does not */
} pres[] = {
    {.names = {"smollm"}, .splits = {"\\p{N}", GPT2_WORDS}},
    {.names = {"llama-bpe", "llama3", "llama-v3"}, .splits = {LLAMA3_WORDS("{1,3}")}, .ignore_merges = true, .add_bos = true},
    {.names = {"qwen2", "deepseek-r1-qwen"}, .splits = {LLAMA3_WORDS("")}, .nfc = true},
    {.names = {"gpt-2"}, .splits = {GPT2_WORDS}},
    {.names = {"default"}, .splits = {"[\\p{P}\\$\\+<=>\\^~\\|]+", GPT2_WORDS, "\\p{N}+", "[0-9][0-9][0-9]"}},
};

typedef struct reader {
    const gguf *g;
    token_spec *spec;
    ckvc_err *err;
} reader;

static ckvc_status take_bytes(reader *r, const char *bytes, size_t n, token_text *out)
{
    out->bytes = ckvc_alloc(n + 1, 1);
    if (out->bytes == NULL)
        return ckvc_fail_memory(r->err, "tokenizer text", n + 1);
    memcpy(out->bytes, bytes, n);
    out->bytes[n] = '\0';
    out->size = n;
    return CKVC_OK;
}

/* token_type of every token, or NULL where the file has none: all are normal then. */
static ckvc_status find_types(reader *r, const gguf_value *tokens, const gguf_value **types)
{
    ckvc_status st = gguf_array(r->g, "tokenizer.ggml.token_type", GGUF_I32, types, r->err);
    if (st == CKVC_OK && *types && (*types)->n != tokens->n)
        st = ckvc_fail(r->err, CKVC_E_DATA, "%s: byte %" PRIu64 ": key %s has %" PRIu64 " items, tokenizer.ggml.tokens %" PRIu64,
                       r->g->path, (*types)->at, (*types)->key, (*types)->n, tokens->n);
    return st;
}

static int32_t type_of(const gguf_value *types, uint64_t i)
{
    return types ? (int32_t)ckvc_get_u32(types->data + i * 4) : TYPE_NORMAL;
}

/* Control and user-defined tokens are found in the text before anything else, as a tokenizer.json's added tokens; unused ones are
 * places in the embedding and no text. */
static ckvc_status read_tokens(reader *r)
{
    const gguf_value *tokens, *types;
    token_spec *spec = r->spec;
    ckvc_status st = gguf_array(r->g, "tokenizer.ggml.tokens", GGUF_STRING, &tokens, r->err);
    if (st == CKVC_OK && tokens == NULL)
        st = ckvc_fail(r->err, CKVC_E_DATA, "%s: key tokenizer.ggml.tokens is missing", r->g->path);
    if (st == CKVC_OK)
        st = find_types(r, tokens, &types);
    if (st != CKVC_OK)
        return st;
    if (tokens->n > MAX_PIECES)
        return ckvc_fail(r->err, CKVC_E_DATA, "%s: key tokenizer.ggml.tokens has %" PRIu64 " items; at most %d are read",
                         r->g->path, tokens->n, MAX_PIECES);
    size_t n_added = 0;
    for (uint64_t i = 0; i < tokens->n; i++) {
        const int32_t type = type_of(types, i);
        if (type < TYPE_NORMAL || type > TYPE_BYTE)
            return ckvc_fail(r->err, CKVC_E_DATA,
                             "%s: byte %" PRIu64 ": tokenizer.ggml.token_type of token %" PRIu64 " is %d; want 1 ... 6", r->g->path,
                             types->at + i * 4, i, type);
        n_added += type == TYPE_CONTROL || type == TYPE_USER_DEFINED;
    }
    if (n_added > MAX_ADDED)
        return ckvc_fail(r->err, CKVC_E_DATA, "%s: %zu control and user-defined tokens; at most %d are read", r->g->path, n_added,
                         MAX_ADDED);
    spec->pieces = ckvc_calloc((size_t)tokens->n, sizeof *spec->pieces);
    spec->added = ckvc_calloc(n_added, sizeof *spec->added);
    if (spec->pieces == NULL || spec->added == NULL)
        return ckvc_fail_memory(r->err, "tokenizer pieces", (size_t)tokens->n * sizeof *spec->pieces);
    uint64_t at = 0;
    for (uint64_t i = 0; i < tokens->n && st == CKVC_OK; i++) {
        const int32_t type = type_of(types, i);
        const uint64_t place = tokens->at + at;
        size_t size;
        const char *text = gguf_next_string(tokens, &at, &size);
        if (type == TYPE_UNUSED)
            continue;
        if (size == 0 || ckvc_utf8_check(text, size) < size)
            return ckvc_fail(r->err, CKVC_E_DATA, "%s: byte %" PRIu64 ": token %" PRIu64 " is %s", r->g->path, place, i,
                             size ? "not valid UTF-8" : "empty");
        if (type == TYPE_CONTROL || type == TYPE_USER_DEFINED) {
            token_added *added = &spec->added[spec->n_added];
            st = take_bytes(r, text, size, &added->text);
            spec->n_added += st == CKVC_OK;
            added->id = (int32_t)i;
            added->special = type == TYPE_CONTROL;
        } else {
            token_piece *piece = &spec->pieces[spec->n_pieces];
            st = take_bytes(r, text, size, &piece->text);
            spec->n_pieces += st == CKVC_OK;
            piece->id = (int32_t)i;
        }
    }
    return st;
}

static ckvc_status read_merges(reader *r)
{
    const gguf_value *merges;
    token_spec *spec = r->spec;
    ckvc_status st = gguf_array(r->g, "tokenizer.ggml.merges", GGUF_STRING, &merges, r->err);
    if (st != CKVC_OK)
        return st;
    if (merges == NULL || merges->n > MAX_MERGES)
        return ckvc_fail(r->err, CKVC_E_DATA, "%s: key tokenizer.ggml.merges is missing, or has more than %d items", r->g->path,
                         MAX_MERGES);
    spec->merges = ckvc_calloc((size_t)merges->n, sizeof *spec->merges);
    if (spec->merges == NULL)
        return ckvc_fail_memory(r->err, "tokenizer merges", (size_t)merges->n * sizeof *spec->merges);
    uint64_t at = 0;
    for (uint64_t i = 0; i < merges->n && st == CKVC_OK; i++) {
        const uint64_t place = merges->at + at;
        size_t size;
        const char *text = gguf_next_string(merges, &at, &size);
        /* the first byte belongs to the left part whatever it is, as in llama.cpp: byte-level spellings hold no space */
        const char *space = size > 1 ? memchr(text + 1, ' ', size - 1) : NULL;
        const size_t left = space ? (size_t)(space - text) : 0;
        if (space == NULL || left + 1 == size || memchr(space + 1, ' ', size - left - 1))
            return ckvc_fail(r->err, CKVC_E_DATA,
                             "%s: byte %" PRIu64 ": merge %" PRIu64 " is \"%.*s\"; want two parts and one space", r->g->path, place,
                             i, (int)(size < 64 ? size : 64), text);
        struct token_merge *merge = &spec->merges[spec->n_merges++];
        st = take_bytes(r, text, left, &merge->left);
        if (st == CKVC_OK)
            st = take_bytes(r, space + 1, size - left - 1, &merge->right);
    }
    return st;
}

static ckvc_status read_pre(reader *r, const struct pre **out)
{
    const gguf_value *name;
    token_spec *spec = r->spec;
    ckvc_status st = gguf_string(r->g, "tokenizer.ggml.pre", &name, r->err);
    if (st != CKVC_OK)
        return st;
    *out = NULL;
    for (size_t i = 0; i < sizeof pres / sizeof *pres; i++) {
        for (size_t k = 0; k < 4 && pres[i].names[k]; k++) {
            if (name ? gguf_string_is(name, pres[i].names[k]) : strcmp(pres[i].names[k], "default") == 0)
                *out = &pres[i];
        }
    }
    if (*out == NULL)
        return ckvc_fail(
            r->err, CKVC_E_DATA,
            "%s: key tokenizer.ggml.pre is \"%.*s\", which is not supported (smollm, llama-bpe, qwen2, gpt-2, default are)",
            r->g->path, (int)(name->n < 64 ? name->n : 64), (const char *)name->data);
    spec->byte_level = true;
    spec->ignore_merges = (*out)->ignore_merges;
    spec->splits = ckvc_calloc(4, sizeof *spec->splits);
    spec->normalizers = ckvc_calloc(1, sizeof *spec->normalizers);
    if (spec->splits == NULL || spec->normalizers == NULL)
        return ckvc_fail_memory(r->err, "pre-tokenizer patterns", sizeof *spec->splits);
    for (size_t i = 0; i < 4 && (*out)->splits[i] && st == CKVC_OK; i++) {
        st = take_bytes(r, (*out)->splits[i], strlen((*out)->splits[i]), &spec->splits[i]);
        spec->n_splits += st == CKVC_OK;
    }
    if ((*out)->nfc)
        spec->normalizers[spec->n_normalizers++].kind = TOKEN_NORM_NFC;
    return st;
}

/* One id put around the text when add_key says so. */
static ckvc_status read_around(reader *r, const char *add_key, bool add, const char *id_key, int32_t **ids, size_t *n)
{
    int64_t id = -1;
    ckvc_status st = gguf_flag(r->g, add_key, &add, r->err);
    if (st == CKVC_OK && add)
        st = gguf_int(r->g, id_key, 0, MAX_PIECES - 1, &id, r->err);
    if (st != CKVC_OK || !add)
        return st;
    if (id < 0)
        return ckvc_fail(r->err, CKVC_E_DATA, "%s: the tokenizer adds a token that key %s names, and there is none", r->g->path,
                         id_key);
    *ids = ckvc_alloc(1, sizeof **ids);
    if (*ids == NULL)
        return ckvc_fail_memory(r->err, "template ids", sizeof **ids);
    (*ids)[0] = (int32_t)id;
    *n = 1;
    return CKVC_OK;
}

static ckvc_status read_all(reader *r)
{
    const gguf_value *model;
    const struct pre *pre;
    bool space = false;
    ckvc_status st = gguf_string(r->g, "tokenizer.ggml.model", &model, r->err);
    if (st != CKVC_OK)
        return st;
    if (model == NULL)
        return ckvc_fail(r->err, CKVC_E_NOINPUT,
                         "%s: key tokenizer.ggml.model is missing: the file has no tokenizer; give prompts as "
                         "\"tokens\"",
                         r->g->path);
    if (!gguf_string_is(model, "gpt2"))
        return ckvc_fail(r->err, CKVC_E_DATA,
                         "%s: key tokenizer.ggml.model is \"%.*s\", which is not supported (gpt2 is): give prompts as "
                         "\"tokens\"",
                         r->g->path, (int)(model->n < 32 ? model->n : 32), (const char *)model->data);
    r->spec->unk_id = -1;
    st = gguf_flag(r->g, "tokenizer.ggml.add_space_prefix", &space, r->err);
    r->spec->add_prefix_space = space;
    if (st == CKVC_OK)
        st = read_pre(r, &pre);
    if (st == CKVC_OK)
        st = read_tokens(r);
    if (st == CKVC_OK)
        st = read_merges(r);
    if (st == CKVC_OK)
        st = read_around(r, "tokenizer.ggml.add_bos_token", pre->add_bos, "tokenizer.ggml.bos_token_id", &r->spec->prefix_ids,
                         &r->spec->n_prefix);
    if (st == CKVC_OK)
        st = read_around(r, "tokenizer.ggml.add_eos_token", false, "tokenizer.ggml.eos_token_id", &r->spec->suffix_ids,
                         &r->spec->n_suffix);
    return st;
}

ckvc_status tokenizer_gguf_read(const char *path, token_spec **out, ckvc_err *err)
{
    *out = NULL;
    gguf *g;
    ckvc_status st = gguf_open(path, &g, err);
    if (st != CKVC_OK)
        return st;
    reader r = {g, ckvc_calloc(1, sizeof(token_spec)), err};
    st = r.spec ? read_all(&r) : ckvc_fail_memory(err, "tokenizer", sizeof(token_spec));
    gguf_close(g);
    if (st != CKVC_OK) {
        token_spec_free(r.spec);
        return st;
    }
    *out = r.spec;
    return CKVC_OK;
}
