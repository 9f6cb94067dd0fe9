/* Heads: how much the utility of a KV head's tokens weighs in its layer's maximum. */
#include "formats/side/side.h"

const side_kind side_head = {
    .entry = "weight",
    .entries = "head weights",
    .grid_option = "--head-grid",
    .grid_text = "0.8:1.5:0.025",
    .start_name = "start_weight",
    .axis = SIDE_OF_HEADS,
    .n_default = CKVC_HEAD_ACTIONS,
    .default_action = ckvc_head_action,
    .start = 1.0, /* leaves heads as they are */
    .start_on_grid = true,
    .safe = 1.0,
    .table_n = offsetof(ckvc_table, n_head_actions),
    .table_grid = offsetof(ckvc_table, head_grid),
    .table_entries = offsetof(ckvc_table, weight),
};
