/* SentencePiece models: protobuf, read field by field without a library. Sizes are held against the
 * bytes that remain; fields that say how a text is cut or normalised and that we do not follow are
 * refused by name, all others are skipped. */
#include "formats/tokenizer/sentencepiece.h"

#include <stdlib.h>
#include <string.h>

#include "formats/tokenizer/tokenizer_parts.h"
#include "lib/base/bytes.h"
#include "lib/base/files.h"
#include "lib/base/memory.h"
#include "lib/base/utf8.h"

#define SPACE_MARK "\xE2\x96\x81" /* U+2581, which stands for a space */

typedef struct field {
    uint32_t number, wire;
    uint64_t value;       /* wire 0, 1 and 5 */
    const uint8_t *bytes; /* wire 2 */
    uint64_t size;
} field;

typedef struct message { /* a message within the file */
    token_reader *r;
    const char *name;
    ckvc_cursor c;
    uint64_t at; /* where the message begins in the file */
} message;

typedef enum piece_type {
    PIECE_NORMAL = 1,
    PIECE_UNKNOWN,
    PIECE_CONTROL,
    PIECE_USER,
    PIECE_UNUSED,
    PIECE_BYTE
} piece_type;

typedef struct settings { /* of TrainerSpec and NormalizerSpec, with the defaults of the .proto */
    uint64_t model_type;
    bool byte_fallback, suffix_space;
    bool dummy_prefix, squeeze, escape;
    bool charsmap;
    char charsmap_name[33];
    uint64_t bytes_seen; /* byte pieces */
} settings;

static ckvc_status broken(const message *m, const char *what) {
    return ckvc_fail(m->r->err, CKVC_E_DATA, "%s: byte %llu: %s: %s; is it a SentencePiece model?",
                     m->r->path, (unsigned long long)(m->at + m->c.pos), m->name, what);
}

static bool varint(ckvc_cursor *c, uint64_t *out) {
    *out = 0;
    for (unsigned shift = 0; shift < 70; shift += 7) {
        uint8_t byte = ckvc_cursor_u8(c);
        if (c->failed || (shift == 63 && byte > 1)) { return false; }
        *out |= (uint64_t)(byte & 0x7F) << shift;
        if (byte < 0x80) { return true; }
    }
    return false;
}

/* The next field; *more is false at the end of the message. */
static ckvc_status next_field(message *m, field *f, bool *more) {
    *f = (field){0};
    *more = m->c.pos < m->c.size;
    if (!*more) { return CKVC_OK; }
    uint64_t key;
    if (!varint(&m->c, &key)) { return broken(m, "a field without its number"); }
    f->wire = key & 7;
    f->number = (uint32_t)(key >> 3);
    if (key >> 3 == 0 || key >> 3 > 536870911) {
        return broken(m, "a field number that cannot be");
    }
    switch (f->wire) {
    case 0:
        return varint(&m->c, &f->value) ? CKVC_OK : broken(m, "a number that does not end");
    case 1:
        f->value = ckvc_cursor_u64(&m->c);
        return m->c.failed ? broken(m, "8 bytes are not there") : CKVC_OK;
    case 2:
        if (!varint(&m->c, &f->size)) { return broken(m, "a size that does not end"); }
        f->bytes = ckvc_cursor_take(&m->c, f->size);
        return f->bytes ? CKVC_OK : broken(m, "a field longer than what is left");
    case 5:
        f->value = ckvc_cursor_u32(&m->c);
        return m->c.failed ? broken(m, "4 bytes are not there") : CKVC_OK;
    default:
        return broken(m, "a group or an unknown kind of field");
    }
}

static ckvc_status want_wire(const message *m, const field *f, uint32_t wire) {
    return f->wire == wire ? CKVC_OK : broken(m, "a field of another kind than its number has");
}

static message inner(const message *m, const char *name, const field *f) {
    return (message){
        m->r, name, {f->bytes, f->size, 0, false}, m->at + (uint64_t)(f->bytes - m->c.data)};
}

