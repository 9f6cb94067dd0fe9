/* Logged rewards kept by prompt: refits must be those of the counts with the same seed. */
#include "cql/solve/cql.h"
#include "tests/unit/cql/cql_fixture.h"
#include "tests/unit/logged_fixture.h"

/* Uneven counts, states without records of some prompts: every replicate's choice is that of
 * cql_counts, and so is the bound's verdict. */
TEST(refits_are_those_of_counts) {
    enum { S = 5, A = 6, N = 30, R = 40 };
    const double grid[A] = {0.8, 0.9, 1.0, 1.1, 1.2, 1.3};
    for (int even = 0; even < 2; ++even) {
        cql_counts *c = cql_counts_create(S, A);
        CKVC_AUTO(cql_logged_free_at) cql_logged *l = new_logged(S, A, false);
        OK(cql_counts_resample(c, R, RESAMPLE_BOOTSTRAP, 7, SIZE_MAX, &err));
        ckvc_rng rng = rng_of(5, (uint64_t)even, 0);
        for (int p = 0; p < N; ++p) {
            cql_counts_prompt(c, numbered("p", p / 2)); /* two of each document */
            cql_logged_prompt(l, numbered("p", p / 2));
            for (size_t s = 0; s < S - 1; ++s) {
                for (size_t a = 0; a < A && ckvc_rng_below(&rng, 3) > 0 + (uint64_t)(even ? a : 0);
                     ++a) {
                    size_t action = even ? a : ckvc_rng_below(&rng, A);
                    double r = ckvc_rng_double(&rng) + 0.3 * (double)(action == s);
                    OK(cql_counts_add(c, s, action, r, r, &err));
                    add(l, s, action, r, 0.0);
                }
            }
        }
        cql_logged_finish(l);
        assert_int_equal(l->n_records, cql_counts_records(c));
        uint16_t by_counts[R * S], by_blocks[R * S];
        CKVC_AUTO_FREE uint8_t *w = cql_logged_weights(l, R, RESAMPLE_BOOTSTRAP, 7);
        const ckvc_actions actions = {A, grid, 1.0};
        const cql_resampled counted = cql_counts_resampled(c, 0.5),
                            blocked = cql_logged_resampled(l, w, R, CQL_ADVANTAGE, 0.5);
        OK(cql_resampled_choices(&counted, &actions, 0.75, by_counts, &err));
        OK(cql_resampled_choices(&blocked, &actions, 0.75, by_blocks, &err));
        assert_memory_equal(by_counts, by_blocks, sizeof by_counts);
        assert_int_equal(by_blocks[S - 1], CQL_NO_CHOICE);
        for (size_t s = 0; s < S - 1; ++s) {
            for (int a = 0; a < A; ++a) {
                bool better = cql_lower_bound(&blocked, s, a, 2, NULL) > 0.0;
                assert_int_equal(better, cql_lower_bound(&counted, s, a, 2, NULL) > 0.0);
                assert_false(a == 2 && better); /* than itself */
            }
        }
        cql_counts_free(c);
    }
}

/* cql_choice leaves out the solver where counts are equal, and chooses as it does, near ties. */
TEST(equal_counts_need_no_solver) {
    enum { A = 7 };
    const double grid[A] = {0.8, 0.9, 1.0, 1.1, 1.2, 1.3, 1.4},
                 gaps[] = {0.0, 1e-16, 4e-10, 1.1e-9, 3e-9, 1e-8, 1e-3};
    const ckvc_actions head = {A, grid, 1.0}, gate = {A, grid, 0.0};
    ckvc_rng rng = rng_of(3, 0, 0);
    for (int t = 0; t < 2000; ++t) {
        uint64_t n[A];
        double mean[A], q[A];
        cql_certificate cert;
        for (size_t a = 0; a < A; ++a) {
            n[a] = ckvc_rng_below(&rng, 4) > 0 ? 9 : 0;
            mean[a] = gaps[ckvc_rng_below(&rng, 7)] - (double)ckvc_rng_below(&rng, 2);
        }
        double alpha = (double)ckvc_rng_below(&rng, 3);
        assert_true(cql_solve_exact(A, n, mean, alpha, q, &cert));
        assert_int_equal(cql_choice(&head, n, mean, alpha), cql_choose(&head, q));
        assert_int_equal(cql_choice(&gate, n, mean, alpha), cql_choose(&gate, q));
    }
}

TEST(raw_rewards_and_loss_parts) {
    uint64_t n[2];
    double mean[2];
    cql_logged *l = new_logged(1, 2, true);
    cql_logged_prompt(l, "a");
    add(l, 0, 0, 1.0, -4.0);
    add(l, 0, 1, 2.0, -4.0);
    cql_logged_prompt(l, "b");
    add(l, 0, 1, 5.0, -1.0);
    cql_logged_finish(l);
    assert_false(l->balanced);
    assert_int_equal(cql_logged_state(l, 0, NULL, CQL_RAW, 2.0, n, mean), 2);
    assert_true(n[0] == 1 && n[1] == 2 && mean[0] == -1.5 && mean[1] == (-2.0 + 4.0) / 2.0 / 2.0);
    cql_logged_state(l, 0, NULL, CQL_LOSS_PART, 1.0, n, mean);
    assert_true(mean[0] == 0.5 && mean[1] == 1.75);
    const uint8_t once[2] = {0, 3};
    assert_int_equal(cql_logged_state(l, 0, once, CQL_ADVANTAGE, 1.0, n, mean), 1);
    assert_true(n[0] == 0 && n[1] == 3 && mean[1] == 5.0);
    FAILS(cql_logged_add(l, 0, 0, NAN, 0.0, 0.0, &err), CKVC_E_DATA);
    cql_logged_free(l);
    FAILS(cql_logged_create(1000, 4, false, 10, &l, &err), CKVC_E_MEMORY);
}

RUN_TESTS(NULL, NULL)
