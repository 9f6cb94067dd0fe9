/* Generation: see generate.h. */
#include "judge/generate/generate.h"

#include <math.h>
#include <stdlib.h>

#include "lib/base/progress.h"
#include "lib/model/decoder.h"

enum { STAGE_GENERATE = 32 };

typedef struct one {  /* a prompt of the batch, from one cache */
    generated *turns; /* [1 + n_then] */
    generated *g;     /* the current turn */
    sequence *sequence;
    ckvc_rng rng;
    /* n_lead tokens are fed before the turn's answer; where has_end is set, the first of them is
     * `end`, which ends the last answer */
    int32_t end;
    bool has_end;
    const int32_t *own;
    size_t n_lead, n_fed;
    int64_t room;  /* positions left in the model's context */
    uint32_t most; /* tokens of the answer at most */
    bool over;
} one;

typedef struct generator {
    const generate_options *o;
    policy_choice none; /* used for the full cache */
    decoder *decoder;
    const model_shape *shape;
    size_t n_ways;
    bool compressed; /* whether the current cache is the policy's */
    one *items[2];   /* [batch] each: from the full cache, from the policy's */
    float *logits;   /* [batch][V], NULL where tokens are greedy */
    sequence **live; /* [batch] those that go on, with place and token */
    size_t *place;
    int32_t *token;
    be_greedy *next;       /* [batch] */
    token_weight *weights; /* [V], NULL where tokens are greedy */
} generator;

const char *generate_end_name(generate_end end) {
    static const char *const names[GENERATE_ENDS] = {"stop", "length", "context"};
    return names[end];
}

static void drop_batch(generator *r) {
    for (size_t i = 0; i < r->n_ways * r->o->batch; i++) {
        one *x = &r->items[i / r->o->batch][i % r->o->batch];
        sequence_free(x->sequence);
        for (uint32_t t = 0; x->turns && t <= r->o->n_then; t++) {
            CKVC_FREE(x->turns[t].tokens, x->turns[t].nll);
        }
        free(x->turns);
        *x = (one){0};
    }
}

static void generator_fini(generator *r) {
    drop_batch(r);
    decoder_destroy(r->decoder);
    CKVC_FREE(r->items[0], r->items[1], r->logits, r->live, r->place, r->token, r->next,
              r->weights);
}

/* Whether tokens are greedy; the logits then stay with the backend. */
static bool is_greedy(const generate_options *o) { return o->how.temperature == 0; }

static ckvc_status generator_init(generator *r, ckvc_err *err) {
    const generate_options *o = r->o;
    const size_t batch = o->batch;
    r->shape = model_get_shape(o->model);
    r->none = o->choice;
    r->none.n = 0;
    r->n_ways = (size_t)o->full + (o->choice.n > 0);
    for (size_t w = 0; w < r->n_ways; w++) { r->items[w] = ckvc_calloc(batch, sizeof(one)); }
    r->live = ckvc_alloc(batch, sizeof *r->live);
    r->place = ckvc_alloc(batch, sizeof *r->place);
    r->token = ckvc_alloc(batch, sizeof *r->token);
    r->next = ckvc_calloc(batch, sizeof *r->next);
    if (!is_greedy(o)) {
        r->logits = ckvc_alloc(batch * (size_t)r->shape->vocab, sizeof *r->logits);
        r->weights = ckvc_alloc((size_t)r->shape->vocab, sizeof *r->weights);
    }
    return decoder_create(o->model, o->batch, &r->decoder, err);
}

/* The most positions after a prompt: its own later turns, those that follow, and their answers, as
 * far as the context reaches. */
static int64_t rows_behind(const generate_options *o, const prompt *p) {
    const int64_t room = model_shape_context(model_get_shape(o->model)) - p->n_tokens;
    int64_t n = p->n_later + (int64_t)o->max_new * (1 + o->n_then);
    for (uint32_t t = 0; t < o->n_then; t++) { n += (int64_t)o->then_size[t]; }
    return n < room ? n : room;
}

