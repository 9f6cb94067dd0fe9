/* Records to a table: pools run directories and bare shards, fits every state, chooses its action,
 * and leaves the evidence in a table_file (method.md sections 5, 6; formats/table/table.md, META).
 *
 * Deterministic: the same records give the same content id, in whatever order and number of shards
 * they come. */
#pragma once

#include <stddef.h>

#include "cql/fit/fit_result.h"
#include "lib/base/status.h"
#include "cql/fit/fit_pool.h"

/* paths: run directories and shard files. Warnings go to ckvc_warn. */
ckvc_status fit_records(const char *const *paths, size_t n_paths, const fit_options *o,
                        fit_result **out, ckvc_err *err) CKVC_MUST_CHECK;

/* What a fit says of itself in the table's META (formats/table/table.md). */
/* r->table->meta anew, from the sides' numbers; of a side that was carried over also what the
 * incoming table says of it. */
void fit_write_meta(const fit_pool *pool, const fit_options *o, fit_result *r);

/* The fit of one side: from pooled statistics to entries, evidence and what is said of both.
 * Internal to cql/fit. */
typedef struct fitting {
    const fit_options *o;
    struct side s;     /* of the table that is made: entries are written */
    table_evidence *e; /* written; all zero, Q -inf */
    fit_pool_side *pool;
    const float *start; /* [n_states] entries of the incoming table, and whose it is */
    const char *where;
} fitting;

ckvc_status fit_side(const fitting *f, fitted_side *out, ckvc_err *err) CKVC_MUST_CHECK;
