/* What policies keep of the golden prompts: sets by a table's shares against an independent
 * program's, their counterparts under other scores, and what every reference promises. */
#include "judge/policies/head_scores.h"
#include "judge/policies/policy_sets.h"
#include "tests/unit/golden_rig.h"
#include "tests/unit/sets_fixture.h"

enum { L = 4, G = 3, N_PROMPTS = 3, N_BUDGETS = 3 };
static const double budgets[N_BUDGETS] = {12, 24, 48};

static int open_rig(void **state) {
    rig_open(bench_open(2), "models/ckvc-tiny-4l", "tests/golden/budgets/ckvc-tiny-4l.json");
    assert_int_equal(rig.prompts->n, N_PROMPTS);
    return 0;
}

static int close_rig(void **state) {
    rig_close();
    return 0;
}

/* Shares from the demand of prompt i; those of layers go up by 1, 2, 3, 4. */
/* How many positions each set of a prompt may hold under block b, [L][G] or [L]: those of a length
 * for each layer are those of layer shares, of equal shares the least. */
static void capacities_of(const ckvc_table *t, uint32_t b, ckvc_mode mode, uint32_t T,
                          uint32_t *c) {
    const bool heads = mode == CKVC_MODE_HEADS;
    const uint32_t B = (uint32_t)budgets[b],
                   least = ckvc_head_floor(t->c_min[b].floor, (uint32_t)t->c_min[b].recent, B, T);
    assert_int_equal(ckvc_capacities((heads ? t->share : t->layer_share) + b,
                                     heads ? t->n_layers * t->n_heads : t->n_layers, t->n_budgets,
                                     B, T, least, c),
                     0);
    if (mode == CKVC_MODE_LENGTHS) {
        for (uint32_t l = 0; l < L; l++) {
            for (uint32_t k = 0; k < L; k++) {
                const bool alike =
                    t->length_share[k * N_BUDGETS + b] == t->length_share[l * N_BUDGETS + b];
                if (alike && c[k] < c[l]) { c[l] = c[k]; }
            }
        }
    }
}

static table_file *table_of(size_t i, ckvc_mode mode, ckvc_score_kind kind) {
    ckvc_table *t = new_start_table(L, G, 1, 1, budgets, N_BUDGETS, 16, NULL);
    t->n_query_heads = (uint32_t)rig.shape->n_heads;
    assert_int_equal(ckvc_table_add_shares(t, 1), 0);
    for (uint32_t b = 0; b < N_BUDGETS; b++) {
        const json_t *demand = of_budget(of_prompt(i, "demand"), budgets[b]);
        for (uint32_t u = 0; u < L * G; u++) {
            t->share[u * N_BUDGETS + b] =
                json_number_value(cell_of(demand, u / G, u % G)) / budgets[b];
            t->layer_share[u / G * N_BUDGETS + b] = (1 + u / G) / 2.5;
        }
        t->c_min[b] = (ckvc_c_min){0.2, 8};
        t->score[b] = kind == CKVC_SCORE_WINDOW
                          ? (ckvc_score){kind, .window = 32, .pool = 7, .norm = 1, .mode = mode}
                          : (ckvc_score){kind, .mode = mode};
    }
    if (mode == CKVC_MODE_LENGTHS) { /* layers 1 and 3 are alike */
        assert_int_equal(ckvc_table_add_lengths(t), 0);
        memcpy(t->layer_share + 3 * N_BUDGETS, t->layer_share + N_BUDGETS, sizeof budgets);
        memcpy(t->length_share, t->layer_share, L * sizeof budgets);
    }
    return table_file_around(t, false);
}

typedef struct keeper {
    policy_choice choice;
    policy_sets *k;
    session *s;
    prefill_stats stats;
} keeper;

static void open_keeper(keeper *w, const asked_policy *list, size_t n) {
    w->choice =
        (policy_choice){.list = list,
                        .n = n,
                        .texts = {.first = rig.instruction, .n_first = (uint32_t)rig.n_instruction},
                        .setting = {.window = 16, .budgets = {budgets, N_BUDGETS}},
                        .mode = CKVC_MODE_COUNT,
                        .score = CKVC_SCORE_COUNT};
    OK(policy_sets_create(&w->choice, rig.shape, rig.prompts, &w->k, &err));
    session_limits limits = {.max_prompt = rig.prompts->max_tokens, .max_window = 16};
    policy_sets_need(w->k, &limits);
    OK(sessions_create(rig.m, limits, 1, &w->s, &err));
}

