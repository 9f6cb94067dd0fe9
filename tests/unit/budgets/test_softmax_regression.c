/* The fit of a head's learned ranking: targets that a linear form made are found again, the
 * objective is flat where it stops, weights stand for positions that were not logged. */
#include "budgets/softmax_regression.h"
#include "tests/unit/unit.h"

enum { D = 5, N = 40, PROMPTS = 6 }; /* the last feature is the constant 1 */

typedef struct data {
    float f[PROMPTS][N][D];
    double weight[PROMPTS][N], yf[PROMPTS][D];
    softmax_prompt prompts[PROMPTS];
} data;

/* Features with other means and spreads by column; targets softmax(truth . f), or noise. */
static void make(data *d, const double *truth) {
    ckvc_rng r = rng_of(7, 1, 2);
    memset(d, 0, sizeof *d);
    for (int p = 0; p < PROMPTS; p++) {
        double y[N], sum = 0.0;
        for (int i = 0; i < N; i++) {
            double dot = 0.0;
            for (int k = 0; k < D; k++) {
                d->f[p][i][k] =
                    k == D - 1
                        ? 1.0f
                        : (float)((k + 1) * 3.0 + pow(4.0, k - 1) * (ckvc_rng_double(&r) - 0.5));
                dot += truth ? truth[k] * (double)d->f[p][i][k] : 0.0;
            }
            d->weight[p][i] = 1.0;
            y[i] = truth ? exp(dot) : ckvc_rng_double(&r);
            sum += y[i];
        }
        d->prompts[p] = (softmax_prompt){N, d->f[p][0], D, d->weight[p], d->yf[p], 0.5 + p};
        for (int i = 0; i < N; i++) {
            for (int k = 0; k < D; k++) {
                d->yf[p][k] += d->prompts[p].y * y[i] / sum * (double)d->f[p][i][k];
            }
        }
    }
}

TEST(finds_the_form_that_made_the_targets) {
    static data d;
    const double truth[D] = {2.0, -0.7, 0.4, 0.05, 0.0};
    double theta[D];
    make(&d, truth);
    const softmax_fit fit = softmax_regression(d.prompts, PROMPTS, D, 0.0, theta);
    assert_true(fit.gradient <= 1e-9);
    assert_true(fit.steps >= 2 && fit.steps < 30);
    /* a Newton step beyond a gradient above 1e-9: 3e-14 is seen; of the loss, the square of it */
    for (int k = 0; k < D; k++) { assert_true(fabs(theta[k] - truth[k]) <= 1e-9); }
    assert_true(fabs(softmax_loss(d.prompts, PROMPTS, D, theta) -
                     softmax_loss(d.prompts, PROMPTS, D, truth)) <= 1e-12);
}

/* The stated objective, by itself: the mean loss and the ridge on standardised features. */
static double stated(const data *d, double ridge, const double *theta) {
    double loss = 0.0, y = 0.0, penalty = 0.0;
    for (int p = 0; p < PROMPTS; p++) {
        double z = 0.0, dot = 0.0;
        for (int i = 0; i < N; i++) {
            double s = 0.0;
            for (int k = 0; k < D; k++) { s += theta[k] * (double)d->f[p][i][k]; }
            z += d->weight[p][i] * exp(s);
        }
        for (int k = 0; k < D; k++) { dot += theta[k] * d->yf[p][k]; }
        loss += d->prompts[p].y * log(z) - dot;
        y += d->prompts[p].y;
    }
    for (int k = 0; k < D; k++) {
        double mean = 0.0, square = 0.0, n = 0.0;
        for (int p = 0; p < PROMPTS; p++) {
            for (int i = 0; i < N; i++) {
                const double f = (double)d->f[p][i][k], w = d->weight[p][i];
                n += w;
                mean += w * f;
                square += w * f * f;
            }
        }
        const double variance = square / n - mean / n * (mean / n);
        penalty += 0.5 * ridge * theta[k] * theta[k] * (k == D - 1 ? 0.0 : variance);
    }
    return loss / y + penalty;
}

TEST(stops_where_the_objective_is_flat) {
    static data d;
    make(&d, NULL);
    for (int p = 0; p < PROMPTS; p++) {
        for (int i = 0; i < N; i++) { d.weight[p][i] = 1.0 + i % 3; }
    }
    double theta[D];
    const softmax_fit fit = softmax_regression(d.prompts, PROMPTS, D, 0.01, theta);
    assert_true(fit.gradient <= 1e-9);
    const double at = stated(&d, 0.01, theta);
    for (int k = 0; k < D - 1; k++) { /* every neighbour is higher, about equally on both sides */
        double near[4];
        for (int i = 0; i < 4; i++) {
            const double keep = theta[k];
            theta[k] += (double[]){-1e-3, 1e-3, -1e-5, 1e-5}[i];
            near[i] = stated(&d, 0.01, theta);
            theta[k] = keep;
        }
        assert_true(near[0] > at && near[1] > at);
        /* 0, but for the third derivative's 1e-10 and a difference's rounding of 1e-11 */
        assert_true(fabs((near[3] - near[2]) / 2e-5) <= 1e-9);
    }
    assert_true(theta[D - 1] == 0.0); /* the constant */
}

TEST(a_weight_stands_for_equal_positions) {
    static data d, twice;
    double a[D], b[D];
    make(&d, NULL);
    make(&twice, NULL);
    for (int p = 0; p < PROMPTS;
         p++) { /* the second half of one is the first half of the other again */
        for (int i = 0; i < N / 2; i++) {
            memcpy(twice.f[p][N / 2 + i], twice.f[p][i], sizeof twice.f[p][i]);
            d.weight[p][i] = 2.0;
        }
        d.prompts[p].n = N / 2;
    }
    softmax_regression(d.prompts, PROMPTS, D, 0.1, a);
    softmax_regression(twice.prompts, PROMPTS, D, 0.1, b);
    /* each ends where its gradient is below 1e-9 */
    for (int k = 0; k < D; k++) { assert_true(fabs(a[k] - b[k]) <= 1e-8); }
    assert_true(fabs(softmax_loss(d.prompts, PROMPTS, D, a) -
                     softmax_loss(twice.prompts, PROMPTS, D, b)) <= 1e-10);
}

TEST(no_target_no_form) {
    static data d;
    double theta[D];
    make(&d, NULL);
    for (int p = 0; p < PROMPTS; p++) { d.prompts[p].y = 0.0; }
    const softmax_fit fit = softmax_regression(d.prompts, PROMPTS, D, 0.1, theta);
    assert_int_equal(fit.steps, 0);
    for (int k = 0; k < D; k++) { assert_true(theta[k] == 0.0); }
    assert_true(softmax_loss(d.prompts, PROMPTS, D, theta) == 0.0);
}

RUN_TESTS(NULL, NULL)
