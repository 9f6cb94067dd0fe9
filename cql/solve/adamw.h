/* The paper's optimiser of the same objective (cql.h): AdamW over single records, from zeros. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "lib/base/status.h"

typedef struct cql_record {
    uint32_t state;
    uint32_t action;
    double reward;
} cql_record;
typedef struct cql_adamw_options {
    double cql_alpha, lr, weight_decay, beta1, beta2, eps; /* 0.75, 3e-4, 0.01, 0.9, 0.999, 1e-8 */
    uint32_t batch, epochs;                                /* 4096, 10 */
} cql_adamw_options;
cql_adamw_options cql_adamw_defaults(void);

/* Order of the records in one epoch: a permutation written to order [n]. */
typedef struct cql_shuffle {
    void (*order)(const void *ctx, uint32_t epoch, uint32_t *order, size_t n);
    const void *ctx;
} cql_shuffle;
/* ckvc's own, from ckvc's RNG; ctx is the uint64_t seed. */
void cql_seeded_order(const void *seed, uint32_t epoch, uint32_t *order, size_t n);

typedef struct cql_records {
    const cql_record *at;
    size_t n, n_states, n_actions;
} cql_records;
/* q [n_states][n_actions] is written. CKVC_E_USAGE for an empty batch or more than 2^32 - 1
 * records. */
ckvc_status cql_adamw(const cql_records *r, const cql_adamw_options *o, cql_shuffle shuffle,
                      double *q, ckvc_err *err) CKVC_MUST_CHECK;
