/* What policies keep of a prompt: see policy_sets.h. */
#include "judge/policies/policy_sets.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "calib/actions/prompt_sets.h"
#include "judge/policies/fitted_entries.h"
#include "judge/policies/head_scores.h"
#include "judge/policies/controls.h"
#include "judge/policies/table_in_use.h"
#include "lib/base/memory.h"

#define NO_TABLE SIZE_MAX

struct policy_sets {
    const policy_choice *o;
    uint32_t L, G;
    head_scores scores;
    reconstruction repeat; /* for a rule that repeats the prompt; fed NULL: no rule does */
    uint32_t most_fed, most_among;
    entry_fitter fitter; /* bytes 0: no table fits entries */
    prefill_watcher watcher;
    table_in_use *tables; /* [n_tables] */
    size_t n_tables;
    size_t *of_policy; /* [n_policies] its table; NO_TABLE where none is needed */
    /* [n_policies] number among the head scores, for rules that have a score */
    size_t *score;
    matched_tau *matched; /* [n_policies][nB] counts, for POLICY_MATCHED */
    double *tau;          /* [n_policies][nB] thresholds, for POLICY_MATCHED */
    kept_set *sets;       /* [L] */
    uint32_t *positions;  /* [L][G * max T] */
    uint32_t *offsets;    /* [L][G + 1] */
    uint32_t *candidates; /* [L] */
    uint32_t *scratch;    /* [max T] */
    uint32_t *c;          /* [L][G] capacities */
    uint64_t *keys;       /* [L][G][max T] where a rule sorts all scores */
    double *of_table;     /* [L][G][max T] where a rule ranks by a table's scores */
    double *u, *ones;     /* [max T]; [G] */
    double *share;        /* [L][G] of one block */
    size_t bytes;         /* of all this, without the scores */
    /* the current prompt */
    const prompt *p;
    session *session;
    const prefill_stats *stats;
    policy_kept kept;
    uint32_t *n_done; /* [L] sets of each layer that are finished */
};

/* The arrays and their lengths, for T tokens and n_cells pairs of policy and budget. */
#define ARRAYS(X)                                                                                  \
    X(k->tables, k->o->n)                                                                          \
    X(k->of_policy, k->o->n)                                                                       \
    X(k->score, k->o->n)                                                                           \
    X(k->matched, n_cells)                                                                         \
    X(k->tau, n_cells)                                                                             \
    X(k->sets, k->L)                                                                               \
    X(k->positions, heads *T)                                                                      \
    X(k->offsets, heads + k->L)                                                                    \
    X(k->candidates, k->L)                                                                         \
    X(k->scratch, T)                                                                               \
    X(k->c, heads)                                                                                 \
    X(k->keys, sorts ? heads *T : 0)                                                               \
    X(k->of_table, by_table ? heads *T : 0)                                                        \
    X(k->u, T)                                                                                     \
    X(k->ones, k->G)                                                                               \
    X(k->share, heads)                                                                             \
    X(k->n_done, k->L)

size_t policy_sets_bytes(const policy_sets *k) {
    size_t bytes = k->bytes + k->scores.bytes + k->fitter.bytes;
    for (size_t i = 0; i < k->n_tables; i++) { bytes += k->tables[i].served.bytes; }
    return bytes;
}

void policy_sets_free(policy_sets *k) {
    if (!k) { return; }
    for (size_t i = 0; i < k->n_tables; i++) { table_close(&k->tables[i]); }
    head_scores_fini(&k->scores);
    entry_fitter_close(&k->fitter);
#define FREE(array, n) free(array);
    ARRAYS(FREE)
    CKVC_FREE(k->repeat.fed, k->repeat.positions, k);
}

/* The budget of a layer as it was asked for. */
static double layer_budget(const policy_sets *k, uint32_t b, uint32_t layer) {
    const setting *of = &k->o->setting;
    return of->layer_budgets.n ? of->layer_budgets.v[layer] : of->budgets.v[b];
}

static uint32_t tokens_of(const policy_sets *k, uint32_t b, uint32_t layer) {
    return ckvc_budget_tokens(layer_budget(k, b, layer), k->p->n_tokens);
}

/* The block of a table that serves a layer under budget number b. */
static uint32_t nearest_block(const policy_sets *k, const ckvc_table *t, uint32_t b,
                              uint32_t layer) {
    return ckvc_nearest_budget(t->budgets, t->n_budgets, layer_budget(k, b, layer), k->p->n_tokens);
}

/* ---- tables ---- */

/* The table of policy i, or NULL. */
static table_in_use *policy_table(const policy_sets *k, size_t i) {
    return k->of_policy[i] == NO_TABLE ? NULL : &k->tables[k->of_policy[i]];
}

