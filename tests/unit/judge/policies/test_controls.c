/* Controls of `ckvc score` on cases small enough to be done by hand. What they keep on a model's
 * prompts is compared with numpy in tests/python/test_score_policies.py. */
#include "judge/policies/controls.h"
#include "tests/unit/sets_fixture.h"

/* 2 layers, 2 heads, 2 x 2 bins, 2 budgets; weights and thresholds from their action numbers. */
static ckvc_table *table_of(const int weight[8], const int tau[16]) {
    static const double budgets[2] = {16, 0.5};
    ckvc_table *t = new_start_table(2, 2, 2, 2, budgets, 2, 8, NULL);
    t->n_query_heads = 4;
    t->edges_entropy[0] = 3.5;
    t->edges_ppl[0] = 20;
    for (int i = 0; i < 8; i++) { t->weight[i] = (float)t->head_grid[weight[i]]; }
    for (int i = 0; i < 16; i++) { t->tau[i] = (float)t->gate_grid[tau[i]]; }
    return t;
}

TEST(controls) {
    static const int weight[8] = {0, 28, 8, 7, 3, 3, 20, 9};
    /* [layer][cell][budget]: cells of (0, 0) are 0, 1, 20, 19; of (0, 1) 3, 3, 4, 4; of (1, 0) 5,
     * 5, 5, 6; of (1, 1) 20 all */
    static const int tau[16] = {0, 3, 1, 3, 20, 4, 19, 4, 5, 20, 5, 20, 5, 20, 6, 20};
    static const double mean[2][2] = {
        {0.9, 0.83}, {0.85, 1.0}}; /* 0.835 is half way: the lower; 0.8525 is nearest to 0.85 */
    CKVC_AUTO(ckvc_table_free_at) ckvc_table *t = table_of(weight, tau);
    for (int kind = POLICY_NO_UTILITY; kind < POLICY_KIND_COUNT; kind++) {
        assert_true(policy_is_control((policy_kind)kind) &&
                    !policy_is_reference((policy_kind)kind));
        CKVC_AUTO(ckvc_table_free_at) ckvc_table *c = policy_control_table((policy_kind)kind, t);
        assert_int_equal(ckvc_table_check(c, NULL, 0), 0);
        assert_int_equal(c->n_query_heads, 4);
        assert_int_equal(c->window, 8);
        assert_memory_equal(c->budgets, t->budgets, 2 * sizeof(double));
        assert_true(c->edges_entropy[0] == 3.5 && c->edges_ppl[0] == 20);
        const ckvc_operator op = kind == POLICY_NO_UTILITY     ? CKVC_OPERATOR_NO_UTILITY
                                 : kind == POLICY_NO_THRESHOLD ? CKVC_OPERATOR_NO_THRESHOLD
                                 : kind == POLICY_MEAN_POOL    ? CKVC_OPERATOR_MEAN_POOL
                                                               : CKVC_OPERATOR_PAPER;
        assert_int_equal(c->op, op);
        for (int i = 0; i < 8; i++) {
            assert_true(c->weight[i] == (kind == POLICY_GATE_ONLY ? 1.0f : t->weight[i]));
        }
        for (int i = 0; i < 16; i++) {
            const float want = kind == POLICY_MEAN_GATE   ? (float)mean[i / 8][i % 2]
                               : kind == POLICY_HEAD_ONLY ? 0.9f
                                                          : t->tau[i];
            assert_true(c->tau[i] == want);
        }
    }
    /* A probe's table keeps its operator where the control is about something else. */
    t->op = CKVC_OPERATOR_MEAN_POOL;
    CKVC_AUTO(ckvc_table_free_at) ckvc_table *c = policy_control_table(POLICY_MEAN_GATE, t);
    assert_int_equal(c->op, CKVC_OPERATOR_MEAN_POOL);
}

TEST(names) {
    for (int kind = 0; kind < POLICY_KIND_COUNT; kind++) {
        assert_int_equal(policy_kind_named(policy_kind_name((policy_kind)kind)), kind);
    }
    assert_int_equal(policy_kind_named("windows"), POLICY_KIND_COUNT);
    assert_int_equal(policy_kind_named("Press"), POLICY_KIND_COUNT);
    assert_int_equal(policy_kind_named("SnapKVPress"), POLICY_PRESS);
    assert_int_equal(policy_kind_named("attention-matching"), POLICY_PRESS);
    assert_int_equal(policy_kind_named("cake+fit"), POLICY_CAKE);
    assert_int_equal(policy_kind_named("cak+fit"), POLICY_KIND_COUNT);
    assert_int_equal(policy_kind_named("+fit"), POLICY_KIND_COUNT);
    assert_true(policy_is_fitted("cake+fit"));
    assert_false(policy_is_fitted("cake") || policy_is_fitted("+fit") ||
                 policy_is_fitted("cake+fits"));
    assert_true(policy_is_reference(POLICY_PRESS) && !policy_needs_table(POLICY_PRESS) &&
                !policy_is_control(POLICY_PRESS));
    assert_false(policy_is_reference(POLICY_MATCHED) || policy_is_control(POLICY_MATCHED) ||
                 policy_is_reference(POLICY_IDENTITY));
}

RUN_TESTS(NULL, NULL)
