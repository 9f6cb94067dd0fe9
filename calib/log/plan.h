/* The plan of a run: every resolved option that decides results, and the identity of every input,
 * as run.json (formats/run/run.md). */
#pragma once

#include <jansson.h>

#include "calib/log/calibrate.h"
#include "lib/stats/rank.h"

typedef struct plan {
    const char *verb; /* scan, calibrate */
    const calibrate_inputs *inputs;
    const calibrate_options *options;
    const prompt_options *prompt_options;
    const char *tokenizer; /* fingerprint or NULL */
    json_t *leak_check;    /* record of a leak check (formats/lines/leak_record.h), borrowed; NULL:
                              none, and the plan has no such key */
    /* calibrate alone, known by its budgets; none of it counts for demand: */
    uint32_t n_entropy_bins, n_ppl_bins, min_cell;
    edge_kind edges;
    const char
        *edges_from; /* "this run's scan", "start table", or the plan hash of another run's scan */
    const char *start_table; /* content id or "identity" */
    int64_t sample;          /* prompts to draw; 0: all */
    const char *sample_from; /* plan hash of the scan that they are drawn by, where edges_from does
                                not say it; else NULL */
} plan;

/* New reference. */
json_t *plan_json(const plan *p);