/* The floor that is asked for in place of the table's, or NULL. */
static const double *floor_of(const policy_sets *k, size_t i) {
    return k->o->list[i].floor ? k->o->list[i].floor : k->o->floor;
}

static ckvc_c_min c_min_of(const policy_sets *k, size_t i, uint32_t block) {
    ckvc_c_min c = table_c_min(policy_table(k, i), block);
    c.floor = floor_of(k, i) ? *floor_of(k, i) : c.floor;
    return c;
}

/* Opens the table that policy i draws on, or finds it among the open ones. */
static ckvc_status open_table(policy_sets *k, size_t i, const model_shape *shape,
                              uint32_t max_tokens, ckvc_err *err) {
    const asked_policy *p = &k->o->list[i];
    const setting *made = &k->o->setting;
    table_in_use *t = &k->tables[k->n_tables];
    t->choice = k->o;
    k->of_policy[i] = NO_TABLE;
    if (p->kind == POLICY_IDENTITY) {
        const start_table_spec spec = {.n_layers = k->L,
                                       .n_heads = k->G,
                                       .budgets = made->budgets.v,
                                       .n_budgets = made->budgets.n,
                                       .window = made->window};
        CKVC_TRY(start_table_create(&spec, &t->own, err));
        t->table = t->own;
    } else if (!p->table) {
        return CKVC_OK; /* a reference that needs no table */
    } else {
        CKVC_TRY(table_check_budgets(k->o, p->table, err));
        if (policy_is_control(p->kind)) { t->own = policy_control_table(p->kind, p->table->table); }
        t->table = t->own ? t->own : p->table->table;
        t->name = p->table->content_id;
    }
    t->score = p->score ? *p->score : k->o->score;
    size_t n = t->own ? k->n_tables : 0;
    while (n < k->n_tables &&
           (k->tables[n].own || k->tables[n].table != t->table || k->tables[n].score != t->score)) {
        n++;
    }
    k->of_policy[i] = n;
    k->n_tables += n == k->n_tables;
    CKVC_TRY(table_check_shares(&k->tables[n], p->kind, err));
    if (k->tables[n].kept || k->tables[n].served.bytes) { return CKVC_OK; }
    CKVC_TRY(table_open(t, shape, max_tokens, err));
    k->bytes += t->kept ? prompt_sets_bytes(t->table, max_tokens) : 0;
    const int64_t rows = t->kept ? 0 : table_sets_rows(&t->served);
    k->watcher.n_rows = rows > k->watcher.n_rows ? rows : k->watcher.n_rows;
    return CKVC_OK;
}

/* ---- fitted entries ---- */

/* The ridge that is asked for in place of the table's, or NULL. */
static const double *ridge_of(const policy_sets *k, size_t i) {
    return k->o->list[i].ridge ? k->o->list[i].ridge : k->o->ridge;
}

/* The table by whose bank policy i fits entries: the policy is this table, or is a reference that
 * is given its bank, and the table or who asks has a ridge. NULL: it fits none. */
static const ckvc_table *fits_by(const policy_sets *k, size_t i) {
    const asked_policy *p = &k->o->list[i];
    const table_file *f = p->kind == POLICY_TABLE ? p->table : p->bank;
    if (!f || !f->table->bank) { return NULL; }
    const double *asked = ridge_of(k, i);
    double most = asked ? *asked : 0;
    for (uint32_t b = 0; !asked && b < f->table->n_budgets; b++) {
        most = fmax(most, ckvc_table_ridge(f->table, b));
    }
    return most > 0 ? f->table : NULL;
}

/* Opens the fitter where a policy needs one. */
static void open_fitter(policy_sets *k, const model_shape *shape, uint32_t max_tokens) {
    const ckvc_table *most = NULL;
    for (size_t i = 0; i < k->o->n; i++) {
        const ckvc_table *t = fits_by(k, i);
        if (t && (!most || t->n_bank > most->n_bank)) { most = t; }
    }
    if (most) { entry_fitter_open(&k->fitter, shape, max_tokens, most); }
}

/* Fits the entries that policy i keeps of the current prompt under budget number b. */
static ckvc_status fit_kept(policy_sets *k, size_t i, uint32_t b, ckvc_err *err) {
    const ckvc_table *t = fits_by(k, i);
    if (k->kept.whole || !t) { return CKVC_OK; }
    const fit_request r = {.session = k->session,
                           .n_tokens = k->p->n_tokens,
                           .table = t,
                           .block = nearest_block(k, t, b, 0),
                           .ridge = ridge_of(k, i),
                           .sets = k->kept.sets};
    k->kept.ridge = r.ridge ? *r.ridge : ckvc_table_ridge(t, r.block);
    return entry_fitter_fit(&k->fitter, &r, err);
}

