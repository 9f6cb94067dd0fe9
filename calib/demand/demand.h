/* What heads ask for: of a prompt's entries, one a (unit, position), the N = n_units * B with the
 * highest scores, above what every unit has anyway. A unit is a (layer, KV head) in order of l,
 * then g, or a layer.
 *
 * Position 0 and the last `recent` are every unit's (forced); with its best others each has at
 * least m = ckvc_head_floor(f, recent, B, T). The rest of N goes by rank over all units. Of equal
 * scores the lower unit comes first, then the later position. */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* A prompt's entries from the highest score to the lowest. */
typedef struct demand_ranks {
    uint32_t n_units, n_tokens;
    uint32_t *order; /* [n_units * n_tokens] unit * T + (T - 1 - position): as ties are broken */
    uint32_t *other; /* scratch of `order` */
    uint64_t *keys[2];
    uint32_t *seen; /* [n_units] scratch */
} demand_ranks;

#define DEMAND_MAX_ENTRIES UINT32_MAX /* units * tokens */
/* Sized for so many; n_units * n_tokens <= DEMAND_MAX_ENTRIES. */
void demand_ranks_init(demand_ranks *r, uint32_t n_units, uint32_t n_tokens);
void demand_ranks_fini(demand_ranks *r);
size_t demand_ranks_bytes(uint32_t n_units, uint32_t n_tokens);

/* Ranks score [n_units][n_tokens]: finite, none negative. No more of either than it is sized for.
 */
void demand_rank(demand_ranks *r, const double *score, uint32_t n_units, uint32_t n_tokens);
/* Entries of each unit under a budget of B tokens -> count [n_units]. B >= m, which holds where B >
 * recent; at B >= T every unit has all. */
void demand_count(const demand_ranks *r, uint32_t budget, double f, uint32_t recent,
                  uint32_t *count);
