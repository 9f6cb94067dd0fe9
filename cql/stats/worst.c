/* See worst.h. */
#include "cql/stats/worst.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>

#include "cql/stats/rank.h"
#include "lib/base/memory.h"
#include "lib/base/rng.h"

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

/* column: [2n] scratch. */
static ckvc_status count(row *rows, size_t n, double *column, worst_share *out, ckvc_err *err) {
    static const double half = 0.5;
    double middle[2];
    for (size_t i = 0; i < n; i++) {
        column[i] = rows[i].first;
        column[n + i] = rows[i].second;
    }
    ckvc_status st = rank_quantile(column, n, &half, 1, &middle[0], err);
    st = st ? st : rank_quantile(column + n, n, &half, 1, &middle[1], err);
    if (st != CKVC_OK) { return st; }
    qsort(rows, n, sizeof *rows, worse_first);
    *out = (worst_share){.n = n, .n_worst = (n + 9) / 10, .lo = NAN, .hi = NAN};
    for (size_t i = 0; i < n; i++) {
        bool low = rows[i].first < middle[0] && rows[i].second < middle[1];
        out->n_low += low;
        out->n_worst_low += low && i < out->n_worst;
    }
    out->share = (double)out->n_worst_low / (double)out->n_worst;
    out->base = (double)out->n_low / (double)n;
    return CKVC_OK;
}

ckvc_status worst_low_risk(const double *damage, const double *first, const double *second,
                           size_t n, uint32_t replicates, uint64_t seed, uint64_t stream,
                           worst_share *out, ckvc_err *err) {
    *out = (worst_share){.share = NAN, .base = NAN, .lo = NAN, .hi = NAN};
    if (n == 0) { return CKVC_OK; }
    row *rows = ckvc_alloc(n, sizeof *rows);
    double *column = ckvc_alloc(2 * n, sizeof *column),
           *shares = ckvc_alloc((size_t)replicates + 1, sizeof *shares);
    ckvc_status st = rows && column && shares
                         ? CKVC_OK
                         : ckvc_fail_memory(err, "the worst tenth", n * sizeof *rows);
    for (size_t i = 0; i < n && st == CKVC_OK; i++) {
        rows[i] = (row){damage[i], first[i], second[i], i};
    }
    st = st ? st : count(rows, n, column, out, err);
    ckvc_rng rng;
    ckvc_rng_init(&rng, seed, stream, STAGE_WORST);
    for (uint32_t b = 0; b < replicates && st == CKVC_OK; b++) {
        worst_share one;
        for (size_t i = 0; i < n; i++) {
            size_t at = (size_t)ckvc_rng_below(&rng, n);
            rows[i] = (row){damage[at], first[at], second[at], i};
        }
        st = count(rows, n, column, &one, err);
        shares[b] = one.share;
    }
    if (st == CKVC_OK && replicates > 0) {
        static const double ends[2] = {0.025, 0.975};
        double at[2];
        st = rank_quantile(shares, replicates, ends, 2, at, err);
        out->lo = at[0];
        out->hi = at[1];
    }
    free(rows);
    free(column);
    free(shares);
    return st;
}
