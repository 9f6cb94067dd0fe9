/* What policies keep: see policy_sets.h. */
#include "calib/policies/policy_sets.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "calib/actions/start_table.h"
#include "calib/policies/head_scores.h"
#include "calib/policies/matched_tau.h"
#include "calib/policies/rules/rules.h"
#include "calib/policies/table_in_use.h"
#include "lib/base/memory.h"

#define NO_TABLE SIZE_MAX

struct policy_sets {
    const policy_choice *o;
    uint32_t L, G;
    head_scores scores;
    reconstruction repeat; /* of kvzip; fed NULL: nothing is repeated */
    uint32_t most_fed, most_among;
    uint32_t propagate_from; /* of fastkv; 0: nothing is propagated */
    table_in_use *tables;    /* [n_tables] */
    size_t n_tables;
    size_t *of_policy;    /* [n_policies] its table; NO_TABLE for references that need none */
    size_t *score;        /* [n_policies] of a rule with one, among the head scores */
    matched_tau *matched; /* [n_policies][nB] of SCORE_MATCHED */
    double *tau;          /* [n_policies][nB] of it */
    uint32_t *positions;  /* [L][G * max T] */
    uint32_t *offsets;    /* [L][G + 1] */
    uint32_t *scratch;    /* [max T] */
    uint32_t *c;          /* [L][G]: capacities */
    uint64_t *keys;       /* [L][G][max T] where anything goes by rank */
    double *u, *ones;     /* [max T]; [G] */
    double *share;        /* [L][G] of a block */
    size_t bytes;         /* of all this, but for the scores */
    /* the prompt in hand */
    const prompt *p;
    session *session;
    const prefill_stats *stats;
    policy_kept kept;
    uint32_t *n_done; /* [L] sets of each layer that are there */
};

/* Arrays and their lengths, for T tokens and n_cells pairs of policy and budget. */
#define ARRAYS(X)                                                                                  \
    X(k->tables, k->o->n)                                                                          \
    X(k->of_policy, k->o->n)                                                                       \
    X(k->score, k->o->n)                                                                           \
    X(k->matched, n_cells)                                                                         \
    X(k->tau, n_cells)                                                                             \
    X(k->positions, heads *T)                                                                      \
    X(k->offsets, heads + k->L)                                                                    \
    X(k->scratch, T)                                                                               \
    X(k->c, heads)                                                                                 \
    X(k->u, T)                                                                                     \
    X(k->ones, k->G)                                                                               \
    X(k->share, heads)                                                                             \
    X(k->n_done, k->L)                                                                             \
    X(k->kept.n_candidates, k->L)                                                                  \
    X(k->kept.sets, k->L)

size_t policy_sets_bytes(const policy_sets *k) { return k->bytes + k->scores.bytes; }

void policy_sets_free(policy_sets *k) {
    if (!k) { return; }
    for (size_t i = 0; i < k->n_tables; i++) {
        prompt_sets_destroy(k->tables[i].kept);
        ckvc_table_free(k->tables[i].own);
        free(k->tables[i].score);
    }
    head_scores_fini(&k->scores);
#define FREE(array, n) free(array);
    ARRAYS(FREE)
    CKVC_FREE(k->keys, k->repeat.fed, k->repeat.positions, k);
}

/* B of a layer, as it was asked for. */
static double budget_of(const policy_sets *k, uint32_t b, uint32_t layer) {
    const setting *of = &k->o->setting;
    return of->layer_budgets.n ? of->layer_budgets.v[layer] : of->budgets.v[b];
}

static uint32_t tokens_of(const policy_sets *k, uint32_t b, uint32_t layer) {
    return ckvc_budget_tokens(budget_of(k, b, layer), k->p->n_tokens);
}

/* ---- tables ---- */

/* Policy i's, or NULL. */
static const table_in_use *table_of(const policy_sets *k, size_t i) {
    return k->of_policy[i] == NO_TABLE ? NULL : &k->tables[k->of_policy[i]];
}

