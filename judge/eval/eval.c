/* Answers to items: see eval.h. */
#include "judge/eval/eval.h"

#include <math.h>
#include <string.h>
#include <float.h>

#include "formats/lines/answers.h"
#include "lib/base/progress.h"
#include "lib/model/decoder.h"

/* The steps that a forecast times, and about the most bytes that a token takes in a line. */
enum { FORECAST_STEPS = 4, TOKEN_BYTES = 8 };

/* One item under one policy and budget, or under the full cache (which is way 0). */
typedef struct way {
    const eval_item *item;
    sequence *sequence;
    const int32_t *question; /* [item->n_question], fed before the answer */
    uint32_t n_fed;
    int32_t *tokens; /* [max_new], of which n are there */
    uint32_t n;
    double nll;      /* the sum of their losses */
    const char *end; /* why it ended; NULL: it goes on */
    /* It borrows all its texts. What depends on the answer is filled in last. */
    answer_row row;
} way;

typedef struct evaluator {
    const eval_options *o;
    const model_shape *shape;
    policy_workers workers;
    decoder *decoder;
    bool forecast;
    be_buf *others; /* in a forecast: takes the place of the sequences of all items but one */
    /* Of each worker: its current prompt, with the room that its sequences need after it, and the
     * token after the prompt. */
    prompt p[SESSIONS_TOGETHER];
    be_greedy first[SESSIONS_TOGETHER];
    size_t n_ways, batch; /* ways of an item; items of a batch */
    size_t n_ours;        /* items of this run's part */
    way *ways;            /* [batch][n_ways] */
    sequence **live;      /* [batch * n_ways] those that go on, with place and token */
    size_t *place;
    int32_t *token;
    be_greedy *next; /* [batch * n_ways] */
} evaluator;

size_t eval_ways(const policy_choice *choice) { return 1 + choice->n * choice->setting.budgets.n; }

static void drop_ways(evaluator *v) {
    for (size_t i = 0; v->ways && i < v->batch * v->n_ways; i++) {
        sequence_free(v->ways[i].sequence);
        free(v->ways[i].tokens);
        v->ways[i] = (way){0};
    }
}

static void evaluator_fini(evaluator *v) {
    drop_ways(v);
    policy_workers_close(&v->workers);
    if (v->others) { v->o->be->ops->buf_free(v->o->be, v->others); }
    decoder_destroy(v->decoder);
    CKVC_FREE(v->ways, v->live, v->place, v->token, v->next);
}

/* ---- memory ---- */

/* The most rows of a way's sequence, over all layers and heads, for the longest prompt. */
static double most_rows(const evaluator *v, size_t w) {
    const prompt_list *prompts = &v->o->items->prompts;
    const setting_list *budgets = &v->o->choice.setting.budgets;
    double kept = prompts->max_tokens;
    if (w > 0) {
        const double beyond = policy_sets_beyond((uint32_t)v->shape->n_layers);
        const uint32_t B =
            ckvc_budget_tokens(budgets->v[(w - 1) % budgets->n], prompts->max_tokens);
        kept = fmin(kept, fmax(B + beyond, v->o->choice.setting.window));
    }
    return (double)v->shape->n_layers * v->shape->n_kv_heads * (kept + v->o->items->max_behind);
}

/* The bytes of all sequences of a batch. */
static size_t held_bytes(const evaluator *v) {
    double held = 0;
    for (size_t w = 0; w < v->n_ways; w++) {
        const policy_choice *o = &v->o->choice;
        const uint32_t n = o->setting.budgets.n;
        const cache_formats f =
            w ? policy_formats(o, (w - 1) / n, (uint32_t)((w - 1) % n)) : (cache_formats){0};
        held += most_rows(v, w) * (double)cache_entry_bytes(f, v->shape->head_dim);
    }
    held *= (double)v->batch;
    return held < (double)(SIZE_MAX / 2) ? (size_t)held : SIZE_MAX / 2;
}

