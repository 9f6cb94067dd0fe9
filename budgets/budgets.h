/* Budgets of KV heads and of layers that are made from demand, and a ranking of positions for them:
 * what a fit of such a table is asked for, and what it found out (docs/method.md). */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "budgets/shares.h"
#include "formats/table/table_file.h"

/* Of which queries a bank is made (bank.h). */
typedef enum bank_of { BANK_OF_PROMPT, BANK_OF_CONTINUATION, BANK_OF_BOTH } bank_of;
const char *bank_of_name(bank_of of);
typedef struct bank_options {
    uint32_t n; /* queries of each query head; 0: the table gets no bank */
    bank_of of;
    double ridge;  /* the ridge lambda of all layers under all budgets; 0 or less: entries are not
                      fitted */
    uint64_t seed; /* of the draw */
} bank_options;

typedef struct budgets_options {
    ckvc_mode mode;        /* in which sets the table recommends to keep entries */
    ckvc_score_kind score; /* by which ranking it recommends to order positions */
    uint32_t features;     /* the version of a learned ranking's features, CKVC_FEATURES_1 or 2 */
    /* The weight w of what continuations look at in the demand (calib/demand/demand_meter.h); it
     * must be one that was logged. */
    double mix;
    /* The share of the budget that every set keeps at least. Where the demand was counted with a
     * higher floor, that one holds. */
    double c_min;
    /* In mode `lengths`: in how many classes of one share the layers are; 0: each has its own. */
    uint32_t classes;
    bank_options bank;
} budgets_options;

/* What was found out about the budgets of heads, or about those of layers in one of their modes. */
typedef struct demand_units {
    /* how many units there are; how many have an interval that holds an equal share */
    size_t n, undecided;
    shares_halves halves;
} demand_units;
typedef struct demand_block { /* what was found out about one budget */
    double mix;               /* the weight w of its demand */
    size_t n_prompts;         /* how many prompts it leaves a choice in */
    demand_units heads, layers;
    /* of the mode `lengths`, before layers are put into classes; n is 0 in other modes */
    demand_units lengths;
} demand_block;
typedef struct fitted_demand {
    bool fitted;  /* whether there were records of it */
    bool carried; /* whether there were none, and the shares are those of the incoming table */
    uint64_t n_prompts, n_documents;
    uint32_t n_replicates, n_splits, n_blocks;
    demand_block *blocks; /* [nB] */
} fitted_demand;

/* What was found out about the learned ranking. Losses are cross-entropies of the targets, in nats
 * per unit of target, and are means over heads and prompts. */
typedef struct fitted_learned {
    bool fitted; /* whether there were records of it */
    uint64_t n_prompts, n_heldout;
    uint32_t positions; /* how many positions are logged of a head and prompt */
    /* the largest gradient that a fit of a head left; at least SOFTMAX_CERTIFICATE */
    double gradient;
    double loss; /* the loss on the prompts that it was fitted to */
    /* Losses on the held-out prompts: of the ranking itself, of the window's score, and of Expected
     * Attention's. They are NaN where there are none. */
    double heldout, heldout_window, heldout_expected;
} fitted_learned;

/* What is said of a bank. */
typedef struct fitted_bank {
    uint32_t n; /* queries of each query head; 0: there is no bank */
    bank_of of;
    size_t n_prompts, n_rows; /* prompts whose logged queries it could take, and these queries */
} fitted_bank;

/* Returns the weight w of the demand from which a table's shares under budget number b were made
 * (fit --mix). */
double budgets_mix(const table_file *t, uint32_t b);
/* Return what META says under "diagnostics" about demand and about the learned ranking, as new
 * references. */
json_t *fitted_demand_json(const fitted_demand *d, const double *budgets);
json_t *fitted_learned_json(const fitted_learned *l);
/* The same of the bank. */
json_t *fitted_bank_json(const fitted_bank *b);