/* Finds or opens the table that policy i draws on. */
static ckvc_status open_table(policy_sets *k, size_t i, uint32_t max_tokens, ckvc_err *err) {
    const score_policy *p = &k->o->list[i];
    const setting *made = &k->o->setting;
    table_in_use *t = &k->tables[k->n_tables];
    t->choice = k->o;
    k->of_policy[i] = NO_TABLE;
    if (p->kind == SCORE_IDENTITY) {
        const start_table_spec spec = {.n_layers = k->L,
                                       .n_heads = k->G,
                                       .budgets = made->budgets.v,
                                       .n_budgets = made->budgets.n,
                                       .window = made->window};
        CKVC_TRY(start_table_create(&spec, &t->own, err));
        t->table = t->own;
    } else if (!p->table) {
        return CKVC_OK; /* a reference that needs none */
    } else {
        CKVC_TRY(table_check_budgets(k->o, p->table, err));
        if (score_is_control(p->kind)) { t->own = score_control_table(p->kind, p->table->table); }
        t->table = t->own ? t->own : p->table->table;
        t->name = p->table->content_id;
    }
    for (size_t n = 0; !t->own && n < k->n_tables; n++) {
        if (k->tables[n].table == t->table) {
            k->of_policy[i] = n;
            return table_open_blocks(&k->tables[n], p->kind, &k->scores, err);
        }
    }
    k->of_policy[i] = k->n_tables++;
    t->score = ckvc_calloc(t->table->n_budgets, sizeof *t->score);
    CKVC_TRY(prompt_sets_create(t->table, max_tokens, made, &t->kept, err));
    k->bytes += prompt_sets_bytes(t->table, max_tokens);
    return table_open_blocks(t, p->kind, &k->scores, err);
}

/* Its own, not the table's or a ranking of positions. */
static bool has_score(const policy_rule *r) { return r->score.see || r->score.finish; }

/* The second pass over every prompt. */
static void open_repeat(policy_sets *k, uint32_t max_tokens) {
    reconstruction *r = &k->repeat;
    r->texts = k->o->texts;
    r->n_units = (size_t)k->L * k->G;
    k->most_fed = reconstruction_fed(&r->texts, max_tokens);
    const uint32_t among = reconstruction_among(&r->texts, max_tokens);
    k->most_among = among > k->most_among ? among : k->most_among;
    r->fed = ckvc_calloc(k->most_fed, sizeof *r->fed);
    r->positions = ckvc_calloc(among, sizeof *r->positions);
    k->bytes += k->most_fed * sizeof *r->fed + among * sizeof *r->positions;
    k->scores.reconstruction = r;
}

/* A prefill of its own of every prompt. */
static void open_propagation(policy_sets *k, uint32_t max_tokens) {
    const uint32_t from = fastkv_from(k->L), n = fastkv_rows(max_tokens);
    if (from == k->L) { return; }
    k->propagate_from = from;
    k->most_among = n > k->most_among ? n : k->most_among;
}

ckvc_status policy_sets_create(const policy_choice *choice, const model_shape *shape,
                               const prompt_list *prompts, policy_sets **out, ckvc_err *err) {
    CKVC_AUTO(policy_sets_free_at) policy_sets *k = ckvc_calloc(1, sizeof *k);
    k->o = choice;
    k->L = (uint32_t)shape->n_layers;
    k->G = (uint32_t)shape->n_kv_heads;
    const size_t T = prompts->max_tokens, heads = (size_t)k->L * k->G,
                 n_cells = choice->n * choice->setting.budgets.n;
    bool by_rank = false;
    *out = NULL;
#define TAKE(array, n)                                                                             \
    (array) = ckvc_calloc((n), sizeof *(array));                                                   \
    k->bytes += (n) * sizeof *(array);
    ARRAYS(TAKE)
    for (uint32_t g = 0; g < k->G; g++) { k->ones[g] = 1.0; }
    for (size_t i = 0; i < choice->n; i++) {
        const policy_rule *r = policy_rule_of(choice->list[i].kind);
        CKVC_TRY(open_table(k, i, prompts->max_tokens, err));
        if (!r) { continue; }
        if (has_score(r)) { k->score[i] = head_scores_add(&k->scores, r->score); }
        by_rank |= r->sorts;
        if (r->kind == SCORE_KVZIP && !k->repeat.fed) { open_repeat(k, prompts->max_tokens); }
        if (r->kind == SCORE_FASTKV) { open_propagation(k, prompts->max_tokens); }
        CKVC_FAIL_IF(choice->setting.layer_budgets.n && r->allot, err, CKVC_E_USAGE,
                     "--layer-budgets: %s has budgets of its own", score_kind_name(r->kind));
    }
    head_scores_reserve(&k->scores, shape, prompts->max_tokens);
    if (by_rank) {
        k->keys = ckvc_calloc(heads * T, sizeof *k->keys);
        k->bytes += heads * T * sizeof *k->keys;
    }
    *out = ckvc_take(&k);
    return CKVC_OK;
}

