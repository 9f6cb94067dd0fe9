/* The start table: see start_table.h. */
#include "calib/start_table.h"

#include "lib/base/names.h"

ckvc_status start_table_create(uint32_t n_layers, uint32_t n_heads, uint32_t n_entropy_bins, uint32_t n_ppl_bins,
                               const double *budgets, uint32_t n_budgets, uint32_t window, ckvc_table **out, ckvc_err *err)
{
    ckvc_table *t =
        ckvc_table_create(n_layers, n_heads, n_entropy_bins, n_ppl_bins, n_budgets, CKVC_HEAD_ACTIONS, CKVC_GATE_ACTIONS);
    *out = t;
    if (!t) {
        return ckvc_fail(err, CKVC_E_USAGE, "a table of %u layers x %u heads, %u x %u bins, %u budgets is over the format's limits",
                         n_layers, n_heads, n_entropy_bins, n_ppl_bins, n_budgets);
    }
    t->window = window;
    t->head_axis = 0;
    for (uint32_t b = 0; b < n_budgets; b++) {
        t->budgets[b] = budgets[b];
    }
    for (int a = 0; a < CKVC_HEAD_ACTIONS; a++) {
        t->head_grid[a] = ckvc_head_action(a);
    }
    for (int a = 0; a < CKVC_GATE_ACTIONS; a++) {
        t->gate_grid[a] = ckvc_gate_action(a);
    }
    size_t n_weights = (size_t)n_layers * n_heads * n_budgets;
    size_t n_taus = (size_t)n_layers * n_entropy_bins * n_ppl_bins * n_budgets;
    for (size_t i = 0; i < n_weights; i++) {
        t->weight[i] = (float)ckvc_head_action(CKVC_HEAD_NEUTRAL);
    }
    for (size_t i = 0; i < n_taus; i++) {
        t->tau[i] = (float)ckvc_gate_action(CKVC_GATE_START);
    }
    return CKVC_OK;
}
