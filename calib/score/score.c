/* Scores of policies: see score.h. */
#include "calib/score/score.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "calib/score/score_measures.h"
#include "cql/solve/reward.h"
#include "formats/shard/vectors_h5.h"
#include "lib/base/json.h"
#include "lib/base/progress.h"

typedef struct scorer {
    const calibrate_inputs *in;
    const score_options *o;
    score_summary *summary;
    uint32_t L, G;
    session *session;
    policy_sets *policies;
    score_measures measures;
    double *nll; /* [2 max C] */
    /* the prompt in hand */
    const prompt *p;
    prefill_stats stats;
    double loss_full;
    size_t n_ours; /* prompts that are scored: all, or a part */
} scorer;

static void scorer_fini(scorer *s) {
    session_destroy(s->session);
    policy_sets_free(s->policies);
    score_measures_fini(&s->measures);
    free(s->nll);
}

static ckvc_status scorer_init(scorer *s, ckvc_err *err) {
    const model_shape *shape = model_get_shape(s->in->model);
    const score_options *o = s->o;
    const prompt_list *prompts = s->in->prompts;
    const uint32_t n_budgets = o->choice.setting.budgets.n;
    s->L = (uint32_t)shape->n_layers;
    s->G = (uint32_t)shape->n_kv_heads;
    s->nll = ckvc_calloc(2 * ((size_t)prompts->max_continuation + 1), sizeof *s->nll);
    CKVC_TRY(policy_sets_create(&o->choice, shape, prompts, &s->policies, err));
    session_limits limits = {.max_prompt = prompts->max_tokens,
                             .max_continuation = prompts->max_continuation,
                             .max_window = o->choice.setting.window,
                             .max_lanes = o->attention_error ? 2 : 1};
    policy_sets_need(s->policies, &limits);
    CKVC_TRY(session_create(s->in->model, limits, &s->session, err));
    score_measures_init(&s->measures, shape, limits, o->attention_error, o->utilities);
    for (size_t i = 0; i < o->choice.n; i++) {
        for (uint32_t b = 0; b < n_budgets; b++) {
            s->summary[i * n_budgets + b].policy = o->choice.list[i];
            s->summary[i * n_budgets + b].budget = o->choice.setting.budgets.v[b];
        }
    }
    return CKVC_OK;
}

static ckvc_status enter_prompt(scorer *s, const prompt *p, ckvc_err *err) {
    s->p = p;
    return policy_sets_prefill(s->policies, s->session, p, &s->stats, err);
}

static ckvc_status go_on(const scorer *s, size_t n_done, ckvc_err *err) {
    if (!ckvc_stop_requested()) { return CKVC_OK; }
    return ckvc_fail(err, CKVC_E_STOPPED, "stopped after %zu of %zu prompts; %s", n_done, s->n_ours,
                     s->o->keep ? "the same command with --resume goes on" : "nothing was written");
}

/* The thresholds of `matched`: one pass without continuations over the held-out prompts, which are
 * those that count; over all when none is. */
static ckvc_status find_matched(scorer *s, ckvc_err *err) {
    const prompt_list *prompts = s->in->prompts;
    const policy_choice *choice = &s->o->choice;
    bool any = false;
    for (size_t i = 0; i < choice->n; i++) { any |= choice->list[i].kind == SCORE_MATCHED; }
    if (!any) { return CKVC_OK; }
    const size_t n_counting = prompts->n_heldout ? prompts->n_heldout : prompts->n;
    size_t n_counted = 0;
    ckvc_progress_start("thresholds that match", "prompts", n_counting, 0, s->o->quiet);
    for (size_t n = 0; n < prompts->n; n++) {
        if (prompts->n_heldout && !prompts->items[n].heldout) { continue; }
        CKVC_TRY(go_on(s, s->o->n_done, err));
        CKVC_TRY(enter_prompt(s, &prompts->items[n], err));
        CKVC_TRY(policy_sets_count(s->policies, err));
        n_counted++;
        ckvc_progress_update(n_counted, n_counted);
    }
    policy_sets_match(s->policies);
    for (size_t i = 0; i < choice->n; i++) {
        for (uint32_t b = 0; b < choice->setting.budgets.n; b++) {
            s->summary[i * choice->setting.budgets.n + b].tau = policy_sets_tau(s->policies, i, b);
        }
    }
    return CKVC_OK;
}

