/* From a prefill to the kept sets: what the library keeps of a prefill in tiles is what `ckvc
 * score` keeps, for every table, mode and score; and tiles that are wrong are refused. */
#include "judge/policies/policy_sets.h"
#include "tests/unit/golden_model.h"
#include "tests/unit/sets_fixture.h"

enum { W = 16, ROWS = 64, N_BUDGETS = 3, N_ASKED = 4 };
static const double blocks[N_BUDGETS] = {12, 24, 48}, asked[N_ASKED] = {12, 30, 0.25, 4000};

/* A model's prefill of one prompt, as an engine would have it. */
typedef struct rig {
    bench b;
    model *m;
    session *s;
    uint32_t L, H, G, D, T, rows;
    int32_t *tokens;
    prompt item;
    manifest_entry entry;
    prompt_list prompts;
    float *attention;             /* [L][H][rows][T] */
    float *queries;               /* [L][H][rows][D] */
    float *keys, *values, *plain; /* [L][G][T][D]; keys before the rotation */
    double *inv_freq;             /* [D/2] */
    ckvc_attending *attending;    /* [L] */
    prefill_stats stats;
} rig;

static void see(void *ctx, const prefill_head *h) {
    rig *r = ctx;
    const size_t T = r->T, D = r->D, l = (size_t)h->layer, g = (size_t)h->head,
                 group = (size_t)h->group, rows = r->rows;
    float *keys = r->keys + (l * r->G + g) * T * D, *plain = r->plain + (l * r->G + g) * T * D;
    assert_int_equal(h->n_rows, rows);
    memcpy(r->attention + (l * r->H + g * group) * rows * T, h->attention,
           group * rows * T * sizeof(float));
    for (size_t q = 0; q < group; q++) {
        memcpy(r->queries + (l * r->H + g * group + q) * rows * D,
               h->queries + (q * T + T - rows) * D, rows * D * sizeof(float));
    }
    memcpy(keys, h->keys, T * D * sizeof(float));
    memcpy(r->values + (l * r->G + g) * T * D, h->values, T * D * sizeof(float));
    for (size_t t = 0; t < T; t++) {
        for (size_t i = 0; i < D / 2; i++) {
            const double angle = (double)t * r->inv_freq[i], c = cos(angle), s = sin(angle),
                         x = (double)keys[t * D + i], y = (double)keys[t * D + i + D / 2];
            plain[t * D + i] = (float)(x * c + y * s);
            plain[t * D + i + D / 2] = (float)(y * c - x * s);
        }
    }
}

static void open_rig(rig *r, uint32_t T) {
    *r = (rig){.b = bench_open(2)};
    OK(model_open_path("models/ckvc-tiny-4l", r->b.be, &r->m, &err));
    const model_shape *shape = model_get_shape(r->m);
    r->L = (uint32_t)shape->n_layers;
    r->H = (uint32_t)shape->n_heads;
    r->G = (uint32_t)shape->n_kv_heads;
    r->D = (uint32_t)shape->head_dim;
    r->T = T;
    r->rows = T < ROWS ? T : ROWS;
    r->tokens = calloc(T, sizeof *r->tokens);
    ckvc_rng rng = rng_of(5, T, 0);
    for (uint32_t t = 0; t < T; t++) {
        r->tokens[t] = (int32_t)ckvc_rng_below(&rng, (uint64_t)shape->vocab);
    }
    static char id[] = "p";
    r->entry.id = id;
    r->item = (prompt){.tokens = r->tokens, .n_tokens = T, .entry = &r->entry};
    r->prompts = (prompt_list){.items = &r->item, .n = 1, .max_tokens = T};
    const size_t lh = (size_t)r->L * r->H * r->rows, lg = (size_t)r->L * r->G * T;
    r->attention = calloc(lh * T, sizeof(float));
    r->queries = calloc(lh * r->D, sizeof(float));
    r->keys = calloc(lg * r->D, sizeof(float));
    r->values = calloc(lg * r->D, sizeof(float));
    r->plain = calloc(lg * r->D, sizeof(float));
    r->inv_freq = calloc(r->D / 2, sizeof(double));
    const session_limits limits = {.max_prompt = T, .max_window = W, .max_watched = ROWS};
    OK(sessions_create(r->m, limits, 1, &r->s, &err));
    memcpy(r->inv_freq, session_key_frequencies(r->s), r->D / 2 * sizeof(double));
    r->attending = calloc(r->L, sizeof *r->attending);
    for (uint32_t l = 0; l < r->L; l++) {
        const layer_rule rule = session_layer_rule(r->s, (int32_t)l);
        r->attending[l] =
            (ckvc_attending){.inv_freq = r->inv_freq, .scale = rule.scale, .window = rule.window};
    }
}

/* What the library is shown; r_struct and r_sem are of this kind of alpha. */
static void prefill(rig *r, ckvc_alpha_kind alpha) {
    const prefill_watcher watcher = {.n_rows = ROWS, .queries = true, .on_head = see, .ctx = r};
    const prefill_input in = {.tokens = r->tokens,
                              .n = r->T,
                              .n_total = r->T,
                              .window = W,
                              .alpha_kind = alpha,
                              .watcher = &watcher};
    OK(sessions_prefill(&(prefill_job){r->s, in, &r->stats}, 1, &err));
}

