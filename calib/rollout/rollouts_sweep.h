/* Rollouts the fast way: all distinct variants of a prompt in one sweep of the layers (method.md
 * section 4), cut into batches that the memory allows. Every batch starts from the baselines that
 * its variants leave; a variant joins at its layer. Each rollout is the same bits as the plain
 * way's, whatever the batches: its rows have tiles of their own.
 */
#ifndef CKVC_ROLLOUTS_SWEEP_H
#define CKVC_ROLLOUTS_SWEEP_H

#include "calib/rollout/rollouts.h"

/* More lanes than this buy no speed: the products are thousands of rows high by then. */
#define SWEEP_MAX_LANES 512

/* All losses of r, which has at most the scratch's max_variants variants; the scratch and the
 * session hold at least 2 lanes. */
ckvc_status rollouts_sweep(rollout_scratch *w, rollouts *r, ckvc_err *err) CKVC_MUST_CHECK;

/* Operations that one such call asks for, counted as flops.h says; baselines that a later batch
 * repeats are not counted again. */
double rollouts_sweep_flops(const model_shape *shape, const prompt_sets *k, const variant_list *v,
                            uint32_t C);

#endif
