/* See worst.h. */
#include "cql/stats/worst.h"

#include <math.h>
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

/* column: [n] scratch. */
static worst_share count(row *rows, size_t n, double *column) {
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
    worst_share out = count(rows, n, column);
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
        shares[b] = count(rows, n, column).share;
    }
    rank_ends(shares, replicates, &out.lo, &out.hi);
    return out;
}
