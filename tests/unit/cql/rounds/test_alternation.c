/* The loop's decisions: stop rules at their edges, whose table goes out, what a probe runs. */
#include "cql/rounds/alternation.h"
#include "tests/unit/unit.h"

static alternation_round round_of(size_t changed, size_t supported, double gain, double se,
                                  size_t n) {
    return (alternation_round){
        .changed = changed, .supported = supported, .gain = {.mean = gain, .se = se, .n = n}};
}

static stop_rule after(size_t changed, size_t supported, double gain, double se, size_t n,
                       uint32_t number) {
    const alternation_round r = round_of(changed, supported, gain, se, n);
    return alternation_stop(&r, number, PROBE_JOINT, 3);
}

TEST(fewer_than_one_percent_and_one_entry) {
    assert_int_equal(after(0, 10, 1, 0.1, 9, 1), STOP_CONVERGED);
    /* 1% of 10 is less than one entry: one change is enough to go on */
    assert_int_equal(after(1, 10, 1, 0.1, 9, 1), STOP_NOT);
    assert_int_equal(after(9, 1000, 1, 0.1, 9, 1), STOP_CONVERGED);
    assert_int_equal(after(10, 1000, 1, 0.1, 9, 1), STOP_NOT);
    assert_int_equal(after(0, 0, 1, 0.1, 9, 1), STOP_CONVERGED);
}

TEST(a_rise_must_exceed_one_standard_error) {
    assert_int_equal(after(5, 10, 0.1, 0.1, 9, 1), STOP_HELDOUT);
    assert_int_equal(after(5, 10, 0.11, 0.1, 9, 1), STOP_NOT);
    assert_int_equal(after(5, 10, -0.5, 0.1, 9, 1), STOP_HELDOUT);
    assert_int_equal(after(5, 10, 0, 0, 9, 1), STOP_HELDOUT);
    assert_int_equal(after(5, 10, NAN, NAN, 0, 1), STOP_NOT); /* nothing held out */
    assert_int_equal(after(5, 10, -1, NAN, 1, 1), STOP_NOT);  /* one prompt has no standard error */
    assert_int_equal(after(0, 10, -1, 0.1, 9, 1), STOP_CONVERGED);
}

TEST(rounds_end) {
    assert_int_equal(after(5, 10, 1, 0.1, 9, 2), STOP_NOT);
    assert_int_equal(after(5, 10, 1, 0.1, 9, 3), STOP_ROUNDS);
    alternation_round r = round_of(5, 10, 1, 0.1, 9);
    assert_int_equal(alternation_stop(&r, 1, PROBE_INDEPENDENT, 3), STOP_ONCE);
    assert_int_equal(alternation_stop(&r, 1, PROBE_GRID_SEARCH, 3), STOP_ONCE);
    assert_int_equal(probe_rounds(PROBE_INDEPENDENT, 3), 1);
    assert_int_equal(probe_rounds(PROBE_JOINT, 3), 3);
}

TEST(the_best_round_goes_out) {
    alternation_round r[3] = {{.reward = -0.3}, {.reward = -0.1}, {.reward = -0.2}};
    assert_int_equal(alternation_best(r, 3), 1);
    assert_int_equal(alternation_best(r, 1), 0);
    r[2].reward = -0.1; /* of equal ones the later */
    assert_int_equal(alternation_best(r, 3), 2);
    r[2].reward = NAN;
    assert_int_equal(alternation_best(r, 3), 1);
    r[0].reward = r[1].reward = NAN; /* nothing measured: the last */
    assert_int_equal(alternation_best(r, 3), 2);
}

TEST(probes_have_names_and_sides) {
    ckvc_side sides[CKVC_SIDE_COUNT];
    char names[256] = "";
    for (int p = 0; p < PROBE_COUNT; p++) {
        strcat(strcat(names, p ? "|" : ""), probe_name((probe_kind)p));
    }
    assert_string_equal(names, PROBE_NAMES);
    assert_int_equal(probe_sides(PROBE_JOINT, sides), 2);
    assert_true(sides[0] == CKVC_SIDE_HEAD && sides[1] == CKVC_SIDE_GATE);
    assert_int_equal(probe_sides(PROBE_HEAD_ONLY, sides), 1);
    assert_int_equal(sides[0], CKVC_SIDE_HEAD);
    assert_int_equal(probe_sides(PROBE_GATE_ONLY, sides), 1);
    assert_int_equal(sides[0], CKVC_SIDE_GATE);
}

RUN_TESTS(NULL, NULL)
