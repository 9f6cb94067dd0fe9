/* Logged rewards kept by prompt: refits must be those of the counts with the same seed; variance,
 * bounds and learning curves against numbers worked out by hand or with NumPy (said where they
 * stand). */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "cql/solve/counts.h"
#include "cql/solve/cql.h"
#include "cql/solve/logged.h"
#include "cql/stats/stability.h"
#include "cql/stats/variance.h"
#include "lib/base/rng.h"

static ckvc_err err;

static cql_logged *new_logged(size_t states, size_t actions, bool part) {
    cql_logged *l = NULL;
    if (cql_logged_create(states, actions, part, (size_t)1 << 26, &l, &err) != CKVC_OK) {
        fail_msg("%s", err.text);
    }
    return l;
}

static void prompt(cql_logged *l, const char *id) {
    cql_logged_prompt(l, id);
}

static void add(cql_logged *l, size_t s, size_t a, double advantage, double baseline) {
    assert_int_equal(cql_logged_add(l, s, a, advantage, 0.5 * advantage, baseline, &err), CKVC_OK);
}

static void close_to(double got, double want) {
    if (!(fabs(got - want) <= 1e-12 * fmax(1.0, fabs(want)))) {
        fail_msg("got %.17g, want %.17g", got, want);
    }
}

/* Uneven counts, states without records of some prompts: every replicate's choice is that of
 * cql_counts, and so is the bound's verdict. */
static void refits_are_those_of_counts(void **state) {
    (void)state;
    enum { S = 5, A = 6, N = 30, R = 40 };
    const double grid[A] = {0.8, 0.9, 1.0, 1.1, 1.2, 1.3};
    for (int even = 0; even < 2; ++even) {
        cql_counts *c = cql_counts_create(S, A);
        cql_logged *l = new_logged(S, A, false);
        assert_int_equal(cql_counts_resample(c, R, CQL_RESAMPLE_BOOTSTRAP, 7, SIZE_MAX, &err),
                         CKVC_OK);
        ckvc_rng rng;
        ckvc_rng_init(&rng, 5, (uint64_t)even, 0);
        for (int p = 0; p < N; ++p) {
            char id[16];
            snprintf(id, sizeof id, "p%d", p);
            cql_counts_prompt(c, id);
            prompt(l, id);
            for (size_t s = 0; s < S - 1; ++s) {
                for (size_t a = 0; a < A && ckvc_rng_below(&rng, 3) > 0 + (uint64_t)(even ? a : 0);
                     ++a) {
                    size_t action = even ? a : ckvc_rng_below(&rng, A);
                    double r = ckvc_rng_double(&rng) + 0.3 * (double)(action == s);
                    assert_int_equal(cql_counts_add(c, s, action, r, r, &err), CKVC_OK);
                    add(l, s, action, r, 0.0);
                }
            }
        }
        cql_logged_finish(l);
        assert_int_equal(l->n_records, cql_counts_records(c));
        uint16_t by_counts[R * S], by_blocks[R * S];
        uint8_t *w = cql_logged_weights(l, R, CQL_RESAMPLE_BOOTSTRAP, 7);
        const ckvc_actions actions = {A, grid, 1.0};
        const cql_resampled counted = cql_counts_resampled(c, 0.5),
                            blocked = cql_logged_resampled(l, w, R, CQL_ADVANTAGE, 0.5);
        assert_int_equal(cql_resampled_choices(&counted, &actions, 0.75, by_counts, &err), CKVC_OK);
        assert_int_equal(cql_resampled_choices(&blocked, &actions, 0.75, by_blocks, &err), CKVC_OK);
        assert_memory_equal(by_counts, by_blocks, sizeof by_counts);
        assert_int_equal(by_blocks[S - 1], CQL_NO_CHOICE);
        for (size_t s = 0; s < S - 1; ++s) {
            for (int a = 0; a < A; ++a) {
                bool better = cql_lower_bound(&blocked, s, a, 2, NULL) > 0.0;
                assert_int_equal(better, cql_lower_bound(&counted, s, a, 2, NULL) > 0.0);
                assert_false(a == 2 && better); /* than itself */
            }
        }
        free(w);
        cql_counts_free(c);
        cql_logged_free(l);
    }
}

