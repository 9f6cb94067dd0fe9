/* The gate: the utility below which a prompt of a risk cell keeps no token in a layer. */
#include "formats/side/side.h"

const side_kind side_gate = {
    .entry = "tau",
    .entries = "thresholds",
    .grid_option = "--gate-grid",
    .grid_text = "0.8:1:0.01",
    .start_name = "start_tau",
    .axis = SIDE_OF_CELLS,
    .n_default = CKVC_GATE_ACTIONS,
    .default_action = ckvc_gate_action,
    .start = 0.9,
    .safe = 0.0, /* no threshold at all keeps most */
    .penalty = true,
    .table_n = offsetof(ckvc_table, n_gate_actions),
    .table_grid = offsetof(ckvc_table, gate_grid),
    .table_entries = offsetof(ckvc_table, tau),
};
