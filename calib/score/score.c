/* Scores of policies: see score.h. */
#include "calib/score/score.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "calib/actions/prompt_sets.h"
#include "cql/solve/reward.h"
#include "calib/score/score_measures.h"
#include "calib/actions/start_table.h"
#include "formats/lines/scores.h"
#include "formats/shard/vectors_h5.h"
#include "lib/base/json.h"
#include "lib/base/memory.h"
#include "lib/base/progress.h"
#include "lib/base/rng.h"

/* Thresholds that SCORE_MATCHED looks through: from 0 (everything) in steps of 1/200. */
enum { MATCH_STEPS = 1000 };
#define NO_TABLE SIZE_MAX
static double match_tau(int j) {
    return j / 200.0;
}

/* One prompt's decision of one policy and budget. */
typedef struct decision {
    kept_set *sets;                                  /* [L], borrowed */
    uint32_t *n_candidates, *n_kept, *n_kept_window; /* [L] */
    bool has_bins;
    uint32_t bin_entropy, bin_ppl;
} decision;

/* A table in use. Policies that draw on one table share it. */
typedef struct table_in_use {
    const ckvc_table *table;
    ckvc_table *own; /* the same, when it was made here */
    prompt_sets *kept;
} table_in_use;

typedef struct scorer {
    const calibrate_inputs *in;
    const score_options *o;
    const score_policy *policies;
    size_t n_policies;
    score_summary *summary;
    uint32_t L, G;
    session *session;
    table_in_use *tables; /* [n_tables] */
    size_t n_tables;
    size_t *of_policy;   /* [n_policies] its table; NO_TABLE for references that need none */
    double *nll;         /* [2 max C] */
    uint32_t *positions; /* [L][max T] for policies without a prompt_sets */
    uint32_t *offsets;   /* [L][2] */
    uint32_t *scratch;   /* [max T] */
    double *u;           /* [max T] */
    double *ones;        /* [G] */
    decision d;
    double *kept_by_step;  /* [n_policies][nB][MATCH_STEPS]: tokens kept by identity at each
                              threshold, for matched */
    double *kept_by_table; /* [n_policies][nB] */
    prefill_stats stats;
    score_measures measures;
} scorer;

static void scorer_fini(scorer *s) {
    for (size_t i = 0; i < s->n_tables; i++) {
        prompt_sets_destroy(s->tables[i].kept);
        ckvc_table_free(s->tables[i].own);
    }
    free(s->tables);
    free(s->of_policy);
    session_destroy(s->session);
    free(s->nll);
    free(s->positions);
    free(s->offsets);
    free(s->scratch);
    free(s->u);
    free(s->ones);
    free(s->d.sets);
    free(s->d.n_candidates);
    free(s->d.n_kept);
    free(s->d.n_kept_window);
    free(s->kept_by_step);
    free(s->kept_by_table);
    score_measures_fini(&s->measures);
}

/* B of a layer, as it was asked for. */
static double budget_of(const scorer *s, uint32_t b, uint32_t layer) {
    return s->o->layer_budgets ? s->o->layer_budgets[layer] : s->o->budgets[b];
}

/* The entries of a table that serve a layer's budget for a prompt of T tokens. */
static uint32_t block_of(const scorer *s, const ckvc_table *t, uint32_t b, uint32_t layer,
                         uint32_t n_tokens) {
    return ckvc_nearest_budget(t->budgets, t->n_budgets, budget_of(s, b, layer), n_tokens);
}

/* Without leave to take a near block, a table must hold the very budgets. */
static ckvc_status check_blocks(const scorer *s, const table_file *f, ckvc_err *err) {
    for (uint32_t b = 0; !s->o->nearest_budget && !s->o->layer_budgets && b < s->o->n_budgets;
         b++) {
        const uint32_t block =
            ckvc_nearest_budget(f->table->budgets, f->table->n_budgets, s->o->budgets[b], 1);
        if (f->table->budgets[block] != s->o->budgets[b]) {
            return ckvc_fail(err, CKVC_E_MISMATCH,
                             "the table %.12s... has no block for budget %.10g; use one of its "
                             "own, or --nearest-budget",
                             f->content_id, s->o->budgets[b]);
        }
    }
    return CKVC_OK;
}