static void close_rig(rig *r) {
    session_destroy(r->s);
    model_close(r->m);
    bench_close(&r->b);
    CKVC_FREE(r->tokens, r->attention, r->queries, r->keys, r->values, r->plain, r->inv_freq,
              r->attending);
}

/* A table with something of everything, whose risk cells lie around the prompt. */
typedef struct kind {
    ckvc_mode mode;
    ckvc_score_kind score;
    uint32_t features;
    bool visible;
    uint32_t keep_window;
} kind;

static ckvc_table *make_table(const rig *r, const kind *k, bool shares) {
    ckvc_table *t = new_start_table(r->L, r->G, 2, 2, blocks, N_BUDGETS, W, NULL);
    ckvc_rng rng = rng_of(3, k->mode * 16 + k->score * 4 + k->features, 1);
    const size_t heads = (size_t)r->L * r->G;
    t->n_query_heads = r->H;
    t->edges_entropy[0] = r->stats.r_struct + 0.01;
    t->edges_ppl[0] = r->stats.r_sem - 0.01;
    t->visible = k->visible;
    t->keep_window = k->keep_window;
    for (size_t i = 0; i < heads * N_BUDGETS; i++) {
        t->weight[i] = (float)t->head_grid[ckvc_rng_below(&rng, t->n_head_actions)];
    }
    for (size_t i = 0; i < (size_t)r->L * 4 * N_BUDGETS; i++) {
        t->tau[i] = (float)t->gate_grid[ckvc_rng_below(&rng, t->n_gate_actions)];
    }
    if (!shares) { return t; }
    assert_int_equal(ckvc_table_add_shares(t, 1), 0);
    t->op = CKVC_OPERATOR_NO_THRESHOLD;
    const uint32_t D = ckvc_features_count(k->features, r->D);
    if (D) { assert_int_equal(ckvc_table_add_learned(t, D), 0); }
    for (size_t i = 0; i < heads * D; i++) {
        t->theta[i] = (float)(ckvc_rng_double(&rng) - 0.5) / 2;
    }
    for (size_t i = 0; D && i < heads; i++) { t->mass[i] = ckvc_rng_double(&rng); }
    for (size_t i = 0; i < heads * N_BUDGETS; i++) { t->share[i] = 2 * ckvc_rng_double(&rng); }
    for (size_t i = 0; i < (size_t)r->L * N_BUDGETS; i++) {
        t->layer_share[i] = 2 * ckvc_rng_double(&rng);
    }
    if (k->mode == CKVC_MODE_LENGTHS) {
        assert_int_equal(ckvc_table_add_lengths(t), 0);
        memcpy(t->length_share, t->layer_share, r->L * N_BUDGETS * sizeof(double));
    }
    if (k->score == CKVC_SCORE_BANK) {
        assert_int_equal(ckvc_table_add_bank(t, 5, r->D), 0);
        for (size_t i = 0; i < (size_t)r->L * r->H * 5 * r->D; i++) {
            t->bank[i] = (float)(4 * ckvc_rng_double(&rng) - 2);
        }
        for (uint32_t b = 0; b < N_BUDGETS; b++) { t->bank_use[b] = (ckvc_bank_use){5, 96}; }
    }
    for (uint32_t b = 0; b < N_BUDGETS; b++) {
        t->c_min[b] = (ckvc_c_min){0.2, 8};
        t->score[b] = ckvc_default_score(k->score, k->features);
        t->score[b].mode = k->mode;
    }
    char breach[256];
    if (ckvc_table_check(t, breach, sizeof breach)) { fail_msg("%s", breach); }
    return t;
}

typedef struct keeper {
    ckvc_prefill *p;
    void *workspace;
    ckvc_request request;
    char message[256];
} keeper;

static keeper keeper_of(const rig *r, const ckvc_table *t, double budget) {
    return (keeper){.request = {.table = t,
                                .model = {r->L, r->H, r->G, r->D, r->inv_freq, 0.0, r->attending},
                                .n_tokens = r->T,
                                .budget = budget}};
}

static void end_keeper(keeper *k) { free(k->workspace); }

/* In a workspace of just the bytes that are asked for, filled with NaNs; again after a begin. */
static bool begin(keeper *k) {
    const size_t wanted = ckvc_prefill_bytes(&k->request),
                 bytes = wanted < 1 << 24 ? wanted : 1 << 24;
    free(k->workspace);
    k->workspace = malloc(bytes);
    memset(k->workspace, 0xFF, bytes);
    k->p = ckvc_prefill_begin(k->workspace, bytes, &k->request, k->message, sizeof k->message);
    return k->p != NULL;
}

static void must_begin(keeper *k) {
    if (!begin(k)) { fail_msg("%s", k->message); }
}

static void must(const keeper *k, int rc) {
    if (rc) { fail_msg("%s", ckvc_prefill_message(k->p)); }
}

