/* What one prompt keeps under a table, layer by layer and budget by budget (the baseline), and what
 * it would keep instead if one entry of the table were replaced by an action.
 *
 * The retention operator itself is in lib/policy. A prompt_sets borrows the vectors of the prompt
 * in hand, and owns the baseline's sets and scratch space. prompt_sets_create sizes all buffers
 * once, for the longest prompt. prompt_sets_build points the object at the statistics of one
 * prompt, which must stay valid while the object is used. */
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

/* What one layer keeps of a prompt under one budget. I are the candidates, S is the kept set. */
typedef struct layer_set {
    uint32_t n_candidates, n_kept, n_kept_window; /* |I|, |S|, |S in the window| */
    uint32_t n_candidates_lo, n_candidates_hi;    /* |I| at both ends of the grid of thresholds */
    /* The block of the table whose entries decide: the budget's own, unless layers have budgets of
     * their own (prompt_sets_by_layer). */
    uint32_t block;
    uint32_t tokens; /* B: that of the budget, or the layer's own */
    /* [n_kept], ascending, with room for T positions. The prompt_sets owns them. */
    uint32_t *positions;
    uint32_t offsets[2]; /* 0 and n_kept, as a kept_set wants them */
} layer_set;

/* A state is what actions are tried on: the weight of a head, or the threshold of a layer in the
 * prompt's own risk cell, in either case under one budget. */
typedef struct prompt_state {
    ckvc_side side;
    uint32_t budget, layer, head; /* head is CKVC_NO_HEAD on the gate side */
} prompt_state;

typedef struct prompt_sets {
    uint32_t n_layers, n_heads; /* L, G */
    uint32_t n_budgets;         /* the table's, or 1 where layers have budgets of their own */
    uint32_t max_tokens, window, keep_window;
    const ckvc_table *table; /* borrowed; its operator decides what is kept */
    struct side sides[CKVC_SIDE_COUNT];
    const double *layer_budgets; /* [L], borrowed, or NULL */
    /* the prompt in hand */
    uint32_t n_tokens, bin_entropy, bin_ppl;
    const float *alpha, *rho;                 /* [T], [L][G][T], borrowed */
    uint32_t budget[PROMPT_SETS_MAX_BUDGETS]; /* the table's budgets in tokens */
    layer_set *layers;                        /* [nB][L]: the baseline under the table */
    kept_set *sets;                           /* [nB][L]: the same as kept sets */
    uint32_t *pool;                           /* [nB][L][max_tokens], then `scratch` */
    double *u, *weight;                       /* [T], [G] scratch */
    uint32_t *scratch;                        /* [T] */
    /* The state whose actions were asked for last. It is remembered because all actions of one
     * state together cost little more than one of them (retain_many.h). */
    ckvc_retain_many many;
    double *own;  /* [T] utility of the state's head at weight 1 */
    double *taus; /* [A] the thresholds, or -INFINITY under an operator without */
    bool has_state;
    prompt_state state;
} prompt_sets;

/* Makes a prompt_sets for prompts of at most max_tokens; of the setting it reads the window and
 * keep_window. CKVC_E_USAGE when the table has more than PROMPT_SETS_MAX_BUDGETS budgets. Give it
 * to prompt_sets_destroy. */
ckvc_status prompt_sets_create(const ckvc_table *table, uint32_t max_tokens, const setting *s,
                               prompt_sets **out, ckvc_err *err) CKVC_MUST_CHECK;
void prompt_sets_destroy(prompt_sets *k);
/* Gives each layer a budget of its own: budgets [n_layers] is borrowed; a number from 1 up is
 * tokens, below 1 it is a share of T; NULL takes the layers' budgets away again. From the next
 * prompt on there is one budget, number 0. Under it layer l keeps at most its own B_l, by the
 * entries of the table's block that is nearest to B_l (ckvc_nearest_budget). */
void prompt_sets_by_layer(prompt_sets *k, const double *budgets);
/* Returns how many bytes a prompt_sets of this table takes for prompts of at most max_tokens. */
size_t prompt_sets_bytes(const ckvc_table *table, uint32_t max_tokens);

/* Computes the baseline of a prompt: its risk cell, then what every layer keeps under every
 * budget. */
