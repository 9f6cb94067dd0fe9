/* Scores of policies: see score.h. */
#include "judge/score/score.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "formats/side/reward.h"
#include "formats/shard/shard_h5.h"
#include "lib/base/json.h"
#include "lib/base/progress.h"
#include "lib/base/text_lines.h"
#include "lib/stats/rank.h"
#include "formats/lines/scores.h"
#include "budgets/budgets.h"

/* What is measured besides losses: the attention that a kept set leaves out (--attention-error),
 * and the spread of the utility scores (--utilities). */
typedef struct score_measures {
    bool attention, utilities;
    rollout_lane lanes[2];                 /* of the current rollout */
    int64_t n_layers, n_heads, n_kv_heads; /* L, H, G */
    layer_error *layers;                   /* [L], of the last measured rollout */
    int64_t n_rows;                        /* its C - 1 rows; 0: there are none */
    double *u;                             /* [max T] */
} score_measures;

static void measures_init(score_measures *m, const model_shape *shape, uint32_t max_tokens,
                          bool attention, bool utilities) {
    *m = (score_measures){.attention = attention,
                          .utilities = utilities,
                          .n_layers = shape->n_layers,
                          .n_heads = shape->n_heads,
                          .n_kv_heads = shape->n_kv_heads};
    if (attention) { m->layers = ckvc_calloc((size_t)shape->n_layers, sizeof *m->layers); }
    if (utilities) { m->u = ckvc_calloc(max_tokens, sizeof *m->u); }
}

static void measures_fini(score_measures *m) {
    CKVC_FREE(m->layers, m->u);
    *m = (score_measures){0};
}

/* The rollout of what a policy keeps. It is measured where attention errors are asked for, where
 * the continuation has two tokens, and where the cache is the prompt's own: then a rollout of the
 * full cache goes first, beside it. */
static rollout_job measured_rollout(score_measures *m, const worker *w, const policy_kept *kept) {
    const int64_t n = w->losses.n_continuation;
    const bool measured = m->attention && n >= 2;
    m->n_rows = measured ? n - 1 : 0;
    m->lanes[0] = (rollout_lane){.parent = -1};
    m->lanes[measured] = (rollout_lane){.parent = -1, .sets = kept->sets};
    rollout_job job = rollouts_job(&w->scratch, &w->losses, m->lanes, measured ? 2 : 1);
    job.errors = measured ? m->layers : NULL;
    return job;
}

/* Adds one number of every layer, times `scale`, to the line. */
static void add_layers(const score_measures *m, json_t *line, const char *key, size_t offset,
                       double scale) {
    json_t *list = m->n_rows ? json_array() : json_null();
    for (int64_t l = 0; m->n_rows && l < m->n_layers; l++) {
        const char *at = (const char *)&m->layers[l] + offset;
        json_array_append_new(list, ckvc_json_real(scale * *(const double *)(const void *)at));
    }
    json_object_set_new(line, key, list);
}

/* Adds what the last rollout measured: "attention_epsilon", "attention_bound", "attention_error"
 * and "attention_drift" [L]; null where the continuation has no rows to measure. */
static void add_attention(const score_measures *m, json_t *line) {
    if (!m->attention) { return; }
    add_layers(m, line, "attention_epsilon", offsetof(layer_error, epsilon), 1);
    add_layers(m, line, "attention_bound", offsetof(layer_error, epsilon),
               2 * sqrt((double)m->n_rows));
    add_layers(m, line, "attention_error", offsetof(layer_error, restricted), 1);
    add_layers(m, line, "attention_drift", offsetof(layer_error, actual), 1);
}

static json_t *quantiles_of(const double *x, size_t n) {
    static const double shares[SCORE_QUANTILE_COUNT] = {0.05, 0.25, 0.5, 0.75, 0.95, 0.99, 1};
    double q[SCORE_QUANTILE_COUNT];
    rank_quantile(x, n, shares, SCORE_QUANTILE_COUNT, q);
    return ckvc_json_reals(q, SCORE_QUANTILE_COUNT);
}

