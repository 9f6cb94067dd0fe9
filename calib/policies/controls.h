/* Controls of `ckvc score` (method.md section 7): tables derived from a table, which go through the
 * same retention operator:
 *
 *   no-utility, no-threshold, mean-pool
 *                  the table's entries under another operator (ckvc_policy.h)
 *   mean-gate      per layer and block one threshold, the mean over all risk cells, snapped to the
 *                  grid
 *   head-only      the table's weights, the start table's threshold
 *   gate-only      the start table's weight, the table's thresholds */
#pragma once

#include "formats/lines/score_kind.h"
#include "lib/policy/ckvc_policy.h"

/* The table that a control stands for: a new one, to be freed with ckvc_table_free. */
ckvc_table *score_control_table(score_kind control, const ckvc_table *from);
