/* Variance, bounds, learning curves and gains on prompts left out, against numbers worked out by
 * hand or with NumPy (said where they stand). */
#include "cql/solve/stability.h"
#include "cql/solve/variance.h"
#include "tests/unit/cql/cql_fixture.h"
#include "tests/unit/logged_fixture.h"

/* Expected: a two-way analysis of variance per state and its delete-one jackknife, in NumPy. */
TEST(variance_agrees_with_numpy) {
    static const double y0[4][3] = {{0, .3, -.2}, {0, .5, .1}, {0, -.1, .4}, {0, .2, .2}},
                        base0[4] = {-1, -2, -.5, -3};
    static const double y1[4][3] = {{0, 1, .5}, {0, .6, -.3}, {0, 0, 0}, {0, .9, .1}},
                        base1[4] = {-1.5, -.25, 0, -4};
    cql_logged *l = new_logged(3, 3, false);
    for (int p = 0; p < 4; ++p) {
        cql_logged_prompt(l, (const char *[]){"a", "b", "c", "d"}[p]);
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
    assert_true(b[2].n_actions == 2 && b[2].n_prompts == 1 && b[2].width == 3 && b[2].spread == 2);
    close_to(b[0].width, 0.7);
    close_to(b[0].spread, 0.225);
    close_to(b[0].bound, 0.54151072865216643);
    close_to(b[1].spread, 0.83333333333333337);
    close_to(b[1].bound, 1.1612393555523381);
    cql_logged_free(l);

    l = new_logged(1, 3, false);
    cql_logged_finish(l);
    v = variance_of(l, CQL_ADVANTAGE);
    assert_true(v.n_states == 0 && isnan(v.action) && isnan(v.common_all));
    cql_logged_free(l);
}

/* Six prompts, each twice: as documents of two they say of other prompts less than as twelve. */
TEST(variance_is_by_document) {
    double width[2];
    for (int alone = 0; alone < 2; alone++) {
        CKVC_AUTO(cql_logged_free_at) cql_logged *l = new_logged(1, 2, false);
        for (int p = 0; p < 12; p++) {
            cql_logged_prompt(l, numbered("", alone ? p : p / 2));
            add(l, 0, 0, 0, 0);
            add(l, 0, 1, (double[]){.3, .5, -.1, .2, .9, .4}[p / 2], 0);
        }
        cql_logged_finish(l);
        assert_int_equal(l->n_clusters, alone ? 12 : 6);
        const rank_interval of = variance_of(l, CQL_ADVANTAGE).action_interval;
        assert_int_equal(of.n, l->n_clusters);
        width[alone] = of.hi - of.lo;
    }
    assert_true(width[0] > 1.3 * width[1]);
}

TEST(corrections) {
    close_to(spearman_brown(0.5), 2.0 / 3.0);
    close_to(spearman_brown(-0.25), -0.25);
    assert_true(isnan(spearman_brown(NAN)));
    sample_spread s = {0.6, -0.1, 1.0, 9};
    spearman_brown_spread(&s);
    close_to(s.mean, 0.75);
    close_to(s.lo, -0.1);
    close_to(s.hi, 1.0);
    close_to(reliability_ceiling(0.64, 0.49), 0.56);
    assert_true(isnan(reliability_ceiling(-0.1, 0.9)) && isnan(reliability_ceiling(NAN, 0.9)));
}

/* Two prompts, one state. Fitted from the first, action 1 is chosen and brings the second 0.5;
 * fitted from the second, action 2 brings the first 0.2. */
TEST(prompts_left_out_by_hand) {
    static const double grid[3] = {0.9, 1.0, 1.1};
    static const int incoming[1] = {0};
    CKVC_AUTO(cql_logged_free_at) cql_logged *l = new_logged(1, 3, false);
    for (size_t i = 0; i < 6; ++i) {
        if (i % 3 == 0) { cql_logged_prompt(l, i ? "second" : "first"); }
        add(l, 0, i % 3, (double[]){0.0, 1.0, 0.2, 0.0, 0.5, 2.0}[i], i < 3 ? -1.0 : -2.0);
    }
    cql_logged_finish(l);
    const stability_fit s = {l, {0.75, 1.0, {3, grid, 1.0}, CQL_ADVANTAGE}, incoming, 1};
    double gain[2];
    OK(stability_left_out(&s, 1, 32, 1, gain, &err));
    close_to(gain[0], 0.2);
    close_to(gain[1], 0.5);
    l->cluster[1] = l->cluster[0]; /* of one document: neither is left out with the other */
    OK(stability_left_out(&s, 1, 32, 1, gain, &err));
    assert_true(isnan(gain[0]) && isnan(gain[1]));
    l->cluster[1] = 1;
}

/* Prompts that agree give 1 from the first on; noise stays near 0 and gains nothing left out. */
TEST(learning_curves_tell_signal_from_noise) {
    enum { S = 40, A = 9, N = 24 };
    double grid[A], gain[N];
    int incoming[S];
    for (int a = 0; a < A; ++a) { grid[a] = 0.6 + 0.1 * a; }
    for (int s = 0; s < S; ++s) { incoming[s] = 4; }
    for (int noise = 0; noise < 2; ++noise) {
        CKVC_AUTO(cql_logged_free_at) cql_logged *l = new_logged(S, A, false);
        ckvc_rng rng = rng_of(11, 0, 0);
        for (int p = 0; p < N; ++p) {
            cql_logged_prompt(l, numbered("q", p));
            for (size_t i = 0; i < S * A; ++i) {
                const size_t s = i / A, a = i % A;
                const double d = (double)a - (double)(s % A), r = 1.0 - 0.01 * d * d;
                add(l, s, a, a == 4 ? 0.0 : noise ? ckvc_rng_double(&rng) - 0.5 : r, 0.0);
            }
        }
        cql_logged_finish(l);
        const stability_fit side = {l, {0.75, 1.0, {A, grid, 1.0}, CQL_ADVANTAGE}, incoming, 2};
        stability_point one, half, all;
        OK(stability_curve_point(&side, 1, 20, 1, &one, &err));
        OK(stability_curve_point(&side, 12, 20, 1, &half, &err));
        OK(stability_curve_point(&side, 24, 20, 1, &all, &err));
        OK(stability_left_out(&side, 12, 20, 1, gain, &err));
        assert_true(!half.corrected && all.corrected && one.prompts == 1);
        close_to(one.records, S * A);
        close_to(half.records, 12 * S * A);
        close_to(half.supported, 1.0);
        double mean = 0.0;
        for (int p = 0; p < N; ++p) { mean += gain[p] / N; }
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
    }
}

/* Even counts: nothing to turn. Two actions 1e-3 apart with 4 records each: any uneven draw lets
 * the rarer lose, so the choice turns whenever the better one is drawn more rarely: (1 -
 * C(8,4)/2^8) / 2 = 0.36328125 of draws. (Q of the rarer is lower by far more than 1e-3.) */
TEST(count_noise_by_hand) {
    const uint64_t n[2] = {4, 4}, many[2] = {100000, 100000};
    const double mean[2] = {0.001, 0.0}, apart[2] = {5.0, 0.0};
    const cql_fit fit = {.cql_alpha = 0.75, .actions = {.n = 2}}, plain = {.actions = {.n = 2}};
    enum { DRAWS = 20000 };
    double share = variance_count_noise(&fit, n, mean, DRAWS, 1, 0);
    assert_true(fabs(share - 0.36328125) < 4.0 * sqrt(0.363 * 0.637 / DRAWS));
    assert_true(variance_count_noise(&plain, n, mean, 200, 1, 0) < 0.02); /* 2/2^8: one not drawn */
    assert_true(variance_count_noise(&fit, many, apart, 200, 1, 0) == 0.0);
    assert_true(isnan(variance_count_noise(&fit, (const uint64_t[]){0, 0}, mean, 9, 1, 0)));
}

RUN_TESTS(NULL, NULL)
