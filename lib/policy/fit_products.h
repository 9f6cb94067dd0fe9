/* The products and exponentials of fit_entries.c, in versions for what the processor can do. All of
 * them give the same bits. */
#pragma once

#include <stddef.h>

#define FIT_TILE 4 /* rows of a product that are computed together */

/* The left factor of a product: number (i, k) is at[i * row + k * column]. The product is added, or
 * taken off where `sign` is -1. */
typedef struct fit_factor {
    const double *at;
    size_t row, column;
    double sign;
} fit_factor;

/* The same of floats. */
typedef struct fit_floats {
    const float *at;
    size_t row, column;
    double sign;
} fit_floats;

typedef struct fit_loops {
    /* Adds a times b [n][columns] to out [rows][columns]. Rows of b and of out begin `stride`
     * numbers after each other. A number's sum is taken in the order of n, and then added. */
    void (*product)(double *out, size_t rows, size_t columns, size_t stride, fit_factor a,
                    const double *b, size_t n);
    /* The same of floats. Each number's sum over n is taken in float, so that n should be small (a
     * head's numbers, or a block of positions), and then added in double. */
    void (*product_of_floats)(double *out, size_t rows, size_t columns, size_t stride, fit_floats a,
                              const float *b, size_t n);
    /* The same of floats, added in float. */
    void (*product_to_floats)(float *out, size_t rows, size_t columns, size_t stride, fit_floats a,
                              const float *b, size_t n);
    /* Turns x [n], at most 88, into exp(x); 0 below -87, and NaN stays. A result is at most 2 units
     * in the last place wrong. */
    void (*exponentials)(float *x, size_t n);
    /* Raises the largest logits [n] to those of some positions [rows][n]. NaN raises nothing. */
    void (*raise)(float *most, const float *logits, size_t rows, size_t n);
    /* Takes the largest logits [n] off those of some positions [rows][n], turns these into their
     * exponentials, and adds the exponentials to the sums [n], one position after the other. */
    void (*attend)(float *logits, size_t rows, size_t n, const float *most, double *sum);
} fit_loops;

/* Returns the fastest version for this processor; with `plain`, the one for every processor. */
fit_loops ckvc_fit_loops(int plain);
