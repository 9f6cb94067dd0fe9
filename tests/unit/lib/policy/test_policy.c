/* The policy library against golden/method/retention.json (bit for bit), its two ways to retain
 * against each other (by counting who ranks before whom: test_operators, test_head_sets), its
 * edges. */
#include "lib/base/names.h"
#include "lib/policy/policy_parts.h"
#include "lib/policy/retain_many.h"
#include "tests/unit/golden.h"

TEST(golden_retention) {
    json_auto_t *root = golden_read("tests/golden/method/retention.json");
    size_t index;
    json_t *c;
    json_array_foreach(json_object_get(root, "cases"), index, c) {
        const uint32_t T = (uint32_t)golden_number(c, "T"), G = (uint32_t)golden_number(c, "G");
        CKVC_AUTO_FREE float *alpha = calloc(T, sizeof *alpha),
                             *rho = calloc((size_t)G * T, sizeof *rho);
        CKVC_AUTO_FREE double *wide_alpha = golden_numbers(json_object_get(c, "alpha")),
                              *wide_rho = golden_numbers(json_object_get(c, "rho")),
                              *weight = golden_numbers(json_object_get(c, "W_head")),
                              *want = golden_numbers(json_object_get(c, "u")),
                              *u = calloc(T, sizeof *u);
        uint32_t *kept = calloc(T, sizeof *kept), *scratch = calloc(T, sizeof *scratch), n_cand = 0;
        int64_t n_kept;
        CKVC_AUTO_FREE int32_t *S = golden_ids(json_object_get(c, "S"), &n_kept);
        for (uint32_t t = 0; t < T; t++) { alpha[t] = (float)wide_alpha[t]; }
        for (uint32_t i = 0; i < G * T; i++) { rho[i] = (float)wide_rho[i]; }
        ckvc_utility(T, G, alpha, rho, weight, u);
        for (uint32_t t = 0; t < T; t++) { assert_true(u[t] == want[t]); }
        const ckvc_rule rule = {golden_number(c, "tau"), (uint32_t)golden_number(c, "B"), 0};
        assert_int_equal(ckvc_retain(T, u, rule, kept, &n_cand, scratch), n_kept);
        assert_int_equal(n_cand, golden_number(c, "n_cand"));
        assert_memory_equal(kept, S, (size_t)n_kept * sizeof *S);
        CKVC_FREE(kept, scratch);
    }
    assert_true(index >= 9);
}

enum { MANY_T = 200 };

/* An action's set and count are ckvc_retain's on the utilities u and by the rule. */
static void same_as_retain(ckvc_retain_many *r, uint32_t action, uint32_t T, const double *u,
                           ckvc_rule rule) {
    uint32_t want[MANY_T], got[MANY_T], scratch[MANY_T], n_want, n_got;
    const uint32_t k = ckvc_retain(T, u, rule, want, &n_want, scratch);
    assert_int_equal(ckvc_retain_action(r, action, got, &n_got), k);
    assert_int_equal(n_got, n_want);
    assert_memory_equal(got, want, k * sizeof *got);
}

/* Every weight of a head and every threshold through retain_many: the sets and counts of
 * ckvc_retain on the utilities of that action, on random vectors with many ties (alpha and rho from
 * a few values), any budget and any keep_window. */