/* Adds "alpha_quantiles" and "utility_quantiles" [L][G] of a prompt (formats/lines/scores.md),
 * where the utility is alpha[t] rho[l][g][t]. */
static void add_utilities(score_measures *m, const prefill_stats *stats, json_t *line) {
    if (!m->utilities) { return; }
    const size_t T = (size_t)stats->n_tokens;
    json_t *layers = json_array();
    json_object_set_new(line, "alpha_quantiles", quantiles_of(stats->alpha, T));
    json_object_set_new(line, "utility_quantiles", layers);
    for (int64_t l = 0; l < m->n_layers; l++) {
        json_t *heads = json_array();
        json_array_append_new(layers, heads);
        for (int64_t g = 0; g < m->n_kv_heads; g++) {
            const float *rho = stats->rho + (size_t)(l * m->n_kv_heads + g) * T;
            for (size_t t = 0; t < T; t++) { m->u[t] = stats->alpha[t] * (double)rho[t]; }
            json_array_append_new(heads, quantiles_of(m->u, T));
        }
    }
}

/* One of the prompts that go through the layers together. */
typedef struct lane {
    const prompt *p;
    worker *w;
    policy_sets *policies;
    score_measures measures;
    ckvc_buffer lines;
} lane;

typedef struct scorer {
    const calibrate_inputs *in;
    const score_options *o;
    score_summary *summary;
    uint32_t L, G;
    policy_workers workers;
    lane *lanes;     /* [n_lanes] */
    int64_t n_lanes; /* the most prompts that go together */
    size_t n_ours;   /* prompts that this run scores: all, or a part */
} scorer;

static void scorer_fini(scorer *s) {
    for (int64_t i = 0; i < s->n_lanes; i++) {
        measures_fini(&s->lanes[i].measures);
        ckvc_buffer_fini(&s->lanes[i].lines);
    }
    policy_workers_close(&s->workers);
    free(s->lanes);
}

static ckvc_status scorer_init(scorer *s, ckvc_err *err) {
    const model_shape *shape = model_get_shape(s->in->model);
    const score_options *o = s->o;
    const uint32_t n_budgets = o->choice.setting.budgets.n;
    const int64_t lanes = o->attention_error ? 2 : 1;
    s->L = (uint32_t)shape->n_layers;
    s->G = (uint32_t)shape->n_kv_heads;
    const worker_options asked = {.memory = o->memory,
                                  .divergence = true,
                                  .most_lanes = lanes,
                                  .n_rollouts = 1 + lanes * (int64_t)(o->choice.n * n_budgets),
                                  .most_prompts = SESSIONS_TOGETHER};
    CKVC_TRY(policy_workers_open(&s->workers, s->in, &o->choice, asked, err));
    s->n_lanes = s->workers.all.n;
    s->lanes = ckvc_calloc((size_t)s->n_lanes, sizeof *s->lanes);
    for (int64_t i = 0; i < s->n_lanes; i++) {
        lane *x = &s->lanes[i];
        x->w = &s->workers.all.items[i];
        x->policies = s->workers.sets[i];
        measures_init(&x->measures, shape, s->in->prompts->max_tokens, o->attention_error,
                      o->utilities);
    }
    for (size_t i = 0; i < o->choice.n; i++) {
        for (uint32_t b = 0; b < n_budgets; b++) {
            s->summary[i * n_budgets + b].policy = o->choice.list[i];
            s->summary[i * n_budgets + b].budget = o->choice.setting.budgets.v[b];
        }
    }
    return CKVC_OK;
}

/* Prefills prompts [n], one in each lane. */
static ckvc_status enter_prompts(scorer *s, const prompt *const *p, int64_t n, ckvc_err *err) {
    for (int64_t i = 0; i < n; i++) { s->lanes[i].p = p[i]; }
    return policy_workers_prefill(&s->workers, p, n, err);
}

