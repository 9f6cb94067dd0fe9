/* tiktoken's rank files: a piece's rank is its id and its place in the order of merging. */
#include "formats/tokenizer/tiktoken.h"

#include <stdlib.h>
#include <string.h>

#include "formats/tokenizer/tokenizer_parts.h"
#include "lib/base/files.h"
#include "lib/base/memory.h"

enum {
    MAX_PIECE_BYTES = 1024,
    MAX_RANK = (1 << 24) - 1 /* ranks become scores, and every whole number up to here is a float */
};

static int base64_value(uint8_t c) {
    return c >= 'A' && c <= 'Z'   ? c - 'A'
           : c >= 'a' && c <= 'z' ? c - 'a' + 26
           : c >= '0' && c <= '9' ? c - '0' + 52
           : c == '+'             ? 62
           : c == '/'             ? 63
                                  : -1;
}

/* RFC 4648 with its padding; out has room for n / 4 * 3 bytes. False when it is not that. */
static bool base64_bytes(const uint8_t *text, size_t n, uint8_t *out, size_t *size) {
    *size = 0;
    if (n == 0 || n % 4 != 0) { return false; }
    for (size_t i = 0; i < n; i += 4) {
        size_t padding =
            i + 4 < n ? 0
                      : (size_t)(text[i + 3] == '=') + (text[i + 3] == '=' && text[i + 2] == '=');
        uint32_t group = 0;
        for (size_t k = 0; k < 4; k++) {
            int value = k < 4 - padding ? base64_value(text[i + k]) : 0;
            if (value < 0) { return false; }
            group = group << 6 | (uint32_t)value;
        }
        if (group & ((1u << 8 * padding) - 1)) { return false; }
        for (size_t k = 0; k < 3 - padding; k++) {
            out[(*size)++] = (uint8_t)(group >> (16 - 8 * k));
        }
    }
    return true;
}

bool tiktoken_looks_like(const void *data, size_t n) {
    const uint8_t *p = data;
    size_t i = 0;
    while (i < n && i < 2048 && (base64_value(p[i]) >= 0 || p[i] == '=')) {
        i++;
    }
    return i >= 4 && i + 1 < n && p[i] == ' ' && p[i + 1] >= '0' && p[i + 1] <= '9';
}

static ckvc_status read_line(token_reader *r, size_t line, const uint8_t *text, size_t n,
                             size_t *capacity) {
    token_spec *spec = r->spec;
    const uint8_t *space = memchr(text, ' ', n);
    size_t spelled = space ? (size_t)(space - text) : n, size;
    int64_t rank = spelled + 1 < n ? 0 : -1;
    for (size_t i = spelled + 1; i < n && rank >= 0; i++) {
        rank =
            text[i] >= '0' && text[i] <= '9' && rank <= MAX_RANK ? rank * 10 + (text[i] - '0') : -1;
    }
    uint8_t raw[MAX_PIECE_BYTES];
    char alphabet[2 * MAX_PIECE_BYTES];
    if (spelled / 4 * 3 > sizeof raw) {
        return ckvc_fail(r->err, CKVC_E_DATA,
                         "%s:%zu: a piece of about %zu bytes; at most %d are read", r->path, line,
                         spelled / 4 * 3, MAX_PIECE_BYTES);
    }
    if (rank < 0 || rank > MAX_RANK || !base64_bytes(text, spelled, raw, &size)) {
        return ckvc_fail(r->err, CKVC_E_DATA,
                         "%s:%zu: want a piece in base64, one space and its rank from 0 to %d",
                         r->path, line, MAX_RANK);
    }
    if (spec->n_pieces == TOKENIZER_MAX_PIECES) {
        return ckvc_fail(r->err, CKVC_E_DATA, "%s: more than %d pieces", r->path,
                         TOKENIZER_MAX_PIECES);
    }
    void *pieces = spec->pieces;
    ckvc_status status =
        ckvc_grow(&pieces, capacity, spec->n_pieces + 1, sizeof *spec->pieces, r->err);
    spec->pieces = pieces;
    if (status != CKVC_OK) { return status; }
    token_piece *piece = &spec->pieces[spec->n_pieces];
    *piece = (token_piece){{0}, (int32_t)rank, TOKEN_PIECE_NORMAL, -(float)rank};
    status = token_take_bytes(r, alphabet, token_spell_bytes(raw, size, alphabet), &piece->text);
    spec->n_pieces += status == CKVC_OK;
    return status;
}

