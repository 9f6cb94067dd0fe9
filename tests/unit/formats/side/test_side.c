/* Every side: its view of a table agrees with the table's own indices, and its kind with itself. */
#include "formats/side/side.h"
#include "tests/unit/unit.h"

enum { L = 3, G = 2, E = 4, P = 3, NB = 2 };

static ckvc_table *new_table(void) {
    ckvc_table *t = ckvc_table_create(L, G, E, P, NB, CKVC_HEAD_ACTIONS, CKVC_GATE_ACTIONS);
    assert_non_null(t);
    for (int i = 0; i < CKVC_SIDE_COUNT; i++) {
        const struct side s = side_of_table(t, (ckvc_side)i);
        for (size_t a = 0; a < s.actions.n; a++) { s.grid[a] = s.kind->default_action((int)a); }
        for (size_t k = 0; k < s.n_states; k++) { s.entries[k] = (float)s.grid[k % s.actions.n]; }
    }
    return t;
}

TEST(states_are_the_tables) {
    ckvc_table *t = new_table();
    const struct side head = side_of_table(t, CKVC_SIDE_HEAD),
                      gate = side_of_table(t, CKVC_SIDE_GATE);
    assert_true(head.entries == t->weight && gate.entries == t->tau);
    assert_true(head.n_states == L * G * NB && gate.n_states == L * E * P * NB);
    assert_true(side_of_prompt(&head) == G && side_of_prompt(&gate) == 1);
    for (uint32_t l = 0; l < L; l++) {
        for (uint32_t b = 0; b < NB; b++) {
            for (uint32_t g = 0; g < G; g++) {
                const size_t k = ckvc_weight_index(t, l, g, b);
                assert_int_equal(side_state(&head, l, g, 3, 2, b), k);
                assert_int_equal(side_prompt_state(&head, l, g, b), k);
                assert_int_equal(side_action(&head, t->weight[k]), k % CKVC_HEAD_ACTIONS);
            }
            for (uint32_t c = 0; c < E * P; c++) {
                assert_int_equal(side_state(&gate, l, CKVC_NO_HEAD, c / P, c % P, b),
                                 ckvc_tau_index(t, l, c / P, c % P, b));
            }
            assert_int_equal(side_prompt_state(&gate, l, CKVC_NO_HEAD, b), l * NB + b);
        }
    }
    assert_int_equal(side_action(&gate, 0.123f), -1);
    assert_int_equal(side_steps(&head, 0, 1), 1);
    assert_int_equal(side_steps(&gate, 0, 3 * P + 2), 5); /* three bins one way, two the other */
    ckvc_table_free(t);
}

TEST(neutral_and_safest) {
    ckvc_table *t = new_table();
    const struct side head = side_of_table(t, CKVC_SIDE_HEAD),
                      gate = side_of_table(t, CKVC_SIDE_GATE);
    assert_int_equal(side_neutral(&head), CKVC_HEAD_NEUTRAL);
    assert_int_equal(side_neutral(&gate), CKVC_GATE_START);
    assert_int_equal(side_safest(&head), CKVC_HEAD_NEUTRAL);
    assert_int_equal(side_safest(&gate), 0);
    const double without[2] = {0.9, 1.1}, thresholds[3] = {0.7, 0.86, 0.95};
    assert_int_equal(side_neutral_of(CKVC_SIDE_HEAD, without, 2), -1);
    assert_int_equal(side_neutral_of(CKVC_SIDE_GATE, thresholds, 3), 1);
    assert_true(side_beta_bud(CKVC_SIDE_HEAD, 2.0) == 0 && side_beta_bud(CKVC_SIDE_GATE, 2.0) == 2);
    ckvc_table_free(t);
}

TEST(kinds_are_whole) {
    for (int i = 0; i < CKVC_SIDE_COUNT; i++) {
        const side_kind *k = side_kind_of((ckvc_side)i);
        assert_true(k->entry && k->entries && k->grid_option && k->grid_text && k->start_name);
        for (uint32_t a = 1; a < k->n_default; a++) {
            assert_true(k->default_action((int)a) > k->default_action((int)a - 1));
        }
        for (int j = 0; j < i; j++) {
            assert_string_not_equal(ckvc_side_name((ckvc_side)i), ckvc_side_name((ckvc_side)j));
        }
    }
    assert_string_equal(ckvc_side_name(CKVC_SIDE_HEAD), "head");
    assert_string_equal(ckvc_side_name(CKVC_SIDE_GATE), "gate");
}

RUN_TESTS(NULL, NULL)