/* Finds or opens the table that policy i draws on. */
static ckvc_status open_table(scorer *s, size_t i, ckvc_err *err) {
    const score_policy *p = &s->policies[i];
    table_in_use *t = &s->tables[s->n_tables];
    ckvc_status st = p->table ? check_blocks(s, p->table, err) : CKVC_OK;
    s->of_policy[i] = NO_TABLE;
    if (st != CKVC_OK || (score_is_reference(p->kind) && !p->table)) { return st; }
    if (p->kind == SCORE_IDENTITY) {
        st = start_table_create(s->L, s->G, 1, 1, s->o->budgets, s->o->n_budgets,
                                (uint32_t)s->o->window, &t->own, err);
    } else if (score_is_control(p->kind)) {
        st = score_control_table(p->kind, p->table->table, &t->own, err);
    }
    t->table = t->own ? t->own : p->table ? p->table->table : NULL;
    for (size_t k = 0; st == CKVC_OK && !t->own && k < s->n_tables; k++) {
        if (s->tables[k].table == t->table) {
            s->of_policy[i] = k;
            return CKVC_OK;
        }
    }
    s->of_policy[i] = s->n_tables++;
    return st == CKVC_OK
               ? prompt_sets_create(t->table, s->in->prompts->max_tokens, (uint32_t)s->o->window,
                                    s->o->keep_window, &t->kept, err)
               : st;
}

static ckvc_status scorer_init(scorer *s, ckvc_err *err) {
    const model_shape *shape = model_get_shape(s->in->model);
    const prompt_list *list = s->in->prompts;
    s->L = (uint32_t)shape->n_layers;
    s->G = (uint32_t)shape->n_kv_heads;
    const session_limits limits = {.max_prompt = list->max_tokens,
                                   .max_continuation = list->max_continuation,
                                   .max_window = s->o->window,
                                   .max_lanes = s->o->attention_error ? 2 : 1};
    ckvc_status st = session_create(s->in->model, limits, &s->session, err);
    if (st == CKVC_OK) {
        st = score_measures_create(&s->measures, shape, limits, s->o->attention_error,
                                   s->o->utilities, err);
    }
    if (st != CKVC_OK) { return st; }
    size_t T = list->max_tokens, L = s->L;
    s->tables = ckvc_calloc(s->n_policies, sizeof *s->tables);
    s->of_policy = ckvc_calloc(s->n_policies, sizeof *s->of_policy);
    s->nll = ckvc_calloc(2 * ((size_t)list->max_continuation + 1), sizeof *s->nll);
    s->positions = ckvc_calloc(L * T, sizeof *s->positions);
    s->offsets = ckvc_calloc(L * 2, sizeof *s->offsets);
    s->scratch = ckvc_calloc(T, sizeof *s->scratch);
    s->u = ckvc_calloc(T, sizeof *s->u);
    s->ones = ckvc_calloc(s->G, sizeof *s->ones);
    s->d.sets = ckvc_calloc(L, sizeof *s->d.sets);
    s->d.n_candidates = ckvc_calloc(L, sizeof *s->d.n_candidates);
    s->d.n_kept = ckvc_calloc(L, sizeof *s->d.n_kept);
    s->d.n_kept_window = ckvc_calloc(L, sizeof *s->d.n_kept_window);
    s->kept_by_step =
        ckvc_calloc(s->n_policies * s->o->n_budgets * MATCH_STEPS, sizeof *s->kept_by_step);
    s->kept_by_table = ckvc_calloc(s->n_policies * s->o->n_budgets, sizeof *s->kept_by_table);
    if (!s->tables || !s->of_policy || !s->nll || !s->positions || !s->offsets || !s->scratch ||
        !s->u || !s->ones || !s->d.sets || !s->d.n_candidates || !s->d.n_kept ||
        !s->d.n_kept_window || !s->kept_by_step || !s->kept_by_table) {
        return ckvc_fail_memory(err, "the scores' buffers", L * T * 4);
    }
    for (uint32_t g = 0; g < s->G; g++) {
        s->ones[g] = 1.0;
    }
    for (size_t i = 0; st == CKVC_OK && i < s->n_policies; i++) {
        st = open_table(s, i, err);
    }
    return st;
}

