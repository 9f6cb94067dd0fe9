/* The .ckvt table file (formats/table/table.md): full reader with every check, writer, and the
 * evidence that a fit leaves in it. */
#pragma once

#include <jansson.h>
#include <stdbool.h>

#include "formats/side/side.h"
#include "lib/base/hash.h"
#include "lib/base/memory.h"
#include "lib/base/names.h"
#include "lib/base/status.h"
#include "lib/policy/policy_parts.h"

/* What the fit saw of a side (formats/side/side.h), [n_states][A]: all there, or all NULL, but for
 * `l` and `share`. */
typedef struct table_evidence {
    double *q;    /* in the fit's units, -inf where an action was never logged */
    uint64_t *n;  /* counts */
    double *m;    /* mean rewards, fit's units */
    double *l;    /* mean loss part of the rewards, fit's units; NULL where no penalty is paid */
    float *share; /* sHEAD, sGATE: of bootstrap refits; NULL: not there */
} table_evidence;

typedef struct table_file {
    ckvc_table *table;                        /* owned */
    table_evidence evidence[CKVC_SIDE_COUNT]; /* owned arrays */
    bool has_evidence;
    double *share_interval; /* sSHARE [L][G][nB][2]: bootstrap, low and high; NULL: not there */
    double *signature;      /* hSIG [L][G][3]; NULL: not there */
    json_t *meta;           /* META, an object; owned */
    json_t *prov, *xfer, *model; /* pROV, xFER, mODEL or NULL; owned */
    char content_id[CKVC_SHA256_HEX];
} table_file;

/* A file around a table (taken), which may have shares (ckvc_table_add_shares): META = {}, and
 * evidence arrays (zeroed; Q = -inf) when with_evidence. NULL where there is no table, or its
 * evidence would overflow. */
table_file *table_file_around(ckvc_table *table, bool with_evidence);
void table_file_free(table_file *t);
/* mODEL's sketch of the model (lib/base/sketch.h); "": there is none. */
const char *table_file_sketch(const table_file *t);
void table_file_set_sketch(table_file *t, const char *sketch);
CKVC_AUTO_OF(table_file, table_file_free)

/* Reads and checks everything that table.md lists; messages name the byte or section. */
ckvc_status table_file_read(const char *path, table_file **out, ckvc_err *err) CKVC_MUST_CHECK;
/* Writes atomically; sets t->content_id. META gets the keys that repeat SHAPE from the table
 * itself; the caller has put in the rest. Holds the table against what the reader checks; a breach
 * is CKVC_E_BUG that names the section. */
ckvc_status table_file_write(table_file *t, const char *path, bool force,
                             ckvc_err *err) CKVC_MUST_CHECK;

/* For `ckvc inspect`: a summary object, or with `cells` every section as nested lists under its
 * name. New reference. */
json_t *table_file_describe(const table_file *t, bool cells);