static ckvc_status check_stop(const scorer *s, size_t n_done, ckvc_err *err) {
    if (!ckvc_stop_requested()) { return CKVC_OK; }
    return ckvc_fail(err, CKVC_E_STOPPED, "stopped after %zu of %zu prompts; %s", n_done, s->n_ours,
                     s->o->keep ? "the same command with --resume goes on" : "nothing was written");
}

/* Finds the thresholds of `matched`, in one pass without continuations over the prompts that count:
 * the held-out ones, or all where none is held out. */
static ckvc_status find_matched(scorer *s, ckvc_err *err) {
    const prompt_list *prompts = s->in->prompts;
    const policy_choice *choice = &s->o->choice;
    bool any = false;
    for (size_t i = 0; i < choice->n; i++) { any |= choice->list[i].kind == POLICY_MATCHED; }
    if (!any) { return CKVC_OK; }
    const size_t n_counting = prompts->n_heldout ? prompts->n_heldout : prompts->n;
    const prompt *p[SESSIONS_TOGETHER];
    policy_sets *sum = s->lanes->policies;
    size_t n_counted = 0;
    ckvc_progress_start("thresholds that match", "prompts", "prompts", n_counting, 0);
    for (size_t at = 0; n_counted < n_counting;) {
        int64_t n = 0;
        for (; at < prompts->n && n < s->n_lanes; at++) {
            if (!prompts->n_heldout || prompts->items[at].heldout) { p[n++] = &prompts->items[at]; }
        }
        CKVC_TRY(check_stop(s, s->o->n_done, err));
        CKVC_TRY(enter_prompts(s, p, n, err));
        for (int64_t i = 0; i < n; i++) {
            CKVC_TRY(policy_sets_count(s->lanes[i].policies, sum, err));
        }
        n_counted += (size_t)n;
        ckvc_progress_update(n_counted, n_counted);
    }
    for (int64_t i = 0; i < s->n_lanes; i++) { policy_sets_match(s->lanes[i].policies, sum); }
    for (size_t i = 0; i < choice->n; i++) {
        for (uint32_t b = 0; b < choice->setting.budgets.n; b++) {
            s->summary[i * choice->setting.budgets.n + b].tau = policy_sets_tau(sum, i, b);
        }
    }
    return CKVC_OK;
}

/* ---- output ---- */

static uint32_t set_size(const kept_set *of, uint32_t i) {
    return of->offsets[i + 1] - of->offsets[i];
}

static json_t *size_json(const scorer *s, const lane *x, const kept_set *of, uint32_t i) {
    (void)s, (void)x;
    return json_integer(set_size(of, i));
}
static json_t *window_json(const scorer *s, const lane *x, const kept_set *of, uint32_t i) {
    return json_integer(kept_in_window(of->positions + of->offsets[i], set_size(of, i),
                                       x->p->n_tokens, s->o->choice.setting.window));
}
static json_t *positions_json(const scorer *s, const lane *x, const kept_set *of, uint32_t i) {
    (void)s, (void)x;
    return ckvc_json_u32s(of->positions + of->offsets[i], set_size(of, i));
}

/* Something about every set: [L], or [L][G] where heads have sets of their own. */
static json_t *by_set(const scorer *s, const lane *x, const policy_kept *kept,
                      json_t *(*of)(const scorer *, const lane *, const kept_set *, uint32_t)) {
    json_t *layers = json_array();
    for (uint32_t l = 0; l < s->L; l++) {
        json_t *heads = kept->n_sets > 1 ? json_array() : layers;
        for (uint32_t i = 0; i < kept->n_sets; i++) {
            json_array_append_new(heads, of(s, x, &kept->sets[l], i));
        }
        if (heads != layers) { json_array_append_new(layers, heads); }
    }
    return layers;
}

/* The weight of the demand from which a table's shares under this budget were made. */
static double mix_of(const asked_policy *policy, double budget, const prompt *p) {
    if (policy->kind != POLICY_TABLE || !policy->table) { return 0; }
    const ckvc_table *t = policy->table->table;
    return budgets_mix(policy->table,
                       ckvc_nearest_budget(t->budgets, t->n_budgets, budget, p->n_tokens));
}

