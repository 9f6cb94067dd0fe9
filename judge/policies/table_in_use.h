/* A table that policies draw on: what is asked of its blocks (by --mode, --ranking and
 * --kept-floor, or what it recommends), and the check that the table has what this needs. */
#pragma once

#include "calib/actions/prompt_sets.h"
#include "calib/actions/table_sets.h"
#include "judge/policies/rules/rule.h"
#include "formats/setting/setting.h"
#include "formats/table/table_file.h"

/* Which policies are asked for, and under which budgets. */
typedef struct asked_policy {
    policy_kind kind;
    /* For tables, matched, controls and what needs shares: the table. For references: the table
     * whose numbers of tokens they keep, or NULL. Borrowed. */
    const table_file *table;
    /* The table by whose bank the entries of a reference are fitted; NULL: they stay as they are.
     * Borrowed. */
    const table_file *bank;
    const char *name; /* that a reference with a bank has in lines, such as cake+fit; or NULL */
    /* The score of a table, borrowed; NULL: the choice's. */
    const ckvc_score_kind *score;
    /* Of a table, in place of the choice's: the least share of B that a set by shares has, and the
     * ridge by which entries are fitted in all layers. NULL: the choice's. Borrowed. */
    const double *floor;
    const double *ridge;
    const cache_formats *formats; /* how what it keeps is held; NULL: as the choice says */
    uint64_t skip;                /* bit b: not asked for under budget number b (`ckvc score`: 0) */
} asked_policy;

/* The first returns the name of a policy in lines. The second returns the content id of the table
 * that lines name, which is the one that the policy is given or fitted by; NULL: there is none. */
static inline const char *asked_policy_name(const asked_policy *p) {
    return p->name ? p->name : policy_kind_name(p->kind);
}
static inline const char *asked_policy_table(const asked_policy *p) {
    const table_file *f = p->bank ? p->bank : p->table;
    return f ? f->content_id : NULL;
}

typedef struct policy_choice {
    const asked_policy *list; /* [n] */
    size_t n;
    /* Its arrays are borrowed. With budgets by layer, layer l keeps at most its own budget, for
     * which each table uses its nearest block; lines and summary have the one budget in their
     * place. */
    setting setting;
    /* A table that lacks a budget uses the block whose budget is nearest by ratio
     * (ckvc_nearest_budget), with B as it was asked for. */
    bool nearest_budget;
    /* CKVC_MODE_COUNT and CKVC_SCORE_COUNT: what each table recommends. */
    ckvc_mode mode;
    ckvc_score_kind score;
    /* The least share of B that a table's sets by shares have, in place of the table's; or NULL. */
    const double *floor;
    /* The ridge by which entries that tables keep are fitted in all layers, in place of each
     * table's; 0: they stay as they are. Or NULL. */
    const double *ridge;
    /* [budgets] how what is kept under each budget is held, in place of what the setting says; or
     * NULL. Borrowed. */
    const cache_formats *held;
    reconstruction_texts texts; /* for kvzip */
} policy_choice;

/* Returns the formats in which what policy i keeps under budget number b is held. */
static inline cache_formats policy_formats(const policy_choice *o, size_t i, uint32_t b) {
    return o->list[i].formats ? *o->list[i].formats
           : o->held          ? o->held[b]
                              : setting_formats(&o->setting);
}

/* A table in use. Policies that draw on one table share it. Its sets are those that the library
 * keeps (table_sets.h), as an engine would deploy it. Where no engine deploys such a table, they
 * are those of prompt_sets.h: for the start table and controls, for operators of probes, for
 * budgets by layer. */
typedef struct table_in_use {
    const policy_choice *choice;
    const ckvc_table *table;
    /* in place of what it recommends; CKVC_SCORE_COUNT: what it recommends */
    ckvc_score_kind score;
    const char *name; /* the content id of its file */
    /* The table itself where it was made here; it is then used as the paper's, whatever else it
     * holds. */
    ckvc_table *own;
    prompt_sets *kept; /* NULL: the library's sets are used */
    table_sets served;
    bool beyond_paper; /* the sets of some block are not the paper's */
} table_in_use;

/* Checks that a table has a block for every budget, unless nearby blocks may be used. The status is
 * CKVC_E_MISMATCH where it lacks one. */
ckvc_status table_check_budgets(const policy_choice *o, const table_file *f,
                                ckvc_err *err) CKVC_MUST_CHECK;
/* Opens a table, whose members `choice`, `table`, `score` and `name` the caller has set, for a
 * model and prompts of up to max_tokens. The caller closes it with table_close, even after an
 * error. The status is CKVC_E_MISMATCH where the table lacks something that is asked of it. */
ckvc_status table_open(table_in_use *t, const model_shape *shape, uint32_t max_tokens,
                       ckvc_err *err) CKVC_MUST_CHECK;
void table_close(table_in_use *t);
/* Checks that the table has the shares that a policy of this kind needs. The status is
 * CKVC_E_MISMATCH where it has none. */
ckvc_status table_check_shares(const table_in_use *t, policy_kind kind,
                               ckvc_err *err) CKVC_MUST_CHECK;
/* Returns the score and the mode by which the sets of a block are made. */
ckvc_score table_asked(const table_in_use *t, uint32_t block);
/* Tells whether this is the paper's way: one budget for every layer, under the paper's operator. */
static inline bool asked_is_paper(ckvc_score s) {
    return s.mode == CKVC_MODE_SHARED && s.kind == CKVC_SCORE_PAPER;
}
/* Returns what every head keeps at least under a block. Without a table (t NULL), or where it says
 * nothing, this is a fifth of B, and 8 recent positions. */
ckvc_c_min table_c_min(const table_in_use *t, uint32_t block);
