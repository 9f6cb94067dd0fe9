/* Appending to a file so that what was appended before is never lost: the prompt logs and the
 * journal of a run. */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <jansson.h>

#include "lib/base/status.h"

/* Writes n bytes at *size (what stands behind it, a torn append, is cut off first), syncs the file,
 * and its folder when *size is 0; then moves *size. After a failure the file ends at *size again,
 * as far as the system lets us. */
ckvc_status durable_append(const char *path, uint64_t *size, const uint8_t *bytes, size_t n,
                           ckvc_err *err) CKVC_MUST_CHECK;

/* journal.jsonl: one canonical JSON object a line, appended and synced (formats/run/run.md). */
/* Called for each whole line. */
typedef ckvc_status (*journal_line_fn)(void *ctx, const json_t *line, uint32_t number,
                                       ckvc_err *err);

/* Reads all lines; a missing file has none. The last line is dropped when it has no newline or is
 * no JSON: a torn append. Any other bad line is CKVC_E_DATA with its number. *size: bytes of the
 * good lines. */
ckvc_status journal_read(const char *path, journal_line_fn fn, void *ctx, uint64_t *size,
                         ckvc_err *err) CKVC_MUST_CHECK;
/* Appends one line durably (run_append.h). */
ckvc_status journal_append(const char *path, uint64_t *size, const json_t *line,
                           ckvc_err *err) CKVC_MUST_CHECK;

/* The durable log of finished prompts beside an unfinished shard (formats/run/run.md): u32 length,
 * u32 CRC-32, payload; again. */
#define PROMPT_LOG_MAX_RECORD ((uint32_t)1 << 30)

typedef struct prompt_log_record {
    uint32_t prompt;     /* number in the plan; first: records are ordered by it */
    const uint8_t *rows; /* shard_encode's bytes; into prompt_log.bytes */
    size_t n;
    uint64_t offset; /* of the record in the file */
} prompt_log_record;

typedef struct prompt_log {
    char *bytes;
    prompt_log_record *records;
    size_t n_records, capacity;
    uint64_t size;    /* bytes of whole records */
    uint64_t dropped; /* bytes behind them: a torn append */
} prompt_log;

/* Reads the records up to the first that is short or damaged. A missing file is an empty log. */
ckvc_status prompt_log_read(const char *path, prompt_log *out, ckvc_err *err) CKVC_MUST_CHECK;
void prompt_log_free(prompt_log *log);

/* Appends one record durably (run_append.h). */
ckvc_status prompt_log_append(const char *path, uint64_t *size, uint32_t prompt,
                              const uint8_t *rows, size_t n, ckvc_err *err) CKVC_MUST_CHECK;
