/* .npz: see npz.h. Of zip (PKWARE's APPNOTE) what numpy needs: local entries, the central directory
 * behind them, its end record; no compression, no encryption, no zip64. */
#include "formats/export/npz.h"

#include "formats/export/npy.h"
#include "lib/base/bytes.h"
#include "lib/base/files.h"
#include "lib/base/sizes.h"

enum { LOCAL = 0x04034b50, CENTRAL = 0x02014b50, END = 0x06054b50 };
enum { LOCAL_BYTES = 30, CENTRAL_BYTES = 46, END_BYTES = 22, COMMENT_MAX = 65535 };
#define SUFFIX ".npy"

/* What local entry and directory say alike: version 2.0, stored, 1980-01-01. */
static void append_common(ckvc_buffer *b, const char *name, const ckvc_buffer *file) {
    ckvc_buffer_u16(b, 20);
    ckvc_buffer_u32(b, 0); /* flags, method */
    ckvc_buffer_u16(b, 0);
    ckvc_buffer_u16(b, 1 << 5 | 1);
    ckvc_buffer_u32(b, ckvc_crc32(0, file->data, file->size));
    ckvc_buffer_u32(b, (uint32_t)file->size);
    ckvc_buffer_u32(b, (uint32_t)file->size);
    ckvc_buffer_u16(b, (uint16_t)(strlen(name) + strlen(SUFFIX)));
    ckvc_buffer_u16(b, 0); /* extra field */
}

ckvc_status npz_write(table_file *t, const export_options *o, const char *path, ckvc_buffer *note,
                      ckvc_err *err) {
    (void)note;
    CKVC_AUTO(table_arrays_fini) table_arrays all;
    CKVC_AUTO(ckvc_buffer_fini) ckvc_buffer zip = {0};
    CKVC_AUTO(ckvc_buffer_fini) ckvc_buffer directory = {0};
    table_file_arrays(t, &all);
    for (size_t i = 0; i < all.n; i++) {
        CKVC_AUTO(ckvc_buffer_fini) ckvc_buffer file = {0};
        const char *name = all.items[i].name;
        npy_append(&file, &all.items[i]);
        ckvc_buffer_u32(&directory, CENTRAL);
        ckvc_buffer_u16(&directory, 20);
        append_common(&directory, name, &file);
        ckvc_buffer_u32(&directory, 0); /* comment, disk */
        ckvc_buffer_u16(&directory, 0); /* attributes */
        ckvc_buffer_u32(&directory, 0);
        ckvc_buffer_u32(&directory, (uint32_t)zip.size);
        ckvc_buffer_printf(&directory, "%s" SUFFIX, name);
        ckvc_buffer_u32(&zip, LOCAL);
        append_common(&zip, name, &file);
        ckvc_buffer_printf(&zip, "%s" SUFFIX, name);
        ckvc_buffer_append(&zip, file.data, file.size);
    }
    const size_t at = zip.size;
    CKVC_FAIL_IF(at + directory.size > UINT32_MAX, err, CKVC_E_DATA,
                 "%s: %zu bytes are too many for a plain zip file", path, at + directory.size);
    ckvc_buffer_append(&zip, directory.data, directory.size);
    ckvc_buffer_u32(&zip, END);
    ckvc_buffer_u32(&zip, 0); /* disks */
    ckvc_buffer_u16(&zip, (uint16_t)all.n);
    ckvc_buffer_u16(&zip, (uint16_t)all.n);
    ckvc_buffer_u32(&zip, (uint32_t)directory.size);
    ckvc_buffer_u32(&zip, (uint32_t)at);
    ckvc_buffer_u16(&zip, 0); /* comment */
    return ckvc_publish_bytes(path, zip.data, zip.size, o->force, err);
}

/* ---- reading ---- */

/* The end record: the last one that fits the file's end with its comment. NULL: none. */
static const uint8_t *find_end(const ckvc_map *map) {
    for (uint64_t back = END_BYTES; back <= map->size && back <= END_BYTES + COMMENT_MAX; back++) {
        const uint8_t *p = map->data + map->size - back;
        if (ckvc_get_u32(p) == END && ckvc_get_u16(p + 20) == back - END_BYTES) { return p; }
    }
    return NULL;
}