/* Hands over a layer's rows in tiles of at most `most`. */
static void feed_rows(keeper *k, const rig *r, uint32_t l, uint32_t h, uint32_t most) {
    const uint32_t R = ckvc_prefill_rows(k->p);
    const bool queries = k->request.model.query_scale > 0;
    for (uint32_t first = 0; first < R; first += most) {
        const uint32_t n = R - first < most ? R - first : most;
        const size_t row = ((size_t)l * r->H + h) * r->rows + r->rows - R + first;
        must(k, queries ? ckvc_prefill_queries(k->p, l, h, first, n, r->queries + row * r->D)
                        : ckvc_prefill_attention(k->p, l, h, first, n, r->attention + row * r->T));
    }
}

static void feed_cache(keeper *k, const rig *r, uint32_t l, uint32_t g, uint32_t most) {
    const float *keys = k->request.model.inv_freq ? r->keys : r->plain;
    for (uint32_t first = 0; first < r->T; first += most) {
        const size_t at = (((size_t)l * r->G + g) * r->T + first) * r->D;
        must(k,
             ckvc_prefill_cache(k->p, l, g, first, r->T - first < most ? r->T - first : most,
                                ckvc_prefill_reads_keys(k->p) ? keys + at : NULL, r->values + at));
    }
}

static void feed_layer(keeper *k, const rig *r, uint32_t l, uint32_t most, bool cache_first) {
    for (uint32_t g = 0; cache_first && g < r->G; g++) { feed_cache(k, r, l, g, most); }
    for (uint32_t h = 0; h < r->H; h++) { feed_rows(k, r, l, h, most); }
    for (uint32_t g = 0; !cache_first && g < r->G; g++) { feed_cache(k, r, l, g, most); }
}

/* A whole prefill, layers in tiles of `most`, the cache before the rows where asked. */
static void feed(keeper *k, const rig *r, uint32_t most, bool cache_first) {
    for (uint32_t l = 0; l < r->L; l++) { feed_layer(k, r, l, most, cache_first); }
    must(k, ckvc_prefill_keep(k->p, ckvc_prefill_reads_r_sem(k->p) ? r->stats.r_sem : NAN));
}

/* Its sets are those of `ckvc score`. */
static void compare_sets(const keeper *k, const rig *r, const policy_kept *kept) {
    for (uint32_t u = 0; u < r->L * r->G; u++) {
        const kept_set *want = &kept->sets[u / r->G];
        const uint32_t set = kept->n_sets > 1 ? u % r->G : 0, from = want->offsets[set];
        uint32_t n;
        const uint32_t *got = ckvc_prefill_set(k->p, u / r->G, u % r->G, &n);
        assert_non_null(got);
        assert_int_equal(n, want->offsets[set + 1] - from);
        assert_memory_equal(got, want->positions + from, n * sizeof *got);
    }
}

/* What two prefills keep of every head, [L][G]. */
static void same_sets(const rig *r, const ckvc_prefill *a, const ckvc_prefill *b) {
    for (uint32_t u = 0; u < r->L * r->G; u++) {
        uint32_t n, m;
        const uint32_t *x = ckvc_prefill_set(a, u / r->G, u % r->G, &n),
                       *y = ckvc_prefill_set(b, u / r->G, u % r->G, &m);
        assert_int_equal(n, m);
        assert_memory_equal(x, y, n * sizeof *x);
    }
}

/* One table at every budget, by rows and by queries, keys rotated and not. */
static void compare_table(const rig *r, const kind *of, bool shares) {
    ckvc_table *t = make_table(r, of, shares);
    CKVC_AUTO(table_file_free_at) table_file *file = table_file_around(t, false);
    const asked_policy list[] = {{.kind = POLICY_TABLE, .table = file}};
    policy_choice choice = {
        .list = list,
        .n = 1,
        .setting = {.window = W,
                    .alpha = of->visible ? CKVC_ALPHA_VISIBLE : CKVC_ALPHA_PAPER,
                    .keep_window = of->keep_window,
                    .budgets = {asked, N_ASKED}},
        .nearest_budget = true,
        .mode = CKVC_MODE_COUNT,
        .score = CKVC_SCORE_COUNT};
    CKVC_AUTO(policy_sets_free_at) policy_sets *sets = NULL;
    prefill_stats stats;
    CKVC_AUTO(session_destroy_at) session *s = NULL;
    session_limits limits = {.max_prompt = r->T, .max_window = W};
    OK(policy_sets_create(&choice, model_get_shape(r->m), &r->prompts, &sets, &err));
    policy_sets_need(sets, &limits);
    OK(sessions_create(r->m, limits, 1, &s, &err));
    OK(policy_sets_prefill(sets, s, &r->item, &stats, &err));
    for (uint32_t b = 0; b < N_ASKED; b++) {
        const policy_kept *kept;
        OK(policy_sets_decide(sets, 0, b, &kept, &err));
        for (int way = 0; way < (of->score == CKVC_SCORE_BANK ? 3 : 4); way++) {
            CKVC_AUTO(end_keeper) keeper k = keeper_of(r, t, asked[b]);
            if (way == 2) {
                k.request.model.query_scale = 1 / sqrt((double)r->D);
                k.request.model.attending = NULL;
            }
            if (way == 3) { k.request.model.inv_freq = NULL; }
            must_begin(&k);
            feed(&k, r, way == 1 ? 7 : 4096, way == 1);
            compare_sets(&k, r, kept);
        }
    }
}

