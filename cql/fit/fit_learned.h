/* Score records on their way into the learned score (formats/shard/shard.md, /prompt/features):
 * each prompt's targets and features are kept until all heads are fitted. Internal to cql/fit. */
#pragma once

#include "cql/fit/fit_result.h"
#include "formats/shard/shard.h"

typedef struct fit_learned {
    char *where;        /* the first shard; NULL: none was read */
    shard_header first; /* its header: model, positions, features */
    struct fit_learned_prompt {
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
} fit_learned;

/* Prompt p of a score shard that fit_match found to belong to those before. CKVC_E_MEMORY beyond
 * `memory_max` bytes, CKVC_E_DATA where its features are not of version 1. */
ckvc_status fit_learned_add(fit_learned *l, const shard *s, size_t p, uint64_t hash,
                            size_t memory_max, const char *where, ckvc_err *err) CKVC_MUST_CHECK;
/* Gives a table with shares theta, of the version of features that is asked for, and mass of every
 * head, and where asked recommends the learned score for all budgets. At least one prompt is
 * fitted. */
void fit_learned_table(fit_learned *l, const fit_options *o, ckvc_table *t, fitted_learned *out);
void fit_learned_fini(fit_learned *l);
