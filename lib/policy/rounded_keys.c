/* See rounded_keys.h; docs/method.md, section 11, has the formula. With H the mean of q q^T over
 * the queries, plus the ridge, and U the upper factor of U^T U = H^-1, number k changes by (x_j -
 * q_j) U_jk / U_jj where x_j becomes q_j. U is the inverse of R in H = R R^T, which is upper as
 * well. */
#include "lib/policy/rounded_keys.h"

#include <assert.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

#include "lib/base/bytes.h"
#include "lib/base/cache_format.h"

enum { BLOCK = 32 }; /* numbers with one scale */

/* Makes the symmetric h [D][D] its factor R, by its upper half. */
static bool factor(double *h, size_t D) {
    for (size_t j = D; j-- > 0;) {
        double pivot = h[j * D + j];
        for (size_t k = j + 1; k < D; k++) { pivot -= h[j * D + k] * h[j * D + k]; }
        if (!(pivot > 0 && isfinite(pivot))) { return false; }
        h[j * D + j] = sqrt(pivot);
        for (size_t i = 0; i < j; i++) {
            double sum = h[i * D + j];
            for (size_t k = j + 1; k < D; k++) { sum -= h[i * D + k] * h[j * D + k]; }
            h[i * D + j] = sum / h[j * D + j];
        }
    }
    return true;
}

bool key_rounding_prepare(const float *queries, size_t n, size_t D, double *u, double *work) {
    double trace = 0;
    if (n < 2 * D) { return false; }
    memset(work, 0, D * D * sizeof *work);
    for (size_t i = 0; i < n; i++) {
        const float *q = queries + i * D;
        for (size_t j = 0; j < D; j++) {
            for (size_t k = j; k < D; k++) { work[j * D + k] += (double)q[j] * (double)q[k]; }
        }
    }
    for (size_t j = 0; j < D; j++) { trace += work[j * D + j]; }
    for (size_t j = 0; j < D; j++) { work[j * D + j] += KEY_ROUNDING_RIDGE * trace / (double)D; }
    if (!factor(work, D)) { return false; }
    memset(u, 0, D * D * sizeof *u);
    for (size_t k = 0; k < D; k++) { /* column k of the inverse of R */
        u[k * D + k] = 1 / work[k * D + k];
        for (size_t j = k; j-- > 0;) {
            double sum = 0;
            for (size_t m = j + 1; m <= k; m++) { sum += work[j * D + m] * u[m * D + k]; }
            u[j * D + k] = -sum / work[j * D + j];
        }
    }
    for (size_t j = 0; j < D; j++) {
        for (size_t k = j + 1; k < D; k++) { u[j * D + k] *= work[j * D + j]; }
    }
    return true;
}

void key_rounding_apply(const double *u, size_t D, float *x) {
    double left[CACHE_HEAD_MAX] = {0}, scale[CACHE_HEAD_MAX / BLOCK] = {0};
    size_t largest[CACHE_HEAD_MAX / BLOCK] = {0};
    assert(D % BLOCK == 0 && D <= CACHE_HEAD_MAX);
    for (size_t b = 0; b < D / BLOCK; b++) {
        largest[b] = b * BLOCK;
        for (size_t j = b * BLOCK; j < (b + 1) * BLOCK; j++) {
            left[j] = (double)x[j];
            if (fabsf(x[j]) > fabsf(x[largest[b]])) { largest[b] = j; }
        }
        scale[b] = (double)ckvc_f32_of_f16(ckvc_f16_of_f32(x[largest[b]] / -8.0f));
        if (!isfinite(scale[b])) { return; }
    }
    for (size_t j = 0; j < D; j++) {
        const double d = scale[j / BLOCK];
        double step = 0;
        if (d != 0) { step = fmin(fmax(floor(left[j] / d + 8.5), 0), 15) - 8; }
        /* a cache that is written finds the scale by this number */
        if (j == largest[j / BLOCK]) { step = -8; }
        const double error = left[j] - step * d;
        for (size_t k = j + 1; k < D; k++) { left[k] -= error * u[j * D + k]; }
        x[j] = (float)(step * d);
    }
}