/* The mean losses and divergences of a continuation. */
typedef struct line_losses {
    double loss, kl;
} line_losses;

static void append_line(scorer *s, lane *x, size_t i, uint32_t b, const policy_kept *kept,
                        line_losses of) {
    const prompt *p = x->p;
    const prefill_stats *stats = &x->w->stats;
    const double full = x->w->losses.full;
    const policy_choice *choice = &s->o->choice;
    const asked_policy *policy = &choice->list[i];
    score_summary *sum = &s->summary[i * choice->setting.budgets.n + b];
    const double reward =
        reward_of(full, of.loss, CKVC_LOSS_MEAN, p->n_continuation - p->n_later, 0.0);
    char hash[17]; /* as text: a reader of JSON that has only doubles would round it */
    snprintf(hash, sizeof hash, "%016" PRIx64, p->token_hash);
    json_auto_t *o = json_pack(
        "{s:s, s:s?, s:s*, s:s?, s:s, s:s, s:s, s:s, s:s?, s:o, s:i, s:i, s:f, s:o, s:o, s:o, s:o, "
        "s:o, "
        "s:o, s:o, s:I, s:i, s:o, s:o, s:o, s:o}",
        "id", p->entry->id, "source", p->entry->source, "document", p->entry->document, "split",
        p->select    ? "select"
        : p->heldout ? "heldout"
                     : p->entry->split,
        "model", model_fingerprint(s->in->model), "manifest", s->in->manifest->sha256, "token_hash",
        hash, "policy", asked_policy_name(policy), "table", asked_policy_table(policy), "tau",
        policy->kind == POLICY_MATCHED ? json_real(sum->tau) : json_null(), "T", (int)p->n_tokens,
        "C", (int)(p->n_continuation - p->n_later), "budget", choice->setting.budgets.v[b],
        "r_struct", ckvc_json_real(stats->r_struct), "r_sem", ckvc_json_real(stats->r_sem),
        "bin_entropy", kept->risk ? json_integer(kept->bin_entropy) : json_null(), "bin_perplexity",
        kept->risk ? json_integer(kept->bin_ppl) : json_null(), "n_candidates",
        kept->n_sets > 1 ? json_null() : ckvc_json_u32s(kept->n_candidates, s->L), "n_kept",
        by_set(s, x, kept, size_json), "n_kept_window", by_set(s, x, kept, window_json), "entries",
        (json_int_t)kept->entries, "head_dim", (int)model_get_shape(s->in->model)->head_dim,
        "loss_full", ckvc_json_real(full), "loss_comp", ckvc_json_real(of.loss), "reward",
        ckvc_json_real(reward), "kl", ckvc_json_real(of.kl));
    setting made = choice->setting; /* it has only members that are not neutral */
    made.op = policy->kind == POLICY_TABLE && kept->risk ? kept->risk->op : CKVC_OPERATOR_PAPER;
    made.mode = kept->mode;
    made.score = kept->score;
    made.floor = kept->floor;
    made.ridge = kept->ridge;
    made.cache_keys = kept->sets->formats.keys;
    made.cache_values = kept->sets->formats.values;
    made.mix = mix_of(policy, made.budgets.v[b], p);
    if (!p->n_later) { made.compress_after = SETTING_TURN_LAST; }
    setting_write(o, SETTING_LINE, &made, 0);
    if (kept->repeat_tokens) {
        json_object_set_new(o, "repeat_tokens", json_integer(kept->repeat_tokens));
    }
    if (p->n_later) { json_object_set_new(o, "later_tokens", json_integer(p->n_later)); }
    if (kept->whole) { json_object_set_new(o, "whole", json_true()); }
    if (s->o->sets) { json_object_set_new(o, "sets", by_set(s, x, kept, positions_json)); }
    add_attention(&x->measures, o);
    /* belongs to the prompt, so it stands on the prompt's first line only */
    if (i == 0 && b == 0) { add_utilities(&x->measures, stats, o); }
    ckvc_json_append(&x->lines, o);
    ckvc_buffer_u8(&x->lines, '\n');
    sum->n++;
    sum->reward_mean += reward;
    sum->kl_mean += of.kl;
    sum->kept_mean += (double)kept->entries / s->L / s->G;
}

