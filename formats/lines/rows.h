/* What the readers of result lines share (scores.c, answers.c). Each line is a JSON object whose
 * keys go into the members of a row. Whatever is wrong is CKVC_E_DATA "FILE:LINE: ...". */
#pragma once

#include <jansson.h>
#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "formats/setting/setting.h"
#include "lib/base/record.h"
#include "lib/base/status.h"

typedef struct row_reader {
    const char *path;
    uint32_t line; /* 1-based */
    json_t *o;     /* the object of the line */
    ckvc_err *err;
} row_reader;

/* States a rule of a line; a line that breaks it is refused. */
#define ROW_MUST(r, holds, fmt, ...)                                                               \
    CKVC_FAIL_IF(!(holds), (r)->err, CKVC_E_DATA, "%s:%u: " fmt, (r)->path, (r)->line, __VA_ARGS__)
/* Refuses the value of a key; `wanted` says what it should be. */
ckvc_status row_wrong(const row_reader *r, const char *key, const char *wanted);

/* What a column holds, for use in a table of record_member: RECORD(score_row, "id", id,
 * ROW_TEXT). */
#define ROW_TEXT         .type = RECORD_OWNED, .wanted = "a string"
#define ROW_TEXT_OR_NULL .type = RECORD_OWNED, .need = RECORD_OR_NULL, .wanted = "a string or null"
#define ROW_TEXT_IF_ANY  .type = RECORD_OWNED, .need = RECORD_IF_ANY, .wanted = "a string or null"
#define ROW_COUNT                                                                                  \
    .type = RECORD_COUNT, .most = UINT32_MAX, .wanted = "a whole number, 0 to 4294967295"
#define ROW_COUNT_OR_0 ROW_COUNT, .need = RECORD_IF_ANY
#define ROW_BIN                                                                                    \
    .type = RECORD_BIN, .most = 65535, .need = RECORD_IF_ANY,                                      \
    .wanted = "a bin number, 0 to 65535, or null"
#define ROW_ANY_REAL     .type = RECORD_REAL, .least = -HUGE_VAL, .most = HUGE_VAL
#define ROW_REAL         ROW_ANY_REAL, .wanted = "a number"
#define ROW_REAL_OR_NULL ROW_ANY_REAL, .need = RECORD_OR_NULL, .wanted = "a number or null"
#define ROW_REAL_IF_ANY  ROW_ANY_REAL, .need = RECORD_IF_ANY, .wanted = "a number or null"

/* Reads the column's value into the row. The column's type must not be one of the reader's own. */
ckvc_status row_get(const row_reader *r, const record_member *column, void *row) CKVC_MUST_CHECK;
/* Reads the setting under which the row was made; a missing key is neutral. */
ckvc_status row_get_setting(const row_reader *r, setting *out) CKVC_MUST_CHECK;

/* The lines of one verb, and how they are read. */
typedef struct row_kind {
    const char *verb; /* "ckvc score" */
    const record_member *columns;
    size_t n_columns;
    /* whether the line may have this key although it is no column */
    bool (*is_other)(const char *key, const json_t *value);
    /* Reads one line, whose keys are known, into the list. */
    ckvc_status (*read)(const row_reader *r, void *list);
    /* Compares two rows by pointers to them; 0 says that only one of them may stand in a file. */
    int (*compare)(const void *, const void *);
} row_kind;
/* Reads every line of the file `path`, whose bytes are given. It must have one line at least, and
 * none above 64 MiB. */
ckvc_status rows_read(const row_kind *kind, const char *path, const void *data, size_t n,
                      void *list, ckvc_err *err) CKVC_MUST_CHECK;
/* Tells whose lines a file holds, by the keys of its first line: "score" or "eval", or NULL when it
 * is of no verb that is read here. */
const char *rows_verb(const char *path);
/* Tells whether two of n rows of `size` bytes compare as equal. `pair` then points to them, the
 * earlier one first. */
bool rows_repeat(const row_kind *kind, const void *rows, size_t n, size_t size,
                 const void *pair[2]);
