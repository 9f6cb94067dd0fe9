/* What `ckvc score` can score besides a table as it is: its controls (method.md section 7) and
 * references that look at no table.
 *
 * Controls are tables derived from a table and go through the same retention operator:
 *
 *   no-utility, no-threshold, mean-pool
 *                  the table's entries under another operator (ckvc_policy.h)
 *   mean-gate      per layer and block one threshold, the mean over all risk cells, snapped to the
 *                  grid
 *   head-only      the table's weights, the start table's threshold
 *   gate-only      the start table's weight, the table's thresholds
 *
 * References rank positions and keep the first of the ranking, as many as they are told; all but
 * top-k have one ranking for all layers:
 *
 *   recent         the last positions
 *   sink-recent    positions 0 to 3, then the last ones; under its own name streamingllm
 *   random         an order drawn by (seed, prompt id)
 *   top-k          identity's utility without its threshold, in each layer: the full-budget control
 *                  (method.md section 2, confound)
 *   window         the window attention alpha alone, without value norms
 *   window-pooled  SnapKV's selection on alpha, which is averaged over layers and heads before it
 *                  is pooled: the last W positions first; then positions before the window by the
 *                  largest alpha within 3 positions to either side (max pooling, kernel 7,
 *                  stride 1), the window left out of the pooling
 *
 * Equal ranks: the later position first, as everywhere.
 */
#pragma once

#include "formats/lines/score_kind.h"
#include "lib/policy/ckvc_policy.h"

/* The table that a control stands for: a new one, to be freed with ckvc_table_free. */
ckvc_table *score_control_table(score_kind control, const ckvc_table *from);
/* The ranking of a reference other than top-k as utilities rank [n_tokens], for ckvc_retain with a
 * threshold of -infinity. alpha [n_tokens]. */
void score_ranking(score_kind reference, uint32_t n_tokens, uint32_t window, const float *alpha,
                   uint64_t seed, const char *prompt_id, double *rank);
