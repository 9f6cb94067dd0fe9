/* A durable file of lines or records. One process at a time appends to it, and what was appended is
 * never lost, at whatever byte that process is killed. A run's journal and its prompt logs are such
 * files, and so is the file from which `score --out` and `eval --out` go on (durable_output.h). */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/status.h"

/* Opens `path`, creates it if it is missing, and tries to take a lock on it. `operation` is LOCK_EX
 * or LOCK_SH of flock. The call does not wait: *busy tells whether another process holds a lock
 * that is in the way, and the caller decides what to say of that. The lock is held as long as *fd
 * is open. *fd must be -1 before the call, and is the caller's to close, also after a failure. */
ckvc_status durable_lock(const char *path, int operation, int *fd, bool *busy,
                         ckvc_err *err) CKVC_MUST_CHECK;

/* Writes n bytes at *size, syncs the file (and its folder as well when *size is 0), and moves *size
 * behind them. Whatever stood behind *size was left by a process that was killed in its last line,
 * and is cut off first. After a failure the file ends at *size again, as far as the system
 * allows. */
ckvc_status durable_append(const char *path, uint64_t *size, const uint8_t *bytes, size_t n,
                           ckvc_err *err) CKVC_MUST_CHECK;
/* Appends one line of canonical JSON in the same way. */
ckvc_status durable_append_json(const char *path, uint64_t *size, const json_t *line,
                                ckvc_err *err) CKVC_MUST_CHECK;

/* A function that is called for each whole line. */
typedef ckvc_status (*durable_line_fn)(void *ctx, const json_t *line, uint32_t number,
                                       ckvc_err *err);
/* Reads the JSON objects of all lines; a missing file has none. The last line is dropped when it
 * has no newline or is no JSON, because then its writer was killed. Any other bad line is
 * CKVC_E_DATA with its number. *size becomes the number of bytes of the good lines, behind which
 * durable_append goes on. */
ckvc_status durable_read_lines(const char *path, durable_line_fn fn, void *ctx, uint64_t *size,
                               ckvc_err *err) CKVC_MUST_CHECK;

/* The prompt logs of a run (formats/run/run.md, "shard-NNNNN.log"). One log stands beside each
 * shard that is not published yet, and holds the prompts that are finished. A record is a u32
 * length, a u32 CRC-32 and the payload. */
#define PROMPT_LOG_MAX_RECORD ((uint32_t)1 << 30)

typedef struct prompt_log_record {
    /* its number in the plan; first member, because records are ordered by it */
    uint32_t prompt;
    const uint8_t *rows; /* the bytes of shard_encode; they point into prompt_log.bytes */
    size_t n;
    uint64_t offset; /* the record's offset in the file */
} prompt_log_record;

typedef struct prompt_log {
    char *bytes;
    prompt_log_record *records;
    size_t n_records, capacity;
    uint64_t size;    /* how many bytes the whole records take */
    uint64_t dropped; /* how many bytes stand behind them, left by an append that was cut short */
} prompt_log;

/* Reads the records up to the first that is short or damaged. A missing file is an empty log. */
ckvc_status prompt_log_read(const char *path, prompt_log *out, ckvc_err *err) CKVC_MUST_CHECK;
void prompt_log_free(prompt_log *log);

/* Appends one record durably at *size, and moves *size. */
ckvc_status prompt_log_append(const char *path, uint64_t *size, uint32_t prompt,
                              const uint8_t *rows, size_t n, ckvc_err *err) CKVC_MUST_CHECK;
