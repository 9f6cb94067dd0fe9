/* Sufficient statistics of logged rewards: per state and action n, sum r, sum r^2, and n, sum r of
 * every replicate of the prompts.
 *
 * One streaming pass: cql_counts_prompt names the prompt, cql_counts_add gives its records. Sums
 * are exact integers in fixed point (2^-76 a unit, squares 2^-66), so the order of prompts, shards
 * and files never shows in a result. An object belongs to one thread while it is filled. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cql/solve/resampled.h"
#include "lib/base/status.h"

/* In nats per token. A larger reward can be no difference of losses, and would not fit the fixed
 * point. */
#define CQL_MAX_REWARD 16384.0

typedef struct cql_counts cql_counts;

cql_counts *cql_counts_create(size_t n_states, size_t n_actions);
/* Replicates from now on; before the first record. CKVC_E_MEMORY when the tables would need more
 * than memory_max bytes, with the number of replicates that would fit. */
ckvc_status cql_counts_resample(cql_counts *c, uint32_t n_replicates, resample_kind kind,
                                uint64_t seed, size_t memory_max, ckvc_err *err) CKVC_MUST_CHECK;
void cql_counts_free(cql_counts *c);
/* The records that follow are this prompt's, of this id, or of the document that it shares with
 * others (resampled.h). Give all records of a prompt under one call. */
void cql_counts_prompt(cql_counts *c, const char *id);
/* reward and part (the share of the reward that is loss; equal to reward where no penalty is paid):
 * finite and within CQL_MAX_REWARD, else CKVC_E_DATA. */
ckvc_status cql_counts_add(cql_counts *c, size_t state, size_t action, double reward, double part,
                           ckvc_err *err) CKVC_MUST_CHECK;

uint64_t cql_counts_records(const cql_counts *c); /* all of them */
size_t cql_counts_clusters(const cql_counts *c);  /* ids and documents that were named */
/* Population standard deviation of all rewards (of all loss parts), pooled over every state; 0 when
 * they are all equal or none. */
double cql_counts_sd(const cql_counts *c, bool of_parts);
/* One state in units of `scale`: n, mean, part_mean [A]; 0 where n = 0. part_mean may be NULL. */
void cql_counts_state(const cql_counts *c, size_t state, double scale, uint64_t *n, double *mean,
                      double *part_mean);
/* The same for one replicate. */
void cql_counts_replicate(const cql_counts *c, uint32_t replicate, size_t state, double scale,
                          uint64_t *n, double *mean);
/* The replicates, for what resampled.h does with them; valid as long as c. */
cql_resampled cql_counts_resampled(const cql_counts *c, double scale);
