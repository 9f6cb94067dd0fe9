/* The dip by the algorithm of section 3 of Hartigan & Hartigan (1985). */
#include "cql/stats/bimodality.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/memory.h"
#include "lib/base/rng.h"

/* Random numbers of the test: another stage than any other use of a seed. */
#define STAGE_DIP 0x64697000u

typedef struct dip_work {
    double *x, *cumulative; /* of a histogram: the bars' ends */
    double *minorant; /* greatest convex one of (x, lower), at each x of the interval in hand */
    double *majorant; /* least concave one of (x, upper) */
    size_t *touch_lo, *touch_hi; /* where they touch */
} dip_work;

static dip_work work_of(size_t k) {
    double *reals = ckvc_alloc(4 * k + 1, sizeof *reals);
    size_t *places = ckvc_alloc(2 * k + 1, sizeof *places);
    return (dip_work){.x = reals,
                      .cumulative = reals + k,
                      .minorant = reals + 2 * k,
                      .majorant = reals + 3 * k,
                      .touch_lo = places,
                      .touch_hi = places + k};
}

static void work_fini(dip_work *w) {
    free(w->x);
    free(w->touch_lo);
}

/* The convex hull of (x, sign * y) from below over [first, last], written to out as sign * hull at
 * every point; touch: its corners, ascending. Returns their number. */
static size_t hull(const double *x, const double *y, double sign, size_t first, size_t last,
                   double *out, size_t *touch) {
    size_t n = 0;
    for (size_t i = first; i <= last; i++) {
        while (n > 1) {
            size_t a = touch[n - 2], b = touch[n - 1];
            if (sign * (y[b] - y[a]) * (x[i] - x[a]) < sign * (y[i] - y[a]) * (x[b] - x[a])) {
                break;
            }
            n--;
        }
        touch[n++] = i;
    }
    for (size_t c = 0; c + 1 < n; c++) {
        size_t a = touch[c], b = touch[c + 1];
        double slope = (y[b] - y[a]) / (x[b] - x[a]);
        for (size_t i = a; i < b; i++) { out[i] = y[a] + slope * (x[i] - x[a]); }
    }
    out[last] = y[last];
    return n;
}

/* See bimodality_dip; k >= 1. */
static double dip_of(dip_work *w, const double *x, const double *lower, const double *upper,
                     size_t k, double at_least) {
    size_t first = 0, last = k - 1;
    double dip = at_least;
    for (;;) {
        size_t n_lo = hull(x, lower, 1, first, last, w->minorant, w->touch_lo);
        size_t n_hi = hull(x, upper, -1, first, last, w->majorant, w->touch_hi);
        /* The widest gap between the two, at a corner of the minorant (the first) or of the
         * majorant (the last). */
        double gap_lo = -1, gap_hi = -1;
        size_t at_lo = first, at_hi = last;
        for (size_t c = 0; c < n_lo; c++) {
            double gap = w->majorant[w->touch_lo[c]] - w->minorant[w->touch_lo[c]];
            if (gap > gap_lo) {
                gap_lo = gap;
                at_lo = w->touch_lo[c];
            }
        }
        for (size_t c = 0; c < n_hi; c++) {
            double gap = w->majorant[w->touch_hi[c]] - w->minorant[w->touch_hi[c]];
            if (gap >= gap_hi) {
                gap_hi = gap;
                at_hi = w->touch_hi[c];
            }
        }
        if (fmax(gap_lo, gap_hi) <= dip) { return dip; }
        /* The modal interval [left, right]: from a corner of the minorant to the next of the
         * majorant. */
        size_t left = at_lo, right = at_hi;
        if (gap_lo > gap_hi) {
            for (size_t c = n_hi; c-- > 0;) {
                right = w->touch_hi[c] >= left ? w->touch_hi[c] : right;
            }
        } else {
            for (size_t c = 0; c < n_lo; c++) {
                left = w->touch_lo[c] <= right ? w->touch_lo[c] : left;
            }
        }
        /* Outside of it the distances of the function to the two; at its ends the unimodal function
         * may jump as the sample does. */
        for (size_t i = first; i < left; i++) { dip = fmax(dip, upper[i] - w->minorant[i]); }
        for (size_t i = right + 1; i <= last; i++) { dip = fmax(dip, w->majorant[i] - lower[i]); }
        if (left == first && right == last) { return dip; }
        first = left;
        last = right;
    }
}

static double dip_of_counts(dip_work *w, const double *count, size_t k, double n) {
    w->x[0] = w->cumulative[0] = 0;
    for (size_t i = 0; i < k; i++) {
        w->x[i + 1] = (double)i + 1;
        w->cumulative[i + 1] = w->cumulative[i] + count[i];
    }
    return dip_of(w, w->x, w->cumulative, w->cumulative, k + 1, 0) / (2 * n);
}

double bimodality_dip(const double *x, const double *lower, const double *upper, size_t k,
                      double at_least) {
    if (k == 0) { return NAN; }
    CKVC_AUTO(work_fini) dip_work w = work_of(k);
    return dip_of(&w, x, lower, upper, k, at_least);
}

/* (skewness^2 + 1) / (kurtosis excess + 3 (n-1)^2 / ((n-2)(n-3))) of count [k] values at x [k]. */
static double sarle_of(const double *x, const double *count, size_t k) {
    double n = 0, mean = 0, m2 = 0, m3 = 0, m4 = 0;
    for (size_t i = 0; i < k; i++) {
        n += count[i];
        mean += count[i] * x[i];
    }
    mean /= n;
    for (size_t i = 0; i < k; i++) {
        double d = x[i] - mean;
        m2 += count[i] * d * d / n;
        m3 += count[i] * d * d * d / n;
        m4 += count[i] * d * d * d * d / n;
    }
    if (!(n >= 4) || !(m2 > 0)) { return NAN; }
    double skewness = sqrt(n * (n - 1)) / (n - 2) * m3 / pow(m2, 1.5);
    double excess = (n - 1) / ((n - 2) * (n - 3)) * ((n + 1) * (m4 / (m2 * m2) - 3) + 6);
    return (skewness * skewness + 1) / (excess + 3 * (n - 1) * (n - 1) / ((n - 2) * (n - 3)));
}

bimodality bimodality_test(const double *grid, const double *count, size_t k, uint32_t samples,
                           uint64_t seed) {
    double total = 0;
    for (size_t i = 0; i < k; i++) { total += count[i]; }
    bimodality out = {.n = (uint64_t)total, .dip = NAN, .sarle = NAN, .p = NAN, .at_ends = NAN};
    if (out.n == 0) { return out; }
    CKVC_AUTO(work_fini) dip_work w = work_of(k + 1);
    CKVC_AUTO_FREE double *drawn = ckvc_alloc(k, sizeof *drawn);
    out.dip = dip_of_counts(&w, count, k, total);
    out.sarle = sarle_of(grid, count, k);
    out.at_ends = (count[0] + (k > 1 ? count[k - 1] : 0)) / total;
    ckvc_rng rng;
    ckvc_rng_init(&rng, seed, out.n, STAGE_DIP);
    uint32_t as_large = 0;
    for (uint32_t s = 0; s < samples; s++) {
        memset(drawn, 0, k * sizeof *drawn);
        for (uint64_t i = 0; i < out.n; i++) { drawn[ckvc_rng_below(&rng, k)] += 1; }
        /* equal dips compare as equal, whatever the rounding on their way */
        as_large += dip_of_counts(&w, drawn, k, total) >= out.dip - 1e-12;
    }
    if (samples > 0) { out.p = (1.0 + as_large) / (1.0 + samples); }
    return out;
}
