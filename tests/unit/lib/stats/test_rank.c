/* Rank statistics against golden/method/spearman.json, intervals and quantiles against SciPy. */
#include "lib/stats/rank.h"
#include "tests/unit/golden.h"

static void same(double got, const json_t *want, const char *name, const char *what) {
    if (json_is_null(want) ? !isnan(got) : !(fabs(got - json_number_value(want)) <= 1e-12)) {
        fail_msg("%s, %s: got %.17g", name, what, got);
    }
}

TEST(golden_cases) {
    json_auto_t *root = golden_read("tests/golden/method/spearman.json");
    const json_t *c;
    size_t i;
    json_array_foreach(json_object_get(root, "cases"), i, c) {
        const char *name = json_string_value(json_object_get(c, "name"));
        const json_t *rows = json_object_get(c, "X");
        CKVC_AUTO_FREE double *x = golden_numbers(rows),
                              *y = golden_numbers(json_object_get(c, "Y"));
        const size_t L = json_array_size(rows), G = json_array_size(json_array_get(rows, 0));
        rank_layers r;
        rank_by_layer(x, y, L, G, 4, &r);
        same(r.overall, json_object_get(c, "overall"), name, "overall");
        same(r.bin_mean, json_object_get(c, "bin_mean"), name, "bin_mean");
        same(r.bin_min, json_object_get(c, "bin_min"), name, "bin_min");
        for (size_t b = 0; b < 4; ++b) {
            same(r.bins[b], json_array_get(json_object_get(c, "bins"), b), name, "bin");
        }
    }
    assert_int_equal(i, 13);
}

/* Of normal pairs as wide as theory says: atanh rho has a standard error of
 * sqrt((1 + rho^2 / 2) / (n - 3)) (Bonett and Wright). */
TEST(ends_are_those_of_theory) {
    enum { N = 400 };
    double x[N], y[N], lo, hi, same[2];
    ckvc_rng rng = rng_of(9, 0, 0);
    for (int i = 0; i < N; i++) {
        const double r = sqrt(-2 * log(1 - ckvc_rng_double(&rng))),
                     angle = 2 * acos(-1) * ckvc_rng_double(&rng);
        x[i] = r * cos(angle);
        y[i] = 0.6 * x[i] + 0.8 * r * sin(angle);
    }
    const double rho = rank_spearman(x, y, N), se = sqrt((1 + rho * rho / 2) / (N - 3));
    rank_spearman_ends(x, y, N, &lo, &hi);
    assert_true(lo < rho && rho < hi);
    assert_true(fabs((atanh(hi) - atanh(lo)) / (2 * 1.96 * se) - 1) < 0.1);
    rank_spearman_ends(x, y, N, &same[0], &same[1]);
    assert_true(same[0] == lo && same[1] == hi);
    rank_spearman_ends(x, x, N, &lo, &hi);
    assert_true(fabs(lo - 1) < 1e-12 && fabs(hi - 1) < 1e-12);
    for (int i = 0; i < N; i++) { y[i] = 1; }
    rank_spearman_ends(x, y, N, &lo, &hi);
    assert_true(isnan(lo) && isnan(hi));
}

TEST(undefined_is_nan) {
    double x[3] = {1.0, NAN, 2.0}, y[3] = {1.0, 2.0, 3.0};
    assert_true(isnan(rank_spearman(x, y, 3)));
    assert_true(isnan(rank_spearman(y, y, 1)));
    assert_true(isnan(rank_spearman(y, y, 0)));
    x[0] = x[1] = x[2] = 4.0;
    assert_true(isnan(rank_spearman(x, y, 3)));
}

TEST(bins_are_array_split) {
    for (int i = 0; i < 4; i++) { assert_int_equal(rank_bin_size(30, 4, i), i < 2 ? 8 : 7); }
    assert_int_equal(rank_bin_size(3, 4, 3), 0);
}

static void close_interval(rank_interval got, double lo, double hi) {
    close_to(got.lo, lo);
    close_to(got.hi, hi);
}

