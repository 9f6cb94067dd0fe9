/* Writes a .ckvt file (formats/table/table.md). Same contents, same bytes: nothing here looks at
 * the clock, the host or the order of work. */
#include <stdio.h>
#include <zstd.h>

#include "formats/table/table_file.h"
#include "formats/table/table_layout.h"
#include "lib/base/buffer.h"
#include "lib/base/bytes.h"
#include "lib/base/files.h"
#include "lib/base/json.h"

/* Level 9 stays at a window of at most 8 MiB, the format's limit. */
enum { ZSTD_LEVEL = 9 };

static void encode_values(ckvc_buffer *out, const ckvt_spec *spec, const void *values) {
    const size_t width = ckvt_type_bytes(spec->type), n = spec->bytes / width;
    for (size_t i = 0; i < n; i++) {
        if (width == 4) {
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

/* A section's bytes as they count in its SHA-256. */
static void encode(const table_file *t, ckvt_section i, const ckvt_spec *spec, ckvc_buffer *out) {
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

/* One frame with its content size, no checksum: the directory has two. */
static ckvc_status compress(const table_array *a, ckvc_buffer *out, ckvc_err *err) {
    const size_t bound = ZSTD_compressBound(a->bytes);
    CKVC_AUTO_FREE void *room = ckvc_alloc(bound, 1);
    const size_t n = ZSTD_compress(room, bound, a->data, a->bytes, ZSTD_LEVEL);
    CKVC_FAIL_IF(ZSTD_isError(n), err, CKVC_E_SYSTEM, "section %s: zstd: %s", a->name,
                 ZSTD_getErrorName(n));
    ckvc_buffer_append(out, room, n);
    return CKVC_OK;
}

/* Appends a section to the file's body and fills its directory entry. `file_offset` is where body's
 * first byte stands in the file. */
static ckvc_status add_section(const table_array *a, bool zstd, uint64_t file_offset,
                               ckvc_buffer *body, uint8_t *entry, ckvc_err *err) {
    static const uint8_t zeros[CKVT_ALIGNMENT] = {0};
    CKVC_AUTO(ckvc_buffer_fini) ckvc_buffer packed = {0};
    const uint8_t *stored = a->data;
    size_t n = a->bytes;
    if (zstd) {
        CKVC_TRY(compress(a, &packed, err));
        stored = packed.data;
        n = packed.size;
    }
    ckvc_buffer_append(body, zeros, (size_t)(-(file_offset + body->size) % CKVT_ALIGNMENT));
    memcpy(entry + CKVT_ENTRY_NAME, a->name, strlen(a->name));
    ckvc_put_u16(entry + CKVT_ENTRY_CODEC, zstd ? CKVT_ZSTD : CKVT_RAW);
    ckvc_put_u16(entry + CKVT_ENTRY_TYPE, (uint16_t)a->type);
    ckvc_put_u16(entry + CKVT_ENTRY_RANK, a->rank);
    for (int d = 0; d < CKVT_RANK_MAX; d++) {
        ckvc_put_u64(entry + CKVT_ENTRY_DIMS + 8 * d, a->dims[d]);
    }
    ckvc_put_u64(entry + CKVT_ENTRY_OFFSET, file_offset + body->size);
    ckvc_put_u64(entry + CKVT_ENTRY_STORED, n);
    ckvc_sha256_bytes(a->data, a->bytes, entry + CKVT_ENTRY_SHA256);
    ckvc_put_u32(entry + CKVT_ENTRY_CRC, ckvc_crc32(0, stored, n));
    if (n) { ckvc_buffer_append(body, stored, n); }
    return CKVC_OK;
}

static bool present(table_file *t, ckvt_section i) {
    json_t **json = ckvt_json(t, i);
    return i == CKVT_SHAPE || (json ? *json != NULL : ckvt_values(t, i) != NULL);
}

/* The version that wrote the file, one byte a part: 0.1.0 is 0x000100. */
static uint32_t writer_version(void) {
    uint32_t version = 0;
    for (const char *part = CKVC_VERSION; part; part = strchr(part, '.')) {
        char *end;
        version = version << 8 | (uint32_t)strtoul(part + (*part == '.'), &end, 10);
        part = end;
    }
    return version;
}

/* META's own keys, and what the reader would refuse: a bug of the caller. */
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
    /* An operator's name is its probe's: META and the header's flags must agree. */
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

/* The bytes that stand in front of a directory of n sections. */
static void fill_header(uint8_t header[CKVT_HEADER_BYTES], uint64_t flags, const uint8_t *directory,
                        size_t n_sections, uint64_t file_size) {
    static const uint8_t magic[8] = {0x89, 'C', 'K', 'V', 0x0D, 0x0A, 0x1A, 0x0A};
    memcpy(header + CKVT_AT_MAGIC, magic, sizeof magic);
    ckvc_put_u16(header + CKVT_AT_HEADER_SIZE, CKVT_HEADER_BYTES);
    ckvc_put_u16(header + CKVT_AT_MAJOR, CKVT_MAJOR);
    ckvc_put_u16(header + CKVT_AT_MINOR, flags & CKVT_FLAG_SHARES ? CKVT_MINOR_SHARES : CKVT_MINOR);
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

/* Sections by their place, NULL where one is missing -> the file's bytes. */
static ckvc_status assemble(const char *path, const table_array *const sections[CKVT_SECTION_COUNT],
                            uint64_t flags, ckvc_buffer *file, ckvc_err *err) {
    uint8_t header[CKVT_HEADER_BYTES] = {0}, directory[CKVT_SECTION_COUNT * CKVT_ENTRY_BYTES] = {0};
    CKVC_AUTO(ckvc_buffer_fini) ckvc_buffer body = {0};
    size_t n_sections = 0, n_written = 0;
    for (int i = 0; i < CKVT_SECTION_COUNT; i++) { n_sections += sections[i] != NULL; }
    const uint64_t body_offset = CKVT_HEADER_BYTES + n_sections * CKVT_ENTRY_BYTES;
    for (int i = 0; i < CKVT_SECTION_COUNT; i++) {
        if (!sections[i]) { continue; }
        const bool zstd = i >= CKVT_EVIDENCE_BEGIN && sections[i]->type != CKVT_BYTES;
        uint8_t *entry = directory + n_written++ * CKVT_ENTRY_BYTES;
        CKVC_TRY(add_section(sections[i], zstd, body_offset, &body, entry, err));
    }
    const uint64_t file_size = body_offset + body.size;
    CKVC_FAIL_IF(file_size > CKVC_TABLE_MAX_BYTES, err, CKVC_E_DATA,
                 "%s: the table would take %llu bytes, the format allows %llu", path,
                 (unsigned long long)file_size, (unsigned long long)CKVC_TABLE_MAX_BYTES);
    fill_header(header, flags, directory, n_sections, file_size);
    ckvc_buffer_append(file, header, sizeof header);
    ckvc_buffer_append(file, directory, n_sections * CKVT_ENTRY_BYTES);
    ckvc_buffer_append(file, body.data, body.size);
    return CKVC_OK;
}

/* The sections of a table and its header's flags; pROV is none of `table_file_arrays`. */
static uint64_t collect(table_file *t, table_arrays *out) {
    ckvt_spec specs[CKVT_SECTION_COUNT];
    *out = (table_arrays){0};
    const bool fits = ckvt_specs(t->table, specs); /* else it was never made */
    for (int i = 0; fits && i < CKVT_SECTION_COUNT; i++) {
        if (!present(t, (ckvt_section)i)) { continue; }
        table_array *a = &out->items[out->n++];
        const size_t at = out->memory.size;
        encode(t, (ckvt_section)i, &specs[i], &out->memory);
        *a = (table_array){
            .type = specs[i].type, .rank = specs[i].rank, .evidence = i >= CKVT_EVIDENCE_BEGIN};
        snprintf(a->name, sizeof a->name, "%s", specs[i].name);
        memcpy(a->dims, specs[i].dims, sizeof a->dims);
        a->bytes = out->memory.size - at;
        if (a->type == CKVT_BYTES) { a->dims[0] = a->bytes; }
    }
    const uint8_t *data = out->memory.data; /* it has its last place now */
    for (size_t i = 0; i < out->n; data += out->items[i++].bytes) { out->items[i].data = data; }
    return (uint64_t)t->table->op | (t->table->share ? CKVT_FLAG_SHARES : 0) |
           (t->table->relative ? CKVT_FLAG_RELATIVE : 0);
}

void table_arrays_fini(table_arrays *a) { ckvc_buffer_fini(&a->memory); }

ckvc_status table_file_write(table_file *t, const char *path, bool force, ckvc_err *err) {
    const table_array *sections[CKVT_SECTION_COUNT] = {0};
    CKVC_AUTO(table_arrays_fini) table_arrays all = {0};
    CKVC_AUTO(ckvc_buffer_fini) ckvc_buffer file = {0};
    CKVC_TRY(prepare(t, path, err));
    const uint64_t flags = collect(t, &all);
    for (size_t i = 0; i < all.n; i++) { sections[ckvt_named(all.items[i].name)] = &all.items[i]; }
    CKVC_TRY(assemble(path, sections, flags, &file, err));
    ckvc_hex(file.data + CKVT_AT_CONTENT_ID, CKVC_SHA256_BYTES, t->content_id);
    return ckvc_publish_bytes(path, file.data, file.size, force, err);
}

/* ---- as arrays ---- */

#define FLAGS "FLAGS"

void table_file_arrays(table_file *t, table_arrays *out) {
    json_t *prov = t->prov;
    t->prov = NULL;
    const uint64_t flags = collect(t, out);
    t->prov = prov;
    ckvc_put_u64(out->flags, flags);
    out->items[out->n++] = (table_array){.name = FLAGS,
                                         .type = CKVT_U64,
                                         .rank = 1,
                                         .dims = {1},
                                         .data = out->flags,
                                         .bytes = sizeof out->flags};
}

ckvc_status table_file_from_arrays(const char *where, const table_array *items, size_t n,
                                   table_file **out, ckvc_err *err) {
    const table_array *sections[CKVT_SECTION_COUNT] = {0}, *flags = NULL;
    CKVC_AUTO(ckvc_buffer_fini) ckvc_buffer file = {0};
    *out = NULL;
    for (size_t i = 0; i < n; i++) {
        const ckvt_section s = ckvt_named(items[i].name);
        const bool is_flags = strcmp(items[i].name, FLAGS) == 0;
        CKVC_REFUSE_IF(s == CKVT_SECTION_COUNT && !is_flags, err, where,
                       "array %s is no section of a table", items[i].name);
        const table_array **place = is_flags ? &flags : &sections[s];
        CKVC_REFUSE_IF(*place, err, where, "array %s is there twice", items[i].name);
        *place = &items[i];
    }
    CKVC_REFUSE_IF(!flags || flags->type != CKVT_U64 || flags->bytes != 8, err, where,
                   "array " FLAGS " is %s: one u64 is wanted, the header's incompatible flags",
                   flags ? "of another shape" : "missing");
    CKVC_TRY(assemble(where, sections, ckvc_get_u64(flags->data), &file, err));
    return ckvt_parse(where, file.data, file.size, out, err);
}
