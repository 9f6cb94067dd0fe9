/* See rank.h. */
#include "lib/stats/rank.h"

#include <assert.h>
#include <float.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/memory.h"
#include "lib/base/order.h"
#include "lib/base/hash.h"

enum { RESAMPLES = 2000 };

typedef struct keyed {
    double value; /* stands first, as rows are sorted by it */
    size_t index;
} keyed;

/* out[i] = 2 * (average rank of x[i]) - (n + 1): twice the centred rank, which is an integer, so
 * that all sums below are exact in double up to about 100,000 values. All are NaN when one value is
 * NaN. */
static void centred_ranks(const double *x, size_t n, double *out) {
    CKVC_AUTO_FREE keyed *sorted = ckvc_alloc(n, sizeof *sorted);
    bool defined = true;
    for (size_t i = 0; i < n; ++i) {
        sorted[i] = (keyed){x[i], i};
        defined &= !isnan(x[i]);
    }
    if (!defined) {
        for (size_t i = 0; i < n; ++i) { out[i] = NAN; }
        return;
    }
    qsort(sorted, n, sizeof *sorted, ckvc_order_double);
    for (size_t first = 0; first < n;) {
        size_t last = first;
        while (last + 1 < n && sorted[last + 1].value == sorted[first].value) { last++; }
        /* ranks first+1 ... last+1 have the average (first + last + 2) / 2 */
        for (size_t i = first; i <= last; ++i) {
            out[sorted[i].index] = (double)(first + last + 2) - (double)(n + 1);
        }
        first = last + 1;
    }
}

double rank_spearman(const double *x, const double *y, size_t n) {
    if (n < 2) { return NAN; }
    CKVC_AUTO_FREE double *rx = ckvc_alloc(2 * n, sizeof *rx);
    double *ry = rx + n, xx = 0.0, yy = 0.0, xy = 0.0;
    centred_ranks(x, n, rx);
    centred_ranks(y, n, ry);
    for (size_t i = 0; i < n; ++i) {
        xx += rx[i] * rx[i];
        yy += ry[i] * ry[i];
        xy += rx[i] * ry[i];
    }
    return xx > 0.0 && yy > 0.0 ? fmax(-1.0, fmin(1.0, xy / (sqrt(xx) * sqrt(yy)))) : NAN;
}

void rank_average(const double *x, size_t n, double *out) {
    centred_ranks(x, n, out);
    for (size_t i = 0; i < n; ++i) { out[i] = (out[i] + (double)(n + 1)) / 2; }
}

size_t rank_bin_size(size_t n, size_t n_bins, size_t bin) {
    return n / n_bins + (bin < n % n_bins ? 1 : 0);
}

void rank_by_layer(const double *x, const double *y, size_t L, size_t G, size_t n_bins,
                   rank_layers *out) {
    assert(n_bins >= 1 && n_bins <= sizeof out->bins / sizeof *out->bins);
    *out = (rank_layers){.bin_mean = NAN, .bin_min = NAN};
    out->overall = rank_spearman(x, y, L * G);
    double sum = 0.0;
    size_t at = 0, defined = 0;
    for (size_t bin = 0; bin < n_bins; ++bin) {
        size_t layers = rank_bin_size(L, n_bins, bin);
        double rho = rank_spearman(x + at * G, y + at * G, layers * G);
        at += layers;
        out->bins[bin] = rho;
        if (isnan(rho)) { continue; }
        defined++;
        sum += rho;
        out->bin_min = fmin(rho, out->bin_min); /* fmin(x, NaN) = x */
    }
    if (defined > 0) { out->bin_mean = sum / (double)defined; }
}

/* Regularised incomplete beta function I_x(a, b) by its continued fraction (modified Lentz;
 * Abramowitz and Stegun 26.5.8). It and t_975 stay beside the GNU Scientific Library, which would
 * save forty lines, because that library has another licence (GPL) and gives other last digits: of
 * the quantiles for 1 to 400 degrees of freedom 392 differ. */
static double incomplete_beta(double a, double b, double x) {
    if (x <= 0.0) { return 0.0; }
    if (x >= 1.0) { return 1.0; }
    if (x > (a + 1.0) / (a + b + 2.0)) { return 1.0 - incomplete_beta(b, a, 1.0 - x); }
    double front = exp(lgamma(a + b) - lgamma(a) - lgamma(b) + a * log(x) + b * log1p(-x)) / a;
    double c = 1.0, d = 1.0 - (a + b) * x / (a + 1.0);
    d = 1.0 / (fabs(d) < DBL_MIN ? DBL_MIN : d);
    double h = d;
    for (int m = 1; m <= 500; ++m) {
        double even = m * (b - m) * x / ((a + 2 * m - 1.0) * (a + 2 * m));
        d = 1.0 + even * d;
        c = 1.0 + even / c;
        d = 1.0 / (fabs(d) < DBL_MIN ? DBL_MIN : d);
        h *= d * c;
        double odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1.0));
        d = 1.0 + odd * d;
        c = 1.0 + odd / c;
        d = 1.0 / (fabs(d) < DBL_MIN ? DBL_MIN : d);
        h *= d * c;
        if (fabs(d * c - 1.0) < 1e-16) { break; }
    }
    return front * h;
}