TEST(sets) {
    CKVC_AUTO(close_rig) rig r;
    open_rig(&r, 150);
    for (int visible = 0; visible < 2; visible++) {
        prefill(&r, visible ? CKVC_ALPHA_VISIBLE : CKVC_ALPHA_PAPER);
        compare_table(&r, &(kind){.visible = visible, .keep_window = visible ? 5 : 0}, false);
        for (uint32_t i = 0; i < 16; i++) {
            const bool learned = i / 4 >= 2;
            const kind k = {i % 4, learned ? CKVC_SCORE_LEARNED : i / 4, learned ? i / 4 - 1 : 0,
                            visible, 0};
            compare_table(&r, &k, true);
        }
        for (uint32_t features = 1; features <= 2; features++) {
            compare_table(&r, &(kind){CKVC_MODE_HEADS, CKVC_SCORE_BANK, features, visible, 0},
                          true);
        }
    }
}

/* The attention of the bank's queries to a head's positions, as method.md defines it, [T]. */
static void naive_bank_attention(const rig *r, const ckvc_table *t, uint32_t l, uint32_t g,
                                 double *attention) {
    const uint32_t group = r->H / r->G, n = t->bank_use[0].n_queries, half = r->D / 2;
    const float *keys = r->keys + ((size_t)l * r->G + g) * r->T * r->D;
    CKVC_AUTO_FREE double *e = calloc(r->T, sizeof *e);
    memset(attention, 0, r->T * sizeof *attention);
    for (uint32_t i = 0; i < group * n; i++) {
        const float *q = t->bank + ((size_t)(l * r->H + g * group + i / n) * n + i % n) * r->D;
        const double at = r->T + floor((double)(i % n) * t->bank_use[0].span / n);
        double sum = 0;
        for (uint32_t k = 0; k < r->T; k++) {
            const float *key = keys + (size_t)k * r->D;
            double logit = 0;
            for (uint32_t d = 0; d < half; d++) {
                const double c = cos(at * r->inv_freq[d]), s = sin(at * r->inv_freq[d]);
                logit += ((double)q[d] * c - (double)q[d + half] * s) * (double)key[d] +
                         ((double)q[d + half] * c + (double)q[d] * s) * (double)key[d + half];
            }
            e[k] = exp(logit * r->attending[l].scale);
            sum += e[k];
        }
        for (uint32_t k = 0; k < r->T; k++) {
            attention[k] += e[k] / sum * (e[k] / sum) / (group * n);
        }
    }
    for (uint32_t k = 0; k < r->T; k++) { attention[k] = sqrt(attention[k]); }
}

/* The ranking `bank` is three quarters of the learned log score and a quarter of the bank's
 * attention, of which there is at least 0.3 / T. Logits are floats of about 20 at most, so that
 * logarithms agree to 1e-5. */
TEST(ranks_by_the_bank) {
    CKVC_AUTO(close_rig) rig r;
    open_rig(&r, 150);
    prefill(&r, CKVC_ALPHA_PAPER);
    for (uint32_t features = 1; features <= 2; features++) {
        const kind k = {CKVC_MODE_HEADS, CKVC_SCORE_BANK, features, false, 0};
        CKVC_AUTO(ckvc_table_free_at) ckvc_table *t = make_table(&r, &k, true);
        ckvc_score learned = t->score[0];
        learned.kind = CKVC_SCORE_LEARNED;
        CKVC_AUTO(end_keeper) keeper with = keeper_of(&r, t, 12), without = with;
        CKVC_AUTO_FREE double *attention = calloc(r.T, sizeof *attention);
        without.request.score = &learned;
        must_begin(&with);
        must_begin(&without);
        feed(&with, &r, 7, true);
        feed(&without, &r, 4096, false);
        uint32_t n_little = 0;
        for (uint32_t u = 0; u < r.L * r.G; u++) {
            const double *s = ckvc_prefill_scores(without.p, u / r.G, u % r.G),
                         *got = ckvc_prefill_scores(with.p, u / r.G, u % r.G);
            naive_bank_attention(&r, t, u / r.G, u % r.G, attention);
            for (uint32_t i = 0; i < r.T; i++) {
                const float *value = r.values + ((size_t)u * r.T + i) * r.D;
                const bool little = attention[i] < 0.3 / r.T;
                const double counts = little ? 0.3 / r.T : attention[i],
                             want = 0.75 * s[i] + 0.25 * log(counts * ckvc_norm(value, r.D));
                assert_float_equal(got[i], want, 1e-5);
                n_little += little;
            }
        }
        assert_true(n_little > 0 && n_little < r.L * r.G * r.T);
        with.request.model.attending = NULL;
        assert_false(begin(&with));
        assert_non_null(strstr(with.message, "how layers attend (attending, or query_scale)"));
        with.p = NULL;
        t->bank_use[1].n_queries = 4;
        char breach[256];
        assert_int_equal(ckvc_table_check(t, breach, sizeof breach), -1);
        assert_non_null(strstr(breach, "BANKUSE[1]: 4 queries over 96 positions, but BANKUSE[0]"));
    }
}

