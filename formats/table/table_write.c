/* Writes a .ckvt file (formats/table/table.md). The same contents give the same bytes: nothing here
 * looks at the clock, the host or the order of work. */
#include <zstd.h>

#include "formats/table/table_file.h"
#include "formats/table/table_layout.h"
#include "lib/base/json.h"
#include "lib/base/bytes.h"
#include "lib/base/files.h"

/* Level 9 keeps its window within 8 MiB, which is the format's limit. */
enum { ZSTD_LEVEL = 9 };

static void encode_values(ckvc_buffer *out, const ckvt_spec *spec, const void *values) {
    const size_t width = ckvt_type_bytes(spec->type), n = spec->bytes / width;
    for (size_t i = 0; i < n; i++) {
        if (spec->type == CKVT_F16) {
            uint8_t bits[2];
            ckvc_put_u16(bits, ckvc_f16_of_f32(((const float *)values)[i]));
            ckvc_buffer_append(out, bits, sizeof bits);
        } else if (width == 4) {
            uint32_t bits;
            memcpy(&bits, (const uint32_t *)values + i, 4);
            ckvc_buffer_u32(out, bits);
        } else {
            uint64_t bits;
            memcpy(&bits, (const uint64_t *)values + i, 8);
            ckvc_buffer_u64(out, bits);
        }
    }
}

/* Appends a section's bytes as they are before compression, over which its SHA-256 goes. */
static void encode_section(const table_file *t, ckvt_section i, const ckvt_spec *spec,
                           ckvc_buffer *out) {
    json_t **json = ckvt_json(ckvc_unconst(t), i);
    uint32_t shape[CKVC_TABLE_SHAPE];
    ckvt_shape(t->table, shape);
    if (json) {
        CKVC_AUTO_FREE char *text = ckvc_json_canonical(*json);
        ckvc_buffer_text(out, text);
    } else {
        encode_values(out, spec, i == CKVT_SHAPE ? shape : ckvt_values(t, i));
    }
}

/* Compresses into one frame with its content size but no checksum, because the directory has
 * two. */
static ckvc_status compress(const char *name, const ckvc_buffer *raw, ckvc_buffer *out,
                            ckvc_err *err) {
    const size_t bound = ZSTD_compressBound(raw->size);
    CKVC_AUTO_FREE void *buffer = ckvc_alloc(bound, 1);
    const size_t n = ZSTD_compress(buffer, bound, raw->data, raw->size, ZSTD_LEVEL);
    CKVC_FAIL_IF(ZSTD_isError(n), err, CKVC_E_SYSTEM, "section %s: zstd: %s", name,
                 ZSTD_getErrorName(n));
    ckvc_buffer_append(out, buffer, n);
    return CKVC_OK;
}

/* Appends a section to the file's body and fills its directory entry. `file_offset` is where body's
 * first byte stands in the file. */
static ckvc_status add_section(const table_file *t, ckvt_section i, const ckvt_spec *spec,
                               uint64_t file_offset, ckvc_buffer *body, uint8_t *entry,
                               ckvc_err *err) {
    static const uint8_t zeros[CKVT_ALIGNMENT] = {0};
    const bool zstd = (int)i >= CKVT_EVIDENCE_BEGIN && spec->type != CKVT_BYTES;
    CKVC_AUTO(ckvc_buffer_fini) ckvc_buffer raw = {0};
    CKVC_AUTO(ckvc_buffer_fini) ckvc_buffer packed = {0};
    encode_section(t, i, spec, &raw);
    if (zstd) { CKVC_TRY(compress(spec->name, &raw, &packed, err)); }
    const ckvc_buffer *stored = zstd ? &packed : &raw;
    ckvc_buffer_append(body, zeros, (size_t)(-(file_offset + body->size) % CKVT_ALIGNMENT));
    memcpy(entry + CKVT_ENTRY_NAME, spec->name, strlen(spec->name));
    ckvc_put_u16(entry + CKVT_ENTRY_CODEC, zstd ? CKVT_ZSTD : CKVT_RAW);
    ckvc_put_u16(entry + CKVT_ENTRY_TYPE, (uint16_t)spec->type);
    ckvc_put_u16(entry + CKVT_ENTRY_RANK, spec->rank);
    for (int d = 0; d < CKVT_RANK_MAX; d++) {
        /* a JSON section's dimension is its length */
        const bool json = spec->type == CKVT_BYTES && d == 0;
        ckvc_put_u64(entry + CKVT_ENTRY_DIMS + 8 * d, json ? raw.size : spec->dims[d]);
    }
    ckvc_put_u64(entry + CKVT_ENTRY_OFFSET, file_offset + body->size);
    ckvc_put_u64(entry + CKVT_ENTRY_STORED, stored->size);
    ckvc_sha256_bytes(raw.data, raw.size, entry + CKVT_ENTRY_SHA256);
    ckvc_put_u32(entry + CKVT_ENTRY_CRC, ckvc_crc32(0, stored->data, stored->size));
    if (stored->size) { ckvc_buffer_append(body, stored->data, stored->size); }
    return CKVC_OK;
}

