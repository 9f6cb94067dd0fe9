/* Transfer of a table to another depth (paper.md section 9).
 *
 * Values are doubles: shares of a budget, or action indices (at most 65535), whose sums are exact;
 * what comes out of those is rounded once, by transfer_index. */
#pragma once

#include <math.h>
#include <stdint.h>

#include "lib/base/status.h"

/* Per head: spread of rho over t, window attention on the window, its entropy. */
enum { TRANSFER_STATS = 3 };

/* The action index nearest to a mapped one, exact halves down. */
static inline uint32_t transfer_index(double mapped) { return (uint32_t)ceil(mapped - 0.5); }

/* source [L][G] -> target [L2][G2], bilinear at relative positions. A target axis of one takes the
 * mean of the source axis; a source axis of one repeats; G2 = G leaves the second axis as it is,
 * whatever it is (cells of the gate). All extents are at least 1 and at most 65536, but for G = G2.
 */
void transfer_heads(uint32_t L, uint32_t G, const double *source, uint32_t L2, uint32_t G2,
                    double *target);

/* `rank`: every layer's values ascending, mapped like transfer_heads; the k-th smallest of a
 * target layer goes to the head with the k-th smallest spread (of equal ones the earlier head).
 * spread [L2][G2]. */
void transfer_heads_rank(uint32_t L, uint32_t G, const double *source, uint32_t L2, uint32_t G2,
                         const double *spread, double *target);
/* Whether `rank` makes sense in a table: mean over the layers where it is defined of Spearman's rho
 * between value and spread; NaN: nowhere. source, spread [L][G]. */
double transfer_rank_agreement(uint32_t L, uint32_t G, const double *source, const double *spread);

/* `signature`, the pairing: for each target layer and each of the (at most two; all, for one target
 * layer) source layers it lies between, the target heads are assigned to heads of that layer at the
 * least total squared distance of z-scores (over the heads of their own layer; a statistic without
 * spread counts 0). G2 <= G: to different heads. G2 > G: every source head may be taken ceil(G2/G)
 * times. signature [L][G][3], signature2 [L2][G2][3]; p's extents are given, the rest is made. */
typedef struct transfer_pairing {
    uint32_t L, G, L2, G2;
    uint32_t *head; /* [steps][G2] of the source layer, by (target layer, source layer) */
    double *cost;   /* [L2] mean squared distance per head of the nearest source layer's pairing */
} transfer_pairing;
ckvc_status transfer_pair(transfer_pairing *p, const double *signature, const double *signature2,
                          ckvc_err *err) CKVC_MUST_CHECK;
void transfer_pairing_fini(transfer_pairing *p);
/* source [L][G] -> target [L2][G2] through the pairing, linear between the source layers. */
void transfer_heads_paired(const transfer_pairing *p, const double *source, double *target);
/* The source layer nearest to target layer l2 (of equally near ones the lower; of one target layer
 * the first) and its heads [G2]. */
uint32_t transfer_nearest(const transfer_pairing *p, uint32_t l2, const uint32_t **heads);

/* The linear assignment problem (Kuhn 1955, "The Hungarian method"; with potentials and shortest
 * augmenting paths, Jonker and Volgenant 1987): every row gets a column of its own at the least
 * total cost. */
enum { ASSIGNMENT_MAX = 4096 }; /* rows and columns: 128 MiB of costs */

/* cost [n][m] finite, 1 <= n <= m <= ASSIGNMENT_MAX; column [n] receives each row's. O(n^2 m). The
 * same costs give the same assignment. */
void assignment_solve(uint32_t n, uint32_t m, const double *cost, uint32_t *column);
