/* How much memory a calibration takes, known before it starts, and how many rollouts go side by
 * side within --memory. */
#ifndef CKVC_MEMORY_PLAN_H
#define CKVC_MEMORY_PLAN_H

#include "calib/actions/variants.h"
#include "lib/model/model.h"

typedef struct memory_plan {
    size_t limit;   /* what it has to fit into */
    size_t weights; /* float32 copies of weights that the file holds in another type */
    size_t prompt;  /* the longest prompt: caches, activations, statistics, the backend's scratch */
    size_t sets;    /* kept sets: baselines, distinct variants, actions */
    size_t batch;   /* what the rollouts of a batch take beyond that */
    size_t total;
    int64_t lanes; /* rollouts of a batch, its starts included */
} memory_plan;

/* limits.max_lanes is the plan's to choose: the most that fit and that can be used, at least 2.
 * table NULL: no rollouts under kept sets (a scan); plain: one at a time. weights: bytes of all
 * float32 copies; where these do not fit, weights_least is counted, which the backend's
 * weight_limit then keeps to. CKVC_E_MEMORY when the least does not fit. */
ckvc_status memory_plan_make(const backend *be, const model_shape *shape, size_t weights,
                             size_t weights_least, session_limits limits, const ckvc_table *table,
                             const variant_extent *most, bool plain, size_t limit, memory_plan *out,
                             ckvc_err *err) CKVC_MUST_CHECK;
/* --memory's default: three quarters of what is free now. */
size_t memory_plan_default(void);

#endif
