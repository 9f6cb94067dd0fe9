/* A .ckvt file, as it is and with its sums mended (header, directory, sections, content id), so
 * that a mutant reaches what lies behind them. A table that is read can be described and written,
 * and is the same when it is read again. */
#include "formats/table/table_file.h"
#include "formats/table/table_layout.h"
#include "lib/base/bytes.h"
#include "lib/base/files.h"
#include "tests/fuzz/fuzz.h"

#include <zstd.h>

enum { RAW_MAX = 1 << 20 };

static void mend_section(uint8_t *file, size_t size, uint8_t *entry) {
    const uint64_t at = ckvc_get_u64(entry + CKVT_ENTRY_OFFSET),
                   n = ckvc_get_u64(entry + CKVT_ENTRY_STORED);
    if (at > size || n > size - at) { return; }
    ckvc_put_u32(entry + CKVT_ENTRY_CRC, ckvc_crc32(0, file + at, (size_t)n));
    if (ckvc_get_u16(entry + CKVT_ENTRY_CODEC) == CKVT_RAW) {
        ckvc_sha256_bytes(file + at, (size_t)n, entry + CKVT_ENTRY_SHA256);
        return;
    }
    const unsigned long long raw_size = ZSTD_getFrameContentSize(file + at, (size_t)n);
    if (raw_size > RAW_MAX) { return; /* that includes what is no frame */ }
    CKVC_AUTO_FREE uint8_t *raw = ckvc_alloc((size_t)raw_size, 1);
    if (ZSTD_decompress(raw, (size_t)raw_size, file + at, (size_t)n) == raw_size) {
        ckvc_sha256_bytes(raw, (size_t)raw_size, entry + CKVT_ENTRY_SHA256);
    }
}

static void mend(uint8_t *file, size_t size) {
    if (size < CKVT_HEADER_BYTES) { return; }
    const size_t room = (size - CKVT_HEADER_BYTES) / CKVT_ENTRY_BYTES;
    const uint32_t n = ckvc_get_u32(file + CKVT_AT_N_SECTIONS);
    uint8_t *directory = file + CKVT_HEADER_BYTES;
    const size_t bytes = (size_t)n * CKVT_ENTRY_BYTES;
    if (n <= room) {
        for (size_t at = 0; at < bytes; at += CKVT_ENTRY_BYTES) {
            mend_section(file, size, directory + at);
        }
        ckvt_content_id(directory, n, file + CKVT_AT_CONTENT_ID);
        ckvc_put_u32(file + CKVT_AT_DIRECTORY_CRC, ckvc_crc32(0, directory, bytes));
    }
    ckvc_put_u32(file + CKVT_AT_HEADER_CRC, ckvc_crc32(0, file, CKVT_AT_HEADER_CRC));
}

static void read_table(const uint8_t *data, size_t size, ckvc_err *err) {
    CKVC_AUTO(table_file_free_at) table_file *t = NULL, *again = NULL;
    const char *path = fuzz_file("t.ckvt", data, size);
    if (!fuzz_took(table_file_read(path, &t, err), err)) { return; }
    char message[512];
    must(ckvc_table_check(t->table, message, sizeof message) == 0);
    json_decref(table_file_describe(t, false));
    json_decref(table_file_describe(t, true));
    must(table_file_write(t, fuzz_path("again.ckvt"), true, err) == CKVC_OK);
    must(table_file_read(fuzz_path("again.ckvt"), &again, err) == CKVC_OK);
    must(strcmp(again->content_id, t->content_id) == 0);
}

FUZZ {
    read_table(data, size, err);
    CKVC_AUTO_FREE uint8_t *mended = ckvc_copy(data, size, 1);
    mend(mended, size);
    if (memcmp(mended, data, size) != 0) { read_table(mended, size, err); }
}
