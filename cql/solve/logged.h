/* Logged rewards that are kept prompt by prompt, for what counts alone cannot answer: resampling in
 * any way, learning curves, variance.
 *
 * A block is what one prompt logged in one state: for each action the number of records and their
 * sum. Under balanced logging that is the whole grid once. An object is filled in one pass by one
 * thread (create; then for each prompt cql_logged_prompt and its records; then cql_logged_finish).
 * After that any thread may read it. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cql/solve/resampled.h"
#include "lib/base/status.h"

typedef struct cql_block {
    uint32_t prompt, state;
    /* The reward of the unperturbed table, as the mean over the block's records: raw reward =
     * advantage + baseline. */
    double baseline;
} cql_block;

typedef struct cql_logged {
    size_t n_states, n_actions, n_prompts, n_blocks;
    uint64_t n_records;
    uint64_t *key;   /* [n_prompts] ckvc_rng_key of the id, or of a document that prompts share */
    size_t *cluster; /* [n_prompts] resample_clusters of key */
    size_t n_clusters;
    cql_block *blocks; /* [n_blocks] in the order of the prompts */
    uint32_t *n;       /* [n_blocks][A] */
    double *sum;       /* [n_blocks][A] advantages, nats per token */
    double *part;      /* [n_blocks][A] their loss part; NULL when the two are the same */
    size_t *first;     /* [S+1] where a state's blocks begin in `order` */
    uint32_t *order;   /* [n_blocks] block numbers by state, within it by prompt */
    bool balanced;     /* every block has the same number of records of every action */
    /* used while it is filled */
    size_t cap_prompts, cap_blocks, memory_max;
    bool with_part;
    uint32_t *latest; /* [S] number of the state's latest block */
} cql_logged;

/* Creates an object to be filled with an advantage and a loss part per record. With with_part
 * false, parts are not kept. The caller frees *out with cql_logged_free. The status is
 * CKVC_E_MEMORY beyond memory_max bytes, here and in cql_logged_add. */
ckvc_status cql_logged_create(size_t n_states, size_t n_actions, bool with_part, size_t memory_max,
                              cql_logged **out, ckvc_err *err) CKVC_MUST_CHECK;
void cql_logged_free(cql_logged *l);
/* Says that the records that follow are this prompt's, which is named as in cql_counts_prompt. Give
 * all records of a prompt after one call. */
void cql_logged_prompt(cql_logged *l, const char *id);
/* Adds a record. The status is CKVC_E_DATA when a number is not finite or is beyond CQL_MAX_REWARD.
 */
ckvc_status cql_logged_add(cql_logged *l, size_t state, size_t action, double advantage,
                           double part, double baseline, ckvc_err *err) CKVC_MUST_CHECK;
/* Ends the filling: sorts the blocks by state and finds the prompts that share a document. After it
 * nothing may be added. It is called once. */
void cql_logged_finish(cql_logged *l);
/* Returns how many prompts have a record of the state. */
size_t cql_logged_prompts(const cql_logged *l, size_t state);

/* Writes n and mean reward [A] of one state, in units of scale, over prompts by weight [n_prompts]
 * (NULL: each once). Returns how many prompts with weight have records of the state. */
size_t cql_logged_state(const cql_logged *l, size_t state, const uint8_t *weight, cql_reward reward,
                        double scale, uint64_t *n, double *mean);
/* How a fit chooses an action from records. */
typedef struct cql_fit {
    double cql_alpha, scale; /* the weight of the conservative term; the unit of rewards */
    ckvc_actions actions;
    cql_reward reward;
} cql_fit;
/* Returns the action that a fit of the same records chooses, as cql_choice does. */
int cql_logged_choice(const cql_logged *l, size_t state, const uint8_t *weight, const cql_fit *fit);

/* Returns weight [R][n_prompts] of every prompt in every replicate, which are those of a cql_counts
 * with the same seed. The caller frees it. */
uint8_t *cql_logged_weights(const cql_logged *l, uint32_t n_replicates, resample_kind kind,
                            uint64_t seed);
/* Returns the replicates by these weights, for the functions of resampled.h. The view is valid as
 * long as both. */
cql_resampled cql_logged_resampled(const cql_logged *l, const uint8_t *weight,
                                   uint32_t n_replicates, cql_reward reward, double scale);
