/* Two arithmetics side by side: see bench_error.h. */
#include "calib/bench/bench_error.h"

#include <math.h>
#include <stdlib.h>

#include "calib/rollout/memory_plan.h"
#include "cql/solve/reward.h"
#include "calib/rollout/rollouts_sweep.h"
#include "calib/actions/start_table.h"
#include "cql/solve/counts.h"
#include "cql/solve/cql.h"
#include "lib/base/memory.h"

#define CQL_ALPHA 0.75

/* One arithmetic: a session, what its prompt keeps, and the statistics of its rewards. */
typedef struct arm {
    backend *be;
    model *model;
    session *session;
    prompt_sets *kept;
    variant_list variants;
    sweep sweep;
    prefill_stats stats;
    double full, baseline;
    cql_counts *counts[CKVC_SIDE_COUNT];
} arm;

typedef struct pair {
    const bench_error_options *o;
    ckvc_table *table;
    arm arms[2]; /* reference, other */
    bool *live;  /* [all states of both sides] */
    size_t n_states[CKVC_SIDE_COUNT];
    double sum, sum2; /* of the reference's advantages */
    uint64_t n_kept, n_lost;
} pair;

static const bool both[CKVC_SIDE_COUNT] = {true, true};

static ckvc_status open_arm(pair *p, arm *a, backend *be, model *m, ckvc_err *err) {
    const model_shape *s = model_get_shape(m);
    session_limits limits = {.max_window = p->o->window};
    *a = (arm){.be = be, .model = m};
    for (size_t i = 0; i < p->o->n_prompts; i++) {
        const prompt *at = &p->o->prompts[i];
        limits.max_prompt = at->n_tokens > limits.max_prompt ? at->n_tokens : limits.max_prompt;
        limits.max_continuation = at->n_continuation > limits.max_continuation
                                      ? at->n_continuation
                                      : limits.max_continuation;
    }
    const variant_extent most =
        variants_extent(p->table, (uint32_t)limits.max_prompt, both, p->o->variants);
    memory_plan plan;
    ckvc_status st = memory_plan_make(
        be, s, model_converted_bytes(m), model_converted_least(m), limits, p->table, &most, false,
        p->o->memory ? p->o->memory : memory_plan_default() / 2, &plan, err);
    limits.max_lanes = plan.lanes;
    st = st ? st : session_create(m, limits, &a->session, err);
    st = st ? st
            : prompt_sets_create(p->table, (uint32_t)limits.max_prompt, (uint32_t)p->o->window, 0,
                                 &a->kept, err);
    st = st ? st : variants_reserve(&a->variants, &most, err);
    st = st ? st
            : sweep_create(&a->sweep, plan.lanes, (uint32_t)limits.max_continuation, 1,
                           p->table->n_layers, most.n_variants, err);
    for (int side = 0; st == CKVC_OK && side < CKVC_SIDE_COUNT; side++) {
        const size_t n_actions =
            side == CKVC_SIDE_HEAD ? p->table->n_head_actions : p->table->n_gate_actions;
        a->counts[side] = cql_counts_create(p->n_states[side], n_actions);
    }
    return st;
}

static void close_arm(arm *a) {
    sweep_fini(&a->sweep);
    variants_fini(&a->variants);
    prompt_sets_destroy(a->kept);
    session_destroy(a->session);
    for (int side = 0; side < CKVC_SIDE_COUNT; side++) {
        cql_counts_free(a->counts[side]);
    }
}

static ckvc_status prefill(const pair *p, arm *a, const prompt *at, ckvc_err *err) {
    const prefill_input in = {.tokens = at->tokens,
                              .n = at->n_tokens,
                              .n_total = (int64_t)at->n_tokens + at->n_continuation,
                              .window = p->o->window};
    ckvc_status st = session_prefill(a->session, &in, &a->stats, err);
    if (st == CKVC_OK) {
        prompt_sets_build(a->kept, at->n_tokens, a->stats.alpha_f32, a->stats.rho,
                          a->stats.r_struct, a->stats.r_sem);
        st = variants_build(&a->variants, a->kept, both, BEHAVIOUR_BALANCED, p->o->variants,
                            p->o->seed, at->entry->id, err);
    }
    return st;
}

