/* What decided the choices of one side: the rewards' means, the conservative term, or the penalty.
 * Computed here alone, for a fit and for a table that is read. Plain arrays. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/names.h"

/* A state is [l][x][b]: S = L * X * nB. */
typedef struct decided_from {
    size_t S, X, nB;
    ckvc_actions actions;
    const uint64_t *n;      /* [S][A] counts */
    const double *q, *mean; /* [S][A], read where n > 0 */
    const double *part;     /* [S][A] mean loss parts; NULL where no penalty is paid */
    double cql_alpha;
    /* false: q is not the exact solver's. Then the loss part's choice is held against the exact
     * one, like with like: how far q stopped from the minimum is not the penalty's doing. */
    bool exact;
} decided_from;

/* Numbers of states. */
typedef struct decided_split {
    size_t supported;
    size_t by_loss; /* the loss part alone would choose the same; the others: by the penalty */
    size_t flat;    /* the loss part is the same for all logged actions */
} decided_split;

typedef struct decided {
    size_t X, nB;
    int *chosen;          /* [S] by q; -1: no records */
    bool *by_loss, *flat; /* [S], all layers of [nB][X]; NULL without part */
    decided_split *split; /* [nB][X] */
    size_t n_supported;   /* states with records */
    uint64_t *records;    /* [n_supported] of each, ascending */
    double median;        /* of these; NaN without any */
    size_t n_alpha;       /* choices that the plain mean would not make */
    double correlation;   /* Spearman, over logged actions: chosen or not against the action's
                             share of its state's records; NaN: all counts are equal */
    size_t n_failed;      /* states where the solver failed: a bug, or unsound evidence */
} decided;

decided decided_of(const decided_from *from);
void decided_fini(decided *d);
/* Of one budget; of b = nB all of them. */
decided_split decided_sum(const decided *d, size_t b);
