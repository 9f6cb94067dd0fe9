/* Capacities of units that compete for their entries. */
#pragma once

#include <stdint.h>

/* Each unit its best `least` positions, the rest of n·B entries to the best of all units; s [n][T],
 * equal scores to the earlier unit. AdaKV on the heads of a layer (kvpress, adakv_press.py), KVzip
 * on all of a model's. scratch [n][T]. */
void allot_by_rank(uint32_t n, uint32_t T, const double *s, uint32_t B, uint32_t least, uint32_t *c,
                   uint64_t *scratch);
