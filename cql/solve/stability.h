/* How far a table is fixed by the prompts that it was fitted from: reliability, learning curves,
 * gains on prompts left out (docs/paper.md, section 10).
 *
 * A table of one side is [L*X][nB] states with one entry each; states without records keep the
 * incoming action, as in a fit. All subsets are drawn from (seed, number of the repeat); the same
 * arguments give the same bits. CKVC_E_BUG when the solver fails. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "cql/solve/logged.h"
#include "lib/base/status.h"
#include "lib/stats/reliability.h"

typedef struct stability_fit {
    const cql_logged *l;
    cql_fit fit;
    const int *incoming; /* [S] action of a state without records */
    size_t n_budgets;    /* the last index of a state */
} stability_fit;

/* One size of a learning curve. */
typedef struct stability_point {
    size_t prompts;        /* of each table */
    double records;        /* of one table, mean */
    double supported;      /* share of the states with records, mean */
    sample_spread rho;     /* two tables from disjoint prompts */
    bool corrected;        /* each had half of `prompts`: rho after Spearman and Brown */
    sample_spread to_full; /* a table of this size against that of all records */
} stability_point;
/* n <= n_prompts / 2: two disjoint random sets of n prompts; more: random halves of n random
 * prompts, corrected. Prompts of one document are drawn one after the other. */
ckvc_status stability_curve_point(const stability_fit *s, size_t n, uint32_t repeats, uint64_t seed,
                                  stability_point *out, ckvc_err *err) CKVC_MUST_CHECK;

/* Mean advantage of tables fitted from n random prompts, on the prompts of other documents, one
 * change at a time: each record of a prompt left out under the chosen action, 0 where the table
 * keeps the incoming one. gain [n_prompts]: a prompt's mean over its states and over the repeats in
 * which it was left out, NaN when it never was. 0 < n < n_prompts. */
ckvc_status stability_left_out(const stability_fit *s, size_t n, uint32_t repeats, uint64_t seed,
                               double *gain, ckvc_err *err) CKVC_MUST_CHECK;
