/* See partial.h. Residuals are computed by modified Gram-Schmidt, run twice, which is as accurate
 * here as a QR decomposition by reflections. */
#include "lib/stats/partial.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "lib/stats/rank.h"
#include "lib/base/memory.h"
#include "lib/base/hash.h"

/* A residual below this share of the column's length is rounding error. */
#define NOTHING_LEFT  1e-10
#define STAGE_PARTIAL 0x70617200u

typedef struct partial_work {
    double *columns[PARTIAL_CONTROLS_MAX + 2]; /* controls, x, y: [n] each */
    double *drawn;                             /* [n] */
    size_t *rows;                              /* [n] */
} partial_work;

static partial_work work_of(size_t n) {
    partial_work w = {.drawn = ckvc_alloc((PARTIAL_CONTROLS_MAX + 3) * n, sizeof *w.drawn),
                      .rows = ckvc_alloc(n, sizeof *w.rows)};
    for (size_t i = 0; i < PARTIAL_CONTROLS_MAX + 2; i++) { w.columns[i] = w.drawn + (i + 1) * n; }
    return w;
}

static void work_fini(partial_work *w) {
    free(w->drawn);
    free(w->rows);
}

static double dot(const double *a, const double *b, size_t n) {
    double sum = 0;
    for (size_t i = 0; i < n; i++) { sum += a[i] * b[i]; }
    return sum;
}

static double subtract_mean(double *a, size_t n) {
    double sum = 0;
    for (size_t i = 0; i < n; i++) { sum += a[i]; }
    for (size_t i = 0; i < n; i++) { a[i] -= sum / (double)n; }
    return sqrt(dot(a, a, n));
}

/* Removes from a [n] its mean and what the unit vectors explain. Returns whether anything is
 * left. */
static bool take_out(double *a, double *const *unit, size_t n_unit, size_t n) {
    const double before = subtract_mean(a, n);
    for (int pass = 0; pass < 2; pass++) {
        for (size_t u = 0; u < n_unit; u++) {
            const double share = dot(a, unit[u], n);
            for (size_t i = 0; i < n; i++) { a[i] -= share * unit[u][i]; }
        }
    }
    return before > 0 && sqrt(dot(a, a, n)) > NOTHING_LEFT * before;
}

/* Correlates the rows that `rows` [n] names, or all rows in their order where it is NULL. */
static partial_result correlate(partial_work *w, const partial_columns *c, bool ranks,
                                const size_t *rows) {
    double *unit[PARTIAL_CONTROLS_MAX];
    bool left[PARTIAL_CONTROLS_MAX + 2];
    size_t n_unit = 0;
    for (size_t k = 0; k < c->n_controls + 2; k++) {
        const double *from = k < c->n_controls ? c->controls[k] : k == c->n_controls ? c->x : c->y;
        double *to = w->columns[k];
        for (size_t i = 0; i < c->n; i++) { w->drawn[i] = from[rows ? rows[i] : i]; }
        if (ranks) {
            rank_average(w->drawn, c->n, to);
        } else {
            memcpy(to, w->drawn, c->n * sizeof *to);
        }
        left[k] = take_out(to, unit, n_unit, c->n);
        if (left[k] && k < c->n_controls) {
            const double size = sqrt(dot(to, to, c->n));
            for (size_t i = 0; i < c->n; i++) { to[i] /= size; }
            unit[n_unit++] = to;
        }
    }
    partial_result out = {.r = NAN, .lo = NAN, .hi = NAN, .n_controls = n_unit};
    if (c->n >= n_unit + 3 && left[c->n_controls] && left[c->n_controls + 1]) {
        const double *x = w->columns[c->n_controls], *y = w->columns[c->n_controls + 1];
        out.r = fmax(-1, fmin(1, dot(x, y, c->n) / sqrt(dot(x, x, c->n) * dot(y, y, c->n))));
    }
    return out;
}

partial_result partial_correlation(const partial_columns *c, bool ranks, uint32_t replicates,
                                   uint64_t seed, uint64_t stream) {
    assert(c->n_controls <= PARTIAL_CONTROLS_MAX);
    CKVC_AUTO(work_fini) partial_work w = work_of(c->n);
    partial_result out = correlate(&w, c, ranks, NULL);
    if (replicates == 0 || !isfinite(out.r)) { return out; }
    CKVC_AUTO_FREE double *r = ckvc_alloc(replicates, sizeof *r);
    CKVC_AUTO(rank_members_fini) rank_members members = rank_members_of(c->cluster, c->n);
    ckvc_rng rng;
    size_t defined = 0;
    ckvc_rng_init(&rng, seed, stream, STAGE_PARTIAL);
    for (uint32_t b = 0; b < replicates; b++) {
        rank_members_draw(&members, &rng, w.rows);
        r[defined] = correlate(&w, c, ranks, w.rows).r;
        defined += isfinite(r[defined]);
    }
    if (defined >= 2 && 2 * defined >= replicates) { rank_ends(r, defined, &out.lo, &out.hi); }
    return out;
}
