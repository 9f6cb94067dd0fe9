/* Rank statistics: Spearman's rho with average ranks, per layer-bin; intervals and quantiles. Plain
 * arrays; NaN is what is undefined. */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <stdbool.h>

#include "lib/base/hash.h"

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

/* Risk-bin edges from a scan (paper.md section 8): quantiles (equal mass) or uniform steps of
 * r_struct and r_sem. */
typedef enum edge_kind { EDGES_QUANTILE, EDGES_UNIFORM } edge_kind;

/* The cells of risk: inner edges of the entropy and perplexity bins, borrowed. */
typedef struct risk_edges {
    uint32_t n_entropy_bins, n_ppl_bins; /* E, P */
    double *entropy, *ppl;               /* [E-1], [P-1] */
} risk_edges;

/* n_bins-1 inner edges of the n values, ascending. Quantiles interpolate linearly between order
 * statistics; equal edges are allowed and leave empty bins. Uniform: equal steps from the least to
 * the largest value. n >= 1, n_bins >= 1. */
void edges_of(const double *values, size_t n, unsigned n_bins, edge_kind kind, double *edges);

/* Do the worst cases lie where the risks say they should? Plain arrays. */
typedef struct worst_rows {
    const double *damage, *first, *second; /* [n], all finite: a damage and its two risks */
    size_t n;
    const size_t *cluster; /* [n] rows drawn together (rank_clusters); NULL: each alone */
    bool *worst;           /* [n] set to whether it is one of the worst tenth; NULL: not asked */
} worst_rows;

/* The worst tenth: the ceil(n/10) largest damages, of equal ones those of later rows last. Low
 * risk: both risks below their medians over the same rows. */
typedef struct worst_share {
    size_t n, n_worst;
    size_t n_low, n_worst_low; /* rows of low risk; of the worst, those of low risk */
    double share;              /* n_worst_low / n_worst; NaN without rows */
    double base;   /* n_low / n: what it would be if damage had nothing to do with the risks */
    double lo, hi; /* of share: percentiles 2.5 and 97.5 over resampled rows; NaN: none asked */
} worst_share;

/* `replicates` samples of n rows (rank_members_draw), drawn from (seed, stream), medians and worst
 * tenth taken anew in each. */
worst_share worst_low_risk(const worst_rows *of, uint32_t replicates, uint64_t seed,
                           uint64_t stream);
