/* Score records on their way into the learned ranking (formats/shard/shard.md, /prompt/features):
 * each prompt's targets and features are kept until all heads are fitted. */
#pragma once

#include "budgets/budgets.h"
#include "formats/shard/shard.h"

typedef struct learned_records {
    char *where;        /* the first shard; NULL: none was read */
    shard_header first; /* its header: model, positions, features */
    struct learned_prompt {
        uint64_t hash; /* of id and tokens: the order of sums */
        bool heldout;  /* judges the form, does not fit it */
        uint32_t n_positions;
        double drawn; /* what a drawn position stands for */
        /* [L][G], then targets [L][G], their features [L][G][F], and their cross-entropy under
         * Expected Attention [L][G]; owned */
        double *mass;
        float *features; /* [L][G][P][F]; owned */
    } * prompts;
    size_t n_prompts, n_fitted, capacity; /* those that are not held out */
} learned_records;

/* Prompt p of a shard with features that fit_match found to belong to those before. CKVC_E_MEMORY
 * beyond `memory_max` bytes, CKVC_E_DATA where its features are not of version 1. */
ckvc_status learned_records_add(learned_records *l, const shard *s, size_t p, uint64_t hash,
                                size_t memory_max, const char *where,
                                ckvc_err *err) CKVC_MUST_CHECK;
/* Gives a table with shares theta, of the version of features that is asked for, and mass of every
 * head, and where asked recommends the learned ranking for all budgets. At least one prompt is
 * fitted. */
void learned_records_table(learned_records *l, const budgets_options *o, ckvc_table *t,
                           fitted_learned *out);
void learned_records_fini(learned_records *l);
