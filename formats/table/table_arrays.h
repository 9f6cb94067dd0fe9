/* A table's sections as named arrays: what other containers (formats/export) hold of it. A table
 * that comes back from them passes every check that a file's reader makes. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/buffer.h"
#include "lib/base/status.h"
#include "lib/policy/ckvc_policy.h"

struct table_file;

enum { CKVT_RANK_MAX = 5, TABLE_ARRAYS_MAX = 32 };
typedef enum ckvt_type {
    CKVT_BYTES,
    CKVT_F32,
    CKVT_F64,
    CKVT_U32,
    CKVT_U64,
    CKVT_TYPE_COUNT
} ckvt_type;
size_t ckvt_type_bytes(ckvt_type type);

typedef struct table_array {
    char name[9]; /* of the section, or FLAGS: u64 [1], the header's incompatible flags */
    ckvt_type type;
    uint16_t rank;
    uint64_t dims[CKVT_RANK_MAX];
    const uint8_t *data; /* little-endian, row-major, type size x dims bytes; a JSON section's text
                            is canonical */
    size_t bytes;
    bool evidence; /* what a fit saw: nothing that keeps a set reads it */
} table_array;

typedef struct table_arrays {
    table_array items[TABLE_ARRAYS_MAX];
    size_t n;
    uint8_t flags[8];
    ckvc_buffer memory; /* of all other data; CKVC_AUTO(table_arrays_fini) */
} table_arrays;

/* All sections but pROV, which tells of a machine and a command line, and FLAGS last. `out` points
 * into itself and stays where it is. */
void table_file_arrays(struct table_file *t, table_arrays *out);
void table_arrays_fini(table_arrays *a);
/* A table from arrays in any order; `where` names their file in messages. Refused are names that
 * are no section's, names that come twice, and whatever table_file_read refuses. */
ckvc_status table_file_from_arrays(const char *where, const table_array *items, size_t n,
                                   struct table_file **out, ckvc_err *err) CKVC_MUST_CHECK;
