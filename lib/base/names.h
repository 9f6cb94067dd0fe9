/* Names and grids that are spelled alike in files, reports and on the command line (the table of
 * symbols in paper.md).
 *
 *   L layers · H query heads · G KV heads · T prompt tokens · C continuation tokens · W window
 *   B budget · nB budgets · E entropy bins · P perplexity bins · A actions
 *   D head dim · M model width · V vocabulary */
#pragma once

#include <math.h>
#include <stddef.h>
#include <stdint.h>

#define CKVC_VERSION "0.1.0"

/* The default action grids. They are computed from integers, so that each value is the double
 * nearest to its decimal. */
#define CKVC_HEAD_ACTIONS 29 /* (32+a)/40: 0.800, 0.825 ... 1.500; a = 8 is 1.0 */
#define CKVC_GATE_ACTIONS 21 /* (80+a)/100: 0.80, 0.81 ... 1.00; a = 10 is 0.90 */
#define CKVC_HEAD_NEUTRAL 8
#define CKVC_GATE_START   10

static inline double ckvc_head_action(int a) { return (32 + a) / 40.0; }
static inline double ckvc_gate_action(int a) { return (80 + a) / 100.0; }

/* The sides of a table: families of decisions that are made independently of each other. Their
 * order is that of record/side; formats/side/side.c describes each. */
#define CKVC_SIDES(X)                                                                              \
    X(HEAD, head)                                                                                  \
    X(GATE, gate)
#define X(NAME, name) CKVC_SIDE_##NAME,
typedef enum ckvc_side { CKVC_SIDES(X) CKVC_SIDE_COUNT } ckvc_side;
#undef X
static inline const char *ckvc_side_name(ckvc_side side) {
#define X(NAME, name) #name,
    static const char *const names[CKVC_SIDE_COUNT] = {CKVC_SIDES(X)};
#undef X
    return names[side];
}
#define CKVC_NO_HEAD 65535 /* record/head where a side has cells, not heads */

/* The actions of a state. Of actions that tie, the one whose value is nearest to `safe` wins, and
 * of two that are equally near the lower one. */
typedef struct ckvc_actions {
    size_t n;
    const double *grid; /* [n] ascending values; with NULL the first of the actions that tie wins */
    double safe;
} ckvc_actions;

/* The index of the grid's value that is nearest to `value`, and of two that are equally near the
 * lower one. Differences below 1e-12 count as equal, because a decimal such as 0.805 lies half-way
 * between 0.80 and 0.81 but for rounding. n >= 1. */
static inline uint32_t ckvc_grid_nearest(const double *grid, uint32_t n, double value) {
    uint32_t best = 0;
    for (uint32_t a = 1; a < n; a++) {
        if (fabs(grid[a] - value) < fabs(grid[best] - value) - 1e-12) { best = a; }
    }
    return best;
}

/* Settings of a measurement; formats/setting has their names. */
typedef enum ckvc_alpha_kind { CKVC_ALPHA_PAPER, CKVC_ALPHA_VISIBLE } ckvc_alpha_kind;
/* How products with weights are computed: in float32, or with both operands rounded to bf16 (to the
 * nearest, ties to even) and float32 sums. Attention, norms and the embedding's rows are float32 in
 * both cases. */
typedef enum ckvc_compute { CKVC_COMPUTE_F32, CKVC_COMPUTE_BF16 } ckvc_compute;
/* How the losses of the continuation's tokens become one reward. */
typedef enum ckvc_loss_reduction { CKVC_LOSS_MEAN, CKVC_LOSS_SUM } ckvc_loss_reduction;