/* ---- what is refused ---- */

static void refused(const rig *r, const ckvc_request *request, const char *why) {
    CKVC_AUTO(end_keeper) keeper k = keeper_of(r, request->table, request->budget);
    k.request = *request;
    assert_false(begin(&k));
    if (!strstr(k.message, why)) { fail_msg("wanted \"%s\", got \"%s\"", why, k.message); }
}

TEST(begin_refuses) {
    CKVC_AUTO(close_rig) rig r;
    open_rig(&r, 60);
    const kind learned = {CKVC_MODE_HEADS, CKVC_SCORE_LEARNED, .features = 1};
    CKVC_AUTO(ckvc_table_free_at) ckvc_table *t = make_table(&r, &learned, true);
    const keeper good = keeper_of(&r, t, 24);
#define REFUSED(change, why)                                                                       \
    {                                                                                              \
        ckvc_request q = good.request;                                                             \
        change;                                                                                    \
        refused(&r, &q, why);                                                                      \
    }
    REFUSED(q.model.n_layers++, "is for 4 layers x 3 KV heads, the model has 5 x 3 KV heads")
    REFUSED(q.model.n_kv_heads = 1, "the model has 4 x 1 KV heads")
    REFUSED(q.model.n_kv_heads = 0, "the model has 4 x 0 KV heads")
    REFUSED(q.model.n_query_heads++, "query heads, the model has")
    REFUSED(q.model.head_dim += 2, "learned ranking is for keys of")
    REFUSED(q.model.head_dim = 0, "the model's keys have 0 values")
    REFUSED(q.model.head_dim = UINT32_MAX - 1, "the model's keys have 4294967294 values")
    REFUSED(q.model.head_dim--, "and pairs to rotate")
    REFUSED(q.model.query_scale = NAN, "query_scale is nan")
    REFUSED(q.model.query_scale = -1, "query_scale is -1")
    REFUSED((q.model.query_scale = 1, q.model.inv_freq = NULL), "keys after the rotation")
    REFUSED(q.n_tokens = 0, "the prompt has 0 tokens")
    REFUSED((q.n_tokens = W, q.budget = 0), "a budget of 0: want whole tokens")
    REFUSED(q.budget = 0, "a budget of 0: want whole tokens")
    REFUSED(q.budget = 12.5, "a budget of 12.5: want whole tokens")
    REFUSED(q.budget = NAN, "a budget of nan")
    REFUSED(q.budget = INFINITY, "a budget of inf")
    REFUSED(q.budget = 8, "a budget of 8 tokens is below what every head must keep; the least is 9")
    REFUSED(q.budget = 0.001,
            "a budget of 0 tokens is below what every head must keep; the least is 9")
    /* what shares cannot stand beside is a probe's */
    t->op = CKVC_OPERATOR_MEAN_POOL;
    REFUSED((void)q, "a probe's table, fitted for the operator mean-pool")
    t->op = CKVC_OPERATOR_NO_THRESHOLD;
    t->head_axis = 1;
    REFUSED((void)q, "is for 4 layers x 3 query heads")
    t->head_axis = 0;
    CKVC_AUTO(ckvc_table_free_at) ckvc_table *probe = make_table(&r, &(kind){0}, false);
    probe->op = CKVC_OPERATOR_NO_THRESHOLD;
    REFUSED(q.table = probe, "a probe's table, fitted for the operator no-threshold")
#undef REFUSED
    /* a workspace that is none, too small, or not aligned */
    char message[256];
    const size_t bytes = ckvc_prefill_bytes(&good.request);
    CKVC_AUTO_FREE char *buffer = malloc(bytes + 1);
    assert_null(ckvc_prefill_begin(NULL, bytes, &good.request, message, sizeof message));
    assert_non_null(strstr(message, "a workspace of"));
    assert_null(ckvc_prefill_begin(buffer, 16, &good.request, message, sizeof message));
    assert_non_null(strstr(message, "a workspace of 16 bytes: want"));
    assert_null(ckvc_prefill_begin(buffer + 1, bytes, &good.request, NULL, 0));
    assert_non_null(ckvc_prefill_begin(buffer, bytes, &good.request, message, sizeof message));
    /* sizes beyond memory */
    ckvc_request huge = good.request;
    huge.model = (ckvc_geometry){UINT32_MAX, UINT32_MAX, UINT32_MAX, 64, NULL, 0, NULL};
    huge.n_tokens = UINT32_MAX;
    assert_true(ckvc_prefill_bytes(&huge) == SIZE_MAX);
}