/* Whether a rule has a score of its own, and not a table's or a mere ranking of positions. */
static bool has_score(const policy_rule *r) { return r->score.on_head || r->score.finish; }

/* Prepares the second pass over every prompt. */
static void open_repeat(policy_sets *k, uint32_t max_tokens) {
    reconstruction *r = &k->repeat;
    r->texts = k->o->texts;
    r->n_units = (size_t)k->L * k->G;
    k->most_fed = reconstruction_fed(&r->texts, max_tokens);
    k->most_among = reconstruction_among(&r->texts, max_tokens);
    r->fed = ckvc_calloc(k->most_fed, sizeof *r->fed);
    r->positions = ckvc_calloc(k->most_among, sizeof *r->positions);
    k->bytes += k->most_fed * sizeof *r->fed + k->most_among * sizeof *r->positions;
    k->scores.reconstruction = r;
}

/* Called for each head while the prefill runs. */
static void see_head(void *ctx, const prefill_head *head) {
    policy_sets *k = ctx;
    for (size_t i = 0; i < k->n_tables; i++) {
        if (!k->tables[i].kept) { table_sets_see(&k->tables[i].served, head); }
    }
    head_scores_see(&k->scores, head);
}

ckvc_status policy_sets_create(const policy_choice *choice, const model_shape *shape,
                               const prompt_list *prompts, policy_sets **out, ckvc_err *err) {
    CKVC_AUTO(policy_sets_free_at) policy_sets *k = ckvc_calloc(1, sizeof *k);
    k->o = choice;
    k->L = (uint32_t)shape->n_layers;
    k->G = (uint32_t)shape->n_kv_heads;
    const size_t T = prompts->max_tokens, heads = (size_t)k->L * k->G,
                 n_cells = choice->n * choice->setting.budgets.n;
    bool sorts = false, by_table = false;
    *out = NULL;
    for (size_t i = 0; i < choice->n; i++) {
        const policy_rule *r = policy_rule_of(choice->list[i].kind);
        sorts |= r && r->sorts;
        by_table |= r && r->by_table;
    }
#define TAKE(array, n)                                                                             \
    (array) = ckvc_calloc((n), sizeof *(array));                                                   \
    k->bytes += (n) * sizeof *(array);
    ARRAYS(TAKE)
    for (uint32_t g = 0; g < k->G; g++) { k->ones[g] = 1.0; }
    for (size_t i = 0; i < choice->n; i++) {
        const policy_rule *r = policy_rule_of(choice->list[i].kind);
        if (choice->list[i].kind != POLICY_FULL) {
            CKVC_TRY(model_shape_evicts(shape, policy_kind_name(choice->list[i].kind), err));
        }
        for (uint32_t b = 0; b < choice->setting.budgets.n; b++) {
            CKVC_TRY(cache_formats_check(policy_formats(choice, i, b), shape->head_dim, err));
        }
        CKVC_TRY(open_table(k, i, shape, prompts->max_tokens, err));
        if (!r) { continue; }
        if (has_score(r)) { k->score[i] = head_scores_add(&k->scores, r->score); }
        CKVC_FAIL_IF(r->by_table && policy_table(k, i)->kept, err, CKVC_E_MISMATCH,
                     "%s needs a table that engines can deploy, and this one is a probe's",
                     policy_kind_name(choice->list[i].kind));
        if (r->repeats && !k->repeat.fed) { open_repeat(k, prompts->max_tokens); }
        CKVC_FAIL_IF(choice->setting.layer_budgets.n && r->allot, err, CKVC_E_USAGE,
                     "--layer-budgets: %s has budgets of its own; leave out one of the two",
                     policy_kind_name(choice->list[i].kind));
    }
    open_fitter(k, shape, prompts->max_tokens);
    head_scores_reserve(&k->scores, shape, prompts->max_tokens);
    const prefill_watcher *wanted = &k->scores.wanted;
    k->watcher = (prefill_watcher){.n_rows = wanted->n_rows > k->watcher.n_rows ? wanted->n_rows
                                                                                : k->watcher.n_rows,
                                   .queries = wanted->queries,
                                   .column_sum = wanted->column_sum,
                                   .on_head = see_head,
                                   .ctx = k};
    *out = ckvc_take(&k);
    return CKVC_OK;
}

void policy_sets_need(const policy_sets *k, session_limits *limits) {
    limits->max_watched = k->watcher.n_rows;
    limits->max_targets = k->most_fed;
    limits->max_counted = k->most_among;
    limits->fitted = k->fitter.bytes > 0;
}

