/* Workers, each of which takes one prompt at a time: see worker.h. */
#include "calib/rollout/worker.h"

#include <math.h>

#include "lib/base/progress.h"

static int64_t min_i64(int64_t a, int64_t b) { return a < b ? a : b; }

/* Returns how many prompts are worth going together: so many that copies of weights take about a
 * tenth of a pass, and that the prompts fill the device. There are no more, because a clean stop
 * waits for all of them. */
static int64_t most_prompts(const calibrate_inputs *in, const worker_options *o,
                            const ckvc_table *table) {
    const int64_t T = in->prompts->max_tokens, C = in->prompts->max_continuation,
                  rows = !table && C > 0 && C < T ? C : T, /* the fewest rows of a pass */
        copying = (8 * in->backend->copy_rows + rows - 1) / rows,
                  filling = (in->backend->fill_rows + T - 1) / T,
                  enough = copying > filling ? copying : filling;
    return min_i64(min_i64(enough, (int64_t)in->prompts->n),
                   min_i64(o->most_prompts, SESSIONS_TOGETHER));
}

static memory_request request_of(const calibrate_inputs *in, const worker_options *o,
                                 const ckvc_table *table) {
    const uint32_t T = in->prompts->max_tokens, C = in->prompts->max_continuation;
    memory_request need = {.backend = in->backend,
                           .shape = model_get_shape(in->model),
                           .weights = model_converted_bytes(in->model),
                           .weights_least = model_converted_least(in->model),
                           .limits = {.max_prompt = T,
                                      .max_continuation = C,
                                      .max_window = o->setting.window,
                                      .max_targets = o->max_targets,
                                      .max_counted = o->max_counted,
                                      .max_watched = o->max_watched,
                                      .fitted = o->fitted,
                                      .watched_later = o->watched_later,
                                      .divergence = o->divergence || o->setting.loss == SETTING_KL},
                           .beside = o->beside,
                           .once = o->once,
                           .held = o->held,
                           .most_lanes = o->most_lanes,
                           .n_rollouts = o->n_rollouts,
                           .steps = o->steps,
                           .most_prompts = most_prompts(in, o, table),
                           .table = table,
                           .plain = o->rollouts == ROLLOUTS_PLAIN,
                           .limit = memory_plan_limit(in->backend, o->memory)};
    if (table) { need.most = variants_extent(table, o->setting.layer_budgets.v, T, &o->behaviour); }
    return need;
}

/* Allocates what a worker has beside its session and its plan. */
static ckvc_status allocate_scratch(worker *w, const memory_request *need, ckvc_err *err) {
    const worker_options *o = &w->o;
    const ckvc_table *table = need->table;
    const rollout_extent extent = {.max_lanes = w->plan.lanes,
                                   .max_continuation = (uint32_t)need->limits.max_continuation,
                                   .n_budgets = table ? table->n_budgets : 0,
                                   .n_layers = (uint32_t)need->shape->n_layers,
                                   .max_variants = need->most.n_variants,
                                   .divergence = need->limits.divergence,
                                   .by_kl = o->setting.loss == SETTING_KL};
    rollout_scratch_init(&w->scratch, &extent);
    w->losses.session = w->session;
    if (!table) { return CKVC_OK; }
    CKVC_TRY(
        prompt_sets_create(table, (uint32_t)need->limits.max_prompt, &o->setting, &w->sets, err));
    prompt_sets_by_layer(w->sets, o->setting.layer_budgets.v);
    variants_reserve(&w->variants, &need->most);
    w->losses.sets = w->sets;
    w->losses.variants = &w->variants;
    w->losses.baseline = ckvc_calloc(table->n_budgets, sizeof *w->losses.baseline);
    if (o->behaviour.kind == BEHAVIOUR_EPSILON_GREEDY) {
        w->o.behaviour.greedy = epsilon_greedy_create(table, o->behaviour.sides);
    }
    return CKVC_OK;
}

static ckvc_status open_all(worker *w, int64_t n, memory_request *need, const memory_plan *plan,
                            const calibrate_inputs *in, const worker_options *o, ckvc_err *err) {
    session *sessions[SESSIONS_TOGETHER];
    need->limits.max_lanes = plan->lanes;
    need->limits.joined = plan->joined;
    /* The backend keeps copies of weights as far as there is room beside everything that is neither
     * a copy nor a session. */
    const size_t sessions_take = need->held + session_bytes(need->shape, need->limits) +
                                 (size_t)(n - 1) * session_bytes_beside(need->shape, need->limits);
    in->backend->ops->weight_limit(in->backend,
                                   plan->limit - (plan->total - plan->weights - sessions_take));
    CKVC_TRY(sessions_create(in->model, need->limits, n, sessions, err));
    for (int64_t i = 0; i < n; i++) {
        w[i] = (worker){.o = *o, .share = EPSILON_FIRST, .plan = *plan, .session = sessions[i]};
    }
    for (int64_t i = 0; i < n; i++) { CKVC_TRY(allocate_scratch(&w[i], need, err)); }
    return CKVC_OK;
}

ckvc_status worker_open(worker *w, const calibrate_inputs *in, const worker_options *o,
                        const ckvc_table *table, ckvc_err *err) {
    memory_request need = request_of(in, o, table);
    memory_plan plan;
    *w = (worker){0};
    need.most_prompts = 1;
    CKVC_TRY(memory_plan_make(&need, &plan, err));
    return open_all(w, 1, &need, &plan, in, o, err);
}

