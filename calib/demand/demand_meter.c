/* Demand of a prompt: see demand_meter.h. */
#include "calib/demand/demand_meter.h"

#include <math.h>

/* First positions that attract rows whatever they hold: not counted. */
enum { SINKS = 4 };

/* Of a continuation all but the last token are fed. */
static uint32_t rows_of(uint32_t n_continuation) {
    return n_continuation > 1 ? n_continuation - 1 : 0;
}

/* Tokens fed at a time behind any of the prompts. */
static uint32_t most_fed(const demand_meter *m, const prompt_list *prompts) {
    return m->o.n_instruction ? repeat_most_fed(&m->repeat, prompts)
                              : rows_of(prompts->max_continuation);
}

static size_t entries(const model_shape *s, uint32_t n_tokens) {
    return (size_t)s->n_layers * (size_t)s->n_kv_heads * n_tokens;
}

static demand_meter made_for(const demand_options *o, const model_shape *shape) {
    return (demand_meter){.o = *o,
                          .shape = shape,
                          .repeat = {.shape = shape,
                                     .instruction = o->instruction,
                                     .n_instruction = o->n_instruction}};
}

void demand_need(const demand_options *o, const calibrate_inputs *in, worker_options *w) {
    const demand_meter m = made_for(o, model_get_shape(in->model));
    const uint32_t T = in->prompts->max_tokens, fed = most_fed(&m, in->prompts),
                   n_units = (uint32_t)entries(m.shape, 1);
    w->max_targets = fed;
    w->beside = entries(m.shape, T) * 2 * sizeof(double) + demand_ranks_bytes(n_units, T) +
                fed * sizeof(int32_t);
}

ckvc_status demand_meter_open(demand_meter *m, const demand_options *o, const calibrate_inputs *in,
                              ckvc_err *err) {
    const model_shape *shape = model_get_shape(in->model);
    const uint32_t T = in->prompts->max_tokens;
    *m = made_for(o, shape);
    CKVC_FAIL_IF(entries(shape, T) > DEMAND_MAX_ENTRIES, err, CKVC_E_DATA,
                 "a prompt of %u tokens has %zu entries over %d x %d KV heads, at most %u are "
                 "ranked; shorten prompts with --max-tokens",
                 T, entries(shape, T), shape->n_layers, shape->n_kv_heads, DEMAND_MAX_ENTRIES);
    m->repeat.fed = ckvc_alloc(most_fed(m, in->prompts), sizeof *m->repeat.fed);
    m->y = ckvc_alloc(entries(shape, T), sizeof *m->y);
    m->more = ckvc_alloc(entries(shape, T), sizeof *m->more);
    demand_ranks_init(&m->ranks, (uint32_t)entries(shape, 1), T);
    return CKVC_OK;
}

void demand_meter_close(demand_meter *m) {
    CKVC_FREE(m->repeat.fed, m->y, m->more);
    demand_ranks_fini(&m->ranks);
    *m = (demand_meter){0};
}

/* m->y of n prefilled prompts. */
static ckvc_status repeat(demand_meter *const *m, worker *const *w, const prompt *const *p,
                          int64_t n, ckvc_err *err) {
    repeat_job jobs[SESSIONS_TOGETHER];
    for (int64_t i = 0; i < n; i++) {
        jobs[i] = (repeat_job){&m[i]->repeat,  w[i]->session, p[i]->tokens,
                               p[i]->n_tokens, m[i]->y,       m[i]->more};
    }
    CKVC_TRY(repeat_targets(jobs, n, err));
    for (int64_t i = 0; i < n; i++) {
        const uint32_t T = p[i]->n_tokens;
        for (size_t at = 0; at < entries(m[i]->shape, T); at += T) {
            memset(m[i]->y + at, 0, (T < SINKS ? T : SINKS) * sizeof *m[i]->y);
        }
    }
    return CKVC_OK;
}

static ckvc_status targets(demand_meter *const *m, worker *const *w, const prompt *const *p,
                           int64_t n, ckvc_err *err) {
    target_job jobs[SESSIONS_TOGETHER];
    const bool repeats = m[0]->o.n_instruction > 0;
    for (int64_t i = 0; i < n; i++) {
        w[i]->fed =
            repeats ? repeat_fed(&m[i]->repeat, p[i]->n_tokens) : rows_of(p[i]->n_continuation);
        jobs[i] = (target_job){
            w[i]->session, {.tokens = p[i]->tokens + p[i]->n_tokens, .n = w[i]->fed}, m[i]->y};
    }
    CKVC_TRY(workers_prefill(w, p, n, err));
    CKVC_TRY(workers_full(w, n, err));
    return repeats ? repeat(m, w, p, n, err) : sessions_targets(jobs, n, err);
}

ckvc_status demand_targets(demand_meter *m, worker *w, const prompt *p, ckvc_err *err) {
    return targets(&m, &w, &p, 1, err);
}

ckvc_status demand_measure(demand_meter *const *m, worker *const *w, const prompt *const *p,
                           int64_t n, ckvc_err *err) {
    CKVC_TRY(targets(m, w, p, n, err));
    for (int64_t k = 0; k < n; k++) {
        demand_meter *of = m[k];
        CKVC_TRY(session_value_norms(w[k]->session, of->more, err));
        of->finite = true;
        for (size_t i = 0; i < entries(of->shape, p[k]->n_tokens); i++) {
            of->y[i] *= of->more[i];
            of->finite &= isfinite(of->y[i]) != 0;
        }
    }
    return CKVC_OK;
}

/* The scores that are ranked now, under each budget. */
static void count_all(const demand_meter *m, uint32_t *out) {
    const setting *s = &m->o.setting;
    for (uint32_t b = 0; b < s->budgets.n; b++) {
        const uint32_t B = ckvc_budget_tokens(s->budgets.v[b], m->ranks.n_tokens);
        demand_count(&m->ranks, B, s->floor, s->recent, out + (size_t)b * m->ranks.n_units);
    }
}

void demand_entries(demand_meter *m, uint32_t n_tokens, uint32_t *heads, uint32_t *layers) {
    const uint32_t L = (uint32_t)m->shape->n_layers, G = (uint32_t)m->shape->n_kv_heads;
    demand_rank(&m->ranks, m->y, L * G, n_tokens);
    count_all(m, heads);
    for (uint32_t l = 0; l < L; l++) {
        const double *of = m->y + (size_t)l * G * n_tokens;
        double *most = m->more + (size_t)l * n_tokens;
        memcpy(most, of, n_tokens * sizeof *most);
        for (uint32_t i = n_tokens; i < G * n_tokens; i++) {
            most[i % n_tokens] = fmax(most[i % n_tokens], of[i]);
        }
    }
    demand_rank(&m->ranks, m->more, L, n_tokens);
    count_all(m, layers);
}
