/* Records to a table: pools run directories and bare shards, fits every state, chooses its action,
 * and leaves the evidence in a table_file (method.md sections 5, 6; formats/table/table.md, META).
 *
 * Deterministic: the same records give the same content id, in whatever order and number of shards
 * they come. */
#pragma once

#include <stddef.h>

#include "cql/fit/fit_result.h"
#include "lib/base/status.h"

/* paths: run directories and shard files. Warnings go to ckvc_warn. */
ckvc_status fit_records(const char *const *paths, size_t n_paths, const fit_options *o,
                        fit_result **out, ckvc_err *err) CKVC_MUST_CHECK;