static ckvc_status prefill(scorer *s, const prompt *p, ckvc_err *err) {
    const prefill_input in = {.tokens = p->tokens,
                              .n = p->n_tokens,
                              .n_total = (int64_t)p->n_tokens + p->n_continuation,
                              .window = s->o->window,
                              .alpha_kind = s->o->alpha_kind};
    return session_prefill(s->session, &in, &s->stats, err);
}

static void unit_utility(scorer *s, const prompt *p, uint32_t layer) {
    ckvc_utility(p->n_tokens, s->G, s->stats.alpha_f32,
                 s->stats.rho + (size_t)layer * s->G * p->n_tokens, s->ones, s->u);
}

static void set_layer(scorer *s, const prompt *p, uint32_t layer, uint32_t *positions, uint32_t n,
                      uint32_t n_candidates) {
    uint32_t *offsets = s->offsets + 2 * layer;
    offsets[0] = 0;
    offsets[1] = n;
    s->d.sets[layer] = (kept_set){1, offsets, positions};
    s->d.n_candidates[layer] = n_candidates;
    s->d.n_kept[layer] = n;
    s->d.n_kept_window[layer] = kept_in_window(positions, n, p->n_tokens, (uint32_t)s->o->window);
}

/* The decision of table `table` in a layer, under budget number b. Returns how many positions it
 * keeps. */
static uint32_t keep_layer_of(scorer *s, size_t table, uint32_t b, uint32_t layer, const prompt *p,
                              uint32_t *positions, uint32_t *candidates) {
    prompt_sets *k = s->tables[table].kept;
    return prompt_sets_layer_at_budget(k, block_of(s, k->table, b, layer, p->n_tokens), layer,
                                       ckvc_budget_tokens(budget_of(s, b, layer), p->n_tokens),
                                       positions, candidates);
}

static void decide(scorer *s, size_t i, uint32_t b, const prompt *p) {
    const score_policy *policy = &s->policies[i];
    const size_t table = s->of_policy[i];
    const bool reference = score_is_reference(policy->kind),
               matched = policy->kind == SCORE_MATCHED;
    s->d.has_bins = policy->kind == SCORE_TABLE || score_is_control(policy->kind);
    if (s->d.has_bins) {
        s->d.bin_entropy = s->tables[table].kept->bin_entropy;
        s->d.bin_ppl = s->tables[table].kept->bin_ppl;
    }
    if (reference && policy->kind != SCORE_TOP_K) {
        score_ranking(policy->kind, p->n_tokens, (uint32_t)s->o->window, s->stats.alpha_f32,
                      s->o->seed, p->entry->id, s->u);
    }
    for (uint32_t l = 0; l < s->L; l++) {
        uint32_t *positions = s->positions + (size_t)l * s->in->prompts->max_tokens, candidates, n;
        const uint32_t budget = ckvc_budget_tokens(budget_of(s, b, l), p->n_tokens);
        if (reference) {
            const bool scored =
                policy->kind == SCORE_WINDOW ||
                policy->kind == SCORE_TOP_K; /* the others keep recent tokens as they do */
            n = table == NO_TABLE ? budget
                                  : keep_layer_of(s, table, b, l, p, positions, &candidates);
            if (policy->kind == SCORE_TOP_K) { unit_utility(s, p, l); }
            n = ckvc_retain(p->n_tokens, s->u, -INFINITY, n, scored ? s->o->keep_window : 0,
                            positions, &candidates, s->scratch);
        } else if (matched) {
            unit_utility(s, p, l);
            n = ckvc_retain(p->n_tokens, s->u, s->summary[i * s->o->n_budgets + b].tau, budget,
                            s->o->keep_window, positions, &candidates, s->scratch);
        } else {
            n = keep_layer_of(s, table, b, l, p, positions, &candidates);
        }
        set_layer(s, p, l, positions, n, candidates);
    }
}