static ckvc_status open_workers(evaluator *v, ckvc_err *err) {
    const eval_options *o = v->o;
    const prompt_list *prompts = &o->items->prompts;
    const calibrate_inputs in = {.model = o->model, .backend = o->be, .prompts = prompts};
    const worker_options asked = {.memory = o->memory,
                                  .held = held_bytes(v),
                                  .n_rollouts = (int64_t)v->n_ways,
                                  .steps = (double)o->items->max_behind / (double)v->batch,
                                  .most_prompts = (int64_t)v->batch};
    ckvc_err why = {0};
    if (v->forecast && asked.held <= o->memory) { /* copies that will be dropped are dropped now */
        v->others =
            o->be->ops->buf_create(o->be, (asked.held - asked.held / v->batch) / sizeof(float));
    }
    const ckvc_status st = policy_workers_open(&v->workers, &in, &o->choice, asked, &why);
    CKVC_FAIL_IF(st == CKVC_E_MEMORY, err, st,
                 "%zu items side by side, each under %zu caches, hold %.1f MB, and with these "
                 "%.*s: allow more with --memory, or give a smaller --batch, fewer policies or "
                 "budgets, or shorter items",
                 v->batch, v->n_ways, (double)asked.held / 1e6, (int)strcspn(why.text, ":"),
                 why.text);
    CKVC_FAIL_IF(st != CKVC_OK, err, st, "%s", why.text);
    return CKVC_OK;
}

static ckvc_status evaluator_init(evaluator *v, ckvc_err *err) {
    const eval_options *o = v->o;
    const size_t n_items = o->items->prompts.n;
    v->shape = model_get_shape(o->model);
    v->n_ways = eval_ways(&o->choice);
    v->batch = o->batch < n_items ? o->batch : n_items;
    v->n_ours = run_part_size(o->part, n_items);
    const size_t n = v->batch * v->n_ways;
    CKVC_TRY(open_workers(v, err));
    v->ways = ckvc_calloc(n, sizeof *v->ways);
    v->live = ckvc_alloc(n, sizeof *v->live);
    v->place = ckvc_alloc(n, sizeof *v->place);
    v->token = ckvc_alloc(n, sizeof *v->token);
    v->next = ckvc_alloc(n, sizeof *v->next);
    return decoder_create(o->model, (int64_t)n, &v->decoder, err);
}

/* ---- one token ---- */

/* The answer's text, with a blank for every byte 0, which no line of JSON can hold. */
static ckvc_status decode_answer(const evaluator *v, const way *x, char **text, ckvc_err *err) {
    size_t n;
    CKVC_TRY(tokenizer_decode(v->o->tok, x->tokens, x->n, true, text, &n, err));
    for (size_t i = 0; i < n; i++) { (*text)[i] = (char)((*text)[i] ? (*text)[i] : ' '); }
    return CKVC_OK;
}

/* Whether the first line is complete, not counting line feeds at the beginning (task_item's
 * first_line). */
static ckvc_status line_is_whole(const evaluator *v, const way *x, bool *whole, ckvc_err *err) {
    CKVC_AUTO_FREE char *text = NULL;
    CKVC_TRY(decode_answer(v, x, &text, err));
    *whole = strchr(text + strspn(text, "\n"), '\n') != NULL;
    return CKVC_OK;
}

static ckvc_status append_token(evaluator *v, way *x, be_greedy next, ckvc_err *err) {
    const task_item *task = x->item->task;
    bool whole = false;
    CKVC_TRY(nll_check(&next.nll, 1, task->id, x->row.n_tokens + x->item->n_question + x->n, err));
    x->tokens[x->n++] = next.id;
    x->nll += next.nll;
    if (task->first_line) { CKVC_TRY(line_is_whole(v, x, &whole, err)); }
    x->end = model_shape_stops(v->shape, next.id) ? "stop"
             : whole                              ? "line"
             : x->n == task->max_new              ? "length"
                                                  : NULL;
    return CKVC_OK;
}

/* ---- an item: its prefill, and what is kept of it in every way ---- */

/* Prefills items [n], one in each worker. */
static ckvc_status prefill(evaluator *v, const size_t *items, int64_t n, ckvc_err *err) {
    const prompt *p[SESSIONS_TOGETHER];
    session *s[SESSIONS_TOGETHER];
    for (int64_t k = 0; k < n; k++) {
        v->p[k] = v->o->items->prompts.items[items[k]];
        v->p[k].n_continuation = eval_item_behind(&v->o->items->items[items[k]]);
        p[k] = &v->p[k];
        s[k] = v->workers.w[k]->session;
    }
    CKVC_TRY(policy_workers_prefill(&v->workers, p, n, err));
    return sessions_next(s, n, NULL, v->first, err);
}