TEST(retain_many) {
    enum { G_MAX = 4, A = 29 };
    static float alpha[MANY_T], rho[G_MAX * MANY_T];
    static double own[MANY_T], others[MANY_T], u[MANY_T], weights[A], taus[CKVC_GATE_ACTIONS];
    CKVC_AUTO(ckvc_retain_many_fini) ckvc_retain_many r;
    ckvc_rng rng = rng_of(9, 0, 0);
    assert_true(ckvc_retain_many_init(&r, MANY_T, A));
    for (int a = 0; a < A; a++) { weights[a] = ckvc_head_action(a); }
    for (int a = 0; a < CKVC_GATE_ACTIONS; a++) { taus[a] = ckvc_gate_action(a); }
    for (int round = 0; round < 3000; round++) {
        const uint32_t T = 1 + ckvc_rng_below(&rng, MANY_T - 1),
                       G = 1 + ckvc_rng_below(&rng, G_MAX),
                       B = ckvc_rng_below(&rng, round % 5 ? T + 3 : 3),
                       keep_window = round % 3 ? 0 : ckvc_rng_below(&rng, T + 3),
                       g = ckvc_rng_below(&rng, G);
        const uint64_t levels = round % 2 ? 1 + ckvc_rng_below(&rng, 6) : 1u << 24;
        double w[G_MAX];
        for (uint32_t t = 0; t < T; t++) {
            alpha[t] = (float)ckvc_rng_below(&rng, levels) * (3.0f / (float)levels);
        }
        for (uint32_t i = 0; i < G * T; i++) {
            rho[i] = round % 7
                         ? 0.25f + (float)ckvc_rng_below(&rng, levels) * (1.5f / (float)levels)
                         : 1.0f;
        }
        for (uint32_t i = 0; i < G; i++) { w[i] = weights[ckvc_rng_below(&rng, A)]; }
        const double tau = taus[ckvc_rng_below(&rng, CKVC_GATE_ACTIONS)];

        const double base = w[g];
        w[g] = 0.0;
        ckvc_utility(T, G, alpha, rho, w, others);
        for (uint32_t t = 0; t < T; t++) { own[t] = (double)alpha[t] * (double)rho[g * T + t]; }
        ckvc_retain_heads(&r, T, others, own, weights, A, (ckvc_rule){tau, B, keep_window});
        for (uint32_t i = 0; i < A; i++) {
            const uint32_t a = (i * 11 + (uint32_t)round) % A; /* in any order */
            w[g] = weights[a];
            ckvc_utility(T, G, alpha, rho, w, u);
            same_as_retain(&r, a, T, u, (ckvc_rule){tau, B, keep_window});
        }
        w[g] = base;
        ckvc_utility(T, G, alpha, rho, w, u);
        ckvc_retain_gates(&r, T, u, taus, CKVC_GATE_ACTIONS, B, keep_window);
        for (uint32_t a = 0; a < CKVC_GATE_ACTIONS; a++) {
            same_as_retain(&r, a, T, u, (ckvc_rule){taus[a], B, keep_window});
        }
    }
}

/* The cost that retain_many.h states: an action costs steps of B and of T/64, never of T. */
TEST(retain_many_cost) {
    enum { T = 32768, B = 512, A = 29 };
    double *own = calloc(T, sizeof *own), *others = calloc(T, sizeof *others), weights[A];
    uint32_t *kept = calloc(T, sizeof *kept), n;
    CKVC_AUTO(ckvc_retain_many_fini) ckvc_retain_many r;
    ckvc_rng rng = rng_of(10, 0, 0);
    assert_true(ckvc_retain_many_init(&r, T, A));
    for (int a = 0; a < A; a++) { weights[a] = ckvc_head_action(a); }
    for (uint32_t t = 0; t < T; t++) {
        own[t] = (double)(float)(ckvc_rng_double(&rng) * 2) *
                 (double)(float)(0.5 + ckvc_rng_double(&rng));
        others[t] = ckvc_rng_double(&rng) * 2;
    }
    ckvc_retain_heads(&r, T, others, own, weights, A, (ckvc_rule){0.9, B, 0});
    const uint64_t state_work = r.work;
    /* a pass, quickselect's few passes over each list of candidates, and sorting B twice (2 n log2
     * n comparisons for a heap) */
    assert_true(state_work < (uint64_t)T * 13 + 2 * 3 * B * 9);
    for (uint32_t a = 0; a < A; a++) { assert_int_equal(ckvc_retain_action(&r, a, kept, &n), B); }
    assert_true(r.work - state_work <= A * (2 * B + 2 + T / 64 + 1));
    const uint64_t before = r.work;
    ckvc_retain_gates(&r, T, others, weights, A, B, 0);
    for (uint32_t a = 0; a < A; a++) { ckvc_retain_action(&r, a, kept, &n); }
    assert_true(r.work - before < (uint64_t)T * 7 + 3 * B * 9 + A * (B + 2 + T / 64 + 1));
    free(own), free(others), free(kept);
}

TEST(retain_patterns) {
    enum { T = 200000, B = 1000 };
    CKVC_AUTO_FREE double *u = calloc(T, sizeof *u);
    uint32_t *kept = calloc(B, sizeof *kept), *scratch = calloc(T, sizeof *scratch), n_cand;
    /* all equal, ascending, descending, up and down */
    static const uint32_t first[] = {T - B, T - B, 0, T / 2 - B / 2 + 1};
    for (int pattern = 0; pattern < 4; pattern++) {
        for (uint32_t t = 0; t < T; t++) {
            const double of[] = {1.0, t, -(double)t, t < T / 2 ? t : T - t};
            u[t] = of[pattern];
        }
        assert_int_equal(ckvc_retain(T, u, (ckvc_rule){-INFINITY, B, 0}, kept, &n_cand, scratch),
                         B);
        assert_int_equal(n_cand, T);
        for (uint32_t i = 0; i < B; i++) { assert_int_equal(kept[i], first[pattern] + i); }
    }
    CKVC_FREE(kept, scratch);
}