/* Losses of `sets`' kept sets, which may be the other arm's, by a's arithmetic. */
static ckvc_status roll(arm *a, arm *sets, const prompt *at, ckvc_err *err) {
    ckvc_status st =
        rollouts_sweep(&a->sweep, a->session, sets->kept, &sets->variants,
                       at->tokens + at->n_tokens, at->n_continuation, &a->full, &a->baseline, err);
    bool finite = isfinite(a->full) && isfinite(a->baseline);
    for (size_t i = 0; i < sets->variants.n; i++) {
        finite = finite && isfinite(sets->variants.items[i].loss);
    }
    return st == CKVC_OK && !finite
               ? ckvc_fail(err, CKVC_E_DATA, "prompt \"%s\": a loss is not finite; %s",
                           at->entry->id, a->be->kernel)
               : st;
}

/* Loss of taken action i of `sets` as arm `a` has just computed it. */
static double action_loss(const arm *a, const arm *sets, size_t i) {
    const uint32_t of = sets->variants.actions[i].variant;
    return of == VARIANT_NONE ? a->baseline : sets->variants.items[of].loss;
}

static size_t state_of(const ckvc_table *t, const taken_action *a) {
    return a->side == CKVC_SIDE_HEAD ? (size_t)a->layer * t->n_heads + a->head : a->layer;
}

/* The arm's own rewards into its statistics. */
static ckvc_status count(pair *p, arm *a, const prompt *at, ckvc_err *err) {
    ckvc_status st = CKVC_OK;
    for (int side = 0; side < CKVC_SIDE_COUNT; side++) {
        cql_counts_prompt(a->counts[side], at->entry->id);
    }
    for (size_t i = 0; st == CKVC_OK && i < a->variants.n_actions; i++) {
        const taken_action *t = &a->variants.actions[i];
        const uint32_t budget = a->kept->budget[0],
                       base = prompt_sets_at(a->kept, 0, t->layer)->n_candidates;
        const double part = -(action_loss(a, a, i) - a->baseline);
        const double penalty =
            reward_penalty((ckvc_side)t->side, 1.0, at->n_tokens, t->n_candidates, budget) -
            reward_penalty((ckvc_side)t->side, 1.0, at->n_tokens, base, budget);
        const size_t state = state_of(p->table, t);
        st = cql_counts_add(a->counts[t->side], state, t->action, part - penalty, part, err);
        p->live[(t->side == CKVC_SIDE_HEAD ? 0 : p->n_states[CKVC_SIDE_HEAD]) + state] |=
            t->variant != VARIANT_NONE;
    }
    return st;
}

/* How many of the reference's kept positions the other arm's baselines lack. */
static void compare_kept(pair *p) {
    for (uint32_t l = 0; l < p->table->n_layers; l++) {
        const layer_set *a = prompt_sets_at(p->arms[0].kept, 0, l),
                        *b = prompt_sets_at(p->arms[1].kept, 0, l);
        uint32_t k = 0;
        for (uint32_t i = 0; i < a->n_kept; i++) {
            while (k < b->n_kept && b->positions[k] < a->positions[i]) {
                k++;
            }
            p->n_lost += k == b->n_kept || b->positions[k] != a->positions[i];
        }
        p->n_kept += a->n_kept;
    }
}

static void add_difference(double d, double *mean, double *max) {
    *mean += fabs(d);
    *max = fabs(d) > *max ? fabs(d) : *max;
}