static void enter(keeper *w, const prompt *p) {
    OK(policy_sets_prefill(w->k, w->s, p, &w->stats, &err));
}

static void close_keeper(keeper *w) {
    policy_sets_free(w->k);
    session_destroy(w->s);
}

static uint32_t size_of(const policy_kept *kept, uint32_t l, uint32_t g) {
    return kept->sets[l].offsets[g + 1] - kept->sets[l].offsets[g];
}

/* Sets ascend inside the prompt, and are counted. */
static const policy_kept *decide(keeper *w, size_t i, uint32_t b, uint32_t T) {
    const policy_kept *kept;
    uint64_t entries = 0;
    OK(policy_sets_decide(w->k, i, b, &kept, &err));
    for (uint32_t l = 0; l < L; l++) {
        assert_int_equal(kept->sets[l].n_sets, kept->n_sets);
        for (uint32_t g = 0; g < kept->n_sets; g++) {
            const uint32_t *set = kept->sets[l].positions + kept->sets[l].offsets[g],
                           n = size_of(kept, l, g);
            for (uint32_t k = 1; k < n; k++) { assert_true(set[k - 1] < set[k]); }
            assert_true(n == 0 || set[n - 1] < T);
            entries += kept->n_sets > 1 ? n : n * G;
        }
    }
    assert_int_equal(entries, kept->entries);
    return kept;
}

TEST(golden_sets) {
    uint32_t others = 0;
    for (size_t i = 0; i < N_PROMPTS; i++) {
        CKVC_AUTO(table_file_free_at)
        table_file *t = table_of(i, CKVC_MODE_HEADS, CKVC_SCORE_WINDOW);
        const asked_policy list[] = {{.kind = POLICY_TABLE, .table = t}};
        CKVC_AUTO(close_keeper) keeper w;
        open_keeper(&w, list, 1);
        enter(&w, &rig.items[i]);
        for (uint32_t b = 0; b < N_BUDGETS; b++) {
            const json_t *want = of_budget(of_prompt(i, "kept"), budgets[b]),
                         *capacities = json_object_get(want, "capacities"),
                         *sets = json_object_get(want, "window_w32_k7_norm");
            const policy_kept *kept = decide(&w, 0, b, rig.items[i].n_tokens);
            assert_int_equal(kept->mode, CKVC_MODE_HEADS);
            assert_int_equal(kept->score, CKVC_SCORE_WINDOW);
            assert_null(kept->risk);
            for (uint32_t u = 0; u < L * G; u++) {
                const json_t *set = cell_of(sets, u / G, u % G);
                const uint32_t n = size_of(kept, u / G, u % G);
                assert_int_equal(n, json_integer_value(cell_of(capacities, u / G, u % G)));
                assert_int_equal(n, json_array_size(set));
                others += lacking(&kept->sets[u / G], u % G, set);
            }
        }
    }
    /* Scores that float32 does not tell apart may change places elsewhere: one pair; none is. */
    assert_in_range(others, 0, 2);
}

static bool holds(const policy_kept *kept, uint32_t l, uint32_t g, uint32_t t) {
    for (uint32_t k = kept->sets[l].offsets[g]; k < kept->sets[l].offsets[g + 1]; k++) {
        if (kept->sets[l].positions[k] == t) { return true; }
    }
    return false;
}