/* SentencePiece: piece = 1, score = 2, type = 3 */
static ckvc_status read_piece(message m, size_t *capacity, settings *s) {
    token_reader *r = m.r;
    token_spec *spec = r->spec;
    if (spec->n_pieces == TOKENIZER_MAX_PIECES) {
        return ckvc_fail(r->err, CKVC_E_DATA, "%s: more than %d pieces", r->path,
                         TOKENIZER_MAX_PIECES);
    }
    void *pieces = spec->pieces;
    ckvc_status status =
        ckvc_grow(&pieces, capacity, spec->n_pieces + 1, sizeof *spec->pieces, r->err);
    spec->pieces = pieces;
    if (status != CKVC_OK) { return status; }
    const size_t id = spec->n_pieces;
    field f, text = {0};
    bool more;
    uint64_t type = PIECE_NORMAL;
    float score = 0;
    while ((status = next_field(&m, &f, &more)) == CKVC_OK && more) {
        if (f.number > 3) { continue; }
        static const uint32_t wires[] = {0, 2, 5, 0};
        if ((status = want_wire(&m, &f, wires[f.number])) != CKVC_OK) { return status; }
        if (f.number == 1) {
            text = f;
        } else if (f.number == 2) {
            uint32_t bits = (uint32_t)f.value;
            memcpy(&score, &bits, sizeof score);
        } else {
            type = f.value;
        }
    }
    if (status != CKVC_OK) { return status; }
    if (text.size == 0) {
        return ckvc_fail(r->err, CKVC_E_DATA, "%s: piece %zu is empty", r->path, id);
    }
    if (ckvc_utf8_check((const char *)text.bytes, text.size) < text.size) {
        return ckvc_fail(r->err, CKVC_E_DATA, "%s: piece %zu is not UTF-8", r->path, id);
    }
    if (type == PIECE_UNUSED || type < PIECE_NORMAL || type > PIECE_BYTE) {
        return ckvc_fail(r->err, CKVC_E_DATA,
                         "%s: piece %zu is of type %llu%s, which is not supported", r->path, id,
                         (unsigned long long)type, type == PIECE_UNUSED ? " (UNUSED)" : "");
    }
    token_piece *piece = &spec->pieces[id];
    *piece = (token_piece){{0},
                           (int32_t)id,
                           type == PIECE_NORMAL ? TOKEN_PIECE_NORMAL
                           : type == PIECE_USER ? TOKEN_PIECE_WHOLE
                                                : TOKEN_PIECE_RESERVED,
                           score};
    if ((status = token_take_bytes(r, (const char *)text.bytes, text.size, &piece->text)) !=
        CKVC_OK) {
        return status;
    }
    spec->n_pieces++;
    s->bytes_seen += type == PIECE_BYTE;
    if (type == PIECE_UNKNOWN) {
        if (spec->unk_id >= 0) {
            return ckvc_fail(r->err, CKVC_E_DATA,
                             "%s: pieces %d and %zu are both of type UNKNOWN; want one", r->path,
                             spec->unk_id, id);
        }
        spec->unk_id = (int32_t)id;
    }
    if (type != PIECE_UNKNOWN && type != PIECE_CONTROL) { return CKVC_OK; }
    /* transformers finds these in the text; SentencePiece itself never does. */
    status = token_reserve_added(r, "special pieces", 1);
    if (status == CKVC_OK) {
        token_added *added = &spec->added[spec->n_added];
        *added = (token_added){.id = (int32_t)id, .special = true};
        status = token_take_bytes(r, (const char *)text.bytes, text.size, &added->text);
        spec->n_added += status == CKVC_OK;
    }
    return status;
}

/* TrainerSpec: model_type = 3, treat_whitespace_as_suffix = 24, byte_fallback = 35 */
static ckvc_status read_trainer(message m, settings *s) {
    field f;
    bool more;
    ckvc_status status;
    while ((status = next_field(&m, &f, &more)) == CKVC_OK && more) {
        if (f.number != 3 && f.number != 24 && f.number != 35) { continue; }
        if ((status = want_wire(&m, &f, 0)) != CKVC_OK) { return status; }
        if (f.number == 3) {
            s->model_type = f.value;
        } else {
            *(f.number == 24 ? &s->suffix_space : &s->byte_fallback) = f.value != 0;
        }
    }
    return status;
}

