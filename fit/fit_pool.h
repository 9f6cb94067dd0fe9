/* What a fit reads: run directories and bare shards, pooled into sufficient statistics (formats.md,
 * "What one fit may pool").
 *
 * Shards are read one at a time and forgotten. Sources are taken in sorted order and sums are
 * exact, so the order in which they were named never shows. Internal to fit. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "budgets/demand_shares.h"
#include "budgets/learned_score.h"
#include "fit/fit_result.h"
#include "formats/run/prompt_records.h"
#include "formats/lines/leak_record.h"
#include "formats/shard/shard.h"

/* What a pass may log: a side, demand, what a learned ranking is fitted to. */
enum { POOL_DEMAND = CKVC_SIDE_COUNT, POOL_SCORE, POOL_KINDS };

typedef struct fit_pool {
    const fit_options *options; /* borrowed */
    /* The first shard of a side, and its header: model, grids, budgets, edges. Of demand alone they
     * are what its table is shaped by (fit_pool.c). */
    char *where;
    shard_header first;
    side_records sides[CKVC_SIDE_COUNT];
    bool score_passes; /* a run has one: features that demand passes logged stay out */
    demand_records demand;
    learned_records learned;
    json_t *plans, *passes; /* lists of their names, as they come */
    json_t *stable;         /* how --until-stable ended the passes that had it; NULL: none did */
    uint64_t n_heldout, n_filtered, n_duplicates; /* prompts left out, as fit_result has them */
    json_t *seen_at; /* token hash and id of a prompt -> its place in seen */
    struct fit_seen *seen;
    size_t n_seen, cap_seen;
    head_signature scanned;  /* sums over scanned prompts, hold-out left out */
    head_signature demanded; /* the same of demand passes */
    table_leaks leaks;
} fit_pool;

/* Reads everything. The pool is to be released in every case. */
ckvc_status fit_pool_read(fit_pool *pool, const char *const *paths, size_t n_paths,
                          const fit_options *o, ckvc_err *err) CKVC_MUST_CHECK;
void fit_pool_fini(fit_pool *pool);
/* Names the first field in which two headers may not be pooled, with both values. The start tables
 * and, where the side pays one, the penalty are compared too of a side, side >= 0; what a learned
 * ranking is fitted to of POOL_SCORE. Scan shards have no
 * tables: only the model and the window are compared; of demand and records, the model and the
 * budgets. */
ckvc_status fit_match(const shard_header *a, const char *a_where, const shard_header *b,
                      const char *b_where, int side, ckvc_err *err) CKVC_MUST_CHECK;
