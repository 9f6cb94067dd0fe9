/* A share of a run's rollouts once more, the plain way (--check-rollouts). */
#ifndef CKVC_ROLLOUTS_CHECK_H
#define CKVC_ROLLOUTS_CHECK_H

#include "calib/rollout/rollouts.h"

#define CHECK_TOLERANCE 1e-5 /* nats; the same bits are expected, see rollouts_sweep.h */

typedef struct rollouts_sample {
    double share;
    uint64_t seed;
    const char *prompt_id;
} rollouts_sample;

/* Baselines and variants whose hash of (seed, prompt, budget group, layer, set) falls into the
 * share are done again; one that differs by more than CHECK_TOLERANCE is CKVC_CHECK_FAILED with the
 * prompt and the action. *n_checked counts on. */
ckvc_status rollouts_check(rollout_scratch *w, const rollouts *r, const rollouts_sample *of,
                           uint64_t *n_checked, ckvc_err *err) CKVC_MUST_CHECK;

#endif
