/* tokenizer.ggml.* of a GGUF file, read into a token_spec.
 *
 * The file names its way of cutting text into words instead of spelling it: "pre" stands for
 * patterns that llama.cpp has in its source (src/llama-vocab.cpp, llm_tokenizer_bpe) and that came
 * from the models' tokenizer.json. The model "llama" is SentencePiece's BPE, "gpt2" the byte-level
 * one. A way that we do not know is refused by its name, as is everything else that would give
 * other ids than the model's own tokenizer.
 */
#include "formats/tokenizer/tokenizer_gguf.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "formats/model/gguf.h"
#include "formats/tokenizer/tokenizer_parts.h"
#include "lib/base/bytes.h"
#include "lib/base/memory.h"
#include "lib/base/utf8.h"

#define MAX_ADDED (1 << 17)

/* tokenizer.ggml.token_type (gguf-py, TokenType). */
enum { TYPE_NORMAL = 1, TYPE_UNKNOWN, TYPE_CONTROL, TYPE_USER_DEFINED, TYPE_UNUSED, TYPE_BYTE };

#define SPACE_MARK "\xE2\x96\x81" /* U+2581 */

static const struct pre {
    const char *names[4];
    const char *splits[4];
    bool ignore_merges, add_bos; /* add_bos: where the file does not say */
    bool nfc;                    /* the models' own tokenizer.json normalises; llama.cpp does not */
} pres[] = {
    {.names = {"smollm"}, .splits = {"\\p{N}", token_pattern_gpt2}},
    {.names = {"llama-bpe", "llama3", "llama-v3"},
     .splits = {token_pattern_llama3},
     .ignore_merges = true,
     .add_bos = true},
    {.names = {"qwen2", "deepseek-r1-qwen"}, .splits = {token_pattern_qwen2}, .nfc = true},
    {.names = {"gpt-2"}, .splits = {token_pattern_gpt2}},
    {.names = {"default"},
     .splits = {"[\\p{P}\\$\\+<=>\\^~\\|]+", token_pattern_gpt2, "\\p{N}+", "[0-9][0-9][0-9]"}},
};

typedef struct reader {
    token_reader to; /* first: what the parts write to */
    const gguf *g;
    bool by_score; /* SentencePiece's BPE: pieces with scores, no merges */
} reader;

/* token_type of every token, or NULL where the file has none: all are normal then. */
static ckvc_status find_types(reader *r, const gguf_value *tokens, const gguf_value **types) {
    ckvc_status st = gguf_array(r->g, "tokenizer.ggml.token_type", GGUF_I32, types, r->to.err);
    if (st == CKVC_OK && *types && (*types)->n != tokens->n) {
        st = ckvc_fail(r->to.err, CKVC_E_DATA,
                       "%s: byte %" PRIu64 ": key %s has %" PRIu64
                       " items, tokenizer.ggml.tokens %" PRIu64,
                       r->to.path, (*types)->at, (*types)->key, (*types)->n, tokens->n);
    }
    return st;
}

/* Scores of every token; only SentencePiece's merging asks for them. */
static ckvc_status find_scores(reader *r, const gguf_value *tokens, const gguf_value **scores) {
    *scores = NULL;
    if (!r->by_score) { return CKVC_OK; }
    ckvc_status st = gguf_array(r->g, "tokenizer.ggml.scores", GGUF_F32, scores, r->to.err);
    if (st == CKVC_OK && (*scores == NULL || (*scores)->n != tokens->n)) {
        st = ckvc_fail(r->to.err, CKVC_E_DATA,
                       "%s: key tokenizer.ggml.scores has %" PRIu64
                       " items, tokenizer.ggml.tokens %" PRIu64,
                       r->to.path, *scores ? (*scores)->n : 0, tokens->n);
    }
    return st;
}

static int32_t type_of(const gguf_value *types, uint64_t i) {
    return types ? (int32_t)ckvc_get_u32(types->data + i * 4) : TYPE_NORMAL;
}

/* Control and user-defined tokens are found in the text before anything else, as a tokenizer.json's
 * added tokens; unused ones are places in the embedding and no text. Under byte-level merging the
 * others are the pieces; under SentencePiece's all of them are, the normal ones alone are what
 * merging makes, and the unknown one is found in the text too (as sentencepiece.c has it). */