static bool is_whole(const policy_sets *k, const prompt *p) {
    return p->n_tokens <= k->o->setting.window;
}

/* The tokens that a second pass will feed after the prompt; 0: there is none. */
static uint32_t tokens_to_feed(const policy_sets *k, const prompt *p) {
    return k->repeat.fed && !is_whole(k, p) ? reconstruction_fed(&k->repeat.texts, p->n_tokens) : 0;
}

/* Prepares a prompt's prefill. *out is its watcher; NULL: none is needed. CKVC_E_DATA where a
 * budget is below what the heads must keep. */
static ckvc_status begin_prompt(policy_sets *k, const prompt *p, const session *s,
                                const prefill_watcher **out, ckvc_err *err) {
    const double *frequencies = session_key_frequencies(s);
    *out = NULL;
    if (is_whole(k, p)) { return CKVC_OK; }
    for (size_t i = 0; i < k->n_tables; i++) {
        if (k->tables[i].kept) { continue; }
        CKVC_TRY(table_sets_begin(&k->tables[i].served, p->entry->id, p->n_tokens, s, err));
    }
    head_scores_begin(&k->scores, frequencies);
    *out = k->watcher.n_rows ? &k->watcher : NULL;
    return CKVC_OK;
}

/* Makes a prompt that is prefilled the current one. */
static ckvc_status enter_prompt(policy_sets *k, session *s, const prompt *p,
                                const prefill_stats *stats, ckvc_err *err) {
    k->p = p;
    k->session = s;
    k->stats = stats;
    k->kept.whole = is_whole(k, p);
    entry_fitter_forget(&k->fitter);
    if (k->kept.whole) { return CKVC_OK; }
    CKVC_TRY(head_scores_finish(&k->scores, s, p->tokens, stats, err));
    for (size_t i = 0; i < k->n_tables; i++) {
        if (k->tables[i].kept) { prompt_sets_build(k->tables[i].kept, stats); }
    }
    return CKVC_OK;
}

ckvc_status policy_sets_prefill(policy_sets *k, session *s, const prompt *p, prefill_stats *stats,
                                ckvc_err *err) {
    const uint32_t fed = tokens_to_feed(k, p);
    prefill_input in = {.tokens = p->tokens,
                        .n = p->n_tokens,
                        .n_total = (int64_t)p->n_tokens +
                                   (fed > p->n_continuation ? fed : p->n_continuation),
                        .window = k->o->setting.window,
                        .alpha_kind = k->o->setting.alpha};
    CKVC_TRY(begin_prompt(k, p, s, &in.watcher, err));
    CKVC_TRY(sessions_prefill(&(prefill_job){s, in, stats}, 1, err));
    return enter_prompt(k, s, p, stats, err);
}

/* ---- scores of a layer or head, in k->u ---- */

static const float *rho_of(const policy_sets *k, uint32_t layer, uint32_t head) {
    return k->stats->rho + ((size_t)layer * k->G + head) * k->p->n_tokens;
}

/* Puts the positions that a table's sets begin with before all others, where the sets are not the
 * paper's. */
static void force_ends(const policy_sets *k, const table_in_use *t, uint32_t b, double *u) {
    const uint32_t block = nearest_block(k, t->table, b, 0);
    if (asked_is_paper(table_asked(t, block))) { return; }
    head_score_force(1, (uint32_t)table_c_min(t, block).recent, k->p->n_tokens, u);
}

/* Computes identity's utility of a layer, or of one head, with the positions that the table's sets
 * begin with. `matched` cuts it at its threshold beside a table. */
static void counterpart(policy_sets *k, const table_in_use *t, uint32_t b, uint32_t layer,
                        uint32_t head, bool heads) {
    ckvc_utility(k->p->n_tokens, heads ? 1 : k->G, k->stats->alpha_f32, rho_of(k, layer, head),
                 k->ones, k->u);
    force_ends(k, t, b, k->u);
}

/* ---- a table's sets, in k->kept ---- */

static void begin_sets(policy_sets *k, uint32_t n_sets) {
    k->kept.n_sets = n_sets;
    k->kept.sets = k->sets;
    k->kept.n_candidates = k->candidates;
    k->kept.entries = 0;
    memset(k->n_done, 0, k->L * sizeof *k->n_done);
    for (uint32_t l = 0; l < k->L; l++) {
        uint32_t *offsets = k->offsets + (size_t)l * (k->G + 1);
        offsets[0] = 0;
        k->sets[l] = (kept_set){
            (int32_t)n_sets, offsets, k->positions + (size_t)l * k->G * k->p->n_tokens, false, {0}};
    }
}

