/* Score records on their way into the learned score (formats/shard/shard.md, /prompt/features):
 * each prompt's targets and features are kept until all heads are fitted. Internal to cql/fit. */
#pragma once

#include "fit/fit_result.h"
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

/* Prompt p of a shard with features that fit_match found to belong to those before. CKVC_E_MEMORY
 * beyond `memory_max` bytes, CKVC_E_DATA where its features are not of version 1. */
ckvc_status fit_learned_add(fit_learned *l, const shard *s, size_t p, uint64_t hash,
                            size_t memory_max, const char *where, ckvc_err *err) CKVC_MUST_CHECK;
/* Gives a table with shares theta, of the version of features that is asked for, and mass of every
 * head, and where asked recommends the learned score for all budgets. At least one prompt is
 * fitted. */
void fit_learned_table(fit_learned *l, const fit_options *o, ckvc_table *t, fitted_learned *out);
void fit_learned_fini(fit_learned *l);

/* Demand records on their way into shares of the budget (formats/shard/shard.md, /prompt/demand):
 * each prompt's counts are kept, since means, intervals and split halves all come from them.
 * Internal to cql/fit. */
typedef struct fit_demand {
    char *where;        /* the first shard; NULL: none was read */
    shard_header first; /* its header: model, budgets, floor and recent */
    struct fit_demand_prompt {
        uint64_t hash;              /* of id and tokens; first: the order of sums */
        uint64_t key;               /* of the id: resampling */
        uint32_t n_tokens, *counts; /* owned: a mix's [nB][L][G], then [nB][L]; of w = 0 first */
    } * prompts;
    size_t n_prompts, capacity;
    bool plain; /* a prompt has the counts of w = 0 alone */
} fit_demand;

/* Prompt p of a demand shard that fit_match found to belong to those before. CKVC_E_MEMORY beyond
 * `memory_max` bytes of counts. */
ckvc_status fit_demand_add(fit_demand *d, const shard *s, size_t p, uint64_t hash,
                           size_t memory_max, const char *where, ckvc_err *err) CKVC_MUST_CHECK;
/* Gives the table shares, floors, the recommended score and the shares' intervals. A prompt counts
 * for the budgets that leave a choice in it: shorter than it, and above every head's floor. Where
 * none does, shares are 1. mix [nB]: the weight of each budget's demand; CKVC_E_DATA where it is
 * not logged. */
ckvc_status fit_demand_table(fit_demand *d, const fit_options *o, const double *mix, table_file *t,
                             fitted_demand *out, ckvc_err *err) CKVC_MUST_CHECK;
/* Of that the shares and their intervals alone, in their place. */
ckvc_status fit_demand_shares(fit_demand *d, const fit_options *o, const double *mix, table_file *t,
                              fitted_demand *out, ckvc_err *err) CKVC_MUST_CHECK;
void fit_demand_fini(fit_demand *d);