static ckvc_status one_prompt(pair *p, const prompt *at, bench_error *out, ckvc_err *err) {
    arm *a = &p->arms[0], *b = &p->arms[1];
    ckvc_status st = prefill(p, a, at, err);
    st = st ? st : roll(a, a, at, err);
    st = st ? st : count(p, a, at, err);
    double *losses = st == CKVC_OK ? ckvc_alloc(a->variants.n_actions, sizeof *losses) : NULL;
    if (st == CKVC_OK && losses == NULL) {
        st = ckvc_fail_memory(err, "losses", a->variants.n_actions * sizeof *losses);
    }
    for (size_t i = 0; st == CKVC_OK && i < a->variants.n_actions; i++) {
        losses[i] = action_loss(a, a, i);
    }
    st = st ? st : prefill(p, b, at, err);
    st = st ? st : roll(b, a, at, err); /* the reference's sets by the other arithmetic */
    for (size_t i = 0; st == CKVC_OK && i < a->variants.n_actions; i++) {
        const double loss = action_loss(b, a, i), advantage = a->baseline - losses[i];
        add_difference((b->full - loss) - (a->full - losses[i]), &out->reward_mean,
                       &out->reward_max);
        add_difference((b->baseline - loss) - advantage, &out->advantage_mean, &out->advantage_max);
        p->sum += advantage;
        p->sum2 += advantage * advantage;
        out->n_rewards++;
    }
    free(losses);
    if (st == CKVC_OK) {
        compare_kept(p);
        st = roll(b, b, at, err);
    }
    return st ? st : count(p, b, at, err);
}

/* Mean advantages and the choice of one state. */
static ckvc_status choose(const pair *p, const arm *a, int side, size_t state, double scale,
                          uint64_t *n, double *mean, int *choice, ckvc_err *err) {
    const ckvc_table *t = p->table;
    const ckvc_actions actions = side == CKVC_SIDE_HEAD
                                     ? (ckvc_actions){t->n_head_actions, t->head_grid, 1.0}
                                     : (ckvc_actions){t->n_gate_actions, t->gate_grid, 0.0};
    double q[CQL_MAX_ACTIONS];
    cql_certificate certificate;
    cql_counts_state(a->counts[side], state, scale, n, mean, NULL);
    if (!cql_solve_exact(actions.n, n, mean, CQL_ALPHA, q, &certificate)) {
        return ckvc_fail(err, CKVC_E_BUG, "the exact solver's certificate failed at gradient %g",
                         certificate.gradient);
    }
    *choice = cql_choose(&actions, q);
    return CKVC_OK;
}

static ckvc_status compare_tables(const pair *p, bench_error *out, ckvc_err *err) {
    static double mean[2][CQL_MAX_ACTIONS];
    static uint64_t n[2][CQL_MAX_ACTIONS];
    for (int side = 0; side < CKVC_SIDE_COUNT; side++) {
        double scale[2];
        for (int i = 0; i < 2; i++) {
            scale[i] = cql_counts_sd(p->arms[i].counts[side], side == CKVC_SIDE_GATE);
            scale[i] = scale[i] > 0 ? scale[i] : 1;
        }
        for (size_t s = 0; s < p->n_states[side]; s++) {
            int choice[2];
            for (int i = 0; i < 2; i++) {
                ckvc_status st =
                    choose(p, &p->arms[i], side, s, scale[i], n[i], mean[i], &choice[i], err);
                if (st != CKVC_OK) { return st; }
            }
            out->n_cells++;
            out->n_side[side]++;
            out->n_live += p->live[(side == CKVC_SIDE_HEAD ? 0 : p->n_states[CKVC_SIDE_HEAD]) + s];
            if (choice[0] != choice[1]) {
                out->n_changed++;
                out->n_side_changed[side]++;
                if (choice[0] >= 0 && choice[1] >= 0 && n[0][choice[1]] > 0) {
                    out->regret += (mean[0][choice[0]] - mean[0][choice[1]]) * scale[0];
                }
            }
        }
    }
    return CKVC_OK;
}