/* ---- matched: one pass without continuations over the held-out prompts, which are those that
 * count; over all when none is ---- */

static void count_steps(scorer *s, const prompt *p) {
    uint32_t at_step[MATCH_STEPS + 1];
    for (uint32_t l = 0; l < s->L; l++) {
        /* at_step[j] = tokens with u >= tau_j: counted by their last step, then summed from above.
         */
        memset(at_step, 0, sizeof at_step);
        unit_utility(s, p, l);
        for (uint32_t t = 0; t < p->n_tokens; t++) {
            double step = floor(s->u[t] * 200.0);
            int j = step >= MATCH_STEPS - 1 ? MATCH_STEPS - 1 : (int)step;
            while (j + 1 < MATCH_STEPS && s->u[t] >= match_tau(j + 1)) {
                j++;
            }
            while (j > 0 && s->u[t] < match_tau(j)) {
                j--;
            }
            at_step[t + s->o->keep_window >= p->n_tokens ? MATCH_STEPS - 1 : j]++;
        }
        for (int j = MATCH_STEPS - 2; j >= 0; j--) {
            at_step[j] += at_step[j + 1];
        }
        for (size_t i = 0; i < s->n_policies; i++) {
            if (s->policies[i].kind != SCORE_MATCHED) { continue; }
            for (uint32_t b = 0; b < s->o->n_budgets; b++) {
                uint32_t budget = ckvc_budget_tokens(budget_of(s, b, l), p->n_tokens);
                double *kept = s->kept_by_step + (i * s->o->n_budgets + b) * MATCH_STEPS;
                for (int j = 0; j < MATCH_STEPS; j++) {
                    kept[j] += at_step[j] < budget ? at_step[j] : budget;
                }
            }
        }
    }
    for (size_t i = 0; i < s->n_policies; i++) {
        for (uint32_t b = 0; s->policies[i].kind == SCORE_MATCHED && b < s->o->n_budgets; b++) {
            for (uint32_t l = 0; l < s->L; l++) {
                uint32_t candidates;
                s->kept_by_table[i * s->o->n_budgets + b] +=
                    keep_layer_of(s, s->of_policy[i], b, l, p, s->positions, &candidates);
            }
        }
    }
}

/* Points every table at the prompt that was prefilled. */
static void enter_prompt(scorer *s, const prompt *p) {
    for (size_t i = 0; i < s->n_tables; i++) {
        prompt_sets_build(s->tables[i].kept, p->n_tokens, s->stats.alpha_f32, s->stats.rho,
                          s->stats.r_struct, s->stats.r_sem);
    }
}

static ckvc_status find_matched(scorer *s, ckvc_err *err) {
    bool any = false;
    for (size_t i = 0; i < s->n_policies; i++) {
        any |= s->policies[i].kind == SCORE_MATCHED;
    }
    for (size_t n = 0; any && n < s->in->prompts->n; n++) {
        const prompt *p = &s->in->prompts->items[n];
        if (s->in->prompts->n_heldout && !p->heldout) { continue; }
        ckvc_status st = prefill(s, p, err);
        if (st != CKVC_OK) { return st; }
        enter_prompt(s, p);
        count_steps(s, p);
    }
    for (size_t c = 0; c < s->n_policies * s->o->n_budgets; c++) {
        /* Of thresholds that keep equally many (the clamp decides, or none does) the one nearest to
         * the start table's. */
        int best = (int)(ckvc_gate_action(CKVC_GATE_START) * 200);
        const double *kept = s->kept_by_step + c * MATCH_STEPS;
        for (int j = 0; j < MATCH_STEPS; j++) {
            if (fabs(kept[j] - s->kept_by_table[c]) < fabs(kept[best] - s->kept_by_table[c])) {
                best = j;
            }
        }
        s->summary[c].tau = match_tau(best);
    }
    return CKVC_OK;
}

/* ---- output ---- */

static json_t *optional_text(const char *text) {
    return text ? json_string(text) : json_null();
}

