/* Reads tokenizer.ggml.* of a GGUF file into a token_spec.
 *
 * The file names the way in which text is cut into words, and does not spell it out: "pre" stands
 * for patterns that llama.cpp has in its source (src/llama-vocab.cpp, llm_tokenizer_bpe) and that
 * come from the models' tokenizer.json. The model "llama" is SentencePiece's BPE, "gpt2" the
 * byte-level one. */
#include <inttypes.h>
#include <math.h>

#include "formats/model/gguf.h"
#include "formats/tokenizer/tokenizer_readers.h"
#include "lib/base/bytes.h"
#include "lib/base/utf8.h"

/* tokenizer.ggml.token_type (gguf-py, TokenType). */
enum { TYPE_NORMAL = 1, TYPE_UNKNOWN, TYPE_CONTROL, TYPE_USER_DEFINED, TYPE_UNUSED, TYPE_BYTE };

static const struct pre {
    const char *names[4];
    const char *splits[4];
    bool ignore_merges, add_bos; /* add_bos: the value where the file does not say */
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
    token_reader *to;
    const gguf *g;
    /* types and scores are NULL where the file has none */
    const gguf_value *tokens, *types, *scores;
    bool by_score; /* SentencePiece's BPE: its pieces have scores, and there are no merges */
} reader;

static ckvc_status same_length(const reader *r, const gguf_value *list, const char *key) {
    REFUSE_IF(r->to, !(list && list->n == r->tokens->n),
              "key %s has %" PRIu64 " items, tokenizer.ggml.tokens %" PRIu64, key,
              list ? list->n : 0, r->tokens->n);
    return CKVC_OK;
}

/* Finds the lists of tokens. Without types all tokens are normal; SentencePiece's merging needs
 * scores. */
static ckvc_status find_lists(reader *r) {
    static const char types[] = "tokenizer.ggml.token_type", scores[] = "tokenizer.ggml.scores";
    CKVC_TRY(gguf_array(r->g, "tokenizer.ggml.tokens", GGUF_STRING, &r->tokens, r->to->err));
    REFUSE_IF(r->to, !r->tokens, "key tokenizer.ggml.tokens is missing");
    CKVC_TRY(gguf_array(r->g, types, GGUF_I32, &r->types, r->to->err));
    if (r->types) { CKVC_TRY(same_length(r, r->types, types)); }
    if (r->by_score) {
        CKVC_TRY(gguf_array(r->g, scores, GGUF_F32, &r->scores, r->to->err));
        CKVC_TRY(same_length(r, r->scores, scores));
    }
    REFUSE_IF(r->to, r->tokens->n > TOKENIZER_MAX_PIECES,
              "key tokenizer.ggml.tokens has %" PRIu64 " items; at most %d are read", r->tokens->n,
              TOKENIZER_MAX_PIECES);
    return CKVC_OK;
}

static int32_t type_of(const reader *r, uint64_t i) {
    return r->types ? (int32_t)ckvc_get_u32(r->types->data + i * 4) : TYPE_NORMAL;
}

/* Whether a token is found in the text before anything else, as the added tokens of a
 * tokenizer.json are. */
static bool is_added(const reader *r, int32_t type) {
    return type == TYPE_CONTROL || type == TYPE_USER_DEFINED ||
           (type == TYPE_UNKNOWN && r->by_score);
}

static ckvc_status count_types(reader *r) {
    size_t n_added = 0, n_bytes = 0;
    for (uint64_t i = 0; i < r->tokens->n; i++) {
        const int32_t type = type_of(r, i);
        REFUSE_AT_IF(r->to, r->types->at + i * 4, type < TYPE_NORMAL || type > TYPE_BYTE,
                     "tokenizer.ggml.token_type of token %" PRIu64 " is %d; want 1 ... 6", i, type);
        n_added += is_added(r, type);
        n_bytes += type == TYPE_BYTE;
    }
    REFUSE_IF(r->to, n_bytes != 0 && (n_bytes != 256 || !r->by_score),
              "%zu tokens are of the type byte; want 0%s", n_bytes, r->by_score ? " or 256" : "");
    r->to->spec->byte_fallback = n_bytes != 0;
    r->to->spec->pieces = ckvc_calloc(r->tokens->n, sizeof *r->to->spec->pieces);
    return token_reserve_added(r->to, "tokenizer.ggml.tokens", n_added);
}

