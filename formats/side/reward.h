/* The reward: its sign, its units and its conventions are defined here and nowhere else (paper.md
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
 * The first continuation token is predicted by the last prompt token, before compression matters:
 * its loss is the same in both means and cancels, but it counts in C. Head side: lambda = 0. Gate
 * side: lambda = beta_bud / T, I[l] the candidates before the clamp. r - r0, with r0 the baseline's
 * reward on the same side (and layer, for the gate's penalty), is the advantage. */
#pragma once

#include <stdint.h>

#include "lib/base/names.h"

/* The weight of the conservative term where none is named: the paper's, Preliminaries. */
#define REWARD_CQL_ALPHA 0.75
/* What is fitted: rewards over the baseline on unit scale, or as they are logged. */
typedef enum fit_reward { FIT_ADVANTAGE, FIT_RAW } fit_reward;

/* In nats; beta_bud: 0 on a side that pays none (side_beta_bud). */
static inline double reward_penalty(double beta_bud, uint32_t n_tokens, uint32_t n_candidates,
                                    uint32_t budget) {
    return n_candidates > budget ? beta_bud / (double)n_tokens * (double)(n_candidates - budget)
                                 : 0.0;
}

/* What a reward says of the losses alone. Losses are means in nats per token whatever the
 * reduction. */
static inline double reward_loss_part(double loss_full, double loss_comp,
                                      ckvc_loss_reduction reduction, uint32_t n_continuation) {
    const double part = -(loss_comp - loss_full);
    return reduction == CKVC_LOSS_SUM ? part * (double)n_continuation : part;
}

static inline double reward_of(double loss_full, double loss_comp, ckvc_loss_reduction reduction,
                               uint32_t n_continuation, double penalty) {
    return reward_loss_part(loss_full, loss_comp, reduction, n_continuation) - penalty;
}