/* As a number a reader of JSON in doubles would round it. */
static json_t *hash_text(uint64_t hash) {
    char text[17];
    snprintf(text, sizeof text, "%016" PRIx64, hash);
    return json_string(text);
}

static ckvc_status append_line(scorer *s, size_t i, uint32_t b, const prompt *p, double loss_full,
                               double loss_comp, ckvc_buffer *lines, ckvc_err *err) {
    const score_policy *policy = &s->policies[i];
    const decision *d = &s->d;
    double reward = reward_of(loss_full, loss_comp, CKVC_LOSS_MEAN, p->n_continuation, 0.0);
    json_t *o = json_object();
    json_object_set_new(o, "id", json_string(p->entry->id));
    json_object_set_new(o, "source", optional_text(p->entry->source));
    json_object_set_new(o, "split", optional_text(p->heldout ? "heldout" : p->entry->split));
    json_object_set_new(o, "model", json_string(model_fingerprint(s->in->model)));
    json_object_set_new(o, "manifest", json_string(s->in->manifest->sha256));
    json_object_set_new(o, "token_hash", hash_text(p->token_hash));
    json_object_set_new(o, "policy", json_string(score_kind_name(policy->kind)));
    json_object_set_new(o, "table",
                        policy->table ? json_string(policy->table->content_id) : json_null());
    json_object_set_new(o, "tau",
                        policy->kind == SCORE_MATCHED
                            ? json_real(s->summary[i * s->o->n_budgets + b].tau)
                            : json_null());
    /* Keys that only say something where they are not neutral. */
    if (policy->kind == SCORE_TABLE && policy->table->table->op != CKVC_OPERATOR_PAPER) {
        json_object_set_new(o, "operator",
                            json_string(ckvc_operator_name(policy->table->table->op)));
    }
    if (s->o->layer_budgets) {
        json_object_set_new(o, "layer_budgets", ckvc_json_reals(s->o->layer_budgets, s->L));
    }
    if (s->o->alpha_kind != CKVC_ALPHA_PAPER) {
        json_object_set_new(o, "alpha", json_string(ckvc_alpha_name(s->o->alpha_kind)));
    }
    if (s->o->keep_window != 0) {
        json_object_set_new(o, "keep_window", json_integer(s->o->keep_window));
    }
    if (s->o->window != SCORE_NEUTRAL_WINDOW) {
        json_object_set_new(o, "window", json_integer(s->o->window));
    }
    json_object_set_new(o, "T", json_integer(p->n_tokens));
    json_object_set_new(o, "C", json_integer(p->n_continuation));
    json_object_set_new(o, "budget", json_real(s->o->budgets[b]));
    json_object_set_new(o, "r_struct", ckvc_json_real(s->stats.r_struct));
    json_object_set_new(o, "r_sem", ckvc_json_real(s->stats.r_sem));
    json_object_set_new(o, "bin_entropy", d->has_bins ? json_integer(d->bin_entropy) : json_null());
    json_object_set_new(o, "bin_perplexity", d->has_bins ? json_integer(d->bin_ppl) : json_null());
    json_object_set_new(o, "n_candidates", ckvc_json_u32s(d->n_candidates, s->L));
    json_object_set_new(o, "n_kept", ckvc_json_u32s(d->n_kept, s->L));
    json_object_set_new(o, "n_kept_window", ckvc_json_u32s(d->n_kept_window, s->L));
    json_object_set_new(o, "loss_full", ckvc_json_real(loss_full));
    json_object_set_new(o, "loss_comp", ckvc_json_real(loss_comp));
    json_object_set_new(o, "reward", ckvc_json_real(reward));
    if (s->o->sets) {
        json_t *sets = json_array();
        for (uint32_t l = 0; l < s->L; l++) {
            json_array_append_new(sets, ckvc_json_u32s(d->sets[l].positions, d->n_kept[l]));
        }
        json_object_set_new(o, "sets", sets);
    }
    score_measures_attention(&s->measures, o);
    /* of the prompt, so once: on its first line */
    ckvc_status st =
        i == 0 && b == 0 ? score_measures_utilities(&s->measures, &s->stats, o, err) : CKVC_OK;
    ckvc_json_append(lines, o);
    ckvc_buffer_u8(lines, '\n');
    json_decref(o);
    score_summary *sum = &s->summary[i * s->o->n_budgets + b];
    double kept = 0;
    for (uint32_t l = 0; l < s->L; l++) {
        kept += d->n_kept[l];
    }
    sum->n++;
    sum->reward_mean += reward;
    sum->kept_mean += kept / s->L;
    return st;
}