static ckvc_status read_tokens(reader *r) {
    const gguf_value *tokens, *types, *scores;
    token_spec *spec = r->to.spec;
    ckvc_status st = gguf_array(r->g, "tokenizer.ggml.tokens", GGUF_STRING, &tokens, r->to.err);
    if (st == CKVC_OK && tokens == NULL) {
        st = ckvc_fail(r->to.err, CKVC_E_DATA, "%s: key tokenizer.ggml.tokens is missing",
                       r->to.path);
    }
    if (st == CKVC_OK) { st = find_types(r, tokens, &types); }
    if (st == CKVC_OK) { st = find_scores(r, tokens, &scores); }
    if (st != CKVC_OK) { return st; }
    if (tokens->n > TOKENIZER_MAX_PIECES) {
        return ckvc_fail(r->to.err, CKVC_E_DATA,
                         "%s: key tokenizer.ggml.tokens has %" PRIu64 " items; at most %d are read",
                         r->to.path, tokens->n, TOKENIZER_MAX_PIECES);
    }
    size_t n_added = 0, n_bytes = 0;
    for (uint64_t i = 0; i < tokens->n; i++) {
        const int32_t type = type_of(types, i);
        if (type < TYPE_NORMAL || type > TYPE_BYTE) {
            return ckvc_fail(r->to.err, CKVC_E_DATA,
                             "%s: byte %" PRIu64 ": tokenizer.ggml.token_type of token %" PRIu64
                             " is %d; want 1 ... 6",
                             r->to.path, types->at + i * 4, i, type);
        }
        n_added += type == TYPE_CONTROL || type == TYPE_USER_DEFINED || type == TYPE_UNKNOWN;
        n_bytes += type == TYPE_BYTE;
    }
    if (n_added > MAX_ADDED) {
        return ckvc_fail(r->to.err, CKVC_E_DATA,
                         "%s: %zu control and user-defined tokens; at most %d are read", r->to.path,
                         n_added, MAX_ADDED);
    }
    if (n_bytes != 0 && (n_bytes != 256 || !r->by_score)) {
        return ckvc_fail(r->to.err, CKVC_E_DATA, "%s: %zu tokens are of the type byte; want 0%s",
                         r->to.path, n_bytes, r->by_score ? " or 256" : "");
    }
    spec->byte_fallback = n_bytes != 0;
    spec->pieces = ckvc_calloc((size_t)tokens->n, sizeof *spec->pieces);
    spec->added = ckvc_calloc(n_added, sizeof *spec->added);
    uint64_t at = 0;
    for (uint64_t i = 0; i < tokens->n && st == CKVC_OK; i++) {
        const int32_t type = type_of(types, i);
        const uint64_t place = tokens->at + at;
        size_t size;
        const char *text = gguf_next_string(tokens, &at, &size);
        if (type == TYPE_UNUSED) { continue; }
        if (size == 0 || ckvc_utf8_check(text, size) < size) {
            return ckvc_fail(r->to.err, CKVC_E_DATA,
                             "%s: byte %" PRIu64 ": token %" PRIu64 " is %s", r->to.path, place, i,
                             size ? "not valid UTF-8" : "empty");
        }
        const bool named = type == TYPE_CONTROL || type == TYPE_USER_DEFINED ||
                           (type == TYPE_UNKNOWN && r->by_score);
        if (named) {
            token_added *added = &spec->added[spec->n_added];
            st = token_take_bytes(&r->to, text, size, &added->text);
            spec->n_added += st == CKVC_OK;
            added->id = (int32_t)i;
            added->special = type != TYPE_USER_DEFINED;
        }
        if (st == CKVC_OK && (!named || r->by_score)) {
            token_piece *piece = &spec->pieces[spec->n_pieces];
            st = token_take_bytes(&r->to, text, size, &piece->text);
            spec->n_pieces += st == CKVC_OK;
            piece->id = (int32_t)i;
            piece->kind =
                r->by_score && type != TYPE_NORMAL ? TOKEN_PIECE_RESERVED : TOKEN_PIECE_NORMAL;
            piece->score = scores ? ckvc_get_f32(scores->data + i * 4) : 0.0f;
            if (!isfinite(piece->score)) {
                st = ckvc_fail(r->to.err, CKVC_E_DATA,
                               "%s: byte %" PRIu64 ": the score of token %" PRIu64 " is not finite",
                               r->to.path, scores->at + i * 4, i);
            }
        }
        if (type == TYPE_UNKNOWN && r->by_score) { spec->unk_id = (int32_t)i; }
    }
    return st;
}