/* cql_choice leaves out the solver where counts are equal: it must choose as the solver does, near
 * ties included. */
static void equal_counts_need_no_solver(void **state) {
    (void)state;
    enum { A = 7 };
    const double grid[A] = {0.8, 0.9, 1.0, 1.1, 1.2, 1.3, 1.4},
                 gaps[] = {0.0, 1e-16, 4e-10, 1.1e-9, 3e-9, 1e-8, 1e-3};
    const ckvc_actions head = {A, grid, 1.0}, gate = {A, grid, 0.0};
    ckvc_rng rng;
    ckvc_rng_init(&rng, 3, 0, 0);
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

static void raw_rewards_and_loss_parts(void **state) {
    (void)state;
    uint64_t n[2];
    double mean[2];
    cql_logged *l = new_logged(1, 2, true);
    prompt(l, "a");
    add(l, 0, 0, 1.0, -4.0);
    add(l, 0, 1, 2.0, -4.0);
    prompt(l, "b");
    add(l, 0, 1, 5.0, -1.0);
    cql_logged_finish(l);
    assert_false(l->whole);
    assert_int_equal(cql_logged_state(l, 0, &cql_all, CQL_RAW, 2.0, n, mean), 2);
    assert_true(n[0] == 1 && n[1] == 2 && mean[0] == -1.5 && mean[1] == (-2.0 + 4.0) / 2.0 / 2.0);
    cql_logged_state(l, 0, &cql_all, CQL_LOSS_PART, 1.0, n, mean);
    assert_true(mean[0] == 0.5 && mean[1] == 1.75);
    const uint8_t once[2] = {0, 3};
    const cql_subset of = {once, 1.0, 0};
    assert_int_equal(cql_logged_state(l, 0, &of, CQL_ADVANTAGE, 1.0, n, mean), 1);
    assert_true(n[0] == 0 && n[1] == 3 && mean[1] == 5.0);
    assert_int_equal(cql_logged_add(l, 0, 0, NAN, 0.0, 0.0, &err), CKVC_E_DATA);
    cql_logged_free(l);
    assert_int_equal(cql_logged_create(1000, 4, false, 10, &l, &err), CKVC_E_MEMORY);
}

/* Expected numbers: a two-way analysis of variance per state and its delete-one jackknife, written
 * out with NumPy. */
static void variance_agrees_with_numpy(void **state) {
    (void)state;
    static const double y0[4][3] = {{0, .3, -.2}, {0, .5, .1}, {0, -.1, .4}, {0, .2, .2}},
                        base0[4] = {-1, -2, -.5, -3};
    static const double y1[4][3] = {{0, 1, .5}, {0, .6, -.3}, {0, 0, 0}, {0, .9, .1}},
                        base1[4] = {-1.5, -.25, 0, -4};
    cql_logged *l = new_logged(3, 3, false);
    for (int p = 0; p < 4; ++p) {
        prompt(l, (const char *[]){"a", "b", "c", "d"}[p]);
        for (size_t a = 0; a < 3; ++a) {
            add(l, 0, a, y0[p][a], base0[p]);
            if (p != 2) { add(l, 1, a, y1[p][a], base1[p]); }
        }
        if (p >= 1) { /* the whole grid by no more than one prompt: no part in the split */
            add(l, 2, 0, (double)p, 0.0);
        }
        if (p == 2) { add(l, 2, 1, 0.0, 0.0); }
    }
    cql_logged_finish(l);
    variance_split v = variance_of(l, CQL_ADVANTAGE);
    assert_int_equal(v.n_states, 2);
    close_to(v.n_prompts, 3.5);
    close_to(v.rest, 0.049611111111111092);
    close_to(v.action, 0.08181746031746033);
    close_to(v.prompt, 0.002500000000000007);
    close_to(v.prompt_raw, 2.0205555555555557);
    close_to(v.share_prompt_raw, 0.9432035463486157);
    close_to(v.share_prompt, 0.13434396236278098);
    close_to(v.share_action, 0.63225300575013077);
    close_to(v.share_rest, 0.23340303188708825);
    close_to(v.common_one, 0.62252415458937216);
    close_to(v.common_all, 0.85233567589913195);
    close_to(v.action_interval.mean, 0.08847817460317467);
    close_to(v.action_interval.lo, -0.024381301907655806);
    close_to(v.action_interval.hi, 0.20133765111400515);

    /* 0.7 sqrt(log(2 * 3 / 0.05) / (2 * 4)), and the same of 1.3 and 3 prompts */
    variance_bound b[3];
    variance_bounds(l, 0.05, b);
    assert_true(b[0].n_prompts == 4 && b[0].n_actions == 3 && b[1].n_prompts == 3);
    assert_true(b[2].n_actions == 2 && b[2].n_prompts == 1 && b[2].width == 3.0 &&
                b[2].spread == 2.0);
    close_to(b[0].width, 0.7);
    close_to(b[0].width_raw, 2.9);
    close_to(b[0].spread, 0.225);
    close_to(b[0].bound, 0.54151072865216643);
    close_to(b[1].width_raw, 4.35);
    close_to(b[1].spread, 0.83333333333333337);
    close_to(b[1].bound, 1.1612393555523381);
    cql_logged_free(l);

    l = new_logged(1, 3, false);
    cql_logged_finish(l);
    v = variance_of(l, CQL_ADVANTAGE);
    assert_true(v.n_states == 0 && isnan(v.action) && isnan(v.common_all));
    cql_logged_free(l);
}

static void corrections(void **state) {
    (void)state;
    close_to(stability_spearman_brown(0.5), 2.0 / 3.0);
    close_to(stability_spearman_brown(-0.25), -0.25);
    assert_true(isnan(stability_spearman_brown(NAN)));
    stability_spread s = {0.6, -0.1, 1.0, 9};
    stability_correct(&s);
    close_to(s.mean, 0.75);
    close_to(s.lo, -0.1);
    close_to(s.hi, 1.0);
    close_to(stability_ceiling(0.64, 0.49), 0.56);
    assert_true(isnan(stability_ceiling(-0.1, 0.9)) && isnan(stability_ceiling(NAN, 0.9)));
}

/* Two prompts, one state. Fitted from the first, action 1 is chosen and brings the second 0.5;
 * fitted from the second, action 2 brings the first 0.2. Sorted on both: 1.1, 0.75, 0; each half in
 * the other's order: the means of (0.5, 2, 0) and (0.2, 1, 0). */
static void prompts_left_out_by_hand(void **state) {
    (void)state;
    static const double grid[3] = {0.9, 1.0, 1.1};
    static const int incoming[1] = {0};
    cql_logged *l = new_logged(1, 3, false);
    prompt(l, "first");
    add(l, 0, 0, 0.0, -1.0);
    add(l, 0, 1, 1.0, -1.0);
    add(l, 0, 2, 0.2, -1.0);
    prompt(l, "second");
    add(l, 0, 0, 0.0, -2.0);
    add(l, 0, 1, 0.5, -2.0);
    add(l, 0, 2, 2.0, -2.0);
    cql_logged_finish(l);
    const stability_fit s = {l, {0.75, 1.0, {3, grid, 1.0}, CQL_ADVANTAGE}, incoming, 1};
    double gain[2];
    assert_int_equal(stability_left_out(&s, 1, 32, 1, gain, &err), CKVC_OK);
    close_to(gain[0], 0.2);
    close_to(gain[1], 0.5);
    stability_ranks r = stability_rank_curve(l, 5, 1);
    assert_int_equal(r.n_states, 1);
    close_to(r.same[0], 1.1);
    close_to(r.same[1], 0.75);
    close_to(r.same[2], 0.0);
    close_to(r.other[0], 0.35);
    close_to(r.other[1], 1.5);
    close_to(r.other[2], 0.0);
    stability_ranks_free(&r);
    cql_logged_free(l);
}

/* A world where prompts agree gives 1 from the first prompt on; one of pure noise stays near 0 and
 * gains nothing on prompts left out. */
static void learning_curves_tell_signal_from_noise(void **state) {
    (void)state;
    enum { S = 40, A = 9, N = 24 };
    double grid[A], gain[N];
    int incoming[S];
    for (int a = 0; a < A; ++a) {
        grid[a] = 0.6 + 0.1 * a;
    }
    for (int s = 0; s < S; ++s) {
        incoming[s] = 4;
    }
    for (int noise = 0; noise < 2; ++noise) {
        cql_logged *l = new_logged(S, A, false);
        ckvc_rng rng;
        ckvc_rng_init(&rng, 11, 0, 0);
        for (int p = 0; p < N; ++p) {
            char id[16];
            snprintf(id, sizeof id, "q%d", p);
            prompt(l, id);
            for (size_t s = 0; s < S; ++s) {
                for (size_t a = 0; a < A; ++a) {
                    double d = (double)a - (double)(s % A);
                    add(l, s, a,
                        a == 4  ? 0.0
                        : noise ? ckvc_rng_double(&rng) - 0.5
                                : 1.0 - 0.01 * d * d,
                        0.0);
                }
            }
        }
        cql_logged_finish(l);
        const stability_fit side = {l, {0.75, 1.0, {A, grid, 1.0}, CQL_ADVANTAGE}, incoming, 2};
        stability_point one, half, all, thin;
        assert_int_equal(stability_curve_point(&side, 1, 1.0, 20, 1, &one, &err), CKVC_OK);
        assert_int_equal(stability_curve_point(&side, 12, 1.0, 20, 1, &half, &err), CKVC_OK);
        assert_int_equal(stability_curve_point(&side, 24, 1.0, 20, 1, &all, &err), CKVC_OK);
        assert_int_equal(stability_curve_point(&side, 12, 0.25, 20, 1, &thin, &err), CKVC_OK);
        assert_int_equal(stability_left_out(&side, 12, 20, 1, gain, &err), CKVC_OK);
        assert_true(!half.corrected && all.corrected && one.prompts == 1);
        close_to(one.records, S * A);
        close_to(half.records, 12 * S * A);
        close_to(half.supported, 1.0);
        assert_true(thin.records > 0.2 * half.records && thin.records < 0.3 * half.records);
        double mean = 0.0;
        for (int p = 0; p < N; ++p) {
            mean += gain[p] / N;
        }
        if (noise) {
            assert_true(fabs(one.rho.mean) < 0.1 && fabs(half.rho.mean) < 0.15 &&
                        one.to_full.mean < 0.5);
            assert_true(fabs(mean) < 0.05);
        } else {
            close_to(one.rho.mean, 1.0);
            close_to(all.rho.lo, 1.0);
            close_to(one.to_full.mean, 1.0);
            assert_true(mean > 0.8);
        }
        cql_logged_free(l);
    }
}

/* Even counts: nothing to turn. Two actions 1e-3 apart with 4 records each: any uneven draw lets
 * the rarer lose, so the choice turns whenever the better one is drawn more rarely: (1 -
 * C(8,4)/2^8) / 2 = 0.36328125 of draws. (Q of the rarer is lower by far more than 1e-3.) */
static void count_noise_by_hand(void **state) {
    (void)state;
    const uint64_t n[2] = {4, 4}, many[2] = {100000, 100000};
    const double mean[2] = {0.001, 0.0}, apart[2] = {5.0, 0.0};
    const cql_fit fit = {.cql_alpha = 0.75, .actions = {.n = 2}}, plain = {.actions = {.n = 2}};
    enum { DRAWS = 20000 };
    double share = variance_count_noise(&fit, n, mean, DRAWS, 1, 0);
    assert_true(fabs(share - 0.36328125) < 4.0 * sqrt(0.363 * 0.637 / DRAWS));
    assert_true(variance_count_noise(&plain, n, mean, 200, 1, 0) <
                0.02); /* only where one was not drawn at all: 2/2^8 */
    assert_true(variance_count_noise(&fit, many, apart, 200, 1, 0) == 0.0);
    assert_true(isnan(variance_count_noise(&fit, (const uint64_t[]){0, 0}, mean, 9, 1, 0)));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(refits_are_those_of_counts),
        cmocka_unit_test(equal_counts_need_no_solver),
        cmocka_unit_test(raw_rewards_and_loss_parts),
        cmocka_unit_test(variance_agrees_with_numpy),
        cmocka_unit_test(corrections),
        cmocka_unit_test(prompts_left_out_by_hand),
        cmocka_unit_test(learning_curves_tell_signal_from_noise),
        cmocka_unit_test(count_noise_by_hand),
    };
    return cmocka_run_group_tests_name("logged", tests, NULL, NULL);
}
