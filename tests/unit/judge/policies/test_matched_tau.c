/* The threshold that keeps as many as a table, against counting under every threshold. */
#include "judge/policies/controls.h"
#include "tests/unit/unit.h"

enum { T = 300, UNITS = 7, WINDOW = 5, MOST = 90 };

static double tau_of(bool wide, int j) { return wide ? j / 200.0 * (j / 200.0) : j / 200.0; }

static double kept(double u[UNITS][T], double tau, uint32_t most) {
    double all = 0;
    for (int i = 0; i < UNITS; i++) {
        uint32_t n = 0;
        for (int t = 0; t < T; t++) { n += u[i][t] >= tau || t >= T - WINDOW; }
        all += n < most ? n : most;
    }
    return all;
}

/* Utilities of mean 1 or so; some lie on a threshold. */
TEST(nearest) {
    static double u[UNITS][T];
    ckvc_rng rng = rng_of(11, 1, 1);
    for (int i = 0; i < UNITS * T; i++) {
        const double x = -log(1 - ckvc_rng_double(&rng));
        u[i / T][i % T] = i % 3 ? x : floor(x * 200) / 200;
    }
    for (int run = 0; run < 4; run++) {
        const bool wide = run % 2;
        const uint32_t most = run < 2 ? T : MOST;
        for (uint32_t wanted = 0; wanted <= T; wanted += 12) {
            matched_tau *m = calloc(1, sizeof *m);
            double least = INFINITY;
            m->wide = wide;
            for (int i = 0; i < UNITS; i++) {
                matched_tau_add(m, &(matched_unit){u[i], T, WINDOW, most}, wanted);
            }
            for (int j = 0; j < MATCHED_STEPS; j++) {
                least = fmin(least, fabs(kept(u, tau_of(wide, j), most) - UNITS * (double)wanted));
            }
            const double tau = matched_tau_find(m),
                         off = kept(u, tau, most) - UNITS * (double)wanted;
            assert_true(fabs(off) == least);
            if (wanted > 100 && most == MOST) { /* the clamp decides: the start's step */
                assert_true(tau == tau_of(wide, 180));
            }
            free(m);
        }
    }
}

RUN_TESTS(NULL, NULL)