/* NormalizerSpec: name = 1, precompiled_charsmap = 2, add_dummy_prefix = 3,
 * remove_extra_whitespaces = 4, escape_whitespaces = 5 */
static ckvc_status read_normalizer(message m, settings *s) {
    field f;
    bool more;
    ckvc_status status;
    while ((status = next_field(&m, &f, &more)) == CKVC_OK && more) {
        if (f.number > 5) { continue; }
        if ((status = want_wire(&m, &f, f.number <= 2 ? 2 : 0)) != CKVC_OK) { return status; }
        if (f.number == 1) {
            size_t n = f.size < sizeof s->charsmap_name ? f.size : sizeof s->charsmap_name - 1;
            memcpy(s->charsmap_name, f.bytes, n);
            s->charsmap_name[n] = '\0';
        } else if (f.number == 2) {
            s->charsmap = f.size > 0;
        } else {
            *(f.number == 3   ? &s->dummy_prefix
              : f.number == 4 ? &s->squeeze
                              : &s->escape) = f.value != 0;
        }
    }
    return status;
}

/* ModelProto: pieces = 1, trainer_spec = 2, normalizer_spec = 3, denormalizer_spec = 5 */
static ckvc_status read_model(token_reader *r, const uint8_t *data, uint64_t size, settings *s) {
    message m = {r, "the model", {data, size, 0, false}, 0};
    field f;
    bool more;
    ckvc_status status;
    size_t capacity = 0;
    settings denormalizer = {0};
    while ((status = next_field(&m, &f, &more)) == CKVC_OK && more) {
        if (f.number != 1 && f.number != 2 && f.number != 3 && f.number != 5) { continue; }
        if ((status = want_wire(&m, &f, 2)) != CKVC_OK) { return status; }
        if (f.number == 1) {
            status = read_piece(inner(&m, "a piece", &f), &capacity, s);
        } else if (f.number == 2) {
            status = read_trainer(inner(&m, "the trainer's settings", &f), s);
        } else {
            status = read_normalizer(inner(&m, "the normalizer's settings", &f),
                                     f.number == 3 ? s : &denormalizer);
        }
        if (status != CKVC_OK) { return status; }
    }
    if (status == CKVC_OK && denormalizer.charsmap) {
        status =
            ckvc_fail(r->err, CKVC_E_DATA,
                      "%s: its denormalizer (rewriting on decoding) is not supported", r->path);
    }
    return status;
}

static ckvc_status check_settings(const token_reader *r, const settings *s) {
    static const char *const types[] = {"unknown", "UNIGRAM", "BPE", "WORD", "CHAR"};
    if (s->model_type != 2) {
        return ckvc_fail(r->err, CKVC_E_DATA,
                         "%s: SentencePiece model of type %s is not supported; BPE is", r->path,
                         types[s->model_type <= 4 ? s->model_type : 0]);
    }
    if (s->charsmap) {
        return ckvc_fail(r->err, CKVC_E_DATA,
                         "%s: normalizer \"%s\" with a character map is not supported; identity is",
                         r->path, s->charsmap_name);
    }
    if (s->suffix_space) {
        return ckvc_fail(r->err, CKVC_E_DATA, "%s: treat_whitespace_as_suffix is not supported",
                         r->path);
    }
    if (r->spec->unk_id < 0) {
        return ckvc_fail(r->err, CKVC_E_DATA, "%s: no piece is of type UNKNOWN", r->path);
    }
    if (s->bytes_seen != (s->byte_fallback ? 256 : 0)) {
        return ckvc_fail(r->err, CKVC_E_DATA,
                         "%s: byte_fallback is %s, but there are %llu pieces of type BYTE", r->path,
                         s->byte_fallback ? "true" : "false", (unsigned long long)s->bytes_seen);
    }
    return CKVC_OK;
}

/* White space as the model says; `legacy: false` in tokenizer_config.json means that only the
 * text's beginning is prefixed, and not over a space (transformers, convert_slow_tokenizer.py,
 * LlamaConverter). */
