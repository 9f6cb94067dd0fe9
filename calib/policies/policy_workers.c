/* Prompts together, and what policies keep of them: see policy_workers.h. */
#include "calib/policies/policy_workers.h"

ckvc_status policy_workers_open(policy_workers *p, const calibrate_inputs *in,
                                const policy_choice *choice, worker_options o, ckvc_err *err) {
    const model_shape *shape = model_get_shape(in->model);
    session_limits limits = {0};
    *p = (policy_workers){.all = {0}};
    CKVC_TRY(policy_sets_create(choice, shape, in->prompts, &p->sets[0], err));
    policy_sets_need(p->sets[0], &limits);
    o.setting = choice->setting;
    o.max_watched = (uint32_t)limits.max_watched;
    o.max_targets = (uint32_t)limits.max_targets;
    o.max_among = (uint32_t)limits.max_among;
    o.propagate_from = limits.propagate_from;
    o.beside += policy_sets_bytes(p->sets[0]);
    CKVC_TRY(workers_open(&p->all, in, &o, NULL, err));
    for (int64_t i = 0; i < p->all.n; i++) {
        p->w[i] = &p->all.items[i];
        if (i > 0) { CKVC_TRY(policy_sets_create(choice, shape, in->prompts, &p->sets[i], err)); }
    }
    return CKVC_OK;
}

void policy_workers_close(policy_workers *p) {
    for (int i = 0; i < SESSIONS_TOGETHER; i++) { policy_sets_free(p->sets[i]); }
    workers_close(&p->all);
    *p = (policy_workers){.all = {0}};
}

ckvc_status policy_workers_prefill(policy_workers *p, const prompt *const *prompts, int64_t n,
                                   ckvc_err *err) {
    for (int64_t i = 0; i < n; i++) {
        p->w[i]->fed = policy_sets_fed(p->sets[i], prompts[i]);
        p->w[i]->watcher = policy_sets_watch(p->sets[i], prompts[i], p->w[i]->session);
    }
    CKVC_TRY(workers_prefill(p->w, prompts, n, err));
    for (int64_t i = 0; i < n; i++) {
        CKVC_TRY(policy_sets_enter(p->sets[i], p->w[i]->session, prompts[i], &p->w[i]->stats, err));
    }
    return CKVC_OK;
}
