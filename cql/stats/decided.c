/* See decided.h. */
#include "cql/stats/decided.h"

#include <math.h>
#include <stdlib.h>

#include "cql/solve/cql.h"
#include "cql/stats/rank.h"
#include "lib/base/memory.h"
#include "lib/base/order.h"

#define FLAT 1e-9 /* the tie width of a choice */

/* The best by plain values; actions that were never logged are out of the running. */
static int best(const decided_from *from, size_t state, const double *values, double *row) {
    const size_t A = from->actions.n;
    for (size_t a = 0; a < A; ++a) {
        row[a] = from->n[state * A + a] > 0 ? values[state * A + a] : -INFINITY;
    }
    return cql_choose(&from->actions, row);
}

/* The exact solver's choice; -2: it failed. */
static int solved(const decided_from *from, size_t state, const double *mean, double *row) {
    const size_t at = state * from->actions.n;
    cql_certificate cert;
    if (!cql_solve_exact(from->actions.n, from->n + at, mean + at, from->cql_alpha, row, &cert)) {
        return -2;
    }
    return cql_choose(&from->actions, row);
}

static bool is_flat(const decided_from *from, size_t state) {
    const size_t A = from->actions.n;
    double lo = INFINITY, hi = -INFINITY;
    for (size_t i = state * A; i < (state + 1) * A; ++i) {
        if (from->n[i] > 0) {
            lo = fmin(lo, from->part[i]);
            hi = fmax(hi, from->part[i]);
        }
    }
    return !(hi - lo > FLAT);
}

static double correlation(const decided_from *from, const int *chosen) {
    const size_t A = from->actions.n;
    CKVC_AUTO_FREE double *is_chosen = ckvc_alloc(from->S * A, sizeof *is_chosen);
    CKVC_AUTO_FREE double *relative = ckvc_alloc(from->S * A, sizeof *relative);
    size_t k = 0;
    for (size_t s = 0; s < from->S; ++s) {
        const uint64_t *n = from->n + s * A;
        double total = 0.0, logged = 0.0;
        for (size_t a = 0; a < A; ++a) {
            total += (double)n[a];
            logged += n[a] > 0;
        }
        for (size_t a = 0; a < A; ++a) {
            if (n[a] > 0) {
                is_chosen[k] = chosen[s] == (int)a;
                relative[k++] = (double)n[a] * logged / total;
            }
        }
    }
    return rank_spearman(is_chosen, relative, k);
}

decided decided_of(const decided_from *from) {
    const size_t S = from->S, A = from->actions.n, X = from->X, nB = from->nB;
    decided d = {.X = X, .nB = nB, .chosen = ckvc_alloc(S, sizeof *d.chosen)};
    CKVC_AUTO_FREE double *row = ckvc_alloc(A, sizeof *row);
    d.records = ckvc_alloc(S, sizeof *d.records);
    if (from->part) {
        d.by_loss = ckvc_calloc(S, sizeof *d.by_loss);
        d.flat = ckvc_calloc(S, sizeof *d.flat);
        d.split = ckvc_calloc(nB * X, sizeof *d.split);
    }
    for (size_t s = 0; s < S; ++s) {
        uint64_t total = 0;
        for (size_t a = 0; a < A; ++a) { total += from->n[s * A + a]; }
        d.chosen[s] = -1;
        if (total == 0) { continue; }
        d.records[d.n_supported++] = total;
        const int by_q = d.chosen[s] = best(from, s, from->q, row);
        if (by_q < 0) { continue; }
        d.n_alpha += best(from, s, from->mean, row) != by_q;
        if (!from->part) { continue; }
        const int by_loss = solved(from, s, from->part, row),
                  by_both = from->exact ? by_q : solved(from, s, from->mean, row);
        d.n_failed += by_loss < -1 || by_both < -1;
        d.by_loss[s] = by_loss == by_both && by_loss >= 0;
        d.flat[s] = is_flat(from, s);
        decided_split *of = &d.split[s % nB * X + s / nB % X];
        of->supported++;
        of->by_loss += d.by_loss[s];
        of->flat += d.flat[s];
    }
    qsort(d.records, d.n_supported, sizeof *d.records, ckvc_order_u64);
    const size_t k = d.n_supported, lower = k ? (k - 1) / 2 : 0, upper = k / 2;
    d.median = k ? ((double)d.records[lower] + (double)d.records[upper]) / 2 : NAN;
    d.correlation = correlation(from, d.chosen);
    return d;
}

void decided_fini(decided *d) {
    free(d->chosen);
    free(d->by_loss);
    free(d->flat);
    free(d->split);
    free(d->records);
    *d = (decided){0};
}

decided_split decided_sum(const decided *d, size_t b) {
    decided_split all = {0, 0, 0};
    const size_t first = b < d->nB ? b * d->X : 0, n = b < d->nB ? d->X : d->nB * d->X;
    for (size_t i = 0; d->split && i < n; ++i) {
        all.supported += d->split[first + i].supported;
        all.by_loss += d->split[first + i].by_loss;
        all.flat += d->split[first + i].flat;
    }
    return all;
}