static ckvc_status add_token(reader *r, uint64_t i, const char *text, size_t size) {
    token_spec *spec = r->to->spec;
    const int32_t type = type_of(r, i);
    if (is_added(r, type)) {
        spec->added[spec->n_added++] = (token_added){
            .text = token_copy(text, size), .id = (int32_t)i, .special = type != TYPE_USER_DEFINED};
        if (!r->by_score) { return CKVC_OK; }
    }
    token_piece *piece = &spec->pieces[spec->n_pieces++];
    *piece = (token_piece){.text = token_copy(text, size),
                           .id = (int32_t)i,
                           .kind = r->by_score && type != TYPE_NORMAL ? TOKEN_PIECE_RESERVED
                                                                      : TOKEN_PIECE_NORMAL,
                           .score = r->scores ? ckvc_get_f32(r->scores->data + i * 4) : 0.0f};
    if (type == TYPE_UNKNOWN && r->by_score) { spec->unk_id = (int32_t)i; }
    REFUSE_AT_IF(r->to, r->scores->at + i * 4, r->scores && !isfinite(piece->score),
                 "the score of token %" PRIu64 " is not finite", i);
    return CKVC_OK;
}

/* Reads the tokens. Unused tokens are places in the embedding and have no text. Under byte-level
 * merging, the pieces are those of the others that are not added tokens. Under SentencePiece's all
 * of the others are pieces; merging makes only the normal ones, and the unknown one is found in the
 * text too (as in sentencepiece.c). */
static ckvc_status read_tokens(reader *r) {
    CKVC_TRY(find_lists(r));
    CKVC_TRY(count_types(r));
    uint64_t at = 0;
    for (uint64_t i = 0; i < r->tokens->n; i++) {
        const uint64_t place = r->tokens->at + at;
        size_t size;
        const char *text = gguf_next_string(r->tokens, &at, &size);
        if (type_of(r, i) == TYPE_UNUSED) { continue; }
        REFUSE_AT_IF(r->to, place, size == 0 || ckvc_utf8_check(text, size) < size,
                     "token %" PRIu64 " is %s", i, size ? "not valid UTF-8" : "empty");
        CKVC_TRY(add_token(r, i, text, size));
    }
    return CKVC_OK;
}

static ckvc_status read_merges(reader *r) {
    const gguf_value *merges;
    CKVC_TRY(gguf_array(r->g, "tokenizer.ggml.merges", GGUF_STRING, &merges, r->to->err));
    REFUSE_IF(r->to, !merges, "key tokenizer.ggml.merges is missing");
    CKVC_TRY(token_reserve_merges(r->to, "key tokenizer.ggml.merges", merges->n));
    uint64_t at = 0;
    for (uint64_t i = 0; i < merges->n; i++) {
        const uint64_t place = merges->at + at;
        size_t size;
        const char *text = gguf_next_string(merges, &at, &size);
        /* the first byte belongs to the left part even if it is a space, as in llama.cpp */
        const char *space = size > 1 ? memchr(text + 1, ' ', size - 1) : NULL;
        const size_t left = space ? (size_t)(space - text) : 0;
        REFUSE_AT_IF(r->to, place,
                     !space || left + 1 == size || memchr(space + 1, ' ', size - left - 1),
                     "merge %" PRIu64 " is \"%.*s\"; want two parts and one space", i,
                     (int)(size < 64 ? size : 64), text);
        token_add_merge(r->to->spec, text, left, space + 1, size - left - 1);
    }
    return CKVC_OK;
}

static ckvc_status read_pre(reader *r, bool *add_bos) {
    const struct pre *pre = NULL;
    const gguf_value *name;
    token_spec *spec = r->to->spec;
    CKVC_TRY(gguf_string(r->g, "tokenizer.ggml.pre", &name, r->to->err));
    for (size_t i = 0; i < sizeof pres / sizeof *pres; i++) {
        for (size_t k = 0; k < 4 && pres[i].names[k]; k++) {
            if (name ? gguf_string_is(name, pres[i].names[k])
                     : strcmp(pres[i].names[k], "default") == 0) {
                pre = &pres[i];
            }
        }
    }
    REFUSE_IF(r->to, !pre,
              "key tokenizer.ggml.pre is \"%.*s\", which is not supported (smollm, llama-bpe, "
              "qwen2, gpt-2, default are)",
              (int)(name->n < 64 ? name->n : 64), (const char *)name->data);
    spec->byte_level = true;
    spec->ignore_merges = pre->ignore_merges;
    for (size_t i = 0; i < 4 && pre->splits[i]; i++) { token_add_split(spec, pre->splits[i]); }
    if (pre->nfc) { token_add_normalizer(spec, TOKEN_NORM_NFC, NULL, NULL); }
    *add_bos = pre->add_bos;
    return CKVC_OK;
}

static ckvc_status read_byte_level(reader *r, bool *add_bos) {
    CKVC_TRY(read_pre(r, add_bos));
    CKVC_TRY(gguf_flag(r->g, "tokenizer.ggml.add_space_prefix", &r->to->spec->add_prefix_space,
                       r->to->err));
    CKVC_TRY(read_tokens(r));
    return read_merges(r);
}

