/* Rollouts the plain way: after one prefill, one continuation per distinct kept set. Slow and
 * simple: the oracle that every faster way is held against (method.md section 4). */
#ifndef CKVC_ROLLOUTS_PLAIN_H
#define CKVC_ROLLOUTS_PLAIN_H

#include "calib/actions/prompt_sets.h"
#include "calib/actions/variants.h"
#include "lib/model/model.h"

/* Mean loss of the continuation with the baseline's sets of one budget. nll is scratch [C]; loss
 * may be non-finite. */
ckvc_status rollout_baseline(session *s, const prompt_sets *k, uint32_t budget,
                             const int32_t *continuation, uint32_t C, double *nll, double *loss,
                             ckvc_err *err) CKVC_MUST_CHECK;
/* Mean loss of one variant; sets is scratch [L]. */
ckvc_status rollout_variant(session *s, const prompt_sets *k, const variant_list *v, size_t i,
                            const int32_t *continuation, uint32_t C, kept_set *sets, double *nll,
                            double *loss, ckvc_err *err) CKVC_MUST_CHECK;
/* full (may be NULL: left out), baseline [nB] and items[i].loss of every variant, the session
 * holding the prefilled prompt. */
ckvc_status rollouts_plain(session *s, const prompt_sets *k, variant_list *v,
                           const int32_t *continuation, uint32_t C, kept_set *sets, double *nll,
                           double *full, double *baseline, ckvc_err *err) CKVC_MUST_CHECK;

#endif
