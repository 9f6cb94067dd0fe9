/* Losses under other shares: see share_rollouts.h. */
#include "calib/shares/share_rollouts.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "lib/base/progress.h"
#include "lib/base/hash.h"
#include "lib/policy/retain_many.h"

enum { STAGE_SHARES = 7 }; /* of the random stream of a prompt (variants.c has 1 to 6) */

static const double share_factors[SHARE_FACTORS] = {0.25, 0.5, M_SQRT1_2, 1.0, M_SQRT2, 2.0, 4.0};
/* times the mean score, in every run: so runs pool */
static const double share_thresholds[SHARE_THRESHOLDS] = {0,       0.25, 0.5, M_SQRT1_2, 1,
                                                          M_SQRT2, 2,    4,   8};

/* The arrays and their lengths, for prompts of T tokens. */
#define ARRAYS(X)                                                                                  \
    X(order, states)                                                                               \
    X(taken, states)                                                                               \
    X(entries, states * s->A)                                                                      \
    X(scratch, (size_t)s->L * s->S)                                                                \
    X(base, s->L)                                                                                  \
    X(lanes, lanes)                                                                                \
    X(kept, lanes)                                                                                 \
    X(offsets, lanes *(s->S + 1))                                                                  \
    X(positions, lanes * s->S * T)                                                                 \
    X(of_lane, lanes)

static ckvc_status check_table(share_rollouts *s, const table_file *f, ckvc_err *err) {
    const ckvc_table *t = f->table;
    s->mode = (ckvc_mode)ckvc_table_score(t, 0).mode;
    for (uint32_t b = 0; b < t->n_budgets; b++) {
        CKVC_FAIL_IF(ckvc_table_score(t, b).mode != s->mode, err, CKVC_E_MISMATCH,
                     "the table %.12s... recommends mode %s for budget %g and %s for %g: rewards "
                     "are of one mode",
                     f->content_id, ckvc_mode_name(s->mode), t->budgets[0],
                     ckvc_mode_name((ckvc_mode)ckvc_table_score(t, b).mode), t->budgets[b]);
    }
    assert(s->mode != CKVC_MODE_SHARED); /* the caller's to see */
    return CKVC_OK;
}

static void see_head(void *ctx, const prefill_head *head) { table_sets_see(ctx, head); }

ckvc_status share_rollouts_open(share_rollouts *s, const share_rollouts_options *o,
                                const calibrate_inputs *in, worker_options *w, ckvc_err *err) {
    const model_shape *shape = model_get_shape(in->model);
    *s = (share_rollouts){.o = *o,
                          .L = (uint32_t)shape->n_layers,
                          .n_budgets = o->setting.budgets.n,
                          .max_tokens = in->prompts->max_tokens,
                          .plain = *o->table->table};
    CKVC_TRY(check_table(s, o->table, err));
    const bool gate = o->side == CKVC_SIDE_GATE;
    s->actions = gate ? share_thresholds : share_factors;
    s->A = gate ? SHARE_THRESHOLDS : SHARE_FACTORS;
    while (s->actions[s->neutral] != !gate) { s->neutral++; } /* no threshold; a factor of 1 */
    if (gate) { s->plain.relative = 0; }
    s->S = s->mode == CKVC_MODE_HEADS ? (uint32_t)shape->n_kv_heads : 1;
    s->U = gate ? 1 : s->S;
    const table_sets_options sets = {.table = &s->plain,
                                     .budgets = o->setting.budgets.v,
                                     .n_budgets = o->setting.budgets.n,
                                     .mode = CKVC_MODE_COUNT,
                                     .score = CKVC_SCORE_COUNT};
    CKVC_TRY(table_sets_open(&s->table, &sets, shape, in->prompts->max_tokens, err));
    s->watcher = (prefill_watcher){
        .n_rows = table_sets_rows(&s->table), .on_head = see_head, .ctx = &s->table};
    const size_t states = (size_t)s->n_budgets * s->L * s->U, T = in->prompts->max_tokens,
                 most = (size_t)s->L * s->U * (s->A - 1) + 1,
                 lanes = most < SWEEP_MAX_LANES ? most : SWEEP_MAX_LANES;
    w->max_watched = (uint32_t)s->watcher.n_rows;
    w->most_lanes = s->most_lanes = (uint32_t)lanes;
    w->beside = s->table.bytes;
#define TAKE(member, n)                                                                            \
    s->member = ckvc_calloc((n), sizeof *s->member);                                               \
    w->beside += (n) * sizeof *s->member;
    ARRAYS(TAKE)
    return CKVC_OK;
}

