/* The journal of a run: see run_journal.h. */
#include "formats/run/run_journal.h"

#include <stdlib.h>
#include <string.h>

#include "formats/run/durable_append.h"
#include "lib/base/buffer.h"
#include "lib/base/files.h"
#include "lib/base/json.h"
#include "lib/base/memory.h"

#define MAX_JOURNAL_BYTES ((size_t)256 << 20)

ckvc_status journal_read(const char *path, journal_line_fn fn, void *ctx, uint64_t *size,
                         ckvc_err *err) {
    *size = 0;
    if (!ckvc_file_exists(path)) { return CKVC_OK; }
    char *text;
    size_t n, at = 0;
    ckvc_status st = ckvc_file_read(path, MAX_JOURNAL_BYTES, &text, &n, err);
    for (uint32_t number = 1; st == CKVC_OK && at < n; number++) {
        const char *end = memchr(text + at, '\n', n - at);
        if (!end) { break; /* torn */ }
        size_t length = (size_t)(end - (text + at));
        json_t *line = NULL;
        ckvc_err why = {0};
        if (ckvc_json_parse(text + at, length, path, &line, &why) != CKVC_OK) {
            if (at + length + 1 == n) { break; /* torn, with a newline behind a hole */ }
            st = ckvc_fail(
                err, CKVC_E_DATA,
                "%s:%u: damaged line (not valid JSON); the run cannot be trusted from here on",
                path, number);
        } else if (!json_is_object(line)) {
            st = ckvc_fail(err, CKVC_E_DATA, "%s:%u: not a JSON object", path, number);
        } else {
            st = fn(ctx, line, number, err);
        }
        json_decref(line);
        at += length + 1;
    }
    if (st == CKVC_OK) { *size = at; }
    free(text);
    return st;
}

ckvc_status journal_append(const char *path, uint64_t *size, const json_t *line, ckvc_err *err) {
    ckvc_buffer text = {0};
    ckvc_json_append(&text, line);
    ckvc_buffer_u8(&text, '\n');
    if (text.failed) {
        ckvc_buffer_fini(&text);
        return ckvc_fail_memory(err, "a journal line", 256);
    }
    ckvc_status st = durable_append(path, size, text.data, text.size, err);
    ckvc_buffer_fini(&text);
    return st;
}