/* Where the next set of a layer goes. take_set then says that it is there, with n positions. */
static uint32_t *next_set(const policy_sets *k, uint32_t layer) {
    return k->positions + (size_t)layer * k->G * k->p->n_tokens +
           k->sets[layer].offsets[k->n_done[layer]];
}

static void take_set(policy_sets *k, uint32_t layer, uint32_t n) {
    uint32_t *offsets = k->offsets + (size_t)layer * (k->G + 1), at = k->n_done[layer]++;
    offsets[at + 1] = offsets[at] + n;
    k->kept.entries += (uint64_t)n * (k->kept.n_sets > 1 ? 1 : k->G);
}

/* Adds the next set of a layer: the positions of u that the rule keeps. */
static void keep_set(policy_sets *k, uint32_t layer, const double *u, ckvc_rule rule) {
    take_set(k, layer,
             ckvc_retain(k->p->n_tokens, u, rule, next_set(k, layer), &k->candidates[layer],
                         k->scratch));
}

/* Keeps sets by the paper's operator, or a probe's. */
static void keep_probe(policy_sets *k, const table_in_use *t, uint32_t b) {
    begin_sets(k, 1);
    for (uint32_t l = 0; l < k->L; l++) {
        take_set(k, l,
                 prompt_sets_layer_at_budget(t->kept, nearest_block(k, t->table, b, l), l,
                                             tokens_of(k, b, l), next_set(k, l),
                                             &k->candidates[l]));
    }
}

static ckvc_status keep_table(policy_sets *k, size_t i, uint32_t b, ckvc_err *err) {
    table_in_use *t = policy_table(k, i);
    const table_kept *kept;
    if (t->kept) {
        keep_probe(k, t, b);
        return CKVC_OK;
    }
    CKVC_TRY(table_sets_keep(&t->served, b, floor_of(k, i), k->stats, &kept, err));
    begin_sets(k, kept->n_sets);
    k->kept.sets = kept->sets;
    k->kept.n_candidates = kept->n_candidates;
    for (uint32_t l = 0; l < k->L; l++) {
        k->kept.entries +=
            (uint64_t)kept->sets[l].offsets[kept->n_sets] * (kept->n_sets > 1 ? 1 : k->G);
    }
    return CKVC_OK;
}

/* ---- capacities, in k->c ---- */

/* Whether a rule keeps one set for each KV head. False: one for each layer, ranked by the sum over
 * its heads where scores belong to heads. */
static bool ranks_heads(const policy_sets *k, const policy_rule *r) {
    const bool of_layers = k->o->mode == CKVC_MODE_SHARED || k->o->mode == CKVC_MODE_LAYERS;
    return r->by_head && (!of_layers || r->by_table || r->by_share);
}

/* Gives each layer or head as many positions as a table keeps there; *n_sets receives the sets of a
 * layer. */
static ckvc_status allot_table(policy_sets *k, size_t i, uint32_t b, uint32_t *n_sets,
                               ckvc_err *err) {
    CKVC_TRY(keep_table(k, i, b, err));
    *n_sets = k->kept.n_sets;
    for (uint32_t u = 0; u < k->L * k->G; u++) {
        const uint32_t *offsets = k->kept.sets[u / k->G].offsets + (*n_sets > 1 ? u % k->G : 0);
        k->c[u] = offsets[1] - offsets[0];
    }
    return CKVC_OK;
}

/* The shares of the heads in a block, [L][G]. */
static const double *block_shares(policy_sets *k, const table_in_use *of, uint32_t block) {
    assert(of); /* policy_needs_table says that there is one */
    const ckvc_table *t = of->table;
    for (uint32_t i = 0; i < k->L * k->G; i++) {
        k->share[i] = t->share[(size_t)i * t->n_budgets + block];
    }
    return k->share;
}

/* Fills the scores of all heads by a table. */
static ckvc_status fill_of_table(policy_sets *k, table_in_use *t, uint32_t b, ckvc_err *err) {
    const size_t T = k->p->n_tokens;
    const table_kept *kept;
    CKVC_TRY(table_sets_keep(&t->served, b, NULL, k->stats, &kept, err));
    for (uint32_t u = 0; u < k->L * k->G; u++) {
        double *s = k->of_table + u * T;
        memcpy(s, table_sets_scores(&t->served, b, u / k->G, u % k->G), T * sizeof *s);
        head_score_force(1, (uint32_t)table_c_min(t, nearest_block(k, t->table, b, 0)).recent,
                         k->p->n_tokens, s);
    }
    return CKVC_OK;
}

