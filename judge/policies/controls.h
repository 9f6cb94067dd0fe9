/* Controls of `ckvc score` (paper.md section 7): tables derived from a table, which go through the
 * same retention operator:
 *
 *   no-utility, no-threshold, mean-pool
 *                  the table's entries under another operator (ckvc_policy.h)
 *   mean-gate      per layer and block one threshold, the mean over all risk cells, snapped to the
 *                  grid
 *   head-only      the table's weights, the start table's threshold
 *   gate-only      the start table's weight, the table's thresholds */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "formats/lines/score_kind.h"
#include "lib/policy/policy_parts.h"

/* The table that a control stands for: a new one, to be freed with ckvc_table_free. */
ckvc_table *score_control_table(score_kind control, const ckvc_table *from);

/* The threshold of SCORE_MATCHED: the one under which identity keeps as many positions of the
 * prompts that count as a table does. */
/* Thresholds that are looked through, from 0 (everything) on: to 5 in steps of 1/200; `wide`: to
 * 25, ever wider, where heads may keep few. */
enum { MATCHED_STEPS = 1000 };

/* Zeroed, then wide set, before the first prompt. */
typedef struct matched_tau {
    bool wide;
    double kept[MATCHED_STEPS]; /* by identity under each threshold */
    double wanted;              /* by the table */
} matched_tau;

/* What a layer's set, or a head's, is made of: utilities u [T], the last keep_window kept under any
 * threshold, at most `most` kept. */
typedef struct matched_unit {
    const double *u;
    uint32_t n_tokens, keep_window, most;
} matched_unit;

/* One more, of which the table keeps `wanted`. */
void matched_tau_add(matched_tau *m, const matched_unit *unit, uint32_t wanted);
/* Of thresholds that are equally good (the clamp decides, or none does) the start table's step
 * where it is one of them, else the lowest. */
double matched_tau_find(const matched_tau *m);
