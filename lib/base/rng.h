/* Counter-based random numbers (Philox4x32-10; Salmon et al., "Parallel random numbers: as easy as
 * 1, 2, 3", SC 2011).
 *
 * A stream is named by (seed, key, stage), never by thread, time or order of work: key is usually
 * ckvc_rng_key(prompt id). The same name gives the same numbers on every machine; the first values
 * are pinned in a test. */
#pragma once

#include <stdint.h>

typedef struct ckvc_rng {
    uint32_t key[2];
    uint32_t counter[4];
    uint32_t block[4];
    int used; /* words of block already handed out */
} ckvc_rng;

uint64_t ckvc_rng_key(const char *text); /* XXH64 of the text */
void ckvc_rng_init(ckvc_rng *rng, uint64_t seed, uint64_t key, uint32_t stage);
uint32_t ckvc_rng_u32(ckvc_rng *rng);
uint64_t ckvc_rng_u64(ckvc_rng *rng);
double ckvc_rng_double(ckvc_rng *rng);                  /* [0, 1), 53 bits */
uint64_t ckvc_rng_below(ckvc_rng *rng, uint64_t bound); /* unbiased; bound >= 1 */
/* Fisher-Yates, from the last down. */
void ckvc_rng_shuffle_u32(ckvc_rng *rng, uint32_t *items, uint64_t n);
/* Poisson with mean 1, by inversion: the bootstrap's weight. */
uint32_t ckvc_rng_poisson1(ckvc_rng *rng);