void policy_sets_need(const policy_sets *k, session_limits *limits) {
    limits->max_watched = k->scores.watcher.n_rows;
    limits->max_targets = k->most_fed;
    limits->max_among = k->most_among;
    limits->propagate_from = (int32_t)k->propagate_from;
}

ckvc_status policy_sets_prefill(policy_sets *k, session *s, const prompt *p, prefill_stats *stats,
                                ckvc_err *err) {
    const uint32_t fed = policy_sets_fed(k, p);
    const prefill_input in = {.tokens = p->tokens,
                              .n = p->n_tokens,
                              .n_total = (int64_t)p->n_tokens +
                                         (fed > p->n_continuation ? fed : p->n_continuation),
                              .window = k->o->setting.window,
                              .alpha_kind = k->o->setting.alpha,
                              .watcher = policy_sets_watch(k, p, s)};
    CKVC_TRY(session_prefill(s, &in, stats, err));
    return policy_sets_enter(k, s, p, stats, err);
}

static bool is_whole(const policy_sets *k, const prompt *p) {
    return p->n_tokens <= k->o->setting.window;
}

uint32_t policy_sets_fed(const policy_sets *k, const prompt *p) {
    return k->repeat.fed && !is_whole(k, p) ? reconstruction_fed(&k->repeat.texts, p->n_tokens) : 0;
}

const prefill_watcher *policy_sets_watch(policy_sets *k, const prompt *p, const session *s) {
    return is_whole(k, p) ? NULL : head_scores_watch(&k->scores, s);
}

ckvc_status policy_sets_enter(policy_sets *k, session *s, const prompt *p,
                              const prefill_stats *stats, ckvc_err *err) {
    k->p = p;
    k->session = s;
    k->stats = stats;
    k->kept.whole = is_whole(k, p);
    if (k->kept.whole) { return CKVC_OK; }
    CKVC_TRY(head_scores_finish(&k->scores, s, p->tokens, stats, err));
    for (size_t i = 0; i < k->n_tables; i++) { prompt_sets_build(k->tables[i].kept, stats); }
    return CKVC_OK;
}

/* ---- scores of a layer or head -> k->u ---- */

static const float *rho_of(const policy_sets *k, uint32_t layer, uint32_t head) {
    return k->stats->rho + ((size_t)layer * k->G + head) * k->p->n_tokens;
}

/* Identity's utility of a layer, or of one head. */
static void unit_utility(policy_sets *k, uint32_t layer, uint32_t head, uint32_t n_heads) {
    ckvc_utility(k->p->n_tokens, n_heads, k->stats->alpha_f32, rho_of(k, layer, head), k->ones,
                 k->u);
}

/* What a block's sets begin with, before all others. */
static void force(policy_sets *k, const table_in_use *t, uint32_t block) {
    head_score_force(1, (uint32_t)table_c_min(t, block).recent, k->p->n_tokens, k->u);
}

/* The maximum over the layer's heads, under the paper's score of their products with the weights.
 */
static void layer_score(policy_sets *k, const table_in_use *t, uint32_t block, uint32_t layer) {
    const uint32_t T = k->p->n_tokens;
    const size_t score = t->score[block];
    if (table_asked(t, block).kind == CKVC_SCORE_PAPER) {
        double *weight = k->share;
        for (uint32_t g = 0; g < k->G; g++) {
            weight[g] = ckvc_table_weight(t->table, layer, g, block);
        }
        ckvc_utility(T, k->G, k->stats->alpha_f32, rho_of(k, layer, 0), weight, k->u);
        for (uint32_t i = 0; i < T; i++) { k->u[i] = log(k->u[i]); }
        force(k, t, block);
        return;
    }
    memcpy(k->u, head_scores_at(&k->scores, score, layer, 0), T * sizeof *k->u);
    for (uint32_t g = 1; g < k->G; g++) {
        const double *s = head_scores_at(&k->scores, score, layer, g);
        for (uint32_t i = 0; i < T; i++) { k->u[i] = s[i] > k->u[i] ? s[i] : k->u[i]; }
    }
}

