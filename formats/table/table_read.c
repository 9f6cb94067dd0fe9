/* Reads a .ckvt file and checks all of it (formats/table/table.md). The policy library's reader
 * goes first: after it, header and directory are well formed, every section lies inside the file at
 * its place, and the numeric sections make sense. This file then checks the SHA-256 sums, the
 * content id, the compressed sections and the evidence, and that META agrees with SHAPE. */
#include <inttypes.h>
#include <zstd.h>

#include "formats/table/table_file.h"
#include "formats/table/table_layout.h"
#include "lib/base/bytes.h"
#include "lib/base/files.h"
#include "lib/base/json.h"

/* All compressed sections of a file together may claim no more bytes than this; the evidence of the
 * largest models takes a few dozen MiB. */
#define UNPACKED_MAX ((uint64_t)1 << 30)
#define JSON_MAX     ((uint64_t)1 << 26)

typedef struct file_section {
    char name[9];
    /* CKVT_SECTION_COUNT: the section is optional, and this version does not know it */
    ckvt_section known;
    uint16_t codec, type, rank;
    uint64_t dims[CKVT_RANK_MAX], offset, stored, raw;
    const uint8_t *sha256;
    uint32_t crc;
} file_section;

static file_section section_at(const uint8_t *file, uint32_t index) {
    const uint8_t *e = file + CKVT_HEADER_BYTES + (size_t)index * CKVT_ENTRY_BYTES;
    file_section s = {.codec = ckvc_get_u16(e + CKVT_ENTRY_CODEC),
                      .type = ckvc_get_u16(e + CKVT_ENTRY_TYPE),
                      .rank = ckvc_get_u16(e + CKVT_ENTRY_RANK),
                      .offset = ckvc_get_u64(e + CKVT_ENTRY_OFFSET),
                      .stored = ckvc_get_u64(e + CKVT_ENTRY_STORED),
                      .sha256 = e + CKVT_ENTRY_SHA256,
                      .crc = ckvc_get_u32(e + CKVT_ENTRY_CRC)};
    memcpy(s.name, e + CKVT_ENTRY_NAME, 8);
    s.raw = ckvt_type_bytes((ckvt_type)s.type);
    for (int d = 0; d < CKVT_RANK_MAX; d++) {
        s.dims[d] = ckvc_get_u64(e + CKVT_ENTRY_DIMS + 8 * d);
        if (d < s.rank) { s.raw *= s.dims[d]; }
    }
    s.known = ckvt_named(s.name);
    return s;
}

typedef struct reader {
    const char *path;
    const uint8_t *file;
    table_file *t;
    ckvt_spec specs[CKVT_SECTION_COUNT];
    bool seen[CKVT_SECTION_COUNT + 1];
    uint64_t unpacked; /* the bytes that compressed sections have claimed so far */
    ckvc_err *err;
} reader;

#define REFUSE_IF(r, condition, ...) CKVC_REFUSE_IF(condition, (r)->err, (r)->path, __VA_ARGS__)
#define REFUSE_AT_IF(r, condition, s, what, ...)                                                   \
    REFUSE_IF(r, condition, "byte %" PRIu64 ": section %s: " what, (s)->offset, (s)->name,         \
              __VA_ARGS__)

/* Checks type, rank and dims of a section that this version knows; a JSON section may have any
 * length. */
static ckvc_status check_shape(const reader *r, const file_section *s) {
    const ckvt_spec *spec = &r->specs[s->known];
    REFUSE_IF(r, s->type != spec->type || s->rank != spec->rank,
              "section %s: type %u, rank %u, want %d, %u", s->name, s->type, s->rank, spec->type,
              spec->rank);
    REFUSE_IF(r, spec->raw_only && s->codec != CKVT_RAW,
              "section %s: codec %u, want 0: this section is always raw", s->name, s->codec);
    REFUSE_IF(r, spec->type == CKVT_BYTES && s->raw > JSON_MAX,
              "section %s: %" PRIu64 " bytes of JSON, at most %" PRIu64 " allowed", s->name, s->raw,
              JSON_MAX);
    for (int d = 0; spec->type != CKVT_BYTES && d < spec->rank; d++) {
        REFUSE_IF(r, s->dims[d] != spec->dims[d],
                  "section %s: dimension %d is %" PRIu64 ", SHAPE and the grids want %" PRIu64,
                  s->name, d, s->dims[d], spec->dims[d]);
    }
    return CKVC_OK;
}

/* Returns the window size of a zstd frame (RFC 8878, section 3.1.1.1), or 0 when these are not the
 * first bytes of a frame. */
