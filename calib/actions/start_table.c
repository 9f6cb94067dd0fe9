/* The start table: see start_table.h. */
#include "calib/actions/start_table.h"

#include "formats/side/side.h"

ckvc_status start_table_create(const start_table_spec *spec, ckvc_table **out, ckvc_err *err) {
    action_grid grids[CKVC_SIDE_COUNT];
    for (int i = 0; i < CKVC_SIDE_COUNT; i++) {
        if (spec->grids) {
            grids[i] = spec->grids[i];
        } else {
            action_grid_default((ckvc_side)i, &grids[i]);
        }
    }
    const uint32_t E = spec->n_entropy_bins ? spec->n_entropy_bins : 1,
                   P = spec->n_ppl_bins ? spec->n_ppl_bins : 1;
    ckvc_table *t = *out = ckvc_table_create(spec->n_layers, spec->n_heads, E, P, spec->n_budgets,
                                             grids[CKVC_SIDE_HEAD].n, grids[CKVC_SIDE_GATE].n);
    CKVC_FAIL_IF(
        !t, err, CKVC_E_USAGE,
        "a table of %u layers x %u heads, %u x %u bins, %u budgets is over the format's limits",
        spec->n_layers, spec->n_heads, E, P, spec->n_budgets);
    t->window = spec->window;
    t->head_axis = 0;
    memcpy(t->budgets, spec->budgets, spec->n_budgets * sizeof *t->budgets);
    for (int i = 0; i < CKVC_SIDE_COUNT; i++) {
        const struct side s = side_of_table(t, (ckvc_side)i);
        memcpy(s.grid, grids[i].values, s.actions.n * sizeof *s.grid);
        for (size_t k = 0; k < s.n_states; k++) { s.entries[k] = (float)s.grid[side_neutral(&s)]; }
    }
    return CKVC_OK;
}

ckvc_table *start_table_copy(const ckvc_table *from) {
    ckvc_table *t = ckvc_table_clone(from);
    if (!t) { ckvc_out_of_memory(1, sizeof *t); }
    return t;
}

table_file *start_table_file(const ckvc_table *from) {
    return table_file_around(start_table_copy(from), false);
}