void share_rollouts_close(share_rollouts *s) {
    table_sets_close(&s->table);
#define FREE(member, n) free(s->member);
    ARRAYS(FREE)
    *s = (share_rollouts){0};
}

/* ---- what is tried ---- */

static size_t state_of(const share_rollouts *s, uint32_t b, uint32_t l, uint32_t u) {
    return ((size_t)b * s->L + l) * s->U + u;
}

/* How many actions from `a` on keep equally many: a state's entries ascend with the factor, and
 * those of each of its sets descend with the threshold; but for the table's own, which may have one
 * more than its share says. */
static uint32_t equal_from(const share_rollouts *s, const uint32_t *entries, uint32_t a) {
    uint32_t n = 1;
    while (a + n < s->A && a + n != s->neutral && a != s->neutral && entries[a + n] == entries[a]) {
        n++;
    }
    return n;
}

static int64_t rollouts_of(const share_rollouts *s, const uint32_t *entries) {
    int64_t n = 0;
    for (uint32_t a = 0; a < s->A; a += equal_from(s, entries, a)) {
        n += entries[a] != entries[s->neutral];
    }
    return n;
}

static uint32_t min_u32(uint32_t a, uint32_t b) { return a < b ? a : b; }

/* Of side head no factor takes a unit above its threshold; of side gate capacities [L][S], in
 * scratch, become what each threshold leaves of a layer's. */
static void cut_actions(share_rollouts *s, uint32_t b, const prefill_stats *stats,
                        uint32_t *entries) {
    const bool gate = s->o.side == CKVC_SIDE_GATE;
    for (uint32_t i = 0; !gate && s->plain.relative && i < s->L * s->U; i++) {
        const double tau = table_sets_threshold(&s->table, b, i / s->U, stats);
        const uint32_t most = table_sets_above(&s->table, b, i / s->U, i % s->U, tau);
        for (uint32_t a = 0; a < s->A; a++) {
            entries[i * s->A + a] = min_u32(entries[i * s->A + a], most);
        }
    }
    for (uint32_t i = 0; gate && i < s->L * s->A; i++) {
        const uint32_t l = i / s->A, a = i % s->A;
        entries[i] = 0;
        for (uint32_t k = 0; k < s->S; k++) {
            entries[i] += min_u32(s->scratch[l * s->S + k],
                                  table_sets_above(&s->table, b, l, k, s->actions[a]));
        }
    }
}

/* What all actions keep -> entries, and which states are taken. */
static ckvc_status draw_states(share_rollouts *s, const prompt *p, const prefill_stats *stats,
                               ckvc_err *err) {
    const uint32_t states = s->n_budgets * s->L * s->U, T = p->n_tokens;
    ckvc_rng rng;
    int64_t n = 0;
    for (uint32_t b = 0; b < s->n_budgets; b++) {
        const uint32_t B = ckvc_budget_tokens(s->o.setting.budgets.v[b], T);
        const ckvc_share_actions of = {&s->plain, b, s->mode, s->actions, s->A};
        uint32_t least, *entries = s->entries + state_of(s, b, 0, 0) * s->A;
        const int rc = s->o.side == CKVC_SIDE_GATE
                           ? ckvc_table_capacities(&s->plain, b, s->mode, B, T, s->scratch, &least)
                           : ckvc_share_capacities(&of, B, T, entries, &least, s->scratch);
        const table_kept *kept;
        CKVC_FAIL_IF(rc != 0, err, CKVC_E_DATA,
                     "prompt \"%s\": a budget of %u tokens is below what every %s must keep; the "
                     "least is %u",
                     p->entry->id, B, s->mode == CKVC_MODE_HEADS ? "head" : "layer", least);
        CKVC_TRY(table_sets_keep(&s->table, b, NULL, stats, &kept, err));
        cut_actions(s, b, stats, entries);
    }
    for (uint32_t i = 0; i < states; i++) { s->order[i] = i; }
    memset(s->taken, 0, states * sizeof *s->taken);
    ckvc_rng_init(&rng, s->o.setting.seed, ckvc_rng_key(p->entry->id), STAGE_SHARES);
    ckvc_rng_shuffle_u32(&rng, s->order, states);
    for (uint32_t i = 0; !p->heldout && i < states; i++) {
        n += rollouts_of(s, s->entries + (size_t)s->order[i] * s->A);
        if (s->o.limit >= 0 && n > s->o.limit && i > 0) { break; }
        s->taken[s->order[i]] = true;
    }
    return CKVC_OK;
}

