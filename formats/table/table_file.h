/* The .ckvt table file (formats/table/table.md): its reader, which checks everything, its writer,
 * and the evidence that a fit leaves in the file. */
#pragma once

#include <jansson.h>
#include <stdbool.h>

#include "formats/side/side.h"
#include "lib/base/cache_format.h"
#include "lib/base/hash.h"
#include "lib/base/memory.h"
#include "lib/base/names.h"
#include "lib/base/status.h"
#include "lib/policy/policy_parts.h"

/* What the fit saw of a side (formats/side/side.h). Each array is [n_states][A]. The arrays are all
 * present or all NULL, except `l` and `share`, which may be missing by themselves. */
typedef struct table_evidence {
    double *q;   /* Q values in the fit's units; -inf where an action was never logged */
    uint64_t *n; /* how many records each state and action has */
    double *m;   /* mean rewards in the fit's units */
    /* the mean loss part of the rewards in the fit's units; NULL where no penalty is paid */
    double *l;
    float *share; /* sHEAD, sGATE: the share of bootstrap refits, 0 to 1; NULL when not there */
} table_evidence;

typedef struct table_file {
    ckvc_table *table;                        /* owned */
    table_evidence evidence[CKVC_SIDE_COUNT]; /* owned arrays */
    bool has_evidence;
    /* sSHARE [L][G][nB][2]: the bootstrap interval of each share, low and high; NULL when not
     * there */
    double *share_interval;
    double *signature;           /* hSIG [L][G][3]; NULL when not there */
    json_t *meta;                /* META, an object, which the file owns */
    json_t *prov, *xfer, *model; /* pROV, xFER and mODEL, each owned; NULL when not there */
    char content_id[CKVC_SHA256_HEX];
} table_file;

/* Makes a file around a table, which it takes and which may have shares (ckvc_table_add_shares).
 * META is then {}; with_evidence adds evidence arrays, which are zero, with Q at -inf. Returns NULL
 * when `table` is NULL or its evidence would overflow. */
table_file *table_file_around(ckvc_table *table, bool with_evidence);
void table_file_free(table_file *t);
/* Returns the model's sketch that stands in mODEL (lib/base/sketch.h), or "" when there is none. */
const char *table_file_sketch(const table_file *t);
void table_file_set_sketch(table_file *t, const char *sketch);
CKVC_AUTO_OF(table_file, table_file_free)

/* Reads a file and checks everything that table.md lists; a message names the byte or the
 * section. */
ckvc_status table_file_read(const char *path, table_file **out, ckvc_err *err) CKVC_MUST_CHECK;
/* Writes the file atomically and sets t->content_id. It puts into META the keys that repeat SHAPE,
 * from the table itself; the caller has put in the other keys. It first checks the table by the
 * reader's rules; a breach is CKVC_E_BUG that names the section. */
ckvc_status table_file_write(table_file *t, const char *path, bool force,
                             ckvc_err *err) CKVC_MUST_CHECK;

/* How what the table keeps under budget number b is held; in float32 where it has no formats. */
cache_formats table_file_held(const table_file *t, uint32_t b);
/* Leaves the table the blocks of n of its budgets, whose numbers `take` has in ascending order,
 * with what META says of each. */
void table_file_take_budgets(table_file *t, const uint32_t *take, uint32_t n);

/* Describes a table for `ckvc inspect`: a summary object, or with `cells` every section as nested
 * lists under its name. Returns a new reference. */
json_t *table_file_describe(const table_file *t, bool cells);
