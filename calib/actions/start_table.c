/* The start table: see start_table.h. */
#include "calib/actions/start_table.h"

#include <string.h>

ckvc_status start_table_of_grids(uint32_t n_layers, uint32_t n_heads, uint32_t n_entropy_bins,
                                 uint32_t n_ppl_bins, const double *budgets, uint32_t n_budgets,
                                 uint32_t window, const action_grid grids[CKVC_SIDE_COUNT],
                                 ckvc_table **out, ckvc_err *err) {
    const action_grid *heads = &grids[CKVC_SIDE_HEAD], *gates = &grids[CKVC_SIDE_GATE];
    ckvc_table *t = ckvc_table_create(n_layers, n_heads, n_entropy_bins, n_ppl_bins, n_budgets,
                                      heads->n, gates->n);
    *out = t;
    if (!t) {
        return ckvc_fail(
            err, CKVC_E_USAGE,
            "a table of %u layers x %u heads, %u x %u bins, %u budgets is over the format's limits",
            n_layers, n_heads, n_entropy_bins, n_ppl_bins, n_budgets);
    }
    t->window = window;
    t->head_axis = 0;
    for (uint32_t b = 0; b < n_budgets; b++) {
        t->budgets[b] = budgets[b];
    }
    memcpy(t->head_grid, heads->values, heads->n * sizeof *t->head_grid);
    memcpy(t->gate_grid, gates->values, gates->n * sizeof *t->gate_grid);
    size_t n_weights = (size_t)n_layers * n_heads * n_budgets;
    size_t n_taus = (size_t)n_layers * n_entropy_bins * n_ppl_bins * n_budgets;
    const double weight = ckvc_head_action(CKVC_HEAD_NEUTRAL); /* on every head grid */
    const double tau = gates->values[side_neutral_of(CKVC_SIDE_GATE, gates->values, gates->n)];
    for (size_t i = 0; i < n_weights; i++) {
        t->weight[i] = (float)weight;
    }
    for (size_t i = 0; i < n_taus; i++) {
        t->tau[i] = (float)tau;
    }
    return CKVC_OK;
}

ckvc_status start_table_create(uint32_t n_layers, uint32_t n_heads, uint32_t n_entropy_bins,
                               uint32_t n_ppl_bins, const double *budgets, uint32_t n_budgets,
                               uint32_t window, ckvc_table **out, ckvc_err *err) {
    action_grid grids[CKVC_SIDE_COUNT];
    action_grid_default(CKVC_SIDE_HEAD, &grids[CKVC_SIDE_HEAD]);
    action_grid_default(CKVC_SIDE_GATE, &grids[CKVC_SIDE_GATE]);
    return start_table_of_grids(n_layers, n_heads, n_entropy_bins, n_ppl_bins, budgets, n_budgets,
                                window, grids, out, err);
}

table_file *start_table_file(const ckvc_table *from) {
    table_file *f =
        table_file_create(from->n_layers, from->n_heads, from->n_entropy_bins, from->n_ppl_bins,
                          from->n_budgets, from->n_head_actions, from->n_gate_actions, false);
    ckvc_table *t = f ? ckvc_table_clone(from) : NULL;
    if (!t) {
        table_file_free(f);
        return NULL;
    }
    ckvc_table_free(f->table);
    f->table = t;
    return f;
}