/* The bytes of n sequences, in the policy's formats or in float32. */
static size_t held_bytes(const generate_options *o, size_t n, bool compressed) {
    const model_shape *s = model_get_shape(o->model);
    const prompt longest = {.n_tokens = o->prompts->max_tokens,
                            .n_later = o->prompts->max_continuation};
    const size_t rows = (size_t)s->n_layers * (size_t)s->n_kv_heads *
                        (longest.n_tokens + (size_t)rows_behind(o, &longest));
    const cache_formats f = compressed ? policy_formats(&o->choice, 0, 0) : (cache_formats){0};
    return n * rows * cache_entry_bytes(f, s->head_dim);
}

ckvc_status generate_bytes(const generate_options *o, size_t *out, ckvc_err *err) {
    const model_shape *s = model_get_shape(o->model);
    CKVC_AUTO(policy_sets_free_at) policy_sets *policies = NULL;
    session_limits limits = {.max_prompt = o->prompts->max_tokens,
                             .max_window = o->choice.setting.window};
    const size_t logits =
        is_greedy(o) ? 0 : (size_t)s->vocab * (o->batch * sizeof(float) + sizeof(token_weight));
    CKVC_TRY(policy_sets_create(&o->choice, s, o->prompts, &policies, err));
    policy_sets_need(policies, &limits);
    *out = held_bytes(o, o->batch, !o->full) + logits + session_bytes(s, limits) +
           session_scratch_bytes(o->be, s, limits) + policy_sets_bytes(policies);
    return CKVC_OK;
}

/* ---- one token ---- */

/* Begins turn t, of n tokens, after the end of the last answer. A turn for which the context has no
 * room ends at once, and so do all after it. */
static void begin_turn(const generator *r, one *x, uint32_t t, const int32_t *own, size_t n) {
    generated *g = x->g = &x->turns[t];
    x->own = own;
    x->n_lead = x->has_end + n;
    x->n_fed = 0;
    x->room -= (int64_t)x->n_lead;
    const int64_t most = x->room < r->o->max_new ? x->room : r->o->max_new;
    x->most = most > 0 ? (uint32_t)most : 0;
    x->over = x->most == 0;
    g->first_s = x->over ? NAN : 0;
    g->tokens = ckvc_alloc(x->most, sizeof *g->tokens);
    g->nll = ckvc_alloc(x->most, sizeof *g->nll);
}

/* Ends the answer, and begins the next turn if there is one. */
static void end_turn(const generator *r, one *x) {
    const generated *g = x->g;
    const uint32_t t = g->turn;
    x->over = true;
    if (t == r->o->n_then) { return; }
    x->room -= g->n - 1;
    x->end = g->tokens[g->n - 1];
    x->has_end = g->end != GENERATE_STOP; /* the next turn's text then writes the end */
    begin_turn(r, x, t + 1, r->o->then[t], r->o->then_size[t]);
}

/* Takes the next token of x: the i-th of the greedy ones, or one drawn by the i-th logits. Ends the
 * turn where the answer ends with it. */
static ckvc_status append_token(generator *r, one *x, size_t i, ckvc_err *err) {
    generated *g = x->g;
    const size_t V = (size_t)r->shape->vocab;
    be_greedy next = r->next[i];
    if (r->logits) {
        next.id = token_draw(&r->o->how, r->logits + i * V, r->shape->vocab, &x->rng, r->weights,
                             &next.nll);
    }
    CKVC_TRY(nll_check(&next.nll, 1, g->prompt->entry->id, g->prompt->n_tokens + g->n, err));
    g->nll[g->n] = next.nll;
    g->tokens[g->n++] = next.id;
    if (model_shape_stops(r->shape, next.id)) {
        g->end = GENERATE_STOP;
    } else if (g->n == x->most) {
        g->end = x->most < r->o->max_new ? GENERATE_CONTEXT : GENERATE_LENGTH;
    } else {
        return CKVC_OK;
    }
    end_turn(r, x);
    return CKVC_OK;
}

/* ---- prompts: prefill, what is kept, the first token ---- */

static void begin_prompt(const generator *r, one *x, const prompt *p) {
    x->turns = ckvc_calloc(1 + r->o->n_then, sizeof *x->turns);
    for (uint32_t t = 0; t <= r->o->n_then; t++) {
        x->turns[t] = (generated){.prompt = p,
                                  .turn = t,
                                  .compressed = r->compressed,
                                  .end = GENERATE_CONTEXT,
                                  .first_s = NAN};
    }
    x->room = model_shape_context(r->shape) - p->n_tokens;
    begin_turn(r, x, 0, p->tokens + p->n_tokens, p->n_later);
    ckvc_rng_init(&x->rng, r->o->choice.setting.seed, ckvc_rng_key(p->entry->id), STAGE_GENERATE);
}

