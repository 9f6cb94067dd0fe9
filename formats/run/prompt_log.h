/* The durable log of finished prompts beside an unfinished shard (formats/run/run.md): u32 length,
 * u32 CRC-32, payload; again. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "lib/base/status.h"

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

/* Appends one record durably (durable_append.h). */
ckvc_status prompt_log_append(const char *path, uint64_t *size, uint32_t prompt,
                              const uint8_t *rows, size_t n, ckvc_err *err) CKVC_MUST_CHECK;
