/* A table that policies draw on: see table_in_use.h. */
#include "judge/policies/table_in_use.h"

static table_sets_options options_of(const table_in_use *t) {
    const policy_choice *o = t->choice;
    return (table_sets_options){.table = t->table,
                                .budgets = o->setting.budgets.v,
                                .n_budgets = o->setting.budgets.n,
                                .mode = o->mode,
                                .score = t->score};
}

ckvc_score table_asked(const table_in_use *t, uint32_t block) {
    const table_sets_options o = options_of(t);
    return t->own ? (ckvc_score){0} : table_sets_score(&o, block);
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

ckvc_status table_check_shares(const table_in_use *t, policy_kind kind, ckvc_err *err) {
    const policy_rule *rule = policy_rule_of(kind);
    const bool by_share = rule && rule->by_share;
    for (uint32_t b = 0; b < t->table->n_budgets; b++) {
        const ckvc_score s = table_asked(t, b);
        const ckvc_mode mode = by_share ? CKVC_MODE_HEADS : (ckvc_mode)s.mode;
        CKVC_FAIL_IF(mode != CKVC_MODE_SHARED && !ckvc_table_shares(t->table, mode), err,
                     CKVC_E_MISMATCH,
                     "the table %.12s... has no shares of %s, which %s%s needs; fit one from a "
                     "demand pass%s",
                     t->name, ckvc_mode_name(mode), by_share ? "" : "mode ",
                     by_share ? policy_kind_name(kind) : ckvc_mode_name(mode),
                     mode == CKVC_MODE_LENGTHS ? " with --mode lengths" : "");
        CKVC_FAIL_IF(
            ckvc_score_learns(s.kind) && !t->table->theta, err, CKVC_E_MISMATCH,
            "the table %.12s... has no learned ranking; fit one from a run of --side score",
            t->name);
        CKVC_FAIL_IF(s.kind == CKVC_SCORE_BANK && !t->table->bank, err, CKVC_E_MISMATCH,
                     "the table %.12s... has no bank to rank by; fit one from a run that logged "
                     "queries",
                     t->name);
        CKVC_FAIL_IF(!asked_is_paper(s) && t->choice->setting.layer_budgets.n, err, CKVC_E_USAGE,
                     "--layer-budgets is for the paper's tables and references that keep B in "
                     "every layer");
    }
    return CKVC_OK;
}

static bool is_probe(const ckvc_table *t) {
    return t->op != CKVC_OPERATOR_PAPER && !(t->share && t->op == CKVC_OPERATOR_NO_THRESHOLD);
}

ckvc_status table_open(table_in_use *t, const model_shape *shape, uint32_t max_tokens,
                       ckvc_err *err) {
    const table_sets_options o = options_of(t);
    for (uint32_t b = 0; b < t->table->n_budgets; b++) {
        t->beyond_paper |= !asked_is_paper(table_asked(t, b));
    }
    if (t->own || t->choice->setting.layer_budgets.n || (is_probe(t->table) && !t->beyond_paper)) {
        return prompt_sets_create(t->table, max_tokens, &t->choice->setting, &t->kept, err);
    }
    return table_sets_open(&t->served, &o, shape, max_tokens, err);
}

void table_close(table_in_use *t) {
    prompt_sets_destroy(t->kept);
    if (!t->kept) { table_sets_close(&t->served); }
    ckvc_table_free(t->own);
}
