/* Scores of policies: see score.h. */
#include "calib/score/score.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "calib/actions/prompt_sets.h"
#include "calib/actions/start_table.h"
#include "calib/score/score_measures.h"
#include "cql/solve/reward.h"
#include "formats/shard/vectors_h5.h"
#include "lib/base/json.h"
#include "lib/base/progress.h"

/* Thresholds that SCORE_MATCHED looks through: from 0 (everything) in steps of 1/200. */
enum { MATCH_STEPS = 1000 };
#define NO_TABLE SIZE_MAX
static double match_tau(int j) { return j / 200.0; }

/* A table in use. Policies that draw on one table share it. */
typedef struct table_in_use {
    const ckvc_table *table;
    ckvc_table *own; /* the same, when it was made here */
    prompt_sets *kept;
} table_in_use;

typedef struct scorer {
    const calibrate_inputs *in;
    const score_options *o;
    score_summary *summary;
    uint32_t L, G;
    session *session;
    table_in_use *tables; /* [n_tables] */
    size_t n_tables;
    size_t *of_policy;     /* [n_policies] its table; NO_TABLE for references that need none */
    double *kept_by_step;  /* [n_policies][nB][MATCH_STEPS]: tokens kept by identity at each
                              threshold, for matched */
    double *kept_by_table; /* [n_policies][nB] */
    score_measures measures;
    uint32_t *positions; /* [L][max T] */
    uint32_t *scratch;   /* [max T] */
    double *nll, *u;     /* [2 max C]; [max T] */
    double *ones;        /* [G] */
    /* the prompt in hand */
    const prompt *p;
    prefill_stats stats;
    double loss_full;
    /* what one policy keeps of it under one budget */
    layer_set *layers;       /* [L] */
    kept_set *sets;          /* [L], the same */
    const prompt_sets *bins; /* whose risk cell the policy looked at, or NULL */
} scorer;

/* The arrays of a scorer s and their lengths, for T tokens, C of continuation, and n_cells pairs of
 * policy and budget. */
#define ARRAYS(X)                                                                                  \
    X(s->tables, s->o->n_policies)                                                                 \
    X(s->of_policy, s->o->n_policies)                                                              \
    X(s->kept_by_step, n_cells *MATCH_STEPS)                                                       \
    X(s->kept_by_table, n_cells)                                                                   \
    X(s->positions, s->L *T)                                                                       \
    X(s->scratch, T)                                                                               \
    X(s->nll, 2 * (C + 1))                                                                         \
    X(s->u, T)                                                                                     \
    X(s->ones, s->G)                                                                               \
    X(s->layers, s->L)                                                                             \
    X(s->sets, s->L)

static void scorer_fini(scorer *s) {
    for (size_t i = 0; i < s->n_tables; i++) {
        prompt_sets_destroy(s->tables[i].kept);
        ckvc_table_free(s->tables[i].own);
    }
    session_destroy(s->session);
    score_measures_fini(&s->measures);
#define FREE(array, n) free(array);
    ARRAYS(FREE)
}

/* B of a layer, as it was asked for. */
static double budget_of(const scorer *s, uint32_t b, uint32_t layer) {
    const setting *of = &s->o->setting;
    return of->layer_budgets.n ? of->layer_budgets.v[layer] : of->budgets.v[b];
}

static uint32_t tokens_of(const scorer *s, uint32_t b, uint32_t layer) {
    return ckvc_budget_tokens(budget_of(s, b, layer), s->p->n_tokens);
}

/* ---- tables ---- */

/* Without leave to take a near block, a table must hold the very budgets. */
static ckvc_status check_blocks(const score_options *o, const table_file *f, ckvc_err *err) {
    const ckvc_table *t = f->table;
    for (uint32_t b = 0;
         !o->nearest_budget && !o->setting.layer_budgets.n && b < o->setting.budgets.n; b++) {
        const uint32_t block =
            ckvc_nearest_budget(t->budgets, t->n_budgets, o->setting.budgets.v[b], 1);
        CKVC_FAIL_IF(t->budgets[block] != o->setting.budgets.v[b], err, CKVC_E_MISMATCH,
                     "the table %.12s... has no block for budget %.10g; use one of its "
                     "own, or --nearest-budget",
                     f->content_id, o->setting.budgets.v[b]);
    }
    return CKVC_OK;
}

