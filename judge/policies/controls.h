/* Controls of `ckvc score` (paper.md section 7). A control is a table that is derived from a table
 * and goes through the same retention operator:
 *
 *   no-utility, no-threshold, mean-pool
 *                  the table's entries under another operator (ckvc_policy.h)
 *   mean-gate      in each layer and block one threshold: the mean over all risk cells, rounded to
 *                  the grid
 *   head-only      the table's weights with the start table's threshold
 *   gate-only      the start table's weight with the table's thresholds */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "formats/lines/policy_kind.h"
#include "lib/policy/policy_parts.h"

/* Makes the table that a control stands for. The caller frees it with ckvc_table_free. */
ckvc_table *policy_control_table(policy_kind control, const ckvc_table *from);

/* POLICY_MATCHED is identity under the one threshold by which it keeps as many positions as a table
 * does, over the prompts that count.
 *
 * So many thresholds are tried, from 0 (which keeps everything) on. They go up to 5 in steps of
 * 1/200. With `wide`, for tables whose heads may keep few, threshold j is (j/200)^2 and they go up
 * to 25. */
enum { MATCHED_STEPS = 1000 };

/* Begin with {0}, then set `wide` before the first prompt. */
typedef struct matched_tau {
    bool wide;
    double kept[MATCHED_STEPS]; /* positions that identity keeps under each threshold */
    double wanted;              /* positions that the table keeps */
} matched_tau;

/* What the set of a layer, or of a head, is made of: the utilities u [T]; the last keep_window
 * positions, which are kept under every threshold; and `most`, above which nothing is kept. */
typedef struct matched_unit {
    const double *u;
    uint32_t n_tokens, keep_window, most;
} matched_unit;

/* Adds one set, of which the table keeps `wanted` positions. */
void matched_tau_add(matched_tau *m, const matched_unit *unit, uint32_t wanted);
/* Returns the threshold. Several can be equally good, because the limit decides or because none can
 * match. It is then threshold number 180 if that is one of them, else the lowest. Number 180 is the
 * start table's 0.9; with `wide` it is 0.81. */
double matched_tau_find(const matched_tau *m);
