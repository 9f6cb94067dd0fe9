/* Reads a .ckvt file and checks all of it (formats/table/table.md). The policy library's reader
 * goes first: after it, header and directory are well formed, every section lies inside the file at
 * its place, and the numeric sections make sense. What is left: the SHA-256 sums, the content id,
 * compressed sections, the evidence, and META's agreement with SHAPE. */
#include "formats/table/table_file.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <zstd.h>

#include "formats/table/table_layout.h"
#include "lib/base/bytes.h"
#include "lib/base/files.h"
#include "lib/base/json.h"
#include "lib/base/memory.h"

/* No compressed section may claim more; the evidence of the largest models takes a few dozen MiB.
 */
enum { UNPACKED_MAX = 1 << 30 };

typedef struct file_section {
    char name[9];
    ckvt_section known; /* CKVT_SECTION_COUNT: optional and unknown to us */
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
    s.known = 0;
    while (s.known < CKVT_SECTION_COUNT && strcmp(s.name, ckvt_name(s.known))) {
        s.known++;
    }
    return s;
}

/* Type, rank and dims of a section that we know; a JSON section's length is its own. */
static ckvc_status check_shape(const char *path, const file_section *s, const ckvt_spec *spec,
                               ckvc_err *err) {
    if (s->type != spec->type || s->rank != spec->rank) {
        return ckvc_fail(err, CKVC_E_DATA, "%s: section %s: type %u, rank %u, want %d, %u", path,
                         s->name, s->type, s->rank, spec->type, spec->rank);
    }
    if (spec->raw_only && s->codec != CKVT_RAW) {
        return ckvc_fail(err, CKVC_E_DATA,
                         "%s: section %s: codec %u, want 0: this section is always raw", path,
                         s->name, s->codec);
    }
    for (int d = 0; spec->type != CKVT_BYTES && d < spec->rank; d++) {
        if (s->dims[d] != spec->dims[d]) {
            return ckvc_fail(err, CKVC_E_DATA,
                             "%s: section %s: dimension %d is %" PRIu64
                             ", SHAPE and the grids want %" PRIu64,
                             path, s->name, d, s->dims[d], spec->dims[d]);
        }
    }
    return CKVC_OK;
}

/* Window size of a zstd frame (RFC 8878, section 3.1.1.1); 0 when these are not the first bytes of
 * one. */
static uint64_t frame_window(const uint8_t *p, uint64_t n) {
    if (n < 6 || ckvc_get_u32(p) != 0xFD2FB528u) { return 0; }
    if (p[4] & 0x20) { /* single segment: the window is the content */
        unsigned long long content = ZSTD_getFrameContentSize(p, (size_t)n);
        return content == ZSTD_CONTENTSIZE_ERROR || content == ZSTD_CONTENTSIZE_UNKNOWN
                   ? 0
                   : content + !content;
    }
    uint64_t base = (uint64_t)1 << (10 + (p[5] >> 3));
    return base + base / 8 * (p[5] & 7);
}

/* Unpacks a zstd section: one frame, of known size, within the window limit. *out is the caller's.
 */
static ckvc_status unpack(const char *path, const uint8_t *file, const file_section *s,
                          uint8_t **out, ckvc_err *err) {
    const uint8_t *packed = file + s->offset;
    uint64_t window = frame_window(packed, s->stored);
    if (!window) {
        return ckvc_fail(err, CKVC_E_DATA, "%s: byte %" PRIu64 ": section %s: not a zstd frame",
                         path, s->offset, s->name);
    }
    unsigned long long content = ZSTD_getFrameContentSize(packed, (size_t)s->stored);
    if (content != s->raw) {
        return ckvc_fail(err, CKVC_E_DATA,
                         "%s: byte %" PRIu64
                         ": section %s: the zstd frame's content size is not the %" PRIu64
                         " bytes of its dimensions",
                         path, s->offset, s->name, s->raw);
    }
    if (window > CKVT_ZSTD_WINDOW_MAX) {
        return ckvc_fail(err, CKVC_E_DATA,
                         "%s: byte %" PRIu64 ": section %s: zstd window of %" PRIu64
                         " bytes, at most %d allowed",
                         path, s->offset, s->name, window, CKVT_ZSTD_WINDOW_MAX);
    }
    if (s->raw > UNPACKED_MAX) {
        return ckvc_fail(err, CKVC_E_DATA,
                         "%s: section %s: %" PRIu64 " bytes when unpacked, at most %d allowed",
                         path, s->name, s->raw, UNPACKED_MAX);
    }
    size_t frame = ZSTD_findFrameCompressedSize(packed, (size_t)s->stored);
    if (ZSTD_isError(frame) || frame != s->stored) {
        return ckvc_fail(err, CKVC_E_DATA,
                         "%s: byte %" PRIu64 ": section %s: want exactly one zstd frame of %" PRIu64
                         " bytes",
                         path, s->offset, s->name, s->stored);
    }
    uint8_t *raw = ckvc_alloc((size_t)s->raw, 1);
    size_t n = ZSTD_decompress(raw, (size_t)s->raw, packed, (size_t)s->stored);
    if (ZSTD_isError(n) || n != s->raw) {
        free(raw);
        return ckvc_fail(err, CKVC_E_DATA, "%s: byte %" PRIu64 ": section %s: zstd: %s", path,
                         s->offset, s->name, ZSTD_isError(n) ? ZSTD_getErrorName(n) : "short");
    }
    *out = raw;
    return CKVC_OK;
}