/* Computes the mean losses of the right answers after prompts and questions, in one way of each
 * item; NaN where there is no right answer. */
static ckvc_status reference_nll(evaluator *v, const size_t *items, int64_t n,
                                 const rollout_lane *lanes, way *const *ways, ckvc_err *err) {
    rollout_job jobs[SESSIONS_TOGETHER];
    int64_t n_jobs = 0;
    for (int64_t k = 0; k < n; k++) {
        const prompt *p = &v->o->items->prompts.items[items[k]];
        ways[k]->row.reference_nll = NAN;
        if (ways[k]->item->n_reference == 0) { continue; }
        jobs[n_jobs++] = (rollout_job){.session = v->workers.w[k]->session,
                                       .continuation = p->tokens + p->n_tokens,
                                       .n = p->n_continuation,
                                       .lanes = &lanes[k],
                                       .n_lanes = 1,
                                       .nll = v->workers.w[k]->scratch.nll};
    }
    if (n_jobs > 0) { CKVC_TRY(sessions_rollouts(jobs, n_jobs, err)); }
    for (int64_t k = 0; k < n; k++) {
        const eval_item *x = ways[k]->item;
        if (x->n_reference == 0) { continue; }
        const double *nll = v->workers.w[k]->scratch.nll + x->n_question;
        CKVC_TRY(nll_check(nll, x->n_reference, x->task->id, ways[k]->row.n_tokens + x->n_question,
                           err));
        ways[k]->row.reference_nll = nll_mean(nll, x->n_reference);
    }
    return CKVC_OK;
}

/* Fills in what the line says of way w of item i, except what depends on the answer. */
static void describe_cache(const evaluator *v, size_t i, size_t w, const policy_kept *kept,
                           way *x) {
    const policy_choice *choice = &v->o->choice;
    const uint32_t n_budgets = choice->setting.budgets.n;
    const prompt *p = &v->o->items->prompts.items[i];
    const task_item *task = x->item->task;
    const asked_policy *policy = w ? &choice->list[(w - 1) / n_budgets] : NULL;
    const double all = (double)v->shape->n_layers * v->shape->n_kv_heads * p->n_tokens,
                 entries = (double)sequence_entries(x->sequence);
    x->row = (answer_row){
        .id = task->id,
        .task = ckvc_unconst(task->task),
        .group = ckvc_unconst(task->group),
        .model = ckvc_unconst(model_fingerprint(v->o->model)),
        .policy = ckvc_unconst(policy ? asked_policy_name(policy) : ANSWERS_FULL),
        .metric = ckvc_unconst(task_metric_name(task->metric)),
        .table =
            policy && asked_policy_table(policy) ? ckvc_unconst(asked_policy_table(policy)) : NULL,
        .whole = kept && kept->whole,
        .query = v->o->items->query,
        .n_tokens = p->n_tokens,
        .n_question = x->item->n_question,
        .aimed = task->length,
        .depth = task->depth,
        .budget = policy ? choice->setting.budgets.v[(w - 1) % n_budgets] : NAN,
        .entries = entries,
        .share = entries / all,
        .bytes = (double)sequence_kept_bytes(x->sequence),
        .control = x->item->control ? task_score(task, x->item->control) : NAN,
        .repeat_tokens = kept && kept->repeat_tokens ? (double)kept->repeat_tokens : NAN,
        .setting = choice->setting};
    x->row.setting.cache_keys = kept ? kept->sets->formats.keys : CACHE_F32;
    x->row.setting.cache_values = kept ? kept->sets->formats.values : CACHE_F32;
    x->row.setting.op = CKVC_OPERATOR_PAPER; /* a policy has its own operator, as its name says */
}

