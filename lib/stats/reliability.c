/* See reliability.h. */
#include "lib/stats/reliability.h"

#include <math.h>

#include "lib/stats/rank.h"
#include "lib/base/memory.h"

sample_spread sample_spread_of(const double *values, size_t n) {
    CKVC_AUTO_FREE double *defined = ckvc_alloc(n, sizeof *defined);
    double sum = 0.0;
    sample_spread s = {.mean = NAN};
    for (size_t i = 0; i < n; ++i) {
        if (isfinite(values[i])) {
            defined[s.n++] = values[i];
            sum += values[i];
        }
    }
    if (s.n > 0) { s.mean = sum / (double)s.n; }
    rank_ends(defined, s.n, &s.lo, &s.hi);
    return s;
}

double spearman_brown(double rho) { return rho > 0.0 ? 2.0 * rho / (1.0 + rho) : rho; }

void spearman_brown_spread(sample_spread *halves) {
    halves->mean = spearman_brown(halves->mean);
    halves->lo = spearman_brown(halves->lo);
    halves->hi = spearman_brown(halves->hi);
}

double reliability_ceiling(double reliability_a, double reliability_b) {
    return reliability_a > 0.0 && reliability_b > 0.0 ? sqrt(reliability_a * reliability_b) : NAN;
}
