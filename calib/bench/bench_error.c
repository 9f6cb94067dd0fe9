/* Two arithmetics side by side: see bench_error.h. */
#include "calib/bench/bench_error.h"

#include <math.h>

#include "calib/actions/start_table.h"
#include "cql/solve/counts.h"
#include "cql/solve/cql.h"
#include "cql/solve/reward.h"
#include "formats/side/side.h"

#define CQL_ALPHA 0.75

/* One arithmetic: what its prompt keeps, its losses, and the statistics of its rewards. */
typedef struct arm {
    worker w;
    backend *be;
    cql_counts *counts[CKVC_SIDE_COUNT];
} arm;

typedef struct pair {
    const bench_error_options *o;
    ckvc_table *table;
    struct side sides[CKVC_SIDE_COUNT]; /* of it */
    arm arms[2];                        /* reference, other */
    bool *live[CKVC_SIDE_COUNT];        /* [states] */
    double sum, sum2;                   /* of the reference's advantages */
    uint64_t n_kept, n_lost;
} pair;

static void pair_fini(pair *p) {
    for (int side = 0; side < CKVC_SIDE_COUNT; side++) {
        cql_counts_free(p->arms[0].counts[side]);
        cql_counts_free(p->arms[1].counts[side]);
        free(p->live[side]);
    }
    worker_close(&p->arms[0].w);
    worker_close(&p->arms[1].w);
    ckvc_table_free(p->table);
}

static ckvc_status open_arm(pair *p, arm *a, const calibrate_inputs *in, ckvc_err *err) {
    const worker_options o = {
        .setting = {.window = (uint32_t)p->o->window},
        .behaviour = {.sides = {true, true}, .limit = p->o->variants, .seed = p->o->seed},
        .memory = p->o->memory ? p->o->memory : memory_plan_limit(in->backend, 0) / 2};
    a->be = in->backend;
    for (int side = 0; side < CKVC_SIDE_COUNT; side++) {
        a->counts[side] = cql_counts_create(p->sides[side].n_states, p->sides[side].actions.n);
    }
    return worker_open(&a->w, in, &o, p->table, err);
}

static ckvc_status prefill(arm *a, const prompt *at, ckvc_err *err) {
    CKVC_TRY(worker_prefill(&a->w, at, err));
    worker_keep(&a->w, at, true);
    return CKVC_OK;
}

/* Losses of `sets`' kept sets, which may be the other arm's, by a's arithmetic. */
static ckvc_status roll(arm *a, arm *sets, const prompt *at, ckvc_err *err) {
    rollouts r = a->w.losses;
    r.sets = sets->w.sets;
    r.variants = &sets->w.variants;
    CKVC_TRY(rollouts_sweep(&a->w.scratch, &r, err));
    a->w.losses.full = r.full;
    bool finite = isfinite(r.full) && isfinite(r.baseline[0]);
    for (size_t i = 0; i < r.variants->n; i++) {
        finite = finite && isfinite(r.variants->items[i].loss);
    }
    CKVC_FAIL_IF(!finite, err, CKVC_E_DATA, "prompt \"%s\": a loss is not finite; %s",
                 at->entry->id, a->be->kernel);
    return CKVC_OK;
}

static double baseline(const arm *a) { return a->w.losses.baseline[0]; }

/* Loss of taken action i of `sets` as arm `a` has just computed it. */
static double action_loss(const arm *a, const arm *sets, size_t i) {
    const variant_list *v = &sets->w.variants;
    const uint32_t of = v->actions[i].variant;
    return of == VARIANT_NONE ? baseline(a) : v->items[of].loss;
}

/* The arm's own rewards into its statistics. */
static ckvc_status count(pair *p, arm *a, const prompt *at, ckvc_err *err) {
    const prompt_sets *k = a->w.sets;
    for (int side = 0; side < CKVC_SIDE_COUNT; side++) {
        cql_counts_prompt(a->counts[side], at->entry->id);
    }
    for (size_t i = 0; i < a->w.variants.n_actions; i++) {
        const taken_action *t = &a->w.variants.actions[i];
        const ckvc_side side = (ckvc_side)t->side;
        const uint32_t base = prompt_sets_at(k, 0, t->layer)->n_candidates;
        const double part = -(action_loss(a, a, i) - baseline(a)), beta = side_beta_bud(side, 1.0),
                     penalty = reward_penalty(beta, k->n_tokens, t->n_candidates, k->budget[0]) -
                               reward_penalty(beta, k->n_tokens, base, k->budget[0]);
        const size_t state = side_state(&p->sides[side], t->layer, t->head, 0, 0, 0);
        CKVC_TRY(cql_counts_add(a->counts[side], state, t->action, part - penalty, part, err));
        p->live[side][state] |= t->variant != VARIANT_NONE;
    }
    return CKVC_OK;
}

