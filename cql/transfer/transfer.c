/* Maps the depth of a model to another (paper.md section 9).
 *
 * Target i of m lies at i/(m-1) * (n-1) on a source axis of length n. That is between floor(of
 * this) and the next source, with weights that are integers over m-1. A single target takes every
 * source with weight 1 over n, and a single source repeats. Where two axes are mapped, weights
 * multiply, so a value is a sum of whole multiples of the source's values over D1 * D2, where D1
 * and D2 are the axes' denominators. */
#include "cql/transfer/transfer.h"

#include <assert.h>
#include <stdbool.h>
#include <stdlib.h>
#include <math.h>

#include "lib/stats/rank.h"
#include "lib/base/memory.h"
#include "lib/base/order.h"

#define EXTENT_MAX 65536u

/* The sources that one target position reads on an axis: begin ... begin+count-1, and their weights
 * divided by `over`. With two sources the weights are over - second and second; else they are all
 * 1. */
typedef struct span {
    uint32_t begin, count;
    uint64_t second, over;
} span;

static span span_of(uint32_t n, uint32_t m, uint32_t i) {
    if (m == 1) { return (span){0, n, 0, n}; }
    uint64_t scaled = (uint64_t)i * (n - 1), over = m - 1;
    uint64_t rest = scaled % over;
    if (rest == 0) { return (span){(uint32_t)(scaled / over), 1, 0, 1}; }
    return (span){(uint32_t)(scaled / over), 2, rest, over};
}

static uint64_t span_weight(const span *s, uint32_t k) {
    if (!s->second) { return 1; }
    return k ? s->second : s->over - s->second;
}

static bool nearer_second(const span *s) { return s->second && 2 * s->second > s->over; }

void transfer_heads(uint32_t L, uint32_t G, const double *source, uint32_t L2, uint32_t G2,
                    double *target) {
    assert(L >= 1 && L <= EXTENT_MAX && L2 >= 1 && L2 <= EXTENT_MAX && G >= 1 && G2 >= 1);
    assert(G == G2 || (G <= EXTENT_MAX && G2 <= EXTENT_MAX));
    for (uint32_t l2 = 0; l2 < L2; l2++) {
        span sl = span_of(L, L2, l2);
        for (uint32_t g2 = 0; g2 < G2; g2++) {
            span sg = span_of(G, G2, g2);
            /* Weights add up to the denominators, which are at most 2^16 each, so sums of indices
             * stay below 2^48. */
            double sum = 0;
            for (uint32_t i = 0; i < sl.count; i++) {
                for (uint32_t j = 0; j < sg.count; j++) {
                    sum += (double)(span_weight(&sl, i) * span_weight(&sg, j)) *
                           source[(uint64_t)(sl.begin + i) * G + sg.begin + j];
                }
            }
            target[(uint64_t)l2 * G2 + g2] = sum / (double)(sl.over * sg.over);
        }
    }
}

/* ---- rank ---- */

typedef struct spread_of {
    double spread;
    uint32_t head;
} spread_of;

static int by_spread(const void *a, const void *b) {
    const spread_of *x = a, *y = b;
    if (x->spread != y->spread) { return x->spread < y->spread ? -1 : 1; }
    return x->head < y->head ? -1 : 1;
}

void transfer_heads_rank(uint32_t L, uint32_t G, const double *source, uint32_t L2, uint32_t G2,
                         const double *spread, double *target) {
    CKVC_AUTO_FREE double *sorted = ckvc_copy(source, (size_t)L * G, sizeof *sorted);
    CKVC_AUTO_FREE double *mapped = ckvc_alloc((size_t)L2 * G2, sizeof *mapped);
    CKVC_AUTO_FREE spread_of *order = ckvc_alloc(G2, sizeof *order);
    for (uint32_t l = 0; l < L; l++) {
        qsort(sorted + (size_t)l * G, G, sizeof *sorted, ckvc_order_double);
    }
    /* These ascend in every layer, as means of ascending rows do. */
    transfer_heads(L, G, sorted, L2, G2, mapped);
    for (uint32_t l2 = 0; l2 < L2; l2++) {
        for (uint32_t g = 0; g < G2; g++) {
            order[g] = (spread_of){spread[(size_t)l2 * G2 + g], g};
        }
        qsort(order, G2, sizeof *order, by_spread);
        for (uint32_t k = 0; k < G2; k++) {
            target[(size_t)l2 * G2 + order[k].head] = mapped[(size_t)l2 * G2 + k];
        }
    }
}