/* Begins way w of the item that worker k has; *lane receives a rollout of it. */
static ckvc_status enter_way(evaluator *v, size_t i, int64_t k, size_t w, way *x,
                             rollout_lane *lane, ckvc_err *err) {
    const uint32_t n_budgets = v->o->choice.setting.budgets.n;
    const prompt *p = &v->o->items->prompts.items[i];
    const policy_kept *kept = NULL;
    x->item = &v->o->items->items[i];
    x->question = p->tokens + p->n_tokens;
    x->tokens = ckvc_alloc(x->item->task->max_new, sizeof *x->tokens);
    if (w > 0) {
        CKVC_TRY(policy_sets_decide(v->workers.sets[k], (w - 1) / n_budgets,
                                    (uint32_t)((w - 1) % n_budgets), &kept, err));
    }
    *lane = (rollout_lane){.parent = -1, .sets = kept ? kept->sets : NULL};
    const int64_t room = (int64_t)x->item->n_question + x->item->task->max_new - 1;
    CKVC_TRY(sequence_create(v->workers.w[k]->session, lane->sets, room, &x->sequence, err));
    describe_cache(v, i, w, kept, x);
    if (x->item->n_question) { return CKVC_OK; }
    return append_token(v, x, v->first[k], err);
}

/* Begins items [n] in all their ways, ways [n][n_ways]. */
static ckvc_status enter_items(evaluator *v, const size_t *items, int64_t n, way *ways,
                               ckvc_err *err) {
    rollout_lane lanes[SESSIONS_TOGETHER];
    way *x[SESSIONS_TOGETHER];
    for (size_t w = 0; w < v->n_ways; w++) {
        for (int64_t k = 0; k < n; k++) {
            x[k] = &ways[(size_t)k * v->n_ways + w];
            CKVC_TRY(enter_way(v, items[k], k, w, x[k], &lanes[k], err));
        }
        CKVC_TRY(reference_nll(v, items, n, lanes, x, err));
    }
    return CKVC_OK;
}

/* ---- a batch ---- */

/* Decodes one token for each of n ways that go on; *n_live receives how many did. */
static ckvc_status decode_step(evaluator *v, way *ways, size_t n, size_t *n_live, ckvc_err *err) {
    size_t live = 0;
    for (size_t i = 0; i < n; i++) {
        way *x = &ways[i];
        if (x->end) { continue; }
        v->place[live] = i;
        v->live[live] = x->sequence;
        v->token[live++] =
            x->n_fed < x->item->n_question ? x->question[x->n_fed++] : x->tokens[x->n - 1];
    }
    *n_live = live;
    if (live == 0) { return CKVC_OK; }
    CKVC_TRY(decoder_step(v->decoder, v->live, v->token, (int64_t)live, NULL, v->next, err));
    for (size_t i = 0; i < live; i++) {
        way *x = &ways[v->place[i]];
        if (x->n_fed < x->item->n_question) { continue; }
        CKVC_TRY(append_token(v, x, v->next[i], err));
    }
    return CKVC_OK;
}

static ckvc_status append_line(const evaluator *v, way *x, ckvc_buffer *lines, ckvc_err *err) {
    CKVC_AUTO_FREE char *text = NULL;
    CKVC_TRY(decode_answer(v, x, &text, err));
    x->row.answer = text;
    x->row.end = ckvc_unconst(x->end);
    x->row.n_answer = x->n;
    x->row.nll = x->nll / x->n;
    x->row.score = task_score(x->item->task, text);
    answers_append(lines, &x->row);
    ckvc_buffer_u8(lines, '\n');
    return CKVC_OK;
}

static size_t item_at(const evaluator *v, size_t n) {
    return v->o->part.index + n * (v->o->part.count ? v->o->part.count : 1);
}

static ckvc_status check_stop(const evaluator *v, size_t n_done, ckvc_err *err) {
    CKVC_FAIL_IF(ckvc_stop_requested(), err, CKVC_E_STOPPED, "stopped after %zu of %zu items; %s",
                 n_done, v->n_ours,
                 v->o->keep ? "the same command with --resume goes on" : "nothing was written");
    return CKVC_OK;
}

