/* SentencePiece models: protobuf, which is read field by field without a library. Sizes are
 * compared with the bytes that remain. Fields that change how a text is cut or normalised, and that
 * we do not follow, are refused by name; all others are skipped. */

#include "formats/tokenizer/tokenizer_readers.h"
#include "lib/base/utf8.h"

typedef struct field {
    uint32_t number, wire;
    uint64_t value;       /* of wire types 0, 1 and 5 */
    const uint8_t *bytes; /* of wire type 2 */
    uint64_t size;
} field;

typedef struct message { /* a message inside the file */
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

/* The fields of TrainerSpec and NormalizerSpec by their numbers, and their kinds as next_field
 * needs them. */
enum { MODEL_TYPE = 3, SUFFIX_SPACE = 24, BYTE_FALLBACK = 35, TRAINER_FIELDS };
enum { NAME = 1, CHARSMAP, DUMMY_PREFIX, SQUEEZE, ESCAPE, NORMALIZER_FIELDS };
static const char trainer_kinds[] = "--0--------------------0----------0",
                  normalizer_kinds[] = "22000";
typedef struct settings {
    field trainer[TRAINER_FIELDS], normalizer[NORMALIZER_FIELDS], denormalizer[NORMALIZER_FIELDS];
    uint64_t bytes_seen; /* number of byte pieces */
} settings;

/* ---- protobuf ---- */

static ckvc_status broken(const message *m, const char *what) {
    return token_refuse_at(m->r, m->at + m->c.pos, "%s: %s; is it a SentencePiece model?", m->name,
                           what);
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

/* Reads the next field that has a kind in wires [n_wires] ('-': not asked for). Fields without a
 * kind are skipped; a field of another kind is an error. *more is false at the end of the
 * message. */
static ckvc_status next_field(message *m, const char *wires, field *f, bool *more) {
    while ((*more = m->c.pos < m->c.size)) {
        uint64_t key;
        *f = (field){0};
        if (!varint(&m->c, &key)) { return broken(m, "a field without its number"); }
        f->wire = key & 7;
        f->number = (uint32_t)(key >> 3);
        if (key >> 3 == 0 || key >> 3 > 536870911) {
            return broken(m, "a field number that cannot be");
        }
        switch (f->wire) {
        case 0:
            if (!varint(&m->c, &f->value)) { return broken(m, "a number that does not end"); }
            break;
        case 1:
            f->value = ckvc_cursor_u64(&m->c);
            if (m->c.failed) { return broken(m, "8 bytes are not there"); }
            break;
        case 2:
            if (!varint(&m->c, &f->size)) { return broken(m, "a size that does not end"); }
            f->bytes = ckvc_cursor_take(&m->c, f->size);
            if (!f->bytes) { return broken(m, "a field longer than what is left"); }
            break;
        case 5:
            f->value = ckvc_cursor_u32(&m->c);
            if (m->c.failed) { return broken(m, "4 bytes are not there"); }
            break;
        default: return broken(m, "a group or an unknown kind of field");
        }
        if (f->number > strlen(wires) || wires[f->number - 1] == '-') { continue; }
        return f->wire + '0' == (uint32_t)wires[f->number - 1]
                   ? CKVC_OK
                   : broken(m, "a field of another kind than its number has");
    }
    return CKVC_OK;
}

static message message_in(const message *m, const char *name, const field *f) {
    return (message){
        m->r, name, {f->bytes, f->size, 0, false}, m->at + (uint64_t)(f->bytes - m->c.data)};
}

/* ---- the messages ---- */

/* SentencePiece: piece = 1, score = 2, type = 3 */
static ckvc_status read_piece(message m, settings *s) {
    token_reader *r = m.r;
    token_spec *spec = r->spec;
    const size_t id = spec->n_pieces;
    field f, text = {0};
    bool more;
    uint64_t type = PIECE_NORMAL;
    float score = 0;
    for (;;) {
        CKVC_TRY(next_field(&m, "250", &f, &more));
        if (!more) { break; }
        if (f.number == 1) {
            text = f;
        } else if (f.number == 2) {
            uint32_t bits = (uint32_t)f.value;
            memcpy(&score, &bits, sizeof score);
        } else {
            type = f.value;
        }
    }
    REFUSE_IF(r, text.size == 0, "piece %zu is empty", id);
    REFUSE_IF(r, ckvc_utf8_check((const char *)text.bytes, text.size) < text.size,
              "piece %zu is not UTF-8", id);
    REFUSE_IF(r, type == PIECE_UNUSED || type < PIECE_NORMAL || type > PIECE_BYTE,
              "piece %zu is of type %llu%s, which is not supported", id, (unsigned long long)type,
              type == PIECE_UNUSED ? " (UNUSED)" : "");
    const token_piece piece = {.text = token_copy((const char *)text.bytes, text.size),
                               .id = (int32_t)id,
                               .kind = type == PIECE_NORMAL ? TOKEN_PIECE_NORMAL
                                       : type == PIECE_USER ? TOKEN_PIECE_WHOLE
                                                            : TOKEN_PIECE_RESERVED,
                               .score = score};
    CKVC_TRY(token_add_piece(r, piece));
    s->bytes_seen += type == PIECE_BYTE;
    if (type == PIECE_UNKNOWN) {
        REFUSE_IF(r, spec->unk_id >= 0, "pieces %d and %zu are both of type UNKNOWN; want one",
                  spec->unk_id, id);
        spec->unk_id = (int32_t)id;
    }
    if (type == PIECE_UNKNOWN || type == PIECE_CONTROL) {
        /* transformers finds these in the text; SentencePiece itself never does. */
        CKVC_TRY(token_reserve_added(r, "special pieces", 1));
        spec->added[spec->n_added++] =
            (token_added){.text = token_copy((const char *)text.bytes, text.size),
                          .id = (int32_t)id,
                          .special = true};
    }
    return CKVC_OK;
}

/* Keeps the last occurrence of every field, as protobuf does. */
static ckvc_status read_settings(message m, const char *kinds, field *out) {
    for (field f;; out[f.number] = f) {
        bool more;
        CKVC_TRY(next_field(&m, kinds, &f, &more));
        if (!more) { return CKVC_OK; }
    }
}

/* ModelProto: pieces = 1, trainer_spec = 2, normalizer_spec = 3, denormalizer_spec = 5 */
static ckvc_status read_model(token_reader *r, const ckvc_map *file, settings *s) {
    message m = {r, "the model", {file->data, file->size, 0, false}, 0};
    for (field f;;) {
        bool more;
        CKVC_TRY(next_field(&m, "222-2", &f, &more));
        if (!more) { break; }
        if (f.number == 1) {
            CKVC_TRY(read_piece(message_in(&m, "a piece", &f), s));
        } else if (f.number == 2) {
            CKVC_TRY(read_settings(message_in(&m, "the trainer's settings", &f), trainer_kinds,
                                   s->trainer));
        } else {
            CKVC_TRY(read_settings(message_in(&m, "the normalizer's settings", &f),
                                   normalizer_kinds,
                                   f.number == 3 ? s->normalizer : s->denormalizer));
        }
    }
    REFUSE_IF(r, s->denormalizer[CHARSMAP].size,
              "its denormalizer (rewriting on decoding) is not supported");
    return CKVC_OK;
}

static ckvc_status check_settings(const token_reader *r, const settings *s) {
    static const char *const types[] = {"unknown", "UNIGRAM", "BPE", "WORD", "CHAR"};
    const uint64_t type = s->trainer[MODEL_TYPE].value;
    const field *name = &s->normalizer[NAME];
    const bool bytes = s->trainer[BYTE_FALLBACK].value;
    REFUSE_IF(r, type != 2, "SentencePiece model of type %s is not supported; BPE is",
              types[type <= 4 ? type : 0]);
    REFUSE_IF(r, s->normalizer[CHARSMAP].size,
              "normalizer \"%.*s\" with a character map is not supported; identity is",
              (int)(name->size < 32 ? name->size : 32),
              name->bytes ? (const char *)name->bytes : "");
    REFUSE_IF(r, s->trainer[SUFFIX_SPACE].value, "treat_whitespace_as_suffix is not supported");
    REFUSE_IF(r, r->spec->unk_id < 0, "no piece is of type UNKNOWN");
    REFUSE_IF(r, s->bytes_seen != (bytes ? 256 : 0),
              "byte_fallback is %s, but there are %llu pieces of type BYTE",
              bytes ? "true" : "false", (unsigned long long)s->bytes_seen);
    return CKVC_OK;
}

/* Puts BOS in front unless the config says otherwise: this is the default of LlamaTokenizer and
 * InternLM2Tokenizer. */
static ckvc_status set_ends(token_reader *r, const token_config *config) {
    CKVC_FAIL_IF(config->class_name && !token_config_is_llama(config), r->err, CKVC_E_DATA,
                 "%s: tokenizer_class \"%.64s\" with tokenizer.model is not supported; "
                 "LlamaTokenizer and InternLM2Tokenizer are",
                 config->path, config->class_name);
    const char *bos = token_config_token(config, "bos_token");
    const int32_t id = token_id_of(r->spec, bos ? bos : "<s>");
    if (id >= 0) { token_add_id(&r->spec->prefix_ids, &r->spec->n_prefix, id); }
    return token_config_bos(r, config);
}

ckvc_status sentencepiece_read(token_reader *r, const ckvc_map *file) {
    /* the defaults of the .proto file */
    settings s = {
        .trainer[MODEL_TYPE].value = 1,
        .normalizer = {[DUMMY_PREFIX].value = 1, [SQUEEZE].value = 1, [ESCAPE].value = 1}};
    const field *white = s.normalizer;
    bool legacy;
    r->spec->merge_by_score = r->spec->fuse_unk = r->spec->added_over_pieces = true;
    CKVC_TRY(read_model(r, file, &s));
    CKVC_TRY(check_settings(r, &s));
    r->spec->byte_fallback = s.trainer[BYTE_FALLBACK].value;
    /* With `legacy: false` only the text's beginning gets a space in front, and only if none is
     * there (transformers, convert_slow_tokenizer.py, LlamaConverter). */
    CKVC_TRY(token_config_flag(r, r->config, "legacy", true, &legacy));
    token_set_spaces(r->spec, (token_spaces){.squeeze = white[SQUEEZE].value,
                                             .plain = !white[ESCAPE].value,
                                             .prefix = white[DUMMY_PREFIX].value,
                                             .first_only = !legacy});
    CKVC_TRY(token_config_added(r, r->config));
    return set_ends(r, r->config);
}
