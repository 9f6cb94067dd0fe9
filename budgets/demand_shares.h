/* Demand records on their way into shares of the budget (formats/shard/shard.md, /prompt/demand):
 * each prompt's counts are kept, since means, intervals and split halves all come from them. */
#pragma once

#include "budgets/budgets.h"
#include "formats/shard/shard.h"
#include "lib/stats/resample.h"

typedef struct demand_records {
    char *where;        /* the first shard; NULL: none was read */
    shard_header first; /* its header: model, budgets, floor and recent */
    struct demand_prompt {
        uint64_t hash;              /* of id and tokens; first: the order of sums */
        uint64_t key;               /* of the id: resampling */
        uint32_t n_tokens, *counts; /* owned: a mix's [nB][L][G], then [nB][L]; of w = 0 first */
    } * prompts;
    size_t n_prompts, capacity;
    bool plain; /* a prompt has the counts of w = 0 alone */
} demand_records;

/* Prompt p of a demand shard that fit_match found to belong to those before. CKVC_E_MEMORY beyond
 * `memory_max` bytes of counts. */
ckvc_status demand_records_add(demand_records *d, const shard *s, size_t p, uint64_t hash,
                               size_t memory_max, const char *where, ckvc_err *err) CKVC_MUST_CHECK;
/* Gives the table shares, floors, the recommended score and the shares' intervals. A prompt counts
 * for the budgets that leave a choice in it: shorter than it, and above every head's floor. Where
 * none does, shares are 1. mix [nB]: the weight of each budget's demand; CKVC_E_DATA where it is
 * not logged. */
ckvc_status demand_records_table(demand_records *d, const budgets_options *o, const resampling *r,
                                 const double *mix, table_file *t, fitted_demand *out,
                                 ckvc_err *err) CKVC_MUST_CHECK;
/* Of that the shares and their intervals alone, in their place. */
ckvc_status demand_records_shares(demand_records *d, const resampling *r, const double *mix,
                                  table_file *t, fitted_demand *out, ckvc_err *err) CKVC_MUST_CHECK;
void demand_records_fini(demand_records *d);