static ckvc_status read_merges(reader *r) {
    const gguf_value *merges;
    token_spec *spec = r->to.spec;
    ckvc_status st = gguf_array(r->g, "tokenizer.ggml.merges", GGUF_STRING, &merges, r->to.err);
    if (st != CKVC_OK) { return st; }
    if (merges == NULL || merges->n > TOKENIZER_MAX_MERGES) {
        return ckvc_fail(r->to.err, CKVC_E_DATA,
                         "%s: key tokenizer.ggml.merges is missing, or has more than %d items",
                         r->to.path, TOKENIZER_MAX_MERGES);
    }
    spec->merges = ckvc_calloc((size_t)merges->n, sizeof *spec->merges);
    uint64_t at = 0;
    for (uint64_t i = 0; i < merges->n && st == CKVC_OK; i++) {
        const uint64_t place = merges->at + at;
        size_t size;
        const char *text = gguf_next_string(merges, &at, &size);
        /* the first byte belongs to the left part whatever it is, as in llama.cpp: byte-level
         * spellings hold no space */
        const char *space = size > 1 ? memchr(text + 1, ' ', size - 1) : NULL;
        const size_t left = space ? (size_t)(space - text) : 0;
        if (space == NULL || left + 1 == size || memchr(space + 1, ' ', size - left - 1)) {
            return ckvc_fail(r->to.err, CKVC_E_DATA,
                             "%s: byte %" PRIu64 ": merge %" PRIu64
                             " is \"%.*s\"; want two parts and one space",
                             r->to.path, place, i, (int)(size < 64 ? size : 64), text);
        }
        st = token_take_merge(&r->to, (size_t)i, text, left, space + 1, size - left - 1);
    }
    return st;
}

static ckvc_status read_pre(reader *r, const struct pre **out) {
    const gguf_value *name;
    token_spec *spec = r->to.spec;
    ckvc_status st = gguf_string(r->g, "tokenizer.ggml.pre", &name, r->to.err);
    if (st != CKVC_OK) { return st; }
    *out = NULL;
    for (size_t i = 0; i < sizeof pres / sizeof *pres; i++) {
        for (size_t k = 0; k < 4 && pres[i].names[k]; k++) {
            if (name ? gguf_string_is(name, pres[i].names[k])
                     : strcmp(pres[i].names[k], "default") == 0) {
                *out = &pres[i];
            }
        }
    }
    if (*out == NULL) {
        return ckvc_fail(r->to.err, CKVC_E_DATA,
                         "%s: key tokenizer.ggml.pre is \"%.*s\", which is not supported (smollm, "
                         "llama-bpe, qwen2, gpt-2, default are)",
                         r->to.path, (int)(name->n < 64 ? name->n : 64), (const char *)name->data);
    }
    spec->byte_level = true;
    spec->ignore_merges = (*out)->ignore_merges;
    for (size_t i = 0; i < 4 && (*out)->splits[i] && st == CKVC_OK; i++) {
        st = token_add_split(&r->to, (*out)->splits[i]);
    }
    if (st == CKVC_OK && (*out)->nfc) {
        st = token_add_normalizer(&r->to, TOKEN_NORM_NFC, NULL, NULL);
    }
    return st;
}

/* White space of SentencePiece as llama.cpp and transformers' LlamaTokenizer (legacy) treat it:
 * marked, and one put in front of what lies between added tokens, unless add_space_prefix is false.
 */
static ckvc_status read_spaces(reader *r) {
    bool prefix = true, squeeze = false;
    token_spec *spec = r->to.spec;
    const gguf_value *map = gguf_find(r->g, "tokenizer.ggml.precompiled_charsmap");
    if (map && (map->type != GGUF_ARRAY || map->n > 0)) {
        return ckvc_fail(
            r->to.err, CKVC_E_DATA,
            "%s: key tokenizer.ggml.precompiled_charsmap: a character map is not supported",
            r->to.path);
    }
    ckvc_status st = gguf_flag(r->g, "tokenizer.ggml.add_space_prefix", &prefix, r->to.err);
    if (st == CKVC_OK) {
        st = gguf_flag(r->g, "tokenizer.ggml.remove_extra_whitespaces", &squeeze, r->to.err);
    }
    if (st == CKVC_OK && squeeze) {
        st = token_add_normalizer(&r->to, TOKEN_NORM_SQUEEZE, NULL, NULL);
    }
    if (st == CKVC_OK && prefix) {
        st = token_add_normalizer(&r->to, TOKEN_NORM_PREPEND, NULL, SPACE_MARK);
    }
    if (st == CKVC_OK) { st = token_add_normalizer(&r->to, TOKEN_NORM_REPLACE, " ", SPACE_MARK); }
    if (st == CKVC_OK) {
        st = token_take_bytes(&r->to, SPACE_MARK, strlen(SPACE_MARK), &spec->decode_from);
    }
    if (st == CKVC_OK) { st = token_take_bytes(&r->to, " ", 1, &spec->decode_to); }
    spec->decode_strip_left = prefix;
    return st;
}