/* Answers items n ... n + many - 1 of this part. */
static ckvc_status run_batch(evaluator *v, size_t n, size_t many, ckvc_buffer *lines,
                             ckvc_err *err) {
    const size_t together = (size_t)v->workers.all.n;
    for (size_t i = 0; i < many; i += together) {
        const size_t group = many - i < together ? many - i : together;
        size_t items[SESSIONS_TOGETHER];
        for (size_t k = 0; k < group; k++) { items[k] = item_at(v, n + i + k); }
        CKVC_TRY(check_stop(v, n, err));
        CKVC_TRY(prefill(v, items, (int64_t)group, err));
        CKVC_TRY(enter_items(v, items, (int64_t)group, &v->ways[i * v->n_ways], err));
    }
    for (size_t live = 1; live > 0;) {
        CKVC_TRY(check_stop(v, n, err));
        CKVC_TRY(decode_step(v, v->ways, many * v->n_ways, &live, err));
    }
    for (size_t i = 0; i < many; i++) {
        for (size_t w = 0; w < v->n_ways; w++) {
            CKVC_TRY(append_line(v, &v->ways[i * v->n_ways + w], lines, err));
        }
        if (v->o->keep) {
            CKVC_TRY(v->o->keep(v->o->keep_ctx, lines->data, lines->size, err));
            lines->size = 0;
        }
    }
    drop_ways(v);
    return CKVC_OK;
}

ckvc_status eval_answers(const eval_options *o, ckvc_buffer *lines, ckvc_err *err) {
    CKVC_AUTO(evaluator_fini) evaluator v = {.o = o};
    CKVC_TRY(evaluator_init(&v, err));
    ckvc_progress_start("eval", "prompts", "answers", v.n_ours, o->n_done);
    for (size_t n = o->n_done; n < v.n_ours; n += v.batch) {
        const size_t many = v.n_ours - n < v.batch ? v.n_ours - n : v.batch;
        CKVC_TRY(run_batch(&v, n, many, lines, err));
        ckvc_progress_update(n + many, (n + many - o->n_done) * v.n_ways);
    }
    ckvc_progress_finish();
    return CKVC_OK;
}

/* ---- what it will cost ---- */

ckvc_status eval_forecast_make(const eval_options *o, eval_forecast *out, ckvc_err *err) {
    CKVC_AUTO(evaluator_fini) evaluator v = {.o = o, .forecast = true};
    const prompt_list *prompts = &o->items->prompts;
    size_t longest = 0, live, steps = 0;
    CKVC_TRY(evaluator_init(&v, err));
    while (prompts->items[longest].n_tokens < prompts->max_tokens) { longest++; }
    *out = (eval_forecast){.memory = v.workers.all.items->plan,
                           .n_items = v.n_ours,
                           .n_ways = v.n_ways,
                           .n_tokens = prompts->max_tokens};
    const calibrate_inputs in = {.model = o->model, .backend = o->be, .prompts = prompts};
    CKVC_TRY(worker_time_copies(&in, &out->memory, &out->copy_s, err));
    const double start = ckvc_now_s();
    CKVC_TRY(prefill(&v, &longest, 1, err));
    const double prefilled = ckvc_now_s();
    CKVC_TRY(enter_items(&v, &longest, 1, v.ways, err));
    const double decided = ckvc_now_s();
    do {
        CKVC_TRY(decode_step(&v, v.ways, v.n_ways, &live, err));
        steps += live > 0;
    } while (live > 0 && steps < FORECAST_STEPS);
    /* the single item has paid for copies that the items of a group share */
    const double spared_s = out->copy_s * (1 - 1 / (double)out->memory.prompts),
                 n_references = o->items->items[longest].n_reference > 0 ? (double)v.n_ways : 0;
    out->compute_s = worker_compute_s(&in, prefilled - start, out->copy_s, prompts->max_tokens);
    out->prefill_s = fmax(prefilled - start - spared_s, 1e-6);
    out->decide_s = fmax(decided - prefilled - spared_s * n_references, 1e-6);
    out->step_s = steps ? (ckvc_now_s() - decided) / (double)steps : 0;
    CKVC_AUTO(ckvc_buffer_fini) ckvc_buffer lines = {0};
    for (size_t w = 0; w < v.n_ways; w++) {
        v.ways[w].end = "length";
        CKVC_TRY(append_line(&v, &v.ways[w], &lines, err));
    }
    for (size_t n = 0; n < v.n_ours; n++) {
        const size_t i = item_at(&v, n);
        out->disk_bytes +=
            (double)lines.size + (double)v.n_ways * TOKEN_BYTES * o->items->items[i].task->max_new;
        out->hours += (out->prefill_s + out->decide_s) * prompts->items[i].n_tokens /
                          (double)prompts->max_tokens +
                      out->step_s * eval_item_behind(&o->items->items[i]);
    }
    out->hours /= 3600;
    return CKVC_OK;
}

