/* The operators of the probes (paper.md section 7) and budgets by layer: utilities by hand, every
 * action of every state against the definitions, the nearest block, the file of budgets. */
#include "formats/lines/layer_budgets.h"
#include "tests/unit/sets_fixture.h"
#include "tests/unit/temp_folder.h"

TEST(utilities_by_hand) {
    const float alpha[3] = {2, 0.5f, 1}, rho[6] = {1, 4, 0.5f, 1.5f, 2, 0.25f}; /* [2][3] */
    const double weight[2] = {1.5, 0.8};
    double u[3];
    ckvc_operator_utility(CKVC_OPERATOR_PAPER, 3, 2, alpha, rho, weight, u);
    assert_true(u[0] == 3.0 && u[1] == 3.0 && u[2] == 0.75);
    ckvc_operator_utility(CKVC_OPERATOR_NO_THRESHOLD, 3, 2, alpha, rho, weight, u);
    assert_true(u[0] == 3.0 && u[1] == 3.0 && u[2] == 0.75);
    ckvc_operator_utility(CKVC_OPERATOR_NO_UTILITY, 3, 2, alpha, NULL, weight, u);
    assert_true(u[0] == 3.0 && u[1] == 0.75 && u[2] == 1.5);
    ckvc_operator_utility(CKVC_OPERATOR_MEAN_POOL, 3, 2, alpha, rho, weight, u);
    assert_true(u[0] == (3.0 + 3.0 * 0.8) / 2.0 && u[1] == (3.0 + 1.0 * 0.8) / 2.0 &&
                u[2] == (0.75 + 0.25 * 0.8) / 2.0);

    /* Three heads, added from the first on: ((a + b) + c) / 3 and nothing else. */
    const float one[1] = {1.0f}, small[3] = {1.0f, 0x1p-30f, 0x1p-30f};
    /* 1 + 2^-53 rounds to 1, twice; the small ones first would make 1 + 2^-52 */
    const double scale[3] = {1.0, 0x1p-23, 0x1p-23};
    ckvc_operator_utility(CKVC_OPERATOR_MEAN_POOL, 1, 3, one, small, scale, u);
    assert_true(u[0] == 1.0 / 3.0);

    static const char *const names[] = {"paper", "no-utility", "no-threshold", "mean-pool"};
    for (int op = 0; op < CKVC_OPERATOR_COUNT; op++) {
        assert_string_equal(ckvc_operator_name((ckvc_operator)op), names[op]);
    }
}

/* ---- every action against the definition ---- */

enum { L = 3, G = 3, T = 70, W = 8, E = 2 };

typedef struct set {
    uint32_t kept[T], n, n_candidates;
} set;

static void assert_set(const set *want, const uint32_t *kept, uint32_t n, uint32_t n_candidates) {
    assert_int_equal(n, want->n);
    assert_int_equal(n_candidates, want->n_candidates);
    assert_memory_equal(kept, want->kept, n * sizeof *kept);
}

/* Kept by counting who ranks before whom, with nothing of the library but the grids. */
static set by_definition(const ckvc_table *t, const float *alpha, const float *rho, const double *w,
                         ckvc_rule rule) {
    const uint32_t keep_window = rule.keep_window;
    double u[T];
    bool in[T];
    set s = {.n = 0};
    for (int i = 0; i < T; i++) {
        double best = -1.0, sum = 0.0, heaviest = 0.0;
        for (int g = 0; g < G; g++) {
            const double x = (double)alpha[i] * (double)rho[g * T + i] * w[g];
            best = fmax(best, x);
            sum += x;
            heaviest = fmax(heaviest, w[g]);
        }
        u[i] = t->op == CKVC_OPERATOR_NO_UTILITY  ? (double)alpha[i] * heaviest
               : t->op == CKVC_OPERATOR_MEAN_POOL ? sum / G
                                                  : best;
    }
    for (uint32_t i = 0; i < T; i++) {
        in[i] = u[i] >= rule.tau || t->op == CKVC_OPERATOR_NO_THRESHOLD || i + keep_window >= T;
        s.n_candidates += in[i];
    }
    for (uint32_t i = 0; i < T; i++) {
        uint32_t before = 0;
        for (uint32_t k = 0; k < T; k++) {
            const bool wi = i + keep_window >= T, wk = k + keep_window >= T;
            before += in[k] && (wk != wi ? wk : u[k] != u[i] ? u[k] > u[i] : k > i);
        }
        if (in[i] && before < rule.budget) { s.kept[s.n++] = i; }
    }
    return s;
}