/* Beside a table with shares: its capacities under other scores, or by one threshold; sinks. */
TEST(counterparts) {
    static const ckvc_mode modes[] = {CKVC_MODE_HEADS, CKVC_MODE_LAYERS, CKVC_MODE_LENGTHS};
    for (int m = 0; m < 3; m++) {
        const ckvc_mode mode = modes[m];
        const bool layers = mode == CKVC_MODE_LAYERS;
        CKVC_AUTO(table_file_free_at) table_file *t = table_of(0, mode, CKVC_SCORE_PAPER);
        const asked_policy list[] = {
            {.kind = POLICY_TABLE, .table = t},   {.kind = POLICY_TOP_K, .table = t},
            {.kind = POLICY_WINDOW, .table = t},  {.kind = POLICY_RECENT, .table = t},
            {.kind = POLICY_SNAPKV, .table = t},  {.kind = POLICY_TOVA, .table = t},
            {.kind = POLICY_MATCHED, .table = t}, {.kind = POLICY_POOLED, .table = t}};
        enum { N = sizeof list / sizeof *list, MATCHED = 6, POOLED = 7 };
        uint64_t entries[2][N_BUDGETS] = {{0}};
        CKVC_AUTO(close_keeper) keeper w;
        open_keeper(&w, list, N);
        for (size_t p = 0; p < N_PROMPTS; p++) {
            enter(&w, &rig.items[p]);
            OK(policy_sets_count(w.k, w.k, &err));
        }
        policy_sets_match(w.k, w.k);
        for (size_t p = 0; p < N_PROMPTS; p++) {
            const uint32_t T = rig.items[p].n_tokens;
            enter(&w, &rig.items[p]);
            for (uint32_t b = 0; b < N_BUDGETS; b++) {
                uint32_t c[L * G];
                capacities_of(t->table, b, mode, T, c);
                for (size_t i = 0; i < N; i++) {
                    const policy_kept *kept = decide(&w, i, b, T);
                    if (i == 0 || i == MATCHED) { entries[i > 0][b] += kept->entries; }
                    if (i == POOLED) {
                        assert_int_equal(kept->entries, L * G * budgets[b]);
                        assert_int_equal(kept->n_sets, G);
                    }
                    const bool one = layers && i != 4 && i != POOLED;
                    assert_int_equal(kept->n_sets, one ? 1 : G);
                    for (uint32_t l = 0; l < L; l++) {
                        for (uint32_t g = 0; g < kept->n_sets; g++) {
                            if (i < MATCHED) {
                                assert_int_equal(size_of(kept, l, g), m > 0 ? c[l] : c[l * G + g]);
                            }
                            for (uint32_t k = 1; k <= 8; k++) {
                                assert_true(holds(kept, l, g, T - k) || i == 5);
                            }
                            assert_true(holds(kept, l, g, 0) || i == 3 || i == 4 || i == 5);
                        }
                    }
                }
            }
        }
        for (uint32_t b = 0; b < N_BUDGETS; b++) {
            assert_true(fabs((double)entries[1][b] / (double)entries[0][b] - 1) < 0.02);
        }
    }
}

/* Every reference at its own allotment: how many entries, and what comes before all else; also of a
 * prompt that is shorter than its window. */
