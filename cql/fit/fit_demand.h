/* Demand records on their way into shares of the budget (formats/shard/shard.md, /prompt/demand):
 * each prompt's counts are kept, since means, intervals and split halves all come from them.
 * Internal to cql/fit. */
#pragma once

#include "cql/fit/fit_result.h"
#include "formats/shard/shard.h"

typedef struct fit_demand {
    char *where;        /* the first shard; NULL: none was read */
    shard_header first; /* its header: model, budgets, floor and recent */
    struct fit_demand_prompt {
        uint64_t hash;              /* of id and tokens; first: the order of sums */
        uint64_t key;               /* of the id: resampling */
        uint32_t n_tokens, *counts; /* owned [nB][L][G], then [nB][L] */
    } * prompts;
    size_t n_prompts, capacity;
} fit_demand;

/* Prompt p of a demand shard that fit_match found to belong to those before. CKVC_E_MEMORY beyond
 * `memory_max` bytes of counts. */
ckvc_status fit_demand_add(fit_demand *d, const shard *s, size_t p, uint64_t hash,
                           size_t memory_max, const char *where, ckvc_err *err) CKVC_MUST_CHECK;
/* Gives the table shares, floors, the recommended score and the shares' intervals. A prompt counts
 * for the budgets that leave a choice in it: shorter than it, and above every head's floor. Where
 * none does, shares are 1. */
void fit_demand_table(fit_demand *d, const fit_options *o, table_file *t, fitted_demand *out);
void fit_demand_fini(fit_demand *d);
