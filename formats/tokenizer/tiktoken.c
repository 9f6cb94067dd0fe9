/* tiktoken's rank files: the rank of a piece is its id, and its place in the order of merging. */
#include "formats/tokenizer/tokenizer_readers.h"
#include "lib/base/text_lines.h"

enum {
    MAX_PIECE_BYTES = 1024,
    /* Ranks become scores; every whole number up to this one is exact in a float. */
    MAX_RANK = (1 << 24) - 1
};

static int base64_value(char c) {
    return c >= 'A' && c <= 'Z'   ? c - 'A'
           : c >= 'a' && c <= 'z' ? c - 'a' + 26
           : c >= '0' && c <= '9' ? c - '0' + 52
           : c == '+'             ? 62
           : c == '/'             ? 63
                                  : -1;
}

/* Decodes RFC 4648 with its padding; out has room for n / 4 * 3 bytes. Returns false when the text
 * is not that. */
static bool base64_bytes(const char *text, size_t n, uint8_t *out, size_t *size) {
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

bool tiktoken_looks_like(const ckvc_map *file) {
    const char *p = (const char *)file->data;
    size_t i = 0;
    while (i < file->size && i < 2048 && (base64_value(p[i]) >= 0 || p[i] == '=')) { i++; }
    return i >= 4 && i + 1 < file->size && p[i] == ' ' && p[i + 1] >= '0' && p[i + 1] <= '9';
}

static ckvc_status read_line(token_reader *r, uint32_t line, const char *text, size_t n) {
    const char *space = memchr(text, ' ', n);
    size_t spelled = space ? (size_t)(space - text) : n, size;
    const int64_t rank = space ? token_number(space + 1, n - spelled - 1, MAX_RANK) : -1;
    uint8_t raw[MAX_PIECE_BYTES];
    char alphabet[2 * MAX_PIECE_BYTES];
    CKVC_FAIL_IF(spelled / 4 * 3 > sizeof raw, r->err, CKVC_E_DATA,
                 "%s:%u: a piece of about %zu bytes; at most %d are read", r->path, line,
                 spelled / 4 * 3, MAX_PIECE_BYTES);
    CKVC_FAIL_IF(rank < 0 || !base64_bytes(text, spelled, raw, &size), r->err, CKVC_E_DATA,
                 "%s:%u: want a piece in base64, one space and its rank from 0 to %d", r->path,
                 line, MAX_RANK);
    const token_text piece = token_copy(alphabet, token_spell_bytes(raw, size, alphabet));
    return token_add_piece(
        r, (token_piece){.text = piece, .id = (int32_t)rank, .score = -(float)rank});
}

static ckvc_status read_lines(token_reader *r, const ckvc_map *file) {
    for (ckvc_lines at = ckvc_lines_of(file->data, (size_t)file->size); ckvc_next_line(&at);) {
        at.n -= at.n > 0 && at.text[at.n - 1] == '\r';
        if (at.n > 0) { CKVC_TRY(read_line(r, at.number, at.text, at.n)); }
    }
    bool alone[256] = {false}; /* every byte must be a piece, or some texts could not be encoded */
    for (size_t i = 0; i < r->spec->n_pieces; i++) {
        const token_text *text = &r->spec->pieces[i].text;
        char raw[2];
        size_t size;
        if (text->size <= 2 && token_unspell_bytes(text->bytes, text->size, raw, &size) &&
            size == 1) {
            alone[(uint8_t)raw[0]] = true;
        }
    }
    for (int byte = 0; byte < 256; byte++) {
        REFUSE_IF(r, !alone[byte], "the byte 0x%02X has no piece of its own", (unsigned)byte);
    }
    return CKVC_OK;
}

ckvc_status tiktoken_read(token_reader *r, const ckvc_map *file) {
    static const char *const known[] = {"<|begin_of_text|>", "<|end_of_text|>",
                                        "<|start_header_id|>", "<|eot_id|>"};
    token_spec *spec = r->spec;
    spec->byte_level = spec->merge_by_score = spec->ignore_merges = true;
    CKVC_TRY(read_lines(r, file));
    REFUSE_IF(r, !r->config->root,
              "a tiktoken rank file names no special tokens; %s with added_tokens_decoder is "
              "needed beside it",
              r->config->path);
    CKVC_TRY(token_config_added(r, r->config));
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        REFUSE_IF(r, token_id_of(spec, known[i]) < 0,
                  "a tiktoken rank file is read as Llama-3's alone, but %s has no \"%s\" in "
                  "added_tokens_decoder; give the directory its tokenizer.json",
                  r->config->path, known[i]);
    }
    token_add_split(spec, token_pattern_llama3);
    /* The template of Llama-3's tokenizer.json: <|begin_of_text|> in front, nothing after the
     * text. */
    token_add_id(&spec->prefix_ids, &spec->n_prefix, token_id_of(spec, known[0]));
    return token_config_bos(r, r->config);
}
