/* The fit of one side: from pooled statistics to entries, evidence and what is said of both.
 * Internal to cql/fit. */
#pragma once

#include "cql/fit/fit_pool.h"
#include "cql/fit/fit_result.h"

typedef struct fitting {
    const fit_options *o;
    struct side s;     /* of the table that is made: entries are written */
    table_evidence *e; /* written; all zero, Q -inf */
    fit_pool_side *pool;
    const float *start; /* [n_states] entries of the incoming table, and whose it is */
    const char *where;
} fitting;

ckvc_status fit_side(const fitting *f, fitted_side *out, ckvc_err *err) CKVC_MUST_CHECK;
