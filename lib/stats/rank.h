/* Rank statistics on plain arrays: Spearman's rho with average ranks, over all values and for
 * groups of layers; intervals and quantiles. What is undefined is NaN. */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <stdbool.h>

#include "lib/base/hash.h"

/* Spearman's rho of x and y [n]. It is NaN for n < 2, where a side is constant, and where a value
 * is NaN. */
double rank_spearman(const double *x, const double *y, size_t n);
/* Percentiles 2.5 and 97.5 of rho over resamples of the n pairs, drawn with repetition from a fixed
 * seed: how far rho might differ for other pairs like these. NaN where no resample defines it. */
void rank_spearman_ends(const double *x, const double *y, size_t n, double *lo, double *hi);
/* Writes the average ranks of x [n] to out, from 1: equal values share the mean of their places.
 * All are NaN when one value is NaN. */
void rank_average(const double *x, size_t n, double *out);
/* The size of group `bin` when n things are cut into n_bins consecutive groups as NumPy's
 * array_split cuts them: the first n mod n_bins groups are longer by one. */
size_t rank_bin_size(size_t n, size_t n_bins, size_t bin);
typedef struct rank_layers {
    double overall;
    double bins[64];          /* one for each group that was asked for */
    double bin_mean, bin_min; /* over the defined bins */
} rank_layers;
/* Computes rho of x and y [L][G] over all values, and for each of n_bins <= 64 groups of layers,
 * whose values are flattened. */
void rank_by_layer(const double *x, const double *y, size_t L, size_t G, size_t n_bins,
                   rank_layers *out);

/* Things with the same name, such as prompts of one document, form a cluster. cluster [n] receives
 * numbers below n, equal where the names are equal. A thing whose name is NULL or "" is a cluster
 * by itself. */
void rank_clusters(const char *const *names, size_t n, size_t *cluster);
/* The members of each cluster: those of cluster g are at[first[g]] .. at[first[g + 1] - 1]. */
typedef struct rank_members {
    size_t n, n_clusters, *first, *at; /* at [n]: a cluster's members keep their order */
} rank_members;
/* cluster [n] has numbers below n, not necessarily all of them; NULL: each thing is its own
 * cluster. Free the result with rank_members_fini. */
rank_members rank_members_of(const size_t *cluster, size_t n);
void rank_members_fini(rank_members *m);
/* Draws a resample of n things, rows [n]: clusters are drawn with repetition, and each is taken
 * whole, but for the last, which is cut. */
void rank_members_draw(const rank_members *m, ckvc_rng *rng, size_t *rows);

typedef struct rank_interval {
    double mean, lo, hi, se;
    size_t n, n_clusters;
} rank_interval;
/* The mean of paired differences d [n], with its 95% t interval. The sample was drawn cluster by
 * cluster: differences of one cluster may depend on each other, so their deviations from the mean
 * are summed before they are squared. For G clusters se^2 = G/(G - 1) sum_g (sum_{i in g} (d_i -
 * mean))^2 / n^2, with G - 1 degrees of freedom, which is what resampling whole clusters gives
 * (Davison and Hinkley 1997, section 3.8; Field and Welsh 2007). With cluster NULL each difference
 * is its own cluster, and the interval is Student's. The bounds are NaN where there are fewer than
 * two clusters. cluster [n] has numbers as rank_clusters gives them, not necessarily all of
 * them. */
rank_interval rank_mean_interval(const double *d, const size_t *cluster, size_t n);
/* The p-quantiles (0..1) of x [n], by linear interpolation between order statistics (NumPy's
 * default); NaN for n = 0. p and out are [n_p]; x is not changed. */
void rank_quantile(const double *x, size_t n, const double *p, size_t n_p, double *out);
/* Percentiles 2.5 and 97.5 of x [n]. */
void rank_ends(const double *x, size_t n, double *lo, double *hi);

/* Risk-bin edges from a scan (paper.md section 8): quantiles (equal mass) or uniform steps of
 * r_struct and r_sem. */
typedef enum edge_kind { EDGES_QUANTILE, EDGES_UNIFORM } edge_kind;

/* The inner edges of the risk cells: of the entropy bins and of the perplexity bins. The arrays are
 * borrowed. */
typedef struct risk_edges {
    uint32_t n_entropy_bins, n_ppl_bins; /* E, P */
    double *entropy, *ppl;               /* [E-1], [P-1] */
} risk_edges;

/* Computes the n_bins-1 inner edges, ascending, for n values. Quantiles interpolate linearly
 * between order statistics; equal edges are allowed and leave bins empty. Uniform edges divide the
 * range from the least to the largest value into equal steps. n >= 1, n_bins >= 1. */
void edges_of(const double *values, size_t n, unsigned n_bins, edge_kind kind, double *edges);

/* Whether the worst cases lie where the risks say that they should. */
typedef struct worst_rows {
    const double *damage, *first, *second; /* [n], all finite: a damage and its two risks */
    size_t n;
    /* [n] Rows with equal numbers are drawn together (rank_clusters); NULL: each row by itself. */
    const size_t *cluster;
    bool *worst; /* [n] receives whether a row is in the worst tenth; NULL: not asked */
} worst_rows;

/* The worst tenth is the ceil(n/10) rows with the largest damage; of equal damages those of earlier
 * rows count as worse. A row has low risk when both its risks are below their medians over the same
 * rows. */
typedef struct worst_share {
    size_t n, n_worst;
    size_t n_low, n_worst_low; /* rows of low risk; rows of the worst tenth with low risk */
    double share;              /* n_worst_low / n_worst; NaN without rows */
    double base; /* n_low / n: what it would be if damage had nothing to do with the risks */
    /* Of share: percentiles 2.5 and 97.5 over resampled rows; NaN without replicates. */
    double lo, hi;
} worst_share;

/* The interval comes from `replicates` samples of n rows (rank_members_draw), drawn from (seed,
 * stream), with medians and worst tenth determined anew in each. */
worst_share worst_low_risk(const worst_rows *of, uint32_t replicates, uint64_t seed,
                           uint64_t stream);
