/* Sums over the records of one shard: baselines' losses, distinct rollouts. */
#ifndef CKVC_REPORT_SHARD_SUMS_H
#define CKVC_REPORT_SHARD_SUMS_H

#include "formats/shard/shard_h5.h"

/* [prompts][nB], NaN: none. The caller frees. */
double *shard_baseline_losses(const shard *s);

/* What a record's loss was measured on: one set of one layer of one prompt. */
typedef struct rollout {
    uint64_t set;
    uint32_t prompt;
    uint16_t layer, budget;
    uint8_t side;
} rollout;
/* Sorts them and leaves one of those that are equal; returns how many stay. */
size_t rollouts_distinct(rollout *list, size_t n);

#endif
