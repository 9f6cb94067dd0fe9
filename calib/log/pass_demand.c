/* The passes that look at what a prompt's repetition and its continuation attend to. A demand pass
 * logs the demand of heads and layers, and the targets and features that a learned ranking is
 * fitted to (docs/method.md). A pass of kind score logs the latter alone. */
#include <math.h>
#include <stdlib.h>

#include "calib/log/pass.h"
#include "lib/base/memory.h"

static demand_options demand_of(const pass *s) {
    return (demand_options){s->o->setting, s->o->instruction, s->o->n_instruction};
}

/* Returns of how many positions the pass logs queries; see setting.queries. */
static uint32_t logged_queries(const pass *s) {
    return s->kind == &pass_demand ? s->o->setting.queries : 0;
}

/* Asks for workers that can look at what a prompt's repetition attends to. */
static void need_repeats(pass *s, worker_options *options) {
    const demand_options demand = demand_of(s);
    demand_need(&demand, s->in, options);
    position_sampler_need(s->o->setting.positions, s->in, options);
    query_log_need(logged_queries(s), s->in, options);
}

/* Opens a demand meter for each worker, the sampler of positions, and where queries are logged a
 * log of them for each worker. */
static ckvc_status open_repeats(pass *s, ckvc_err *err) {
    const demand_options demand = demand_of(s);
    s->demand = ckvc_calloc((size_t)s->all.n, sizeof *s->demand);
    for (int64_t i = 0; i < s->all.n; i++) {
        CKVC_TRY(demand_meter_open(&s->demand[i], &demand, s->in, err));
    }
    position_sampler_open(&s->sampler, s->o->setting.positions, s->in);
    if (logged_queries(s) == 0) { return CKVC_OK; }
    s->queries = ckvc_calloc((size_t)s->all.n, sizeof *s->queries);
    for (int64_t i = 0; i < s->all.n; i++) {
        query_log_open(&s->queries[i], logged_queries(s), s->in);
    }
    return CKVC_OK;
}

/* Returns whether the prompt has a row whose attention can be looked at. */
static bool has_rows(const pass *s, const prompt *p) {
    return s->o->n_instruction || p->n_continuation > 1;
}

/* Measures what the continuations and repetitions of n prompts attend to, leaving out prompts that
 * have no row to look at. */
static ckvc_status measure_demand(pass *s, worker *const *w, const prompt *const *p, int64_t n,
                                  ckvc_err *err) {
    demand_meter *meters[SESSIONS_TOGETHER];
    worker *going[SESSIONS_TOGETHER];
    const prompt *their[SESSIONS_TOGETHER];
    int64_t n_going = 0;
    for (int64_t i = 0; i < n; i++) {
        if (!has_rows(s, p[i])) { continue; }
        w[i]->watcher = &s->sampler.watcher;
        if (s->queries) { query_log_draw(&s->queries[i], p[i], w[i]); }
        meters[n_going] = &s->demand[i];
        going[n_going] = w[i];
        their[n_going++] = p[i];
    }
    return n_going > 0 ? demand_measure(meters, going, their, n_going, err) : CKVC_OK;
}

/* Writes the measured prompt's targets and features, and its demand, into row `at`. */
static ckvc_status log_demand(pass *s, const prompt *p, size_t at, bool *finite, ckvc_err *err) {
    const worker *w = s->w;
    demand_meter *m = &s->demand[w - s->all.items];
    const shard_header *h = &s->rows->h;
    const size_t layers = (size_t)h->n_budgets * h->n_layers, heads = layers * h->n_kv_heads;
    const measured_prompt of = {m, w, p};
    CKVC_TRY(position_sampler_measure(&s->sampler, &of, s->rows, at, finite, err));
    if (s->kind == &pass_score || !*finite) { return CKVC_OK; }
    CKVC_TRY(demand_weigh(m, w, finite, err));
    if (!*finite) { return CKVC_OK; }
    pass_put_statistics(w, at, s->rows);
    demand_entries(m, p->n_tokens, 0, s->rows->demand + at * heads,
                   s->rows->layer_demand + at * layers, s->rows->length_demand + at * layers);
    for (uint32_t i = 0; i < SHARD_N_MIXES; i++) {
        const size_t row = at * SHARD_N_MIXES + i;
        demand_entries(m, p->n_tokens, shard_mixes[i], s->rows->mixed_demand + row * heads,
                       s->rows->mixed_layer_demand + row * layers,
                       s->rows->mixed_length_demand + row * layers);
    }
    return CKVC_OK;
}

/* Logs what a prompt's repetition attends to: demand, or targets and features. */
static ckvc_status repeated_prompt(pass *s, const prompt *p, const char **bad, ckvc_err *err) {
    const worker *w = s->w;
    bool finite = true;
    if (!has_rows(s, p)) {
        *bad = "its continuation has no row to look at: give 2 tokens at least, or a repeat pass";
        return CKVC_OK;
    }
    const struct shard_prompt none = {.id = ""};
    const size_t at = shard_add_prompt(s->rows, &none);
    ckvc_alloc_forbid("what a prompt's repetition attends to");
    const ckvc_status st = log_demand(s, p, at, &finite, err);
    ckvc_alloc_permit();
    CKVC_TRY(st);
    struct shard_prompt *row = &s->rows->prompts[at];
    *row = pass_prompt_row(p, &w->stats);
    row->loss_full = w->losses.full;
    if (!finite || !isfinite(row->loss_full) || !isfinite(row->r_sem) || !isfinite(row->r_struct)) {
        *bad = "the full-cache loss, a risk or a head's attention is not finite";
        return CKVC_OK;
    }
    if (s->queries) { query_log_add(&s->queries[w - s->all.items], w, at, s->rows); }
    return CKVC_OK;
}

const pass_type pass_demand = {.rows = SHARD_DEMAND,
                               .budgets = true,
                               .judged = true,
                               .forwards = 3, /* prefill, continuation and repetition */
                               .need = need_repeats,
                               .open = open_repeats,
                               .measure = measure_demand,
                               .log = repeated_prompt},
                pass_score = {.rows = SHARD_SCORE,
                              .judged = true,
                              .forwards = 3,
                              .need = need_repeats,
                              .open = open_repeats,
                              .measure = measure_demand,
                              .log = repeated_prompt};
