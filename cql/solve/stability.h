/* How far a table is determined by the prompts that it was fitted to: reliability, learning curves,
 * and gains on prompts left out (docs/paper.md, section 10).
 *
 * A table of one side is [L*X][nB] states with one entry each. States without records keep the
 * incoming action, as in a fit. All subsets are drawn from (seed, number of the repeat), so the
 * same arguments give the same bits. The status is CKVC_E_BUG when the solver fails. */
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
    size_t prompts;    /* prompts of each table */
    double records;    /* mean number of records of one table */
    double supported;  /* mean share of the states that have records */
    sample_spread rho; /* between two tables that are fitted to disjoint prompts */
    /* whether each table had half of `prompts`, and rho is corrected by Spearman-Brown */
    bool corrected;
    sample_spread to_full; /* between a table of this size and that of all records */
} stability_point;
/* Computes the point of n prompts. Where n <= n_prompts / 2, it fits two disjoint random sets of n
 * prompts. Where n is larger, it fits random halves of n random prompts, and corrects. Prompts of
 * one document are drawn one after the other. */
ckvc_status stability_curve_point(const stability_fit *s, size_t n, uint32_t repeats, uint64_t seed,
                                  stability_point *out, ckvc_err *err) CKVC_MUST_CHECK;

/* Computes the mean advantage of tables that are fitted to n random prompts, on the prompts of
 * other documents, one change at a time. Each record of a prompt left out counts under the chosen
 * action, or as 0 where the table keeps the incoming one. gain [n_prompts] is a prompt's mean over
 * its states and over the repeats in which it was left out; NaN when it never was. 0 < n <
 * n_prompts. */
ckvc_status stability_left_out(const stability_fit *s, size_t n, uint32_t repeats, uint64_t seed,
                               double *gain, ckvc_err *err) CKVC_MUST_CHECK;
