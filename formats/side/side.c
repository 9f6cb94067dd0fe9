/* What each side of a table is, and how a view of one is made. See side.h. */
#include "formats/side/side.h"

const side_kind *side_kind_of(ckvc_side which) {
#define X(NAME, name) &side_##name,
    static const side_kind *const kinds[CKVC_SIDE_COUNT] = {CKVC_SIDES(X)};
#undef X
    return kinds[which];
}

/* The entries may be written through the view, so that `grid` and `entries` are not const.
 * NOLINTNEXTLINE(readability-non-const-parameter) */
struct side side_of_shape(ckvc_side which, side_shape of, double *grid, uint32_t n_actions,
                          float *entries) { /* NOLINT(readability-non-const-parameter): the same */
    const side_kind *kind = side_kind_of(which);
    struct side s = {.which = which,
                     .kind = kind,
                     .L = of.n_layers,
                     .X = of.n_heads,
                     .nB = of.n_budgets,
                     .P = 1,
                     .actions = {n_actions, grid, kind->safe},
                     .grid = grid,
                     .entries = entries};
    if (kind->axis == SIDE_OF_CELLS) {
        s.X = of.n_entropy_bins * of.n_ppl_bins;
        s.P = of.n_ppl_bins;
    }
    s.n_states = (size_t)s.L * s.X * s.nB;
    return s;
}

struct side side_of_table(const ckvc_table *t, ckvc_side which) {
    const side_kind *kind = side_kind_of(which);
    const char *at = (const char *)t;
    return side_of_shape(
        which,
        (side_shape){t->n_layers, t->n_heads, t->n_entropy_bins, t->n_ppl_bins, t->n_budgets},
        *(double *const *)(const void *)(at + kind->table_grid),
        *(const uint32_t *)(const void *)(at + kind->table_n),
        *(float *const *)(const void *)(at + kind->table_entries));
}

static uint32_t distance(uint32_t a, uint32_t b) { return a > b ? a - b : b - a; }

uint32_t side_steps(const struct side *s, uint32_t x, uint32_t y) {
    return s->kind->axis == SIDE_OF_HEADS
               ? distance(x, y)
               : distance(x / s->P, y / s->P) + distance(x % s->P, y % s->P);
}

int side_neutral_of(ckvc_side which, const double *grid, uint32_t n) {
    const side_kind *kind = side_kind_of(which);
    const uint32_t a = ckvc_grid_nearest(grid, n, kind->start);
    return kind->start_on_grid && grid[a] != kind->start ? -1 : (int)a;
}

int side_neutral(const struct side *s) {
    return side_neutral_of(s->which, s->grid, (uint32_t)s->actions.n);
}

int side_safest(const struct side *s) {
    return (int)ckvc_grid_nearest(s->grid, (uint32_t)s->actions.n, s->kind->safe);
}

/* The head side decides how much the utility of a KV head's tokens weighs in its layer's
 * maximum. */

const side_kind side_head = {
    .entry = "weight",
    .entries = "head weights",
    .grid_option = "--head-grid",
    .grid_text = "0.8:1.5:0.025",
    .start_name = "start_weight",
    .axis = SIDE_OF_HEADS,
    .n_default = CKVC_HEAD_ACTIONS,
    .default_action = ckvc_head_action,
    .start = 1.0, /* a weight of 1 leaves heads as they are */
    .start_on_grid = true,
    .safe = 1.0,
    .table_n = offsetof(ckvc_table, n_head_actions),
    .table_grid = offsetof(ckvc_table, head_grid),
    .table_entries = offsetof(ckvc_table, weight),
};

/* The gate decides the utility below which a prompt of a risk cell keeps no token in a layer. */

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
    .safe = 0.0, /* a threshold of 0 is no threshold, which keeps most */
    .penalty = true,
    .table_n = offsetof(ckvc_table, n_gate_actions),
    .table_grid = offsetof(ckvc_table, gate_grid),
    .table_entries = offsetof(ckvc_table, tau),
};