/* A call on p has failed, for this reason. */
static void says(const ckvc_prefill *p, int rc, const char *why) {
    assert_int_equal(rc, -1);
    if (!strstr(ckvc_prefill_message(p), why)) { fail_msg("%s", ckvc_prefill_message(p)); }
}

/* A tile that is not the next one leaves everything as it was, and says what is wanted. */
TEST(tiles) {
    CKVC_AUTO(close_rig) rig r;
    open_rig(&r, 60);
    prefill(&r, CKVC_ALPHA_PAPER);
    CKVC_AUTO(ckvc_table_free_at)
    ckvc_table *t =
        make_table(&r, &(kind){CKVC_MODE_HEADS, CKVC_SCORE_LEARNED, .features = 1}, true);
    CKVC_AUTO(end_keeper) keeper k = keeper_of(&r, t, 24), plain = k;
    must_begin(&k);
    must_begin(&plain);
    ckvc_prefill *p = k.p;
    CKVC_AUTO_FREE float *bad = calloc((size_t)r.T * r.D + r.rows * r.T, sizeof *bad);
    const float *rows = r.attention;
    uint32_t n = 1;
    assert_int_equal(ckvc_prefill_rows(p), 60);
    assert_string_equal(ckvc_prefill_message(p), "");
    says(p, ckvc_prefill_attention(p, 0, 1, 0, 1, rows),
         "attention: got 1 rows from 0 on of head 1 in layer 0; want at most 60 from 0 on of "
         "head 0 in layer 0");
    says(p, ckvc_prefill_attention(p, 0, 0, 1, 1, rows), "got 1 rows from 1 on");
    says(p, ckvc_prefill_attention(p, 0, 0, 0, 0, rows), "got 0 rows");
    says(p, ckvc_prefill_attention(p, 0, 0, 0, 61, rows), "got 61 rows");
    says(p, ckvc_prefill_attention(p, 0, UINT32_MAX, 0, 1, rows), "of head 4294967295");
    says(p, ckvc_prefill_attention(p, 1, 0, 0, 1, rows), "in layer 1; want");
    says(p, ckvc_prefill_queries(p, 0, 0, 0, 1, r.queries), "attention rows are wanted");
    says(p, ckvc_prefill_cache(p, 0, 0, 0, r.T + 1, r.keys, r.values), "got 61 positions");
    says(p, ckvc_prefill_cache(p, 0, 0, UINT32_MAX, 2, r.keys, r.values), "from 4294967295 on");
    bad[r.T + 3] = -0.5f;
    says(p, ckvc_prefill_attention(p, 0, 0, 0, 2, bad),
         "attention of head 0 in layer 0: rows 1 holds a value that is below 0 or not finite");
    bad[r.T + 3] = NAN;
    says(p, ckvc_prefill_attention(p, 0, 0, 0, 2, bad), "rows 1 holds a value");
    bad[r.T + 3] = 0;
    bad[3 * r.D] = INFINITY;
    says(p, ckvc_prefill_cache(p, 0, 0, 0, 4, r.keys, bad),
         "positions 3 holds a value that is not");
    says(p, ckvc_prefill_cache(p, 0, 0, 0, 4, bad, r.values), "positions 3 holds a value");
    says(p, ckvc_prefill_keep(p, 20),
         "the prefill is not whole: attention of head 0 in layer 0 is "
         "missing from 0 on");
    assert_null(ckvc_prefill_set(p, 0, 0, &n));
    assert_int_equal(n, 0);
    feed_rows(&k, &r, 0, 0, 60);
    says(p, ckvc_prefill_attention(p, 0, 0, 0, 60, rows),
         "of head 0 in layer 0; want at most 60 "
         "from 0 on of head 1");
    for (uint32_t h = 1; h < r.H; h++) { feed_rows(&k, &r, 0, h, 60); }
    says(p, ckvc_prefill_attention(p, 1, 0, 0, 1, rows), "layer 0 is not whole yet");
    says(p, ckvc_prefill_keep(p, 20), "the cache of head 0 in layer 0 is missing from 0 on");
    for (uint32_t g = 0; g < r.G; g++) { feed_cache(&k, &r, 0, g, 60); }
    for (uint32_t l = 1; l < r.L; l++) { feed_layer(&k, &r, l, 11, false); }
    says(p, ckvc_prefill_attention(p, 4, 0, 0, 1, rows), "all 4 layers have theirs");
    must(&k, ckvc_prefill_keep(p, r.stats.r_sem));
    says(p, ckvc_prefill_keep(p, r.stats.r_sem), "its sets are there already");
    says(p, ckvc_prefill_cache(p, 0, 0, 0, 1, r.keys, r.values), "all 4 layers have theirs");
    assert_null(ckvc_prefill_set(p, r.L, 0, &n));
    assert_null(ckvc_prefill_set(p, 0, r.G, &n));
    /* all that was refused has left no trace */
    feed(&plain, &r, 60, false);
    same_sets(&r, p, plain.p);

    /* Queries come before the cache of their KV head; rows of nothing are none. */
    k.request.model.query_scale = 0.5;
    assert_true(begin(&k));
    p = k.p;
    says(p, ckvc_prefill_attention(p, 0, 0, 0, 1, rows), "so queries are wanted in its place");
    feed_rows(&k, &r, 0, 0, 60);
    says(p, ckvc_prefill_cache(p, 0, 0, 0, 4, r.keys, r.values), "its queries come before it");
    k.request.model.query_scale = 0;
    assert_true(begin(&k));
    p = k.p;
    memset(r.attention, 0, (size_t)r.L * r.H * r.rows * r.T * sizeof *r.attention);
    for (uint32_t l = 0; l < r.L; l++) { feed_layer(&k, &r, l, 60, false); }
    says(p, ckvc_prefill_keep(p, 20), "the attention rows are all 0");
}

