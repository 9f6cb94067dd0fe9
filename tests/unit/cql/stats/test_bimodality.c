/* The dip and Sarle's coefficient against other programs. Samples: the Python package diptest
 * 0.12.0 (Hartigan's algorithm AS 217 as corrected by Maechler). Histograms: a linear programme for
 * the nearest unimodal function, solved by scipy's linprog, which also agrees with diptest on each
 * value spread evenly over its bar. Sarle: scipy.stats.skew and kurtosis with bias=False. */
#include "cql/stats/bimodality.h"
#include "tests/unit/unit.h"

enum { ACTIONS = 29 };

/* Distinct sorted values: steps of 1/n. */
static double dip_of_sample(const double *x, const double *count, size_t k) {
    double lower[64], upper[64], n = 0, dip2;
    for (size_t i = 0; i < k; i++) { n += count[i]; }
    for (size_t i = 0; i < k; i++) {
        lower[i] = i ? upper[i - 1] : 0;
        upper[i] = lower[i] + count[i] / n;
    }
    dip2 = bimodality_dip(x, lower, upper, k, 1 / n);
    return dip2 / 2;
}

static void samples(void **state) {
    static const double two_normals[] = {-0.99, -0.89, -0.62, -0.49, -0.45, -0.27, 0.0,
                                         0.06,  0.3,   0.36,  0.49,  1.1,   1.16,  1.34,
                                         1.66,  1.71,  2.07,  2.54,  2.97,  3.11,  3.7};
    double ones[64], grid[ACTIONS];
    for (int i = 0; i < 64; i++) { ones[i] = 1; }
    assert_true(fabs(dip_of_sample(two_normals, ones, 21) - 0.05952380952380952) < 1e-14);
    for (int a = 0; a < ACTIONS; a++) { grid[a] = (32 + a) / 40.0; }
    static const struct {
        double count[ACTIONS], dip;
    } ties[] = {
        {{9, 7, 4, 2, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 2, 3, 5, 8, 6, 3, 2},
         0.17213804713804717},
        {{0, 0, 0, 1, 0, 1, 2, 3, 4, 6, 8, 9, 7, 5, 4, 2, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0},
         0.07407407407407407},
        {{3, 0, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 4},
         0.16666666666666666},
    };
    for (size_t i = 0; i < sizeof ties / sizeof *ties; i++) {
        double x[ACTIONS], count[ACTIONS];
        size_t k = 0;
        for (int a = 0; a < ACTIONS; a++) {
            if (ties[i].count[a] > 0) {
                x[k] = grid[a];
                count[k++] = ties[i].count[a];
            }
        }
        double got = dip_of_sample(x, count, k);
        if (!(fabs(got - ties[i].dip) < 1e-14)) {
            fail_msg("sample %zu: dip %.17g, wanted %.17g", i, got, ties[i].dip);
        }
    }
    /* evenly spaced values have the least dip that n values can have */
    double even[40];
    for (int i = 0; i < 40; i++) { even[i] = i; }
    assert_true(fabs(dip_of_sample(even, ones, 40) - 1 / 80.0) < 1e-15);
}

static void histograms(void **state) {
    double grid[ACTIONS];
    for (int a = 0; a < ACTIONS; a++) { grid[a] = (32 + a) / 40.0; }
    static const struct {
        const char *name;
        double count[ACTIONS], dip, sarle, p_lo, p_hi;
    } cases[] = {
        {"two peaks",
         {9, 7, 4, 2, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 2, 3, 5, 8, 6, 3, 2},
         0.1616161616161616,
         0.84926618724143,
         0,
         0.002},
        {"one peak",
         {0, 0, 0, 1, 0, 1, 2, 3, 4, 6, 8, 9, 7, 5, 4, 2, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0},
         0.004629629629629629,
         0.30449315725875375,
         0.99,
         1},
        {"even",
         {2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2},
         0,
         0.5096138800289505,
         1,
         1},
        {"three",
         {3, 0, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 4},
         0.15833333333333333,
         0.5188777703375109,
         0,
         0.004},
        {"skewed",
         {20, 11, 6, 4, 2, 1, 1, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1},
         0.010106382978723405,
         0.8186032443703987,
         0.99,
         1},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        bimodality b, again;
        b = bimodality_test(grid, cases[i].count, ACTIONS, 2000, 1);
        if (!(fabs(b.dip - cases[i].dip) < 1e-13 && fabs(b.sarle - cases[i].sarle) < 1e-11 &&
              b.p >= cases[i].p_lo && b.p <= cases[i].p_hi)) {
            fail_msg("%s: dip %.17g, Sarle %.17g, p %.4f", cases[i].name, b.dip, b.sarle, b.p);
        }
        again = bimodality_test(grid, cases[i].count, ACTIONS, 2000, 1);
        assert_memory_equal(&b, &again, sizeof b);
    }
}

/* p is uniform where the hypothesis holds at its edge: even draws are called two-peaked at 5% about
 * one time in twenty. */
static void level(void **state) {
    double grid[10], count[10];
    int called = 0;
    uint64_t x = 88172645463325252u; /* xorshift64: not the generator under test */
    for (int a = 0; a < 10; a++) { grid[a] = a; }
    for (int trial = 0; trial < 400; trial++) {
        bimodality b;
        memset(count, 0, sizeof count);
        for (int i = 0; i < 40; i++) {
            x ^= x << 13, x ^= x >> 7, x ^= x << 17;
            count[x / 11 % 10] += 1;
        }
        b = bimodality_test(grid, count, 10, 199, (uint64_t)trial);
        called += b.p <= 0.05;
    }
    assert_in_range(called, 8, 34); /* 20 expected, 4.4 standard deviation */
}

static void undefined(void **state) {
    double grid[3] = {0.8, 0.9, 1.0}, none[3] = {0}, one[3] = {0, 5, 0}, three[3] = {1, 1, 1};
    bimodality b;
    b = bimodality_test(grid, none, 3, 100, 1);
    assert_true(b.n == 0 && isnan(b.dip) && isnan(b.p) && isnan(b.sarle));
    b = bimodality_test(grid, one, 3, 100, 1);
    assert_true(b.n == 5 && b.dip < 1e-12 && b.p == 1 && isnan(b.sarle) && b.at_ends == 0);
    b = bimodality_test(grid, three, 3, 0, 1);
    assert_true(b.dip < 1e-12 && isnan(b.p) && isnan(b.sarle));
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(samples), cmocka_unit_test(histograms),
                                       cmocka_unit_test(level), cmocka_unit_test(undefined)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
