/* The probe `grid-search` (paper.md section 7): one weight for all heads, then one threshold per
 * risk cell for all layers, each the one with the best mean reward; every action of a grid is tried
 * on every prompt with a rollout of its own. No state, no fit: what a policy of a few numbers
 * reaches. */
#pragma once

#include "calib/log/calibrate.h"
#include "formats/table/table_file.h"

typedef struct grid_pass {
    run_dir *run;
    const char *name; /* "pass-01-head" */
    const calibrate_inputs *inputs;
    const calibrate_options *options;
    const ckvc_table *start; /* its other side stays */
    ckvc_side side;
} grid_pass;

/* One side: head: the weight per budget; gate: the threshold per budget and cell. The reward is
 * -(L_comp - L_full), on the gate side less the penalties of all layers (reward.h). Rewards are
 * checkpointed for each --shard-prompts prompts as grid/NAME-00000.jsonl (held-out prompts left
 * out): {"id", "bin_entropy", "bin_perplexity", "reward": [nB][A]}. Ties as in a fit. `out` has no
 * evidence; its META says what was tried. CKVC_E_STOPPED after a clean stop: at most the checkpoint
 * in hand is lost. */
ckvc_status grid_search(const grid_pass *g, table_file **out, pass_counts *counts,
                        ckvc_err *err) CKVC_MUST_CHECK;