/* Finds or opens the table that policy i draws on. */
static ckvc_status open_table(scorer *s, size_t i, ckvc_err *err) {
    const score_options *o = s->o;
    const score_policy *p = &o->policies[i];
    table_in_use *t = &s->tables[s->n_tables];
    s->of_policy[i] = NO_TABLE;
    if (p->kind == SCORE_IDENTITY) {
        const start_table_spec spec = {.n_layers = s->L,
                                       .n_heads = s->G,
                                       .budgets = o->setting.budgets.v,
                                       .n_budgets = o->setting.budgets.n,
                                       .window = o->setting.window};
        CKVC_TRY(start_table_create(&spec, &t->own, err));
        t->table = t->own;
    } else if (!p->table) {
        return CKVC_OK; /* a reference that needs none */
    } else {
        CKVC_TRY(check_blocks(o, p->table, err));
        if (score_is_control(p->kind)) { t->own = score_control_table(p->kind, p->table->table); }
        t->table = t->own ? t->own : p->table->table;
    }
    for (size_t k = 0; !t->own && k < s->n_tables; k++) {
        if (s->tables[k].table == t->table) {
            s->of_policy[i] = k;
            return CKVC_OK;
        }
    }
    s->of_policy[i] = s->n_tables++;
    return prompt_sets_create(t->table, s->in->prompts->max_tokens, &o->setting, &t->kept, err);
}

static ckvc_status scorer_init(scorer *s, ckvc_err *err) {
    const model_shape *shape = model_get_shape(s->in->model);
    const score_options *o = s->o;
    const session_limits limits = {.max_prompt = s->in->prompts->max_tokens,
                                   .max_continuation = s->in->prompts->max_continuation,
                                   .max_window = o->setting.window,
                                   .max_lanes = o->attention_error ? 2 : 1};
    const size_t T = s->in->prompts->max_tokens, C = s->in->prompts->max_continuation,
                 n_cells = o->n_policies * o->setting.budgets.n;
    s->L = (uint32_t)shape->n_layers;
    s->G = (uint32_t)shape->n_kv_heads;
    CKVC_TRY(session_create(s->in->model, limits, &s->session, err));
    score_measures_init(&s->measures, shape, limits, o->attention_error, o->utilities);
#define TAKE(array, n) (array) = ckvc_calloc((n), sizeof *(array));
    ARRAYS(TAKE)
    for (uint32_t g = 0; g < s->G; g++) { s->ones[g] = 1.0; }
    for (uint32_t l = 0; l < s->L; l++) {
        s->layers[l].positions = s->positions + l * T;
        s->sets[l] = (kept_set){1, s->layers[l].offsets, s->layers[l].positions};
    }
    for (size_t i = 0; i < o->n_policies; i++) {
        for (uint32_t b = 0; b < o->setting.budgets.n; b++) {
            s->summary[i * o->setting.budgets.n + b] =
                (score_summary){.policy = o->policies[i], .budget = o->setting.budgets.v[b]};
        }
    }
    for (size_t i = 0; i < o->n_policies; i++) { CKVC_TRY(open_table(s, i, err)); }
    return CKVC_OK;
}

/* ---- what is kept ---- */

/* Prefills a prompt and points every table at it. */
static ckvc_status enter_prompt(scorer *s, const prompt *p, ckvc_err *err) {
    s->p = p;
    const prefill_input in = {.tokens = p->tokens,
                              .n = p->n_tokens,
                              .n_total = (int64_t)p->n_tokens + p->n_continuation,
                              .window = s->o->setting.window,
                              .alpha_kind = s->o->setting.alpha};
    CKVC_TRY(session_prefill(s->session, &in, &s->stats, err));
    for (size_t i = 0; i < s->n_tables; i++) { prompt_sets_build(s->tables[i].kept, &s->stats); }
    return CKVC_OK;
}