double transfer_rank_agreement(uint32_t L, uint32_t G, const double *source, const double *spread) {
    double sum = 0, n = 0;
    for (uint32_t l = 0; l < L; l++) {
        double rho = rank_spearman(source + (size_t)l * G, spread + (size_t)l * G, G);
        if (!isnan(rho)) {
            sum += rho;
            n += 1;
        }
    }
    return n > 0 ? sum / n : NAN;
}

/* ---- signature ---- */

/* Returns the source layers of target layer l2. *first becomes the index at which their pairings
 * begin. */
static span layers_of(const transfer_pairing *p, uint32_t l2, size_t *first) {
    span s = span_of(p->L, p->L2, l2);
    *first = 0;
    for (uint32_t k = 0; k < l2; k++) { *first += span_of(p->L, p->L2, k).count; }
    return s;
}

/* Computes z [G][3] over the heads of one layer, with the population deviation. */
static void z_scores(uint32_t G, const double *signature, double *z) {
    for (int s = 0; s < TRANSFER_STATS; s++) {
        double mean = 0, square = 0;
        for (uint32_t g = 0; g < G; g++) { mean += signature[(size_t)g * TRANSFER_STATS + s]; }
        mean /= G;
        for (uint32_t g = 0; g < G; g++) {
            double d = signature[(size_t)g * TRANSFER_STATS + s] - mean;
            square += d * d;
        }
        double sd = sqrt(square / G);
        for (uint32_t g = 0; g < G; g++) {
            double d = signature[(size_t)g * TRANSFER_STATS + s] - mean;
            z[(size_t)g * TRANSFER_STATS + s] = sd > 1e-12 * fabs(mean) ? d / sd : 0;
        }
    }
}

/* Pairs z [G][3] of a source layer with z2 [G2][3] of a target layer, and writes the paired source
 * heads to head [G2]. Returns the mean cost. `cost` is scratch [G2][G * times]. */
static double pair_layer(const transfer_pairing *p, const double *z, const double *z2, double *cost,
                         uint32_t *head) {
    uint32_t times = (p->G2 + p->G - 1) / p->G, columns = p->G * times;
    for (uint32_t i = 0; i < p->G2; i++) {
        for (uint32_t j = 0; j < columns; j++) {
            double sum = 0;
            for (int s = 0; s < TRANSFER_STATS; s++) {
                double d =
                    z2[(size_t)i * TRANSFER_STATS + s] - z[(size_t)(j % p->G) * TRANSFER_STATS + s];
                sum += d * d;
            }
            cost[(size_t)i * columns + j] = sum;
        }
    }
    assignment_solve(p->G2, columns, cost, head);
    double mean = 0;
    for (uint32_t i = 0; i < p->G2; i++) {
        mean += cost[(size_t)i * columns + head[i]] / p->G2;
        head[i] %= p->G;
    }
    return mean;
}

ckvc_status transfer_pair(transfer_pairing *p, const double *signature, const double *signature2,
                          ckvc_err *err) {
    const uint32_t L = p->L, G = p->G, L2 = p->L2, G2 = p->G2, times = (G2 + G - 1) / G;
    CKVC_FAIL_IF(G > ASSIGNMENT_MAX || G2 > ASSIGNMENT_MAX || (uint64_t)G * times > ASSIGNMENT_MAX,
                 err, CKVC_E_DATA, "%u and %u heads: a pairing by signature takes at most %d", G,
                 G2, ASSIGNMENT_MAX);
    size_t step = 0;
    layers_of(p, L2, &step); /* `step` becomes the number of all pairings */
    p->head = ckvc_alloc(step * G2, sizeof *p->head);
    p->cost = ckvc_alloc(L2, sizeof *p->cost);
    CKVC_AUTO_FREE double *z = ckvc_alloc((size_t)L * G * TRANSFER_STATS, sizeof *z);
    CKVC_AUTO_FREE double *z2 = ckvc_alloc((size_t)G2 * TRANSFER_STATS, sizeof *z2);
    CKVC_AUTO_FREE double *cost = ckvc_alloc((size_t)G2 * G * times, sizeof *cost);
    for (uint32_t l = 0; l < L; l++) {
        z_scores(G, signature + (size_t)l * G * TRANSFER_STATS, z + (size_t)l * G * TRANSFER_STATS);
    }
    for (uint32_t l2 = 0; l2 < L2; l2++) {
        span s = layers_of(p, l2, &step);
        z_scores(G2, signature2 + (size_t)l2 * G2 * TRANSFER_STATS, z2);
        for (uint32_t k = 0; k < s.count; k++) {
            double mean = pair_layer(p, z + (size_t)(s.begin + k) * G * TRANSFER_STATS, z2, cost,
                                     p->head + (step + k) * G2);
            if (k == 0 || nearer_second(&s)) { p->cost[l2] = mean; }
        }
    }
    return CKVC_OK;
}