/* Little-endian numbers -> a new array of the host. */
static void *decode(const file_section *s, const uint8_t *raw) {
    size_t width = ckvt_type_bytes((ckvt_type)s->type), n = (size_t)s->raw / width;
    uint8_t *values = ckvc_alloc(n, width);
    for (size_t i = 0; values && i < n; i++) {
        if (width == 4) {
            uint32_t v = ckvc_get_u32(raw + 4 * i);
            memcpy(values + 4 * i, &v, 4);
        } else {
            uint64_t v = ckvc_get_u64(raw + 8 * i);
            memcpy(values + 8 * i, &v, 8);
        }
    }
    return values;
}

static ckvc_status store_json(const char *path, const file_section *s, const uint8_t *raw,
                              json_t **out, ckvc_err *err) {
    char where[512];
    snprintf(where, sizeof where, "%s: section %s", path, s->name);
    ckvc_status status = ckvc_json_parse((const char *)raw, (size_t)s->raw, where, out, err);
    if (!status && !json_is_object(*out)) {
        status = ckvc_fail(err, CKVC_E_DATA, "%s: not a JSON object", where);
    }
    return status;
}

/* Puts an optional or JSON section where it belongs in t; the required numbers are there already.
 */
static ckvc_status store(table_file *t, const char *path, const file_section *s, const uint8_t *raw,
                         ckvc_err *err) {
    switch (s->known) {
    case CKVT_META:
        json_decref(t->meta);
        t->meta = NULL;
        return store_json(path, s, raw, &t->meta, err);
    case CKVT_PROV:
        return store_json(path, s, raw, &t->prov, err);
    case CKVT_XFER:
        return store_json(path, s, raw, &t->xfer, err);
    default:
        if ((int)s->known < CKVT_REQUIRED || s->known == CKVT_SECTION_COUNT) { return CKVC_OK; }
    }
    *ckvt_slot(t, s->known) = decode(s, raw);
    return CKVC_OK;
}

static ckvc_status read_section(table_file *t, const char *path, const uint8_t *file,
                                const file_section *s, const ckvt_spec *specs, ckvc_err *err) {
    ckvc_status status;
    if (s->known != CKVT_SECTION_COUNT && (status = check_shape(path, s, &specs[s->known], err))) {
        return status;
    }
    uint32_t crc = ckvc_crc32(0, file + s->offset, (size_t)s->stored);
    if (crc != s->crc) {
        return ckvc_fail(err, CKVC_E_DATA,
                         "%s: byte %" PRIu64 ": section %s: CRC-32 of its bytes is %08x, the "
                         "directory says %08x: the file is damaged",
                         path, s->offset, s->name, crc, s->crc);
    }
    uint8_t *unpacked = NULL;
    if (s->codec == CKVT_ZSTD && (status = unpack(path, file, s, &unpacked, err))) {
        return status;
    }
    const uint8_t *raw = unpacked ? unpacked : file + s->offset;
    uint8_t digest[CKVC_SHA256_BYTES];
    ckvc_sha256_bytes(raw, (size_t)s->raw, digest);
    if (memcmp(digest, s->sha256, sizeof digest)) {
        status = ckvc_fail(err, CKVC_E_DATA,
                           "%s: byte %" PRIu64 ": section %s: its SHA-256 is not the directory's",
                           path, s->offset, s->name);
    } else {
        status = store(t, path, s, raw, err);
    }
    free(unpacked);
    return status;
}