void prompt_sets_build(prompt_sets *k, const prefill_stats *stats);

/* The states of a side are numbered by budget, then by layer, then by head. The first function
 * returns state number `index`, the second how many there are. */
prompt_state prompt_sets_state(const prompt_sets *k, ckvc_side side, uint32_t index);
uint32_t prompt_sets_states(const prompt_sets *k, ckvc_side side);
/* Writes the set that the layer keeps if the state has this action and everything else is as the
 * table says, to positions, which has room for T. Returns |S|; *n_candidates becomes |I|, the
 * number of candidates before the budget cuts them. */
uint32_t prompt_sets_action(prompt_sets *k, const prompt_state *s, uint32_t action,
                            uint32_t *positions, uint32_t *n_candidates);
/* Writes what the table's block keeps in a layer if at most `tokens` may be kept in place of the
 * block's own budget: so a block serves a budget near its own. positions and *n_candidates are as
 * for prompt_sets_action; returns |S|. */
uint32_t prompt_sets_layer_at_budget(prompt_sets *k, uint32_t block, uint32_t layer,
                                     uint32_t tokens, uint32_t *positions, uint32_t *n_candidates);

/* Returns what one layer keeps under one budget, as prompt_sets_build left it. */
static inline layer_set *prompt_sets_at(const prompt_sets *k, uint32_t budget, uint32_t layer) {
    return &k->layers[(size_t)budget * k->n_layers + layer];
}
/* Returns the kept sets [L] of the baseline under one budget; they are the object's. */
static inline const kept_set *prompt_sets_baseline(const prompt_sets *k, uint32_t budget) {
    return k->sets + (size_t)budget * k->n_layers;
}
/* Returns how many of positions [n], which ascend, lie in the window [T-W, T). */
uint32_t kept_in_window(const uint32_t *positions, uint32_t n, uint32_t n_tokens, uint32_t window);

/* The values that actions of a side may take, where a user gives others than the default ones. They
 * are parsed and computed in integers, so that 0.8:1.5:0.025 gives the same doubles as
 * (32+a)/40. */
#define ACTION_GRID_MAX  255 /* an action is one byte of a record */
#define ACTION_GRID_HIGH 8   /* values lie in [0, 8] */

typedef struct action_grid {
    /* Ascending, and different as float32, too, because a table holds float32. */
    double values[ACTION_GRID_MAX];
    uint32_t n;
} action_grid;

/* Writes to *out the grid of a side that is used where the user gives none. */
void action_grid_default(ckvc_side side, action_grid *out);
/* Reads a grid from n items, each of which is a decimal (0.95) or a range lowest:highest:step
 * (0.8:1.5:0.025). Values must ascend. Each becomes the double nearest to its decimal. The head
 * grid must hold 1, the weight that leaves a head as it is. CKVC_E_USAGE where an item breaks these
 * rules. */
ckvc_status action_grid_parse(ckvc_side side, const char *const *items, size_t n, action_grid *out,
                              ckvc_err *err) CKVC_MUST_CHECK;

/* The table under which a calibration starts when it is given none: every weight is 1.0, and every
 * threshold is 0.9 (paper.md section 7) or the value of the gate's grid that is nearest to 0.9. */
typedef struct start_table_spec {
    uint32_t n_layers, n_heads;          /* L, G */
    uint32_t n_entropy_bins, n_ppl_bins; /* E, P; 0 counts as 1 */
    uint32_t n_budgets, window;
    const double *budgets;    /* [n_budgets], copied */
    const action_grid *grids; /* [CKVC_SIDE_COUNT]; NULL: the default ones */
} start_table_spec;

/* Makes such a table, which the caller frees with ckvc_table_free. Its bin edges are 0 until the
 * caller fills them. The status is CKVC_E_USAGE where the table exceeds the format's limits. */
ckvc_status start_table_create(const start_table_spec *spec, ckvc_table **out,
                               ckvc_err *err) CKVC_MUST_CHECK;

/* Returns a copy of the table, which the caller frees with ckvc_table_free. */
ckvc_table *start_table_copy(const ckvc_table *t);
/* Returns a copy as a table file in memory, without evidence and with an empty META section. The
 * caller frees it with table_file_free. */
table_file *start_table_file(const ckvc_table *t);
