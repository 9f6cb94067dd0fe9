/* Resampling over prompts: how sure a number is that was computed from a sample of them.
 *
 * A replicate weighs every prompt anew. The weights come from (seed, prompt id, kind) alone, so
 * whatever is computed from the same prompts, in any order, sees the same replicates. */
#pragma once

#include <stddef.h>
#include <stdint.h>

typedef enum resample_kind {
    RESAMPLE_BOOTSTRAP, /* Poisson(1) weights: the bootstrap over prompts */
    RESAMPLE_HALVES     /* 2k and 2k+1 are the two halves of the k-th random split */
} resample_kind;

/* What is asked for: how many replicates of which kind (0: none). */
typedef struct resampling {
    resample_kind kind;
    uint32_t n_replicates;
    uint64_t seed;
} resampling;

/* weight [R] of a prompt in every replicate; key: ckvc_rng_key of its id, or of its document where
 * it shares one with other prompts: these are drawn together or not at all (Davison and Hinkley
 * 1997, section 3.8; Field and Welsh 2007). */
void resample_weights(uint64_t seed, uint64_t key, resample_kind kind, uint32_t n_replicates,
                      uint8_t *weight);

/* How many different keys [n] there are: what is drawn independently. cluster [n] (may be NULL):
 * the same number where keys are the same, counted from 0 by first appearance. */
size_t resample_clusters(const uint64_t *keys, size_t n, size_t *cluster);

/* With fewer prompts (or documents of prompts), or with fewer replicates, resampling says
 * nothing. */
#define RESAMPLE_MIN_PROMPTS    8
#define RESAMPLE_MIN_REPLICATES 20
