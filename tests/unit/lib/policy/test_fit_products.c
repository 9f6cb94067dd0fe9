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
    double a[ROWS * N], b[N * STRIDE], before[ROWS * STRIDE], got[2][ROWS * STRIDE],
        got_of_floats[2][ROWS * STRIDE];
    float a_floats[ROWS * N], b_floats[N * STRIDE];
    uint64_t random = 20261128;
    (void)state;
    for (size_t i = 0; i < ROWS * N; i++) { a[i] = a_floats[i] = (float)uniform(&random); }
    for (size_t i = 0; i < N * STRIDE; i++) { b[i] = b_floats[i] = (float)uniform(&random); }
    for (size_t i = 0; i < ROWS * STRIDE; i++) { before[i] = uniform(&random); }
    for (size_t of = 0; of < (size_t)ROWS * COLUMNS * 4; of++) {
        const size_t rows = of % ROWS + 1, columns = of / ROWS % COLUMNS + 1, n = of % (N + 1),
                     row = of / (ROWS * COLUMNS) / 2 ? 1 : N, column = row == 1 ? ROWS : 1;
        const double sign = of / (ROWS * COLUMNS) % 2 ? 1.0 : -1.0;
        for (int plain = 0; plain < 2; plain++) {
            const fit_loops run = ckvc_fit_loops(plain);
            memcpy(got[plain], before, sizeof before);
            memcpy(got_of_floats[plain], before, sizeof before);
            run.product(got[plain], rows, columns, STRIDE, (fit_factor){a, row, column, sign}, b,
                        n);
            run.product_of_floats(got_of_floats[plain], rows, columns, STRIDE,
                                  (fit_floats){a_floats, row, column, sign}, b_floats, n);
        }
        assert_memory_equal(got[0], got[1], sizeof before);
        assert_memory_equal(got_of_floats[0], got_of_floats[1], sizeof before);
        for (size_t i = 0; i < ROWS; i++) {
            for (size_t j = 0; j < STRIDE; j++) {
                double sum = 0;
                float sum_of_floats = 0;
                for (size_t k = 0; k < n && i < rows && j < columns; k++) {
                    sum += a[i * row + k * column] * b[k * STRIDE + j];
                    sum_of_floats += a_floats[i * row + k * column] * b_floats[k * STRIDE + j];
                }
                const size_t at = i * STRIDE + j;
                assert_true(got[0][at] == before[at] + sign * sum);
                assert_true(got_of_floats[0][at] == before[at] + sign * (double)sum_of_floats);
            }
        }
    }
}

/* The largest error, in units in the last place, is 1.0 at these numbers. */
static void test_exponentials(void **state) {
    enum { MANY = 200003 };
    float *x = malloc(MANY * sizeof *x), *got = malloc(MANY * sizeof *got),
          *plain = malloc(MANY * sizeof *plain);
    (void)state;
    for (size_t i = 0; i < MANY; i++) {
        got[i] = plain[i] = x[i] = (float)((i % 2 ? -87.0 : -3.0) * (double)i / (double)(MANY - 1));
    }
    ckvc_fit_loops(0).exponentials(got, MANY);
    ckvc_fit_loops(1).exponentials(plain, MANY);
    assert_memory_equal(got, plain, MANY * sizeof *got);
    for (size_t i = 0; i < MANY; i++) {
        const float want = (float)exp((double)x[i]);
        assert_true(fabsf(got[i] - want) <= 2 * (nextafterf(want, FLT_MAX) - want));
    }
    float edges[] = {0, -0.0f, -87.0f, -87.1f, -FLT_MAX, -INFINITY, NAN};
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
