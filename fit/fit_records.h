/* Makes a table from records: it pools run directories and bare shards, fits every state, chooses
 * its action, and leaves the evidence in a table_file (paper.md sections 5, 6;
 * formats/table/table.md, META).
 *
 * It is deterministic: the same records give the same content id, in whatever order and number of
 * shards they come. */
#pragma once

#include <stddef.h>

#include "fit/fit_result.h"
#include "lib/base/status.h"

/* Fits what `paths` hold, which are run directories and shard files. fit_result_free frees *out.
 * Warnings go to ckvc_warn. */
ckvc_status fit_records(const char *const *paths, size_t n_paths, const fit_options *o,
                        fit_result **out, ckvc_err *err) CKVC_MUST_CHECK;

/* Demand with every weight that was logged. It is kept so that a table which such a fit made can be
 * given other shares. */
typedef struct fit_mixes fit_mixes;
/* Reads the demand of `paths` as fit_records does, and leaves the features and queries unread. The
 * status is CKVC_E_DATA where no prompt has demand. The caller frees *out with fit_mixes_free; what
 * `o` borrows must stay valid until then. */
ckvc_status fit_mixes_read(const char *const *paths, size_t n_paths, const fit_options *o,
                           fit_mixes **out, ckvc_err *err) CKVC_MUST_CHECK;
void fit_mixes_free(fit_mixes *m);
CKVC_AUTO_OF(fit_mixes, fit_mixes_free)
/* Changes t's shares, their intervals and what META says about demand to those of the weight mix
 * [nB] of each budget; *found changes likewise, and must be zero or come from an earlier fit. The
 * status is CKVC_E_DATA where such a weight is not logged. */
ckvc_status fit_mixes_take(fit_mixes *m, const double *mix, table_file *t, fitted_demand *found,
                           ckvc_err *err) CKVC_MUST_CHECK;
