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

/* Which kind of resampling is asked for, and how many replicates; 0 asks for none. */
typedef struct resampling {
    resample_kind kind;
    uint32_t n_replicates;
    uint64_t seed;
} resampling;

/* Writes a prompt's weight in every replicate, weight [n_replicates]. `key` is ckvc_rng_key of the
 * prompt's id. Where several prompts belong to one document it is that of the document, so that
 * they are drawn together or not at all (Davison and Hinkley 1997, section 3.8; Field and Welsh
 * 2007). */
void resample_weights(uint64_t seed, uint64_t key, resample_kind kind, uint32_t n_replicates,
                      uint8_t *weight);

/* Returns how many different keys there are among keys [n], which is how many things are drawn
 * independently of each other. cluster [n], which may be NULL, receives a number for each key, the
 * same for equal keys. Numbers count from 0 in the order in which keys first appear. */
size_t resample_clusters(const uint64_t *keys, size_t n, size_t *cluster);

/* With fewer prompts (or documents of prompts), or with fewer replicates, resampling says
 * nothing. */
#define RESAMPLE_MIN_PROMPTS    8
#define RESAMPLE_MIN_REPLICATES 20
