/* The plan of a run: every resolved option that decides results, and the identity of every input,
 * as run.json (formats/run/run.md). */
#pragma once

#include <jansson.h>

#include "calib/log/calibrate.h"
#include "lib/stats/rank.h"

typedef struct plan {
    const char *verb; /* "scan" or "calibrate" */
    const calibrate_inputs *inputs;
    const calibrate_options *options;
    const prompt_options *prompt_options;
    const char *tokenizer; /* its fingerprint, or NULL */
    /* The record of a leak check (formats/lines/leak_record.h), borrowed. With NULL there was none,
     * and the plan has no such key. */
    json_t *leak_check;
    /* What follows is of `calibrate` alone, which is recognised by its budgets. None of it counts
     * for a demand pass. */
    uint32_t n_entropy_bins, n_ppl_bins, min_cell;
    edge_kind edges;
    const char
        *edges_from; /* "this run's scan", "start table", or the plan hash of another run's scan */
    const char *start_table; /* a content id, or "identity" */
    int64_t sample;          /* how many prompts to draw; 0: all */
    /* The plan hash of the scan by which they are drawn, where edges_from does not say it; else
     * NULL. */
    const char *sample_from;
} plan;

/* Returns the plan as JSON, a new reference. */
json_t *plan_json(const plan *p);