/* Scores that read no attention want no rows, and none that read no keys want keys. */
TEST(needs) {
    static const struct {
        kind of;
        uint32_t rows;
        bool keys;
    } cases[] = {{{CKVC_MODE_HEADS, CKVC_SCORE_LEARNED, .features = 2}, 0, true},
                 {{CKVC_MODE_SHARED, CKVC_SCORE_LEARNED, .features = 2}, 0, true},
                 {{CKVC_MODE_LAYERS, CKVC_SCORE_LEARNED, .features = 1}, 60, true},
                 {{CKVC_MODE_LAYERS, CKVC_SCORE_WINDOW, .features = 0}, 32, false},
                 {{CKVC_MODE_HEADS, CKVC_SCORE_PAPER, .features = 0}, 16, false},
                 {{CKVC_MODE_SHARED, CKVC_SCORE_PAPER, .features = 0}, 16, false}};
    CKVC_AUTO(close_rig) rig r;
    open_rig(&r, 60);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        CKVC_AUTO(ckvc_table_free_at) ckvc_table *t = make_table(&r, &cases[i].of, true);
        CKVC_AUTO(end_keeper) keeper k = keeper_of(&r, t, 24);
        assert_true(begin(&k));
        assert_int_equal(ckvc_prefill_rows(k.p), cases[i].rows);
        assert_int_equal(ckvc_prefill_reads_keys(k.p), cases[i].keys);
        assert_int_equal(ckvc_prefill_reads_r_sem(k.p), 0);
    }
    prefill(&r, CKVC_ALPHA_PAPER); /* the paper's own table has risk cells */
    CKVC_AUTO(ckvc_table_free_at) ckvc_table *t = make_table(&r, &(kind){0}, false);
    CKVC_AUTO(end_keeper) keeper k = keeper_of(&r, t, 24);
    must_begin(&k);
    assert_int_equal(ckvc_prefill_rows(k.p), 16);
    assert_int_equal(ckvc_prefill_reads_keys(k.p), 0);
    assert_int_equal(ckvc_prefill_reads_r_sem(k.p), 1);
    for (uint32_t l = 0; l < r.L; l++) { feed_layer(&k, &r, l, 11, false); }
    says(k.p, ckvc_prefill_keep(k.p, 0), "r_sem is 0: want the perplexity of the prompt's last 16");
    says(k.p, ckvc_prefill_keep(k.p, NAN), "r_sem is nan");
    must(&k, ckvc_prefill_keep(k.p, r.stats.r_sem));
}

/* Prompts up to the window are kept whole by every table, under budgets below the floor, too, in a
 * workspace for one more token; whether tiles come or not. */
TEST(short_prompts) {
    static const kind kinds[] = {{CKVC_MODE_SHARED, CKVC_SCORE_PAPER, .keep_window = 4},
                                 {CKVC_MODE_HEADS, CKVC_SCORE_PAPER, .features = 0},
                                 {CKVC_MODE_LAYERS, CKVC_SCORE_WINDOW, .features = 0},
                                 {CKVC_MODE_HEADS, CKVC_SCORE_LEARNED, .features = 1},
                                 {CKVC_MODE_SHARED, CKVC_SCORE_LEARNED, .features = 2}};
    static const double budgets[] = {1, 4, 0.001, 0.25, 4000};
    CKVC_AUTO(close_rig) rig r;
    open_rig(&r, 60);
    prefill(&r, CKVC_ALPHA_PAPER);
    for (size_t i = 0; i < 5 * 5 * W * 4; i++) {
        CKVC_AUTO(ckvc_table_free_at) ckvc_table *t = make_table(&r, &kinds[i % 5], i % 5 > 0);
        CKVC_AUTO(end_keeper) keeper k = keeper_of(&r, t, budgets[i / 5 % 5]);
        const bool tiles = i / 25 % 2, queries = i / 50 % 2;
        const uint32_t T = (uint32_t)(i / 100) + 1;
        k.request.model.query_scale = queries;
        k.request.n_tokens = W + 1;
        const size_t bytes = ckvc_prefill_bytes(&k.request);
        k.request.n_tokens = T;
        assert_true(ckvc_prefill_bytes(&k.request) <= bytes);
        must_begin(&k);
        assert_int_equal(ckvc_prefill_keeps_all(k.p), 1);
        assert_true(ckvc_prefill_rows(k.p) <= T && !ckvc_prefill_reads_r_sem(k.p) &&
                    !ckvc_prefill_reads_keys(k.p));
        for (uint32_t l = 0; tiles && l < r.L; l++) {
            must(&k, queries ? ckvc_prefill_queries(k.p, l, 0, 0, T, r.queries)
                             : ckvc_prefill_attention(k.p, l, 0, 0, T, r.attention));
            must(&k, ckvc_prefill_cache(k.p, l, 0, 0, T, r.keys, r.values));
        }
        must(&k, ckvc_prefill_keep(k.p, NAN));
        assert_int_equal(ckvc_prefill_keep(k.p, 1), -1);
        for (uint32_t u = 0; u < r.L * r.G; u++) {
            uint32_t n;
            const uint32_t *set = ckvc_prefill_set(k.p, u / r.G, u % r.G, &n);
            assert_int_equal(n, T);
            for (uint32_t at = 0; at < T; at++) { assert_int_equal(set[at], at); }
        }
        k.request.n_tokens = W + 1;
        k.request.budget = 24;
        assert_true(begin(&k) && !ckvc_prefill_keeps_all(k.p));
    }
}

