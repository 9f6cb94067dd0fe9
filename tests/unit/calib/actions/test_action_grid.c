/* Action grids: exact decimals from integers, what is refused, where start tables begin, and that a
 * coarse grid is a part of a fine one: the actions that both have keep the same sets. */
#include "formats/side/reward.h"
#include "tests/unit/sets_fixture.h"

#define HEADS "0.8:1.5:0.025" /* the default grids (formats/side) */
#define GATES "0.8:1:0.01"

static ckvc_status parse(ckvc_side side, const char *text, action_grid *g, ckvc_err *err) {
    const char *items[300];
    static char copy[4096];
    size_t n = 0;
    snprintf(copy, sizeof copy, "%s", text);
    for (char *p = strtok(copy, ","); p; p = strtok(NULL, ",")) { items[n++] = p; }
    *err = (ckvc_err){0};
    return action_grid_parse(side, items, n, g, err);
}

TEST(values) {
    action_grid g, of;
    for (int side = 0; side < CKVC_SIDE_COUNT; side++) {
        OK(parse((ckvc_side)side, side ? GATES : HEADS, &g, &err));
        action_grid_default((ckvc_side)side, &of);
        assert_int_equal(g.n, of.n);
        assert_memory_equal(g.values, of.values, g.n * sizeof *g.values); /* to the bit */
    }
    /* Every step of a thousandth is the double that the compiler makes of the decimal. */
    OK(parse(CKVC_SIDE_GATE, "0.700:0.953:0.001", &g, &err));
    assert_int_equal(g.n, 254);
    for (uint32_t a = 0; a < g.n; a++) {
        char text[16];
        snprintf(text, sizeof text, "0.%03u", 700 + a);
        assert_true(g.values[a] == strtod(text, NULL));
    }
    OK(parse(CKVC_SIDE_HEAD, "0.5,0.9:1.1:0.05,2,7.25", &g, &err));
    const double want[] = {0.5, 0.9, 0.95, 1.0, 1.05, 1.1, 2, 7.25};
    assert_int_equal(g.n, 8);
    assert_memory_equal(g.values, want, sizeof want);
    OK(parse(CKVC_SIDE_GATE, "0", &g, &err));
    OK(parse(CKVC_SIDE_GATE, "0:2.54:0.01", &g, &err));
    assert_int_equal(g.n, ACTION_GRID_MAX);
}

