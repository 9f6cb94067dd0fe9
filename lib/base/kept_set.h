/* A kept set: which prompt positions of one layer stay in the cache. Plain struct, shared by
 * policy, backend and calib. */
#pragma once

#include <stdint.h>

/* n_sets is 1 (the heads of a layer share the set, as in the paper) or G (policies that choose per
 * KV head). Set s holds positions[offsets[s] ... offsets[s+1]), strictly ascending. Borrowed
 * pointers; an empty set is legal. */
typedef struct kept_set {
    int32_t n_sets;
    const uint32_t *offsets;   /* [n_sets+1] */
    const uint32_t *positions; /* [offsets[n_sets]] */
} kept_set;