/* What a table ranks a layer's set by, or a head's. */
static const double *table_ranking(policy_sets *k, const table_in_use *t, uint32_t block,
                                   uint32_t layer, uint32_t head, bool heads) {
    if (heads) { return head_scores_at(&k->scores, t->score[block], layer, head); }
    layer_score(k, t, block, layer);
    return k->u;
}

/* ---- capacities -> k->c ---- */

static uint32_t block_of(const policy_sets *k, const table_in_use *t, uint32_t b, uint32_t layer) {
    return ckvc_nearest_budget(t->table->budgets, t->table->n_budgets, budget_of(k, b, layer),
                               k->p->n_tokens);
}

/* The set of a table of the paper in a layer. */
static uint32_t paper_layer(policy_sets *k, const table_in_use *t, uint32_t b, uint32_t layer,
                            uint32_t *positions, uint32_t *n_candidates) {
    return prompt_sets_layer_at_budget(t->kept, block_of(k, t, b, layer), layer,
                                       tokens_of(k, b, layer), positions, n_candidates);
}

/* How many positions the threshold of a prompt's risk cell leaves a layer or head: T without one.
 */
static uint32_t count_above(policy_sets *k, const table_in_use *t, uint32_t block, uint32_t layer,
                            uint32_t head, bool heads, double tau) {
    return tau > 0
               ? ckvc_count_above(k->p->n_tokens, table_ranking(k, t, block, layer, head, heads),
                                  (uint32_t)table_c_min(t, block).recent, tau)
               : k->p->n_tokens;
}

static double threshold_of(const policy_sets *k, const table_in_use *t, uint32_t block,
                           uint32_t layer) {
    const ckvc_table *of = t->table;
    return ckvc_table_relative(
        of, layer, ckvc_bin_index(of->edges_entropy, of->n_entropy_bins - 1, k->stats->r_struct),
        ckvc_bin_index(of->edges_ppl, of->n_ppl_bins - 1, k->stats->r_sem), block);
}

/* Thresholds below the capacities c [L][n_sets]. */
static void cut(policy_sets *k, const table_in_use *t, uint32_t block, uint32_t n_sets) {
    for (uint32_t l = 0; t->table->relative && l < k->L; l++) {
        const double tau = threshold_of(k, t, block, l);
        for (uint32_t g = 0; g < n_sets; g++) {
            const uint32_t most = count_above(k, t, block, l, g, n_sets > 1, tau);
            uint32_t *c = &k->c[l * n_sets + g];
            *c = *c < most ? *c : most;
        }
    }
}

/* As many as a table keeps in each layer or head; *n_sets of a layer. */
static ckvc_status allot_table(policy_sets *k, const table_in_use *t, uint32_t b, uint32_t *n_sets,
                               ckvc_err *err) {
    const uint32_t block = block_of(k, t, b, 0), B = tokens_of(k, b, 0);
    const ckvc_score s = table_asked(t, block);
    uint32_t least, n_candidates;
    *n_sets = s.mode == CKVC_MODE_HEADS ? k->G : 1;
    if (s.mode != CKVC_MODE_SHARED) {
        CKVC_FAIL_IF(ckvc_table_capacities(t->table, block, (ckvc_mode)s.mode, B, k->p->n_tokens,
                                           k->c, &least) != 0,
                     err, CKVC_E_DATA,
                     "prompt \"%s\": a budget of %u tokens is below what every %s must keep; the "
                     "least is %u",
                     k->p->entry->id, B, *n_sets > 1 ? "head" : "layer", least);
        cut(k, t, block, *n_sets);
    }
    for (uint32_t l = 0; s.mode == CKVC_MODE_SHARED && l < k->L; l++) {
        k->c[l] = asked_is_paper(s) ? paper_layer(k, t, b, l, k->positions, &n_candidates) : B;
    }
    for (uint32_t u = k->L * k->G; *n_sets == 1 && u-- > 0;) { k->c[u] = k->c[u / k->G]; }
    return CKVC_OK;
}