static uint64_t frame_window(const uint8_t *p, uint64_t n) {
    if (n < 6 || ckvc_get_u32(p) != 0xFD2FB528u) { return 0; }
    if (p[4] & 0x20) { /* a single segment, whose window is the whole content */
        const unsigned long long content = ZSTD_getFrameContentSize(p, (size_t)n);
        return content == ZSTD_CONTENTSIZE_ERROR || content == ZSTD_CONTENTSIZE_UNKNOWN
                   ? 0
                   : content + !content;
    }
    const uint64_t base = (uint64_t)1 << (10 + (p[5] >> 3));
    return base + base / 8 * (p[5] & 7);
}

/* Checks that a zstd section is one frame of known size, whose window is within the format's limit
 * and whose content is within what a file may claim. */
static ckvc_status check_frame(reader *r, const file_section *s) {
    const uint8_t *packed = r->file + s->offset;
    const uint64_t window = frame_window(packed, s->stored);
    REFUSE_AT_IF(r, !window, s, "%s", "not a zstd frame");
    REFUSE_AT_IF(r, ZSTD_getFrameContentSize(packed, (size_t)s->stored) != s->raw, s,
                 "the zstd frame's content size is not the %" PRIu64 " bytes of its dimensions",
                 s->raw);
    REFUSE_AT_IF(r, window > CKVT_ZSTD_WINDOW_MAX, s,
                 "zstd window of %" PRIu64 " bytes, at most %d allowed", window,
                 CKVT_ZSTD_WINDOW_MAX);
    REFUSE_IF(r, s->raw > UNPACKED_MAX - r->unpacked,
              "section %s: %" PRIu64 " bytes when unpacked, at most %" PRIu64
              " allowed in all sections together",
              s->name, s->raw, UNPACKED_MAX);
    r->unpacked += s->raw;
    const size_t frame = ZSTD_findFrameCompressedSize(packed, (size_t)s->stored);
    REFUSE_AT_IF(r, ZSTD_isError(frame) || frame != s->stored, s,
                 "want exactly one zstd frame of %" PRIu64 " bytes", s->stored);
    return CKVC_OK;
}

/* Gives the section's bytes after decompression, which are the caller's to free. */
static ckvc_status decompress_section(reader *r, const file_section *s, uint8_t **out) {
    const uint8_t *stored = r->file + s->offset;
    if (s->codec != CKVT_ZSTD) {
        *out = ckvc_copy(stored, (size_t)s->raw, 1);
        return CKVC_OK;
    }
    CKVC_TRY(check_frame(r, s));
    CKVC_AUTO_FREE uint8_t *raw = ckvc_alloc((size_t)s->raw, 1);
    const size_t n = ZSTD_decompress(raw, (size_t)s->raw, stored, (size_t)s->stored);
    REFUSE_AT_IF(r, ZSTD_isError(n) || n != s->raw, s, "zstd: %s",
                 ZSTD_isError(n) ? ZSTD_getErrorName(n) : "short");
    *out = ckvc_take(&raw);
    return CKVC_OK;
}

/* Turns little-endian numbers into those of the host, in place. */
static void decode_section(const file_section *s, uint8_t *raw) {
    const size_t width = ckvt_type_bytes((ckvt_type)s->type);
    for (size_t i = 0; i < (size_t)s->raw; i += width) {
        if (width == 4) {
            const uint32_t v = ckvc_get_u32(raw + i);
            memcpy(raw + i, &v, 4);
        } else {
            const uint64_t v = ckvc_get_u64(raw + i);
            memcpy(raw + i, &v, 8);
        }
    }
}

/* Puts an optional or a JSON section where it belongs; the required numbers are there already. */
static ckvc_status store(reader *r, const file_section *s, uint8_t **raw) {
    json_t **json = ckvt_json(r->t, s->known);
    if (!json) {
        decode_section(s, *raw);
        *ckvt_slot(r->t, s->known) = ckvc_take(raw);
        return CKVC_OK;
    }
    CKVC_AUTO_FREE char *where = ckvc_format("%s: section %s", r->path, s->name);
    CKVC_TRY(ckvc_json_parse((const char *)*raw, (size_t)s->raw, where, json, r->err));
    REFUSE_IF(r, !json_is_object(*json), "section %s: not a JSON object", s->name);
    return CKVC_OK;
}

static ckvc_status read_section(reader *r, const file_section *s) {
    const bool known = s->known != CKVT_SECTION_COUNT;
    if (known) { CKVC_TRY(check_shape(r, s)); }
    const uint32_t crc = ckvc_crc32(0, r->file + s->offset, (size_t)s->stored);
    REFUSE_AT_IF(r, crc != s->crc, s,
                 "CRC-32 of its bytes is %08x, the directory says %08x: the file is damaged", crc,
                 s->crc);
    /* an unknown section is not unpacked */
    if (!known && s->codec == CKVT_ZSTD) { return check_frame(r, s); }
    CKVC_AUTO_FREE uint8_t *raw = NULL;
    uint8_t digest[CKVC_SHA256_BYTES];
    CKVC_TRY(decompress_section(r, s, &raw));
    ckvc_sha256_bytes(raw, (size_t)s->raw, digest);
    REFUSE_AT_IF(r, memcmp(digest, s->sha256, sizeof digest) != 0, s, "%s",
                 "its SHA-256 is not the directory's");
    const bool wanted = known && ((int)s->known >= CKVT_EVIDENCE_BEGIN || s->known == CKVT_META);
    return wanted ? store(r, s, &raw) : CKVC_OK;
}

