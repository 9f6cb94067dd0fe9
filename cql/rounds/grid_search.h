/* The probe `grid-search` (paper.md section 7). It chooses one weight for all heads, then one
 * threshold per risk cell for all layers, each the one with the best mean reward. Every action of a
 * grid is tried on every prompt with a rollout of its own. There is neither state nor fit: it shows
 * what a policy of a few numbers reaches. */
#pragma once

#include "calib/log/calibrate.h"
#include "formats/table/table_file.h"

/* What is searched, and with what. All pointers are borrowed. */
typedef struct grid_pass {
    run_dir *run;
    const char *name; /* "pass-01-head" */
    const calibrate_inputs *inputs;
    const calibrate_options *options;
    const ckvc_table *start; /* its other side stays as it is */
    ckvc_side side;
} grid_pass;

/* Searches one side: the weight per budget for the heads, or the threshold per budget and cell for
 * the gate. The reward is -(L_comp - L_full), on the gate side less the penalties of all layers
 * (reward.h). Ties are broken as in a fit.
 *
 * Rewards are checkpointed for each --shard-prompts prompts as grid/NAME-00000.jsonl, without
 * held-out prompts, in lines {"id", "bin_entropy", "bin_perplexity", "reward": [nB][A]}. *out,
 * which the caller frees with table_file_free, has no evidence, and its META says what was tried.
 * The status is CKVC_E_STOPPED after a clean stop, which loses at most the checkpoint in hand. */
ckvc_status grid_search(const grid_pass *g, table_file **out, pass_counts *counts,
                        ckvc_err *err) CKVC_MUST_CHECK;
