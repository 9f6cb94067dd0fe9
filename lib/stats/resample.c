/* See resample.h. */
#include "lib/stats/resample.h"

#include <stdbool.h>
#include <stdlib.h>

#include "lib/base/memory.h"
#include "lib/base/hash.h"

#define STAGE 0x62740000u /* of the RNG's stream of weights, plus the kind of resampling */

void resample_weights(uint64_t seed, uint64_t key, resample_kind kind, uint32_t n_replicates,
                      uint8_t *weight) {
    ckvc_rng rng;
    ckvc_rng_init(&rng, seed, key, STAGE + (uint32_t)kind);
    for (uint32_t r = 0; r < n_replicates; ++r) {
        if (kind == RESAMPLE_BOOTSTRAP) {
            uint32_t w = ckvc_rng_poisson1(&rng);
            weight[r] = (uint8_t)(w < 255 ? w : 255);
        } else {
            weight[r] = r % 2 == 0 ? (uint8_t)(ckvc_rng_u32(&rng) >> 31) : (uint8_t)!weight[r - 1];
        }
    }
}

typedef struct keyed {
    uint64_t key;
    size_t at;
} keyed;

static int by_key(const void *pa, const void *pb) {
    const keyed *a = pa, *b = pb;
    const int order = (a->key > b->key) - (a->key < b->key);
    return order ? order : (a->at > b->at) - (a->at < b->at);
}

size_t resample_clusters(const uint64_t *keys, size_t n, size_t *cluster) {
    CKVC_AUTO_FREE keyed *sorted = ckvc_alloc(n, sizeof *sorted);
    CKVC_AUTO_FREE size_t *first = ckvc_alloc(n, sizeof *first); /* appearance of the key */
    size_t clusters = 0;
    for (size_t i = 0; i < n; ++i) { sorted[i] = (keyed){keys[i], i}; }
    qsort(sorted, n, sizeof *sorted, by_key);
    for (size_t k = 0; k < n; ++k) {
        const bool again = k > 0 && sorted[k].key == sorted[k - 1].key;
        first[sorted[k].at] = again ? first[sorted[k - 1].at] : sorted[k].at;
        clusters += !again;
    }
    for (size_t i = 0, next = 0; cluster && i < n; ++i) {
        cluster[i] = first[i] == i ? next++ : cluster[first[i]];
    }
    return clusters;
}