TEST(references) {
    CKVC_AUTO(table_file_free_at) table_file *t = table_of(0, CKVC_MODE_HEADS, CKVC_SCORE_PAPER);
    static const struct {
        policy_kind kind;
        bool one, even; /* one set a layer; B in every set */
        uint32_t first, last;
    } want[] = {{POLICY_STREAMINGLLM, true, true, 4, 8},
                {POLICY_H2O, false, true, 0, 8},
                {POLICY_SNAPKV, false, true, 0, 32},
                {POLICY_PYRAMIDKV, false, false, 0, 8},
                {POLICY_ADAKV, false, false, 0, 32},
                {POLICY_CAKE, false, false, 0, 32},
                {POLICY_EXPECTED_ATTENTION, false, true, 4, 0},
                {POLICY_TOVA, true, true, 0, 1},
                {POLICY_KEYDIFF, false, true, 0, 0},
                {POLICY_KVZIP, false, false, 4, 0},
                {POLICY_FULL, true, false, 4, 32},
                {POLICY_DYNAMICKV, false, false, 0, 8},
                {POLICY_CHUNKKV, true, false, 0, 0},
                {POLICY_FASTKV, false, false, 0, 8},
                {POLICY_POOLED, false, false, 1, 8},
                {POLICY_HEADKV, false, false, 0, 8},
                {POLICY_DUOATTENTION, false, false, 1, 5}};
    enum { N = sizeof want / sizeof *want };
    uint32_t n_other[N] = {0}; /* decisions of other than L G B entries */
    asked_policy list[N];
    CKVC_AUTO(close_keeper) keeper w;
    for (size_t i = 0; i < N; i++) {
        list[i] = (asked_policy){.kind = want[i].kind,
                                 .table = policy_needs_table(want[i].kind) ? t : NULL};
    }
    open_keeper(&w, list, N);
    for (size_t p = 0; p <= N_PROMPTS; p++) {
        prompt item = rig.items[p % N_PROMPTS];
        if (p == N_PROMPTS) { item.n_tokens = 20; }
        const uint32_t T = item.n_tokens;
        enter(&w, &item);
        for (size_t i = 0; i < N; i++) {
            for (uint32_t b = 0; b < N_BUDGETS; b++) {
                const policy_kept *kept = decide(&w, i, b, T);
                const uint32_t B = budgets[b] < T ? (uint32_t)budgets[b] : T;
                assert_int_equal(kept->n_sets, want[i].one ? 1 : G);
                n_other[i] += kept->entries != L * G * B;
                for (uint32_t u = 0; u < L * kept->n_sets; u++) {
                    const uint32_t l = u / kept->n_sets, g = u % kept->n_sets,
                                   n = size_of(kept, l, g);
                    assert_true(n == B || !want[i].even);
                    for (uint32_t k = 0; k < want[i].first; k++) {
                        assert_true(holds(kept, l, g, k));
                    }
                    for (uint32_t k = 1; k <= want[i].last && k <= n; k++) {
                        assert_true(holds(kept, l, g, T - k) || want[i].first + want[i].last > n);
                    }
                }
            }
        }
    }
    for (size_t i = 0; i < N; i++) { /* what is said of a policy is so, here */
        const policy_properties *is = policy_properties_of(want[i].kind);
        /* dynamickv's early cuts are deeper than its last on other prompts: test_allotments.c */
        assert_true(is->exact == (n_other[i] == 0) || want[i].kind == POLICY_DYNAMICKV);
        assert_int_equal(!is->source, want[i].kind == POLICY_POOLED || want[i].kind == POLICY_FULL);
        assert_int_equal(!!is->cost, want[i].kind == POLICY_KVZIP || want[i].kind == POLICY_H2O ||
                                         want[i].kind == POLICY_EXPECTED_ATTENTION);
    }
    assert_true(policy_properties_of(POLICY_TABLE)->query_aware);
    assert_false(policy_properties_of(POLICY_TABLE)->exact);
}

static void see(void *ctx, const prefill_head *head) { head_scores_see(ctx, head); }

/* Where one set a layer is asked for, rules by head rank by the sum over its heads: of SnapKV's own
 * scores those that no B others, or later equal ones, are above. Layers of a budget hold B each. */
TEST(references_by_layer) {
    const asked_policy list[] = {
        {.kind = POLICY_SNAPKV}, {.kind = POLICY_CAKE}, {.kind = POLICY_ADAKV}};
    const prompt *p = &rig.items[0];
    const uint32_t T = p->n_tokens;
    uint32_t n_uneven = 0;
    for (ckvc_mode mode = 0; mode < CKVC_MODE_COUNT; mode++) {
        CKVC_AUTO(close_keeper) keeper w;
        const bool of_heads = ckvc_mode_by_head(mode); /* rules keep their own lengths then */
        open_keeper(&w, list, 3);
        w.choice.mode = mode;
        enter(&w, p);
        head_scores h = {0};
        head_scores_add(&h, policy_rule_of(POLICY_SNAPKV)->score);
        head_scores_reserve(&h, rig.shape, T);
        head_scores_begin(&h, NULL);
        prefill_watcher watcher = h.wanted;
        watcher.on_head = see;
        watcher.ctx = &h;
        const prefill_input in = {
            .tokens = p->tokens, .n = T, .n_total = T, .window = 16, .watcher = &watcher};
        OK(sessions_prefill(&(prefill_job){w.s, in, &w.stats}, 1, &err));
        for (uint32_t i = 0; i < 3 * N_BUDGETS; i++) {
            const uint32_t b = i % N_BUDGETS, B = (uint32_t)budgets[b];
            const policy_kept *kept = decide(&w, i / N_BUDGETS, b, T);
            assert_int_equal(kept->mode, of_heads ? CKVC_MODE_HEADS : mode);
            assert_int_equal(kept->n_sets, of_heads ? G : 1);
            assert_int_equal(kept->entries, L * G * B);
            for (uint32_t l = 0; l < L && !of_heads; l++) {
                const bool even = i / N_BUDGETS != 1 || mode == CKVC_MODE_SHARED;
                n_uneven += size_of(kept, l, 0) != B;
                assert_true(size_of(kept, l, 0) == B || !even);
                for (uint32_t t = 0; i < N_BUDGETS && t < T; t++) {
                    uint32_t n_above = 0;
                    for (uint32_t u = 0; u < T; u++) {
                        double more = 0;
                        for (uint32_t g = 0; g < G; g++) {
                            const double *s = head_scores_at(&h, 0, l, g);
                            more += s[u] == s[t] ? 0 : s[u] - s[t]; /* both may be infinite */
                        }
                        n_above += more > 0 || (more == 0 && u > t);
                    }
                    assert_int_equal(holds(kept, l, 0, t), n_above < B);
                }
            }
        }
        head_scores_fini(&h);
    }
    assert_true(n_uneven > 0);
}

