/* scan/coverage.json of a run (formats/run/run.md): how many prompts each risk cell and source
 * offers, and how many of them a calibration logs. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/status.h"

#define COVERAGE_FILE "scan/coverage.json"

/* One source in one cell; only where there are prompts. */
typedef struct coverage_row {
    uint32_t entropy, ppl, source; /* bins; index into sources */
    uint32_t prompts, drawn;       /* scanned and not held out; logged of them */
} coverage_row;

typedef struct coverage {
    uint32_t n_entropy_bins, n_ppl_bins;
    double *edges_entropy, *edges_ppl; /* [E-1], [P-1] */
    char *from;                        /* where the edges come from, as in the plan */
    uint32_t min_cell;
    int64_t sample;       /* --sample-prompts; 0: every prompt is logged */
    bool logged;          /* of a calibration: drawn says which; a scan alone logs nothing */
    uint32_t n_unscanned; /* prompts of the run that its scan does not know */
    char **sources;
    size_t n_sources;
    coverage_row *rows; /* ascending by entropy, ppl, source */
    size_t n_rows;
} coverage;

void coverage_fini(coverage *c);
/* New reference. */
json_t *coverage_json(const coverage *c);
/* Reads a run's file; *there is false, and *out zero, where the run has none. Everything is
 * checked: CKVC_E_DATA names file and member. */
ckvc_status coverage_read(const char *run, coverage *out, bool *there,
                          ckvc_err *err) CKVC_MUST_CHECK;