enum { REPEATS = 3, STEPS = 16, N_BATCHES = 5, MOST = 16 };
static const uint32_t batches[N_BATCHES] = {1, 2, 4, 8, MOST};

/* What is measured of one policy, or of the full cache, at one length and budget. */
typedef struct measured {
    double prefill_s, decide_s, first_s, token_s[N_BATCHES], lookup_ns;
    double entries, bytes, peak[N_BATCHES];
    uint32_t repeat_tokens;
} measured;

typedef struct meter {
    const eval_options *o;
    const model_shape *shape;
    decoder *decoder;
    be_greedy next[MOST];
    prompt p;      /* the current prompt, with room for steps */
    measured full; /* of the current prompt */
    ckvc_buffer *csv;
} meter;

static void meter_fini(meter *m) { decoder_destroy(m->decoder); }

/* One policy on the current prompt. */
typedef struct subject {
    policy_choice choice; /* with this policy alone; none: the full cache */
    policy_sets *policies;
    session *session;
    session_limits limits;
    prefill_stats stats;
    prompt_list only;
} subject;

static void subject_fini(subject *s) {
    session_destroy(s->session);
    policy_sets_free(s->policies);
}

static double min_double(double a, double b) { return a < b ? a : b; }

static size_t fixed_bytes(const meter *m, const subject *s) {
    return session_bytes(m->shape, s->limits) +
           session_scratch_bytes(m->o->be, m->shape, s->limits) + policy_sets_bytes(s->policies);
}

static ckvc_status subject_init(meter *m, const asked_policy *policy, subject *s, ckvc_err *err) {
    s->choice = m->o->choice;
    s->choice.list = policy;
    s->choice.n = policy != NULL;
    if (!policy) { s->choice.setting.window = 1; }
    s->only = (prompt_list){.items = &m->p, .n = 1, .max_tokens = m->p.n_tokens};
    s->limits =
        (session_limits){.max_prompt = m->p.n_tokens, .max_window = s->choice.setting.window};
    CKVC_TRY(policy_sets_create(&s->choice, m->shape, &s->only, &s->policies, err));
    policy_sets_need(s->policies, &s->limits);
    const size_t bytes = fixed_bytes(m, s) + model_converted_least(m->o->model);
    CKVC_FAIL_IF(bytes > m->o->memory, err, CKVC_E_MEMORY,
                 "a prompt of %u tokens needs %.1f MB, there are %.1f: allow more with --memory",
                 m->p.n_tokens, (double)bytes / 1e6, (double)m->o->memory / 1e6);
    return sessions_create(m->o->model, s->limits, 1, &s->session, err);
}

/* ---- times ---- */

static ckvc_status time_prefill(meter *m, subject *s, measured *out, ckvc_err *err) {
    out->prefill_s = DBL_MAX;
    for (int r = 0; r < REPEATS; r++) {
        const double start = ckvc_now_s();
        CKVC_TRY(policy_sets_prefill(s->policies, s->session, &m->p, &s->stats, err));
        CKVC_TRY(sessions_next(&s->session, 1, NULL, m->next, err));
        out->prefill_s = min_double(out->prefill_s, ckvc_now_s() - start);
    }
    return CKVC_OK;
}

/* Times the decision. *sets is NULL for the full cache. */
static ckvc_status time_decision(subject *s, uint32_t b, const kept_set **sets, measured *out,
                                 ckvc_err *err) {
    const policy_kept *kept = NULL;
    out->decide_s = s->choice.n ? DBL_MAX : 0;
    for (int r = 0; s->choice.n && r < REPEATS; r++) {
        const double start = ckvc_now_s();
        CKVC_TRY(policy_sets_decide(s->policies, 0, b, &kept, err));
        out->decide_s = min_double(out->decide_s, ckvc_now_s() - start);
    }
    *sets = kept ? kept->sets : NULL;
    out->repeat_tokens = kept ? kept->repeat_tokens : 0;
    return CKVC_OK;
}

