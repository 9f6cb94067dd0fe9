/* What a fit says of itself in the table's META (formats/table/table.md). */
#pragma once

#include "cql/fit/fit_pool.h"
#include "cql/fit/fit_result.h"

/* r->table->meta anew, from the sides' numbers; of a side that was carried over also what the
 * incoming table says of it. */
void fit_write_meta(const fit_pool *pool, const fit_options *o, fit_result *r);
