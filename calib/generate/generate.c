/* Generation: see generate.h. */
#include "calib/generate/generate.h"

#include "lib/base/progress.h"
#include "lib/model/decoder.h"

enum { STAGE_GENERATE = 32 };

typedef struct one { /* of a batch, in one way */
    generated g;
    sequence *sequence;
    ckvc_rng rng;
    uint32_t most; /* tokens */
    bool over;
} one;

typedef struct generator {
    const generate_options *o;
    policy_sets *policies; /* NULL: none */
    decoder *decoder;
    const model_shape *shape;
    session_limits limits;
    size_t n_ways;
    one *items[2];   /* [batch] each: the full cache, the policy */
    float *logits;   /* [batch][V], NULL when greedy */
    sequence **live; /* [batch], with place and token: those that go on */
    size_t *place;
    int32_t *token;
    be_greedy *next;       /* [batch] */
    token_weight *weights; /* [V], NULL when greedy */
} generator;

const char *generate_end_name(generate_end end) {
    static const char *const names[GENERATE_ENDS] = {"stop", "length", "context"};
    return names[end];
}

static void drop_batch(generator *r) {
    for (size_t i = 0; i < r->n_ways * r->o->batch; i++) {
        one *x = &r->items[i / r->o->batch][i % r->o->batch];
        sequence_free(x->sequence);
        CKVC_FREE(x->g.tokens, x->g.nll);
        *x = (one){0};
    }
}

static void generator_fini(generator *r) {
    drop_batch(r);
    policy_sets_free(r->policies);
    decoder_destroy(r->decoder);
    CKVC_FREE(r->items[0], r->items[1], r->logits, r->live, r->place, r->token, r->next,
              r->weights);
}

/* Then logits stay with the backend. */
static bool is_greedy(const generate_options *o) { return o->how.temperature == 0; }

static session_limits limits_of(const generate_options *o) {
    return (session_limits){.max_prompt = o->prompts->max_tokens,
                            .max_window = o->choice.setting.window};
}

static ckvc_status generator_init(generator *r, ckvc_err *err) {
    const generate_options *o = r->o;
    const size_t batch = o->batch;
    r->shape = model_get_shape(o->model);
    r->limits = limits_of(o);
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
    if (o->choice.n > 0) {
        CKVC_TRY(policy_sets_create(&o->choice, r->shape, o->prompts, &r->policies, err));
        policy_sets_need(r->policies, &r->limits);
    }
    return decoder_create(o->model, o->batch, &r->decoder, err);
}

size_t generate_bytes(const generate_options *o, const backend *be) {
    const model_shape *s = model_get_shape(o->model);
    const session_limits limits = limits_of(o);
    const size_t rows = (size_t)s->n_layers * (size_t)s->n_kv_heads *
                        (limits.max_prompt + (size_t)o->max_new),
                 held = o->batch * rows * 2 * (size_t)s->head_dim * sizeof(float),
                 logits = is_greedy(o) ? 0
                                       : (size_t)s->vocab *
                                             (o->batch * sizeof(float) + sizeof(token_weight));
    return held + logits + session_bytes(s, limits) + session_scratch_bytes(be, s, limits);
}

/* ---- a token ---- */

/* The next token of x: the i-th of the greedy ones, or drawn by the i-th logits; whether the
 * sequence ends with it. */
static void take_token(generator *r, one *x, size_t i) {
    generated *g = &x->g;
    const size_t V = (size_t)r->shape->vocab;
    be_greedy next = r->next[i];
    if (r->logits) {
        next.id = token_draw(&r->o->how, r->logits + i * V, r->shape->vocab, &x->rng, r->weights,
                             &next.nll);
    }
    g->nll[g->n] = next.nll;
    g->tokens[g->n++] = next.id;
    x->over = true;
    if (model_shape_stops(r->shape, next.id)) {
        g->end = GENERATE_STOP;
    } else if (g->n == x->most) {
        g->end = x->most < r->o->max_new ? GENERATE_CONTEXT : GENERATE_LENGTH;
    } else {
        x->over = false;
    }
}

/* ---- a prompt: prefill, what is kept, the first token ---- */