/* Shares of the heads in a block, [L][G]. */
static const double *shares_of(policy_sets *k, const table_in_use *of, uint32_t block) {
    assert(of); /* score_needs_table */
    const ckvc_table *t = of->table;
    for (uint32_t i = 0; i < k->L * k->G; i++) {
        k->share[i] = t->share[(size_t)i * t->n_budgets + block];
    }
    return k->share;
}

/* By a rule; all B without one. */
static void allot_reference(policy_sets *k, size_t i, uint32_t b) {
    const policy_rule *r = policy_rule_of(k->o->list[i].kind);
    const table_in_use *t = table_of(k, i);
    if (!r || !r->allot) {
        for (uint32_t u = 0; u < k->L * k->G; u++) { k->c[u] = tokens_of(k, b, u / k->G); }
        return;
    }
    const uint32_t T = k->p->n_tokens, B = tokens_of(k, b, 0), block = t ? block_of(k, t, b, 0) : 0;
    const ckvc_c_min c_min = table_c_min(t, block);
    const allot_ask ask = {.n_layers = k->L,
                           .n_heads = k->G,
                           .n_tokens = T,
                           .budget = B,
                           .s = has_score(r) ? head_scores_at(&k->scores, k->score[i], 0, 0)
                                : t && !r->by_share
                                    ? head_scores_at(&k->scores, t->score[block], 0, 0)
                                    : NULL,
                           .layer = k->scores.layer,
                           .share = r->by_share ? shares_of(k, t, block) : NULL,
                           .least = ckvc_head_floor(c_min.floor, (uint32_t)c_min.recent, B, T),
                           .keys = k->keys,
                           .scratch = k->positions}; /* sets come after */
    r->allot(&ask, k->c);
}

/* ---- decisions ---- */

static void begin(policy_sets *k, uint32_t n_sets) {
    k->kept.n_sets = n_sets;
    k->kept.entries = 0;
    k->kept.floor = 0;
    k->kept.repeat_tokens = 0;
    memset(k->n_done, 0, k->L * sizeof *k->n_done);
    for (uint32_t l = 0; l < k->L; l++) {
        uint32_t *offsets = k->offsets + (size_t)l * (k->G + 1);
        offsets[0] = 0;
        k->kept.sets[l] =
            (kept_set){(int32_t)n_sets, offsets, k->positions + (size_t)l * k->G * k->p->n_tokens};
    }
}

/* Where the next set of a layer goes, and that it is there with n positions. */
static uint32_t *next_set(const policy_sets *k, uint32_t layer) {
    return k->positions + (size_t)layer * k->G * k->p->n_tokens +
           k->kept.sets[layer].offsets[k->n_done[layer]];
}

static void take_set(policy_sets *k, uint32_t layer, uint32_t n) {
    uint32_t *offsets = k->offsets + (size_t)layer * (k->G + 1), at = k->n_done[layer]++;
    offsets[at + 1] = offsets[at] + n;
    k->kept.entries += (uint64_t)n * (k->kept.n_sets > 1 ? 1 : k->G);
}

/* The next set of a layer: of u the positions from tau up, at most so many. */
static void keep(policy_sets *k, uint32_t layer, const double *u, ckvc_rule rule) {
    take_set(k, layer,
             ckvc_retain(k->p->n_tokens, u, rule, next_set(k, layer), &k->kept.n_candidates[layer],
                         k->scratch));
}

static void keep_paper(policy_sets *k, const table_in_use *t, uint32_t b) {
    begin(k, 1);
    k->kept.mode = CKVC_MODE_SHARED;
    k->kept.score = CKVC_SCORE_PAPER;
    for (uint32_t l = 0; l < k->L; l++) {
        take_set(k, l, paper_layer(k, t, b, l, next_set(k, l), &k->kept.n_candidates[l]));
    }
}

/* Identity's utility as `matched` and `top-k` cut it beside a table: of a layer or head, with the
 * positions that the table's sets begin with. */
static void counterpart(policy_sets *k, const table_in_use *t, uint32_t b, uint32_t layer,
                        uint32_t head, bool heads) {
    const uint32_t block = block_of(k, t, b, layer);
    unit_utility(k, layer, head, heads ? 1 : k->G);
    if (!asked_is_paper(table_asked(t, block))) { force(k, t, block); }
}

