/* The journal of a run: see run_journal.h. */
#include "formats/run/run_journal.h"

#include "formats/run/durable_append.h"
#include "lib/base/buffer.h"
#include "lib/base/files.h"
#include "lib/base/json.h"
#include "lib/base/memory.h"
#include "lib/base/text_lines.h"

#define MAX_JOURNAL_BYTES ((size_t)256 << 20)

ckvc_status journal_read(const char *path, journal_line_fn fn, void *ctx, uint64_t *size,
                         ckvc_err *err) {
    *size = 0;
    if (!ckvc_file_exists(path)) { return CKVC_OK; }
    CKVC_AUTO_FREE char *text = NULL;
    size_t n;
    CKVC_TRY(ckvc_file_read(path, MAX_JOURNAL_BYTES, &text, &n, err));
    for (ckvc_lines at = ckvc_lines_of(text, n); ckvc_next_line(&at) && at.ended;) {
        json_auto_t *line = NULL;
        ckvc_err why = {0};
        if (ckvc_json_parse(at.text, at.n, path, &line, &why) != CKVC_OK) {
            if (at.next == at.end) { break; /* torn, with a newline behind a hole */ }
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

ckvc_status journal_append(const char *path, uint64_t *size, const json_t *line, ckvc_err *err) {
    CKVC_AUTO(ckvc_buffer_fini) ckvc_buffer text = {0};
    ckvc_json_append(&text, line);
    ckvc_buffer_u8(&text, '\n');
    return durable_append(path, size, text.data, text.size, err);
}