/* Gives each head what a rule allots. Where a layer has one set for all heads it gets the mean over
 * its heads, and the remainder goes to the next layer. Everybody gets B where the rule allots
 * nothing, where all layers keep the same, or where B is the whole prompt. */
static ckvc_status allot_rule(policy_sets *k, size_t i, uint32_t b, ckvc_err *err) {
    const policy_rule *r = policy_rule_of(k->o->list[i].kind);
    table_in_use *t = policy_table(k, i);
    const bool pooled = r->by_head && !ranks_heads(k, r);
    if (!r->allot || tokens_of(k, b, 0) >= k->p->n_tokens ||
        (pooled && k->o->mode == CKVC_MODE_SHARED)) {
        for (uint32_t u = 0; u < k->L * k->G; u++) { k->c[u] = tokens_of(k, b, u / k->G); }
        return CKVC_OK;
    }
    if (r->by_table) { CKVC_TRY(fill_of_table(k, t, b, err)); }
    const uint32_t T = k->p->n_tokens, B = tokens_of(k, b, 0),
                   block = t ? nearest_block(k, t->table, b, 0) : 0;
    const ckvc_c_min c_min = c_min_of(k, i, block);
    const allot_ask ask = {.n_layers = k->L,
                           .n_heads = k->G,
                           .n_tokens = T,
                           .budget = B,
                           .s = r->by_table    ? k->of_table
                                : has_score(r) ? head_scores_at(&k->scores, k->score[i], 0, 0)
                                               : NULL,
                           .layer = k->scores.layer,
                           .share = r->by_share ? block_shares(k, t, block) : NULL,
                           .least = ckvc_head_floor(c_min.floor, (uint32_t)c_min.recent, B, T),
                           .keys = k->keys,
                           .scratch = k->positions}; /* it is free, as sets come after */
    r->allot(&ask, k->c);
    uint64_t sum = 0;
    for (uint32_t u = 0; pooled && u < k->L * k->G; u += k->G) {
        for (uint32_t g = 0; g < k->G; g++) { sum += k->c[u + g]; }
        k->c[u] = (uint32_t)(sum / k->G);
        sum %= k->G;
    }
    return CKVC_OK;
}

/* ---- decisions ---- */

static void keep_matched(policy_sets *k, const table_in_use *t, size_t i, uint32_t b) {
    const ckvc_score s = table_asked(t, nearest_block(k, t->table, b, 0));
    const double tau = policy_sets_tau(k, i, b);
    const bool clamped = s.mode == CKVC_MODE_SHARED;
    begin_sets(k, ckvc_mode_by_head((ckvc_mode)s.mode) ? k->G : 1);
    for (uint32_t l = 0; l < k->L; l++) {
        for (uint32_t g = 0; g < k->kept.n_sets; g++) {
            counterpart(k, t, b, l, g, k->kept.n_sets > 1);
            keep_set(k, l, k->u,
                     (ckvc_rule){tau, clamped ? tokens_of(k, b, l) : k->p->n_tokens,
                                 asked_is_paper(s) ? k->o->setting.keep_window : 0});
        }
    }
}

/* What a rule ranks a layer's set, or a head's, by: k->u, or an array of the scores. */
static const double *ranking_scores(policy_sets *k, size_t i, uint32_t b, uint32_t l, uint32_t g) {
    const policy_rule *r = policy_rule_of(k->o->list[i].kind);
    const table_in_use *t = policy_table(k, i);
    const size_t head = (size_t)l * k->G + g;
    if (r->by_table) { return k->of_table + head * k->p->n_tokens; }
    if (has_score(r)) {
        const double *s = head_scores_at(&k->scores, k->score[i], l, r->by_head ? g : 0);
        if (!r->by_head || ranks_heads(k, r)) { return s; }
        memset(k->u, 0, k->p->n_tokens * sizeof *k->u);
        for (uint32_t x = 0; x < k->G * k->p->n_tokens; x++) { k->u[x % k->p->n_tokens] += s[x]; }
        return k->u;
    }
    if (r->by_unit || head == 0) { /* else one ranking serves all sets */
        const rank_ask ask = {.n_tokens = k->p->n_tokens,
                              .window = k->o->setting.window,
                              .alpha = k->stats->alpha_f32,
                              .n_heads = k->kept.n_sets > 1 ? 1 : k->G,
                              .rho = rho_of(k, l, g),
                              .ones = k->ones,
                              .seed = k->o->setting.seed,
                              .prompt_id = k->p->entry->id};
        r->rank(&ask, k->u);
        if (r->as_tables && t) { force_ends(k, t, b, k->u); }
    }
    return k->u;
}

