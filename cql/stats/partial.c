/* See partial.h: residuals by modified Gram-Schmidt, twice, which is as good as a QR decomposition
 * by reflections here. */
#include "cql/stats/partial.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cql/stats/rank.h"
#include "lib/base/memory.h"
#include "lib/base/rng.h"

/* A residual below this share of the column's length is rounding. */
#define NOTHING_LEFT  1e-10
#define STAGE_PARTIAL 0x70617200u

typedef struct partial_work {
    double *columns[PARTIAL_CONTROLS_MAX + 2]; /* controls, x, y: [n] each */
    double *drawn;                             /* [n] */
    uint64_t *rows;                            /* [n] */
} partial_work;

static ckvc_status work_create(partial_work *w, size_t n, ckvc_err *err) {
    *w = (partial_work){.drawn = ckvc_alloc((PARTIAL_CONTROLS_MAX + 3) * n + 1, sizeof(double)),
                        .rows = ckvc_alloc(n + 1, sizeof(uint64_t))};
    if (!w->drawn || !w->rows) {
        free(w->drawn);
        free(w->rows);
        return ckvc_fail_memory(err, "a correlation",
                                (PARTIAL_CONTROLS_MAX + 3) * n * sizeof(double));
    }
    for (size_t i = 0; i < PARTIAL_CONTROLS_MAX + 2; i++) {
        w->columns[i] = w->drawn + (i + 1) * n;
    }
    return CKVC_OK;
}

static void work_free(partial_work *w) {
    free(w->drawn);
    free(w->rows);
}

static double dot(const double *a, const double *b, size_t n) {
    double sum = 0;
    for (size_t i = 0; i < n; i++) {
        sum += a[i] * b[i];
    }
    return sum;
}

static double centre(double *a, size_t n) {
    double sum = 0;
    for (size_t i = 0; i < n; i++) {
        sum += a[i];
    }
    for (size_t i = 0; i < n; i++) {
        a[i] -= sum / (double)n;
    }
    return sqrt(dot(a, a, n));
}

/* Takes what the unit vectors explain out of a; true: something is left. */
static bool take_out(double *a, double *const *unit, size_t n_unit, size_t n) {
    const double before = centre(a, n);
    for (int pass = 0; pass < 2; pass++) {
        for (size_t u = 0; u < n_unit; u++) {
            const double share = dot(a, unit[u], n);
            for (size_t i = 0; i < n; i++) {
                a[i] -= share * unit[u][i];
            }
        }
    }
    return before > 0 && sqrt(dot(a, a, n)) > NOTHING_LEFT * before;
}

/* rows NULL: as they are. */
static ckvc_status correlate(partial_work *w, const partial_columns *c, bool ranks,
                             const uint64_t *rows, partial_result *out, ckvc_err *err) {
    double *unit[PARTIAL_CONTROLS_MAX];
    bool left[PARTIAL_CONTROLS_MAX + 2];
    size_t n_unit = 0;
    out->r = NAN;
    for (size_t k = 0; k < c->n_controls + 2; k++) {
        const double *from = k < c->n_controls ? c->controls[k] : k == c->n_controls ? c->x : c->y;
        double *to = w->columns[k];
        for (size_t i = 0; i < c->n; i++) {
            w->drawn[i] = from[rows ? rows[i] : i];
        }
        if (ranks) {
            ckvc_status st = rank_average(w->drawn, c->n, to, err);
            if (st != CKVC_OK) { return st; }
        } else {
            memcpy(to, w->drawn, c->n * sizeof *to);
        }
        left[k] = take_out(to, unit, n_unit, c->n);
        if (left[k] && k < c->n_controls) {
            const double size = sqrt(dot(to, to, c->n));
            for (size_t i = 0; i < c->n; i++) {
                to[i] /= size;
            }
            unit[n_unit++] = to;
        }
    }
    out->n_controls = n_unit;
    if (c->n >= n_unit + 3 && left[c->n_controls] && left[c->n_controls + 1]) {
        const double *x = w->columns[c->n_controls], *y = w->columns[c->n_controls + 1];
        out->r = fmax(-1, fmin(1, dot(x, y, c->n) / sqrt(dot(x, x, c->n) * dot(y, y, c->n))));
    }
    return CKVC_OK;
}

ckvc_status partial_correlation(const partial_columns *c, bool ranks, partial_result *out,
                                ckvc_err *err) {
    assert(c->n_controls <= PARTIAL_CONTROLS_MAX);
    partial_work w;
    *out = (partial_result){NAN, NAN, NAN, 0};
    ckvc_status st = work_create(&w, c->n, err);
    if (st == CKVC_OK) {
        st = correlate(&w, c, ranks, NULL, out, err);
        work_free(&w);
    }
    return st;
}

ckvc_status partial_interval(const partial_columns *c, bool ranks, uint32_t replicates,
                             uint64_t seed, uint64_t stream, partial_result *out, ckvc_err *err) {
    ckvc_status st = partial_correlation(c, ranks, out, err);
    if (st != CKVC_OK || replicates == 0 || !isfinite(out->r)) { return st; }
    partial_work w;
    double *r = ckvc_alloc(replicates, sizeof *r);
    st = r ? work_create(&w, c->n, err)
           : ckvc_fail_memory(err, "a bootstrap", replicates * sizeof *r);
    if (st != CKVC_OK) {
        free(r);
        return st;
    }
    ckvc_rng rng;
    size_t defined = 0;
    ckvc_rng_init(&rng, seed, stream, STAGE_PARTIAL);
    for (uint32_t b = 0; b < replicates && st == CKVC_OK; b++) {
        partial_result one;
        for (size_t i = 0; i < c->n; i++) {
            w.rows[i] = ckvc_rng_below(&rng, c->n);
        }
        st = correlate(&w, c, ranks, w.rows, &one, err);
        if (st == CKVC_OK && isfinite(one.r)) { r[defined++] = one.r; }
    }
    if (st == CKVC_OK && defined >= 2 && 2 * defined >= replicates) {
        static const double ends[2] = {0.025, 0.975};
        double at[2];
        st = rank_quantile(r, defined, ends, 2, at, err);
        out->lo = at[0];
        out->hi = at[1];
    }
    free(r);
    work_free(&w);
    return st;
}