/* Expected numbers: scipy.stats.t.interval(0.95, n - 1, loc=mean, scale=scipy.stats.sem(d)). */
TEST(mean_intervals_agree_with_scipy) {
    double d[5] = {0.5, -0.25, 1.5, 0.75, 0.1}, line[40];
    for (int i = 0; i < 40; ++i) { line[i] = i * 0.1 - 1.0; }
    close_interval(rank_mean_interval(d, NULL, 5), -0.3089909032595354, 1.3489909032595353);
    close_interval(rank_mean_interval(d, NULL, 2), -4.63982677606551, 4.88982677606551);
    close_interval(rank_mean_interval(line, NULL, 40), 0.5761212085024908, 1.323878791497509);
    rank_interval r = rank_mean_interval(d, NULL, 5);
    close_to(r.mean, 0.52);
    close_to(r.se, 0.2985799725366723);
    r = rank_mean_interval(d, NULL, 1);
    assert_true(r.mean == 0.5 && isnan(r.lo) && isnan(r.hi) && isnan(r.se));
    assert_true(isnan(rank_mean_interval(d, NULL, 0).mean));
}

/* Expected numbers: numpy, by the formula of rank.h; t from scipy. Three documents, of five
 * prompts: what the mean is does not change, the interval becomes wider. */
TEST(clusters_widen_intervals) {
    const double d[6] = {0.5, -0.25, 1.5, 0.75, 0.1, 7};
    const char *const names[6] = {"b", "b", "a", "a", "", NULL};
    size_t cluster[6];
    rank_clusters(names, 6, cluster);
    const size_t want[6] = {0, 0, 2, 2, 4, 5};
    assert_memory_equal(cluster, want, sizeof want);
    CKVC_AUTO(rank_members_fini) rank_members m = rank_members_of(cluster, 6);
    assert_true(m.n_clusters == 4 && m.first[1] == 2 && m.first[2] == 4 && m.first[4] == 6);
    assert_true(m.at[2] == 2 && m.at[3] == 3 && m.at[4] == 4 && m.at[5] == 5);
    rank_interval r = rank_mean_interval(d, cluster, 5);
    close_to(r.mean, 0.52);
    close_to(r.se, 0.3686136188477035);
    close_interval(r, -1.0660163933578992, 2.1060163933578995);
    assert_true(r.n == 5 && r.n_clusters == 3);
    r = rank_mean_interval(d, cluster, 2); /* one document says nothing of others */
    assert_true(r.mean == 0.125 && r.n_clusters == 1 && isnan(r.lo) && isnan(r.se));
    /* each its own: the bits of a t interval, whatever they are called or left out */
    const size_t own[5] = {3, 1, 8, 2, 40};
    const rank_interval plain = rank_mean_interval(d, NULL, 5);
    r = rank_mean_interval(d, (const size_t[]){1, 2, 7, 8, 40}, 5);
    assert_memory_equal(&r, &plain, sizeof r);
    close_to(rank_mean_interval(d, own, 5).se, plain.se);
}

/* Expected numbers: numpy.quantile. */
TEST(quantiles_agree_with_numpy) {
    const double d[5] = {0.5, -0.25, 1.5, 0.75, 0.1}, p[6] = {0.0, 0.025, 0.3, 0.5, 0.975, 1.0};
    const double want[6] = {-0.25, -0.215, 0.18, 0.5, 1.4249999999999998, 1.5};
    double got[6];
    rank_quantile(d, 5, p, 6, got);
    for (int i = 0; i < 6; ++i) { assert_true(fabs(got[i] - want[i]) <= 2e-16); }
    assert_true(d[0] == 0.5 && d[4] == 0.1);
    rank_quantile(d, 1, p, 6, got);
    assert_true(got[0] == 0.5 && got[5] == 0.5);
    rank_quantile(d, 0, p, 1, got);
    assert_true(isnan(got[0]));
}

RUN_TESTS(NULL, NULL)