TEST(actions_against_definition) {
    static const double budgets[2] = {10, 0.5}, by_layer[L] = {6, 40, 19};
    static float alpha[T], rho[L * G * T];
    ckvc_rng rng = rng_of(3, 0, 0);
    for (int turn = 0; turn < 24; turn++) {
        const uint64_t levels = turn % 3 ? 1u << 24 : 5; /* with 5: ties everywhere */
        const uint32_t keep_window = turn % 4 == 3 ? 7 : 0;
        const bool layered = turn % 8 >= 4;
        for (int i = 0; i < T; i++) {
            alpha[i] = (float)(ckvc_rng_below(&rng, levels) + 1) * (2.5f / (float)levels);
        }
        for (int i = 0; i < L * G * T; i++) {
            rho[i] = 0.25f + (float)ckvc_rng_below(&rng, levels) * (1.5f / (float)levels);
        }
        for (int op = 0; op < CKVC_OPERATOR_COUNT; op++) {
            prompt_sets *k;
            ckvc_table *t = new_start_table(L, G, E, 1, budgets, 2, W, NULL);
            t->op = (ckvc_operator)op;
            t->edges_entropy[0] = 3.0;
            for (uint32_t i = 0; i < L * G * 2; i++) {
                t->weight[i] = (float)t->head_grid[ckvc_rng_below(&rng, CKVC_HEAD_ACTIONS)];
            }
            for (uint32_t i = 0; i < L * E * 2; i++) {
                t->tau[i] = (float)t->gate_grid[ckvc_rng_below(&rng, CKVC_GATE_ACTIONS)];
            }
            OK(prompt_sets_create(t, T, &(setting){.window = W, .keep_window = keep_window}, &k,
                                  &err));
            if (layered) { prompt_sets_by_layer(k, by_layer); }
            build_sets(k, T, alpha, rho); /* entropy bin 1 */
            assert_int_equal(k->n_budgets, layered ? 1 : 2);
            for (uint32_t at = 0; at < k->n_budgets * L; at++) {
                /* blocks 10 and 35: 6 is nearest to 10; 40 and 19 to 35 (19/10 against 35/19) */
                static const uint32_t nearest[L] = {0, 1, 1}, tokens[] = {10, 35};
                const uint32_t b = at / L, l = at % L, block = layered ? nearest[l] : b;
                const float *rho_l = rho + (size_t)l * G * T;
                const layer_set *base = prompt_sets_at(k, b, l);
                double w[G];
                uint32_t got[T], n_got;
                for (uint32_t g = 0; g < G; g++) { /* the grids' doubles */
                    w[g] = round((double)t->weight[ckvc_weight_index(t, l, g, block)] * 40) / 40;
                }
                ckvc_rule rule = {round((double)t->tau[ckvc_tau_index(t, l, 1, 0, block)] * 100) /
                                      100,
                                  layered ? (uint32_t)by_layer[l] : tokens[b], keep_window};
                set want = by_definition(t, alpha, rho_l, w, rule);
                assert_int_equal(base->block, block);
                assert_int_equal(base->tokens, rule.budget);
                assert_set(&want, base->positions, base->n_kept, base->n_candidates);
                uint32_t n = prompt_sets_layer_at_budget(k, block, l, rule.budget, got, &n_got);
                assert_set(&want, got, n, n_got);
                for (uint32_t i = 0; i < G * CKVC_HEAD_ACTIONS; i++) {
                    const uint32_t g = i / CKVC_HEAD_ACTIONS, a = i * 11 % CKVC_HEAD_ACTIONS;
                    const double was = w[g];
                    w[g] = ckvc_head_action((int)a);
                    want = by_definition(t, alpha, rho_l, w, rule);
                    w[g] = was;
                    n = head_action(k, b, l, g, a, got, &n_got);
                    assert_set(&want, got, n, n_got);
                }
                for (uint32_t a = 0; a < CKVC_GATE_ACTIONS; a++) {
                    rule.tau = ckvc_gate_action((int)a);
                    want = by_definition(t, alpha, rho_l, w, rule);
                    n = gate_action(k, b, l, a, got, &n_got);
                    assert_set(&want, got, n, n_got);
                }
            }
            prompt_sets_destroy(k);
            ckvc_table_free(t);
        }
    }
}

/* What is reserved for budgets by layer is enough, for the full grid and for every limit. */
TEST(extent_by_layer) {
    static const double budget = 4, by_layer[L] = {60, 12, 0.5};
    static float alpha[T], rho[L * G * T];
    ckvc_rng rng = rng_of(5, 0, 0);
    for (int i = 0; i < T; i++) { alpha[i] = (float)(3.0 * ckvc_rng_double(&rng)); }
    for (int i = 0; i < L * G * T; i++) { rho[i] = (float)(0.5 + ckvc_rng_double(&rng)); }
    const int64_t limits[] = {-1, 1, 20, 1000};
    for (size_t i = 0; i < sizeof limits / sizeof *limits; i++) {
        prompt_sets *k;
        CKVC_AUTO(variants_fini) variant_list v = {0};
        CKVC_AUTO(ckvc_table_free_at)
        ckvc_table *t = new_start_table(L, G, 1, 1, &budget, 1, W, NULL);
        OK(prompt_sets_create(t, T, &(setting){.window = W}, &k, &err));
        prompt_sets_by_layer(k, by_layer);
        const behaviour_policy how = {.sides = {true, true}, .limit = limits[i], .seed = 1};
        const variant_extent most = variants_extent(t, by_layer, T, &how);
        assert_int_equal(most.max_kept, 60);
        assert_int_equal(most.n_actions, L * (G * CKVC_HEAD_ACTIONS + CKVC_GATE_ACTIONS));
        variants_reserve(&v, &most);
        ckvc_alloc_forbid("a prompt with budgets by layer");
        build_sets(k, T, alpha, rho);
        variants_build(&v, k, &how, "p");
        ckvc_alloc_permit();
        assert_true(v.n_actions >= CKVC_GATE_ACTIONS && v.n_actions <= most.n_actions);
        assert_true(v.n <= most.n_variants && v.n_positions <= most.n_positions);
        for (size_t a = 0; a < v.n_actions; a++) {
            assert_true(v.actions[a].n_kept <= ckvc_budget_tokens(by_layer[v.actions[a].layer], T));
        }
        prompt_sets_destroy(k);
    }
}