/* Makes the sequence of what is kept of the k-th worker's prompt. */
static ckvc_status take_over(const generator *r, policy_workers *w, int64_t k, one *x,
                             ckvc_err *err) {
    const policy_kept *kept = NULL;
    const int64_t rows = rows_behind(r->o, x->g->prompt);
    if (r->compressed) { CKVC_TRY(policy_sets_decide(w->sets[k], 0, 0, &kept, err)); }
    CKVC_TRY(sequence_create(w->w[k]->session, kept ? kept->sets : NULL, rows > 0 ? rows - 1 : 0,
                             &x->sequence, err));
    for (uint32_t t = 0; t <= r->o->n_then; t++) {
        generated *g = &x->turns[t];
        g->whole = kept && kept->whole;
        g->entries = (uint64_t)sequence_entries(x->sequence);
        g->cache_bytes = sequence_kept_bytes(x->sequence);
    }
    return CKVC_OK;
}

/* Prefills prompts [n], one for each worker, and takes their first tokens. */
static ckvc_status enter_prompts(generator *r, policy_workers *w, one *items, const prompt *prompts,
                                 int64_t n, ckvc_err *err) {
    prompt with_room[SESSIONS_TOGETHER];
    const prompt *p[SESSIONS_TOGETHER];
    session *s[SESSIONS_TOGETHER];
    const double start = ckvc_now_s();
    for (int64_t k = 0; k < n; k++) {
        begin_prompt(r, &items[k], &prompts[k]);
        with_room[k] = prompts[k];
        with_room[k].n_continuation = (uint32_t)rows_behind(r->o, &prompts[k]);
        p[k] = &with_room[k];
        s[k] = w->w[k]->session;
    }
    CKVC_TRY(policy_workers_prefill(w, p, n, err));
    for (int64_t k = 0; k < n; k++) { CKVC_TRY(take_over(r, w, k, &items[k], err)); }
    CKVC_TRY(sessions_next(s, n, r->logits, r->next, err));
    for (int64_t k = 0; k < n; k++) {
        one *x = &items[k];
        if (!x->over && x->n_lead == 0) { CKVC_TRY(append_token(r, x, (size_t)k, err)); }
        x->turns->first_s = ckvc_now_s() - start;
    }
    return CKVC_OK;
}

/* ---- a batch ---- */

static ckvc_status check_stop(ckvc_err *err) {
    CKVC_FAIL_IF(ckvc_stop_requested(), err, CKVC_E_STOPPED,
                 "stopped; what is printed is complete");
    return CKVC_OK;
}

/* Decodes one token for each of the n items that go on; *n_live receives how many did. */
static ckvc_status decode_step(generator *r, one *items, size_t n, size_t *n_live, ckvc_err *err) {
    size_t live = 0;
    for (size_t i = 0; i < n; i++) {
        one *x = &items[i];
        if (x->over) { continue; }
        r->place[live] = i;
        r->live[live] = x->sequence;
        r->token[live++] = x->n_fed == x->n_lead   ? x->g->tokens[x->g->n - 1]
                           : x->n_fed < x->has_end ? x->end
                                                   : x->own[x->n_fed - x->has_end];
    }
    *n_live = live;
    if (live == 0) { return CKVC_OK; }
    const double start = ckvc_now_s();
    CKVC_TRY(decoder_step(r->decoder, r->live, r->token, (int64_t)live, r->logits, r->next, err));
    const double seconds = ckvc_now_s() - start;
    for (size_t i = 0; i < live; i++) {
        one *x = &items[r->place[i]];
        if (x->n_fed < x->n_lead) {
            x->g->first_s += seconds;
            if (++x->n_fed < x->n_lead) { continue; }
        } else {
            x->g->decode_s += seconds;
            x->g->own_s += seconds / (double)live;
        }
        CKVC_TRY(append_token(r, x, i, err));
    }
    return CKVC_OK;
}