static void keep_matched(policy_sets *k, const table_in_use *t, size_t i, uint32_t b) {
    const ckvc_score s = table_asked(t, block_of(k, t, b, 0));
    const double tau = policy_sets_tau(k, i, b);
    const bool clamped = s.mode == CKVC_MODE_SHARED;
    begin(k, s.mode == CKVC_MODE_HEADS ? k->G : 1);
    k->kept.mode = (ckvc_mode)s.mode;
    k->kept.score = CKVC_SCORE_PAPER;
    for (uint32_t l = 0; l < k->L; l++) {
        for (uint32_t g = 0; g < k->kept.n_sets; g++) {
            counterpart(k, t, b, l, g, k->kept.n_sets > 1);
            keep(k, l, k->u,
                 (ckvc_rule){tau, clamped ? tokens_of(k, b, l) : k->p->n_tokens,
                             asked_is_paper(s) ? k->o->setting.keep_window : 0});
        }
    }
}

/* What a layer's set, or a head's, is ranked by: k->u, or an array of the head scores. */
static const double *ranking(policy_sets *k, size_t i, uint32_t b, uint32_t l, uint32_t g) {
    const score_kind kind = k->o->list[i].kind;
    const policy_rule *r = policy_rule_of(kind);
    const table_in_use *t = table_of(k, i);
    const uint32_t block = t ? block_of(k, t, b, l) : 0;
    assert(t || (kind != SCORE_TABLE && !score_needs_table(kind)));
    if (kind == SCORE_TABLE || kind == SCORE_POOLED) {
        return table_ranking(k, t, block, l, g, kind == SCORE_POOLED || k->kept.n_sets > 1);
    }
    if (r && !r->rank) {
        return head_scores_at(&k->scores, k->score[i], l, r->by_head ? g : 0);
    } else if (kind == SCORE_TOP_K && t) {
        counterpart(k, t, b, l, g, k->kept.n_sets > 1);
    } else if (kind == SCORE_TOP_K) {
        unit_utility(k, l, 0, k->G);
    } else if (l == 0 && g == 0) { /* one for all */
        assert(r);
        const rank_ask ask = {k->p->n_tokens, k->o->setting.window, k->stats->alpha_f32,
                              k->o->setting.seed, k->p->entry->id};
        r->rank(&ask, k->u);
        if (kind == SCORE_WINDOW && t && !asked_is_paper(table_asked(t, block))) {
            force(k, t, block);
        }
    }
    return k->u;
}

ckvc_status policy_sets_decide(policy_sets *k, size_t i, uint32_t b, const policy_kept **out,
                               ckvc_err *err) {
    const score_kind kind = k->o->list[i].kind;
    const policy_rule *r = policy_rule_of(kind);
    const table_in_use *t = table_of(k, i);
    const ckvc_score asked = t ? table_asked(t, block_of(k, t, b, 0)) : (ckvc_score){0};
    const bool paper = t && !score_is_reference(kind) && asked_is_paper(asked);
    *out = &k->kept;
    k->kept.propagated = kind == SCORE_FASTKV && k->propagate_from && !k->kept.whole;
    session_turn(k->session, k->kept.propagated);
    k->kept.bins = kind != SCORE_MATCHED && kind != SCORE_IDENTITY && paper ? t->kept : NULL;
    if (kind == SCORE_MATCHED && !k->kept.whole) {
        keep_matched(k, t, i, b);
        return CKVC_OK;
    }
    if (paper && !k->kept.whole) {
        keep_paper(k, t, b);
        return CKVC_OK;
    }
    uint32_t n_sets = 1;
    if (k->kept.whole) {
        n_sets = asked.mode == CKVC_MODE_HEADS ? k->G : 1;
        for (uint32_t u = 0; u < k->L * k->G; u++) { k->c[u] = k->p->n_tokens; }
        memset(k->u, 0, k->p->n_tokens * sizeof *k->u);
    } else if (t && !score_needs_table(kind)) {
        CKVC_TRY(allot_table(k, t, b, &n_sets, err));
    } else {
        allot_reference(k, i, b);
    }
    if (r && r->by_head) { n_sets = k->G; }
    begin(k, n_sets);
    if (kind == SCORE_KVZIP && !k->kept.whole) {
        k->kept.repeat_tokens = reconstruction_tokens(&k->repeat.texts, k->p->n_tokens);
    }
    k->kept.mode = n_sets > 1 ? CKVC_MODE_HEADS : (ckvc_mode)asked.mode;
    k->kept.score = kind == SCORE_TABLE || kind == SCORE_POOLED ? (ckvc_score_kind)asked.kind
                                                                : CKVC_SCORE_PAPER;
    if (kind == SCORE_TABLE && asked.mode != CKVC_MODE_SHARED) {
        k->kept.floor = table_c_min(t, block_of(k, t, b, 0)).floor;
    }
    /* recent tokens are kept as by the tables beside; the other rankings have their own */
    const bool windowed =
        (kind == SCORE_WINDOW || kind == SCORE_TOP_K) && (!t || asked_is_paper(asked));
    for (uint32_t l = 0; l < k->L; l++) {
        for (uint32_t g = 0; g < n_sets; g++) {
            keep(k, l, k->kept.whole ? k->u : ranking(k, i, b, l, g),
                 (ckvc_rule){-INFINITY, k->c[l * k->G + g],
                             windowed ? k->o->setting.keep_window : 0});
        }
    }
    return CKVC_OK;
}