/* ---- output ---- */

static uint32_t set_size(const kept_set *of, uint32_t i) {
    return of->offsets[i + 1] - of->offsets[i];
}

static json_t *size_json(const scorer *s, const kept_set *of, uint32_t i) {
    (void)s;
    return json_integer(set_size(of, i));
}
static json_t *window_json(const scorer *s, const kept_set *of, uint32_t i) {
    return json_integer(kept_in_window(of->positions + of->offsets[i], set_size(of, i),
                                       s->p->n_tokens, s->o->choice.setting.window));
}
static json_t *positions_json(const scorer *s, const kept_set *of, uint32_t i) {
    (void)s;
    return ckvc_json_u32s(of->positions + of->offsets[i], set_size(of, i));
}

/* Something of every set: [L], or [L][G] where heads have sets of their own. */
static json_t *by_set(const scorer *s, const policy_kept *kept,
                      json_t *(*of)(const scorer *, const kept_set *, uint32_t)) {
    json_t *layers = json_array();
    for (uint32_t l = 0; l < s->L; l++) {
        json_t *heads = kept->n_sets > 1 ? json_array() : layers;
        for (uint32_t i = 0; i < kept->n_sets; i++) {
            json_array_append_new(heads, of(s, &kept->sets[l], i));
        }
        if (heads != layers) { json_array_append_new(layers, heads); }
    }
    return layers;
}

static void append_line(scorer *s, size_t i, uint32_t b, const policy_kept *kept, double loss,
                        ckvc_buffer *lines) {
    const prompt *p = s->p;
    const policy_choice *choice = &s->o->choice;
    const score_policy *policy = &choice->list[i];
    score_summary *sum = &s->summary[i * choice->setting.budgets.n + b];
    const double reward = reward_of(s->loss_full, loss, CKVC_LOSS_MEAN, p->n_continuation, 0.0);
    char hash[17]; /* as a number a reader of JSON in doubles would round it */
    snprintf(hash, sizeof hash, "%016" PRIx64, p->token_hash);
    json_auto_t *o = json_pack(
        "{s:s, s:s?, s:s*, s:s?, s:s, s:s, s:s, s:s, s:s?, s:o, s:i, s:i, s:f, s:o, s:o, s:o, s:o, "
        "s:o, "
        "s:o, s:o, s:I, s:i, s:o, s:o, s:o}",
        "id", p->entry->id, "source", p->entry->source, "document", p->entry->document, "split",
        p->select    ? "select"
        : p->heldout ? "heldout"
                     : p->entry->split,
        "model", model_fingerprint(s->in->model), "manifest", s->in->manifest->sha256, "token_hash",
        hash, "policy", score_kind_name(policy->kind), "table",
        policy->table ? policy->table->content_id : NULL, "tau",
        policy->kind == SCORE_MATCHED ? json_real(sum->tau) : json_null(), "T", (int)p->n_tokens,
        "C", (int)p->n_continuation, "budget", choice->setting.budgets.v[b], "r_struct",
        ckvc_json_real(s->stats.r_struct), "r_sem", ckvc_json_real(s->stats.r_sem), "bin_entropy",
        kept->bins ? json_integer(kept->bins->bin_entropy) : json_null(), "bin_perplexity",
        kept->bins ? json_integer(kept->bins->bin_ppl) : json_null(), "n_candidates",
        kept->n_sets > 1 ? json_null() : ckvc_json_u32s(kept->n_candidates, s->L), "n_kept",
        by_set(s, kept, size_json), "n_kept_window", by_set(s, kept, window_json), "entries",
        (json_int_t)kept->entries, "head_dim", (int)model_get_shape(s->in->model)->head_dim,
        "loss_full", ckvc_json_real(s->loss_full), "loss_comp", ckvc_json_real(loss), "reward",
        ckvc_json_real(reward));
    setting made = choice->setting; /* members that only say something where they are not neutral */
    made.op =
        policy->kind == SCORE_TABLE && kept->bins ? kept->bins->table->op : CKVC_OPERATOR_PAPER;
    made.mode = kept->mode;
    made.score = kept->score;
    made.floor = kept->floor;
    setting_write(o, SETTING_LINE, &made, 0);
    if (kept->repeat_tokens) {
        json_object_set_new(o, "repeat_tokens", json_integer(kept->repeat_tokens));
    }
    if (s->o->sets) { json_object_set_new(o, "sets", by_set(s, kept, positions_json)); }
    score_measures_attention(&s->measures, o);
    if (i == 0 && b == 0) { /* of the prompt, so once: on its first line */
        score_measures_utilities(&s->measures, &s->stats, o);
    }
    ckvc_json_append(lines, o);
    ckvc_buffer_u8(lines, '\n');
    sum->n++;
    sum->reward_mean += reward;
    sum->kept_mean += (double)kept->entries / s->L / s->G;
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
    for (size_t i = 0; i < s->o->choice.n; i++) {
        for (uint32_t b = 0; b < s->o->choice.setting.budgets.n; b++) {
            double loss = NAN;
            const policy_kept *kept;
            CKVC_TRY(policy_sets_decide(s->policies, i, b, &kept, err));
            if (C > 0) {
                CKVC_TRY(score_measures_continue(&s->measures, s->session, continuation, C,
                                                 kept->sets, s->nll, err));
                loss = nll_mean(s->nll, C);
                ckvc_progress_step(1);
            }
            append_line(s, i, b, kept, loss, lines);
        }
    }
    return CKVC_OK;
}

