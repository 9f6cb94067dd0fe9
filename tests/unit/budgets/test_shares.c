/* Shares from demand: means by hand, intervals that cover and decide, halves that show noise. */
#include "lib/stats/resample.h"
#include "budgets/shares.h"
#include "tests/unit/unit.h"

enum { L = 6, X = 4, N = L * X };

/* Prompts around `profile` [L][X] with a uniform error of +- `noise`. */
static shares_sample made(const double *profile, double noise, size_t n, uint64_t first) {
    double *shares = ckvc_alloc(n * N, sizeof *shares);
    uint64_t *keys = ckvc_alloc(n, sizeof *keys);
    for (size_t p = 0; p < n; p++) {
        ckvc_rng rng;
        CKVC_AUTO_FREE char *id = ckvc_format("prompt-%llu", (unsigned long long)(first + p));
        keys[p] = ckvc_rng_key(id);
        ckvc_rng_init(&rng, 3, keys[p], 0);
        for (size_t i = 0; i < N; i++) {
            shares[p * N + i] = profile[i] + noise * (2 * ckvc_rng_double(&rng) - 1);
        }
    }
    return (shares_sample){L, X, n, shares, keys};
}

static void release(shares_sample *s) { CKVC_FREE(s->shares, s->keys); }

static void profile_of(double *profile) {
    for (int i = 0; i < N; i++) { profile[i] = 0.25 + (i * 7 % N) * 1.5 / (N - 1); }
}

TEST(means_by_hand) {
    const double shares[3][2] = {{0.5, 1.5}, {1.0, 1.0}, {0.25, 1.75}};
    double mean[2];
    shares_mean(&(shares_sample){1, 2, 3, shares[0], NULL}, mean);
    assert_true(mean[0] == 1.75 / 3 && mean[1] == 4.25 / 3);
    shares_mean(&(shares_sample){1, 2, 0, NULL, NULL}, mean);
    assert_true(mean[0] == 1.0 && mean[1] == 1.0);
}

/* The interval of a mean of independent prompts: near the normal one, narrower with more prompts;
 * the true value lies inside about as often as it says. */
TEST(intervals_cover) {
    double profile[N], interval[2 * N], wide[2 * N];
    int inside = 0, all = 0;
    profile_of(profile);
    for (uint64_t world = 0; world < 20; world++) {
        CKVC_AUTO(release) shares_sample s = made(profile, 0.6, 40, 1000 * world);
        shares_bootstrap(&s, 400, world, interval);
        for (int i = 0; i < N; i++, all++) {
            inside += interval[2 * i] <= profile[i] && profile[i] <= interval[2 * i + 1];
        }
    }
    /* of 95%: percentiles of 40 prompts are narrow by 1%, chance is as much again; 93.3% */
    assert_true(inside > 0.90 * all && inside < 0.98 * all);
    CKVC_AUTO(release) shares_sample few = made(profile, 0.6, 10, 0);
    shares_bootstrap(&few, 400, 1, wide);
    double ratio = 0.0;
    for (int i = 0; i < N; i++) {
        ratio += (wide[2 * i + 1] - wide[2 * i]) / (interval[2 * i + 1] - interval[2 * i]) / N;
    }
    assert_true(ratio > 1.5 && ratio < 2.5); /* sqrt(4) */
}

/* Every prompt four times: as four of one document they say what one says, as four of their own
 * they would halve the interval. Seven documents are too few, however many prompts they have. */
TEST(documents_are_drawn_whole) {
    enum { P = 12, TIMES = 4 };
    double profile[N], once[2 * N], whole[2 * N], own[2 * N], ratio = 0;
    profile_of(profile);
    CKVC_AUTO(release) shares_sample s = made(profile, 0.6, P, 0);
    CKVC_AUTO(release) shares_sample many = made(profile, 0.6, P * TIMES, 0);
    double *shares = ckvc_unconst(many.shares);
    uint64_t *keys = ckvc_unconst(many.keys);
    shares_bootstrap(&s, 400, 1, once);
    for (size_t p = 0; p < P * TIMES; p++) {
        memcpy(shares + p * N, s.shares + p / TIMES * N, N * sizeof *shares);
    }
    shares_bootstrap(&many, 400, 1, own);
    for (size_t p = 0; p < P * TIMES; p++) { keys[p] = s.keys[p / TIMES]; }
    shares_bootstrap(&many, 400, 1, whole);
    for (int i = 0; i < 2 * N; i++) {
        assert_true(fabs(whole[i] - once[i]) < 1e-12);
        ratio += i % 2 ? (whole[i] - whole[i - 1]) / (own[i] - own[i - 1]) / N : 0;
    }
    assert_true(ratio > 1.7 && ratio < 2.3);
    many.n_prompts = (RESAMPLE_MIN_PROMPTS - 1) * TIMES;
    shares_bootstrap(&many, 400, 1, whole);
    assert_true(whole[0] == 0.0 && whole[1] == N);
    assert_int_equal(shares_undecided(whole, N), N);
}

TEST(undecided_are_those_around_one) {
    const double interval[5][2] = {{0.2, 0.9}, {0.9, 1.1}, {1.0, 1.4}, {1.2, 3.0}, {0.3, 1.0}};
    assert_int_equal(shares_undecided(interval[0], 5), 3);
}

TEST(halves_tell_profiles_from_noise) {
    double profile[N], flat[N];
    profile_of(profile);
    for (int i = 0; i < N; i++) { flat[i] = 1.0; }
    CKVC_AUTO(release) shares_sample same = made(profile, 0.0, 20, 0);
    CKVC_AUTO(release) shares_sample noisy = made(profile, 0.5, 20, 0);
    CKVC_AUTO(release) shares_sample none = made(flat, 0.5, 20, 0);
    shares_halves h = shares_split(&same, 30, 1);
    assert_int_equal(h.n_groups, 3);
    /* (sums of equal numbers: the order of the means is the profile's) */
    assert_true(h.overall.mean > 1 - 1e-12 && h.groups[2].lo > 1 - 1e-12);
    h = shares_split(&noisy, 30, 1);
    /* +-0.5 over ten prompts deviates by 0.09, the profile by 0.45: 0.96 */
    assert_true(h.overall.mean > 0.9 && h.overall.mean < 0.99 && h.overall.n == 30);
    assert_true(h.overall.lo < h.overall.mean && h.overall.mean < h.overall.hi);
    const double again = h.overall.mean;
    h = shares_split(&none, 30, 1);
    /* of nothing: 1/sqrt(n - 1) is 0.21 of all N entries, 0.38 of a third */
    assert_true(fabs(h.overall.mean) < 0.25 && fabs(h.groups[0].mean) < 0.5);
    h = shares_split(&noisy, 30, 1);
    assert_true(h.overall.mean == again);
    h = shares_split(&noisy, 30, 2);
    assert_true(h.overall.mean != again);
    /* layers alone: two layers a group; one prompt has no second half */
    same.X = 1;
    assert_int_equal(shares_split(&same, 9, 1).n_groups, 3);
    same.n_prompts = 1;
    assert_true(shares_split(&same, 9, 1).overall.n == 0);
}

RUN_TESTS(NULL, NULL)