/* Returns whether policy i was just rolled out, under the budget before, as it is under budget
 * number b: the whole cache is the same at every budget where its formats are. Its losses are then
 * still in each worker's scratch. */
static bool is_rolled_out(const policy_choice *choice, size_t i, uint32_t b) {
    const asked_policy *policy = &choice->list[i];
    if (b == 0 || policy->kind != POLICY_FULL || policy->skip) { return false; }
    const cache_formats before = policy_formats(choice, i, b - 1),
                        now = policy_formats(choice, i, b);
    return before.keys == now.keys && before.values == now.values;
}

/* Scores lanes 0 ... n - 1 under policy i and budget number b. */
static ckvc_status score_policy_of(scorer *s, int64_t n, size_t i, uint32_t b, ckvc_err *err) {
    rollout_job jobs[SESSIONS_TOGETHER];
    const policy_kept *kept[SESSIONS_TOGETHER];
    int64_t n_jobs = 0;
    for (int64_t k = 0; k < n; k++) {
        lane *x = &s->lanes[k];
        CKVC_TRY(policy_sets_decide(x->policies, i, b, &kept[k], err));
        jobs[n_jobs] = measured_rollout(&x->measures, x->w, kept[k]);
        n_jobs += x->p->n_continuation > 0;
    }
    if (n_jobs > 0 && !is_rolled_out(&s->o->choice, i, b)) {
        CKVC_TRY(sessions_rollouts(jobs, n_jobs, err));
    }
    for (int64_t k = 0; k < n; k++) {
        lane *x = &s->lanes[k];
        const uint32_t later = x->p->n_later, C = x->p->n_continuation - later;
        const size_t at = x->measures.n_rows ? C : later;
        const double *nll = x->w->scratch.nll + at, *kl = x->w->scratch.kl + at;
        if (s->o->finite && C) {
            CKVC_TRY(nll_check(&x->w->losses.full, 1, x->p->entry->id, x->p->n_tokens, err));
            CKVC_TRY(nll_check(nll, C, x->p->entry->id, x->p->n_tokens, err));
        }
        append_line(s, x, i, b, kept[k], (line_losses){nll_mean(nll, C), nll_mean(kl, C)});
    }
    ckvc_progress_step((uint64_t)n_jobs);
    return CKVC_OK;
}

/* Scores prompts [n] together; the lines of each are in its lane. */
static ckvc_status score_group(scorer *s, const prompt *const *p, int64_t n, ckvc_err *err) {
    CKVC_TRY(enter_prompts(s, p, n, err));
    CKVC_TRY(workers_full(s->workers.w, n, err));
    for (size_t i = 0; i < s->o->choice.n; i++) {
        for (uint32_t b = 0; b < s->o->choice.setting.budgets.n; b++) {
            if (b < 64 && s->o->choice.list[i].skip >> b & 1) { continue; }
            CKVC_TRY(score_policy_of(s, n, i, b, err));
        }
    }
    return CKVC_OK;
}

ckvc_status score_count_done(const calibrate_inputs *in, const score_options *o, const char *lines,
                             size_t n, score_summary *summary, ckvc_err *err) {
    const size_t per_prompt = o->choice.n * o->choice.setting.budgets.n;
    const model_shape *shape = model_get_shape(in->model);
    const double n_heads = (double)shape->n_layers * shape->n_kv_heads;
    for (ckvc_lines at = ckvc_lines_of(lines, n); ckvc_next_line(&at);) {
        json_auto_t *line = NULL;
        CKVC_TRY(ckvc_json_parse(at.text, at.n, "a score line of before", &line, err));
        const json_t *reward = json_object_get(line, "reward"), *kl = json_object_get(line, "kl");
        score_summary *sum = &summary[(at.number - 1) % per_prompt];
        sum->n++;
        sum->reward_mean += json_is_number(reward) ? json_number_value(reward) : NAN;
        sum->kl_mean += json_is_number(kl) ? json_number_value(kl) : NAN;
        sum->kept_mean += json_number_value(json_object_get(line, "entries")) / n_heads;
    }
    return CKVC_OK;
}