/* Identity's utility of a layer -> s->u. */
static void unit_utility(scorer *s, uint32_t layer) {
    ckvc_utility(s->p->n_tokens, s->G, s->stats.alpha_f32,
                 s->stats.rho + (size_t)layer * s->G * s->p->n_tokens, s->ones, s->u);
}

/* The decision of table `table` in a layer, under budget number b -> at. */
static void keep_by_table(scorer *s, size_t table, uint32_t b, uint32_t layer, layer_set *at) {
    prompt_sets *k = s->tables[table].kept;
    const ckvc_table *t = k->table;
    const uint32_t block =
        ckvc_nearest_budget(t->budgets, t->n_budgets, budget_of(s, b, layer), s->p->n_tokens);
    at->n_kept = prompt_sets_layer_at_budget(k, block, layer, tokens_of(s, b, layer), at->positions,
                                             &at->n_candidates);
}

/* Of s->u the positions from tau up, at most n. */
static void keep_by_utility(scorer *s, double tau, uint32_t n, uint32_t keep_window,
                            layer_set *at) {
    at->n_kept = ckvc_retain(s->p->n_tokens, s->u, (ckvc_rule){tau, n, keep_window}, at->positions,
                             &at->n_candidates, s->scratch);
}

static void decide(scorer *s, size_t i, uint32_t b) {
    const score_kind kind = s->o->policies[i].kind;
    const size_t table = s->of_policy[i];
    const bool ranked = score_is_reference(kind);
    s->bins = kind == SCORE_TABLE || score_is_control(kind) ? s->tables[table].kept : NULL;
    if (ranked && kind != SCORE_TOP_K) {
        score_ranking(kind, s->p->n_tokens, s->o->setting.window, s->stats.alpha_f32,
                      s->o->setting.seed, s->p->entry->id, s->u);
    }
    for (uint32_t l = 0; l < s->L; l++) {
        layer_set *at = &s->layers[l];
        if (ranked) {
            /* the others keep recent tokens as they do */
            const bool scored = kind == SCORE_WINDOW || kind == SCORE_TOP_K;
            uint32_t n = tokens_of(s, b, l);
            if (table != NO_TABLE) {
                keep_by_table(s, table, b, l, at);
                n = at->n_kept;
            }
            if (kind == SCORE_TOP_K) { unit_utility(s, l); }
            keep_by_utility(s, -INFINITY, n, scored ? s->o->setting.keep_window : 0, at);
        } else if (kind == SCORE_MATCHED) {
            unit_utility(s, l);
            keep_by_utility(s, s->summary[i * s->o->setting.budgets.n + b].tau, tokens_of(s, b, l),
                            s->o->setting.keep_window, at);
        } else {
            keep_by_table(s, table, b, l, at);
        }
        at->offsets[1] = at->n_kept;
        at->n_kept_window =
            kept_in_window(at->positions, at->n_kept, s->p->n_tokens, s->o->setting.window);
    }
}

/* ---- matched: one pass without continuations over the held-out prompts, which are those that
 * count; over all when none is ---- */

/* n_above[j]: the layer's tokens with u >= tau_j, or in the window that is kept. Counted by their
 * last step, then summed from above. */
static void count_steps(scorer *s, uint32_t layer, uint32_t n_above[MATCH_STEPS]) {
    memset(n_above, 0, MATCH_STEPS * sizeof *n_above);
    unit_utility(s, layer);
    for (uint32_t t = 0; t < s->p->n_tokens; t++) {
        const double step = floor(s->u[t] * 200.0);
        int j = step >= MATCH_STEPS - 1 ? MATCH_STEPS - 1 : (int)step;
        while (j + 1 < MATCH_STEPS && s->u[t] >= match_tau(j + 1)) { j++; }
        while (j > 0 && s->u[t] < match_tau(j)) { j--; }
        n_above[t + s->o->setting.keep_window >= s->p->n_tokens ? MATCH_STEPS - 1 : j]++;
    }
    for (int j = MATCH_STEPS - 2; j >= 0; j--) { n_above[j] += n_above[j + 1]; }
}