/* Keeps as many as a table does where the policy has one beside it; else what the rule allots. */
static ckvc_status keep_rule(policy_sets *k, size_t i, uint32_t b, ckvc_err *err) {
    const policy_rule *r = policy_rule_of(k->o->list[i].kind);
    table_in_use *t = policy_table(k, i);
    uint32_t n_sets = 1;
    if (t && !policy_needs_table(k->o->list[i].kind)) {
        CKVC_TRY(allot_table(k, i, b, &n_sets, err));
    } else {
        CKVC_TRY(allot_rule(k, i, b, err));
    }
    begin_sets(k, ranks_heads(k, r) ? k->G : r->by_head ? 1 : n_sets);
    const bool windowed =
        r->as_tables && (!t || asked_is_paper(table_asked(t, nearest_block(k, t->table, b, 0))));
    for (uint32_t l = 0; l < k->L; l++) {
        for (uint32_t g = 0; g < k->kept.n_sets; g++) {
            keep_set(k, l, ranking_scores(k, i, b, l, g),
                     (ckvc_rule){-INFINITY, k->c[l * k->G + g],
                                 windowed ? k->o->setting.keep_window : 0});
        }
    }
    return CKVC_OK;
}

/* Keeps all of a prompt that is no longer than the window, in 1 or G sets for each layer. */
static void keep_whole(policy_sets *k, uint32_t n_sets) {
    begin_sets(k, n_sets);
    for (uint32_t l = 0; l < k->L; l++) {
        for (uint32_t g = 0; g < n_sets; g++) {
            uint32_t *set = next_set(k, l);
            for (uint32_t t = 0; t < k->p->n_tokens; t++) { set[t] = t; }
            take_set(k, l, k->p->n_tokens);
        }
        k->candidates[l] = k->p->n_tokens;
    }
}

/* Records the risk cell that sets depend on: those of tables under the paper's operator or a
 * probe's. */
static void find_cell(policy_sets *k, const table_in_use *t) {
    const ckvc_table *of = k->kept.risk = t->table;
    k->kept.bin_entropy =
        ckvc_bin_index(of->edges_entropy, of->n_entropy_bins - 1, k->stats->r_struct);
    k->kept.bin_ppl = ckvc_bin_index(of->edges_ppl, of->n_ppl_bins - 1, k->stats->r_sem);
}

static ckvc_status choose_sets(policy_sets *k, size_t i, uint32_t b, ckvc_err *err) {
    const policy_kind kind = k->o->list[i].kind;
    const policy_rule *r = policy_rule_of(kind);
    table_in_use *t = policy_table(k, i);
    const uint32_t block = t ? nearest_block(k, t->table, b, 0) : 0;
    const ckvc_score asked = t ? table_asked(t, block) : (ckvc_score){0};
    const ckvc_mode mode = !r || !r->by_head   ? (ckvc_mode)asked.mode
                           : ranks_heads(k, r) ? CKVC_MODE_HEADS
                                               : k->o->mode;
    k->kept = (policy_kept){.mode = mode, .whole = k->kept.whole};
    if (k->kept.whole) {
        k->kept.score = (ckvc_score_kind)asked.kind;
        keep_whole(k, ckvc_mode_by_head(mode) ? k->G : 1);
        return CKVC_OK;
    }
    if (kind == POLICY_MATCHED) {
        assert(t);
        keep_matched(k, t, i, b);
        return CKVC_OK;
    }
    if (r) {
        if (r->repeats) {
            k->kept.repeat_tokens = reconstruction_tokens(&k->repeat.texts, k->p->n_tokens);
        }
        if (r->by_table) { k->kept.score = (ckvc_score_kind)asked.kind; }
        return keep_rule(k, i, b, err);
    }
    assert(t); /* there is no rule, so it is a table, or was made as one */
    k->kept.score = (ckvc_score_kind)asked.kind;
    if (asked_is_paper(asked) && kind != POLICY_IDENTITY) { find_cell(k, t); }
    if (asked.mode != CKVC_MODE_SHARED) { k->kept.floor = c_min_of(k, i, block).floor; }
    return keep_table(k, i, b, err);
}

ckvc_status policy_sets_decide(policy_sets *k, size_t i, uint32_t b, const policy_kept **out,
                               ckvc_err *err) {
    *out = &k->kept;
    ckvc_alloc_forbid("kept sets and fitted entries");
    ckvc_status st = choose_sets(k, i, b, err);
    for (uint32_t l = 0; !st && l < k->L; l++) {
        k->kept.sets[l].formats = policy_formats(k->o, i, b);
    }
    st = st ? st : fit_kept(k, i, b, err);
    ckvc_alloc_permit();
    return st;
}

