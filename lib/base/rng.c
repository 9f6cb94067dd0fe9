/* Philox4x32-10: see rng.h. */
#include "lib/base/rng.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "lib/base/hash.h"

/* The counter's upper half names the stream (key and stage), the lower half counts blocks; the
 * Philox key is the seed. */
void ckvc_rng_init(ckvc_rng *rng, uint64_t seed, uint64_t key, uint32_t stage) {
    memset(rng, 0, sizeof *rng);
    rng->key[0] = (uint32_t)seed;
    rng->key[1] = (uint32_t)(seed >> 32);
    rng->counter[1] = stage;
    rng->counter[2] = (uint32_t)key;
    rng->counter[3] = (uint32_t)(key >> 32);
    rng->used = 4;
}

uint64_t ckvc_rng_key(const char *text) { return ckvc_xxh64(text, strlen(text)); }

static void philox_block(const uint32_t key[2], const uint32_t counter[4], uint32_t out[4]) {
    uint32_t k0 = key[0], k1 = key[1];
    uint32_t c0 = counter[0], c1 = counter[1], c2 = counter[2], c3 = counter[3];
    for (int round = 0; round < 10; round++) {
        uint64_t p0 = (uint64_t)0xD2511F53u * c0, p1 = (uint64_t)0xCD9E8D57u * c2;
        c0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
        c1 = (uint32_t)p1;
        c2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c3 = (uint32_t)p0;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    out[0] = c0;
    out[1] = c1;
    out[2] = c2;
    out[3] = c3;
}

uint32_t ckvc_rng_u32(ckvc_rng *rng) {
    if (rng->used == 4) {
        philox_block(rng->key, rng->counter, rng->block);
        rng->counter[0]++; /* 2^32 blocks a stream: far beyond any use here */
        rng->used = 0;
    }
    return rng->block[rng->used++];
}

uint64_t ckvc_rng_u64(ckvc_rng *rng) {
    uint64_t low = ckvc_rng_u32(rng);
    return low | (uint64_t)ckvc_rng_u32(rng) << 32;
}

double ckvc_rng_double(ckvc_rng *rng) { return (double)(ckvc_rng_u64(rng) >> 11) * 0x1p-53; }

uint64_t ckvc_rng_below(ckvc_rng *rng, uint64_t bound) {
    assert(bound >= 1);
    /* Values below 2^64 mod bound would favour small results: draw again. */
    uint64_t reject = (0 - bound) % bound;
    uint64_t v;
    do { v = ckvc_rng_u64(rng); } while (v < reject);
    return v % bound;
}

void ckvc_rng_shuffle_u32(ckvc_rng *rng, uint32_t *items, uint64_t n) {
    for (uint64_t i = n; i > 1; i--) {
        uint64_t j = ckvc_rng_below(rng, i);
        uint32_t swap = items[i - 1];
        items[i - 1] = items[j];
        items[j] = swap;
    }
}

uint32_t ckvc_rng_poisson1(ckvc_rng *rng) {
    double u = ckvc_rng_double(rng), p = exp(-1.0), sum = p;
    uint32_t k = 0;
    while (u >= sum && k < 32) { /* P(k > 32) < 1e-36 */
        k++;
        p /= k;
        sum += p;
    }
    return k;
}
