/* Files that grow by whole lines or records: see durable.h. */
#include "formats/run/durable.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/base/bytes.h"
#include "lib/base/files.h"
#include "lib/base/hash.h"
#include "lib/base/json.h"
#include "lib/base/memory.h"
#include "lib/base/text_lines.h"

ckvc_status durable_lock(const char *path, int operation, int *fd, bool *busy, ckvc_err *err) {
    struct stat held;
    do {
        ckvc_close_at(fd);
        CKVC_TRY(ckvc_open_kept(path, fd, err));
        *busy = flock(*fd, operation | LOCK_NB) != 0;
        CKVC_FAIL_ERRNO_IF(*busy && errno != EWOULDBLOCK, err, CKVC_E_SYSTEM,
                           "%s: this file system gives no lock; write to another one", path);
        /* A lock means nothing on a file that its last holder has removed meanwhile. */
    } while (fstat(*fd, &held) == 0 && held.st_nlink == 0);
    return CKVC_OK;
}

static ckvc_status write_synced(int fd, const char *path, uint64_t at, const uint8_t *bytes,
                                size_t n, ckvc_err *err) {
    struct stat info;
    CKVC_FAIL_IF(
        fstat(fd, &info) != 0 || (uint64_t)info.st_size < at, err, CKVC_E_IO,
        "%s: is shorter than the %llu bytes written to it; has another program touched it?", path,
        (unsigned long long)at);
    CKVC_FAIL_ERRNO_IF((uint64_t)info.st_size > at && ftruncate(fd, (off_t)at) != 0, err, CKVC_E_IO,
                       "%s: the torn end at byte %llu cannot be cut off", path,
                       (unsigned long long)at);
    for (size_t put = 0; put < n;) {
        const ssize_t got = pwrite(fd, bytes + put, n - put, (off_t)(at + put));
        if (got < 0 && errno == EINTR) { continue; }
        CKVC_FAIL_ERRNO_IF(got <= 0, err, CKVC_E_IO, "%s: writing failed at byte %llu", path,
                           (unsigned long long)at + put);
        put += (size_t)got;
    }
    CKVC_FAIL_ERRNO_IF(fsync(fd) != 0, err, CKVC_E_IO, "%s: cannot sync", path);
    if (at > 0) { return CKVC_OK; }
    /* the file is new, and its name must be durable as well */
    CKVC_AUTO_FREE char *dir = ckvc_path_dir(path);
    return ckvc_fsync_dir(dir, err);
}

ckvc_status durable_append(const char *path, uint64_t *size, const uint8_t *bytes, size_t n,
                           ckvc_err *err) {
    CKVC_TRY(ckvc_maps_check(err));
    CKVC_AUTO(ckvc_close_at) int fd = -1;
    CKVC_TRY(ckvc_open_kept(path, &fd, err));
    const ckvc_status st = write_synced(fd, path, *size, bytes, n, err);
    if (st == CKVC_OK) {
        *size += n;
    } else if (ftruncate(fd, (off_t)*size) != 0) {
        /* readers drop a line that is cut off, and the first error is the one to report */
        errno = 0;
    }
    return st;
}

#define MAX_LINES_BYTES ((size_t)256 << 20)

ckvc_status durable_read_lines(const char *path, durable_line_fn fn, void *ctx, uint64_t *size,
                               ckvc_err *err) {
    *size = 0;
    if (!ckvc_file_exists(path)) { return CKVC_OK; }
    CKVC_AUTO_FREE char *text = NULL;
    size_t n;
    CKVC_TRY(ckvc_file_read(path, MAX_LINES_BYTES, &text, &n, err));
    for (ckvc_lines at = ckvc_lines_of(text, n); ckvc_next_line(&at) && at.ended;) {
        json_auto_t *line = NULL;
        ckvc_err why = {0};
        if (ckvc_json_parse(at.text, at.n, path, &line, &why) != CKVC_OK) {
            /* the line was cut off, and a newline stands behind a hole */
            if (at.next == at.end) { break; }
            return ckvc_fail(
                err, CKVC_E_DATA,
                "%s:%u: damaged line (not valid JSON); the run cannot be trusted from here on",
                path, at.number);
        }
        CKVC_FAIL_IF(!json_is_object(line), err, CKVC_E_DATA, "%s:%u: not a JSON object", path,
                     at.number);
        CKVC_TRY(fn(ctx, line, at.number, err));
        *size = (uint64_t)(at.next - text);
    }
    return CKVC_OK;
}

ckvc_status durable_append_json(const char *path, uint64_t *size, const json_t *line,
                                ckvc_err *err) {
    CKVC_AUTO(ckvc_buffer_fini) ckvc_buffer text = {0};
    ckvc_json_append(&text, line);
    ckvc_buffer_u8(&text, '\n');
    return durable_append(path, size, text.data, text.size, err);
}

/* ---- prompt logs ---- */
#define MAX_LOG_BYTES ((size_t)4 << 30)

void prompt_log_free(prompt_log *log) {
    CKVC_FREE(log->bytes, log->records);
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
        /* File systems leave a hole of zeros after a power cut. It reads as length 0 with the CRC
         * that is right for it, so that length 0 must be refused. */
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