/* Checks META against the rest of the file. */
static ckvc_status check_meta(const reader *r) {
    const json_t *meta = r->t->meta;
    const char *schema = json_string_value(json_object_get(meta, "schema"));
    REFUSE_IF(r, !schema || strcmp(schema, CKVT_SCHEMA) != 0, "section META: schema is %s, want %s",
              schema ? schema : "missing", CKVT_SCHEMA);
    const char *probe = json_string_value(json_object_get(meta, "probe"));
    REFUSE_IF(r, ckvt_probe_operator(probe) != r->t->table->op,
              "section META: probe is %s, but the header's flags say the operator %s",
              probe ? probe : "missing", ckvc_operator_name(r->t->table->op));
    REFUSE_IF(r, !ckvt_rule_agrees(r->t),
              "section META: alpha_kind or keep_window is not what SHAPE says (%s, %u); a table "
              "from before SHAPE held them: fit it again from its runs",
              r->t->table->visible ? "visible" : "paper", r->t->table->keep_window);
    json_auto_t *want = ckvt_shape_json(r->t->table);
    const json_t *got = json_object_get(meta, "shape");
    const char *key;
    json_t *value;
    json_object_foreach(want, key, value) {
        REFUSE_IF(r, !json_equal(value, json_object_get(got, key)),
                  "section META: shape.%s is not the %lld of SHAPE", key,
                  (long long)json_integer_value(value));
    }
    REFUSE_IF(r, json_object_size(got) != json_object_size(want),
              "section META: shape has %zu keys, want %zu", json_object_size(got),
              json_object_size(want));
    return CKVC_OK;
}

static ckvc_status check_whole(reader *r) {
    REFUSE_IF(r, !r->seen[CKVT_META], "section META is missing");
    int n_evidence = 0, missing = -1;
    for (int i = CKVT_EVIDENCE_BEGIN; i < CKVT_EVIDENCE_END; i++) {
        n_evidence += r->seen[i];
        if (!r->seen[i]) { missing = i; }
    }
    REFUSE_IF(r, n_evidence && missing >= 0,
              "section %s is missing: the evidence comes all together or not at all",
              ckvt_name((ckvt_section)missing));
    r->t->has_evidence = n_evidence > 0;
    ckvc_err breach = {0};
    REFUSE_IF(r, ckvt_check_evidence(r->t, &breach) != CKVC_OK, "section %s", breach.text);
    return check_meta(r);
}

static ckvc_status parse_table(const char *path, const uint8_t *bytes, size_t size,
                               table_file **out, ckvc_err *err) {
    CKVC_AUTO(table_file_free_at) table_file *t = ckvc_calloc(1, sizeof *t);
    char message[512];
    *out = NULL;
    reader r = {.path = path, .file = bytes, .t = t, .err = err};
    /* the message that it gives begins with the path already */
    CKVC_FAIL_IF(ckvc_table_parse(path, r.file, size, &t->table, message, sizeof message), err,
                 CKVC_E_DATA, "%s", message);
    REFUSE_IF(&r, !ckvt_specs(t->table, r.specs), "section SHAPE: its evidence would overflow");
    const uint32_t n_sections = ckvc_get_u32(r.file + CKVT_AT_N_SECTIONS);
    for (uint32_t i = 0; i < n_sections; i++) {
        const file_section s = section_at(r.file, i);
        r.seen[s.known] = true;
        CKVC_TRY(read_section(&r, &s));
    }
    CKVC_TRY(check_whole(&r));
    uint8_t digest[CKVC_SHA256_BYTES];
    ckvt_content_id(r.file + CKVT_HEADER_BYTES, n_sections, digest);
    ckvc_hex(digest, sizeof digest, t->content_id);
    REFUSE_IF(&r, memcmp(digest, r.file + CKVT_AT_CONTENT_ID, sizeof digest) != 0,
              "byte %d: the content id is not that of its sections (%s)", CKVT_AT_CONTENT_ID,
              t->content_id);
    *out = ckvc_take(&t);
    return CKVC_OK;
}

ckvc_status table_file_read(const char *path, table_file **out, ckvc_err *err) {
    CKVC_AUTO_FREE char *bytes = NULL;
    size_t size = 0;
    *out = NULL;
    CKVC_TRY(ckvc_file_read(path, CKVC_TABLE_MAX_BYTES, &bytes, &size, err));
    return parse_table(path, (const uint8_t *)bytes, size, out, err);
}
