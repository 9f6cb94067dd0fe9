/* One side's records to its part of a table (paper.md sections 5, 6): fits every state, chooses its
 * action, resamples, and leaves entries and evidence in the table. */
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
    bool shrink; /* what the bootstrap does not show to be better: neutral, unlogged: incoming */
} cql_options;

/* A record for AdamW, which sees them one by one: sorted by everything before use, so that shards'
 * order does not show. */
typedef struct fit_row {
    uint64_t prompt; /* hash of id and tokens */
    cql_record record;
} fit_row;

typedef struct side_records {
    char *where;        /* the first shard with records of this side; NULL: none has any */
    shard_header start; /* its header: the start table */
    cql_counts *counts;
    fit_row *rows; /* AdamW only */
    size_t n_rows, cap_rows;
    uint64_t n_prompts;
} side_records;

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

/* What JSON says of one. New reference. penalty: the side pays one for the candidates it keeps. */
json_t *fitted_side_json(const fitted_side *s, bool penalty);

/* What a side's part of a table is fitted from. */
typedef struct side_fitting {
    const cql_options *o;
    const resampling *resampled;
    struct side s;         /* of the table that is made: entries are written */
    table_evidence *e;     /* written; all zero, Q -inf */
    side_records *records; /* n_prompts 0: none, the side keeps its incoming entries */
    const float *start;    /* [n_states] entries of the incoming table */
    const char *where;     /* whose they are */
} side_fitting;

/* CKVC_E_DATA where an incoming entry is not on the grid of actions, CKVC_E_BUG where a solver
 * fails. */
ckvc_status fit_side(const side_fitting *f, fitted_side *out, ckvc_err *err) CKVC_MUST_CHECK;