/* Generates for prompts first ... first + n - 1 from one cache. */
static ckvc_status run_way(generator *r, one *items, bool compressed, size_t first, size_t n,
                           ckvc_err *err) {
    const generate_options *o = r->o;
    CKVC_AUTO(policy_workers_close) policy_workers w = {.all = {0}};
    const calibrate_inputs in = {.model = o->model, .backend = o->be, .prompts = o->prompts};
    const worker_options asked = {
        .memory = o->memory, .held = held_bytes(o, n, compressed), .most_prompts = (int64_t)n};
    CKVC_TRY(policy_workers_open(&w, &in, compressed ? &o->choice : &r->none, asked, err));
    r->compressed = compressed;
    for (size_t i = 0, group; i < n; i += group) {
        group = n - i < (size_t)w.all.n ? n - i : (size_t)w.all.n;
        CKVC_TRY(check_stop(err));
        CKVC_TRY(
            enter_prompts(r, &w, &items[i], &o->prompts->items[first + i], (int64_t)group, err));
    }
    policy_workers_close(&w); /* from here on only what is kept is in memory */
    for (size_t live = n; live > 0;) {
        CKVC_TRY(check_stop(err));
        CKVC_TRY(decode_step(r, items, n, &live, err));
    }
    for (size_t i = 0; i < n; i++) { /* frees the memory for the other cache */
        sequence_free(items[i].sequence);
        items[i].sequence = NULL;
    }
    return CKVC_OK;
}

ckvc_status generate(const generate_options *o, generate_seen see, void *ctx, ckvc_err *err) {
    CKVC_AUTO(generator_fini) generator r = {.o = o};
    CKVC_TRY(generator_init(&r, err));
    for (size_t first = 0; first < o->prompts->n; first += o->batch) {
        const size_t rest = o->prompts->n - first, n = rest < o->batch ? rest : o->batch;
        for (size_t w = 0; w < r.n_ways; w++) {
            CKVC_TRY(run_way(&r, r.items[w], o->choice.n > 0 && w + 1 == r.n_ways, first, n, err));
        }
        for (size_t i = 0; i < n; i++) {
            for (uint32_t t = 0; t <= o->n_then; t++) {
                generated ways[2];
                for (size_t w = 0; w < r.n_ways; w++) { ways[w] = r.items[w][i].turns[t]; }
                CKVC_TRY(see(ctx, ways, r.n_ways, err));
            }
        }
        drop_batch(&r);
    }
    return CKVC_OK;
}

/* The larger weight first, of equal ones the lower id. */
static int by_weight(const void *a, const void *b) {
    const token_weight *x = a, *y = b;
    return x->p != y->p ? (x->p < y->p ? 1 : -1) : (x->id > y->id) - (x->id < y->id);
}

/* Draws from w [n], which are exp(logit - the largest); `sum` is the sum of all of them. */
static int32_t draw_token(double top_p, token_weight *w, int32_t n, double sum, ckvc_rng *rng) {
    /* weights below (1 - top_p) / n are never needed: all of them together have at most 1 -
     * top_p */
    const double least = (1 - top_p) / n * sum;
    int32_t n_left = 0, n_in = 0;
    double mass = 0, below = 0;
    for (int32_t v = 0; v < n; v++) {
        if (w[v].p >= least) { w[n_left++] = w[v]; }
    }
    qsort(w, (size_t)n_left, sizeof *w, by_weight);
    while (n_in < n_left && mass < top_p * sum) { mass += w[n_in++].p; }
    const double at = ckvc_rng_double(rng) * mass;
    int32_t i = 0;
    while (i + 1 < n_in && (below += w[i].p) <= at) { i++; }
    return w[i].id;
}

int32_t token_draw(const token_choice *how, const float *logits, int32_t vocab, ckvc_rng *rng,
                   token_weight *scratch, double *nll) {
    double top = (double)logits[0], sum = 0, weights = 0;
    for (int32_t v = 1; v < vocab; v++) { top = (double)logits[v] > top ? (double)logits[v] : top; }
    for (int32_t v = 0; v < vocab; v++) {
        sum += exp((double)logits[v] - top);
        scratch[v] = (token_weight){exp(((double)logits[v] - top) / how->temperature), v};
        weights += scratch[v].p;
    }
    const int32_t id = draw_token(how->top_p, scratch, vocab, weights, rng);
    *nll = log(sum) + top - (double)logits[id];
    return id;
}
