/* What readers of result lines share (scores.c, answers.c): one JSON object a line, its keys into
 * the members of a row. What is wrong is CKVC_E_DATA with "FILE:LINE: ...". */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "formats/setting/setting.h"
#include "lib/base/status.h"

typedef struct row_reader {
    const char *path;
    uint32_t line; /* 1-based */
    json_t *o;     /* the line's object */
    ckvc_err *err;
} row_reader;

/* A rule of a line. */
#define ROW_MUST(r, holds, fmt, ...)                                                               \
    CKVC_FAIL_IF(!(holds), (r)->err, CKVC_E_DATA, "%s:%u: " fmt, (r)->path, (r)->line, __VA_ARGS__)
/* Refuses what stands under the key. */
ckvc_status row_wrong(const row_reader *r, const char *key, const char *wanted);

typedef enum row_type {
    ROW_TEXT,         /* char *, the row's to free */
    ROW_TEXT_OR_NULL, /* null: NULL */
    ROW_TEXT_IF_ANY,  /* or missing: NULL */
    ROW_COUNT,        /* uint32_t */
    ROW_COUNT_OR_0,   /* null or missing: 0 */
    ROW_BIN,          /* int32_t, null or missing: -1 */
    ROW_REAL,         /* double */
    ROW_REAL_OR_NULL, /* null: NaN */
    ROW_REAL_IF_ANY,  /* or missing: NaN */
    ROW_OWN           /* from here on the reader's own */
} row_type;

typedef struct row_column {
    const char *key;
    int type; /* row_type, or ROW_OWN + k */
    size_t offset;
} row_column;

/* The column's value, not of an own type, into the row. */
ckvc_status row_get(const row_reader *r, const row_column *c, void *row) CKVC_MUST_CHECK;
/* Under which setting the row was made: keys that are neutral when absent. */
ckvc_status row_get_setting(const row_reader *r, setting *out) CKVC_MUST_CHECK;

/* Whose lines they are. */
typedef struct row_kind {
    const char *verb; /* "ckvc score" */
    const row_column *columns;
    size_t n_columns;
    bool (*is_other)(const char *key, const json_t *value); /* a key that is no column */
    /* One line, whose keys are known, into the list. */
    ckvc_status (*read)(const row_reader *r, void *list);
    /* Of pointers to two rows: 0 where only one of them may stand in a file. */
    int (*compare)(const void *, const void *);
} row_kind;
/* Every line of the file `path`, whose bytes are given; one at least, each at most 64 MiB. */
ckvc_status rows_read(const row_kind *kind, const char *path, const void *data, size_t n,
                      void *list, ckvc_err *err) CKVC_MUST_CHECK;
/* Whose lines a file holds, by the keys of its first one: "score", "eval"; NULL: nobody's that are
 * read here. */
const char *rows_verb(const char *path);
/* Are there two of n rows of `size` bytes that compare as equal? Which, the earlier one first. */
bool rows_repeat(const row_kind *kind, const void *rows, size_t n, size_t size,
                 const void *pair[2]);