/* How many of the reference's kept positions the other arm's baselines lack. */
static void compare_kept(pair *p) {
    for (uint32_t l = 0; l < p->table->n_layers; l++) {
        const layer_set *a = prompt_sets_at(p->arms[0].w.sets, 0, l),
                        *b = prompt_sets_at(p->arms[1].w.sets, 0, l);
        uint32_t k = 0;
        for (uint32_t i = 0; i < a->n_kept; i++) {
            while (k < b->n_kept && b->positions[k] < a->positions[i]) { k++; }
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
    CKVC_TRY(prefill(a, at, err));
    CKVC_TRY(roll(a, a, at, err));
    CKVC_TRY(count(p, a, at, err));
    const size_t n = a->w.variants.n_actions;
    CKVC_AUTO_FREE double *losses = ckvc_alloc(n, sizeof *losses);
    for (size_t i = 0; i < n; i++) { losses[i] = action_loss(a, a, i); }
    CKVC_TRY(prefill(b, at, err));
    CKVC_TRY(roll(b, a, at, err)); /* the reference's sets by the other arithmetic */
    for (size_t i = 0; i < n; i++) {
        const double loss = action_loss(b, a, i), advantage = baseline(a) - losses[i];
        add_difference((b->w.losses.full - loss) - (a->w.losses.full - losses[i]),
                       &out->reward_mean, &out->reward_max);
        add_difference((baseline(b) - loss) - advantage, &out->advantage_mean, &out->advantage_max);
        p->sum += advantage;
        p->sum2 += advantage * advantage;
        out->n_rewards++;
    }
    compare_kept(p);
    CKVC_TRY(roll(b, b, at, err));
    return count(p, b, at, err);
}

/* ---- the tables ---- */

/* One state as an arm fits it. */
typedef struct fitted {
    uint64_t n[CQL_MAX_ACTIONS];
    double mean[CQL_MAX_ACTIONS]; /* advantages, in units of the arm's scale */
    int choice;
} fitted;

static ckvc_status fit(const arm *a, const struct side *side, size_t state, double scale,
                       fitted *out, ckvc_err *err) {
    cql_counts_state(a->counts[side->which], state, scale, out->n, out->mean, NULL);
    out->choice = cql_choice(&side->actions, out->n, out->mean, CQL_ALPHA);
    return out->choice > -2 ? CKVC_OK
                            : ckvc_fail(err, CKVC_E_BUG, "the exact solver's certificate failed");
}

static ckvc_status compare_side(const pair *p, ckvc_side side, bench_error *out, ckvc_err *err) {
    static fitted of[2];
    const struct side *s = &p->sides[side];
    double scale[2];
    for (int i = 0; i < 2; i++) {
        scale[i] = cql_counts_sd(p->arms[i].counts[side], s->kind->penalty);
        scale[i] = scale[i] > 0 ? scale[i] : 1;
    }
    for (size_t k = 0; k < s->n_states; k++) {
        for (int i = 0; i < 2; i++) { CKVC_TRY(fit(&p->arms[i], s, k, scale[i], &of[i], err)); }
        const int a = of[0].choice, b = of[1].choice;
        out->n_cells++;
        out->n_side[side]++;
        out->n_live += p->live[side][k];
        if (a == b) { continue; }
        out->n_changed++;
        out->n_side_changed[side]++;
        if (a >= 0 && b >= 0 && of[0].n[b] > 0) {
            out->regret += (of[0].mean[a] - of[0].mean[b]) * scale[0];
        }
    }
    return CKVC_OK;
}

ckvc_status bench_error_measure(const calibrate_inputs inputs[2], const bench_error_options *o,
                                bench_error *out, ckvc_err *err) {
    const model_shape *s = model_get_shape(inputs[0].model);
    const start_table_spec spec = {.n_layers = (uint32_t)s->n_layers,
                                   .n_heads = (uint32_t)s->n_kv_heads,
                                   .budgets = &o->budget,
                                   .n_budgets = 1,
                                   .window = (uint32_t)o->window};
    const prompt_list *prompts = inputs[0].prompts;
    CKVC_AUTO(pair_fini) pair p = {.o = o};
    *out = (bench_error){0};
    CKVC_TRY(start_table_create(&spec, &p.table, err));
    for (int side = 0; side < CKVC_SIDE_COUNT; side++) {
        p.sides[side] = side_of_table(p.table, (ckvc_side)side);
        p.live[side] = ckvc_calloc(p.sides[side].n_states, sizeof *p.live[side]);
    }
    CKVC_TRY(open_arm(&p, &p.arms[0], &inputs[0], err));
    CKVC_TRY(open_arm(&p, &p.arms[1], &inputs[1], err));
    for (size_t i = 0; i < prompts->n; i++) {
        CKVC_TRY(one_prompt(&p, &prompts->items[i], out, err));
    }
    for (int side = 0; side < CKVC_SIDE_COUNT; side++) {
        CKVC_TRY(compare_side(&p, (ckvc_side)side, out, err));
    }
    const double n = out->n_rewards ? (double)out->n_rewards : 1;
    out->reward_mean /= n;
    out->advantage_mean /= n;
    out->advantage_sd = sqrt(fmax(p.sum2 / n - p.sum / n * (p.sum / n), 0));
    out->kept_share = p.n_kept ? (double)p.n_lost / (double)p.n_kept : 0;
    out->regret /= out->n_changed ? (double)out->n_changed : 1;
    return CKVC_OK;
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
