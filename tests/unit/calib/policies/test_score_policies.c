/* Controls and references of `ckvc score` on cases small enough to be done by hand. What they keep
 * on a model's prompts is compared with numpy in tests/python/test_score_policies.py. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "calib/policies/score_policies.h"
#include "tests/unit/sets_fixture.h"

/* 2 layers, 2 heads, 2 x 2 bins, 2 budgets; weights and thresholds from their action numbers. */
static ckvc_table *table_of(const int weight[8], const int tau[16]) {
    static const double budgets[2] = {16, 0.5};
    ckvc_table *t;
    t = new_start_table(2, 2, 2, 2, budgets, 2, 8, NULL);
    t->n_query_heads = 4;
    t->edges_entropy[0] = 3.5;
    t->edges_ppl[0] = 20;
    for (int i = 0; i < 8; i++) { t->weight[i] = (float)t->head_grid[weight[i]]; }
    for (int i = 0; i < 16; i++) { t->tau[i] = (float)t->gate_grid[tau[i]]; }
    return t;
}

static void test_controls(void **state) {
    (void)state;
    static const int weight[8] = {0, 28, 8, 7, 3, 3, 20, 9};
    /* [layer][cell][budget]: cells of (0, 0) are 0, 1, 20, 19; of (0, 1) 3, 3, 4, 4; of (1, 0) 5,
     * 5, 5, 6; of (1, 1) 20 all */
    static const int tau[16] = {0, 3, 1, 3, 20, 4, 19, 4, 5, 20, 5, 20, 5, 20, 6, 20};
    static const double mean[2][2] = {
        {0.9, 0.83}, {0.85, 1.0}}; /* 0.835 is half way: the lower; 0.8525 is nearest to 0.85 */
    ckvc_table *t = table_of(weight, tau);
    for (int kind = SCORE_NO_UTILITY; kind < SCORE_KIND_COUNT; kind++) {
        ckvc_table *c;
        assert_true(score_is_control((score_kind)kind) && !score_is_reference((score_kind)kind));
        c = score_control_table((score_kind)kind, t);
        assert_int_equal(ckvc_table_check(c, NULL, 0), 0);
        assert_int_equal(c->n_query_heads, 4);
        assert_int_equal(c->window, 8);
        assert_memory_equal(c->budgets, t->budgets, 2 * sizeof(double));
        assert_true(c->edges_entropy[0] == 3.5 && c->edges_ppl[0] == 20);
        const ckvc_operator op = kind == SCORE_NO_UTILITY     ? CKVC_OPERATOR_NO_UTILITY
                                 : kind == SCORE_NO_THRESHOLD ? CKVC_OPERATOR_NO_THRESHOLD
                                 : kind == SCORE_MEAN_POOL    ? CKVC_OPERATOR_MEAN_POOL
                                                              : CKVC_OPERATOR_PAPER;
        assert_int_equal(c->op, op);
        for (int i = 0; i < 8; i++) {
            assert_true(c->weight[i] == (kind == SCORE_GATE_ONLY ? 1.0f : t->weight[i]));
        }
        for (int i = 0; i < 16; i++) {
            const float want = kind == SCORE_MEAN_GATE   ? (float)mean[i / 8][i % 2]
                               : kind == SCORE_HEAD_ONLY ? 0.9f
                                                         : t->tau[i];
            assert_true(c->tau[i] == want);
        }
        ckvc_table_free(c);
    }
    /* A probe's table keeps its operator where the control is about something else. */
    ckvc_table *c;
    t->op = CKVC_OPERATOR_MEAN_POOL;
    c = score_control_table(SCORE_MEAN_GATE, t);
    assert_int_equal(c->op, CKVC_OPERATOR_MEAN_POOL);
    ckvc_table_free(c);
    ckvc_table_free(t);
}

static void check_kept(score_kind kind, uint32_t T, uint32_t window, const float *alpha, uint32_t n,
                       const char *want) {
    double rank[16];
    uint32_t kept[16], scratch[16], n_candidates;
    char got[64] = "";
    score_ranking(kind, T, window, alpha, 1, "p", rank);
    n = ckvc_retain(T, rank, (ckvc_rule){-INFINITY, n, 0}, kept, &n_candidates, scratch);
    assert_int_equal(n_candidates, T);
    for (uint32_t i = 0; i < n; i++) { sprintf(got + strlen(got), "%s%u", i ? " " : "", kept[i]); }
    if (strcmp(got, want) != 0) {
        fail_msg("%s, %u of %u: kept '%s', wanted '%s'", score_kind_name(kind), n, T, got, want);
    }
}

