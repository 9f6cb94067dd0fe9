/* Writes a .ckvt file (formats/table/table.md). Same contents, same bytes: nothing here looks at
 * the clock, the host or the order of work. */
#include "formats/table/table_file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zstd.h>

#include "formats/table/table_layout.h"
#include "lib/base/buffer.h"
#include "lib/base/bytes.h"
#include "lib/base/files.h"
#include "lib/base/json.h"
#include "lib/base/memory.h"
#include "lib/base/names.h"

/* Level 9 stays at a window of at most 8 MiB, the format's limit. */
enum { ZSTD_LEVEL = 9 };

static void encode_values(ckvc_buffer *out, const ckvt_spec *spec, const void *values) {
    size_t n = spec->bytes / ckvt_type_bytes(spec->type);
    for (size_t i = 0; i < n; i++) {
        uint32_t bits;
        switch (spec->type) {
        case CKVT_F32:
            memcpy(&bits, (const float *)values + i, 4);
            ckvc_buffer_u32(out, bits);
            break;
        case CKVT_F64:
            ckvc_buffer_f64(out, ((const double *)values)[i]);
            break;
        case CKVT_U32:
            ckvc_buffer_u32(out, ((const uint32_t *)values)[i]);
            break;
        default:
            ckvc_buffer_u64(out, ((const uint64_t *)values)[i]);
            break;
        }
    }
}

/* One frame with its content size, no checksum: the directory has two. */
static ckvc_status compress(const char *name, const ckvc_buffer *raw, ckvc_buffer *out,
                            ckvc_err *err) {
    size_t bound = ZSTD_compressBound(raw->size);
    void *room = ckvc_alloc(bound, 1);
    size_t n = ZSTD_compress(room, bound, raw->data, raw->size, ZSTD_LEVEL);
    if (ZSTD_isError(n)) {
        free(room);
        return ckvc_fail(err, CKVC_E_SYSTEM, "section %s: zstd: %s", name, ZSTD_getErrorName(n));
    }
    ckvc_buffer_append(out, room, n);
    free(room);
    return CKVC_OK;
}

/* Appends section i to the file's body and fills its directory entry. `file_offset` is where body's
 * first byte stands in the file. */
static ckvc_status add_section(const table_file *t, ckvt_section i, const ckvt_spec *spec,
                               uint64_t file_offset, ckvc_buffer *body, uint8_t *entry,
                               ckvc_err *err) {
    const ckvc_table *c = t->table;
    const uint32_t shape[8] = {c->n_layers,   c->n_query_heads, c->n_heads, c->n_entropy_bins,
                               c->n_ppl_bins, c->n_budgets,     c->window,  c->head_axis};
    ckvc_buffer raw = {0}, packed = {0};
    ckvc_status status = CKVC_OK;
    uint64_t dims[CKVT_RANK_MAX];
    memcpy(dims, spec->dims, sizeof dims);
    if (spec->type == CKVT_BYTES) {
        char *text = ckvc_json_canonical(i == CKVT_META   ? t->meta
                                         : i == CKVT_PROV ? t->prov
                                                          : t->xfer);
        if (!text) {
            status = ckvc_fail(
                err, CKVC_E_BUG,
                "section %s: its JSON holds a number that is not finite, or memory is out",
                spec->name);
            goto done;
        }
        ckvc_buffer_text(&raw, text);
        free(text);
        dims[0] = raw.size;
    } else {
        encode_values(&raw, spec, i == CKVT_SHAPE ? shape : ckvt_values(t, i));
    }
    bool zstd = !spec->raw_only && spec->type != CKVT_BYTES;
    if (raw.failed) {
        status = ckvc_fail_memory(err, "a table section", spec->bytes);
        goto done;
    }
    if (zstd && (status = compress(spec->name, &raw, &packed, err))) { goto done; }
    const ckvc_buffer *stored = zstd ? &packed : &raw;

    static const uint8_t zeros[CKVT_ALIGNMENT] = {0};
    ckvc_buffer_append(body, zeros, (size_t)(-(file_offset + body->size) % CKVT_ALIGNMENT));
    memcpy(entry + CKVT_ENTRY_NAME, spec->name, strlen(spec->name));
    ckvc_put_u16(entry + CKVT_ENTRY_CODEC, zstd ? CKVT_ZSTD : CKVT_RAW);
    ckvc_put_u16(entry + CKVT_ENTRY_TYPE, (uint16_t)spec->type);
    ckvc_put_u16(entry + CKVT_ENTRY_RANK, spec->rank);
    for (int d = 0; d < CKVT_RANK_MAX; d++) {
        ckvc_put_u64(entry + CKVT_ENTRY_DIMS + 8 * d, dims[d]);
    }
    ckvc_put_u64(entry + CKVT_ENTRY_OFFSET, file_offset + body->size);
    ckvc_put_u64(entry + CKVT_ENTRY_STORED, stored->size);
    ckvc_sha256_bytes(raw.data, raw.size, entry + CKVT_ENTRY_SHA256);
    ckvc_put_u32(entry + CKVT_ENTRY_CRC, ckvc_crc32(0, stored->data, stored->size));
    if (stored->size) { ckvc_buffer_append(body, stored->data, stored->size); }
    if (body->failed || stored->failed) {
        status = ckvc_fail_memory(err, "a table file", body->size);
    }
done:
    ckvc_buffer_fini(&raw);
    ckvc_buffer_fini(&packed);
    return status;
}

static bool present(const table_file *t, ckvt_section i) {
    return i == CKVT_SHAPE || i == CKVT_META || (i == CKVT_PROV && t->prov) ||
           (i == CKVT_XFER && t->xfer) || ckvt_values(t, i);
}

