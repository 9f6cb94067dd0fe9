/* Partial correlations against NumPy: residuals of numpy.linalg.lstsq on a constant and the
 * controls (of ranks), then numpy.corrcoef; without controls scipy.stats.spearmanr. */
#include "lib/stats/partial.h"
#include "lib/stats/rank.h"
#include "tests/unit/unit.h"

enum { N = 24 };
static const double tokens[N] = {396, 668, 326, 321, 609, 580, 850, 678, 608, 598, 449, 307,
                                 415, 715, 420, 522, 302, 798, 393, 461, 828, 606, 808, 684};
static const double structure[N] = {5.057, 4.894, 4.801, 5.491, 5.001, 5.491, 5.549, 4.975,
                                    5.143, 5.23,  4.848, 4.718, 4.809, 5.391, 5.12,  4.871,
                                    4.609, 5.253, 4.805, 4.669, 5.259, 5.086, 5.535, 5.451};
static const double semantic[N] = {4.35, 5.38, 9.57, 3.33,  6.14,  7.11, 12.22, 9.74,
                                   6.48, 6.38, 6.69, 13.59, 6.23,  6.54, 8.51,  7.04,
                                   6.83, 4.73, 7.36, 6.19,  11.78, 9.59, 7.32,  9.65};
static const double damage[N] = {1.1793, 1.405,  1.1858, 1.1482, 1.1761, 1.436,  1.4032, 1.1858,
                                 1.3062, 1.259,  1.2325, 1.4268, 1.1069, 1.3672, 1.2976, 1.3027,
                                 1.0933, 1.3965, 1.262,  1.2321, 1.3974, 1.3476, 1.5069, 1.3549};

static void check(size_t n_controls, bool ranks, double want) {
    const partial_columns c = {structure, damage, {tokens, semantic}, n_controls, N, NULL};
    const partial_result r = partial_correlation(&c, ranks, 0, 0, 0);
    if (!(fabs(r.r - want) < 1e-12)) {
        fail_msg("%zu controls, ranks %d: %.17g, wanted %.17g", n_controls, ranks, r.r, want);
    }
    assert_int_equal(r.n_controls, n_controls);
}

TEST(values) {
    check(0, false, 0.5216170397257315);
    check(1, false, 0.19346614049780295);
    check(2, false, 0.2699431069729215);
    check(0, true, 0.4923879947803393);
    check(1, true, 0.18723985039527935);
    check(2, true, 0.2406209523992025);
    assert_true(fabs(rank_spearman(structure, damage, N) - 0.4923879947803393) < 1e-12);
}

TEST(edges) {
    double same[N], linear[N], with_nan[N];
    for (int i = 0; i < N; i++) {
        same[i] = 512;
        linear[i] = 3 * tokens[i] - 7;
        with_nan[i] = i == 4 ? NAN : i;
    }
    const struct {
        partial_columns c;
        bool ranks;
        double want;
        size_t n_controls;
    } cases[] = {
        /* a constant control says nothing; neither does one that another gives */
        {{structure, damage, {same}, 1, N, NULL}, false, 0.5216170397257315, 0},
        {{structure, damage, {tokens, linear}, 2, N, NULL}, false, 0.19346614049780295, 1},
        /* nothing left to correlate */
        {{same, damage, {tokens}, 1, N, NULL}, false, NAN, 0},
        {{linear, damage, {tokens}, 1, N, NULL}, true, NAN, 0},
        {{structure, damage, {tokens}, 1, 3, NULL}, false, NAN, 0},
        {{structure, damage, {tokens}, 1, 0, NULL}, true, NAN, 0},
        {{with_nan, damage, {tokens}, 1, N, NULL}, true, NAN, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const partial_result r = partial_correlation(&cases[i].c, cases[i].ranks, 10, 1, 1);
        if (isnan(cases[i].want)) {
            assert_true(isnan(r.r) && isnan(r.lo));
        } else {
            assert_true(fabs(r.r - cases[i].want) < 1e-12 && r.n_controls == cases[i].n_controls);
        }
    }
}

/* Four copies of every row, of one document each: rows drawn alone give half the interval. */
TEST(documents_are_drawn_whole) {
    enum { EACH = 4 };
    static double x[EACH * N], y[EACH * N];
    size_t cluster[EACH * N];
    for (size_t i = 0; i < EACH * N; i++) {
        x[i] = structure[i / EACH];
        y[i] = damage[i / EACH];
        cluster[i] = i / EACH;
    }
    partial_columns c = {x, y, {NULL}, 0, EACH * N, NULL};
    const partial_result alone = partial_correlation(&c, false, 2000, 1, 7);
    c.cluster = cluster;
    const partial_result whole = partial_correlation(&c, false, 2000, 1, 7);
    const double wider = (atanh(whole.hi) - atanh(whole.lo)) / (atanh(alone.hi) - atanh(alone.lo));
    assert_true(whole.r == alone.r && wider > 1.7 && wider < 2.4);
}

/* The bootstrap's spread is near the textbook's: sd of Fisher's z is 1/sqrt(n - 3 - controls). */
TEST(intervals) {
    partial_columns c = {structure, damage, {tokens}, 1, N, NULL};
    partial_result a = partial_correlation(&c, false, 2000, 1, 7),
                   b = partial_correlation(&c, false, 2000, 1, 7);
    assert_memory_equal(&a, &b, sizeof a);
    double half = (atanh(a.hi) - atanh(a.lo)) / 2, textbook = 1.96 / sqrt(N - 4);
    assert_true(a.lo < a.r && a.r < a.hi && half > 0.6 * textbook && half < 1.6 * textbook);

    enum { MANY = 200 };
    static double x[MANY], y[MANY], z[MANY];
    ckvc_rng rng = rng_of(88, 17, 26);
    int covered = 0;
    for (int trial = 0; trial < 60; trial++) {
        for (int i = 0; i < MANY; i++) {
            z[i] = ckvc_rng_double(&rng);
            /* x and y go with z, and not with each other beyond that */
            x[i] = ckvc_rng_double(&rng) + 2 * z[i];
            y[i] = ckvc_rng_double(&rng) + 3 * z[i];
        }
        partial_columns u = {x, y, {z}, 1, MANY, NULL};
        a = partial_correlation(&u, true, 200, (uint64_t)trial, 1);
        covered += a.lo <= 0 && 0 <= a.hi;
    }
    assert_in_range(covered, 51, 60); /* 57 expected */
}

RUN_TESTS(NULL, NULL)
