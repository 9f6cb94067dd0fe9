/* A table that policies draw on: see table_in_use.h. */
#include "calib/policies/table_in_use.h"

#include "calib/policies/table_scores.h"

ckvc_score table_asked(const table_in_use *t, uint32_t block) {
    const policy_choice *o = t->choice;
    if (t->own) { return (ckvc_score){0}; }
    const ckvc_score own = ckvc_table_score(t->table, block);
    ckvc_score s = own;
    if (o->score != CKVC_SCORE_COUNT && o->score != own.kind) {
        s = ckvc_default_score(o->score, own.features);
    }
    s.mode = o->mode == CKVC_MODE_COUNT ? own.mode : o->mode;
    return s;
}

ckvc_c_min table_c_min(const table_in_use *t, uint32_t block) {
    return t && t->table->c_min ? t->table->c_min[block] : (ckvc_c_min){.floor = 0.2, .recent = 8};
}

ckvc_status table_check_budgets(const policy_choice *o, const table_file *f, ckvc_err *err) {
    const ckvc_table *t = f->table;
    for (uint32_t b = 0;
         !o->nearest_budget && !o->setting.layer_budgets.n && b < o->setting.budgets.n; b++) {
        const uint32_t block =
            ckvc_nearest_budget(t->budgets, t->n_budgets, o->setting.budgets.v[b], 1);
        CKVC_FAIL_IF(t->budgets[block] != o->setting.budgets.v[b], err, CKVC_E_MISMATCH,
                     "the table %.12s... has no block for budget %.10g; use one of its "
                     "own, or --nearest-budget",
                     f->content_id, o->setting.budgets.v[b]);
    }
    return CKVC_OK;
}

ckvc_status table_open_blocks(table_in_use *t, score_kind kind, head_scores *scores,
                              ckvc_err *err) {
    const ckvc_table *table = t->table;
    const policy_rule *rule = policy_rule_of(kind);
    const bool by_share = rule && rule->by_share;
    for (uint32_t b = 0; b < table->n_budgets; b++) {
        const ckvc_score s = table_asked(t, b);
        const bool heads = s.mode == CKVC_MODE_HEADS || by_share;
        CKVC_FAIL_IF((heads && !table->share) ||
                         (s.mode == CKVC_MODE_LAYERS && !table->layer_share),
                     err, CKVC_E_MISMATCH,
                     "the table %.12s... has no shares of %s, which %s needs; fit one from a "
                     "demand pass",
                     t->name, heads ? "heads" : "layers",
                     by_share ? score_kind_name(kind)
                     : heads  ? "mode heads"
                              : "mode layers");
        CKVC_FAIL_IF(s.kind == CKVC_SCORE_LEARNED && !table->theta, err, CKVC_E_MISMATCH,
                     "the table %.12s... has no learned score; fit one from a run of --side score",
                     t->name);
        t->beyond_paper |= !asked_is_paper(s);
        if (by_share || (asked_is_paper(s) && kind != SCORE_POOLED)) { continue; }
        CKVC_FAIL_IF(t->choice->setting.layer_budgets.n, err, CKVC_E_USAGE,
                     "--layer-budgets is for the paper's tables and references that keep B in "
                     "every layer");
        t->score[b] =
            head_scores_add(scores, table_score(s, table, (uint32_t)table_c_min(t, b).recent));
    }
    return CKVC_OK;
}