static const prompt *nth_prompt(const scorer *s, size_t n) {
    const size_t step = s->o->part.count ? s->o->part.count : 1;
    return &s->in->prompts->items[s->o->part.index + n * step];
}

/* Takes a lane's lines, unless they exist already: o->keep gets them, or they go after those of the
 * prompts before. */
static ckvc_status keep_lines(const scorer *s, lane *x, ckvc_buffer *lines, ckvc_err *err) {
    const size_t n = x->lines.size;
    x->lines.size = 0;
    if (n > 0 && s->o->keep) { return s->o->keep(s->o->keep_ctx, x->lines.data, n, err); }
    ckvc_buffer_append(lines, x->lines.data, n);
    return CKVC_OK;
}

static ckvc_status add_vectors(const scorer *s, const lane *x, vectors_file *vectors,
                               ckvc_err *err) {
    const prompt *p = x->p;
    const prompt_vectors v = {.number = (uint32_t)(p->entry - s->in->manifest->entries),
                              .id = p->entry->id,
                              .T = p->n_tokens,
                              .L = s->L,
                              .G = s->G,
                              .alpha = x->w->stats.alpha_f32,
                              .rho = x->w->stats.rho};
    return vectors_add(vectors, &v, err);
}

static ckvc_status score_all(scorer *s, vectors_file *vectors, ckvc_buffer *lines, ckvc_err *err) {
    const prompt_list *prompts = s->in->prompts;
    const size_t per_prompt = 1 + s->o->choice.n * s->o->choice.setting.budgets.n,
                 n_done = s->o->n_done;
    s->n_ours = run_part_size(s->o->part, prompts->n);
    CKVC_TRY(find_matched(s, err));
    if (s->o->vectors) { CKVC_TRY(vectors_create(vectors, s->o->vectors, s->o->force, err)); }
    const score_progress job = s->o->job.name ? s->o->job : (score_progress){"score", 0, s->n_ours};
    ckvc_progress_start(job.name, "prompts", "rollouts", job.all, job.before + n_done);
    for (size_t n = s->o->vectors ? 0 : n_done, many; n < s->n_ours; n += many) {
        const prompt *p[SESSIONS_TOGETHER];
        const size_t rest = (n < n_done ? n_done : s->n_ours) - n;
        many = rest < (size_t)s->n_lanes ? rest : (size_t)s->n_lanes;
        for (size_t k = 0; k < many; k++) { p[k] = nth_prompt(s, n + k); }
        CKVC_TRY(check_stop(s, n < n_done ? n_done : n, err));
        if (n < n_done) {
            CKVC_TRY(enter_prompts(s, p, (int64_t)many, err)); /* fills their vectors */
        } else {
            CKVC_TRY(score_group(s, p, (int64_t)many, err));
        }
        for (size_t k = 0; k < many; k++) {
            CKVC_TRY(keep_lines(s, &s->lanes[k], lines, err));
            if (s->o->vectors) { CKVC_TRY(add_vectors(s, &s->lanes[k], vectors, err)); }
        }
        if (n >= n_done) {
            ckvc_progress_update(job.before + n + many, (n + many - n_done) * per_prompt);
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
    for (size_t c = 0; c < o->choice.n * o->choice.setting.budgets.n; c++) {
        if (summary[c].n) {
            summary[c].reward_mean /= (double)summary[c].n;
            summary[c].kl_mean /= (double)summary[c].n;
            summary[c].kept_mean /= (double)summary[c].n;
        }
    }
    return CKVC_OK;
}

/* ---- what it will cost ---- */

ckvc_status score_forecast_make(const calibrate_inputs *in, const score_options *o,
                                score_forecast *out, ckvc_err *err) {
    const prompt_list *all = in->prompts;
    const size_t per_prompt = o->choice.n * o->choice.setting.budgets.n;
    CKVC_AUTO_FREE score_summary *summary = ckvc_calloc(per_prompt, sizeof *summary);
    CKVC_AUTO(scorer_fini) scorer s = {.in = in, .o = o, .summary = summary};
    const prompt *longest = all->items;
    bool matches = false;
    double tokens = 0, counted = 0; /* of all prompts; of those from which thresholds are found */
    for (const prompt *p = all->items; p < all->items + all->n; p++) {
        if (p->n_tokens + p->n_continuation > longest->n_tokens + longest->n_continuation) {
            longest = p;
        }
        tokens += p->n_tokens + p->n_continuation;
        counted += !all->n_heldout || p->heldout ? p->n_tokens : 0;
    }
    for (size_t i = 0; i < o->choice.n; i++) {
        matches |= o->choice.list[i].kind == POLICY_MATCHED;
    }
    CKVC_TRY(scorer_init(&s, err));
    policy_sets *sets = s.lanes->policies;
    *out = (score_forecast){.memory = s.workers.all.items->plan,
                            .n_tokens = longest->n_tokens,
                            .n_continuation = longest->n_continuation};
    CKVC_TRY(worker_time_copies(in, &out->memory, &out->copy_s, err));
    const double start_s = ckvc_now_s();
    CKVC_TRY(enter_prompts(&s, &longest, 1, err));
    out->compute_s = worker_compute_s(in, ckvc_now_s() - start_s, out->copy_s, longest->n_tokens);
    if (matches) {
        CKVC_TRY(policy_sets_count(sets, sets, err));
        policy_sets_match(sets, sets);
    }
    out->prefill_s = ckvc_now_s() - start_s;
    CKVC_TRY(score_group(&s, &longest, 1, err));
    out->prompt_s = ckvc_now_s() - start_s - out->prefill_s;
    /* the single prompt has paid for copies that prompts that go together share */
    const double spared_s = out->copy_s * (1 - 1 / (double)out->memory.prompts);
    out->prefill_s = fmax(out->prefill_s - spared_s, 1e-6);
    out->prompt_s = fmax(out->prompt_s - spared_s * (double)out->memory.passes, 1e-6);
    out->hours = (out->prompt_s * tokens / (longest->n_tokens + longest->n_continuation) +
                  (matches ? out->prefill_s * counted / longest->n_tokens : 0)) /
                 3600;
    out->disk_bytes = (double)s.lanes->lines.size * (double)all->n;
    return CKVC_OK;
}

prompt_list heldout_prompts(const prompt_list *all, bool select) {
    prompt_list out = {.items = ckvc_alloc(all->n_heldout, sizeof *out.items)};
    for (size_t i = 0; i < all->n; i++) {
        if (all->items[i].heldout && all->items[i].select == select) {
            out.items[out.n] = all->items[i];
            prompts_add(&out);
        }
    }
    return out;
}

ckvc_status heldout_score(const calibrate_inputs *in, const prompt_list *prompts,
                          const score_options *o, ckvc_buffer *lines, ckvc_err *err) {
    calibrate_inputs only = *in;
    only.prompts = prompts;
    CKVC_AUTO_FREE score_summary *summary =
        ckvc_calloc(o->choice.n * o->choice.setting.budgets.n, sizeof *summary);
    return score_prompts(&only, o, lines, summary, err);
}

static size_t find_prompt(const prompt_list *prompts, const char *id, size_t guess) {
    for (size_t i = 0; i < prompts->n; i++) {
        size_t at = (guess + i) % prompts->n; /* lines come in the order of the prompts */
        if (strcmp(prompts->items[at].entry->id, id) == 0) { return at; }
    }
    return prompts->n;
}

/* Returns whether a later line is of the same prompt, policy and budget. */
static bool is_superseded(const scores *s, size_t i) {
    const score_row *r = &s->rows[i];
    for (size_t k = i + 1; k < s->n && strcmp(s->rows[k].id, r->id) == 0; k++) {
        if (s->rows[k].budget == r->budget && strcmp(s->rows[k].policy, r->policy) == 0) {
            return true;
        }
    }
    return false;
}

ckvc_status heldout_read(const char *path, const prompt_list *prompts, double budget, heldout **out,
                         ckvc_err *err) {
    CKVC_AUTO(scores_free_at) scores *s = NULL;
    CKVC_AUTO(heldout_free_at) heldout *h = ckvc_calloc(1, sizeof *h);
    const size_t n = h->n = prompts->n;
    size_t at = 0;
    *out = NULL;
    CKVC_TRY(scores_read(path, &s, err));
    CKVC_AUTO_FREE uint32_t *counts = ckvc_calloc(POLICY_KIND_COUNT * n, sizeof *counts);
    double lines[POLICY_KIND_COUNT] = {0};
    CKVC_AUTO_FREE const char **documents = ckvc_alloc(n, sizeof *documents);
    for (size_t i = 0; i < n; i++) { documents[i] = prompts->items[i].entry->document; }
    h->cluster = ckvc_alloc(n, sizeof *h->cluster);
    rank_clusters(documents, n, h->cluster);
    for (size_t i = 0; i < s->n; i++) {
        const score_row *r = &s->rows[i];
        const policy_kind k = policy_kind_named(r->policy);
        at = find_prompt(prompts, r->id, at);
        CKVC_FAIL_IF(
            k >= POLICY_KIND_COUNT || at == n, err, CKVC_E_DATA,
            "%s:%u: policy \"%s\" of prompt \"%s\": is not one of this run's held-out prompts",
            path, r->line, r->policy, r->id);
        if (is_superseded(s, i) || (!isnan(budget) && r->budget != budget)) { continue; }
        if (!h->reward[k]) {
            h->reward[k] = ckvc_calloc(n, sizeof *h->reward[k]);
            h->kl[k] = ckvc_calloc(n, sizeof *h->kl[k]);
        }
        h->reward[k][at] += r->reward; /* NaN stays NaN: a prompt counts whole or not at all */
        h->kl[k][at] += r->kl;
        counts[k * n + at]++;
        h->kept[k] += score_row_kept(r);
        lines[k]++;
    }
    for (size_t k = 0; k < POLICY_KIND_COUNT; k++) { /* turns the sums into means */
        h->kept[k] /= lines[k];
        for (size_t i = 0; h->reward[k] && i < n; i++) {
            h->reward[k][i] = counts[k * n + i] ? h->reward[k][i] / counts[k * n + i] : NAN;
            h->kl[k][i] = counts[k * n + i] ? h->kl[k][i] / counts[k * n + i] : NAN;
        }
    }
    CKVC_FAIL_IF(!h->reward[POLICY_TABLE], err, CKVC_E_DATA, "%s: holds no lines of a table", path);
    *out = ckvc_take(&h);
    return CKVC_OK;
}

void heldout_free(heldout *h) {
    for (int k = 0; h && k < POLICY_KIND_COUNT; k++) {
        free(h->reward[k]);
        free(h->kl[k]);
    }
    if (h) { free(h->cluster); }
    free(h);
}

rank_interval heldout_gain(const heldout *h, const double *a, const double *b) {
    CKVC_AUTO_FREE double *d = ckvc_alloc(h->n, sizeof *d);
    CKVC_AUTO_FREE size_t *cluster = ckvc_alloc(h->n, sizeof *cluster);
    size_t k = 0;
    for (size_t i = 0; i < h->n; i++) {
        const double v = b ? a[i] - b[i] : a[i];
        if (!isfinite(v)) { continue; }
        cluster[k] = h->cluster[i];
        d[k++] = v;
    }
    return rank_mean_interval(d, cluster, k);
}