/* What one layer keeps, under every threshold and under the tables, into the sums. */
static void add_layer(scorer *s, uint32_t layer) {
    uint32_t n_above[MATCH_STEPS];
    count_steps(s, layer, n_above);
    for (size_t i = 0; i < s->o->n_policies; i++) {
        for (uint32_t b = 0; s->o->policies[i].kind == SCORE_MATCHED && b < s->o->setting.budgets.n;
             b++) {
            const size_t cell = i * s->o->setting.budgets.n + b;
            const uint32_t budget = tokens_of(s, b, layer);
            double *kept = s->kept_by_step + cell * MATCH_STEPS;
            for (int j = 0; j < MATCH_STEPS; j++) {
                kept[j] += n_above[j] < budget ? n_above[j] : budget;
            }
            keep_by_table(s, s->of_policy[i], b, layer, &s->layers[layer]);
            s->kept_by_table[cell] += s->layers[layer].n_kept;
        }
    }
}

static ckvc_status go_on(const scorer *s, size_t n_done, ckvc_err *err) {
    if (!ckvc_stop_requested()) { return CKVC_OK; }
    return ckvc_fail(err, CKVC_E_STOPPED, "stopped after %zu of %zu prompts; %s", n_done,
                     s->in->prompts->n,
                     s->o->keep ? "the same command with --resume goes on" : "nothing was written");
}

static ckvc_status find_matched(scorer *s, ckvc_err *err) {
    const prompt_list *prompts = s->in->prompts;
    const size_t n_cells = s->o->n_policies * s->o->setting.budgets.n;
    bool any = false;
    for (size_t i = 0; i < s->o->n_policies; i++) {
        any |= s->o->policies[i].kind == SCORE_MATCHED;
    }
    const size_t n_counting = prompts->n_heldout ? prompts->n_heldout : prompts->n;
    size_t n_counted = 0;
    ckvc_progress_start("thresholds that match", "prompts", n_counting, 0, s->o->quiet);
    for (size_t n = 0; any && n < prompts->n; n++) {
        if (prompts->n_heldout && !prompts->items[n].heldout) { continue; }
        CKVC_TRY(go_on(s, s->o->n_done, err));
        CKVC_TRY(enter_prompt(s, &prompts->items[n], err));
        for (uint32_t l = 0; l < s->L; l++) { add_layer(s, l); }
        n_counted++;
        ckvc_progress_update(n_counted, n_counted);
    }
    for (size_t c = 0; c < n_cells; c++) {
        /* Of thresholds that keep equally many (the clamp decides, or none does) the one nearest to
         * the start table's. */
        int best = (int)(ckvc_gate_action(CKVC_GATE_START) * 200);
        const double *kept = s->kept_by_step + c * MATCH_STEPS, wanted = s->kept_by_table[c];
        for (int j = 0; j < MATCH_STEPS; j++) {
            if (fabs(kept[j] - wanted) < fabs(kept[best] - wanted)) { best = j; }
        }
        s->summary[c].tau = match_tau(best);
    }
    return CKVC_OK;
}

/* ---- output ---- */

/* One number of every layer. */
#define BY_LAYER(s, member) layer_numbers(s, offsetof(layer_set, member))
static json_t *layer_numbers(const scorer *s, size_t offset) {
    json_t *list = json_array();
    for (uint32_t l = 0; l < s->L; l++) {
        const char *at = (const char *)&s->layers[l] + offset;
        json_array_append_new(list, json_integer(*(const uint32_t *)(const void *)at));
    }
    return list;
}

