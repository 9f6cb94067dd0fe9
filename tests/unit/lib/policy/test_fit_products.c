/* The products and exponentials of fitting: against plain loops and libm, and the version for this
 * processor against the one for every processor, bit by bit. */
#include "tests/unit/unit.h"

#include <float.h>
#include <math.h>

#include "lib/policy/fit_products.h"

enum { ROWS = 11, COLUMNS = 19, STRIDE = 21, N = 13 };

static double uniform(uint64_t *state) {
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (double)(*state >> 11) * 0x1p-53 * 2.0 - 1.0;
}

/* Products of all sizes up to ROWS x COLUMNS x N, with the left factor as it is and transposed, are
 * added and taken off. */
static void test_product(void **state) {
    double a[ROWS * N], b[N * STRIDE], before[ROWS * STRIDE], got[2][ROWS * STRIDE];
    uint64_t random = 20261128;
    (void)state;
    for (size_t i = 0; i < ROWS * N; i++) { a[i] = uniform(&random); }
    for (size_t i = 0; i < N * STRIDE; i++) { b[i] = uniform(&random); }
    for (size_t i = 0; i < ROWS * STRIDE; i++) { before[i] = uniform(&random); }
    for (size_t of = 0; of < (size_t)ROWS * COLUMNS * 4; of++) {
        const size_t rows = of % ROWS + 1, columns = of / ROWS % COLUMNS + 1, n = of % (N + 1);
        const double sign = of / (ROWS * COLUMNS) % 2 ? 1.0 : -1.0;
        const fit_factor factor = of / (ROWS * COLUMNS) / 2 ? (fit_factor){a, 1, ROWS, sign}
                                                            : (fit_factor){a, N, 1, sign};
        for (int plain = 0; plain < 2; plain++) {
            memcpy(got[plain], before, sizeof before);
            ckvc_fit_loops(plain).product(got[plain], rows, columns, STRIDE, factor, b, n);
        }
        assert_memory_equal(got[0], got[1], sizeof before);
        for (size_t i = 0; i < ROWS; i++) {
            for (size_t j = 0; j < STRIDE; j++) {
                double sum = 0;
                for (size_t k = 0; k < n && i < rows && j < columns; k++) {
                    sum += a[i * factor.row + k * factor.column] * b[k * STRIDE + j];
                }
                const double want = before[i * STRIDE + j] + sign * sum;
                assert_true(got[0][i * STRIDE + j] == want);
            }
        }
    }
}

/* The largest error, in units in the last place, is 1.0 at these numbers. */
static void test_exponentials(void **state) {
    enum { MANY = 200003 };
    double *x = malloc(MANY * sizeof *x), *got = malloc(MANY * sizeof *got),
           *plain = malloc(MANY * sizeof *plain);
    (void)state;
    for (size_t i = 0; i < MANY; i++) {
        x[i] = (i % 2 ? -708.0 : -3.0) * (double)i / (double)(MANY - 1);
    }
    memcpy(got, x, MANY * sizeof *x);
    memcpy(plain, x, MANY * sizeof *x);
    ckvc_fit_loops(0).exponentials(got, MANY);
    ckvc_fit_loops(1).exponentials(plain, MANY);
    assert_memory_equal(got, plain, MANY * sizeof *got);
    for (size_t i = 0; i < MANY; i++) {
        const double want = exp(x[i]);
        assert_true(fabs(got[i] - want) <= 2 * (nextafter(want, DBL_MAX) - want));
    }
    double edges[] = {0, -0.0, -708.0, -708.1, -DBL_MAX, -INFINITY, NAN};
    ckvc_fit_loops(0).exponentials(edges, sizeof edges / sizeof *edges);
    assert_true(edges[0] == 1 && edges[1] == 1 && edges[2] > 0);
    assert_true(edges[3] == 0 && edges[4] == 0 && edges[5] == 0 && isnan(edges[6]));
    free(x);
    free(got);
    free(plain);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_product),
                                       cmocka_unit_test(test_exponentials)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
