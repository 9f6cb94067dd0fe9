/* Has a set of chosen actions two peaks? Hartigan's dip test and Sarle's coefficient, of values on
 * a grid. Plain arrays.
 *
 * J. A. Hartigan, P. M. Hartigan: The Dip Test of Unimodality, Annals of Statistics 13 (1985)
 * 70-84. Sarle's coefficient with the small sample corrections of SAS/STAT (PROC CLUSTER), as in
 * Pfister et al., Frontiers in Psychology 4 (2013) 700. */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* Twice the dip of a distribution function F that is lower[i] just left of x[i] and upper[i] at it,
 * x [k] strictly ascending: a sample's steps, or the straight pieces of a histogram, where lower
 * and upper are equal. The dip is the largest distance of F from the unimodal function nearest to
 * it. At least `at_least`, which for a sample of n is 1/n by convention. NaN when k is 0. */
double bimodality_dip(const double *x, const double *lower, const double *upper, size_t k,
                      double at_least);

typedef struct bimodality {
    double dip;
    /* 5/9 for a uniform distribution, 1 for two points, 1/3 for a normal one; NaN when n < 4 or all
     * values are equal */
    double sarle;
    double p;       /* of the dip; NaN when it is undefined or without samples */
    uint64_t n;     /* values */
    double at_ends; /* share of values at the two ends of the grid */
} bimodality;

/* Of count[i] values at grid[i], [k]. The dip is that of the histogram, each action a bar of width
 * 1: taken as points, a grid alone makes steps, and any sample that keeps to a few of its actions
 * would seem to have peaks. p is (1 + samples whose dip is at least as large) / (1 + samples), each
 * sample n values drawn evenly from the grid, which of unimodal distributions is the least
 * favourable. The same seed gives the same samples. */
bimodality bimodality_test(const double *grid, const double *count, size_t k, uint32_t samples,
                           uint64_t seed);