ckvc_status score_count_done(const calibrate_inputs *in, const score_options *o, const char *lines,
                             size_t n, score_summary *summary, ckvc_err *err) {
    const size_t per_prompt = o->choice.n * o->choice.setting.budgets.n;
    const model_shape *shape = model_get_shape(in->model);
    const double n_heads = (double)shape->n_layers * shape->n_kv_heads;
    for (size_t k = 0; n > 0; k++) {
        const char *end = memchr(lines, '\n', n);
        const size_t of_line = end ? (size_t)(end - lines) : n;
        json_auto_t *line = NULL;
        CKVC_TRY(ckvc_json_parse(lines, of_line, "a score line of before", &line, err));
        const json_t *reward = json_object_get(line, "reward");
        score_summary *sum = &summary[k % per_prompt];
        sum->n++;
        sum->reward_mean += json_is_number(reward) ? json_number_value(reward) : NAN;
        sum->kept_mean += json_number_value(json_object_get(line, "entries")) / n_heads;
        lines += end ? of_line + 1 : of_line;
        n -= end ? of_line + 1 : of_line;
    }
    return CKVC_OK;
}

static ckvc_status score_all(scorer *s, vectors_file *vectors, ckvc_buffer *lines, ckvc_err *err) {
    const prompt_list *prompts = s->in->prompts;
    const size_t per_prompt = 1 + s->o->choice.n * s->o->choice.setting.budgets.n,
                 n_done = s->o->n_done;
    s->n_ours = run_part_size(s->o->part, prompts->n);
    CKVC_TRY(find_matched(s, err));
    if (s->o->vectors) { CKVC_TRY(vectors_create(vectors, s->o->vectors, s->o->force, err)); }
    ckvc_progress_start("score", "rollouts", s->n_ours, n_done, s->o->quiet);
    const size_t step = s->o->part.count ? s->o->part.count : 1;
    for (size_t n = s->o->vectors ? 0 : n_done; n < s->n_ours; n++) {
        const prompt *p = &prompts->items[s->o->part.index + n * step];
        CKVC_TRY(go_on(s, n < n_done ? n_done : n, err));
        if (n < n_done) {
            CKVC_TRY(enter_prompt(s, p, err)); /* for its vectors */
        } else {
            CKVC_TRY(score_prompt(s, p, lines, err));
            if (s->o->keep) {
                CKVC_TRY(s->o->keep(s->o->keep_ctx, lines->data, lines->size, err));
                lines->size = 0;
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
    for (size_t c = 0; c < o->choice.n * o->choice.setting.budgets.n; c++) {
        if (summary[c].n) {
            summary[c].reward_mean /= (double)summary[c].n;
            summary[c].kept_mean /= (double)summary[c].n;
        }
    }
    return CKVC_OK;
}