static void refused(const policy_choice *choice, ckvc_status status, const char *text) {
    policy_sets *k;
    SAYS(policy_sets_create(choice, rig.shape, rig.prompts, &k, &err), status, text);
    assert_null(k);
}

TEST(refusals) {
    CKVC_AUTO(table_file_free_at)
    table_file *shares = table_of(0, CKVC_MODE_HEADS, CKVC_SCORE_WINDOW);
    CKVC_AUTO(table_file_free_at)
    table_file *plain =
        table_file_around(new_start_table(L, G, 1, 1, budgets, N_BUDGETS, 1, NULL), false);
    const double by_layer[L] = {1, 2, 3, 4};
    asked_policy one = {.kind = POLICY_TABLE, .table = plain};
    policy_choice choice = {.list = &one,
                            .n = 1,
                            .setting = {.window = 16, .budgets = {budgets, N_BUDGETS}},
                            .mode = CKVC_MODE_HEADS,
                            .score = CKVC_SCORE_COUNT};
    refused(&choice, CKVC_E_MISMATCH, "no shares of heads, which mode heads needs");
    choice.mode = CKVC_MODE_LAYERS;
    refused(&choice, CKVC_E_MISMATCH, "no shares of layers, which mode layers needs");
    choice.mode = CKVC_MODE_COUNT;
    choice.score = CKVC_SCORE_LEARNED;
    refused(&choice, CKVC_E_MISMATCH, "no learned ranking");
    choice.score = CKVC_SCORE_COUNT;
    one.kind = POLICY_HEADKV;
    refused(&choice, CKVC_E_MISMATCH, "no shares of heads, which headkv needs");
    one = (asked_policy){.kind = POLICY_TABLE, .table = shares};
    choice.setting.layer_budgets = (setting_list){by_layer, L};
    refused(&choice, CKVC_E_USAGE, "--layer-budgets");
    one = (asked_policy){.kind = POLICY_CAKE, .table = NULL};
    refused(&choice, CKVC_E_USAGE, "--layer-budgets: cake");
    /* A budget below what every head must keep is known where the prompt is. */
    const double few[] = {6};
    prefill_stats stats;
    CKVC_AUTO(close_keeper) keeper w;
    CKVC_AUTO(policy_sets_free_at) policy_sets *below = NULL;
    one = (asked_policy){.kind = POLICY_TABLE, .table = shares};
    open_keeper(&w, &one, 1);
    policy_choice least = w.choice;
    least.setting.budgets = (setting_list){few, 1};
    least.nearest_budget = true;
    OK(policy_sets_create(&least, rig.shape, rig.prompts, &below, &err));
    SAYS(policy_sets_prefill(below, w.s, &rig.items[0], &stats, &err), CKVC_E_DATA, "\"p0\"");
    assert_non_null(strstr(err.text, "the least is 9"));
}

/* Everything that a prefill shows of heads, kept. */
enum { D = 32, MOST_T = 220, ROWS = 64 };
typedef struct views {
    float attention[L][G][2][ROWS][MOST_T], keys[L][G][MOST_T][D], values[L][G][MOST_T][D];
    double norms[L][G][MOST_T];
} views;