static bool has_section(table_file *t, ckvt_section i) {
    json_t **json = ckvt_json(t, i);
    return i == CKVT_SHAPE || (json ? *json != NULL : ckvt_values(t, i) != NULL);
}

/* Returns the version that writes the file, one byte for each part: 0.1.0 is 0x000100. */
static uint32_t writer_version(void) {
    uint32_t version = 0;
    for (const char *part = CKVC_VERSION; part; part = strchr(part, '.')) {
        char *end;
        version = version << 8 | (uint32_t)strtoul(part + (*part == '.'), &end, 10);
        part = end;
    }
    return version;
}

/* Writes META's own keys, and refuses what the reader would refuse, which would be a bug of the
 * caller. */
static ckvc_status prepare(table_file *t, const char *path, ckvc_err *err) {
    const ckvc_operator op = t->table->op;
    char breach[256];
    ckvc_err why = {0};
    json_object_set_new(t->meta, "schema", json_string(CKVT_SCHEMA));
    json_object_set_new(t->meta, "shape", ckvt_shape_json(t->table));
    const bool broken = ckvc_table_check(t->table, breach, sizeof breach);
    CKVC_FAIL_IF(broken || ckvt_check_evidence(t, &why) != CKVC_OK, err, CKVC_E_BUG,
                 "%s: refusing to write a table that its reader would refuse: section %s", path,
                 broken ? breach : why.text);
    /* An operator's name is that of its probe: META and the header's flags must agree. */
    if (op != CKVC_OPERATOR_PAPER) {
        json_object_set_new(t->meta, "probe", json_string(ckvc_operator_name(op)));
    }
    CKVC_FAIL_IF(!ckvt_rule_agrees(t), err, CKVC_E_BUG,
                 "%s: refusing to write a table whose META has another alpha_kind or keep_window",
                 path);
    const char *probe = json_string_value(json_object_get(t->meta, "probe"));
    CKVC_FAIL_IF(ckvt_probe_operator(probe) != op, err, CKVC_E_BUG,
                 "%s: refusing to write a table of the paper's operator as a probe's", path);
    return CKVC_OK;
}

