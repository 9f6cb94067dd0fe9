/* Inside the shard module: caps, the columns of the three row structs, checks, and the header as
 * bytes.
 *
 * The column tables are the one place where a row's field meets its name and type in the file: the
 * writer, both readers and the documentation (shard.md) follow them.
 */
#ifndef CKVC_SHARD_ROWS_H
#define CKVC_SHARD_ROWS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "formats/shard/shard_h5.h"
#include "lib/base/bytes.h"

/* What one shard file may hold; a run cuts its prompts into shards long before any of them. */
#define SHARD_MAX_PROMPTS   ((size_t)1 << 20)
#define SHARD_MAX_BASELINES ((size_t)1 << 22)
#define SHARD_MAX_RECORDS   ((size_t)1 << 24)
#define SHARD_MAX_LAYERS    1024u
#define SHARD_MAX_HEADS     1024u
#define SHARD_MAX_BUDGETS   256u
#define SHARD_MAX_ACTIONS   256u /* record/action is one byte */
#define SHARD_MAX_BINS      1024u
#define SHARD_MAX_TABLE                                                                            \
    ((size_t)1 << 24) /* entries of start_weight, start_tau, and values of a [rows, L, G] column   \
                       */
#define SHARD_MAX_LAYER_VALUES ((size_t)1 << 24) /* values of a [rows, L] column */
#define SHARD_CHUNK            65536u

typedef enum shard_type {
    SHARD_U8,
    SHARD_U16,
    SHARD_U32,
    SHARD_U64,
    SHARD_F32,
    SHARD_F64,
    SHARD_TEXT
} shard_type;
size_t shard_type_size(shard_type type);

typedef struct shard_column {
    const char *name;
    shard_type type;
    size_t offset; /* in the row struct */
    bool required; /* of foreign shards too */
} shard_column;

/* A column with a row of L or L*G values; all of them optional in foreign shards. */
typedef struct shard_wide {
    const char *name;
    shard_type type; /* SHARD_U32 or SHARD_F64 */
    size_t offset;   /* of its pointer in struct shard */
    int rank;        /* 2: [rows, L]; 3: [rows, L, G] */
} shard_wide;

typedef struct shard_group {
    const char *name;
    const shard_column *columns;
    size_t n_columns;
    const shard_wide *wide;
    size_t n_wide;
    bool wide_scan_only;
    size_t row_size;
    size_t rows_offset, count_offset; /* in struct shard: the array's pointer, its number of rows */
    size_t max_rows;
} shard_group;

#define SHARD_GROUPS 3
extern const shard_group shard_groups[SHARD_GROUPS]; /* prompt, baseline, record */

/* Root attributes that are text or u32, by offset in shard_header. */
typedef struct shard_attribute {
    const char *name;
    size_t offset;
    size_t size;   /* text: the field's bytes; u32: 0 */
    bool optional; /* a foreign shard may lack it; an optional text is written only when it says
                      something */
} shard_attribute;
#define SHARD_TEXT_ATTRIBUTES 11
#define SHARD_U32_ATTRIBUTES  6
extern const shard_attribute shard_text_attributes[SHARD_TEXT_ATTRIBUTES];
extern const shard_attribute shard_u32_attributes[SHARD_U32_ATTRIBUTES];

/* Root attributes that are arrays. The length follows from counts in the header (dims; unused are
 * 1) except where `counted`: then the attribute's own length + `extra` sets *count. */
typedef struct shard_array {
    const char *name;
    shard_type type;
    size_t offset;       /* of its pointer in shard_header */
    size_t count_offset; /* of the u32 that counts it, for the 1-D ones */
    uint32_t extra;      /* 1 for edges: E-1 of them */
    bool table;          /* start_weight, start_tau */
    bool optional;       /* may be missing: its count is then 0 */
} shard_array;
#define SHARD_ARRAYS 8
extern const shard_array shard_arrays[SHARD_ARRAYS];
/* Dims of an array attribute under this header; returns the rank, 0 when the attribute is absent
 * (its count is zero). */
int shard_array_dims(const shard_header *h, const shard_array *a, size_t dims[4]);

bool shard_is_scan(const shard_header *h);
/* Makes room for n_* rows in all arrays of the group (0 prompt, 1 baseline, 2 record); new rows are
 * not yet counted. */
ckvc_status shard_reserve(shard *s, int group, size_t rows, ckvc_err *err) CKVC_MUST_CHECK;

/* Every value against the format and the header; `where` names the file. CKVC_E_DATA. */
ckvc_status shard_header_check(const shard_header *h, const char *where,
                               ckvc_err *err) CKVC_MUST_CHECK;
ckvc_status shard_rows_check(const shard *s, const char *where, ckvc_err *err) CKVC_MUST_CHECK;

void shard_header_encode(const shard_header *h, ckvc_buffer *out);
/* Into a zeroed header; on failure nothing is owned. */
ckvc_status shard_header_decode(shard_header *h, ckvc_cursor *c, ckvc_err *err) CKVC_MUST_CHECK;

/* The HDF5 file in memory. HDF5 never writes to a disk of ours: a full disk meets plain write()
 * instead of a library that cannot close its file. *out is the caller's to free. */
ckvc_status shard_h5_image(const shard *s, uint8_t **out, size_t *n, ckvc_err *err) CKVC_MUST_CHECK;
/* Reads such an image; `path` is for messages. */
ckvc_status shard_h5_read_image(const uint8_t *bytes, size_t n, const char *path, shard **out,
                                ckvc_err *err) CKVC_MUST_CHECK;
/* Reads the file at path with HDF5 in this process, as a foreign one: optional columns may be
 * missing. */
ckvc_status shard_h5_read_foreign(const char *path, shard **out, ckvc_err *err) CKVC_MUST_CHECK;
/* shard_h5_read_hostile with its limits named: CPU seconds and wall-clock seconds of the child. */
ckvc_status shard_h5_read_limited(const char *path, unsigned cpu_s, unsigned wall_s, shard **out,
                                  ckvc_err *err) CKVC_MUST_CHECK;

#endif