static void test_references(void **state) {
    (void)state;
    /*                          0    1    2    3    4    5    6    7    8    9   10   11  */
    static const float a[12] = {.1f, .2f, .9f, .1f, .1f, .1f, .1f, .1f, .1f, .5f, 3.f, .0f};
    check_kept(SCORE_RECENT, 12, 2, a, 3, "9 10 11");
    check_kept(SCORE_RECENT, 12, 2, a, 0, "");
    check_kept(SCORE_SINK_RECENT, 12, 2, a, 6, "0 1 2 3 10 11");
    check_kept(SCORE_SINK_RECENT, 12, 2, a, 4, "0 1 2 3");
    check_kept(SCORE_SINK_RECENT, 12, 2, a, 2, "0 1");
    check_kept(SCORE_SINK_RECENT, 12, 2, a, 12, "0 1 2 3 4 5 6 7 8 9 10 11");
    check_kept(SCORE_WINDOW, 12, 2, a, 4, "1 2 9 10");
    check_kept(SCORE_WINDOW, 12, 2, a, 6, "1 2 7 8 9 10"); /* of the equal ones the later */
    /* The window 10, 11 first. Before it 0.9 reaches from 0 to 5 and 0.5 from 6 to 9; the 3.0
     * inside the window reaches nobody. */
    check_kept(SCORE_WINDOW_POOLED, 12, 2, a, 1, "11");
    check_kept(SCORE_WINDOW_POOLED, 12, 2, a, 4, "4 5 10 11");
    check_kept(SCORE_WINDOW_POOLED, 12, 2, a, 9, "0 1 2 3 4 5 9 10 11");
    check_kept(SCORE_WINDOW_POOLED, 3, 8, a, 2, "1 2"); /* a prompt within the window */
    /* An order by the prompt's name and the seed: the same again, nested, another for another
     * prompt or seed. */
    double first[12], again[12], other[12], seeded[12];
    score_ranking(SCORE_RANDOM, 12, 2, a, 1, "p", first);
    score_ranking(SCORE_RANDOM, 12, 2, a, 1, "p", again);
    score_ranking(SCORE_RANDOM, 12, 2, a, 1, "q", other);
    score_ranking(SCORE_RANDOM, 12, 2, a, 2, "p", seeded);
    assert_memory_equal(first, again, sizeof first);
    assert_memory_not_equal(first, other, sizeof first);
    assert_memory_not_equal(first, seeded, sizeof first);
}

/* Every position is drawn as often as any other: 3 of 8, over 4,000 prompts. */
static void test_random_is_fair(void **state) {
    (void)state;
    enum { PROMPTS = 4000, T = 8, N = 3 };
    uint32_t count[T] = {0}, kept[T], scratch[T], n_candidates;
    for (int i = 0; i < PROMPTS; i++) {
        char id[32];
        double rank[T];
        snprintf(id, sizeof id, "prompt %d", i);
        score_ranking(SCORE_RANDOM, T, 1, NULL, 1, id, rank);
        const uint32_t n =
            ckvc_retain(T, rank, (ckvc_rule){-INFINITY, N, 0}, kept, &n_candidates, scratch);
        assert_int_equal(n, N);
        for (uint32_t k = 0; k < n; k++) { count[kept[k]]++; }
    }
    const double p = (double)N / T, sd = sqrt(PROMPTS * p * (1 - p));
    for (int t = 0; t < T; t++) { assert_true(fabs(count[t] - PROMPTS * p) < 4.5 * sd); }
}

static void test_names(void **state) {
    (void)state;
    for (int kind = 0; kind < SCORE_KIND_COUNT; kind++) {
        assert_int_equal(score_kind_named(score_kind_name((score_kind)kind)), kind);
    }
    assert_int_equal(score_kind_named("windows"), SCORE_KIND_COUNT);
    assert_false(score_is_reference(SCORE_MATCHED) || score_is_control(SCORE_MATCHED) ||
                 score_is_reference(SCORE_IDENTITY));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_controls),
        cmocka_unit_test(test_references),
        cmocka_unit_test(test_random_is_fair),
        cmocka_unit_test(test_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