/* ---- budgets ---- */

TEST(nearest_budget) {
    static const double tokens[4] = {512, 64, 256, 128}, /* in no order */
        ties[2] = {400, 100}, fifths[2] = {150, 96}, mixed[3] = {0.25, 0.5, 400}, alone[] = {7};
    static const struct {
        const double *budgets;
        uint32_t n;
        double asked;
        uint32_t T, want;
    } cases[] = {
        {tokens, 4, 256, 1000, 2}, {tokens, 4, 300, 1000, 2},
        {tokens, 4, 380, 1000, 0}, /* 512/380 = 1.35 < 380/256 = 1.48: not by differences */
        {tokens, 4, 1, 1000, 1},   {tokens, 4, 1e9, 1000, 0},
        {ties, 2, 200, 1000, 1},   /* both at a factor of 2: the lower */
        {fifths, 2, 120, 1000, 1}, /* 150/120 = 120/96, whose logarithms may round apart */
        {mixed, 3, 0.5, 100, 1},   {mixed, 3, 0.3, 100, 0},
        {mixed, 3, 300, 1000, 0}, /* T = 1000: 250, 500, 400; 300/250 = 1.2 */
        {mixed, 3, 350, 1000, 2},  {mixed, 3, 0.375, 1000, 2}, /* 375: 400/375 */
        {mixed, 3, 250, 1000, 0},  {alone, 1, 0.01, 0, 0},     /* no prompt: still some block */
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_equal(
            ckvc_nearest_budget(cases[i].budgets, cases[i].n, cases[i].asked, cases[i].T),
            cases[i].want);
    }
}

static ckvc_status read_text(const char *text, uint32_t n_layers, double **out, ckvc_err *err) {
    *err = (ckvc_err){0};
    return layer_budgets_read(put_text("b.txt", text), n_layers, out, err);
}

TEST(layer_budgets_file) {
    double *b, distinct[4];
    OK(read_text("# by layer\n\n 64 # first\r\n\t128\n64", 3, &b, &err));
    assert_true(b[0] == 64 && b[1] == 128 && b[2] == 64);
    assert_int_equal(layer_budgets_distinct(b, 3, distinct, 4), 2);
    assert_true(distinct[0] == 64 && distinct[1] == 128);
    free(b);
    OK(read_text("0.5\n.25\n1e-1\n", 3, &b, &err));
    assert_true(b[0] == 0.5 && b[1] == 0.25 && b[2] == 0.1);
    assert_int_equal(layer_budgets_distinct(b, 3, distinct, 2), 3); /* more than have room */
    free(b);
    static const struct {
        const char *text, *message;
    } bad[] = {
        {"64\n64\n", "2 numbers, wanted one for each of the model's 3 layers"},
        {"", "0 numbers"},
        {"1\n2\n3\n4\n", ":4: one number more than the model's 3 layers"},
        {"64\nabc\n64\n", ":2: got 'abc', wanted whole tokens"},
        {"64 64\n64\n", ":1: got '64 64'"},
        {"0\n1\n2\n", ":1: got '0'"},
        {"-4\n1\n2\n", ":1: got '-4'"},
        {"1.5\n1\n2\n", ":1: got '1.5'"},
        {"0x10\n1\n2\n", ":1: got '0x10'"},
        {"inf\n1\n2\n", ":1: got 'inf'"},
        {"nan\n1\n2\n", ":1: got 'nan'"},
        {"2e9\n1\n2\n", ":1: got '2e9'"},
        {"64\n0.5\n64\n", ":2: 0.5 is a share of the prompt, the first layer's 64 is tokens"},
        {"11111111111111111111111111111111111111111111111111111111111111111111\n",
         ":1: got '1111111111111111111111111111111111111111'"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        SAYS(read_text(bad[i].text, 3, &b, &err), CKVC_E_DATA, bad[i].message);
        assert_null(b);
    }
    FAILS(layer_budgets_read(temp_folder, 3, &b, &err), CKVC_E_NOINPUT);
    const char *path = in_temp_folder("b.txt");
    unlink(path);
    FAILS(layer_budgets_read(path, 3, &b, &err), CKVC_E_NOINPUT);
}

RUN_TESTS(temp_folder_make, temp_folder_remove)
