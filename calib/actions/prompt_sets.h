/* What one prompt keeps under a table, layer by layer and budget by budget, and what every
 * retention action would keep instead.
 *
 * The operator itself is lib/policy's; this holds a prompt's vectors, the baseline's sets and
 * scratch. Buffers are sized once for the longest prompt (prompt_sets_create); prompt_sets_build
 * points it at a prompt's statistics, which must stay valid while it is used. */
#pragma once

#include "formats/setting/setting.h"
#include "formats/side/side.h"
#include "lib/base/status.h"
#include "lib/model/model.h"
#include "lib/policy/policy_parts.h"
#include "lib/policy/retain_many.h"
#include "lib/base/names.h"
#include "formats/table/table_file.h"

#define PROMPT_SETS_MAX_BUDGETS 64

/* One layer's decision. */
typedef struct layer_set {
    uint32_t n_candidates, n_kept, n_kept_window; /* |I|, |S|, |S in the window| */
    uint32_t n_candidates_lo, n_candidates_hi;    /* |I| at both ends of the grid of thresholds */
    uint32_t block;  /* whose entries of the table: the budget's own unless budgets go by layer */
    uint32_t tokens; /* B, as the block */
    uint32_t *positions; /* [n_kept], ascending; room for T; the prompt_sets' own */
    uint32_t offsets[2]; /* for kept_set */
} layer_set;

/* What actions are tried on: a head's weight, or a layer's threshold in the prompt's own risk cell,
 * in one budget. */
typedef struct prompt_state {
    ckvc_side side;
    uint32_t budget, layer, head; /* head CKVC_NO_HEAD on the gate side */
} prompt_state;

typedef struct prompt_sets {
    uint32_t n_layers, n_heads; /* L, G */
    uint32_t n_budgets;         /* the table's; one when budgets go by layer */
    uint32_t max_tokens, window, keep_window;
    const ckvc_table *table; /* borrowed; its operator decides what is kept */
    struct side sides[CKVC_SIDE_COUNT];
    const double *layer_budgets; /* [L], borrowed, or NULL */
    /* the prompt in hand */
    uint32_t n_tokens, bin_entropy, bin_ppl;
    const float *alpha, *rho;                 /* [T], [L][G][T], borrowed */
    uint32_t budget[PROMPT_SETS_MAX_BUDGETS]; /* tokens of each of the table's budgets */
    layer_set *layers;                        /* [nB][L]: the baseline under the table */
    kept_set *sets;                           /* [nB][L]: the same as kept sets */
    uint32_t *pool;                           /* [nB][L][max_tokens], and scratch */
    double *u, *weight;                       /* [T], [G] scratch */
    uint32_t *scratch;                        /* [T] */
    /* the state whose actions were asked for last: a whole grid of one state costs little more than
     * one action (retain_many.h) */
    ckvc_retain_many many;
    double *own;  /* [T] */
    double *taus; /* [A]: the grid of thresholds as the operator takes it */
    bool has_state;
    prompt_state state;
} prompt_sets;

/* CKVC_E_USAGE when the table has more than PROMPT_SETS_MAX_BUDGETS budgets. */
/* Of the setting, the window and what is kept of it count. */
ckvc_status prompt_sets_create(const ckvc_table *table, uint32_t max_tokens, const setting *s,
                               prompt_sets **out, ckvc_err *err) CKVC_MUST_CHECK;
void prompt_sets_destroy(prompt_sets *k);
/* Budgets by layer (tokens from 1 up, a share of T below; [n_layers], borrowed; NULL: none): from
 * the next prompt on there is one budget, number 0, under which layer l keeps at most its own B_l
 * by the entries of the table's block nearest to it (ckvc_nearest_budget). */
void prompt_sets_by_layer(prompt_sets *k, const double *budgets);
size_t prompt_sets_bytes(const ckvc_table *table, uint32_t max_tokens);

/* Baseline of a prompt: its bins, then every budget and layer under the table. */
void prompt_sets_build(prompt_sets *k, const prefill_stats *stats);

/* The states of a side in order; how many. */
prompt_state prompt_sets_state(const prompt_sets *k, ckvc_side side, uint32_t index);
uint32_t prompt_sets_states(const prompt_sets *k, ckvc_side side);
/* The set that an action of a state keeps, everything else as the table has it; positions [>= T]
 * receives it. Returns |S|; *n_candidates the count before the clamp. */
uint32_t prompt_sets_action(prompt_sets *k, const prompt_state *s, uint32_t action,
                            uint32_t *positions, uint32_t *n_candidates);
/* What the table's block `block` keeps in a layer when the clamp is at `tokens` instead (a block
 * serving a budget near its own). */
uint32_t prompt_sets_layer_at_budget(prompt_sets *k, uint32_t block, uint32_t layer,
                                     uint32_t tokens, uint32_t *positions, uint32_t *n_candidates);

static inline layer_set *prompt_sets_at(const prompt_sets *k, uint32_t budget, uint32_t layer) {
    return &k->layers[(size_t)budget * k->n_layers + layer];
}
/* The baseline of a budget, [L]. */
static inline const kept_set *prompt_sets_baseline(const prompt_sets *k, uint32_t budget) {
    return k->sets + (size_t)budget * k->n_layers;
}
/* How many of the ascending positions lie in the window [T-W, T). */
uint32_t kept_in_window(const uint32_t *positions, uint32_t n, uint32_t n_tokens, uint32_t window);

/* Action grids other than the default ones: parsed and computed in integers, so that 0.8:1.5:0.025
 * gives the doubles of (32+a)/40. */
#define ACTION_GRID_MAX  255 /* record/action is one byte */
#define ACTION_GRID_HIGH 8   /* values lie in [0, 8] */

typedef struct action_grid {
    double values[ACTION_GRID_MAX]; /* ascending, apart in float32 too: a table holds float32 */
    uint32_t n;
} action_grid;

/* The default grid of a side. */
void action_grid_default(ckvc_side side, action_grid *out);
/* items: decimals (0.95) and ranges lowest:highest:step (0.8:1.5:0.025), ascending. Every value is
 * the double nearest to its decimal. The head grid must hold 1, the weight of an unperturbed head.
 * CKVC_E_USAGE. */
ckvc_status action_grid_parse(ckvc_side side, const char *const *items, size_t n, action_grid *out,
                              ckvc_err *err) CKVC_MUST_CHECK;

/* The table that a calibration starts under when none is given: every weight 1.0, every threshold
 * 0.9 (paper.md section 7), or the one of the gate's grid that is nearest to it. */
typedef struct start_table_spec {
    uint32_t n_layers, n_heads;          /* L, G */
    uint32_t n_entropy_bins, n_ppl_bins; /* E, P; 0 counts as 1 */
    uint32_t n_budgets, window;
    const double *budgets;    /* [n_budgets], copied */
    const action_grid *grids; /* [CKVC_SIDE_COUNT]; NULL: the default ones */
} start_table_spec;

/* Edges at 0, to be filled by the caller. ckvc_table_free it. CKVC_E_USAGE over the format's
 * limits. */
ckvc_status start_table_create(const start_table_spec *spec, ckvc_table **out,
                               ckvc_err *err) CKVC_MUST_CHECK;

/* A copy; ckvc_table_free it. */
ckvc_table *start_table_copy(const ckvc_table *t);
/* A copy as a file in memory: no evidence, META empty. */
table_file *start_table_file(const ckvc_table *t);
