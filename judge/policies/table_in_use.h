/* A table that policies draw on: what is asked of its blocks (--mode, --score, --c-min, or as it
 * recommends), and that what this needs is there. */
#pragma once

#include "calib/actions/prompt_sets.h"
#include "calib/actions/table_sets.h"
#include "judge/policies/rules/rule.h"
#include "formats/setting/setting.h"
#include "formats/table/table_file.h"

/* Which policies are asked for, under which budgets. */
typedef struct score_policy {
    score_kind kind;
    const table_file *table; /* tables, matched, controls, what needs shares; references: whose
                                tokens they keep, or NULL. Borrowed */
    /* Of a table, borrowed; NULL: the choice's. */
    const ckvc_score_kind *score;
    const double *floor;
    uint64_t skip; /* bit b: not asked for under budget number b (`ckvc score`: 0) */
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
    const double *floor;        /* of B, what a table's sets by shares have at least; or NULL */
    reconstruction_texts texts; /* of kvzip */
} policy_choice;

/* Policies that draw on one table share it. Its sets are what the library keeps (table_sets.h), as
 * an engine would deploy it; or, of what no engine does, those of prompt_sets.h: the start table
 * and controls, probes' operators, budgets by layer. */
typedef struct table_in_use {
    const policy_choice *choice;
    const ckvc_table *table;
    ckvc_score_kind score; /* in place of what it recommends; CKVC_SCORE_COUNT: as it does */
    const char *name;      /* of the file */
    ckvc_table *own;       /* the same, when it was made here: the paper's way, whatever it holds */
    prompt_sets *kept;     /* NULL: the library's are taken */
    table_sets served;
    bool beyond_paper; /* a block's sets are not the paper's */
} table_in_use;

/* Without leave to take a near block, a table must hold the very budgets. */
ckvc_status table_check_budgets(const policy_choice *o, const table_file *f,
                                ckvc_err *err) CKVC_MUST_CHECK;
/* For a model and prompts of up to max_tokens. Close it after an error, too. CKVC_E_MISMATCH: what
 * is asked of it is not there. */
ckvc_status table_open(table_in_use *t, const model_shape *shape, uint32_t max_tokens,
                       ckvc_err *err) CKVC_MUST_CHECK;
void table_close(table_in_use *t);
/* For a policy of this kind: the shares that it needs are there. */
ckvc_status table_check_shares(const table_in_use *t, score_kind kind,
                               ckvc_err *err) CKVC_MUST_CHECK;
/* By what a block's sets are made. */
ckvc_score table_asked(const table_in_use *t, uint32_t block);
/* The paper's way: layers of one budget under its operator. */
static inline bool asked_is_paper(ckvc_score s) {
    return s.mode == CKVC_MODE_SHARED && s.kind == CKVC_SCORE_PAPER;
}
/* What every head keeps of a block; without a table, or one that says it: a fifth of B, and 8. */
ckvc_c_min table_c_min(const table_in_use *t, uint32_t block);