/* ---- matched: one pass without continuations over the prompts that count, which are the held-out
 * ones, or all where none is held out ---- */

/* Adds to the sums m what a prompt keeps under every threshold and under the table. */
static ckvc_status count_cell(policy_sets *k, size_t i, uint32_t b, matched_tau *m, ckvc_err *err) {
    table_in_use *t = policy_table(k, i);
    const ckvc_score s = table_asked(t, nearest_block(k, t->table, b, 0));
    uint32_t n_sets;
    CKVC_TRY(allot_table(k, i, b, &n_sets, err));
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
        if (k->o->list[c / n_budgets].kind == POLICY_MATCHED && !k->kept.whole) {
            CKVC_TRY(
                count_cell(k, c / n_budgets, (uint32_t)(c % n_budgets), &sum->matched[c], err));
        }
    }
    return CKVC_OK;
}

void policy_sets_match(policy_sets *k, const policy_sets *of) {
    const uint32_t n_budgets = k->o->setting.budgets.n;
    for (size_t c = 0; c < k->o->n * n_budgets; c++) {
        if (k->o->list[c / n_budgets].kind == POLICY_MATCHED) {
            k->tau[c] = matched_tau_find(&of->matched[c]);
        }
    }
}

double policy_sets_tau(const policy_sets *k, size_t i, uint32_t b) {
    return k->tau[i * k->o->setting.budgets.n + b];
}

ckvc_status policy_check_formats(cache_formats f, const calibrate_inputs *in, ckvc_err *err) {
    CKVC_FAIL_IF(!cache_is_plain(f) && !in->backend->formats, err, CKVC_E_DEVICE,
                 "--cache-keys, --cache-values: %s holds caches in f32 alone; use --backend cpu",
                 in->backend->kernel);
    return cache_formats_check(f, model_get_shape(in->model)->head_dim, err);
}

ckvc_status policy_workers_open(policy_workers *p, const calibrate_inputs *in,
                                const policy_choice *choice, worker_options o, ckvc_err *err) {
    const model_shape *shape = model_get_shape(in->model);
    session_limits limits = {0};
    *p = (policy_workers){.all = {0}};
    CKVC_TRY(policy_sets_create(choice, shape, in->prompts, &p->sets[0], err));
    const uint32_t n_budgets = choice->setting.budgets.n;
    for (size_t c = 0; c < choice->n * n_budgets; c++) {
        const cache_formats f = policy_formats(choice, c / n_budgets, (uint32_t)(c % n_budgets));
        CKVC_TRY(policy_check_formats(f, in, err));
    }
    policy_sets_need(p->sets[0], &limits);
    o.setting = choice->setting;
    o.max_watched = (uint32_t)limits.max_watched;
    o.max_targets = (uint32_t)limits.max_targets;
    o.max_counted = (uint32_t)limits.max_counted;
    o.fitted = limits.fitted;
    o.beside += policy_sets_bytes(p->sets[0]);
    CKVC_TRY(workers_open(&p->all, in, &o, NULL, err));
    for (int64_t i = 0; i < p->all.n; i++) {
        p->w[i] = &p->all.items[i];
        if (i > 0) { CKVC_TRY(policy_sets_create(choice, shape, in->prompts, &p->sets[i], err)); }
    }
    return CKVC_OK;
}

void policy_workers_close(policy_workers *p) {
    for (int i = 0; i < SESSIONS_TOGETHER; i++) { policy_sets_free(p->sets[i]); }
    workers_close(&p->all);
    *p = (policy_workers){.all = {0}};
}

static ckvc_status prefill_together(policy_workers *p, const prompt *const *prompts, int64_t n,
                                    ckvc_err *err) {
    for (int64_t i = 0; i < n; i++) {
        p->w[i]->fed = tokens_to_feed(p->sets[i], prompts[i]);
        CKVC_TRY(begin_prompt(p->sets[i], prompts[i], p->w[i]->session, &p->w[i]->watcher, err));
    }
    CKVC_TRY(workers_prefill(p->w, prompts, n, err));
    for (int64_t i = 0; i < n; i++) {
        CKVC_TRY(enter_prompt(p->sets[i], p->w[i]->session, prompts[i], &p->w[i]->stats, err));
    }
    return CKVC_OK;
}

ckvc_status policy_workers_prefill(policy_workers *p, const prompt *const *prompts, int64_t n,
                                   ckvc_err *err) {
    ckvc_alloc_forbid("prefills under policies");
    const ckvc_status st = prefill_together(p, prompts, n, err);
    ckvc_alloc_permit();
    return st;
}
