/* What a fit reads: run directories and bare shards, which are pooled into sufficient statistics
 * (formats.md, "What one fit may pool").
 *
 * Shards are read one at a time and are then forgotten. Sources are taken in sorted order and sums
 * are exact, so the order in which they were named never shows. Internal to fit. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "budgets/bank.h"
#include "budgets/demand_shares.h"
#include "budgets/learned_score.h"
#include "fit/fit_result.h"
#include "formats/run/prompt_records.h"
#include "formats/lines/leak_record.h"
#include "formats/shard/shard.h"

/* What a pass may log: a side, demand, or what a learned ranking is fitted to. */
enum { POOL_DEMAND = CKVC_SIDE_COUNT, POOL_SCORE, POOL_KINDS };

typedef struct fit_pool {
    const fit_options *options; /* borrowed */
    /* Where the first shard of a side is from, and its header: model, grids, budgets, edges. Where
     * there is demand alone, they are those from which its table gets its shape (fit_pool.c). */
    char *where;
    shard_header first;
    side_records sides[CKVC_SIDE_COUNT];
    /* Whether a run has a score pass. Then the features that demand passes logged are left out. */
    bool score_passes;
    demand_records demand;
    bank_records bank; /* of the prompts in `demand` */
    learned_records learned;
    /* lists of the hashes of plans and of the names of passes, in the order in which they are read
     */
    json_t *plans, *passes;
    json_t *stable; /* how --until-stable ended the passes that had it; NULL: no pass had it */
    /* counts of prompts that were left out, as in fit_result */
    uint64_t n_heldout, n_filtered, n_duplicates;
    json_t *seen_at; /* maps a prompt's token hash and id to its index in `seen` */
    struct fit_seen *seen;
    size_t n_seen, cap_seen;
    head_signature scanned;  /* sums over scanned prompts that are not held out */
    head_signature demanded; /* the same sums over prompts of demand passes */
    table_leaks leaks;
} fit_pool;

/* Reads everything. The caller calls fit_pool_fini in every case. */
ckvc_status fit_pool_read(fit_pool *pool, const char *const *paths, size_t n_paths,
                          const fit_options *o, ckvc_err *err) CKVC_MUST_CHECK;
void fit_pool_fini(fit_pool *pool);
/* Fails where two headers may not be pooled, and names the first field in which they differ, with
 * both values. Where `side` is a ckvc_side, the start tables are compared too and, where the side
 * pays one, the penalty. Where it is POOL_SCORE, what a learned ranking is fitted to is compared.
 * Scan shards have no tables, so only the model and the window are compared. Between demand and
 * records, the model and the budgets are compared. */
ckvc_status fit_match(const shard_header *a, const char *a_where, const shard_header *b,
                      const char *b_where, int side, ckvc_err *err) CKVC_MUST_CHECK;
