/* A side of a table: one family of decisions, with its own states, actions and tie rule.
 *
 * A state is [l][x][b]: the layer, what the side tells apart in a layer (KV heads, or cells of
 * risk), and the budget. Each state has one entry, which is a value of the side's grid of actions.
 * side.c and the list in lib/base/names.h say what each side is; all other code asks a `struct
 * side`, which is made from a table, a shard (shard_rows.h) or a shape. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/names.h"
#include "lib/policy/policy_parts.h"

/* What the index x of a state counts. */
typedef enum side_axis {
    SIDE_OF_HEADS, /* KV heads; a prompt logs every one */
    SIDE_OF_CELLS  /* cells e * P + p of the risk bins; a prompt logs its own */
} side_axis;

typedef struct side_kind {
    const char *entry;       /* what an entry is called: "weight", "tau" */
    const char *entries;     /* what several entries are called on pages: "head weights" */
    const char *grid_option; /* "--head-grid" */
    const char *grid_text;   /* the grid's default, written as the option takes it */
    const char *start_name;  /* the name of the start table in a shard: "start_weight" */
    side_axis axis;
    uint32_t n_default; /* how many actions the default grid has */
    double (*default_action)(int a);
    double start;       /* the entries of a start table have the grid's value nearest to this */
    bool start_on_grid; /* a grid must hold `start`; a grid that does not has no neutral action */
    /* the value that keeps most: ties and --unsupported safest choose the value nearest to it */
    double safe;
    bool penalty;         /* a reward has a penalty for surplus candidates beside the loss */
    size_t table_n;       /* byte offsets in ckvc_table: of the number of actions, */
    size_t table_grid;    /* of the grid, */
    size_t table_entries; /* of the entries */
} side_kind;
#define X(NAME, name) extern const side_kind side_##name;
CKVC_SIDES(X)
#undef X
const side_kind *side_kind_of(ckvc_side which);

typedef struct side_shape {
    uint32_t n_layers, n_heads, n_entropy_bins, n_ppl_bins, n_budgets;
} side_shape;

/* A view of one side. It borrows the arrays of what it is made from. */
struct side {
    ckvc_side which;
    const side_kind *kind;
    uint32_t L, X, nB;
    uint32_t P;      /* the number of perplexity bins, x being e * P + p; 1 when x counts heads */
    size_t n_states; /* L * X * nB */
    ckvc_actions actions;
    double *grid;   /* actions.grid */
    float *entries; /* [n_states]; NULL when made from a shape alone, or from the shard of a scan */
};
struct side side_of_shape(ckvc_side which, side_shape of, double *grid, uint32_t n_actions,
                          float *entries);
struct side side_of_table(const ckvc_table *t, ckvc_side which);

/* Returns how many of the states in one layer and budget one prompt logs. */
static inline uint32_t side_of_prompt(const struct side *s) {
    return s->kind->axis == SIDE_OF_HEADS ? s->X : 1;
}
/* Returns the state that a record stands for: the state of its head, or of its prompt's cell. */
static inline size_t side_state(const struct side *s, uint32_t layer, uint32_t head, uint32_t e,
                                uint32_t p, uint32_t budget) {
    const uint32_t x = s->kind->axis == SIDE_OF_HEADS ? head : e * s->P + p;
    return ((size_t)layer * s->X + x) * s->nB + budget;
}
/* Returns a record's place among the states that one prompt logs, [l][side_of_prompt][b]. */
static inline size_t side_prompt_state(const struct side *s, uint32_t layer, uint32_t head,
                                       uint32_t budget) {
    const uint32_t each = side_of_prompt(s);
    return ((size_t)layer * each + (each > 1 ? head : 0)) * s->nB + budget;
}
/* Returns the beta_bud of a reward (formats/side/reward.h) on this side: 0 on a side without
 * penalty. */
static inline double side_beta_bud(ckvc_side which, double beta_bud) {
    return side_kind_of(which)->penalty ? beta_bud : 0.0;
}
/* Returns the steps between two x: between heads, or summed over both bins of the cells. */
uint32_t side_steps(const struct side *s, uint32_t x, uint32_t y);

/* Returns the action whose value the entry is, or -1 when the entry is not on the grid. */
static inline int side_action(const struct side *s, float entry) {
    return ckvc_grid_index(s->grid, (uint32_t)s->actions.n, entry);
}
/* side_neutral_of and side_neutral return the action of start tables, with which others are
 * compared, or -1 when the grid has none. side_safest returns the action nearest to the kind's
 * `safe`. */
int side_neutral_of(ckvc_side which, const double *grid, uint32_t n);
int side_neutral(const struct side *s);
int side_safest(const struct side *s);
