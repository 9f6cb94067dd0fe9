/* Scores that are wanted of the prefill; what policies keep by them: test_published_sets. */
#include "judge/policies/head_scores.h"
#include "tests/unit/unit.h"

/* Equal scores are one, and know what the prefill has to show. */
TEST(shared) {
    CKVC_AUTO(head_scores_fini) head_scores h = {0};
    const head_score kvzip = policy_rule_of(POLICY_KVZIP)->score,
                     snapkv = policy_rule_of(POLICY_SNAPKV)->score;
    assert_int_equal(head_scores_add(&h, kvzip), 0);
    assert_int_equal(h.wanted.n_rows, 0);
    assert_int_equal(head_scores_add(&h, snapkv), 1);
    assert_int_equal(head_scores_add(&h, policy_rule_of(POLICY_TOVA)->score), 2);
    assert_int_equal(h.wanted.n_rows, 32);
    assert_int_equal(head_scores_add(&h, snapkv), 1);
    assert_false(h.wanted.queries || h.wanted.column_sum);
    assert_int_equal(head_scores_add(&h, policy_rule_of(POLICY_EXPECTED_ATTENTION)->score), 3);
    assert_int_equal(head_scores_add(&h, policy_rule_of(POLICY_H2O)->score), 4);
    assert_true(h.wanted.queries && h.wanted.column_sum);
}

RUN_TESTS(NULL, NULL)