/* The version that wrote the file, one byte a part: 0.1.0 is 0x000100. */
static uint32_t writer_version(void) {
    unsigned major = 0, minor = 0, patch = 0;
    if (sscanf(CKVC_VERSION, "%u.%u.%u", &major, &minor, &patch) != 3) { return 0; }
    return major << 16 | minor << 8 | patch;
}

ckvc_status table_file_write(table_file *t, const char *path, bool force, ckvc_err *err) {
    static const uint8_t magic[8] = {0x89, 'C', 'K', 'V', 0x0D, 0x0A, 0x1A, 0x0A};
    ckvt_spec specs[CKVT_SECTION_COUNT];
    ckvc_buffer body = {0}, file = {0};
    uint8_t header[CKVT_HEADER_BYTES] = {0}, directory[CKVT_SECTION_COUNT * CKVT_ENTRY_BYTES] = {0};
    uint8_t digest[CKVC_SHA256_BYTES];
    char breach[256];
    ckvc_status status = CKVC_OK;

    if (json_object_set_new(t->meta, "schema", json_string(CKVT_SCHEMA)) ||
        json_object_set_new(t->meta, "shape", ckvt_shape_json(t->table)) ||
        !ckvt_specs(t->table, specs)) {
        return ckvc_fail_memory(err, "a table's META", 0);
    }
    if (ckvc_table_check(t->table, breach, sizeof breach) ||
        ckvt_check_evidence(t, breach, sizeof breach)) {
        return ckvc_fail(err, CKVC_E_BUG,
                         "%s: refusing to write a table that its reader would refuse: section %s",
                         path, breach);
    }
    /* An operator's name is its probe's: META and the header's flags must agree. */
    const ckvc_operator op = t->table->op;
    if (op != CKVC_OPERATOR_PAPER &&
        json_object_set_new(t->meta, "probe", json_string(ckvc_operator_name(op)))) {
        return ckvc_fail_memory(err, "a table's META", 0);
    }
    if (ckvt_probe_operator(json_string_value(json_object_get(t->meta, "probe"))) != op) {
        return ckvc_fail(err, CKVC_E_BUG,
                         "%s: refusing to write a table of the paper's operator as a probe's",
                         path);
    }

    size_t n_sections = 0, n_written = 0;
    for (int i = 0; i < CKVT_SECTION_COUNT; i++) {
        n_sections += present(t, (ckvt_section)i);
    }
    uint64_t body_offset = CKVT_HEADER_BYTES + n_sections * CKVT_ENTRY_BYTES;
    for (int i = 0; i < CKVT_SECTION_COUNT; i++) {
        if (present(t, (ckvt_section)i)) {
            uint8_t *entry = directory + n_written++ * CKVT_ENTRY_BYTES;
            if ((status =
                     add_section(t, (ckvt_section)i, &specs[i], body_offset, &body, entry, err))) {
                goto done;
            }
        }
    }
    uint64_t file_size = body_offset + body.size;
    if (file_size > CKVC_TABLE_MAX_BYTES) {
        status = ckvc_fail(err, CKVC_E_DATA,
                           "%s: the table would take %llu bytes, the format allows %llu", path,
                           (unsigned long long)file_size, (unsigned long long)CKVC_TABLE_MAX_BYTES);
        goto done;
    }

    ckvt_content_id(directory, n_sections, digest);
    ckvc_hex(digest, sizeof digest, t->content_id);
    memcpy(header + CKVT_AT_MAGIC, magic, sizeof magic);
    ckvc_put_u16(header + CKVT_AT_HEADER_SIZE, CKVT_HEADER_BYTES);
    ckvc_put_u16(header + CKVT_AT_MAJOR, CKVT_MAJOR);
    ckvc_put_u16(header + CKVT_AT_MINOR, CKVT_MINOR);
    ckvc_put_u16(header + CKVT_AT_BYTE_ORDER, CKVT_BYTE_ORDER_MARK);
    ckvc_put_u64(header + CKVT_AT_INCOMPATIBLE, (uint64_t)op);
    ckvc_put_u64(header + CKVT_AT_FILE_SIZE, file_size);
    ckvc_put_u64(header + CKVT_AT_DIRECTORY, CKVT_HEADER_BYTES);
    ckvc_put_u32(header + CKVT_AT_N_SECTIONS, (uint32_t)n_sections);
    ckvc_put_u32(header + CKVT_AT_ENTRY_SIZE, CKVT_ENTRY_BYTES);
    memcpy(header + CKVT_AT_CONTENT_ID, digest, sizeof digest);
    ckvc_put_u32(header + CKVT_AT_WRITER, writer_version());
    ckvc_put_u32(header + CKVT_AT_DIRECTORY_CRC,
                 ckvc_crc32(0, directory, n_sections * CKVT_ENTRY_BYTES));
    ckvc_put_u32(header + CKVT_AT_HEADER_CRC, ckvc_crc32(0, header, CKVT_AT_HEADER_CRC));

    ckvc_buffer_append(&file, header, sizeof header);
    ckvc_buffer_append(&file, directory, n_sections * CKVT_ENTRY_BYTES);
    ckvc_buffer_append(&file, body.data, body.size);
    if (file.failed) {
        status = ckvc_fail_memory(err, "a table file", file_size);
        goto done;
    }
    status = ckvc_publish_bytes(path, file.data, file.size, force, err);
done:
    ckvc_buffer_fini(&body);
    ckvc_buffer_fini(&file);
    return status;
}