static ckvc_status enter(generator *r, session *s, one *x, const prompt *p, ckvc_err *err) {
    const int64_t room = model_shape_context(r->shape) - p->n_tokens;
    const uint32_t most = room < r->o->max_new ? (uint32_t)room : r->o->max_new;
    generated *g = &x->g;
    prefill_stats stats;
    const double start = ckvc_now_s();
    const kept_set *sets = NULL;
    x->most = most;
    x->over = most == 0;
    g->prompt = p;
    g->end = GENERATE_CONTEXT;
    g->tokens = ckvc_alloc(most, sizeof *g->tokens);
    g->nll = ckvc_alloc(most, sizeof *g->nll);
    ckvc_rng_init(&x->rng, r->o->choice.setting.seed, ckvc_rng_key(p->entry->id), STAGE_GENERATE);
    if (g->compressed) {
        prompt with_room = *p;
        const policy_kept *kept;
        with_room.n_continuation = most;
        CKVC_TRY(policy_sets_prefill(r->policies, s, &with_room, &stats, err));
        CKVC_TRY(policy_sets_decide(r->policies, 0, 0, &kept, err));
        sets = kept->sets;
    } else {
        const prefill_input in = {.tokens = p->tokens,
                                  .n = p->n_tokens,
                                  .n_total = (int64_t)p->n_tokens + most,
                                  .window = r->limits.max_window,
                                  .alpha_kind = r->o->choice.setting.alpha};
        CKVC_TRY(session_prefill(s, &in, &stats, err));
    }
    CKVC_TRY(sequence_create(s, sets, most > 0 ? most - 1 : 0, &x->sequence, err));
    g->entries = (uint64_t)sequence_entries(x->sequence);
    g->cache_bytes = g->entries * 2 * (size_t)r->shape->head_dim * sizeof(float);
    if (!x->over) {
        CKVC_TRY(r->logits ? session_next_logits(s, r->logits, err)
                           : session_next_greedy(s, r->next, err));
        take_token(r, x, 0);
    }
    g->first_s = ckvc_now_s() - start;
    return CKVC_OK;
}

/* ---- a batch ---- */

static ckvc_status go_on(ckvc_err *err) {
    CKVC_FAIL_IF(ckvc_stop_requested(), err, CKVC_E_STOPPED,
                 "stopped; what is printed is complete");
    return CKVC_OK;
}

/* A token of each of n items that go on; *n_live: how many went. */
static ckvc_status step(generator *r, one *items, size_t n, size_t *n_live, ckvc_err *err) {
    size_t live = 0;
    for (size_t i = 0; i < n; i++) {
        if (items[i].over) { continue; }
        r->place[live] = i;
        r->live[live] = items[i].sequence;
        r->token[live++] = items[i].g.tokens[items[i].g.n - 1];
    }
    *n_live = live;
    if (live == 0) { return CKVC_OK; }
    const double start = ckvc_now_s();
    CKVC_TRY(r->logits
                 ? decoder_step(r->decoder, r->live, r->token, (int64_t)live, r->logits, err)
                 : decoder_step_greedy(r->decoder, r->live, r->token, (int64_t)live, r->next, err));
    for (size_t i = 0; i < live; i++) { take_token(r, &items[r->place[i]], i); }
    const double seconds = ckvc_now_s() - start;
    for (size_t i = 0; i < live; i++) {
        items[r->place[i]].g.decode_s += seconds;
        items[r->place[i]].g.own_s += seconds / (double)live;
    }
    return CKVC_OK;
}

/* Prompts first ... first + n - 1 in one way. */
static ckvc_status run_way(generator *r, one *items, bool compressed, size_t first, size_t n,
                           ckvc_err *err) {
    CKVC_AUTO(session_destroy_at) session *s = NULL;
    CKVC_TRY(session_create(r->o->model, r->limits, &s, err));
    for (size_t i = 0; i < n; i++) {
        items[i].g.compressed = compressed;
        CKVC_TRY(go_on(err));
        CKVC_TRY(enter(r, s, &items[i], &r->o->prompts->items[first + i], err));
    }
    session_destroy(ckvc_take(&s)); /* from here on there is what is kept, and no more */
    for (size_t live = n; live > 0;) {
        CKVC_TRY(go_on(err));
        CKVC_TRY(step(r, items, n, &live, err));
    }
    for (size_t i = 0; i < n; i++) { /* the other way has the memory to itself */
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
            generated ways[2];
            for (size_t w = 0; w < r.n_ways; w++) { ways[w] = r.items[w][i].g; }
            CKVC_TRY(see(ctx, ways, r.n_ways, err));
        }
        drop_batch(&r);
    }
    return CKVC_OK;
}