/* White space is treated as in llama.cpp and in transformers' LlamaTokenizer (legacy): it is
 * marked, and a space is put in front of what lies between added tokens, unless add_space_prefix is
 * false. */
static ckvc_status read_sentencepiece(reader *r, bool *add_bos) {
    token_spec *spec = r->to->spec;
    token_spaces spaces = {.prefix = true};
    r->by_score = spec->merge_by_score = spec->fuse_unk = spec->added_over_pieces = *add_bos = true;
    CKVC_TRY(read_tokens(r));
    if (spec->unk_id < 0) { /* in Gemma it is a control token that a key names */
        int64_t unk = -1;
        CKVC_TRY(gguf_int(r->g, "tokenizer.ggml.unknown_token_id", 0, (int64_t)r->tokens->n - 1,
                          &unk, r->to->err));
        spec->unk_id = (int32_t)unk;
    }
    REFUSE_IF(r->to, spec->unk_id < 0, "no token is of the type unknown");
    const gguf_value *map = gguf_find(r->g, "tokenizer.ggml.precompiled_charsmap");
    REFUSE_IF(r->to, map && (map->type != GGUF_ARRAY || map->n > 0),
              "key tokenizer.ggml.precompiled_charsmap: a character map is not supported");
    CKVC_TRY(gguf_flag(r->g, "tokenizer.ggml.add_space_prefix", &spaces.prefix, r->to->err));
    CKVC_TRY(
        gguf_flag(r->g, "tokenizer.ggml.remove_extra_whitespaces", &spaces.squeeze, r->to->err));
    token_set_spaces(spec, spaces);
    return CKVC_OK;
}

/* Adds the id that stands in front of the text, where the file asks for it. */
static ckvc_status read_front(reader *r, bool add) {
    static const char key[] = "tokenizer.ggml.bos_token_id";
    int64_t id = -1;
    CKVC_TRY(gguf_flag(r->g, "tokenizer.ggml.add_bos_token", &add, r->to->err));
    if (!add) { return CKVC_OK; }
    CKVC_TRY(gguf_int(r->g, key, 0, TOKENIZER_MAX_PIECES - 1, &id, r->to->err));
    REFUSE_IF(r->to, id < 0, "the tokenizer adds a token that key %s names, and there is none",
              key);
    token_add_id(&r->to->spec->prefix_ids, &r->to->spec->n_prefix, (int32_t)id);
    return CKVC_OK;
}

/* Copies the text of the token that a key names, for the chat template. */
static ckvc_status read_named(reader *r, const char *key, token_text *out) {
    int64_t id = -1;
    CKVC_TRY(gguf_int(r->g, key, INT64_MIN, INT64_MAX, &id, r->to->err));
    for (size_t i = 0; i < r->to->spec->n_added && !out->bytes; i++) {
        const token_added *added = &r->to->spec->added[i];
        if (added->id == id) { *out = token_copy(added->text.bytes, added->text.size); }
    }
    return CKVC_OK;
}

static ckvc_status read_all(reader *r) {
    const gguf_value *model, *chat;
    bool add_bos = false;
    token_spec *spec = r->to->spec;
    CKVC_TRY(gguf_string(r->g, "tokenizer.ggml.model", &model, r->to->err));
    CKVC_FAIL_IF(!model, r->to->err, CKVC_E_NOINPUT,
                 "%s: key tokenizer.ggml.model is missing: the file has no tokenizer; give prompts "
                 "as \"tokens\"",
                 r->to->path);
    if (gguf_string_is(model, "gpt2")) {
        CKVC_TRY(read_byte_level(r, &add_bos));
    } else if (gguf_string_is(model, "llama")) {
        CKVC_TRY(read_sentencepiece(r, &add_bos));
    } else {
        return token_refuse(
            r->to,
            "key tokenizer.ggml.model is \"%.*s\", which is not supported (gpt2 and llama are)",
            (int)(model->n < 32 ? model->n : 32), (const char *)model->data);
    }
    CKVC_TRY(read_front(r, add_bos));
    CKVC_TRY(gguf_string(r->g, "tokenizer.chat_template", &chat, r->to->err));
    if (chat) { spec->chat_template = token_copy((const char *)chat->data, chat->n); }
    CKVC_TRY(read_named(r, "tokenizer.ggml.bos_token_id", &spec->bos));
    return read_named(r, "tokenizer.ggml.eos_token_id", &spec->eos);
}

ckvc_status tokenizer_gguf_read(token_reader *r) {
    CKVC_AUTO(gguf_close_at) gguf *g = NULL;
    CKVC_TRY(gguf_open(r->path, &g, r->err));
    return read_all(&(reader){.to = r, .g = g});
}
