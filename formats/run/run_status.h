/* scan/coverage.json of a run (formats/run/run.md): how many prompts each risk cell and source
 * offers, and how many of them a calibration logs. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/status.h"

#define COVERAGE_FILE "scan/coverage.json"

/* One source in one risk cell; there is a row only where there are prompts. */
typedef struct coverage_row {
    uint32_t entropy, ppl, source; /* the cell's two bins; an index into `sources` */
    /* prompts that are scanned and not held out; those of them that are logged */
    uint32_t prompts, drawn;
} coverage_row;

typedef struct coverage {
    uint32_t n_entropy_bins, n_ppl_bins;
    double *edges_entropy, *edges_ppl; /* [E-1] and [P-1], for E entropy and P perplexity bins */
    char *from;                        /* where the edges come from, named as in the plan */
    uint32_t min_cell;
    int64_t sample; /* --sample-prompts; 0 when every prompt is logged */
    /* true for a calibration, where `drawn` says which are logged; a scan alone logs nothing */
    bool logged;
    uint32_t n_unscanned; /* prompts of the run that its scan does not have */
    char **sources;
    size_t n_sources;
    coverage_row *rows; /* ascending by entropy bin, perplexity bin and source */
    size_t n_rows;
} coverage;

void coverage_fini(coverage *c);
/* Makes the file's JSON; a new reference. */
json_t *coverage_json(const coverage *c);
/* Reads a run's file. Where the run has none, *there is false and *out is zero. Everything is
 * checked: CKVC_E_DATA names file and member. */
ckvc_status coverage_read(const char *run, coverage *out, bool *there,
                          ckvc_err *err) CKVC_MUST_CHECK;
