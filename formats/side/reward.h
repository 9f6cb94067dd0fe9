/* The reward: its sign, its units and its conventions are defined here and nowhere else (paper.md,
 * section 3).
 *
 *   L_full  mean loss (nats per token) of the C continuation tokens, teacher-forced, full cache
 *   L_comp  the same with layer l's prefill cache restricted to S[l]; continuation keys and values
 *           are appended at T, T+1, ...
 *   r = -(L_comp - L_full) - lambda * max(0, |I[l]| - B)
 *           nats per token; 0 is "as good as the full cache"
 *   r = -C (L_comp - L_full) - lambda * max(0, |I[l]| - B)
 *           nats, with --loss-reduction sum: the penalty then weighs C times less
 *
 * The last prompt token predicts the first continuation token, before compression matters: that
 * token's loss is the same in both means and cancels, but the token counts in C. On the head side
 * lambda is 0. On the gate side lambda is beta_bud / T, and I[l] are the candidates before the
 * clamp. The advantage is r - r0, where r0 is the baseline's reward on the same side (and on the
 * same layer, for the gate's penalty). */
#pragma once

#include <stdint.h>

#include "lib/base/names.h"

/* The weight of the conservative term where none is named. It is the paper's, from its
 * Preliminaries. */
#define REWARD_CQL_ALPHA 0.75
/* What a fit is made to: rewards over the baseline on unit scale, or rewards as they are logged. */
typedef enum fit_reward { FIT_ADVANTAGE, FIT_RAW } fit_reward;

/* Returns the penalty in nats. beta_bud is 0 on a side that pays none (side_beta_bud). */
static inline double reward_penalty(double beta_bud, uint32_t n_tokens, uint32_t n_candidates,
                                    uint32_t budget) {
    return n_candidates > budget ? beta_bud / (double)n_tokens * (double)(n_candidates - budget)
                                 : 0.0;
}

/* Returns the part of a reward that the losses alone make. Losses are means in nats per token
 * whatever the reduction. */
static inline double reward_loss_part(double loss_full, double loss_comp,
                                      ckvc_loss_reduction reduction, uint32_t n_continuation) {
    const double part = -(loss_comp - loss_full);
    return reduction == CKVC_LOSS_SUM ? part * (double)n_continuation : part;
}

static inline double reward_of(double loss_full, double loss_comp, ckvc_loss_reduction reduction,
                               uint32_t n_continuation, double penalty) {
    return reward_loss_part(loss_full, loss_comp, reduction, n_continuation) - penalty;
}
