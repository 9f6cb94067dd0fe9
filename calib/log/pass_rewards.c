/* The pass that logs rewards of actions: it measures a prompt's losses when one head's weight, or
 * one risk cell's threshold, differs from the table's (paper.md sections 3 to 5). */
#include <math.h>

#include "calib/log/pass.h"
#include "formats/side/reward.h"
#include "lib/base/progress.h"

/* Returns whether a layer of budget b draws on this block of the table. Where layers have budgets
 * of their own, there is one budget and there may be many blocks. */
static bool block_in_use(const prompt_sets *k, uint32_t b, uint32_t block) {
    for (uint32_t l = 0; l < k->n_layers; l++) {
        if (prompt_sets_at(k, b, l)->block == block) { return true; }
    }
    return false;
}

/* Logs the row of the baseline of each budget. Where layers have budgets of their own there is one
 * baseline, whose row is logged under every block that its layers draw on. */
static void log_baselines(pass *s, const char **bad) {
    const prompt_sets *k = s->w->sets;
    for (uint32_t block = 0; block < k->table->n_budgets; block++) {
        const uint32_t b = k->layer_budgets ? 0 : block;
        const double loss = s->w->losses.baseline[b];
        if (!isfinite(loss)) {
            *bad = "a baseline loss is not finite";
            return;
        }
        if (!block_in_use(k, b, block)) { continue; }
        const struct shard_baseline base = {.budget = (uint16_t)block, .loss = loss};
        const size_t row = shard_add_baseline(s->rows, &base);
        for (uint32_t l = 0; l < k->n_layers; l++) {
            const layer_set *at = prompt_sets_at(k, b, l);
            const size_t i = row * k->n_layers + l;
            s->rows->n_candidates[i] = at->n_candidates;
            s->rows->n_kept[i] = at->n_kept;
            s->rows->n_kept_window[i] = at->n_kept_window;
            s->rows->n_candidates_lo[i] = at->n_candidates_lo;
            s->rows->n_candidates_hi[i] = at->n_candidates_hi;
        }
    }
}

/* Returns the reward of a loss and a count of candidates, for an action's side and in its layer. */
static double action_reward(const pass *s, const taken_action *t, double loss,
                            uint32_t n_candidates) {
    const rollouts *r = &s->w->losses;
    const uint32_t tokens = prompt_sets_at(r->sets, t->budget, t->layer)->tokens;
    return reward_of(r->full, loss, s->o->setting.reduction, r->n_continuation,
                     reward_penalty(side_beta_bud((ckvc_side)t->side, s->o->setting.beta_bud),
                                    r->sets->n_tokens, n_candidates, tokens));
}

static void log_actions(pass *s, const char **bad) {
    const rollouts *r = &s->w->losses;
    const variant_list *v = r->variants;
    for (size_t i = 0; i < v->n_actions; i++) {
        const taken_action *t = &v->actions[i];
        const layer_set *base = prompt_sets_at(r->sets, t->budget, t->layer);
        const double base_loss = r->baseline[t->budget],
                     loss = t->variant == VARIANT_NONE ? base_loss : v->items[t->variant].loss;
        if (!isfinite(loss)) {
            *bad = "the loss of a rollout is not finite";
            return;
        }
        const struct shard_record row = {.side = t->side,
                                         .action = t->action,
                                         .layer = t->layer,
                                         .head = t->head,
                                         .budget = (uint16_t)base->block,
                                         .loss = loss,
                                         .reward = action_reward(s, t, loss, t->n_candidates),
                                         .baseline =
                                             action_reward(s, t, base_loss, base->n_candidates),
                                         .n_candidates = t->n_candidates,
                                         .n_kept = t->n_kept,
                                         .set_hash = t->set_hash};
        shard_add_record(s->rows, &row);
        s->counts->records++;
        s->counts->actions_equal += t->variant == VARIANT_NONE;
    }
}

/* Measures all losses of n prompts, from their tokens on, leaving out prompts whose risks are not
 * finite. */
static ckvc_status measure_logged(pass *s, worker *const *w, const prompt *const *p, int64_t n,
                                  ckvc_err *err) {
    worker *going[SESSIONS_TOGETHER];
    int64_t n_going = 0;
    CKVC_TRY(workers_prefill(w, p, n, err));
    const double prefilled_s = ckvc_now_s();
    for (int64_t i = 0; i < n; i++) {
        if (!pass_finite_risks(w[i])) { continue; }
        worker_keep(w[i], p[i], !p[i]->heldout);
        going[n_going++] = w[i];
    }
    if (n_going > 0) { CKVC_TRY(workers_rollouts(going, n_going, err)); }
    s->counts->rollout_seconds += ckvc_now_s() - prefilled_s;
    return CKVC_OK;
}

static ckvc_status log_prompt(pass *s, const prompt *p, const char **bad, ckvc_err *err) {
    worker *w = s->w;
    if (!pass_finite_risks(w)) {
        *bad = "a risk is not finite";
        return CKVC_OK;
    }
    s->counts->rollouts += variants_rollouts(&w->variants, w->sets->n_budgets);
    if (!isfinite(w->losses.full)) {
        *bad = "the full-cache loss is not finite";
        return CKVC_OK;
    }
    if (s->o->check_rollouts > 0) {
        const rollouts_sample of = {s->o->check_rollouts, s->o->setting.seed, p->entry->id};
        CKVC_TRY(rollouts_check(&w->scratch, &w->losses, &of, &s->counts->checked, err));
    }
    struct shard_prompt row = pass_prompt_row(p, &w->stats);
    row.loss_full = w->losses.full;
    row.bin_entropy = (uint16_t)w->sets->bin_entropy;
    row.bin_ppl = (uint16_t)w->sets->bin_ppl;
    shard_add_prompt(s->rows, &row);
    log_baselines(s, bad);
    if (!*bad) { log_actions(s, bad); }
    if (!*bad && s->o->savings) { savings_add(s->o->savings, &w->variants); }
    return CKVC_OK;
}

const pass_type pass_rewards = {
    .rows = SHARD_LOGGED, .forwards = 2, .measure = measure_logged, .log = log_prompt};