static void see_all(void *ctx, const prefill_head *h) {
    views *v = ctx;
    const size_t T = (size_t)h->n_tokens;
    memcpy(v->attention[h->layer][h->head], h->attention,
           2 * (size_t)h->n_rows * T * sizeof(float));
    memcpy(v->keys[h->layer][h->head], h->keys, T * D * sizeof(float));
    memcpy(v->values[h->layer][h->head], h->values, T * D * sizeof(float));
    memcpy(v->norms[h->layer][h->head], h->value_norms, T * sizeof(double));
}

/* A head's score by the public functions alone, everything at hand at once. */
static void whole_score(const views *v, const ckvc_table *t, const session *s, const double *alpha,
                        uint32_t T, uint32_t l, uint32_t g, double *out) {
    static double f[MOST_T * (CKVC_FEATURES_1_KEY + D + 1)], scratch[2 * MOST_T], layer[MOST_T];
    const uint32_t version = t->score->features, F = ckvc_features_count(version, D);
    for (uint32_t i = 0; i < T; i++) { layer[i] = 0; }
    for (uint32_t other = 0; other < G; other++) {
        const float *a = &v->attention[l][other][0][0][0];
        for (size_t i = 0; i < (size_t)2 * ROWS * T; i++) {
            layer[i % T] += (double)a[i] / (2 * ROWS * G);
        }
    }
    const ckvc_head_view head = {.n_tokens = T,
                                 .head_dim = D,
                                 .group = 2,
                                 .n_rows = ROWS,
                                 .attention = &v->attention[l][g][0][0][0],
                                 .keys = &v->keys[l][g][0][0],
                                 .values = &v->values[l][g][0][0],
                                 .inv_freq = session_key_frequencies(s)};
    ckvc_features(version, &head, f, scratch);
    if (version == CKVC_FEATURES_1) {
        ckvc_features_late(T, layer, alpha, F, f + CKVC_FEATURES_LATE);
    }
    ckvc_linear_form(T, F, f, t->theta + (size_t)(l * G + g) * F, out);
    ckvc_score_learned(T, t->mass[l * G + g], v->norms[l][g], out);
}

/* The learned ranking, taken from the prefill in two steps, keeps what its definition keeps. */
static void check_learned(uint32_t version) {
    CKVC_AUTO(table_file_free_at) table_file *f = table_of(0, CKVC_MODE_HEADS, CKVC_SCORE_LEARNED);
    ckvc_table *t = f->table;
    const uint32_t F = ckvc_features_count(version, D);
    ckvc_rng rng = rng_of(3, 1, 4);
    assert_int_equal(ckvc_table_add_learned(t, F), 0);
    for (uint32_t i = 0; i < L * G * F; i++) { t->theta[i] = (float)(ckvc_rng_double(&rng) - 0.5); }
    for (uint32_t i = 0; i < L * G; i++) { t->mass[i] = 1 + ckvc_rng_double(&rng); }
    for (uint32_t b = 0; b < N_BUDGETS; b++) {
        t->score[b] = (ckvc_score){.kind = CKVC_SCORE_LEARNED,
                                   .window = ckvc_features_rows(version),
                                   .features = version,
                                   .mode = CKVC_MODE_HEADS};
    }
    const asked_policy list[] = {{.kind = POLICY_TABLE, .table = f}};
    CKVC_AUTO(close_keeper) keeper w;
    static views v;
    open_keeper(&w, list, 1);
    for (size_t i = 0; i < N_PROMPTS; i++) {
        const uint32_t T = rig.items[i].n_tokens;
        prefill_stats stats;
        /* version 2 reads no rows: its session has room for one */
        const prefill_watcher watcher = {
            .n_rows = version == CKVC_FEATURES_1 ? ROWS : 1, .on_head = see_all, .ctx = &v};
        const prefill_input in = {
            .tokens = rig.items[i].tokens, .n = T, .n_total = T, .window = 16, .watcher = &watcher};
        OK(sessions_prefill(&(prefill_job){w.s, in, &stats}, 1, &err));
        static double want[L][G][MOST_T];
        for (uint32_t u = 0; u < L * G; u++) {
            whole_score(&v, t, w.s, stats.alpha, T, u / G, u % G, want[u / G][u % G]);
        }
        enter(&w, &rig.items[i]);
        for (uint32_t b = 0; b < N_BUDGETS; b++) {
            const policy_kept *kept = decide(&w, 0, b, T);
            uint32_t c[L * G], set[MOST_T], scratch[MOST_T];
            assert_int_equal(kept->score, CKVC_SCORE_LEARNED);
            capacities_of(t, b, CKVC_MODE_HEADS, T, c);
            for (uint32_t u = 0; u < L * G; u++) {
                const kept_set *got = &kept->sets[u / G];
                const uint32_t n = ckvc_retain_head(T, want[u / G][u % G], 8, c[u], set, scratch);
                assert_int_equal(n, size_of(kept, u / G, u % G));
                assert_memory_equal(got->positions + got->offsets[u % G], set, n * sizeof *set);
            }
        }
    }
}

