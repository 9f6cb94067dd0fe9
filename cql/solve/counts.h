/* Sufficient statistics of logged rewards. For each state and action these are n, sum r and sum
 * r^2, and for every replicate of the prompts n and sum r.
 *
 * They are gathered in one streaming pass: cql_counts_prompt names the prompt, and cql_counts_add
 * gives its records. Sums are exact integers in fixed point (a unit is 2^-76, for squares 2^-66),
 * so the order of prompts, shards and files never shows in a result. An object belongs to one
 * thread while it is filled. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cql/solve/resampled.h"
#include "lib/base/status.h"

/* The largest reward, in nats per token. A larger one cannot be a difference of losses, and would
 * not fit the fixed point. */
#define CQL_MAX_REWARD 16384.0

typedef struct cql_counts cql_counts;

/* Returns statistics of no records, which the caller frees with cql_counts_free. */
cql_counts *cql_counts_create(size_t n_states, size_t n_actions);
/* Gathers replicates from now on. It must be called before the first record. The status is
 * CKVC_E_MEMORY when the tables would need more than memory_max bytes, and the message says how
 * many replicates would fit. */
ckvc_status cql_counts_resample(cql_counts *c, uint32_t n_replicates, resample_kind kind,
                                uint64_t seed, size_t memory_max, ckvc_err *err) CKVC_MUST_CHECK;
void cql_counts_free(cql_counts *c);
/* Says that the records that follow are one prompt's. `id` is the prompt's own, or that of the
 * document which it shares with other prompts (resampled.h). Give all records of a prompt after one
 * call. */
void cql_counts_prompt(cql_counts *c, const char *id);
/* Adds a record. `part` is the share of the reward that is loss; it is equal to the reward where no
 * penalty is paid. Both must be finite and within CQL_MAX_REWARD; else the status is CKVC_E_DATA.
 */
ckvc_status cql_counts_add(cql_counts *c, size_t state, size_t action, double reward, double part,
                           ckvc_err *err) CKVC_MUST_CHECK;

uint64_t cql_counts_records(const cql_counts *c); /* the number of all records */
/* the number of ids and documents that were named */
size_t cql_counts_clusters(const cql_counts *c);
/* Returns the population standard deviation of all rewards (of all loss parts), pooled over every
 * state. It is 0 when they are all equal or there are none. */
double cql_counts_sd(const cql_counts *c, bool of_parts);
/* Writes n, mean and part_mean [A] of one state, in units of `scale`. Means are 0 where n = 0.
 * part_mean may be NULL. */
void cql_counts_state(const cql_counts *c, size_t state, double scale, uint64_t *n, double *mean,
                      double *part_mean);
/* Does the same for one replicate. */
void cql_counts_replicate(const cql_counts *c, uint32_t replicate, size_t state, double scale,
                          uint64_t *n, double *mean);
/* Returns the replicates, for the functions of resampled.h. The view is valid as long as c. */
cql_resampled cql_counts_resampled(const cql_counts *c, double scale);
