/* What a report is asked for: its inputs, its folder, and how it computes. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct report_options {
    /* The tables (.ckvt) and run directories. In the order in which they are given, tables are
     * called T1, T2, ... and runs R1, R2, ... */
    const char *const *inputs;
    size_t n_inputs;
    const char *const *scores; /* files of `ckvc score` */
    size_t n_scores;
    const char *const *answers; /* files of `ckvc eval` */
    size_t n_answers;
    const char *out;     /* folder; made when missing */
    bool require_deploy; /* every table must be one to deploy */
    bool force;          /* replace the files of an earlier report */
    uint32_t layer_bins; /* groups of layers for Spearman, 1 to 64 */
    uint32_t replicates; /* of the bootstraps over prompts (refits) and over answers; 0: none */
    uint64_t seed;       /* of the bootstrap */
    size_t memory_max;   /* bytes for the bootstrap's counts */
} report_options;
