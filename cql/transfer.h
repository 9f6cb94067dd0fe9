/* Transfer of a table to another depth (method.md section 9): exact integer arithmetic on action indices. */
#ifndef CKVC_TRANSFER_H
#define CKVC_TRANSFER_H

#include <stdint.h>

/* source [L][G] action indices -> target [L2][G2], bilinear at relative positions, one rounding at the end, exact halves down. A target
 * axis of one takes the mean of the source axis; a source axis of one repeats. All extents >= 1 and <= 65536. */
void transfer_heads(uint32_t L, uint32_t G, const uint32_t *source, uint32_t L2, uint32_t G2, uint32_t *target);
/* source [L][cells] -> target [L2][cells]: layers only. */
void transfer_layers(uint32_t L, uint32_t cells, const uint32_t *source, uint32_t L2, uint32_t *target);

#endif