ckvc_status bench_error_measure(backend *reference_be, model *reference, backend *other_be,
                                model *other, const bench_error_options *o, bench_error *out,
                                ckvc_err *err) {
    const model_shape *s = model_get_shape(reference);
    pair p = {.o = o};
    *out = (bench_error){0};
    ckvc_status st = start_table_create((uint32_t)s->n_layers, (uint32_t)s->n_kv_heads, 1, 1,
                                        &o->budget, 1, (uint32_t)o->window, &p.table, err);
    p.n_states[CKVC_SIDE_HEAD] = (size_t)s->n_layers * (size_t)s->n_kv_heads;
    p.n_states[CKVC_SIDE_GATE] = (size_t)s->n_layers;
    p.live = ckvc_calloc(p.n_states[0] + p.n_states[1], sizeof *p.live);
    st = st ? st : open_arm(&p, &p.arms[0], reference_be, reference, err);
    st = st ? st : open_arm(&p, &p.arms[1], other_be, other, err);
    for (size_t i = 0; st == CKVC_OK && i < o->n_prompts; i++) {
        st = one_prompt(&p, &o->prompts[i], out, err);
    }
    st = st ? st : compare_tables(&p, out, err);
    const double n = out->n_rewards ? (double)out->n_rewards : 1;
    out->reward_mean /= n;
    out->advantage_mean /= n;
    out->advantage_sd = sqrt(fmax(p.sum2 / n - p.sum / n * (p.sum / n), 0));
    out->kept_share = p.n_kept ? (double)p.n_lost / (double)p.n_kept : 0;
    out->regret /= out->n_changed ? (double)out->n_changed : 1;
    close_arm(&p.arms[0]);
    close_arm(&p.arms[1]);
    ckvc_table_free(p.table);
    free(p.live);
    return st;
}

/* ---- words ---- */

static double share(uint64_t part, uint64_t whole) {
    return whole ? (double)part / (double)whole : 0;
}

void bench_error_rows(const bench_error *e, const char *shape, const char *note, ckvc_buffer *csv) {
    const struct {
        const char *stage, *unit;
        double over, value;
    } rows[] = {
        {"error-reward", "mean |difference| nats/token", (double)e->n_rewards, e->reward_mean},
        {"error-reward", "largest |difference| nats/token", (double)e->n_rewards, e->reward_max},
        {"error-advantage", "mean |difference| nats/token", (double)e->n_rewards,
         e->advantage_mean},
        {"error-advantage", "largest |difference| nats/token", (double)e->n_rewards,
         e->advantage_max},
        {"error-advantage", "standard deviation nats/token", (double)e->n_rewards, e->advantage_sd},
        {"error-kept", "share of kept positions", (double)e->n_rewards, e->kept_share},
        {"error-table", "share of cells", (double)e->n_cells, share(e->n_changed, e->n_cells)},
        {"error-table", "share of cells that can change", (double)e->n_live,
         share(e->n_changed, e->n_live)},
        {"error-table", "nats/token lost per changed cell", (double)e->n_changed, e->regret}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        ckvc_buffer_printf(csv, "%s,%s,%.6g,%s,1,,,%.6g,,,%s\n", rows[i].stage, shape, rows[i].over,
                           rows[i].unit, rows[i].value, note);
    }
}

void bench_error_text(const bench_error *e, const char *name, ckvc_buffer *text) {
    ckvc_buffer_printf(text,
                       "%s against f32, same kept sets: rewards differ by %.3g nats per token on "
                       "average, %.3g at most; advantages by "
                       "%.3g and %.3g (their standard deviation: %.3g), over %llu rewards\n",
                       name, e->reward_mean, e->reward_max, e->advantage_mean, e->advantage_max,
                       e->advantage_sd, (unsigned long long)e->n_rewards);
    ckvc_buffer_printf(
        text,
        "%s against f32, each with its own statistics: %.3g%% of the kept positions are others\n",
        name, 100 * e->kept_share);
    ckvc_buffer_printf(text,
                       "tables fitted from either: %llu of %llu cells choose another action "
                       "(%.1f%%; heads %llu of %llu, gate %llu of "
                       "%llu; %llu cells can change), at a cost of %.3g nats per token each\n",
                       (unsigned long long)e->n_changed, (unsigned long long)e->n_cells,
                       100 * share(e->n_changed, e->n_cells),
                       (unsigned long long)e->n_side_changed[CKVC_SIDE_HEAD],
                       (unsigned long long)e->n_side[CKVC_SIDE_HEAD],
                       (unsigned long long)e->n_side_changed[CKVC_SIDE_GATE],
                       (unsigned long long)e->n_side[CKVC_SIDE_GATE], (unsigned long long)e->n_live,
                       e->regret);
}
