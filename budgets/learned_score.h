/* Makes the learned ranking from score records (formats/shard/shard.md, /prompt/features). The
 * targets and features of each prompt are kept until all heads are fitted. */
#pragma once

#include "budgets/budgets.h"
#include "formats/shard/shard.h"

typedef struct learned_records {
    char *where;        /* where the first shard is from; NULL: none was read */
    shard_header first; /* the header of that shard: model, positions, features */
    struct learned_prompt {
        uint64_t hash; /* of id and tokens; sums run in its order */
        bool heldout;  /* whether it judges the ranking instead of being fitted */
        uint32_t n_positions;
        double drawn; /* how many positions a drawn position stands for */
        /* Mass [L][G], then targets [L][G], their features [L][G][F], and their cross-entropy under
         * Expected Attention [L][G]. Owned. */
        double *mass;
        float *features; /* [L][G][P][F], owned */
    } * prompts;
    size_t n_prompts, n_fitted, capacity; /* n_fitted counts those that are not held out */
} learned_records;

/* Adds prompt p of a shard with features that, as fit_match found, belongs to those before. `hash`
 * is that of its id and tokens, and `where` names the shard in messages. The status is
 * CKVC_E_MEMORY beyond `memory_max` bytes, and CKVC_E_DATA where its features are of another
 * version than 1. */
ckvc_status learned_records_add(learned_records *l, const shard *s, size_t p, uint64_t hash,
                                size_t memory_max, const char *where,
                                ckvc_err *err) CKVC_MUST_CHECK;
/* Gives a table that has shares theta and mass of every head, where theta is of the version of
 * features that is asked for. Where it is asked to, it also recommends the learned ranking for all
 * budgets. At least one prompt must be there to fit. */
void learned_records_table(learned_records *l, const budgets_options *o, ckvc_table *t,
                           fitted_learned *out);
/* Releases what the records own; it may be called of records that hold nothing. */
void learned_records_fini(learned_records *l);