TEST(refused) {
    static const struct {
        ckvc_side side;
        const char *text, *says;
    } cases[] = {
        {CKVC_SIDE_HEAD, "", "no value"},
        {CKVC_SIDE_HEAD, "0.8:1.5", "0.8:1.5"},
        {CKVC_SIDE_HEAD, "0.8:1.5:0.025:1", "wanted"},
        {CKVC_SIDE_HEAD, "0.8:1.5:", "wanted"},
        {CKVC_SIDE_HEAD, "0.8:1.5:0", "wanted"},
        {CKVC_SIDE_HEAD, "1.5:0.8:0.1", "wanted"},
        {CKVC_SIDE_HEAD, "0.8:1.5:0.03", "end at 1.49"},
        {CKVC_SIDE_HEAD, "0.8:0.9:0.1,1.1", "1 is not in it"},
        {CKVC_SIDE_HEAD, "1,-1", "wanted"},
        {CKVC_SIDE_HEAD, "1,1e1", "wanted"},
        {CKVC_SIDE_HEAD, "1,nan", "wanted"},
        {CKVC_SIDE_HEAD, "1,8.1", "wanted"},
        {CKVC_SIDE_HEAD, "1,99999999999999999999999999", "wanted"},
        {CKVC_SIDE_HEAD, "1,1.0000000001", "wanted"},
        {CKVC_SIDE_HEAD, "1,1.2,1.1", "ascend"},
        {CKVC_SIDE_HEAD, "1,1", "ascend"},
        {CKVC_SIDE_HEAD, "1,1.00000001", "ascend"}, /* one float32 */
        {CKVC_SIDE_HEAD, ".", "wanted"},
        {CKVC_SIDE_GATE, "0:2.55:0.01", "255"},
        {CKVC_SIDE_GATE, "0:8:0.000000001", "255"},
        {CKVC_SIDE_GATE, "0:1:0.01,1.01:3:0.01", "255"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        action_grid g;
        FAILS(parse(cases[i].side, cases[i].text, &g, &err), CKVC_E_USAGE);
        if (!strstr(err.text, cases[i].says)) {
            fail_msg("'%s' says: %s", cases[i].text, err.text);
        }
    }
}

TEST(start) {
    static const struct {
        const char *gates;
        double start;
    } cases[] = {{GATES, 0.9},
                 {"0.8,0.88,0.92,1", 0.88},
                 {"0.2,0.4", 0.4},
                 {"0.95,1", 0.95},
                 {"0.85,0.91", 0.91}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        action_grid grids[CKVC_SIDE_COUNT];
        ckvc_table *t;
        const double budget = 0.5;
        OK(parse(CKVC_SIDE_HEAD, "0.5,1,1.5", &grids[CKVC_SIDE_HEAD], &err));
        OK(parse(CKVC_SIDE_GATE, cases[i].gates, &grids[CKVC_SIDE_GATE], &err));
        t = new_start_table(2, 2, 3, 2, &budget, 1, 16, grids);
        assert_int_equal(t->n_head_actions, 3);
        assert_true(t->weight[0] == 1.0f && t->weight[3] == 1.0f);
        assert_true(t->tau[0] == (float)cases[i].start && t->tau[11] == (float)cases[i].start);
        char why[256];
        assert_int_equal(ckvc_table_check(t, why, sizeof why), 0);
        ckvc_table_free(t);
        const action_grid *g = &grids[CKVC_SIDE_GATE];
        assert_true(g->values[side_neutral_of(CKVC_SIDE_GATE, g->values, g->n)] == cases[i].start);
    }
    /* Weight 1 changes nothing, the nearest one to it does. */
    const double heads[] = {0.9, 0.99, 1.0, 1.1};
    assert_int_equal(side_neutral_of(CKVC_SIDE_HEAD, heads, 4), 2);
    assert_int_equal(side_neutral_of(CKVC_SIDE_HEAD, heads, 2), -1);
    assert_int_equal(ckvc_grid_nearest(heads, 4, 0.95), 1);
    assert_int_equal(ckvc_grid_nearest(heads, 4, 0.945), 0); /* equally near, but for rounding */
}

static double value_of(const ckvc_table *t, const taken_action *a) {
    return (a->side == CKVC_SIDE_HEAD ? t->head_grid : t->gate_grid)[a->action];
}

/* A made-up prompt under two full grids: equal values give equal sets, counts and hashes. */
TEST(coarse_is_part_of_fine) {
    enum { L = 3, G = 2, T = 90, W = 16 };
    static const char *const grids_of[2][CKVC_SIDE_COUNT] = {
        {HEADS, GATES}, {"0.8:1.5:0.1", "0.8,0.85,0.9,0.96,1"}};
    static float alpha[T], rho[L * G * T];
    ckvc_rng rng = rng_of(11, 1, 0);
    for (int t = 0; t < T; t++) {
        const double u = ckvc_rng_double(&rng);
        alpha[t] = (float)(0.2 + 3.2 * u * u * u);
    }
    for (int i = 0; i < L * G * T; i++) { rho[i] = (float)(0.5 + ckvc_rng_double(&rng)); }
    const double budgets[] = {12, 0.5};
    ckvc_table *table[2];
    variant_list v[2] = {{0}, {0}};
    for (int i = 0; i < 2; i++) {
        action_grid grids[CKVC_SIDE_COUNT];
        prompt_sets *k;
        for (int side = 0; side < CKVC_SIDE_COUNT; side++) {
            OK(parse((ckvc_side)side, grids_of[i][side], &grids[side], &err));
        }
        table[i] = new_start_table(L, G, 1, 1, budgets, 2, W, grids);
        OK(prompt_sets_create(table[i], T, &(setting){.window = W}, &k, &err));
        build_sets(k, T, alpha, rho);
        build_variants(&v[i], k, BEHAVIOUR_BALANCED, -1, 1, "p");
        assert_int_equal(v[i].n_actions,
                         2 * L * (G * grids[CKVC_SIDE_HEAD].n + grids[CKVC_SIDE_GATE].n));
        prompt_sets_destroy(k);
    }
    assert_true(v[1].n < v[0].n);
    size_t shared = 0;
    for (size_t i = 0; i < v[1].n_actions; i++) {
        const taken_action *a = &v[1].actions[i];
        size_t found = 0;
        for (size_t j = 0; j < v[0].n_actions; j++) {
            const taken_action *b = &v[0].actions[j];
            if (a->side == b->side && a->layer == b->layer && a->head == b->head &&
                a->budget == b->budget && value_of(table[1], a) == value_of(table[0], b)) {
                assert_true(a->n_candidates == b->n_candidates && a->n_kept == b->n_kept);
                assert_true(a->set_hash == b->set_hash);
                assert_int_equal(a->variant == VARIANT_NONE, b->variant == VARIANT_NONE);
                found++;
            }
        }
        assert_int_equal(found, 1);
        shared += found;
    }
    assert_int_equal(shared, 2 * L * (G * 8 + 5));
    for (int i = 0; i < 2; i++) { variants_fini(&v[i]), ckvc_table_free(table[i]); }
}

/* Means in, one reward out: the reduction touches the losses and leaves the penalty alone. */
TEST(reward) {
    const double penalty = reward_penalty(side_beta_bud(CKVC_SIDE_GATE, 0.5), 100, 30, 20);
    assert_true(penalty == 0.5 / 100 * 10);
    assert_true(reward_penalty(side_beta_bud(CKVC_SIDE_HEAD, 0.5), 100, 30, 20) == 0.0);
    assert_true(reward_of(2.0, 2.25, CKVC_LOSS_MEAN, 64, penalty) == -0.25 - penalty);
    assert_true(reward_of(2.0, 2.25, CKVC_LOSS_SUM, 64, penalty) == -16.0 - penalty);
    assert_true(reward_loss_part(2.0, 2.25, CKVC_LOSS_SUM, 64) == -16.0);
}

RUN_TESTS(NULL, NULL)
