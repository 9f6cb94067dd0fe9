/* The table that a calibration starts under when none is given: every weight 1.0, every threshold
 * 0.9 (method.md section 7), or the one of the gate's grid that is nearest to it. */
#pragma once

#include "calib/actions/action_grid.h"
#include "formats/table/table_file.h"
#include "lib/base/status.h"
#include "lib/policy/ckvc_policy.h"

typedef struct start_table_spec {
    uint32_t n_layers, n_heads;          /* L, G */
    uint32_t n_entropy_bins, n_ppl_bins; /* E, P; 0 counts as 1 */
    uint32_t n_budgets, window;
    const double *budgets;    /* [n_budgets], copied */
    const action_grid *grids; /* [CKVC_SIDE_COUNT]; NULL: the default ones */
} start_table_spec;

/* Edges at 0, to be filled by the caller. ckvc_table_free it. CKVC_E_USAGE over the format's
 * limits. */
ckvc_status start_table_create(const start_table_spec *spec, ckvc_table **out,
                               ckvc_err *err) CKVC_MUST_CHECK;

/* A copy; ckvc_table_free it. */
ckvc_table *start_table_copy(const ckvc_table *t);
/* A copy as a file in memory: no evidence, META empty. */
table_file *start_table_file(const ckvc_table *t);
