/* A durable file of lines or records: one process at a time appends to it, and what was appended is
 * never lost, at whatever byte that process is killed. A run's journal and its prompt logs
 * are such files, and so is what `score --out` and `eval --out` go on from
 * (durable_output.h). */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/status.h"

/* Opens `path`, makes it if it is missing, and tries to take the lock on it: `operation` is LOCK_EX
 * or LOCK_SH of flock, and nobody is waited for. *busy tells whether another process holds a lock
 * in the way; what to say of that is the caller's to decide. The lock stands as long as *fd, which
 * is -1 before and the caller's to close, also after a failure. */
ckvc_status durable_lock(const char *path, int operation, int *fd, bool *busy,
                         ckvc_err *err) CKVC_MUST_CHECK;

/* Writes n bytes at *size and syncs the file, and its folder as well when *size is 0; then moves
 * *size. What stands behind *size, which is what a killed process wrote of its last line, is cut
 * off first. After a failure the file ends at *size again, as far as the system lets us. */
ckvc_status durable_append(const char *path, uint64_t *size, const uint8_t *bytes, size_t n,
                           ckvc_err *err) CKVC_MUST_CHECK;
/* Appends one line of canonical JSON. */
ckvc_status durable_append_json(const char *path, uint64_t *size, const json_t *line,
                                ckvc_err *err) CKVC_MUST_CHECK;

/* Called for each whole line. */
typedef ckvc_status (*durable_line_fn)(void *ctx, const json_t *line, uint32_t number,
                                       ckvc_err *err);
/* Reads the JSON objects of all lines; a missing file has none. The last line is dropped when it
 * has no newline or is no JSON, because then its writer was killed. Any other bad line is
 * CKVC_E_DATA with its number. *size: bytes of the good lines, behind which durable_append goes
 * on. */
ckvc_status durable_read_lines(const char *path, durable_line_fn fn, void *ctx, uint64_t *size,
                               ckvc_err *err) CKVC_MUST_CHECK;

/* The prompt logs of a run (formats/run/run.md, "shard-NNNNN.log"): one log stands beside each
 * shard that is not published yet, and holds the prompts that are finished. A record is u32 length,
 * u32 CRC-32, payload. */
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

/* Appends one record durably. */
ckvc_status prompt_log_append(const char *path, uint64_t *size, uint32_t prompt,
                              const uint8_t *rows, size_t n, ckvc_err *err) CKVC_MUST_CHECK;
