/* What a fit is asked for, and what comes out of it beside the table. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/stats/resample.h"
#include "cql/solve/variance.h"
#include "budgets/shares.h"
#include "formats/side/reward.h"
#include "formats/lines/leak_record.h"
#include "formats/table/table_file.h"
#include "lib/base/memory.h"
#include "lib/base/names.h"

typedef enum fit_solver { FIT_EXACT, FIT_ADAMW } fit_solver;
typedef enum fit_unsupported { FIT_INCOMING, FIT_SAFEST, FIT_NEIGHBOUR } fit_unsupported;

const char *fit_unsupported_name(fit_unsupported u); /* "incoming", ... */

typedef struct fit_options {
    double cql_alpha;
    fit_solver solver;
    fit_reward reward;
    fit_unsupported unsupported;
    int pass; /* of every run; 0: the last complete one of each side */
    /* Only prompts of these; none: of all splits. Held-out prompts never enter. */
    const char *const *splits;
    size_t n_splits;
    const char *label;   /* NULL: the model's name */
    uint32_t replicates; /* 0: no resampling; of a bootstrap the table gets the shares */
    resample_kind resample;
    ckvc_mode mode;        /* what a table by demand recommends: its sets ... */
    ckvc_score_kind score; /* ... and by what they are ranked; */
    uint32_t features;     /* version of a learned score's, CKVC_FEATURES_1 or 2 */
    double mix;            /* w of the demand (calib/demand/demand_meter.h), one that was logged */
    double c_min; /* of the budget, what every set has at least; that of the demand if it is more */
    bool shrink;  /* what the bootstrap does not show to be better: neutral, unlogged: incoming */
    uint64_t seed;                  /* of the resampling and of AdamW's order */
    size_t memory_max;              /* bytes for statistics */
    const table_file *incoming;     /* NULL: the shards' start tables */
    const char *probe;              /* META's probe; NULL: by the sides that were fitted */
    const leak_record *leak_checks; /* of manifests, beside those that runs hold; borrowed */
    size_t n_leak_checks;
} fit_options;
fit_options fit_defaults(void);

/* What a fit found out about one side. */
typedef struct fitted_side {
    bool fitted;  /* had records; otherwise the side is the incoming table's */
    bool carried; /* it is, with its evidence (fit_records.c) */
    uint64_t n_records, n_prompts, n_documents; /* documents: of several prompts one, else each */
    size_t n_states;
    double scale;          /* rewards were divided by it */
    double certificate;    /* worst gradient of a state over max(1, max |mean reward|) */
    double adamw_distance; /* largest |Q - exact Q| of a logged action; NaN with the exact solver */
    decided why;           /* of the choices before --shrink; empty where nothing was fitted */
    double count_noise;    /* share of supported states that random counts would turn, had as many
                              records been drawn uniformly */
    size_t n_shrunk;       /* choices that --shrink took back */
    size_t n_changed;      /* entries that differ from the incoming table */
    uint16_t *choices; /* [replicates][n_states] (NULL without), CQL_NO_CHOICE where undefined */
} fitted_side;

/* What it found out about budgets for heads and layers. */
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

/* What it found out about the learned score. Losses are cross-entropies of the targets, nats per
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

typedef struct fit_result {
    table_file *table; /* owned; PROV is the caller's to add */
    fitted_side sides[CKVC_SIDE_COUNT];
    fitted_demand demand;
    fitted_learned learned;
    uint32_t n_replicates;
    uint64_t n_heldout, n_filtered, n_duplicates; /* prompts left out */
} fit_result;

void fit_result_free(fit_result *r);
CKVC_AUTO_OF(fit_result, fit_result_free)

/* The weight w of the demand that a table's shares under budget number b are of (fit --mix). */
double fit_mix(const table_file *t, uint32_t b);
/* What META says under "diagnostics": an object a side; what it says of demand. New references. */
json_t *fit_diagnostics(const fit_result *r);
json_t *fit_demand_numbers(const fitted_demand *d, const double *budgets);
/* The same and what else people ask for, as one object: for `ckvc fit --json`. New reference. */
json_t *fit_describe(const fit_result *r);