static ckvc_status read_lines(token_reader *r, const uint8_t *data, uint64_t size) {
    size_t capacity = 0, line = 1;
    for (uint64_t at = 0; at < size; line++) {
        const uint8_t *end = memchr(data + at, '\n', size - at);
        uint64_t stop = end ? (uint64_t)(end - data) : size, next = stop + 1;
        stop -= stop > at && data[stop - 1] == '\r';
        ckvc_status status =
            stop > at ? read_line(r, line, data + at, stop - at, &capacity) : CKVC_OK;
        if (status != CKVC_OK) { return status; }
        at = next;
    }
    bool alone[256] = {false}; /* every byte is a piece, or some texts could not be encoded */
    for (size_t i = 0; i < r->spec->n_pieces; i++) {
        for (int byte = 0; byte < 256 && r->spec->pieces[i].text.size <= 2; byte++) {
            char spelled[2];
            unsigned char raw = (unsigned char)byte;
            size_t n = token_spell_bytes(&raw, 1, spelled);
            alone[byte] |= r->spec->pieces[i].text.size == n &&
                           memcmp(r->spec->pieces[i].text.bytes, spelled, n) == 0;
        }
    }
    for (int byte = 0; byte < 256; byte++) {
        if (!alone[byte]) {
            return ckvc_fail(r->err, CKVC_E_DATA, "%s: the byte 0x%02X has no piece of its own",
                             r->path, (unsigned)byte);
        }
    }
    return CKVC_OK;
}

static ckvc_status take_llama3(token_reader *r, const char *model_dir, const token_config *config) {
    static const char *const known[] = {"<|begin_of_text|>", "<|end_of_text|>",
                                        "<|start_header_id|>", "<|eot_id|>"};
    token_spec *spec = r->spec;
    spec->unk_id = -1;
    spec->byte_level = spec->merge_by_score = spec->ignore_merges = true;
    if (!config->root) {
        return ckvc_fail(r->err, CKVC_E_DATA,
                         "%s: a tiktoken rank file names no special tokens; %s with "
                         "added_tokens_decoder is needed beside it",
                         r->path, config->path);
    }
    ckvc_status status = token_config_added(r, model_dir, config);
    for (size_t i = 0; i < sizeof known / sizeof *known && status == CKVC_OK; i++) {
        if (token_id_of(spec, known[i]) < 0) {
            status = ckvc_fail(r->err, CKVC_E_DATA,
                               "%s: a tiktoken rank file is read as Llama-3's alone, but %s has no "
                               "\"%s\" in added_tokens_decoder; "
                               "give the directory its tokenizer.json",
                               r->path, config->path, known[i]);
        }
    }
    if (status == CKVC_OK) { status = token_add_split(r, token_pattern_llama3); }
    /* The template of Llama-3's tokenizer.json: <|begin_of_text|> in front, nothing behind. */
    if (status == CKVC_OK) {
        status = token_push_id(r, &spec->prefix_ids, &spec->n_prefix, token_id_of(spec, known[0]));
    }
    return status == CKVC_OK ? token_config_ends(r, config) : status;
}

ckvc_status tiktoken_read(const char *model_dir, token_spec **out, ckvc_err *err) {
    *out = NULL;
    char *path = ckvc_path_join(model_dir, "tokenizer.model");
    token_reader r = {path, ckvc_calloc(1, sizeof(token_spec)), err};
    token_config config = {0};
    ckvc_map map = {0};
    ckvc_status status = path && r.spec ? ckvc_map_open(path, &map, err)
                                        : ckvc_fail_memory(err, "tokenizer", sizeof(token_spec));
    if (status == CKVC_OK && map.size > TOKENIZER_MAX_BYTES) {
        status = ckvc_fail(err, CKVC_E_DATA, "%s: %llu bytes; at most %d are read", path,
                           (unsigned long long)map.size, TOKENIZER_MAX_BYTES);
    }
    if (status == CKVC_OK) { status = read_lines(&r, map.data, map.size); }
    if (status == CKVC_OK) { status = token_config_read(model_dir, &config, err); }
    if (status == CKVC_OK) { status = take_llama3(&r, model_dir, &config); }
    ckvc_map_close(&map);
    token_config_free(&config);
    free(path);
    if (status != CKVC_OK) {
        token_spec_free(r.spec);
        return status;
    }
    *out = r.spec;
    return CKVC_OK;
}
