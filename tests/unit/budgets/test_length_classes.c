/* Classes of equal share: the optimum against every way to cut the sorted shares, what stays. */
#include "budgets/length_classes.h"
#include "lib/base/order.h"
#include "tests/unit/unit.h"

enum { MOST = 9 };

static double spread(const double *x, size_t n) {
    double mean = 0, sum = 0;
    for (size_t i = 0; i < n; i++) { mean += x[i] / (double)n; }
    for (size_t i = 0; i < n; i++) { sum += (x[i] - mean) * (x[i] - mean); }
    return sum;
}

/* The least spread of sorted shares in classes that begin where a bit of `cuts` is set. */
static double least_spread(const double *x, size_t n, uint32_t n_classes) {
    double least = INFINITY;
    for (unsigned cuts = 0; cuts < 1u << (n - 1); cuts++) {
        double sum = 0;
        uint32_t used = 0;
        for (size_t begin = 0, end; begin < n; begin = end, used++) {
            end = begin + 1;
            while (end < n && !(cuts >> (end - 1) & 1)) { end++; }
            sum += spread(x + begin, end - begin);
        }
        if (used <= n_classes && sum < least) { least = sum; }
    }
    return least;
}

TEST(least_of_all_cuts) {
    ckvc_rng rng = rng_of(4, 1, 1);
    for (int round = 0; round < 400; round++) {
        const size_t n = 1 + ckvc_rng_below(&rng, MOST), stride = 1 + ckvc_rng_below(&rng, 3);
        const uint32_t K = 1 + (uint32_t)ckvc_rng_below(&rng, MOST);
        double before[MOST], sorted[MOST], share[3 * MOST], sum = 0, left = 0, moved = 0;
        size_t classes = 0;
        for (size_t i = 0; i < n; i++) { /* equal ones and zeros are common */
            before[i] = sorted[i] = share[i * stride] = (double)ckvc_rng_below(&rng, 12) / 4;
            sum += before[i];
        }
        qsort(sorted, n, sizeof *sorted, ckvc_order_double);
        length_classes(share, n, stride, K);
        for (size_t i = 0; i < n; i++) {
            size_t k = 0;
            const double x = share[i * stride];
            while (share[k * stride] != x) { k++; }
            classes += k == i;
            left += x;
            moved += (x - before[i]) * (x - before[i]);
            for (k = 0; k < n; k++) { /* as before, or equal */
                assert_true(before[k] <= before[i] || share[k * stride] >= x);
            }
        }
        assert_true(classes <= K);
        assert_float_equal(left, sum, 1e-12);
        assert_float_equal(moved, least_spread(sorted, n, K), 1e-12);
    }
}

TEST(few_enough_stay) {
    double share[4] = {0.1, 1.7, 0.1, 1.7};
    length_classes(share, 4, 1, 2);
    assert_true(share[0] == 0.1 && share[1] == 1.7 && share[2] == 0.1 && share[3] == 1.7);
    length_classes(share, 4, 1, 1);
    for (int i = 0; i < 4; i++) { assert_true(share[i] == share[0]); }
}

RUN_TESTS(NULL, NULL)
