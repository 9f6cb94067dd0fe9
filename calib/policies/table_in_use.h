/* A table that policies draw on: what is asked of its blocks (--mode, --score, or as it
 * recommends), and that what this needs is there. */
#pragma once

#include "calib/actions/prompt_sets.h"
#include "calib/policies/head_scores.h"
#include "calib/policies/policy_choice.h"

/* Policies that draw on one table share it. */
typedef struct table_in_use {
    const policy_choice *choice;
    const ckvc_table *table;
    const char *name; /* of the file */
    ckvc_table *own;  /* the same, when it was made here: the paper's way, whatever it holds */
    prompt_sets *kept;
    size_t *score;     /* [nB] of each block, among the head scores */
    bool beyond_paper; /* a block's sets are not the paper's */
} table_in_use;

/* Without leave to take a near block, a table must hold the very budgets. */
ckvc_status table_check_budgets(const policy_choice *o, const table_file *f,
                                ckvc_err *err) CKVC_MUST_CHECK;
/* For a policy of this kind: what the blocks need beside the paper's numbers is there, and is among
 * the scores from here on. */
ckvc_status table_open_blocks(table_in_use *t, score_kind kind, head_scores *scores,
                              ckvc_err *err) CKVC_MUST_CHECK;
/* By what a block's sets are made. */
ckvc_score table_asked(const table_in_use *t, uint32_t block);
/* The paper's way: layers of one budget under its operator. */
static inline bool asked_is_paper(ckvc_score s) {
    return s.mode == CKVC_MODE_SHARED && s.kind == CKVC_SCORE_PAPER;
}
/* What every head keeps of a block; without a table, or one that says it: a fifth of B, and 8. */
ckvc_c_min table_c_min(const table_in_use *t, uint32_t block);