typedef struct held {
    sequence *of[MOST];
} held;

static void held_fini(held *h) {
    for (int i = 0; i < MOST; i++) { sequence_free(h->of[i]); }
}

/* Times steps of batches[k] sequences; NaN where their caches do not fit. */
static ckvc_status time_batch(meter *m, subject *s, const kept_set *sets, int k, measured *out,
                              ckvc_err *err) {
    CKVC_AUTO(held_fini) held h = {{NULL}};
    const uint32_t n = batches[k];
    const double weights = (double)model_converted_least(m->o->model);
    int32_t tokens[MOST];
    double taken = DBL_MAX;
    out->token_s[k] = NAN;
    for (uint32_t i = 0; i < n; i++) {
        const double start = ckvc_now_s();
        CKVC_TRY(sequence_create(s->session, sets, m->p.n_continuation, &h.of[i], err));
        taken = min_double(taken, ckvc_now_s() - start);
        tokens[i] = m->p.tokens[i % m->p.n_tokens];
        out->peak[k] = (double)fixed_bytes(m, s) + (double)n * (double)sequence_bytes(h.of[0]);
        if (i == 0 && out->peak[k] + weights > (double)m->o->memory) { return CKVC_OK; }
    }
    out->entries = (double)sequence_entries(h.of[0]);
    out->bytes = (double)sequence_kept_bytes(h.of[0]);
    if (k == 0) { out->first_s = out->prefill_s + out->decide_s + taken; }
    double best = DBL_MAX;
    for (uint32_t t = 0; t < m->p.n_continuation; t++) {
        const double start = ckvc_now_s();
        CKVC_TRY(decoder_step(m->decoder, h.of, tokens, n, NULL, m->next, err));
        best = min_double(best, ckvc_now_s() - start);
    }
    out->token_s[k] = best;
    return CKVC_OK;
}

/* Looks up everything that a prompt needs of a table, again and again for a millisecond: its block,
 * its cell, the threshold of each layer, the weight or share of each head. */
static double time_look_up(const subject *s, uint32_t b, uint32_t n_tokens) {
    const ckvc_table *t = s->choice.list[0].table->table;
    const double budget = s->choice.setting.budgets.v[b], start = ckvc_now_s();
    volatile double sink = 0; /* so that the compiler keeps what is timed */
    double now;
    size_t n = 0;
    do {
        for (int r = 0; r < 16; r++, n++) {
            const uint32_t block = ckvc_nearest_budget(t->budgets, t->n_budgets, budget, n_tokens),
                           e = ckvc_bin_index(t->edges_entropy, t->n_entropy_bins - 1,
                                              s->stats.r_struct),
                           p = ckvc_bin_index(t->edges_ppl, t->n_ppl_bins - 1, s->stats.r_sem);
            double sum = 0;
            for (uint32_t l = 0; l < t->n_layers; l++) {
                sum += (double)t->tau[ckvc_tau_index(t, l, e, p, block)];
                for (uint32_t g = 0; g < t->n_heads; g++) {
                    const size_t i = ckvc_weight_index(t, l, g, block);
                    sum += t->share ? t->share[i] : (double)t->weight[i];
                }
            }
            sink = sink + sum;
        }
        now = ckvc_now_s();
    } while (now - start < 1e-3);
    return (now - start) / (double)n * 1e9;
}

static double time_lookup(const subject *s, uint32_t b, uint32_t n_tokens) {
    double best = DBL_MAX;
    for (int r = 0; r < REPEATS; r++) { best = min_double(best, time_look_up(s, b, n_tokens)); }
    return best;
}

/* ---- rows ---- */

static void append_ratio(ckvc_buffer *csv, double a, double b) {
    ckvc_buffer_printf(csv, ",%.6g", a / b);
}