static ckvc_status score_prompt(scorer *s, const prompt *p, ckvc_buffer *lines, ckvc_err *err) {
    const int32_t *continuation = p->tokens + p->n_tokens;
    double loss_full = NAN;
    ckvc_status st = prefill(s, p, err);
    if (st == CKVC_OK && p->n_continuation > 0) {
        st = session_continue(s->session, continuation, p->n_continuation, NULL, s->nll, err);
        loss_full = nll_mean(s->nll, p->n_continuation);
    }
    if (st == CKVC_OK) { enter_prompt(s, p); }
    for (size_t i = 0; st == CKVC_OK && i < s->n_policies; i++) {
        for (uint32_t b = 0; st == CKVC_OK && b < s->o->n_budgets; b++) {
            double loss_comp = NAN;
            decide(s, i, b, p);
            if (p->n_continuation > 0) {
                st = score_measures_continue(&s->measures, s->session, continuation,
                                             p->n_continuation, s->d.sets, s->nll, err);
                loss_comp = nll_mean(s->nll, p->n_continuation);
            }
            if (st == CKVC_OK) { st = append_line(s, i, b, p, loss_full, loss_comp, lines, err); }
        }
    }
    return st;
}

ckvc_status score_prompts(const calibrate_inputs *in, const score_policy *policies,
                          size_t n_policies, const score_options *o, ckvc_buffer *lines,
                          score_summary *summary, ckvc_err *err) {
    scorer s = {
        .in = in, .o = o, .policies = policies, .n_policies = n_policies, .summary = summary};
    vectors_file vectors = {.file = -1};
    for (size_t i = 0; i < n_policies; i++) {
        for (uint32_t b = 0; b < o->n_budgets; b++) {
            summary[i * o->n_budgets + b] =
                (score_summary){.policy = policies[i], .budget = o->budgets[b]};
        }
    }
    ckvc_status st = scorer_init(&s, err);
    if (st == CKVC_OK) { st = find_matched(&s, err); }
    if (st == CKVC_OK && o->vectors) { st = vectors_create(&vectors, o->vectors, o->force, err); }
    ckvc_progress progress;
    ckvc_progress_start(&progress, "score", "rollouts", in->prompts->n, 0, o->quiet);
    for (size_t n = 0; st == CKVC_OK && n < in->prompts->n; n++) {
        const prompt *p = &in->prompts->items[n];
        if (ckvc_stop_requested()) {
            st = ckvc_fail(err, CKVC_E_STOPPED,
                           "stopped after %zu of %zu prompts; nothing was written", n,
                           in->prompts->n);
            break;
        }
        st = score_prompt(&s, p, lines, err);
        if (st == CKVC_OK && o->vectors) {
            st = vectors_add(&vectors, (uint32_t)(p->entry - in->manifest->entries), p->entry->id,
                             p->n_tokens, s.L, s.G, s.stats.alpha_f32, s.stats.rho, err);
        }
        ckvc_progress_update(&progress, n + 1, (n + 1) * (1 + n_policies * o->n_budgets));
    }
    if (st == CKVC_OK) { ckvc_progress_finish(&progress); }
    if (st == CKVC_OK && o->vectors) { st = vectors_commit(&vectors, err); }
    vectors_abort(&vectors);
    if (st == CKVC_OK && lines->failed) {
        st = ckvc_fail_memory(err, "the score lines", lines->size);
    }
    for (size_t c = 0; c < n_policies * o->n_budgets; c++) {
        if (summary[c].n) {
            summary[c].reward_mean /= (double)summary[c].n;
            summary[c].kept_mean /= (double)summary[c].n;
        }
    }
    scorer_fini(&s);
    return st;
}
