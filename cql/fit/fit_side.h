/* Makes one side's part of a table from its records (paper.md sections 5, 6): it fits every state,
 * chooses the state's action, resamples, and leaves entries and evidence in the table. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cql/solve/counts.h"
#include "cql/solve/cql.h"
#include "cql/solve/variance.h"
#include "formats/shard/shard.h"
#include "formats/side/reward.h"
#include "formats/table/table_file.h"

typedef enum fit_solver { FIT_EXACT, FIT_ADAMW } fit_solver;
typedef enum fit_unsupported { FIT_INCOMING, FIT_SAFEST, FIT_NEIGHBOUR } fit_unsupported;

const char *fit_unsupported_name(fit_unsupported u); /* "incoming", ... */

typedef struct cql_options {
    double cql_alpha;
    fit_solver solver;
    fit_reward reward;
    fit_unsupported unsupported;
    /* What the bootstrap does not show to be better becomes neutral or, where neutral was not
     * logged, stays as in the incoming table. */
    bool shrink;
} cql_options;

/* A record for AdamW, which sees records one by one. They are sorted by all of their members before
 * use, so that the order of shards does not show. */
typedef struct fit_row {
    uint64_t prompt; /* hash of id and tokens */
    cql_record record;
} fit_row;

typedef struct side_records {
    char *where; /* where the first shard with records of this side is from; NULL: there is none */
    shard_header start; /* the header of that shard, with the start table */
    cql_counts *counts;
    fit_row *rows; /* used by AdamW alone */
    size_t n_rows, cap_rows;
    uint64_t n_prompts;
} side_records;

/* What a fit found out about one side. */
typedef struct fitted_side {
    bool fitted; /* whether it had records; otherwise the side is the incoming table's */
    /* whether it is the incoming table's together with its evidence (fit_records.c) */
    bool carried;
    /* A document counts once for all of its prompts; a prompt without a document counts as one. */
    uint64_t n_records, n_prompts, n_documents;
    size_t n_states;
    double scale;       /* the scale by which rewards were divided */
    double certificate; /* the largest gradient of a state, divided by max(1, max |mean reward|) */
    double adamw_distance; /* largest |Q - exact Q| of a logged action; NaN with the exact solver */
    /* What decided the choices before --shrink. It is empty where nothing was fitted. */
    decided why;
    /* The share of supported states whose choice random counts would turn, if as many records had
     * been drawn uniformly. */
    double count_noise;
    size_t n_shrunk;  /* how many choices --shrink took back */
    size_t n_changed; /* how many entries differ from the incoming table's */
    /* [replicates][n_states], CQL_NO_CHOICE where a choice is undefined. NULL without replicates.
     */
    uint16_t *choices;
} fitted_side;

/* Returns what JSON says about a fitted side, a new reference. `penalty` says that the side pays a
 * penalty for the candidates that it keeps. */
json_t *fitted_side_json(const fitted_side *s, bool penalty);

/* What a side's part of a table is fitted from. */
typedef struct side_fitting {
    const cql_options *o;
    const resampling *resampled;
    struct side s;     /* the side of the table that is made; its entries are written */
    table_evidence *e; /* written; at first all zero, and Q -inf */
    /* with n_prompts 0 there are none, and the side keeps its incoming entries */
    side_records *records;
    const float *start; /* [n_states] entries of the incoming table */
    const char *where;  /* names the file that they are from */
} side_fitting;

/* Fits the side. The status is CKVC_E_DATA where an incoming entry is not on the grid of actions,
 * and CKVC_E_BUG where a solver fails. */
ckvc_status fit_side(const side_fitting *f, fitted_side *out, ckvc_err *err) CKVC_MUST_CHECK;