static void append_rows(meter *m, const subject *s, uint32_t b, const measured *x) {
    const asked_policy *policy = s->choice.n ? s->choice.list : NULL;
    for (int k = 0; k < N_BATCHES; k++) {
        if (isnan(x->token_s[k])) { continue; }
        ckvc_buffer_printf(m->csv, "%u,%s,%s,", m->p.n_tokens,
                           policy ? asked_policy_name(policy) : "full",
                           policy && asked_policy_table(policy) ? asked_policy_table(policy) : "");
        if (policy) { ckvc_buffer_printf(m->csv, "%.10g", s->choice.setting.budgets.v[b]); }
        ckvc_buffer_printf(m->csv, ",%u,%.0f,%.0f,%.0f,%.6g,%.6g,%.6g,%.6g,", batches[k],
                           x->entries, x->bytes, x->peak[k], x->prefill_s, x->decide_s, x->first_s,
                           x->token_s[k]);
        if (policy && policy->table) { ckvc_buffer_printf(m->csv, "%.4g", x->lookup_ns); }
        append_ratio(m->csv, x->bytes, m->full.bytes);
        append_ratio(m->csv, x->peak[k], m->full.peak[k]);
        append_ratio(m->csv, x->first_s, m->full.first_s);
        append_ratio(m->csv, x->token_s[k], m->full.token_s[k]);
        ckvc_buffer_printf(m->csv, ",%u\n", x->repeat_tokens);
    }
}

/* Measures a policy, or with NULL the full cache, to which the ratios of the others refer. */
static ckvc_status measure_cost(meter *m, const asked_policy *policy, ckvc_err *err) {
    CKVC_AUTO(subject_fini) subject s = {0};
    CKVC_TRY(subject_init(m, policy, &s, err));
    measured x = {0};
    CKVC_TRY(time_prefill(m, &s, &x, err));
    for (uint32_t b = 0; b < (policy ? s.choice.setting.budgets.n : 1); b++) {
        const kept_set *sets;
        CKVC_TRY(time_decision(&s, b, &sets, &x, err));
        for (int k = 0; k < N_BATCHES; k++) { CKVC_TRY(time_batch(m, &s, sets, k, &x, err)); }
        if (policy && policy->table) { x.lookup_ns = time_lookup(&s, b, m->p.n_tokens); }
        if (!policy) { m->full = x; }
        append_rows(m, &s, b, &x);
    }
    if (!policy && isnan(x.token_s[N_BATCHES - 1])) {
        ckvc_warn("with prompts of %u tokens not all batches up to %d fit --memory: those that do "
                  "not are left out",
                  m->p.n_tokens, MOST);
    }
    return CKVC_OK;
}

/* The longest item that was made for a length. */
static const prompt *longest_of(const eval_items *items, uint32_t length) {
    const prompt *longest = NULL;
    for (size_t i = 0; i < items->prompts.n; i++) {
        const prompt *p = &items->prompts.items[i];
        if (items->items[i].task->length == length &&
            (!longest || p->n_tokens > longest->n_tokens)) {
            longest = p;
        }
    }
    return longest;
}

ckvc_status eval_cost(const eval_options *o, ckvc_buffer *csv, ckvc_err *err) {
    CKVC_AUTO(meter_fini) meter m = {.o = o, .shape = model_get_shape(o->model), .csv = csv};
    const eval_items *items = o->items;
    CKVC_TRY(decoder_create(o->model, MOST, &m.decoder, err));
    ckvc_buffer_text(csv, "length,policy,table,budget,batch,entries,cache_bytes,peak_bytes,"
                          "prefill_s,decide_s,first_s,token_s,lookup_ns,bytes_ratio,peak_ratio,"
                          "first_ratio,token_ratio,repeat_tokens\n");
    for (size_t i = 0; i < items->prompts.n; i++) {
        const uint32_t length = items->items[i].task->length;
        size_t before = 0;
        while (items->items[before].task->length != length) { before++; }
        if (before < i) { continue; } /* this length is measured already */
        m.p = *longest_of(items, length);
        const int64_t room = model_shape_context(m.shape) - m.p.n_tokens;
        m.p.n_continuation = room < STEPS ? (uint32_t)room : STEPS;
        CKVC_TRY(measure_cost(&m, NULL, err));
        for (size_t k = 0; k < o->choice.n; k++) {
            CKVC_FAIL_IF(ckvc_stop_requested(), err, CKVC_E_STOPPED,
                         "stopped while costs were measured; no file of them was written");
            CKVC_TRY(measure_cost(&m, &o->choice.list[k], err));
        }
    }
    return CKVC_OK;
}
