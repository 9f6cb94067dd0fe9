/* What one prompt keeps under a table, layer by layer and budget by budget, and what every retention action would keep instead.
 *
 * The operator itself is lib/policy's; this holds a prompt's vectors, the baseline's sets and scratch. Buffers are sized once for
 * the longest prompt (keep_create); keep_prompt points it at a prompt's statistics, which must stay valid while it is used.
 */
#ifndef CKVC_KEEP_H
#define CKVC_KEEP_H

#include <stdbool.h>
#include <stdint.h>

#include "lib/base/kept_set.h"
#include "lib/base/status.h"
#include "lib/policy/ckvc_policy.h"
#include "lib/policy/retain_many.h"

/* One layer's decision. Positions are borrowed from the keep. */
typedef struct keep_layer {
    uint32_t n_candidates, n_kept, n_kept_window; /* |I|, |S|, |S in the window| */
    uint32_t n_candidates_lo, n_candidates_hi;    /* |I| at the lowest and highest threshold of the grid */
    uint32_t *positions;                          /* [n_kept], ascending; room for T */
    uint32_t offsets[2];                          /* for kept_set */
} keep_layer;

typedef struct keep {
    uint32_t n_layers, n_heads, n_budgets; /* L, G, nB: of the table */
    uint32_t max_tokens, window, keep_window;
    const ckvc_table *table; /* borrowed */
    /* the prompt in hand */
    uint32_t n_tokens, bin_entropy, bin_ppl;
    const float *alpha, *rho; /* [T], [L][G][T], borrowed */
    uint32_t budget[64];      /* tokens of each budget for this prompt */
    keep_layer *layers;       /* [nB][L]: the baseline under the table */
    kept_set *sets;           /* [nB][L]: the same as kept sets */
    uint32_t *pool;           /* [nB][L][max_tokens] */
    double *u, *weight;       /* [T], [G] scratch */
    uint32_t *scratch;        /* [T] */
    /* the state whose actions were asked for last: a whole grid of one state costs little more than one action (retain_many.h) */
    ckvc_retain_many many;
    double *own; /* [T] */
    struct keep_state {
        bool valid;
        uint32_t side, budget, layer, head;
    } state;
} keep;

#define KEEP_MAX_BUDGETS 64

ckvc_status keep_create(const ckvc_table *table, uint32_t max_tokens, uint32_t window, uint32_t keep_window, keep **out,
                        ckvc_err *err) CKVC_MUST_CHECK;
void keep_destroy(keep *k);
size_t keep_bytes(const ckvc_table *table, uint32_t max_tokens);

/* Baseline of a prompt: bins from r_struct and r_sem, then every budget and layer under the table. */
void keep_prompt(keep *k, uint32_t n_tokens, const float *alpha, const float *rho, double r_struct, double r_sem);
/* The set that head action `action` of (layer, head, budget) keeps, everything else as the table has it; positions [>= T] receives it.
 * Returns |S|; *n_candidates the count before the clamp. */
uint32_t keep_head_action(keep *k, uint32_t budget, uint32_t layer, uint32_t head, uint32_t action, uint32_t *positions,
                          uint32_t *n_candidates);
/* What the table's block of `budget` keeps in a layer when the clamp is at `tokens` instead (a block serving a budget near its own). */
uint32_t keep_layer_at_budget(keep *k, uint32_t budget, uint32_t layer, uint32_t tokens, uint32_t *positions,
                              uint32_t *n_candidates);
/* The set of threshold action `action` of `layer` in the prompt's own risk cell. */
uint32_t keep_gate_action(keep *k, uint32_t budget, uint32_t layer, uint32_t action, uint32_t *positions, uint32_t *n_candidates);

static inline keep_layer *keep_at(const keep *k, uint32_t budget, uint32_t layer)
{
    return &k->layers[(size_t)budget * k->n_layers + layer];
}
/* The table's value as its grid's double: what the operator takes (method.md section 2). */
double keep_weight(const ckvc_table *t, uint32_t l, uint32_t g, uint32_t b);
double keep_tau(const ckvc_table *t, uint32_t l, uint32_t e, uint32_t p, uint32_t b);
/* How many of the ascending positions lie in the window [T-W, T). */
uint32_t keep_in_window(const uint32_t *positions, uint32_t n, uint32_t n_tokens, uint32_t window);

#endif