/* Fills the header, which stands in front of a directory of n sections. */
static void fill_header(uint8_t header[CKVT_HEADER_BYTES], uint64_t flags, const uint8_t *directory,
                        size_t n_sections, uint64_t file_size) {
    static const uint8_t magic[8] = {0x89, 'C', 'K', 'V', 0x0D, 0x0A, 0x1A, 0x0A};
    memcpy(header + CKVT_AT_MAGIC, magic, sizeof magic);
    ckvc_put_u16(header + CKVT_AT_HEADER_SIZE, CKVT_HEADER_BYTES);
    ckvc_put_u16(header + CKVT_AT_MAJOR, CKVT_MAJOR);
    ckvc_put_u16(header + CKVT_AT_MINOR, flags & CKVT_FLAG_BYTES    ? CKVT_MINOR_BYTES
                                         : flags & CKVT_FLAG_BANK   ? CKVT_MINOR_BANK
                                         : flags & CKVT_FLAG_SHARES ? CKVT_MINOR_SHARES
                                                                    : CKVT_MINOR);
    ckvc_put_u16(header + CKVT_AT_BYTE_ORDER, CKVT_BYTE_ORDER_MARK);
    ckvc_put_u64(header + CKVT_AT_INCOMPATIBLE, flags);
    ckvc_put_u64(header + CKVT_AT_FILE_SIZE, file_size);
    ckvc_put_u64(header + CKVT_AT_DIRECTORY, CKVT_HEADER_BYTES);
    ckvc_put_u32(header + CKVT_AT_N_SECTIONS, (uint32_t)n_sections);
    ckvc_put_u32(header + CKVT_AT_ENTRY_SIZE, CKVT_ENTRY_BYTES);
    ckvt_content_id(directory, n_sections, header + CKVT_AT_CONTENT_ID);
    ckvc_put_u32(header + CKVT_AT_WRITER, writer_version());
    ckvc_put_u32(header + CKVT_AT_DIRECTORY_CRC,
                 ckvc_crc32(0, directory, n_sections * CKVT_ENTRY_BYTES));
    ckvc_put_u32(header + CKVT_AT_HEADER_CRC, ckvc_crc32(0, header, CKVT_AT_HEADER_CRC));
}

/* Puts the file's bytes together. */
static ckvc_status assemble(table_file *t, const char *path, ckvc_buffer *file, ckvc_err *err) {
    uint8_t header[CKVT_HEADER_BYTES] = {0}, directory[CKVT_SECTION_COUNT * CKVT_ENTRY_BYTES] = {0};
    CKVC_AUTO(ckvc_buffer_fini) ckvc_buffer body = {0};
    ckvt_spec specs[CKVT_SECTION_COUNT];
    size_t n_sections = 0, n_written = 0;
    /* otherwise the table could not have been made */
    const bool fits = ckvt_specs(t->table, specs);
    for (int i = 0; fits && i < CKVT_SECTION_COUNT; i++) {
        n_sections += has_section(t, (ckvt_section)i);
    }
    const uint64_t body_offset = CKVT_HEADER_BYTES + n_sections * CKVT_ENTRY_BYTES;
    for (int i = 0; fits && i < CKVT_SECTION_COUNT; i++) {
        if (!has_section(t, (ckvt_section)i)) { continue; }
        uint8_t *entry = directory + n_written++ * CKVT_ENTRY_BYTES;
        CKVC_TRY(add_section(t, (ckvt_section)i, &specs[i], body_offset, &body, entry, err));
    }
    const uint64_t file_size = body_offset + body.size;
    CKVC_FAIL_IF(file_size > CKVC_TABLE_MAX_BYTES, err, CKVC_E_DATA,
                 "%s: the table would take %llu bytes, the format allows %llu", path,
                 (unsigned long long)file_size, (unsigned long long)CKVC_TABLE_MAX_BYTES);
    const uint64_t flags = (uint64_t)t->table->op | (t->table->share ? CKVT_FLAG_SHARES : 0) |
                           (t->table->bank ? CKVT_FLAG_BANK : 0) |
                           (t->table->byte_share ? CKVT_FLAG_BYTES : 0);
    fill_header(header, flags, directory, n_sections, file_size);
    ckvc_buffer_append(file, header, sizeof header);
    ckvc_buffer_append(file, directory, n_sections * CKVT_ENTRY_BYTES);
    ckvc_buffer_append(file, body.data, body.size);
    return CKVC_OK;
}

ckvc_status table_file_write(table_file *t, const char *path, bool force, ckvc_err *err) {
    CKVC_AUTO(ckvc_buffer_fini) ckvc_buffer file = {0};
    CKVC_TRY(prepare(t, path, err));
    CKVC_TRY(assemble(t, path, &file, err));
    ckvc_hex(file.data + CKVT_AT_CONTENT_ID, CKVC_SHA256_BYTES, t->content_id);
    return ckvc_publish_bytes(path, file.data, file.size, force, err);
}
