/* Risk-bin edges: see edges.h. */
#include "calib/prompt/edges.h"

#include <stdlib.h>

#include "cql/stats/rank.h"
#include "lib/base/memory.h"

ckvc_status edges_of(const double *values, size_t n, unsigned n_bins, edge_kind kind, double *edges,
                     ckvc_err *err) {
    if (n_bins <= 1) { return CKVC_OK; }
    double *share = ckvc_alloc(n_bins - 1, sizeof *share);
    for (unsigned i = 1; i < n_bins; i++) {
        share[i - 1] = (double)i / n_bins;
    }
    if (kind == EDGES_QUANTILE) {
        rank_quantile(values, n, share, n_bins - 1, edges);
    } else {
        double lo = values[0], hi = values[0];
        for (size_t i = 1; i < n; i++) {
            lo = values[i] < lo ? values[i] : lo;
            hi = values[i] > hi ? values[i] : hi;
        }
        for (unsigned i = 0; i + 1 < n_bins; i++) {
            edges[i] = lo + share[i] * (hi - lo);
        }
    }
    free(share);
    return CKVC_OK;
}
