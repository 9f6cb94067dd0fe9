/* See length_classes.h. */
#include "budgets/length_classes.h"

#include <math.h>
#include <stdlib.h>

#include "lib/base/memory.h"
#include "lib/base/order.h"

typedef struct layer_share {
    double share; /* it comes first in the struct, because layers are sorted by it */
    size_t at;
} layer_share;

/* The sums of the first i shares, and of their squares, at index i. */
typedef struct sums {
    double x, xx;
} sums;

/* Returns the sum of squared differences from their mean of the shares from i to before j > i. */
static double spread_between(const sums *sum, size_t i, size_t j) {
    const double x = sum[j].x - sum[i].x, xx = sum[j].xx - sum[i].xx;
    return fmax(xx - x * x / (double)(j - i), 0.0);
}

/* Finds where the last class begins if the first j of n sorted shares are put into k + 1 classes,
 * for every k < K and j, and writes it to first [K][n + 1]. */
static void find_classes(const sums *sum, size_t n, uint32_t K, size_t *first) {
    CKVC_AUTO_FREE double *best = ckvc_alloc(2 * (n + 1), sizeof *best);
    double *before = best + n + 1; /* with one class less */
    for (size_t j = 1; j <= n; j++) {
        best[j] = spread_between(sum, 0, j);
        first[j] = 0;
    }
    for (uint32_t k = 1; k < K; k++) {
        for (size_t j = 0; j <= n; j++) { before[j] = best[j]; }
        for (size_t j = k + 1; j <= n; j++) {
            best[j] = INFINITY;
            for (size_t i = k; i < j; i++) {
                const double spread = before[i] + spread_between(sum, i, j);
                if (spread < best[j]) {
                    best[j] = spread;
                    first[k * (n + 1) + j] = i;
                }
            }
        }
    }
}

void length_classes(double *share, size_t n, size_t stride, uint32_t n_classes) {
    CKVC_AUTO_FREE layer_share *sorted = ckvc_alloc(n, sizeof *sorted);
    CKVC_AUTO_FREE sums *sum = ckvc_calloc(n + 1, sizeof *sum);
    size_t different = 0;
    for (size_t i = 0; i < n; i++) { sorted[i] = (layer_share){share[i * stride], i}; }
    qsort(sorted, n, sizeof *sorted, ckvc_order_double);
    for (size_t i = 0; i < n; i++) {
        const double x = sorted[i].share;
        different += i == 0 || x != sorted[i - 1].share;
        sum[i + 1] = (sums){sum[i].x + x, sum[i].xx + x * x};
    }
    if (different <= n_classes) { return; }
    CKVC_AUTO_FREE size_t *first = ckvc_alloc(n_classes * (n + 1), sizeof *first);
    find_classes(sum, n, n_classes, first);
    size_t end = n;
    for (uint32_t k = n_classes; k-- > 0;) {
        const size_t begin = first[k * (n + 1) + end];
        const double mean = (sum[end].x - sum[begin].x) / (double)(end - begin);
        for (size_t i = begin; i < end; i++) { share[sorted[i].at * stride] = mean; }
        end = begin;
    }
}
