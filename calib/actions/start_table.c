/* The start table: see start_table.h. */
#include "calib/actions/start_table.h"

#include <string.h>

#include "lib/base/memory.h"

static void fill(float *values, size_t n, double value) {
    for (size_t i = 0; i < n; i++) {
        values[i] = (float)value;
    }
}

ckvc_status start_table_create(const start_table_spec *spec, ckvc_table **out, ckvc_err *err) {
    action_grid defaults[CKVC_SIDE_COUNT];
    for (int i = 0; i < CKVC_SIDE_COUNT; i++) {
        action_grid_default((ckvc_side)i, &defaults[i]);
    }
    const action_grid *grids = spec->grids ? spec->grids : defaults,
                      *heads = &grids[CKVC_SIDE_HEAD], *gates = &grids[CKVC_SIDE_GATE];
    const uint32_t E = spec->n_entropy_bins ? spec->n_entropy_bins : 1,
                   P = spec->n_ppl_bins ? spec->n_ppl_bins : 1;
    ckvc_table *t = *out =
        ckvc_table_create(spec->n_layers, spec->n_heads, E, P, spec->n_budgets, heads->n, gates->n);
    if (!t) {
        return ckvc_fail(
            err, CKVC_E_USAGE,
            "a table of %u layers x %u heads, %u x %u bins, %u budgets is over the format's limits",
            spec->n_layers, spec->n_heads, E, P, spec->n_budgets);
    }
    t->window = spec->window;
    t->head_axis = 0;
    memcpy(t->budgets, spec->budgets, spec->n_budgets * sizeof *t->budgets);
    memcpy(t->head_grid, heads->values, heads->n * sizeof *t->head_grid);
    memcpy(t->gate_grid, gates->values, gates->n * sizeof *t->gate_grid);
    fill(t->weight, ckvc_weight_index(t, t->n_layers, 0, 0),
         ckvc_head_action(CKVC_HEAD_NEUTRAL)); /* on every head grid */
    fill(t->tau, ckvc_tau_index(t, t->n_layers, 0, 0, 0),
         gates->values[side_neutral_of(CKVC_SIDE_GATE, gates->values, gates->n)]);
    return CKVC_OK;
}

ckvc_table *start_table_copy(const ckvc_table *from) {
    ckvc_table *t = ckvc_table_clone(from);
    if (!t) { ckvc_out_of_memory(1, sizeof *t); }
    return t;
}

table_file *start_table_file(const ckvc_table *from) {
    table_file *f =
        table_file_create(from->n_layers, from->n_heads, from->n_entropy_bins, from->n_ppl_bins,
                          from->n_budgets, from->n_head_actions, from->n_gate_actions, false);
    ckvc_table_free(f->table);
    f->table = start_table_copy(from);
    return f;
}