/* The t with P(|T| <= t) = 0.95 for `df` degrees of freedom, by bisection of the tail
 * I_{df/(df+t^2)}(df/2, 1/2) = 0.05. */
static double t_975(double df) {
    double lo = 1.9, hi = 13.0; /* 1.96 at df = inf, 12.706 at df = 1 */
    for (int i = 0; i < 80; ++i) {
        double t = 0.5 * (lo + hi);
        if (incomplete_beta(0.5 * df, 0.5, df / (df + t * t)) > 0.05) {
            lo = t;
        } else {
            hi = t;
        }
    }
    return 0.5 * (lo + hi);
}

typedef struct named {
    const char *name;
    size_t i;
} named;

static int by_name(const void *a, const void *b) {
    const named *x = a, *y = b;
    const int order = strcmp(x->name, y->name);
    return order ? order : (x->i > y->i) - (x->i < y->i);
}

void rank_clusters(const char *const *names, size_t n, size_t *cluster) {
    CKVC_AUTO_FREE named *sorted = ckvc_alloc(n, sizeof *sorted);
    for (size_t i = 0; i < n; ++i) { sorted[i] = (named){names[i] ? names[i] : "", i}; }
    qsort(sorted, n, sizeof *sorted, by_name);
    for (size_t k = 0; k < n; ++k) {
        const named *at = &sorted[k];
        const bool again = k > 0 && *at->name && strcmp(at[-1].name, at->name) == 0;
        cluster[at->i] = again ? cluster[at[-1].i] : at->i;
    }
}

rank_members rank_members_of(const size_t *cluster, size_t n) {
    rank_members m = {.n = n, .first = ckvc_calloc(n + 2, sizeof *m.first)};
    m.at = ckvc_alloc(n, sizeof *m.at);
    CKVC_AUTO_FREE size_t *number = ckvc_calloc(n, sizeof *number); /* first a cluster's size,
                                                                       then its number, from 1 */
    for (size_t i = 0; i < n; ++i) { number[cluster ? cluster[i] : i]++; }
    for (size_t g = 0; g < n; ++g) {
        if (number[g] == 0) { continue; }
        m.first[m.n_clusters + 2] = m.first[m.n_clusters + 1] + number[g];
        number[g] = ++m.n_clusters;
    }
    /* first[g + 1] moves from the start of cluster g to its end, which is the start of the next
     * one */
    for (size_t i = 0; i < n; ++i) { m.at[m.first[number[cluster ? cluster[i] : i]]++] = i; }
    return m;
}

void rank_members_fini(rank_members *m) {
    free(m->first);
    free(m->at);
    *m = (rank_members){0};
}

void rank_members_draw(const rank_members *m, ckvc_rng *rng, size_t *rows) {
    for (size_t n = 0; n < m->n;) {
        const size_t g = (size_t)ckvc_rng_below(rng, m->n_clusters);
        for (size_t k = m->first[g]; k < m->first[g + 1] && n < m->n; ++k) { rows[n++] = m->at[k]; }
    }
}

rank_interval rank_mean_interval(const double *d, const size_t *cluster, size_t n) {
    rank_interval r = {.mean = NAN, .lo = NAN, .hi = NAN, .se = NAN, .n = n};
    if (n == 0) { return r; }
    double sum = 0.0, squares = 0.0;
    size_t highest = n - 1;
    for (size_t i = 0; i < n; ++i) {
        sum += d[i];
        if (cluster && cluster[i] > highest) { highest = cluster[i]; }
    }
    r.mean = sum / (double)n;
    CKVC_AUTO_FREE double *deviation = ckvc_calloc(highest + 1, sizeof *deviation);
    CKVC_AUTO_FREE bool *there = ckvc_calloc(highest + 1, sizeof *there);
    for (size_t i = 0; i < n; ++i) {
        const size_t g = cluster ? cluster[i] : i;
        r.n_clusters += !there[g];
        there[g] = true;
        deviation[g] += d[i] - r.mean;
    }
    if (r.n_clusters < 2) { return r; }
    for (size_t g = 0; g <= highest; ++g) { squares += deviation[g] * deviation[g]; }
    const double G = (double)r.n_clusters, per_prompt = G / (double)n;
    r.se = sqrt(squares / (G - 1) * per_prompt / (double)n);
    double half = t_975(G - 1) * r.se;
    r.lo = r.mean - half;
    r.hi = r.mean + half;
    return r;
}

