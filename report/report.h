/* The page of a report: what tables say, how far to trust them, and what they bring
 * (docs/method.md, section 10).
 *
 * report_write reads tables, runs and score files, computes every number once into one JSON value
 * (report.json), draws the figures, and renders the page from that JSON, so that page and JSON
 * cannot disagree.
 */
#ifndef CKVC_REPORT_H
#define CKVC_REPORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/status.h"

typedef struct report_options {
    const char *const *inputs; /* tables (.ckvt) and run directories, in the order in which they are
                                  named T1, T2 ...; R1, R2 ... */
    size_t n_inputs;
    const char *const *scores; /* files of `ckvc score` */
    size_t n_scores;
    const char *out;     /* folder; made when missing */
    bool force;          /* replace the files of an earlier report */
    uint32_t layer_bins; /* groups of layers for Spearman, 1 to 64 */
    uint32_t replicates; /* refits of the bootstrap over prompts, 0: none */
    uint64_t seed;       /* of the bootstrap */
    size_t memory_max;   /* bytes for the bootstrap's counts */
} report_options;

/* *summary: the verdict as plain text, one finding a line; *json: report.json's text. Both the
 * caller's to free. */
ckvc_status report_write(const report_options *o, char **summary, char **json,
                         ckvc_err *err) CKVC_MUST_CHECK;

#endif