TEST(learned) {
    check_learned(CKVC_FEATURES_1);
    check_learned(CKVC_FEATURES_2);
}

/* A table with a bank fits what it keeps in layers that have a ridge. policy_sets_decide allocates
 * nothing meanwhile: builds with the guard (CKVC_DEBUG) would end here. */
TEST(fitted_entries) {
    CKVC_AUTO(table_file_free_at)
    table_file *of = table_of(0, CKVC_MODE_HEADS, CKVC_SCORE_WINDOW);
    ckvc_table *t = ckvc_unconst(of->table);
    const asked_policy list[] = {{.kind = POLICY_TABLE, .table = of},
                                 {.kind = POLICY_TABLE, .table = of, .ridge = &(double){0}}};
    CKVC_AUTO(close_keeper) keeper w;
    assert_int_equal(ckvc_table_add_bank(t, 4, (uint32_t)rig.shape->head_dim), 0);
    for (size_t i = 0; i < ckvc_bank_index(t, L, 0, 0); i++) {
        t->bank[i] = (float)((double)(i * 7919 % 1009) / 504.5 - 1);
    }
    for (uint32_t b = 0; b < N_BUDGETS; b++) {
        t->bank_use[b] = (ckvc_bank_use){4, 96};
        for (uint32_t l = 0; l < L; l++) { t->ridge[l * N_BUDGETS + b] = l == 2 ? 0 : 0.1 + l; }
    }
    open_keeper(&w, list, 2);
    for (size_t i = 0; i < N_PROMPTS; i++) {
        enter(&w, &rig.items[i]);
        for (uint32_t b = 0; b < N_BUDGETS; b++) {
            const policy_kept *kept = decide(&w, 0, b, rig.items[i].n_tokens);
            assert_true(kept->ridge == 3.1);
            for (uint32_t l = 0; l < L; l++) { assert_int_equal(kept->sets[l].fitted, l != 2); }
            kept = decide(&w, 1, b, rig.items[i].n_tokens);
            assert_true(kept->ridge == 0);
            for (uint32_t l = 0; l < L; l++) { assert_false(kept->sets[l].fitted); }
        }
    }
}

/* What a rule of whole steps or chunks gives a head beyond its budget, in the mean. */
static double beyond(policy_kind kind, uint32_t n_layers, uint32_t T, uint32_t B) {
    static uint32_t c[100];
    static double s[100 * 1001];
    double sum = 0;
    for (size_t i = 0; i < n_layers * T; i++) { s[i] = (double)(i * 7919 % 1009); }
    const allot_ask ask = {.n_layers = n_layers, .n_heads = 1, .n_tokens = T, .budget = B, .s = s};
    policy_rule_of(kind)->allot(&ask, c);
    for (uint32_t l = 0; l < n_layers; l++) { sum += c[l]; }
    return sum / n_layers - B;
}

/* policy_sets_beyond: never more, and not much less. */
TEST(beyond_the_budget) {
    for (uint32_t n_layers = 2; n_layers <= 100; n_layers += n_layers < 10 ? 1 : 9) {
        double most = 0;
        static const uint32_t lengths[] = {21, 60, 120, 1001};
        for (int i = 0; i < 4; i++) {
            for (uint32_t B = 1; B < lengths[i]; B++) {
                const double steps = beyond(POLICY_PYRAMIDKV, n_layers, lengths[i], B),
                             chunks = beyond(POLICY_CHUNKKV, n_layers, lengths[i], B);
                most = fmax(most, fmax(steps, chunks));
            }
        }
        assert_true(most <= policy_sets_beyond(n_layers));
        assert_true(most >= policy_sets_beyond(n_layers) - 2);
    }
}

RUN_TESTS(open_rig, close_rig)
