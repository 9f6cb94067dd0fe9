/* How many positions each KV head of each layer keeps: the capacities of `ckvc score`'s references.
 * Plain arrays; a unit is a (layer, KV head), or a layer where its heads share a set.
 *
 *   L layers · T prompt tokens · B the budget, mean entries of a unit · W the window that is kept
 *
 * The rules are those of the repositories named below. Where a rule counts tokens of a head, these
 * are; a rule that does not meet L·G·B says so, and a line's "entries" is what it used. */
#pragma once

#include <stdint.h>

/* PyramidKV (KVCache-Factory, pyramidkv_utils.py, beta 20): from the lowest layer to the highest
 * ever fewer, c [L]. Steps are whole tokens rounded down, so that the sum is over L·B; B <= W,
 * T <= B and T < 2(B - W): all the same. */
void allot_pyramid(uint32_t n_layers, uint32_t B, uint32_t window, uint32_t T, uint32_t *c);
/* CAKE (cake/utils.py, adjust_budgets): c [L] by the layers' preferences (>= 0), none above T; what
 * is over, or left by rounding, is handed out equally, the remainder one each from the first on. */
void allot_cake(uint32_t n_layers, const double *preference, uint32_t B, uint32_t window,
                uint32_t T, uint32_t *c);
/* HeadKV (headkv/snapkv_utils.py, beta 1.01): c [n] by the units' scores (>= 0). What a unit would
 * get beyond T is not given to others: the sum may be below n·B. */
void allot_headkv(uint32_t n, const double *score, uint32_t B, uint32_t window, uint32_t T,
                  uint32_t *c);
/* As DuoAttention does, of n·B entries: the units of the largest scores keep everything, of equal
 * ones the earlier, the others `least`; one between them takes what is left. */
void allot_full_heads(uint32_t n, const double *score, uint32_t B, uint32_t least, uint32_t T,
                      uint32_t *c);
/* Each unit its best `least` positions, the rest of n·B entries to the best of all units; s [n][T],
 * equal scores to the earlier unit. AdaKV on the heads of a layer (kvpress, adakv_press.py), KVzip
 * on all of a model's. scratch [n][T]. */
void allot_by_rank(uint32_t n, uint32_t T, const double *s, uint32_t B, uint32_t least, uint32_t *c,
                   uint64_t *scratch);