static ckvc_status set_spaces(token_reader *r, const settings *s, bool legacy) {
    token_spec *spec = r->spec;
    const char *mark = s->escape ? SPACE_MARK : " ";
    ckvc_status status =
        s->squeeze ? token_add_normalizer(r, TOKEN_NORM_SQUEEZE, NULL, NULL) : CKVC_OK;
    if (status == CKVC_OK && s->dummy_prefix && !legacy && s->escape) {
        spec->metaspace_prefix = TOKEN_PREFIX_FIRST;
        status = token_take_bytes(r, mark, strlen(mark), &spec->metaspace);
    } else if (status == CKVC_OK) {
        status =
            s->dummy_prefix ? token_add_normalizer(r, TOKEN_NORM_PREPEND, NULL, mark) : CKVC_OK;
        if (status == CKVC_OK && s->escape) {
            status = token_add_normalizer(r, TOKEN_NORM_REPLACE, " ", SPACE_MARK);
        }
    }
    if (status == CKVC_OK) {
        status = token_take_bytes(r, SPACE_MARK, strlen(SPACE_MARK), &spec->decode_from);
    }
    if (status == CKVC_OK) { status = token_take_bytes(r, " ", 1, &spec->decode_to); }
    spec->decode_strip_left = s->dummy_prefix;
    return status;
}

/* BOS unless the config says otherwise: the default of LlamaTokenizer and InternLM2Tokenizer. */
static ckvc_status set_ends(token_reader *r, const token_config *config) {
    static const char *const classes[] = {"LlamaTokenizer", "LlamaTokenizerFast",
                                          "InternLM2Tokenizer", "InternLM2TokenizerFast"};
    bool known = !config->class_name;
    for (size_t i = 0; !known && i < sizeof classes / sizeof *classes; i++) {
        known = strcmp(classes[i], config->class_name) == 0;
    }
    if (!known) {
        return ckvc_fail(r->err, CKVC_E_DATA,
                         "%s: tokenizer_class \"%.64s\" with tokenizer.model is not supported; "
                         "LlamaTokenizer and InternLM2Tokenizer are",
                         config->path, config->class_name);
    }
    const char *bos = token_config_token(config, "bos_token");
    int32_t id = token_id_of(r->spec, bos ? bos : "<s>");
    if (id >= 0 && !token_given(config->root, "add_bos_token")) {
        return token_push_id(r, &r->spec->prefix_ids, &r->spec->n_prefix, id);
    }
    return CKVC_OK;
}

ckvc_status sentencepiece_read(const char *model_dir, token_spec **out, ckvc_err *err) {
    *out = NULL;
    char *path = ckvc_path_join(model_dir, "tokenizer.model");
    token_reader r = {path, ckvc_calloc(1, sizeof(token_spec)), err};
    token_config config = {0};
    ckvc_map map = {0};
    settings s = {.model_type = 1, .dummy_prefix = true, .squeeze = true, .escape = true};
    bool legacy = true;
    ckvc_status status = path && r.spec ? ckvc_map_open(path, &map, err)
                                        : ckvc_fail_memory(err, "tokenizer", sizeof(token_spec));
    if (status == CKVC_OK && map.size > TOKENIZER_MAX_BYTES) {
        status = ckvc_fail(err, CKVC_E_DATA, "%s: %llu bytes; at most %d are read", path,
                           (unsigned long long)map.size, TOKENIZER_MAX_BYTES);
    }
    if (status == CKVC_OK) {
        r.spec->unk_id = -1;
        r.spec->merge_by_score = r.spec->fuse_unk = r.spec->added_over_pieces = true;
        status = read_model(&r, map.data, map.size, &s);
    }
    if (status == CKVC_OK) {
        r.spec->byte_fallback = s.byte_fallback;
        status = check_settings(&r, &s);
    }
    if (status == CKVC_OK) { status = token_config_read(model_dir, &config, err); }
    if (status == CKVC_OK) {
        token_reader at = {config.path, r.spec, err};
        status = token_take_flag(&at, "tokenizer_config", config.root, "legacy", true, &legacy);
    }
    if (status == CKVC_OK) { status = set_spaces(&r, &s, legacy); }
    if (status == CKVC_OK) { status = token_config_added(&r, model_dir, &config); }
    if (status == CKVC_OK) { status = set_ends(&r, &config); }
    if (status == CKVC_OK) { status = token_config_ends(&r, &config); }
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