/* One id put around the text when add_key says so. */
static ckvc_status read_around(reader *r, const char *add_key, bool add, const char *id_key,
                               int32_t **ids, size_t *n) {
    int64_t id = -1;
    ckvc_status st = gguf_flag(r->g, add_key, &add, r->to.err);
    if (st == CKVC_OK && add) {
        st = gguf_int(r->g, id_key, 0, TOKENIZER_MAX_PIECES - 1, &id, r->to.err);
    }
    if (st != CKVC_OK || !add) { return st; }
    if (id < 0) {
        return ckvc_fail(r->to.err, CKVC_E_DATA,
                         "%s: the tokenizer adds a token that key %s names, and there is none",
                         r->to.path, id_key);
    }
    return token_push_id(&r->to, ids, n, (int32_t)id);
}

static ckvc_status read_byte_level(reader *r, bool *add_bos) {
    const struct pre *pre;
    ckvc_status st = read_pre(r, &pre);
    if (st == CKVC_OK) {
        *add_bos = pre->add_bos;
        st = gguf_flag(r->g, "tokenizer.ggml.add_space_prefix", &r->to.spec->add_prefix_space,
                       r->to.err);
    }
    if (st == CKVC_OK) { st = read_tokens(r); }
    return st == CKVC_OK ? read_merges(r) : st;
}

static ckvc_status read_sentencepiece(reader *r, bool *add_bos) {
    token_spec *spec = r->to.spec;
    r->by_score = spec->merge_by_score = spec->fuse_unk = spec->added_over_pieces = *add_bos = true;
    ckvc_status st = read_tokens(r);
    if (st == CKVC_OK && spec->unk_id < 0) {
        st = ckvc_fail(r->to.err, CKVC_E_DATA, "%s: no token is of the type unknown", r->to.path);
    }
    return st == CKVC_OK ? read_spaces(r) : st;
}

static ckvc_status read_all(reader *r) {
    const gguf_value *model;
    bool add_bos = false;
    token_spec *spec = r->to.spec;
    ckvc_status st = gguf_string(r->g, "tokenizer.ggml.model", &model, r->to.err);
    if (st != CKVC_OK) { return st; }
    if (model == NULL) {
        return ckvc_fail(
            r->to.err, CKVC_E_NOINPUT,
            "%s: key tokenizer.ggml.model is missing: the file has no tokenizer; give prompts as "
            "\"tokens\"",
            r->to.path);
    }
    spec->unk_id = -1;
    if (gguf_string_is(model, "gpt2")) {
        st = read_byte_level(r, &add_bos);
    } else if (gguf_string_is(model, "llama")) {
        st = read_sentencepiece(r, &add_bos);
    } else {
        st = ckvc_fail(
            r->to.err, CKVC_E_DATA,
            "%s: key tokenizer.ggml.model is \"%.*s\", which is not supported (gpt2 and llama are)",
            r->to.path, (int)(model->n < 32 ? model->n : 32), (const char *)model->data);
    }
    if (st == CKVC_OK) {
        st = read_around(r, "tokenizer.ggml.add_bos_token", add_bos, "tokenizer.ggml.bos_token_id",
                         &spec->prefix_ids, &spec->n_prefix);
    }
    if (st == CKVC_OK) {
        st = read_around(r, "tokenizer.ggml.add_eos_token", false, "tokenizer.ggml.eos_token_id",
                         &spec->suffix_ids, &spec->n_suffix);
    }
    return st;
}

ckvc_status tokenizer_gguf_read(const char *path, token_spec **out, ckvc_err *err) {
    *out = NULL;
    gguf *g;
    ckvc_status st = gguf_open(path, &g, err);
    if (st != CKVC_OK) { return st; }
    reader r = {.to = {path, ckvc_calloc(1, sizeof(token_spec)), err}, .g = g};
    st = r.to.spec ? read_all(&r) : ckvc_fail_memory(err, "tokenizer", sizeof(token_spec));
    gguf_close(g);
    if (st != CKVC_OK) {
        token_spec_free(r.to.spec);
        return st;
    }
    *out = r.to.spec;
    return CKVC_OK;
}
