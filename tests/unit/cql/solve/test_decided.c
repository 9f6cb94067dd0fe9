/* What decided a choice, in states small enough to see. */
#include "cql/solve/variance.h"
#include "tests/unit/unit.h"

/* Two layers, two cells, two budgets, three thresholds; equal counts but in one state, where the
 * action of the best mean was logged once. States in order [l][x][b]. */
enum { S = 8, A = 3 };
static const double grid[A] = {0.8, 0.9, 1.0};
static const uint64_t n[S * A] = {4, 4, 4, /* the loss chooses as both do */
                                  4, 4, 4, /* the penalty turns the choice */
                                  0, 0, 0, /* no records */
                                  4, 4, 4, /* no action changes the loss */
                                  9, 1, 9, /* the mean is for the rare action, Q against it */
                                  4, 4, 4, 4, 4, 4, 0, 5, 0};
static const double mean[S * A] = {0, 1,   0, 0, 0.1, 0.2, 0, 0, 0, 0, 0, 0.5,
                                   0, 0.1, 0, 1, 0,   0,   1, 0, 0, 0, 1, 0};
static const double part[S * A] = {0, 1,   0, 1, 0, 0, 0, 0, 0, 2, 2, 2,
                                   0, 0.1, 0, 1, 0, 0, 0, 0, 1, 0, 1, 0};
static const double q[S * A] = {
    0, 1,  0, 0, 0.1, 0.2, 0, 0, 0, 0, 0, 0.5,
    0, -1, 0, 1, 0,   0,   1, 0, 0, 9, 1, 9}; /* 9: never logged, not looked at */

/* Of them those from the given one on, under two budgets. */
static decided_from states_from(size_t first, size_t n_states, size_t n_cells, double neutral) {
    return (decided_from){.S = n_states,
                          .X = n_cells,
                          .nB = 2,
                          .actions = {A, grid, neutral},
                          .n = n + first * A,
                          .q = q + first * A,
                          .mean = mean + first * A};
}

TEST(splits_and_states) {
    decided_from from = states_from(0, S, 2, 0.0);
    from.part = part;
    from.cql_alpha = 0.75;
    from.exact = true;
    CKVC_AUTO(decided_fini) decided d = decided_of(&from);
    static const int chosen[S] = {1, 2, -1, 2, 0, 0, 0, 1};
    static const bool by_loss[S] = {true, false, false, false, true, true, false, true},
                      flat[S] = {false, false, false, true, false, false, false, true};
    for (size_t s = 0; s < S; s++) {
        assert_int_equal(d.chosen[s], chosen[s]);
        assert_int_equal(d.by_loss[s], by_loss[s]);
        assert_int_equal(d.flat[s], flat[s]);
    }
    assert_int_equal(d.n_supported, 7);
    assert_int_equal(d.n_alpha, 1);
    assert_int_equal(d.n_failed, 0);
    assert_int_equal(d.records[0], 5);
    assert_int_equal(d.records[6], 19);
    assert_true(d.correlation > -1 && d.correlation < 1);
    /* budget 0: states 0 and 4 of cell 0, 6 of cell 1; budget 1: 1, 5 of cell 0, 3, 7 of cell 1 */
    const decided_split first = decided_sum(&d, 0), second = decided_sum(&d, 1),
                        all = decided_sum(&d, 2);
    assert_true(first.supported == 3 && first.by_loss == 2 && first.flat == 0);
    assert_true(second.supported == 4 && second.by_loss == 2 && second.flat == 2);
    assert_true(all.supported == 7 && all.by_loss == 4 && all.flat == 2);
    assert_true(d.split[1].supported == 1 && d.split[1].by_loss == 0);
}

/* No penalty, nothing to split; counts that are all equal say nothing. */
TEST(without_penalty) {
    const decided_from from = states_from(0, 2, 1, 1.0);
    CKVC_AUTO(decided_fini) decided d = decided_of(&from);
    assert_null(d.split);
    assert_int_equal(decided_sum(&d, 2).supported, 0);
    assert_true(isnan(d.correlation) && d.n_supported == 2 && d.chosen[1] == 2);
}

/* States of 19 and of 12 records: between the two. */
TEST(median_of_an_even_number) {
    const decided_from from = states_from(4, 2, 1, 1.0);
    CKVC_AUTO(decided_fini) decided d = decided_of(&from);
    assert_true(d.median == 15.5);
}

/* Q of another solver: the loss part's choice is held against the exact one, not against Q's. */
TEST(like_with_like) {
    const double stopped[A] = {0.3, 0, 0};
    decided_from from = states_from(0, 1, 1, 0.0);
    from.nB = 1;
    from.q = stopped;
    from.part = part;
    from.cql_alpha = 0.75;
    CKVC_AUTO(decided_fini) decided d = decided_of(&from);
    assert_true(d.chosen[0] == 0 && d.by_loss[0] && d.n_alpha == 1);
}

RUN_TESTS(NULL, NULL)
