/* Sufficient statistics of logged rewards: per state and action n, sum r, sum r^2, and the same for
 * resampled prompts.
 *
 * One streaming pass: cql_counts_prompt names the prompt, cql_counts_add gives its records. Sums
 * are exact integers in fixed point (2^-76 a unit, squares 2^-66), so the order of prompts, shards
 * and files never shows in a result. Replicates stand side by side: the weight of a prompt in
 * replicate r comes from (seed, prompt id, r) alone. An object belongs to one thread while it is
 * filled.
 */
#ifndef CKVC_CQL_COUNTS_H
#define CKVC_CQL_COUNTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/status.h"

/* Nats per token; larger magnitudes are no difference of losses and would not fit the fixed point.
 */
#define CQL_MAX_REWARD 16384.0
#define CQL_NO_CHOICE  65535 /* a replicate without records of the state */

typedef enum cql_resample {
    CQL_RESAMPLE_BOOTSTRAP, /* Poisson(1) weights: the bootstrap over prompts */
    CQL_RESAMPLE_HALVES /* replicates 2k and 2k+1 are the two halves of the k-th random split of the
                           prompts */
} cql_resample;

typedef struct cql_counts cql_counts;

/* weight [R] of a prompt in every replicate; key: ckvc_rng_key(prompt id). */
void cql_resample_weights(uint64_t seed, uint64_t key, cql_resample kind, uint32_t n_replicates,
                          uint8_t *weight);

/* CKVC_E_MEMORY when the tables would need more than memory_max bytes, with the number of
 * replicates that would fit. */
ckvc_status cql_counts_create(size_t n_states, size_t n_actions, uint32_t n_replicates,
                              cql_resample kind, uint64_t seed, size_t memory_max, cql_counts **out,
                              ckvc_err *err) CKVC_MUST_CHECK;
void cql_counts_free(cql_counts *c);
/* The records that follow are this prompt's. Give all records of a prompt under one call. */
void cql_counts_prompt(cql_counts *c, const char *id);
/* reward and part (the share of the reward that is loss; equal to reward on the head side): finite
 * and within CQL_MAX_REWARD, else CKVC_E_DATA. */
ckvc_status cql_counts_add(cql_counts *c, size_t state, size_t action, double reward, double part,
                           ckvc_err *err) CKVC_MUST_CHECK;

size_t cql_counts_actions(const cql_counts *c);
uint32_t cql_counts_replicates(const cql_counts *c);
uint64_t cql_counts_records(const cql_counts *c); /* all of them */
uint64_t cql_counts_prompts(const cql_counts *c,
                            size_t state); /* prompts with a record of this state */
/* Population standard deviation of all rewards (of all loss parts), pooled over every state; 0 when
 * they are all equal or none. */
double cql_counts_sd(const cql_counts *c, bool of_parts);
/* One state in units of `scale`: n, mean, sumsq, part_mean [A]; 0 where n = 0. sumsq and part_mean
 * may be NULL. */
void cql_counts_state(const cql_counts *c, size_t state, double scale, uint64_t *n, double *mean,
                      double *sumsq, double *part_mean);
/* The same for one replicate. */
void cql_counts_replicate(const cql_counts *c, uint32_t replicate, size_t state, double scale,
                          uint64_t *n, double *mean);

/* Refits every replicate (exact solver, at the given scale) and writes what it chooses: choices
 * [R][S], CQL_NO_CHOICE where a replicate has no record of the state. head_grid [A] applies the
 * head's tie rule; NULL the gate's. */
ckvc_status cql_counts_choices(const cql_counts *c, double cql_alpha, double scale,
                               const double *head_grid, uint16_t *choices,
                               ckvc_err *err) CKVC_MUST_CHECK;
/* share [S][A] = replicates that choose the action / R. */
void cql_choice_shares(const uint16_t *choices, uint32_t n_replicates, size_t n_states,
                       size_t n_actions, float *share);

/* Is action `chosen` better than action `other` (< 0: a reward of exactly 0) beyond chance?
 * cql_lower_bound of bound.h above 0; an action is never better than itself. Bootstrap replicates
 * only. */
bool cql_counts_better(const cql_counts *c, size_t state, int chosen, int other);

#endif
