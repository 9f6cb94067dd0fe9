/* The start table: see start_table.h. */
#include "calib/start_table.h"

#include <string.h>

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

table_file *start_table_file(const ckvc_table *from)
{
    const size_t L = from->n_layers, E = from->n_entropy_bins, P = from->n_ppl_bins, nB = from->n_budgets;
    table_file *f = table_file_create(from->n_layers, from->n_heads, from->n_entropy_bins, from->n_ppl_bins, from->n_budgets,
                                      from->n_head_actions, from->n_gate_actions, false);
    if (!f) {
        return NULL;
    }
    ckvc_table *t = f->table;
    t->window = from->window;
    t->head_axis = from->head_axis;
    t->n_query_heads = from->n_query_heads;
    t->op = from->op;
    memcpy(t->budgets, from->budgets, nB * sizeof *t->budgets);
    memcpy(t->head_grid, from->head_grid, t->n_head_actions * sizeof *t->head_grid);
    memcpy(t->gate_grid, from->gate_grid, t->n_gate_actions * sizeof *t->gate_grid);
    memcpy(t->edges_entropy, from->edges_entropy, (E - 1) * sizeof *t->edges_entropy);
    memcpy(t->edges_ppl, from->edges_ppl, (P - 1) * sizeof *t->edges_ppl);
    memcpy(t->weight, from->weight, L * from->n_heads * nB * sizeof *t->weight);
    memcpy(t->tau, from->tau, L * E * P * nB * sizeof *t->tau);
    return f;
}
