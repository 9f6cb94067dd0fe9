/* A side of a table: one family of decisions, with states, actions and a tie rule of its own.
 *
 * A state is [l][x][b]: layer, what the side tells apart in a layer (KV heads, or cells of risk),
 * budget. Each has one entry, a value of the side's grid of actions. What a side is stands in
 * side.c and in the list of lib/base/names.h; everybody else asks a `struct side`, which is made
 * from a table, a shard (shard_rows.h) or a shape. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/names.h"
#include "lib/policy/policy_parts.h"

/* What x counts. */
typedef enum side_axis {
    SIDE_OF_HEADS, /* KV heads; a prompt logs every one */
    SIDE_OF_CELLS  /* e * P + p of the risk bins; a prompt logs its own */
} side_axis;

typedef struct side_kind {
    const char *entry;       /* what an entry is called: "weight", "tau" */
    const char *entries;     /* many of them, on pages: "head weights" */
    const char *grid_option; /* "--head-grid" */
    const char *grid_text;   /* its default, as the option takes it */
    const char *start_name;  /* the start table in a shard: "start_weight" */
    side_axis axis;
    uint32_t n_default; /* the default grid */
    double (*default_action)(int a);
    double start;         /* entries of a start table: the grid's value nearest to it */
    bool start_on_grid;   /* a grid must hold it; one that does not has no neutral action */
    double safe;          /* keeps most: ties and --unsupported safest go to the nearest value */
    bool penalty;         /* a reward is loss and the penalty for surplus candidates */
    size_t table_n;       /* offsets in ckvc_table: number of actions, */
    size_t table_grid;    /* grid, */
    size_t table_entries; /* entries */
} side_kind;
#define X(NAME, name) extern const side_kind side_##name;
CKVC_SIDES(X)
#undef X
const side_kind *side_kind_of(ckvc_side which);

typedef struct side_shape {
    uint32_t n_layers, n_heads, n_entropy_bins, n_ppl_bins, n_budgets;
} side_shape;

/* Borrows what it is made from. */
struct side {
    ckvc_side which;
    const side_kind *kind;
    uint32_t L, X, nB;
    uint32_t P;      /* x = e * P + p of cells; 1 of heads */
    size_t n_states; /* L * X * nB */
    ckvc_actions actions;
    double *grid;   /* actions.grid */
    float *entries; /* [n_states]; NULL: a shape alone, or a shard of a scan */
};
struct side side_of_shape(ckvc_side which, side_shape of, double *grid, uint32_t n_actions,
                          float *entries);
struct side side_of_table(const ckvc_table *t, ckvc_side which);

/* Of the states in one layer and budget, those that one prompt logs. */
static inline uint32_t side_of_prompt(const struct side *s) {
    return s->kind->axis == SIDE_OF_HEADS ? s->X : 1;
}
/* The state that a record stands for: its head, or its prompt's cell. */
static inline size_t side_state(const struct side *s, uint32_t layer, uint32_t head, uint32_t e,
                                uint32_t p, uint32_t budget) {
    const uint32_t x = s->kind->axis == SIDE_OF_HEADS ? head : e * s->P + p;
    return ((size_t)layer * s->X + x) * s->nB + budget;
}
/* Its place among the states that one prompt logs, [l][side_of_prompt][b]. */
static inline size_t side_prompt_state(const struct side *s, uint32_t layer, uint32_t head,
                                       uint32_t budget) {
    const uint32_t each = side_of_prompt(s);
    return ((size_t)layer * each + (each > 1 ? head : 0)) * s->nB + budget;
}
/* beta_bud of a reward (formats/side/reward.h) on this side. */
static inline double side_beta_bud(ckvc_side which, double beta_bud) {
    return side_kind_of(which)->penalty ? beta_bud : 0.0;
}
/* Steps between two x: heads, or both bins. */
uint32_t side_steps(const struct side *s, uint32_t x, uint32_t y);

/* The action whose value an entry is; -1 when it is not on the grid. */
static inline int side_action(const struct side *s, float entry) {
    return ckvc_grid_index(s->grid, (uint32_t)s->actions.n, entry);
}
/* The action of start tables, and what others are compared with; -1 where the grid has none. */
int side_neutral_of(ckvc_side which, const double *grid, uint32_t n);
int side_neutral(const struct side *s);
int side_safest(const struct side *s);
