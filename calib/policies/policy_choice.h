/* Which policies are asked for, under which budgets. */
#pragma once

#include "calib/policies/rules/rule.h"
#include "formats/setting/setting.h"
#include "formats/table/table_file.h"

typedef struct score_policy {
    score_kind kind;
    const table_file *table; /* tables, matched, controls, what needs shares; references: whose
                                tokens they keep, or NULL. Borrowed */
} score_policy;

typedef struct policy_choice {
    const score_policy *list; /* [n] */
    size_t n;
    setting setting; /* borrows. With budgets by layer, layer l keeps at most its own, each table
                        by its nearest block, and the one budget stands for them in lines and
                        summary */
    bool nearest_budget; /* a table that lacks a budget uses its block nearest by ratio
                            (ckvc_nearest_budget), with B as asked */
    /* CKVC_MODE_COUNT, CKVC_SCORE_COUNT: as each table recommends */
    ckvc_mode mode;
    ckvc_score_kind score;
    reconstruction_texts texts; /* of kvzip */
} policy_choice;