/* Another score, mode and floor than the table's, as if the table had them; and one prefill asked
 * for another budget and floor, as if it had been begun for them. */
TEST(asked) {
    CKVC_AUTO(close_rig) rig r;
    open_rig(&r, 150);
    prefill(&r, CKVC_ALPHA_PAPER);
    CKVC_AUTO(ckvc_table_free_at)
    ckvc_table *t = make_table(&r, &(kind){CKVC_MODE_HEADS, CKVC_SCORE_LEARNED, .features = 1},
                               true),
               *other = ckvc_table_clone(t);
    const double floor = 0.7, none = 0;
    uint32_t n;
    ckvc_score window = ckvc_default_score(CKVC_SCORE_WINDOW, t->score->features);
    window.mode = CKVC_MODE_LAYERS;
    for (uint32_t b = 0; b < N_BUDGETS; b++) {
        other->score[b] = window;
        other->c_min[b].floor = floor;
    }
    keeper way = keeper_of(&r, t, 60), want = keeper_of(&r, other, 60);
    way.request.score = &window;
    way.request.floor = &floor;
    assert_true(begin(&way) && begin(&want));
    feed(&way, &r, 4096, false);
    feed(&want, &r, 4096, false);
    same_sets(&r, way.p, want.p);
    free(want.workspace);

    for (uint32_t b = 0; b < N_BUDGETS; b++) { other->c_min[b].floor = none; }
    want = keeper_of(&r, other, 0.25);
    assert_true(begin(&want));
    feed(&want, &r, 4096, false);
    assert_int_equal(ckvc_prefill_again(way.p, 0.25, &none), 0);
    assert_null(ckvc_prefill_set(way.p, 0, 0, &n)); /* not chosen yet */
    assert_null(ckvc_prefill_scores(way.p, 0, 0));
    says(way.p, ckvc_prefill_keep_in(way.p, 2, 0), "risk cell 2, 0: the table has 2 x 2");
    must(&way, ckvc_prefill_keep_in(way.p, 0, 1));
    same_sets(&r, way.p, want.p);
    assert_int_equal(ckvc_prefill_candidates(way.p, 0), r.T);
    assert_int_equal(ckvc_prefill_candidates(way.p, r.L), 0);
    assert_null(ckvc_prefill_scores(way.p, r.L, 0));

    /* a refused budget leaves what was there */
    says(way.p, ckvc_prefill_keep_in(way.p, 0, 0), "there already");
    says(way.p, ckvc_prefill_again(way.p, 3, NULL), "the least is 9");
    says(way.p, ckvc_prefill_again(way.p, -1, NULL), "");
    says(way.p, ckvc_prefill_again(way.p, 60, &(double){1.5}), "a floor of 1.5: want 0 to 1");
    same_sets(&r, way.p, want.p);
    free(want.workspace);
    free(way.workspace);

    /* blocks that rank by different scores are two prefills */
    t->score[1] = window;
    way = keeper_of(&r, t, t->budgets[0]);
    assert_true(begin(&way));
    says(way.p, ckvc_prefill_again(way.p, t->budgets[1], NULL), "ranks by another score");
    free(way.workspace);
    const struct {
        ckvc_score score;
        const char *why;
    } bad[] = {{{.kind = 9}, "score 9 in mode 0"},
               {{.mode = 9}, "in mode 9"},
               {{.kind = CKVC_SCORE_WINDOW, .window = 8, .pool = 4}, "an odd pool"},
               {{.kind = CKVC_SCORE_LEARNED, .features = 2}, "which the table does not have"}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        ckvc_request q = way.request;
        q.score = &bad[i].score;
        refused(&r, &q, bad[i].why);
    }
    CKVC_AUTO(ckvc_table_free_at) ckvc_table *plain = make_table(&r, &(kind){0}, false);
    ckvc_request q = keeper_of(&r, plain, 60).request;
    q.score = &window;
    refused(&r, &q, "mode layers: the table has no such shares");
}

RUN_TESTS(NULL, NULL)
