/* The transfer of a table to another depth (paper.md section 9).
 *
 * Values are doubles. They are shares of a budget, or action indices (at most 65535), whose sums
 * are exact; what is computed from indices is rounded once, by transfer_index. */
#pragma once

#include <math.h>
#include <stdint.h>

#include "lib/base/status.h"

/* The statistics per head: the spread of rho over t, the window's attention on the window, and its
 * entropy. */
enum { TRANSFER_STATS = 3 };

/* Returns the action index nearest to a mapped one; exact halves are rounded down. */
static inline uint32_t transfer_index(double mapped) { return (uint32_t)ceil(mapped - 0.5); }

/* Maps source [L][G] to target [L2][G2], bilinearly at relative positions. A target axis of length
 * one takes the mean of the source axis, and a source axis of length one repeats. With G2 = G the
 * second axis stays as it is, whatever it is (cells of the gate). All extents are at least 1 and at
 * most 65536; where G = G2, only L and L2 have this upper limit. */
void transfer_heads(uint32_t L, uint32_t G, const double *source, uint32_t L2, uint32_t G2,
                    double *target);

/* Maps by `rank`. Every layer's values are sorted ascending and mapped as by transfer_heads. Then
 * the k-th smallest value of a target layer goes to the head with the k-th smallest spread (of
 * equal ones the earlier head). spread [L2][G2]. */
void transfer_heads_rank(uint32_t L, uint32_t G, const double *source, uint32_t L2, uint32_t G2,
                         const double *spread, double *target);
/* Says whether `rank` makes sense for a table. Returns the mean, over the layers where it is
 * defined, of Spearman's rho between value and spread; NaN where it is defined in no layer. source,
 * spread [L][G]. */
double transfer_rank_agreement(uint32_t L, uint32_t G, const double *source, const double *spread);

/* The pairing of `signature`. Each target layer lies between at most two source layers; a single
 * target layer lies between all of them. For each of these source layers, the target heads are
 * assigned to heads of that layer at the least total squared distance of z-scores (over the heads
 * of their own layer; a statistic without spread counts 0). Where G2 <= G, they are assigned to
 * different heads. Where G2 > G, every source head may be taken ceil(G2/G) times. */
typedef struct transfer_pairing {
    uint32_t L, G, L2, G2;
    uint32_t *head; /* [steps][G2] heads of the source layer, by (target layer, source layer) */
    /* [L2] the mean squared distance per head in the pairing with the nearest source layer */
    double *cost;
} transfer_pairing;
ckvc_status transfer_pair(transfer_pairing *p, const double *signature, const double *signature2,
                          ckvc_err *err) CKVC_MUST_CHECK;
void transfer_pairing_fini(transfer_pairing *p);
/* Maps source [L][G] to target [L2][G2] through the pairing, linearly between the source layers. */
void transfer_heads_paired(const transfer_pairing *p, const double *source, double *target);
/* Returns the source layer nearest to target layer l2 (of equally near ones the lower; for a single
 * target layer the first). *heads becomes the heads [G2] of that layer which are paired. */
uint32_t transfer_nearest(const transfer_pairing *p, uint32_t l2, const uint32_t **heads);

/* The linear assignment problem (Kuhn 1955, "The Hungarian method"; with potentials and shortest
 * augmenting paths, Jonker and Volgenant 1987): every row gets a column of its own, at the least
 * total cost. */
enum { ASSIGNMENT_MAX = 4096 }; /* the most rows and columns, which make 128 MiB of costs */

/* Solves the problem. cost [n][m] must be finite, with 1 <= n <= m <= ASSIGNMENT_MAX. column [n]
 * receives the column of each row. It takes O(n^2 m). The same costs give the same assignment. */
void assignment_solve(uint32_t n, uint32_t m, const double *cost, uint32_t *column);