void transfer_pairing_fini(transfer_pairing *p) {
    free(p->head);
    free(p->cost);
    *p = (transfer_pairing){0};
}

void transfer_heads_paired(const transfer_pairing *p, const double *source, double *target) {
    for (uint32_t l2 = 0; l2 < p->L2; l2++) {
        size_t step;
        span s = layers_of(p, l2, &step);
        for (uint32_t g = 0; g < p->G2; g++) {
            double sum = 0;
            for (uint32_t k = 0; k < s.count; k++) {
                sum += (double)span_weight(&s, k) *
                       source[(size_t)(s.begin + k) * p->G + p->head[(step + k) * p->G2 + g]];
            }
            target[(size_t)l2 * p->G2 + g] = sum / (double)s.over;
        }
    }
}

uint32_t transfer_nearest(const transfer_pairing *p, uint32_t l2, const uint32_t **heads) {
    size_t first;
    span s = layers_of(p, l2, &first);
    uint32_t k = nearer_second(&s);
    *heads = p->head + (first + k) * p->G2;
    return s.begin + k;
}

/* Rows enter one by one. Each enters along the shortest path from itself to a free column, in
 * reduced costs c[i][j] - u[i] - v[j] >= 0. */

void assignment_solve(uint32_t n, uint32_t m, const double *cost, uint32_t *column) {
    assert(n >= 1 && n <= m && m <= ASSIGNMENT_MAX);
    /* Rows and columns count from 1. Row 0 stands for no row, and paths begin at column 0. */
    CKVC_AUTO_FREE double *u = ckvc_calloc(n + 1, sizeof *u);
    CKVC_AUTO_FREE double *v = ckvc_calloc(m + 1, sizeof *v);
    CKVC_AUTO_FREE double *least = ckvc_alloc(m + 1, sizeof *least);
    CKVC_AUTO_FREE uint32_t *row_of = ckvc_calloc(m + 1, sizeof *row_of);
    CKVC_AUTO_FREE uint32_t *before = ckvc_calloc(m + 1, sizeof *before);
    CKVC_AUTO_FREE bool *done = ckvc_alloc(m + 1, sizeof *done);
    for (uint32_t i = 1; i <= n; i++) {
        uint32_t at = 0;
        row_of[0] = i;
        for (uint32_t j = 0; j <= m; j++) {
            least[j] = INFINITY;
            done[j] = false;
        }
        do {
            done[at] = true;
            uint32_t row = row_of[at], next = 0;
            double step = INFINITY;
            for (uint32_t j = 1; j <= m; j++) {
                if (done[j]) { continue; }
                double reduced = cost[(size_t)(row - 1) * m + j - 1] - u[row] - v[j];
                if (reduced < least[j]) {
                    least[j] = reduced;
                    before[j] = at;
                }
                if (least[j] < step) {
                    step = least[j];
                    next = j;
                }
            }
            assert(next > 0); /* costs are finite, and there is a column for every row */
            for (uint32_t j = 0; j <= m; j++) {
                if (done[j]) {
                    u[row_of[j]] += step;
                    v[j] -= step;
                } else {
                    least[j] -= step;
                }
            }
            at = next;
        } while (row_of[at] != 0);
        for (; at; at = before[at]) { /* flips the path */
            row_of[at] = row_of[before[at]];
        }
    }
    for (uint32_t j = 1; j <= m; j++) {
        if (row_of[j]) { column[row_of[j] - 1] = j - 1; }
    }
}