static void append_line(scorer *s, size_t i, uint32_t b, double loss, ckvc_buffer *lines) {
    const prompt *p = s->p;
    const score_policy *policy = &s->o->policies[i];
    score_summary *sum = &s->summary[i * s->o->setting.budgets.n + b];
    const double reward = reward_of(s->loss_full, loss, CKVC_LOSS_MEAN, p->n_continuation, 0.0);
    char hash[17]; /* as a number a reader of JSON in doubles would round it */
    snprintf(hash, sizeof hash, "%016" PRIx64, p->token_hash);
    json_auto_t *o = json_pack(
        "{s:s, s:s?, s:s?, s:s, s:s, s:s, s:s, s:s?, s:o, s:i, s:i, s:f, s:o, s:o, s:o, s:o, s:o, "
        "s:o, s:o, s:o, s:o, s:o}",
        "id", p->entry->id, "source", p->entry->source, "split",
        p->heldout ? "heldout" : p->entry->split, "model", model_fingerprint(s->in->model),
        "manifest", s->in->manifest->sha256, "token_hash", hash, "policy",
        score_kind_name(policy->kind), "table", policy->table ? policy->table->content_id : NULL,
        "tau", policy->kind == SCORE_MATCHED ? json_real(sum->tau) : json_null(), "T",
        (int)p->n_tokens, "C", (int)p->n_continuation, "budget", s->o->setting.budgets.v[b],
        "r_struct", ckvc_json_real(s->stats.r_struct), "r_sem", ckvc_json_real(s->stats.r_sem),
        "bin_entropy", s->bins ? json_integer(s->bins->bin_entropy) : json_null(), "bin_perplexity",
        s->bins ? json_integer(s->bins->bin_ppl) : json_null(), "n_candidates",
        BY_LAYER(s, n_candidates), "n_kept", BY_LAYER(s, n_kept), "n_kept_window",
        BY_LAYER(s, n_kept_window), "loss_full", ckvc_json_real(s->loss_full), "loss_comp",
        ckvc_json_real(loss), "reward", ckvc_json_real(reward));
    setting made = s->o->setting; /* members that only say something where they are not neutral */
    made.op =
        policy->kind == SCORE_TABLE ? s->tables[s->of_policy[i]].table->op : CKVC_OPERATOR_PAPER;
    setting_write(o, SETTING_LINE, &made, 0);
    if (s->o->sets) { json_object_set_new(o, "sets", json_array()); }
    double kept = 0;
    for (uint32_t l = 0; l < s->L; l++) {
        const layer_set *at = &s->layers[l];
        kept += at->n_kept;
        if (s->o->sets) {
            json_array_append_new(json_object_get(o, "sets"),
                                  ckvc_json_u32s(at->positions, at->n_kept));
        }
    }
    score_measures_attention(&s->measures, o);
    if (i == 0 && b == 0) { /* of the prompt, so once: on its first line */
        score_measures_utilities(&s->measures, &s->stats, o);
    }
    ckvc_json_append(lines, o);
    ckvc_buffer_u8(lines, '\n');
    sum->n++;
    sum->reward_mean += reward;
    sum->kept_mean += kept / s->L;
}

static ckvc_status score_prompt(scorer *s, const prompt *p, ckvc_buffer *lines, ckvc_err *err) {
    const int32_t *continuation = p->tokens + p->n_tokens;
    const int64_t C = p->n_continuation;
    CKVC_TRY(enter_prompt(s, p, err));
    s->loss_full = NAN;
    if (C > 0) {
        CKVC_TRY(session_continue(s->session, continuation, C, NULL, s->nll, err));
        s->loss_full = nll_mean(s->nll, C);
    }
    for (size_t i = 0; i < s->o->n_policies; i++) {
        for (uint32_t b = 0; b < s->o->setting.budgets.n; b++) {
            double loss = NAN;
            decide(s, i, b);
            if (C > 0) {
                CKVC_TRY(score_measures_continue(&s->measures, s->session, continuation, C, s->sets,
                                                 s->nll, err));
                loss = nll_mean(s->nll, C);
                ckvc_progress_step(1);
            }
            append_line(s, i, b, loss, lines);
        }
    }
    return CKVC_OK;
}