/* ---- losses of one budget ---- */

/* The batch in the making. */
typedef struct batch {
    share_rollouts *s;
    worker *w;
    const table_kept *kept; /* the table's own sets */
    uint32_t budget;
    double *losses; /* of the prompt, [nB][L][U][A] */
    double own;     /* under the table's own sets */
    int64_t n;      /* lanes: 0 is the table's own */
} batch;

/* The layer's sets with unit u's made anew, or under action a's threshold all, -> lane i's. */
static void fill_lane(const batch *t, uint32_t l, uint32_t u, uint32_t a, int64_t i) {
    share_rollouts *s = t->s;
    const kept_set *from = &t->kept->sets[l];
    const uint32_t *entries = s->entries + state_of(s, t->budget, l, u) * s->A;
    uint32_t *offsets = s->offsets + (size_t)i * (s->S + 1),
             *positions = s->positions + (size_t)i * s->S * s->max_tokens;
    offsets[0] = 0;
    for (uint32_t k = 0; k < s->S; k++) {
        const uint32_t own = from->offsets[k + 1] - from->offsets[k],
                       n = s->o.side == CKVC_SIDE_GATE
                               ? min_u32(own, table_sets_above(&s->table, t->budget, l, k,
                                                               s->actions[a]))
                           : k == u ? entries[a]
                                    : own;
        uint32_t *to = positions + offsets[k];
        if (n == own) {
            memcpy(to, from->positions + from->offsets[k], n * sizeof *to);
        } else {
            (void)table_sets_unit(&s->table, t->budget, l, k, n, to);
        }
        offsets[k + 1] = offsets[k] + n;
    }
    s->kept[i] = (kept_set){(int32_t)s->S, offsets, positions};
    s->lanes[i] = (rollout_lane){.parent = 0, .layer = (int32_t)l, .kept = &s->kept[i]};
}

/* One lane by a continuation of its own. */
static ckvc_status plain_loss(const batch *t, int64_t lane, double *loss, ckvc_err *err) {
    const rollouts *r = &t->w->losses;
    const kept_set *sets = t->kept->sets;
    if (lane > 0) {
        const rollout_lane *of = &t->s->lanes[lane];
        memcpy(t->s->base, sets, t->s->L * sizeof *sets);
        t->s->base[of->layer] = *of->kept;
        sets = t->s->base;
    }
    const rollout_lane alone = {.parent = -1, .sets = sets};
    const rollout_job job = rollouts_job(&t->w->scratch, r, &alone, 1);
    CKVC_TRY(sessions_rollouts(&job, 1, err));
    *loss = rollouts_loss(&t->w->scratch, r, 0);
    return CKVC_OK;
}

static void store_loss(batch *t, int64_t lane, double loss) {
    const struct share_lane *of = &t->s->of_lane[lane];
    if (lane == 0) { t->own = loss; }
    for (uint32_t k = 0; lane > 0 && k < of->n; k++) { t->losses[of->action + k] = loss; }
}

/* A share of what a sweep gave once more, by (seed, prompt, place). */
static ckvc_status check_losses(const batch *t, const prompt *p, ckvc_err *err) {
    share_rollouts *s = t->s;
    const rollouts_sample of = {s->o.check, s->o.setting.seed, p->entry->id};
    for (int64_t i = 0; i < t->n; i++) {
        const size_t action = i ? s->of_lane[i].action : 0;
        char what[64];
        double loss;
        if (!rollouts_chosen(&of, ((uint64_t)t->budget << 40) + action)) { continue; }
        CKVC_TRY(plain_loss(t, i, &loss, err));
        snprintf(what, sizeof what, i ? "share action %zu" : "the table's own shares", action);
        CKVC_TRY(rollouts_compare(p->entry->id, what, i ? t->losses[action] : t->own, loss, err));
        s->n_checked++;
    }
    return CKVC_OK;
}

