/* Workers whose prompts go through the layers together, each with what policies keep of its prompt:
 * where copies of weights do not stay, one of each serves all of them. What is kept and every loss
 * are the same bits for any number of them. */
#pragma once

#include "calib/policies/policy_sets.h"
#include "calib/rollout/worker.h"

typedef struct policy_workers {
    workers all;
    worker *w[SESSIONS_TOGETHER];         /* [all.n] its items */
    policy_sets *sets[SESSIONS_TOGETHER]; /* [all.n] */
} policy_workers;

/* o says what its prompts are asked besides; what the policies need is added. Of `choice`
 * (borrowed) there may be none. As many as the memory plan says, all.items->plan. Close it even
 * after an error. */
ckvc_status policy_workers_open(policy_workers *p, const calibrate_inputs *in,
                                const policy_choice *choice, worker_options o,
                                ckvc_err *err) CKVC_MUST_CHECK;
void policy_workers_close(policy_workers *p);
/* policy_sets_prefill of n <= all.n prompts together, a worker's each -> its stats. They stay where
 * they are until the next. */
ckvc_status policy_workers_prefill(policy_workers *p, const prompt *const *prompts, int64_t n,
                                   ckvc_err *err) CKVC_MUST_CHECK;
