/* The durable prompt log: see prompt_log.h. */
#include "formats/run/prompt_log.h"

#include <stdlib.h>

#include "formats/run/durable_append.h"
#include "lib/base/buffer.h"
#include "lib/base/bytes.h"
#include "lib/base/files.h"
#include "lib/base/hash.h"
#include "lib/base/memory.h"

#define MAX_LOG_BYTES ((size_t)4 << 30)

void prompt_log_free(prompt_log *log) {
    free(log->bytes);
    free(log->records);
    *log = (prompt_log){0};
}

ckvc_status prompt_log_read(const char *path, prompt_log *out, ckvc_err *err) {
    *out = (prompt_log){0};
    if (!ckvc_file_exists(path)) { return CKVC_OK; }
    size_t n;
    CKVC_TRY(ckvc_file_read(path, MAX_LOG_BYTES, &out->bytes, &n, err));
    while (n - out->size >= 8) {
        const uint8_t *p = (const uint8_t *)out->bytes + out->size;
        const uint32_t length = ckvc_get_u32(p);
        /* A hole of zeros, as file systems leave after a power cut, has length 0 and the right CRC
         * for it. */
        if (length < 4 || length > PROMPT_LOG_MAX_RECORD || length > n - out->size - 8 ||
            ckvc_crc32(0, p + 8, length) != ckvc_get_u32(p + 4)) {
            break;
        }
        CKVC_GROW(out->records, out->capacity, out->n_records + 1);
        out->records[out->n_records++] =
            (prompt_log_record){ckvc_get_u32(p + 8), p + 12, length - 4, out->size};
        out->size += 8 + (uint64_t)length;
    }
    out->dropped = n - out->size;
    return CKVC_OK;
}

ckvc_status prompt_log_append(const char *path, uint64_t *size, uint32_t prompt,
                              const uint8_t *rows, size_t n, ckvc_err *err) {
    CKVC_FAIL_IF(n > PROMPT_LOG_MAX_RECORD - 4, err, CKVC_E_BUG,
                 "%s: a record of %zu bytes, at most %u fit", path, n, PROMPT_LOG_MAX_RECORD);
    CKVC_AUTO(ckvc_buffer_fini) ckvc_buffer record = {0};
    uint8_t number[4];
    ckvc_put_u32(number, prompt);
    ckvc_buffer_u32(&record, (uint32_t)n + 4);
    ckvc_buffer_u32(&record, ckvc_crc32(ckvc_crc32(0, number, 4), rows, n));
    ckvc_buffer_u32(&record, prompt);
    ckvc_buffer_append(&record, rows, n);
    return durable_append(path, size, record.data, record.size, err);
}