static ckvc_status check_whole(table_file *t, const char *path, const bool *seen, ckvc_err *err) {
    if (!seen[CKVT_META]) {
        return ckvc_fail(err, CKVC_E_DATA, "%s: section META is missing", path);
    }
    int n_evidence = 0, missing = -1;
    for (int i = CKVT_EVIDENCE_BEGIN; i < CKVT_EVIDENCE_END; i++) {
        n_evidence += seen[i];
        if (!seen[i]) { missing = i; }
    }
    if (n_evidence && missing >= 0) {
        return ckvc_fail(err, CKVC_E_DATA,
                         "%s: section %s is missing: the evidence comes all together or not at all",
                         path, ckvt_name((ckvt_section)missing));
    }
    t->has_evidence = n_evidence > 0;
    char breach[256];
    if (ckvt_check_evidence(t, breach, sizeof breach)) {
        return ckvc_fail(err, CKVC_E_DATA, "%s: section %s", path, breach);
    }

    const char *schema = json_string_value(json_object_get(t->meta, "schema"));
    if (!schema || strcmp(schema, CKVT_SCHEMA)) {
        return ckvc_fail(err, CKVC_E_DATA, "%s: section META: schema is %s, want %s", path,
                         schema ? schema : "missing", CKVT_SCHEMA);
    }
    const char *probe = json_string_value(json_object_get(t->meta, "probe"));
    if (ckvt_probe_operator(probe) != t->table->op) {
        return ckvc_fail(
            err, CKVC_E_DATA,
            "%s: section META: probe is %s, but the header's flags say the operator %s", path,
            probe ? probe : "missing", ckvc_operator_name(t->table->op));
    }
    json_t *want = ckvt_shape_json(t->table);
    const json_t *got = json_object_get(t->meta, "shape");
    ckvc_status status = want ? CKVC_OK : ckvc_fail_memory(err, "a table's shape", 0);
    const char *key;
    json_t *value;
    json_object_foreach(want, key, value) {
        if (!status && !json_equal(value, json_object_get(got, key))) {
            status =
                ckvc_fail(err, CKVC_E_DATA, "%s: section META: shape.%s is not the %lld of SHAPE",
                          path, key, (long long)json_integer_value(value));
        }
    }
    if (!status && json_object_size(got) != json_object_size(want)) {
        status = ckvc_fail(err, CKVC_E_DATA, "%s: section META: shape has %zu keys, want %zu", path,
                           json_object_size(got), json_object_size(want));
    }
    json_decref(want);
    return status;
}

ckvc_status table_file_read(const char *path, table_file **out, ckvc_err *err) {
    char *bytes = NULL, message[512];
    size_t size = 0;
    table_file *t = NULL;
    bool seen[CKVT_SECTION_COUNT + 1] = {false};
    ckvt_spec specs[CKVT_SECTION_COUNT];
    *out = NULL;
    ckvc_status status = ckvc_file_read(path, CKVC_TABLE_MAX_BYTES, &bytes, &size, err);
    if (status) { return status; }
    const uint8_t *file = (const uint8_t *)bytes;
    t = ckvc_calloc(1, sizeof *t);
    if (ckvc_table_parse_any(path, file, size, &t->table, message, sizeof message)) {
        status = ckvc_fail(err, CKVC_E_DATA, "%s", message);
        goto done;
    }
    if (!ckvt_specs(t->table, specs)) {
        status =
            ckvc_fail(err, CKVC_E_DATA, "%s: section SHAPE: its evidence would overflow", path);
        goto done;
    }
    uint32_t n_sections = ckvc_get_u32(file + CKVT_AT_N_SECTIONS);
    for (uint32_t i = 0; i < n_sections && !status; i++) {
        file_section s = section_at(file, i);
        seen[s.known] = true;
        status = read_section(t, path, file, &s, specs, err);
    }
    if (!status) { status = check_whole(t, path, seen, err); }
    if (status) { goto done; }
    uint8_t digest[CKVC_SHA256_BYTES];
    ckvt_content_id(file + CKVT_HEADER_BYTES, n_sections, digest);
    ckvc_hex(digest, sizeof digest, t->content_id);
    if (memcmp(digest, file + CKVT_AT_CONTENT_ID, sizeof digest)) {
        status = ckvc_fail(err, CKVC_E_DATA,
                           "%s: byte %d: the content id is not that of its sections (%s)", path,
                           CKVT_AT_CONTENT_ID, t->content_id);
        goto done;
    }
    *out = t;
    t = NULL;
done:
    table_file_free(t);
    free(bytes);
    return status;
}
