/* Records to a table: pools run directories and bare shards, fits every state, chooses its action,
 * and leaves the evidence in a table_file (paper.md sections 5, 6; formats/table/table.md, META).
 *
 * Deterministic: the same records give the same content id, in whatever order and number of shards
 * they come. */
#pragma once

#include <stddef.h>

#include "fit/fit_result.h"
#include "lib/base/status.h"

/* paths: run directories and shard files. Warnings go to ckvc_warn. */
ckvc_status fit_records(const char *const *paths, size_t n_paths, const fit_options *o,
                        fit_result **out, ckvc_err *err) CKVC_MUST_CHECK;

/* Demand with every weight that was logged, for other shares of a table that such a fit made. */
typedef struct fit_mixes fit_mixes;
ckvc_status fit_mixes_read(const char *const *paths, size_t n_paths, const fit_options *o,
                           fit_mixes **out, ckvc_err *err) CKVC_MUST_CHECK;
void fit_mixes_free(fit_mixes *m);
CKVC_AUTO_OF(fit_mixes, fit_mixes_free)
/* mix [nB]: t's shares, intervals and what META says of demand, and *found (zero, or of the fit
 * before), become those of the weight of each budget. CKVC_E_DATA where one is not logged. */
ckvc_status fit_mixes_take(fit_mixes *m, const double *mix, table_file *t, fitted_demand *found,
                           ckvc_err *err) CKVC_MUST_CHECK;
