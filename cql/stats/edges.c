/* Risk-bin edges: see edges.h. */
#include "cql/stats/edges.h"

#include "cql/stats/rank.h"
#include "lib/base/memory.h"

void edges_of(const double *values, size_t n, unsigned n_bins, edge_kind kind, double *edges) {
    CKVC_AUTO_FREE double *share = ckvc_alloc(n_bins, sizeof *share);
    double lo = values[0], hi = values[0];
    for (size_t i = 1; i < n; i++) {
        lo = values[i] < lo ? values[i] : lo;
        hi = values[i] > hi ? values[i] : hi;
    }
    for (unsigned i = 0; i + 1 < n_bins; i++) {
        share[i] = (double)(i + 1) / n_bins;
        edges[i] = lo + share[i] * (hi - lo);
    }
    if (kind == EDGES_QUANTILE) { rank_quantile(values, n, share, n_bins - 1, edges); }
}