/* One row of the directory -> an array; *at moves behind it. */
static ckvc_status read_entry(const char *path, const ckvc_map *map, uint64_t *at, table_array *out,
                              ckvc_err *err) {
    const uint8_t *e = map->data + *at;
    CKVC_REFUSE_IF(!ckvc_span_ok(*at, CENTRAL_BYTES, map->size) || ckvc_get_u32(e) != CENTRAL, err,
                   path, "byte %llu: no entry of a zip directory", (unsigned long long)*at);
    const unsigned flags = ckvc_get_u16(e + 8), method = ckvc_get_u16(e + 10);
    const uint64_t size = ckvc_get_u32(e + 24), name_n = ckvc_get_u16(e + 28),
                   local = ckvc_get_u32(e + 42);
    const uint64_t row = CENTRAL_BYTES + name_n + ckvc_get_u16(e + 30) + ckvc_get_u16(e + 32);
    CKVC_REFUSE_IF(!ckvc_span_ok(*at, row, map->size), err, path,
                   "byte %llu: an entry of the zip directory runs past the end",
                   (unsigned long long)*at);
    *at += row;
    CKVC_REFUSE_IF(name_n <= strlen(SUFFIX) || name_n >= sizeof out->name + strlen(SUFFIX) ||
                       memcmp(e + CENTRAL_BYTES + name_n - strlen(SUFFIX), SUFFIX, 4) != 0,
                   err, path, "a file in it is not called like a section of a table with .npy");
    snprintf(out->name, sizeof out->name, "%.*s", (int)(name_n - strlen(SUFFIX)),
             (const char *)e + CENTRAL_BYTES);
    CKVC_REFUSE_IF(method || flags & 1, err, path,
                   "%s is compressed or encrypted: write it with numpy.savez", out->name);
    CKVC_REFUSE_IF(
        !ckvc_span_ok(local, LOCAL_BYTES, map->size) || ckvc_get_u32(map->data + local) != LOCAL,
        err, path, "%s: no zip entry at byte %llu", out->name, (unsigned long long)local);
    const uint64_t data = local + LOCAL_BYTES + ckvc_get_u16(map->data + local + 26) +
                          ckvc_get_u16(map->data + local + 28);
    CKVC_REFUSE_IF(!ckvc_span_ok(data, size, map->size), err, path,
                   "%s: %llu bytes at %llu run past the end (%llu; is it cut off?)", out->name,
                   (unsigned long long)size, (unsigned long long)data,
                   (unsigned long long)map->size);
    CKVC_REFUSE_IF(ckvc_crc32(0, map->data + data, size) != ckvc_get_u32(e + 16), err, path,
                   "%s: its CRC-32 is not the directory's: the file is damaged", out->name);
    CKVC_AUTO_FREE char *where = ckvc_format("%s: %s", path, out->name);
    return npy_parse(where, map->data + data, size, out, err);
}

ckvc_status npz_read(const char *path, const import_options *o, table_file **out, ckvc_err *err) {
    (void)o;
    CKVC_AUTO(ckvc_map_close) ckvc_map map = {0};
    table_array items[TABLE_ARRAYS_MAX] = {0};
    *out = NULL;
    CKVC_TRY(ckvc_map_open(path, &map, err));
    const uint8_t *end = find_end(&map);
    CKVC_REFUSE_IF(!end, err, path, "not a .npz file (numpy.savez): no end of a zip directory");
    const size_t n = ckvc_get_u16(end + 10);
    uint64_t at = ckvc_get_u32(end + 16);
    CKVC_REFUSE_IF(n > TABLE_ARRAYS_MAX, err, path, "%zu arrays, a table has at most %d", n,
                   TABLE_ARRAYS_MAX);
    for (size_t i = 0; i < n; i++) { CKVC_TRY(read_entry(path, &map, &at, &items[i], err)); }
    return table_file_from_arrays(path, items, n, out, err);
}