/* Lanes so far -> their losses; lane 0 stays for the next batch. */
static ckvc_status flush_batch(batch *t, const prompt *p, ckvc_err *err) {
    rollouts *r = &t->w->losses;
    if (t->w->o.rollouts == ROLLOUTS_PLAIN) {
        for (int64_t i = 0; i < t->n; i++) {
            double loss;
            CKVC_TRY(plain_loss(t, i, &loss, err));
            store_loss(t, i, loss);
        }
    } else {
        const rollout_job job = rollouts_job(&t->w->scratch, r, t->s->lanes, t->n);
        CKVC_TRY(sessions_rollouts(&job, 1, err));
        for (int64_t i = 0; i < t->n; i++) {
            store_loss(t, i, rollouts_loss(&t->w->scratch, r, i));
        }
        if (t->s->o.check > 0) { CKVC_TRY(check_losses(t, p, err)); }
    }
    t->s->n_rollouts += (uint64_t)t->n;
    ckvc_progress_step((uint64_t)t->n);
    t->n = 1;
    return CKVC_OK;
}

static ckvc_status budget_losses(batch *t, const prompt *p, ckvc_err *err) {
    share_rollouts *s = t->s;
    const int64_t lanes = t->w->o.rollouts == ROLLOUTS_PLAIN ? s->most_lanes : t->w->plan.lanes;
    CKVC_TRY(table_sets_keep(&s->table, t->budget, NULL, &t->w->stats, &t->kept, err));
    s->lanes[0] = (rollout_lane){.parent = -1, .sets = t->kept->sets};
    t->n = 1;
    for (uint32_t l = 0; l < s->L; l++) {
        for (uint32_t u = 0; u < s->U; u++) {
            const size_t state = state_of(s, t->budget, l, u);
            const uint32_t *entries = s->entries + state * s->A;
            for (uint32_t a = 0, n; s->taken[state] && a < s->A; a += n) {
                n = equal_from(s, entries, a);
                if (entries[a] == entries[s->neutral]) { continue; }
                if (t->n == lanes) { CKVC_TRY(flush_batch(t, p, err)); }
                s->of_lane[t->n] = (struct share_lane){state * s->A + a, n};
                fill_lane(t, l, u, a, t->n++);
            }
        }
    }
    return flush_batch(t, p, err);
}

/* ---- a prompt ---- */

ckvc_status share_rollouts_measure(share_rollouts *s, worker *w, const prompt *p, shard *rows,
                                   size_t row, bool *finite, ckvc_err *err) {
    const size_t per_budget = (size_t)s->L * s->U * s->A, all = per_budget * s->n_budgets;
    double *losses = rows->action_loss + row * all;
    uint32_t *entries = rows->action_entries + row * all;
    w->watcher = &s->watcher;
    CKVC_TRY(table_sets_begin(&s->table, p->entry->id, p->n_tokens,
                              session_key_frequencies(w->session), err));
    CKVC_TRY(worker_prefill(w, p, err));
    CKVC_TRY(worker_full(w, err));
    CKVC_TRY(draw_states(s, p, &w->stats, err));
    memcpy(entries, s->entries, all * sizeof *entries);
    *finite = isfinite(w->losses.full);
    for (uint32_t b = 0; b < s->n_budgets; b++) {
        batch t = {.s = s, .w = w, .budget = b, .losses = losses};
        CKVC_TRY(budget_losses(&t, p, err));
        *finite &= isfinite(t.own);
        for (size_t i = b * per_budget; i < (b + 1) * per_budget; i++) {
            const bool own = i % s->A == s->neutral;
            const uint32_t *of = entries + i / s->A * s->A;
            if (own || (s->taken[i / s->A] && entries[i] == of[s->neutral])) {
                losses[i] = t.own;
            } else if (!s->taken[i / s->A]) {
                losses[i] = 0;
                entries[i] = 0;
            }
            *finite &= isfinite(losses[i]);
        }
    }
    return CKVC_OK;
}
