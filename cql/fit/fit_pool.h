/* What a fit reads: run directories and bare shards, pooled into sufficient statistics (formats.md,
 * "What one fit may pool").
 *
 * Shards are read one at a time and forgotten. Sources are taken in sorted order and sums are
 * exact, so the order in which they were named never shows. Internal to calib/fit_*.c and its test.
 */
#ifndef CKVC_FIT_POOL_H
#define CKVC_FIT_POOL_H

#include <stddef.h>
#include <stdint.h>

#include "cql/fit/fit_leaks.h"
#include "cql/fit/fit_result.h"
#include "cql/solve/adamw.h"
#include "cql/solve/counts.h"
#include "formats/shard/shard_h5.h"
#include "lib/base/names.h"
#include "lib/base/status.h"

/* A record for AdamW, which sees them one by one: sorted by everything before use, so that shards'
 * order does not show. */
typedef struct fit_row {
    uint64_t prompt; /* hash of id and tokens */
    cql_record record;
} fit_row;

typedef struct fit_pool_side {
    shard_header *start; /* header of the first shard with records of this side: its start table;
                            NULL when there is none */
    char *where;         /* that shard's name */
    size_t n_states, n_actions;
    cql_counts *counts; /* states [L][G][nB] or [L][E][P][nB] */
    fit_row *rows;      /* AdamW only */
    size_t n_rows, cap_rows;
    uint64_t n_prompts;
} fit_pool_side;

typedef struct fit_pool {
    const fit_options *options; /* borrowed */
    shard_header *first;        /* header of the first shard: model, grids, budgets, edges */
    char *where;                /* its name */
    fit_pool_side sides[CKVC_SIDE_COUNT];
    char (*plans)[CKVC_SHA256_HEX]; /* sorted, unique */
    size_t n_plans, cap_plans;
    char (*passes)[32]; /* sorted, unique */
    size_t n_passes, cap_passes;
    uint64_t n_heldout, n_filtered,
        n_duplicates;      /* prompts left out: hold-out, --split, seen in an earlier source */
    struct fit_seen *seen; /* open addressing over (id, token hash) */
    size_t n_seen, cap_seen;
    json_t *stable;    /* array: how --until-stable ended the passes that had it; NULL: none did */
    double *signature; /* [L][G][3] sums over scanned prompts; NULL: no scan */
    uint64_t n_signature;
    fit_leaks leaks;
} fit_pool;

/* Reads everything. The pool is to be cleared in every case. */
ckvc_status fit_pool_read(fit_pool *pool, const char *const *paths, size_t n_paths,
                          const fit_options *o, ckvc_err *err) CKVC_MUST_CHECK;
void fit_pool_clear(fit_pool *pool);

/* Names the first field in which two headers may not be pooled, with both values; CKVC_OK when
 * there is none. The start table of `side` and, for the gate, lambda are compared too when side >=
 * 0. Scan shards have no tables: only the model and the window are compared. */
ckvc_status fit_pool_check(const shard_header *a, const char *a_where, const shard_header *b,
                           const char *b_where, int side, ckvc_err *err) CKVC_MUST_CHECK;

#endif