void rank_quantile(const double *x, size_t n, const double *p, size_t n_p, double *out) {
    CKVC_AUTO_FREE double *sorted = ckvc_copy(x, n, sizeof *sorted);
    qsort(sorted, n, sizeof *sorted, ckvc_order_double);
    for (size_t i = 0; i < n_p; ++i) {
        assert(p[i] >= 0.0 && p[i] <= 1.0);
        if (n == 0) {
            out[i] = NAN;
            continue;
        }
        double at = p[i] * (double)(n - 1);
        size_t below = (size_t)at;
        double t = at - (double)below;
        double a = sorted[below], b = sorted[below + 1 < n ? below + 1 : below];
        /* the two branches of NumPy, so that even the bits agree */
        out[i] = t < 0.5 ? a + (b - a) * t : b - (b - a) * (1.0 - t);
    }
}

void rank_ends(const double *x, size_t n, double *lo, double *hi) {
    double ends[2];
    rank_quantile(x, n, (const double[]){0.025, 0.975}, 2, ends);
    *lo = ends[0];
    *hi = ends[1];
}

void rank_spearman_ends(const double *x, const double *y, size_t n, double *lo, double *hi) {
    CKVC_AUTO_FREE double *rho = ckvc_alloc(RESAMPLES + 2 * n, sizeof *rho);
    double *of_x = rho + RESAMPLES, *of_y = of_x + n;
    size_t defined = 0;
    ckvc_rng rng;
    ckvc_rng_init(&rng, 1, n, 0);
    for (int r = 0; r < RESAMPLES; ++r) {
        for (size_t i = 0; i < n; ++i) {
            const size_t k = ckvc_rng_below(&rng, n);
            of_x[i] = x[k];
            of_y[i] = y[k];
        }
        rho[defined] = rank_spearman(of_x, of_y, n);
        defined += !isnan(rho[defined]);
    }
    rank_ends(rho, defined, lo, hi);
}

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

#define STAGE_WORST 0x776f7200u

typedef struct row {
    double damage, first, second;
    size_t at;
} row;

static int worse_first(const void *pa, const void *pb) {
    const row *a = pa, *b = pb;
    int c = (a->damage < b->damage) - (a->damage > b->damage);
    return c ? c : (a->at > b->at) - (a->at < b->at);
}

/* Counts low-risk rows and those of the worst tenth. It sorts rows; column [n] is scratch. */
static worst_share count_worst(row *rows, size_t n, double *column) {
    double first, second;
    for (size_t i = 0; i < n; i++) { column[i] = rows[i].first; }
    rank_quantile(column, n, (const double[]){0.5}, 1, &first);
    for (size_t i = 0; i < n; i++) { column[i] = rows[i].second; }
    rank_quantile(column, n, (const double[]){0.5}, 1, &second);
    qsort(rows, n, sizeof *rows, worse_first);
    worst_share out = {.n = n, .n_worst = (n + 9) / 10, .lo = NAN, .hi = NAN};
    for (size_t i = 0; i < n; i++) {
        bool low = rows[i].first < first && rows[i].second < second;
        out.n_low += low;
        out.n_worst_low += low && i < out.n_worst;
    }
    out.share = (double)out.n_worst_low / (double)out.n_worst; /* 0/0: NaN */
    out.base = (double)out.n_low / (double)n;
    return out;
}

worst_share worst_low_risk(const worst_rows *of, uint32_t replicates, uint64_t seed,
                           uint64_t stream) {
    const size_t n = of->n;
    CKVC_AUTO_FREE row *rows = ckvc_alloc(n, sizeof *rows);
    CKVC_AUTO_FREE double *column = ckvc_alloc(n, sizeof *column);
    CKVC_AUTO_FREE double *shares = ckvc_alloc(replicates, sizeof *shares);
    for (size_t i = 0; i < n; i++) {
        rows[i] = (row){of->damage[i], of->first[i], of->second[i], i};
    }
    worst_share out = count_worst(rows, n, column);
    for (size_t i = 0; of->worst && i < n; i++) { of->worst[rows[i].at] = i < out.n_worst; }
    if (n == 0 || replicates == 0) { return out; }
    CKVC_AUTO(rank_members_fini) rank_members members = rank_members_of(of->cluster, n);
    CKVC_AUTO_FREE size_t *drawn = ckvc_alloc(n, sizeof *drawn);
    ckvc_rng rng;
    ckvc_rng_init(&rng, seed, stream, STAGE_WORST);
    for (uint32_t b = 0; b < replicates; b++) {
        rank_members_draw(&members, &rng, drawn);
        for (size_t i = 0; i < n; i++) {
            const size_t at = drawn[i];
            rows[i] = (row){of->damage[at], of->first[at], of->second[at], i};
        }
        shares[b] = count_worst(rows, n, column).share;
    }
    rank_ends(shares, replicates, &out.lo, &out.hi);
    return out;
}