ckvc_status workers_open(workers *ws, const calibrate_inputs *in, const worker_options *o,
                         const ckvc_table *table, ckvc_err *err) {
    memory_request need = request_of(in, o, table);
    memory_plan plan;
    *ws = (workers){0};
    CKVC_TRY(memory_plan_make(&need, &plan, err));
    ws->n = plan.prompts;
    ws->items = ckvc_calloc((size_t)ws->n, sizeof *ws->items);
    return open_all(ws->items, ws->n, &need, &plan, in, o, err);
}

void workers_close(workers *ws) {
    for (int64_t i = 0; i < ws->n; i++) { worker_close(&ws->items[i]); }
    free(ws->items);
    *ws = (workers){0};
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

ckvc_status workers_prefill(worker *const *w, const prompt *const *prompts, int64_t n,
                            ckvc_err *err) {
    prefill_job jobs[SESSIONS_TOGETHER];
    for (int64_t i = 0; i < n; i++) {
        const prompt *p = prompts[i];
        const uint32_t behind = w[i]->fed > p->n_continuation ? w[i]->fed : p->n_continuation;
        w[i]->losses.continuation = p->tokens + p->n_tokens;
        w[i]->losses.n_continuation = p->n_continuation;
        w[i]->losses.n_later = p->n_later;
        jobs[i] = (prefill_job){.session = w[i]->session,
                                .in = {.tokens = p->tokens,
                                       .n = p->n_tokens,
                                       .n_total = (int64_t)p->n_tokens + behind,
                                       .window = w[i]->o.setting.window,
                                       .alpha_kind = w[i]->o.setting.alpha,
                                       .watcher = w[i]->watcher,
                                       .queries = w[i]->prompt_queries},
                                .stats = &w[i]->stats};
    }
    return sessions_prefill(jobs, n, err);
}

ckvc_status workers_full(worker *const *w, int64_t n, ckvc_err *err) {
    static const rollout_lane full = {.parent = -1};
    rollout_job jobs[SESSIONS_TOGETHER];
    int64_t n_jobs = 0;
    for (int64_t i = 0; i < n; i++) {
        const rollouts *r = &w[i]->losses;
        w[i]->losses.full = NAN;
        if (r->n_continuation == 0) { continue; }
        jobs[n_jobs] = rollouts_job(&w[i]->scratch, r, &full, 1);
        jobs[n_jobs].targets = w[i]->attended;
        jobs[n_jobs++].queries = w[i]->continuation_queries;
    }
    if (n_jobs > 0) { CKVC_TRY(sessions_rollouts(jobs, n_jobs, err)); }
    for (int64_t i = 0; i < n; i++) {
        const rollouts *r = &w[i]->losses;
        if (r->n_continuation > r->n_later) {
            w[i]->losses.full = rollouts_loss(&w[i]->scratch, r, 0);
        }
    }
    return CKVC_OK;
}

ckvc_status workers_rollouts(worker *const *w, int64_t n, ckvc_err *err) {
    prompt_rollouts of[SESSIONS_TOGETHER];
    for (int64_t i = 0; i < n; i++) {
        if (w[i]->o.rollouts == ROLLOUTS_PLAIN) {
            CKVC_TRY(rollouts_plain(&w[i]->scratch, &w[i]->losses, err));
        }
        of[i] = (prompt_rollouts){&w[i]->scratch, &w[i]->losses};
    }
    return w[0]->o.rollouts == ROLLOUTS_PLAIN ? CKVC_OK : rollouts_sweep_together(of, n, err);
}

ckvc_status worker_prefill(worker *w, const prompt *p, ckvc_err *err) {
    return workers_prefill(&w, &p, 1, err);
}

ckvc_status worker_full(worker *w, ckvc_err *err) { return workers_full(&w, 1, err); }

ckvc_status worker_rollouts(worker *w, ckvc_err *err) { return workers_rollouts(&w, 1, err); }

void worker_keep(worker *w, const prompt *p, bool logged) {
    behaviour_policy how = w->o.behaviour;
    prompt_sets_build(w->sets, &w->stats);
    for (int i = 0; i < CKVC_SIDE_COUNT; i++) { how.sides[i] &= logged; }
    if (how.greedy) {
        epsilon_greedy_begin(how.greedy, w->share, w->sets->bin_entropy, w->sets->bin_ppl);
    }
    variants_build(&w->variants, w->sets, &how, p->entry->id);
}

ckvc_status worker_time_copies(const calibrate_inputs *in, const memory_plan *plan, double *copy_s,
                               ckvc_err *err) {
    const double start_s = ckvc_now_s();
    *copy_s = 0;
    if (plan->copied == 0) { return CKVC_OK; }
    CKVC_TRY(model_acquire(in->model, err));
    /* waits for the device, which copies in the background */
    CKVC_TRY(in->backend->ops->sync(in->backend, err));
    *copy_s = ckvc_now_s() - start_s;
    return CKVC_OK;
}

double worker_compute_s(const calibrate_inputs *in, double prefill_s, double copy_s,
                        uint32_t n_tokens) {
    if (!in->backend->memory_bytes) { return fmax(prefill_s - copy_s, 1e-6); }
    return prefill_s > 1.1 * copy_s ? prefill_s
                                    : copy_s * n_tokens / (double)in->backend->copy_rows;
}
