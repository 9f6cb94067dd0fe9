/* Makes shares of the budget from demand records (formats/shard/shard.md, /prompt/demand). The
 * counts of each prompt are kept, since means, intervals and split halves all come from them. */
#pragma once

#include "budgets/budgets.h"
#include "formats/shard/shard.h"
#include "lib/stats/resample.h"

typedef struct demand_records {
    char *where;        /* where the first shard is from; NULL: none was read */
    shard_header first; /* the header of that shard: model, budgets, floor and recent */
    struct demand_prompt {
        /* of id and tokens. It comes first in the struct, because prompts are sorted by it; sums
         * run in this order. */
        uint64_t hash;
        uint64_t key; /* of the id or of its document, for resampling */
        /* counts are owned: for each weight w, first for w = 0, [nB][L][G] of heads, [nB][L] of
         * layers and [nB][L] of their slots */
        uint32_t n_tokens, *counts;
    } * prompts;
    size_t n_prompts, capacity;
    bool plain;         /* whether there is a prompt that has the counts of w = 0 alone */
    bool without_slots; /* whether there is a prompt whose slots were not counted */
} demand_records;

/* Adds prompt p of a demand shard that, as fit_match found, belongs to those before. `hash` is that
 * of the prompt's id and tokens, and `where` names the shard in messages. The status is
 * CKVC_E_MEMORY beyond `memory_max` bytes of counts. */
ckvc_status demand_records_add(demand_records *d, const shard *s, size_t p, uint64_t hash,
                               size_t memory_max, const char *where, ckvc_err *err) CKVC_MUST_CHECK;
/* Gives the table shares, floors, the recommended ranking and the intervals of the shares. A prompt
 * counts for the budgets that leave a choice in it: those that are shorter than the prompt and
 * above every head's floor. Where no prompt has a choice, shares are 1. mix [nB] is the weight of
 * each budget's demand. Shares of lengths are for the mode `lengths` alone, as other readers of a
 * table with them must know them. The status is CKVC_E_DATA where such a weight is not logged, or
 * where the mode is `lengths` and the slots of a prompt were not counted. */
ckvc_status demand_records_table(demand_records *d, const budgets_options *o, const resampling *r,
                                 const double *mix, table_file *t, fitted_demand *out,
                                 ckvc_err *err) CKVC_MUST_CHECK;
/* Does a part of the same: it replaces the shares that the table has, and their intervals, alone.
 */
ckvc_status demand_records_shares(demand_records *d, const budgets_options *o, const resampling *r,
                                  const double *mix, table_file *t, fitted_demand *out,
                                  ckvc_err *err) CKVC_MUST_CHECK;
/* Releases what the records own; it may be called of records that hold nothing. */
void demand_records_fini(demand_records *d);
