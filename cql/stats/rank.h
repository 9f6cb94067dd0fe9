/* Rank statistics: Spearman's rho with average ranks, per layer-bin; intervals and quantiles. Plain
 * arrays; NaN is what is undefined. */
#pragma once

#include <stddef.h>

#include "lib/base/rng.h"

/* Spearman's rho of x, y [n]; NaN for n < 2, a constant side, or a NaN among the values. */
double rank_spearman(const double *x, const double *y, size_t n);
/* Percentiles 2.5 and 97.5 of rho over resamples of the n pairs, drawn with repetition from a fixed
 * seed: what it would be of other things like these. NaN where no resample defines it. */
void rank_spearman_ends(const double *x, const double *y, size_t n, double *lo, double *hi);
/* Average ranks of x [n], 1-based: ties share the mean of their places. All NaN when a value is. */
void rank_average(const double *x, size_t n, double *out);
/* Sizes of n_bins consecutive groups of n things as NumPy's array_split: the first n mod n_bins are
 * one longer. */
size_t rank_bin_size(size_t n, size_t n_bins, size_t bin);
typedef struct rank_layers {
    double overall;
    double bins[64];          /* as many as were asked for */
    double bin_mean, bin_min; /* over the defined bins */
} rank_layers;
/* x, y [L][G]; n_bins <= 64 groups of layers, flattened within a group. */
void rank_by_layer(const double *x, const double *y, size_t L, size_t G, size_t n_bins,
                   rank_layers *out);

/* Things of one name, such as prompts of one document, are a cluster -> cluster [n], numbers below
 * n, alike where the names are; NULL and "": each is its own. */
void rank_clusters(const char *const *names, size_t n, size_t *cluster);
/* The other way round: members of a cluster g are at[first[g]] .. at[first[g + 1] - 1]. */
typedef struct rank_members {
    size_t n, n_clusters, *first, *at; /* at [n], in their order within a cluster */
} rank_members;
/* cluster [n]: numbers below n, perhaps without some; NULL: each its own. */
rank_members rank_members_of(const size_t *cluster, size_t n);
void rank_members_fini(rank_members *m);
/* A resample of n things -> rows [n]: clusters drawn with repetition, whole but for the last. */
void rank_members_draw(const rank_members *m, ckvc_rng *rng, size_t *rows);

typedef struct rank_interval {
    double mean, lo, hi, se;
    size_t n, n_clusters;
} rank_interval;
/* Mean of paired differences d [n] with its 95% t interval. Clusters are what was drawn, whole: of
 * one the differences may depend on each other, so that its deviations from the mean are summed
 * before they are squared; of G clusters se^2 = G/(G - 1) sum_g (sum_{i in g} (d_i - mean))^2 /
 * n^2, with G - 1 degrees of freedom (what resampling whole clusters gives: Davison and Hinkley
 * 1997, section 3.8; Field and Welsh 2007). Each its own (cluster NULL): Student's. NaN bounds
 * where there are fewer than two. cluster [n]: as rank_clusters numbers them, perhaps without some.
 */
rank_interval rank_mean_interval(const double *d, const size_t *cluster, size_t n);
/* The p-quantiles (0..1) of x [n], linear interpolation between order statistics (NumPy's default);
 * NaN for n = 0. x is not changed. */
void rank_quantile(const double *x, size_t n, const double *p, size_t n_p, double *out);
/* Percentiles 2.5 and 97.5. */
void rank_ends(const double *x, size_t n, double *lo, double *hi);
