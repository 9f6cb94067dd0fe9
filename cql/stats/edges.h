/* Risk-bin edges from a scan (method.md section 8): quantiles (equal mass) or uniform steps of
 * r_struct and r_sem. */
#pragma once

#include <stddef.h>
#include <stdint.h>

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