/* Lines of before count in the summary as when they were written. */
static ckvc_status count_done(scorer *s, const ckvc_buffer *lines, ckvc_err *err) {
    const size_t per_prompt = s->o->n_policies * s->o->setting.budgets.n;
    const char *line = (const char *)lines->data;
    for (size_t k = 0; k < s->o->n_done * per_prompt; k++) {
        const size_t n = strcspn(line, "\n");
        json_auto_t *o = NULL;
        CKVC_TRY(ckvc_json_parse(line, n, "a score line of before", &o, err));
        const json_t *reward = json_object_get(o, "reward"), *kept = json_object_get(o, "n_kept");
        score_summary *sum = &s->summary[k % per_prompt];
        double all = 0;
        for (size_t l = 0; l < json_array_size(kept); l++) {
            all += json_number_value(json_array_get(kept, l));
        }
        sum->n++;
        sum->reward_mean += json_is_number(reward) ? json_number_value(reward) : NAN;
        sum->kept_mean += all / s->L;
        line += n + 1;
    }
    return CKVC_OK;
}

static ckvc_status score_all(scorer *s, vectors_file *vectors, ckvc_buffer *lines, ckvc_err *err) {
    const prompt_list *prompts = s->in->prompts;
    const size_t per_prompt = 1 + s->o->n_policies * s->o->setting.budgets.n, n_done = s->o->n_done;
    CKVC_TRY(find_matched(s, err));
    CKVC_TRY(count_done(s, lines, err));
    if (s->o->vectors) { CKVC_TRY(vectors_create(vectors, s->o->vectors, s->o->force, err)); }
    ckvc_progress_start("score", "rollouts", prompts->n, n_done, s->o->quiet);
    for (size_t n = s->o->vectors ? 0 : n_done; n < prompts->n; n++) {
        const prompt *p = &prompts->items[n];
        CKVC_TRY(go_on(s, n < n_done ? n_done : n, err));
        if (n < n_done) {
            CKVC_TRY(enter_prompt(s, p, err)); /* for its vectors */
        } else {
            const size_t start = lines->size;
            CKVC_TRY(score_prompt(s, p, lines, err));
            if (s->o->keep) {
                CKVC_TRY(s->o->keep(s->o->keep_ctx, lines->data + start, lines->size - start, err));
            }
            ckvc_progress_update(n + 1, (n + 1 - n_done) * per_prompt);
        }
        if (s->o->vectors) {
            const prompt_vectors v = {.number = (uint32_t)(p->entry - s->in->manifest->entries),
                                      .id = p->entry->id,
                                      .T = p->n_tokens,
                                      .L = s->L,
                                      .G = s->G,
                                      .alpha = s->stats.alpha_f32,
                                      .rho = s->stats.rho};
            CKVC_TRY(vectors_add(vectors, &v, err));
        }
    }
    ckvc_progress_finish();
    return s->o->vectors ? vectors_commit(vectors, err) : CKVC_OK;
}

ckvc_status score_prompts(const calibrate_inputs *in, const score_options *o, ckvc_buffer *lines,
                          score_summary *summary, ckvc_err *err) {
    CKVC_AUTO(scorer_fini) scorer s = {.in = in, .o = o, .summary = summary};
    CKVC_AUTO(vectors_abort) vectors_file vectors = {.file = -1};
    CKVC_TRY(scorer_init(&s, err));
    CKVC_TRY(score_all(&s, &vectors, lines, err));
    for (size_t c = 0; c < o->n_policies * o->setting.budgets.n; c++) {
        if (summary[c].n) {
            summary[c].reward_mean /= (double)summary[c].n;
            summary[c].kept_mean /= (double)summary[c].n;
        }
    }
    return CKVC_OK;
}
