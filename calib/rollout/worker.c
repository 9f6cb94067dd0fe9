/* One prompt at a time: see worker.h. */
#include "calib/rollout/worker.h"

#include <math.h>

ckvc_status worker_open(worker *w, const calibrate_inputs *in, const worker_options *o,
                        const ckvc_table *table, ckvc_err *err) {
    const model_shape *shape = model_get_shape(in->model);
    const uint32_t T = in->prompts->max_tokens, C = in->prompts->max_continuation;
    *w = (worker){.o = *o, .share = EPSILON_FIRST};
    memory_request need = {.backend = in->backend,
                           .shape = shape,
                           .weights = model_converted_bytes(in->model),
                           .weights_least = model_converted_least(in->model),
                           .limits = {.max_prompt = T,
                                      .max_continuation = C,
                                      .max_window = o->setting.window,
                                      .max_targets = o->max_targets,
                                      .max_watched = o->max_watched},
                           .beside = o->beside,
                           .most_lanes = o->most_lanes,
                           .table = table,
                           .plain = o->rollouts == ROLLOUTS_PLAIN,
                           .limit = memory_plan_limit(in->backend, o->memory)};
    if (table) { need.most = variants_extent(table, o->setting.layer_budgets.v, T, &o->behaviour); }
    CKVC_TRY(memory_plan_make(&need, &w->plan, err));
    need.limits.max_lanes = w->plan.lanes;
    CKVC_TRY(session_create(in->model, need.limits, &w->session, err));
    const rollout_extent extent = {.max_lanes = w->plan.lanes,
                                   .max_continuation = C,
                                   .n_budgets = table ? table->n_budgets : 0,
                                   .n_layers = (uint32_t)shape->n_layers,
                                   .max_variants = need.most.n_variants};
    rollout_scratch_init(&w->scratch, &extent);
    w->losses.session = w->session;
    if (!table) { return CKVC_OK; }
    CKVC_TRY(prompt_sets_create(table, T, &o->setting, &w->sets, err));
    prompt_sets_by_layer(w->sets, o->setting.layer_budgets.v);
    variants_reserve(&w->variants, &need.most);
    w->losses.sets = w->sets;
    w->losses.variants = &w->variants;
    w->losses.baseline = ckvc_calloc(table->n_budgets, sizeof *w->losses.baseline);
    if (o->behaviour.kind == BEHAVIOUR_EPSILON_GREEDY) {
        w->o.behaviour.greedy = epsilon_greedy_create(table, o->behaviour.sides);
    }
    return CKVC_OK;
}

void worker_close(worker *w) {
    session_destroy(w->session);
    prompt_sets_destroy(w->sets);
    variants_fini(&w->variants);
    epsilon_greedy_free(w->o.behaviour.greedy);
    rollout_scratch_fini(&w->scratch);
    free(w->losses.baseline);
    *w = (worker){0};
}

ckvc_status worker_prefill(worker *w, const prompt *p, ckvc_err *err) {
    w->losses.continuation = p->tokens + p->n_tokens;
    w->losses.n_continuation = p->n_continuation;
    const uint32_t behind = w->fed > p->n_continuation ? w->fed : p->n_continuation;
    const prefill_input in = {.tokens = p->tokens,
                              .n = p->n_tokens,
                              .n_total = (int64_t)p->n_tokens + behind,
                              .window = w->o.setting.window,
                              .alpha_kind = w->o.setting.alpha,
                              .watcher = w->watcher};
    return session_prefill(w->session, &in, &w->stats, err);
}

ckvc_status worker_full(worker *w, ckvc_err *err) {
    const uint32_t C = w->losses.n_continuation;
    w->losses.full = NAN;
    if (C == 0) { return CKVC_OK; }
    CKVC_TRY(session_continue(w->session, w->losses.continuation, C, NULL, w->scratch.nll, err));
    w->losses.full = nll_mean(w->scratch.nll, C);
    return CKVC_OK;
}

void worker_keep(worker *w, const prompt *p, bool logged) {
    behaviour_policy how = w->o.behaviour;
    prompt_sets_build(w->sets, &w->stats);
    for (int i = 0; i < CKVC_SIDE_COUNT; i++) { how.sides[i] &= logged; }
    if (how.greedy) {
        epsilon_greedy_begin(how.greedy, w->share, w->sets->bin_entropy, w->sets->bin_ppl);
    }
    variants_build(&w->variants, w->sets, &how, p->entry->id);
}

ckvc_status worker_rollouts(worker *w, ckvc_err *err) {
    return w->o.rollouts == ROLLOUTS_PLAIN ? rollouts_plain(&w->scratch, &w->losses, err)
                                           : rollouts_sweep(&w->scratch, &w->losses, err);
}