uint32_t policy_sets_unit(policy_sets *k, size_t i, uint32_t b, uint32_t layer, uint32_t set,
                          uint32_t capacity, uint32_t *positions) {
    uint32_t n_candidates;
    return ckvc_retain(k->p->n_tokens, ranking(k, i, b, layer, set),
                       (ckvc_rule){.tau = -INFINITY, .budget = capacity}, positions, &n_candidates,
                       k->scratch);
}

uint32_t policy_sets_above(policy_sets *k, size_t i, uint32_t b, uint32_t layer, uint32_t set,
                           double tau) {
    const table_in_use *t = table_of(k, i);
    const uint32_t block = block_of(k, t, b, layer);
    return count_above(k, t, block, layer, set, table_asked(t, block).mode == CKVC_MODE_HEADS,
                       tau < 0 ? threshold_of(k, t, block, layer) : tau);
}

/* ---- matched: one pass without continuations over the held-out prompts, which are those that
 * count; over all when none is ---- */

/* What a prompt keeps under every threshold and under the table, into the sums m. */
static ckvc_status count_cell(policy_sets *k, size_t i, uint32_t b, matched_tau *m, ckvc_err *err) {
    const table_in_use *t = table_of(k, i);
    const ckvc_score s = table_asked(t, block_of(k, t, b, 0));
    uint32_t n_sets;
    CKVC_TRY(allot_table(k, t, b, &n_sets, err));
    m->wide = t->beyond_paper;
    for (uint32_t l = 0; l < k->L; l++) {
        const matched_unit unit = {.u = k->u,
                                   .n_tokens = k->p->n_tokens,
                                   .keep_window = asked_is_paper(s) ? k->o->setting.keep_window : 0,
                                   .most = s.mode == CKVC_MODE_SHARED ? tokens_of(k, b, l)
                                                                      : k->p->n_tokens};
        for (uint32_t g = 0; g < n_sets; g++) {
            counterpart(k, t, b, l, g, n_sets > 1);
            matched_tau_add(m, &unit, k->c[l * k->G + g]);
        }
    }
    return CKVC_OK;
}

ckvc_status policy_sets_count(policy_sets *k, policy_sets *sum, ckvc_err *err) {
    const uint32_t n_budgets = k->o->setting.budgets.n;
    for (size_t c = 0; c < k->o->n * n_budgets; c++) {
        if (k->o->list[c / n_budgets].kind == SCORE_MATCHED && !k->kept.whole) {
            CKVC_TRY(
                count_cell(k, c / n_budgets, (uint32_t)(c % n_budgets), &sum->matched[c], err));
        }
    }
    return CKVC_OK;
}

void policy_sets_match(policy_sets *k, const policy_sets *of) {
    const uint32_t n_budgets = k->o->setting.budgets.n;
    for (size_t c = 0; c < k->o->n * n_budgets; c++) {
        if (k->o->list[c / n_budgets].kind == SCORE_MATCHED) {
            k->tau[c] = matched_tau_find(&of->matched[c]);
        }
    }
}

double policy_sets_tau(const policy_sets *k, size_t i, uint32_t b) {
    return k->tau[i * k->o->setting.budgets.n + b];
}
