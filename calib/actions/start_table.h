/* The table that a calibration starts under when none is given: every weight 1.0, every threshold
 * 0.9 (method.md section 7), or the one of the gate's grid that is nearest to it. */
#ifndef CKVC_START_TABLE_H
#define CKVC_START_TABLE_H

#include <stdint.h>

#include "calib/actions/action_grid.h"
#include "formats/table/table_file.h"
#include "lib/base/status.h"
#include "lib/policy/ckvc_policy.h"

/* Default grids, edges at 0 (to be filled by the caller). budgets [n_budgets] is copied.
 * ckvc_table_free it. */
ckvc_status start_table_create(uint32_t n_layers, uint32_t n_heads, uint32_t n_entropy_bins,
                               uint32_t n_ppl_bins, const double *budgets, uint32_t n_budgets,
                               uint32_t window, ckvc_table **out, ckvc_err *err) CKVC_MUST_CHECK;
/* The same with other grids. */
ckvc_status start_table_of_grids(uint32_t n_layers, uint32_t n_heads, uint32_t n_entropy_bins,
                                 uint32_t n_ppl_bins, const double *budgets, uint32_t n_budgets,
                                 uint32_t window, const action_grid grids[CKVC_SIDE_COUNT],
                                 ckvc_table **out, ckvc_err *err) CKVC_MUST_CHECK;

/* A copy as a file in memory: no evidence, META empty. NULL when memory is out. */
table_file *start_table_file(const ckvc_table *t);

#endif
