/* A share of a run's rollouts once more, the plain way (--check-rollouts). */
#ifndef CKVC_ROLLOUTS_CHECK_H
#define CKVC_ROLLOUTS_CHECK_H

#include "calib/actions/prompt_sets.h"
#include "calib/actions/variants.h"
#include "lib/model/model.h"

#define CHECK_TOLERANCE 1e-5 /* nats; the same bits are expected, see rollouts_sweep.h */

/* Baselines and variants whose hash of (seed, prompt, budget group, layer, set) falls into `share`
 * are done again; one that differs by more than CHECK_TOLERANCE is CKVC_CHECK_FAILED with the
 * prompt and the action. sets [L], nll [C] are scratch. *n_checked counts on. */
ckvc_status rollouts_check(double share, uint64_t seed, const char *prompt_id, session *s,
                           const prompt_sets *k, const variant_list *v, const double *baseline,
                           const int32_t *continuation, uint32_t C, kept_set *sets, double *nll,
                           uint64_t *n_checked, ckvc_err *err) CKVC_MUST_CHECK;

#endif
