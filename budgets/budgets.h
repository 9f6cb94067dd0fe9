/* Budgets of KV heads and of layers from demand, and a score that ranks positions for them: what
 * such a table is asked for, and what its fit found out (docs/method.md). */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "budgets/shares.h"
#include "formats/table/table_file.h"

typedef struct budgets_options {
    ckvc_mode mode;        /* in which sets the table recommends to keep entries ... */
    ckvc_score_kind score; /* ... and by what it recommends to rank them */
    uint32_t features;     /* version of a learned ranking's features, CKVC_FEATURES_1 or 2 */
    /* The weight w of what continuations look at in the demand (calib/demand/demand_meter.h); it
     * must be one that was logged. */
    double mix;
    /* The share of the budget that every set keeps at least. Where the demand was counted with a
     * higher floor, that one holds. */
    double c_min;
} budgets_options;

/* What was found out about the budgets of heads, or those of layers. */
typedef struct demand_units {
    size_t n, undecided; /* units; those whose interval holds an equal share */
    shares_halves halves;
} demand_units;
typedef struct demand_block { /* one budget */
    double mix;               /* w of its demand */
    size_t n_prompts;         /* in which it leaves a choice */
    demand_units heads, layers;
} demand_block;
typedef struct fitted_demand {
    bool fitted;  /* had records */
    bool carried; /* it had none: shares are the incoming table's */
    uint64_t n_prompts, n_documents;
    uint32_t n_replicates, n_splits, n_blocks;
    demand_block *blocks; /* [nB] */
} fitted_demand;

/* What was found out about the learned ranking. Losses are cross-entropies of the targets, nats per
 * unit of target, a mean over heads and prompts. */
typedef struct fitted_learned {
    bool fitted; /* had records */
    uint64_t n_prompts, n_heldout;
    uint32_t positions; /* of a head and prompt */
    double gradient;    /* the largest that is left; SOFTMAX_CERTIFICATE at least */
    double loss;        /* of the prompts that it was fitted to */
    /* Of the held-out: its own; of the window's score; of Expected Attention's. NaN: none. */
    double heldout, heldout_window, heldout_expected;
} fitted_learned;

/* The weight w of the demand that a table's shares under budget number b are of (fit --mix). */
double budgets_mix(const table_file *t, uint32_t b);
/* What META says under "diagnostics" of demand and of the learned ranking. New references. */
json_t *fitted_demand_json(const fitted_demand *d, const double *budgets);
json_t *fitted_learned_json(const fitted_learned *l);
