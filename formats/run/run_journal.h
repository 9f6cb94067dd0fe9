/* journal.jsonl: one canonical JSON object a line, appended and synced (formats/run/run.md). */
#pragma once

#include <jansson.h>
#include <stdint.h>

#include "lib/base/status.h"

/* Called for each whole line. */
typedef ckvc_status (*journal_line_fn)(void *ctx, const json_t *line, uint32_t number,
                                       ckvc_err *err);

/* Reads all lines; a missing file has none. The last line is dropped when it has no newline or is
 * no JSON: a torn append. Any other bad line is CKVC_E_DATA with its number. *size: bytes of the
 * good lines. */
ckvc_status journal_read(const char *path, journal_line_fn fn, void *ctx, uint64_t *size,
                         ckvc_err *err) CKVC_MUST_CHECK;
/* Appends one line durably (durable_append.h). */
ckvc_status journal_append(const char *path, uint64_t *size, const json_t *line,
                           ckvc_err *err) CKVC_MUST_CHECK;
