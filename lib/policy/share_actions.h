/* Other shares for one unit: how many positions a head or layer would keep if its share were
 * multiplied, everything else as it is. */
#pragma once

#include "lib/policy/ckvc_policy.h"

/* Block b of a table with shares of the mode, and the factors that are tried. */
typedef struct ckvc_share_actions {
    const ckvc_table *table;
    uint32_t block;
    ckvc_mode mode;
    const double *factor;
    uint32_t n_factors;
} ckvc_share_actions;

/* c [n][n_factors], n = L * G in mode `heads`, L in `layers`: the capacity of unit i when its share
 * is multiplied by factor[k], at the z that ckvc_table_capacities finds for the unmultiplied
 * shares: floor(clamp((share_i * factor) * (budget * z), m, T)); where the factor is 1, what that
 * function gives. *least, the return value and what happens where budget >= T are that function's.
 * scratch [n]. */
int ckvc_share_capacities(const ckvc_share_actions *a, uint32_t budget, uint32_t n_tokens,
                          uint32_t *c, uint32_t *least, uint32_t *scratch);