TEST(retain_edges) {
    const double u[4] = {1.0, NAN, 0.5, 1.0};
    uint32_t kept[4], scratch[4], n_cand = 99;
    assert_int_equal(ckvc_retain(0, NULL, (ckvc_rule){0.5, 3, 0}, NULL, &n_cand, NULL), 0);
    assert_int_equal(n_cand, 0);
    assert_int_equal(ckvc_retain(4, u, (ckvc_rule){0.5, 0, 0}, NULL, &n_cand, scratch), 0);
    assert_int_equal(n_cand, 3); /* NaN reaches no threshold */
    assert_int_equal(ckvc_retain(4, u, (ckvc_rule){2.0, 4, 0}, kept, &n_cand, scratch), 0);
    /* The window is kept first, also where the utility is below the threshold or broken. */
    assert_int_equal(ckvc_retain(4, u, (ckvc_rule){2.0, 4, 3}, kept, &n_cand, scratch), 3);
    assert_int_equal(kept[0], 1);
    assert_int_equal(ckvc_retain(4, u, (ckvc_rule){0.5, 2, 3}, kept, &n_cand, scratch), 2);
    assert_int_equal(n_cand, 4);
    assert_int_equal(kept[0], 2);
    assert_int_equal(kept[1], 3);
    /* A window wider than the prompt keeps all. */
    assert_int_equal(ckvc_retain(4, u, (ckvc_rule){9.0, 8, 100}, kept, &n_cand, scratch), 4);
}

TEST(bins) {
    static const double edges[5] = {1.0, 2.0, 2.0, 2.0, 5.0}, /* equal edges leave empty bins */
        cases[][2] = {{0.5, 0}, {1, 1},     {1.5, 1},       {2, 4},
                      {4.9, 4}, {1e300, 5}, {-INFINITY, 0}, {NAN, 0}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_equal(ckvc_bin_index(edges, 5, cases[i][0]), cases[i][1]);
    }
    assert_int_equal(ckvc_bin_index(NULL, 0, 3.0), 0);
}

TEST(budget) {
    assert_int_equal(ckvc_budget_tokens(512.0, 100), 512);
    assert_int_equal(ckvc_budget_tokens(1.0, 100), 1);
    assert_int_equal(ckvc_budget_tokens(0.25, 511), 127);
    assert_int_equal(ckvc_budget_tokens(0.001, 511), 0);
    assert_int_equal(ckvc_budget_tokens(1e12, 511), UINT32_MAX);
    assert_int_equal(ckvc_budget_tokens(NAN, 511), 0);
}

TEST(grid_index) {
    double grid[29];
    for (int a = 0; a < 29; a++) { grid[a] = (32 + a) / 40.0; }
    for (int a = 0; a < 29; a++) {
        assert_int_equal(ckvc_grid_index(grid, 29, (float)grid[a]), a);
        assert_int_equal(ckvc_grid_index(grid, 29, nextafterf((float)grid[a], 9.0f)), -1);
    }
    assert_int_equal(ckvc_grid_index(grid, 29, 0.0f), -1);
    assert_int_equal(ckvc_grid_index(grid, 29, 9.0f), -1);
    assert_int_equal(ckvc_grid_index(grid, 29, NAN), -1);
}

TEST(alpha_visible) {
    /* T = 6, W = 4: rows 2..5 see position t >= 2 with 4, 3, 2, 1 rows. */
    double alpha[6] = {1.0, 2.0, 1.0, 0.75, 0.5, 0.25};
    ckvc_alpha_visible(alpha, 6, 4);
    const double raw[6] = {1.0, 2.0, 1.0, 1.0, 1.0, 1.0};
    double mean = 0.0;
    for (int t = 0; t < 6; t++) {
        assert_true(fabs(alpha[t] - raw[t] * 6.0 / 7.0) < 1e-15);
        mean += alpha[t] / 6.0;
    }
    assert_true(fabs(mean - 1.0) < 1e-15);
}

RUN_TESTS(NULL, NULL)
