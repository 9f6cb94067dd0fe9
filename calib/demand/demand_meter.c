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

static ckvc_status repeat(demand_meter *m, session *s, const prompt *p, ckvc_err *err) {
    const uint32_t T = p->n_tokens;
    const size_t n = entries(m->shape, T);
    CKVC_TRY(repeat_targets(&m->repeat, s, p->tokens, T, m->y, m->more, err));
    for (size_t i = 0; i < n; i += T) {
        memset(m->y + i, 0, (T < SINKS ? T : SINKS) * sizeof *m->y);
    }
    return CKVC_OK;
}

ckvc_status demand_targets(demand_meter *m, worker *w, const prompt *p, ckvc_err *err) {
    w->fed = m->o.n_instruction ? repeat_fed(&m->repeat, p->n_tokens) : rows_of(p->n_continuation);
    CKVC_TRY(worker_prefill(w, p, err));
    CKVC_TRY(worker_full(w, err));
    if (m->o.n_instruction) { return repeat(m, w->session, p, err); }
    const target_input in = {.tokens = p->tokens + p->n_tokens, .n = w->fed};
    return session_targets(w->session, &in, m->y, err);
}

ckvc_status demand_measure(demand_meter *m, worker *w, const prompt *p, bool *finite,
                           ckvc_err *err) {
    const size_t n = entries(m->shape, p->n_tokens);
    CKVC_TRY(demand_targets(m, w, p, err));
    CKVC_TRY(session_value_norms(w->session, m->more, err));
    *finite = true;
    for (size_t i = 0; i < n; i++) {
        m->y[i] *= m->more[i];
        *finite &= isfinite(m->y[i]) != 0;
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
