/* How a run is set up, as scan, calibrate and compile share it: from options to model, prompts,
 * start table, bin edges, budgets, plan and run directory. */
#pragma once

#include "calib/actions/prompt_sets.h"
#include "calib/log/calibrate.h"
#include "calib/log/plan.h"
#include "cmd/common/opened_inputs.h"
#include "cmd/common/fit_options.h"
#include "cmd/common/made_prompts.h"
#include "formats/run/run_status.h"
#include "formats/table/table_file.h"

typedef struct run_setup_options {
    inputs_options inputs;
    calibrate_options log; /* without what is opened */
    const char *out, *side, *tables, *scan, *variants, *layer_budgets, *leak_check, *shard;
    edge_kind bin_edges;
    budget_list budget;
    opt_list bins, head_grid, gate_grid;
    int64_t limit_time, sample;
    uint32_t min_cell;
    bool resume, dry_run, no_repeat;
    /* Where no manifest is named, prompts are made of these texts; NULL: a manifest is needed. */
    const texts_options *texts;
} run_setup_options;

/* Rows of run_setup_options. */
extern const opt opts_inputs[]; /* model, prompts, statistics */
extern const opt opts_log[];    /* side, budgets of layers, operator: compile decides some itself */
extern const opt opts_repeat[]; /* of --side demand and score */
extern const opt opts_bins[];   /* risk bins */
extern const opt opts_actions[]; /* what is tried, and opts_bins */
extern const opt opts_run[];     /* run */
extern const opt opts_shard[];
extern const opt opts_dry_run[];

typedef struct run_setup {
    opened_inputs e;
    calibrate_inputs inputs;
    calibrate_options options;
    plan plan;                          /* all but its verb */
    action_grid grids[CKVC_SIDE_COUNT]; /* of a start table of our own */
    double *layer_budgets;              /* [L], --layer-budgets, or NULL */
    budget_list of_layers;              /* their distinct values */
    table_file *tables;                 /* --tables, or NULL */
    ckvc_table *start;                  /* own table, when there is no --tables */
    run_dir *scan_run;                  /* --scan */
    run_part part;                      /* --shard */
    made_prompts made;                  /* of texts; empty with --manifest */
    run_dir *run;
} run_setup;

/* Opens the model and the prompts, and takes the options that every pass has. Says on stderr how
 * many prompts there are, unless quiet. *j points into itself, so it must stay where it was
 * opened. */
ckvc_status run_setup_open(const run_setup_options *o, run_setup *j, ckvc_err *err) CKVC_MUST_CHECK;
/* Puts --bins, --bin-edges and --min-cell into the plan. This is part of run_setup_open_start. */
ckvc_status run_setup_open_bins(const run_setup_options *o, run_setup *j,
                                ckvc_err *err) CKVC_MUST_CHECK;
/* Opens what logging also needs: budgets, operator, sides, behaviour, the start table, and where
 * its edges come from. */
ckvc_status run_setup_open_start(const run_setup_options *o, run_setup *j,
                                 ckvc_err *err) CKVC_MUST_CHECK;
/* Is called in place of run_setup_open_start for --side demand and --side score. It opens what
 * they need: budgets, what heads keep anyway, and how prompts are repeated. */
ckvc_status run_setup_open_repeat(const run_setup_options *o, run_setup *j,
                                  ckvc_err *err) CKVC_MUST_CHECK;
json_t *run_setup_repeat_json(const run_setup *j, const repeat_dry_run *d); /* a new reference */
/* Makes the run directory, or goes on with it. From here on a signal stops the run cleanly.
 * `whole` is what run.json holds (borrowed); when it is NULL, run.json is made of j->plan. */
ckvc_status run_setup_begin_run(const run_setup_options *o, run_setup *j, const json_t *whole,
                                ckvc_err *err) CKVC_MUST_CHECK;
/* Finds the start table's edges from this run's own scan or another run's, and publishes them as
 * scan/edges.json with the occupancy of the cells. With --sample-prompts it marks the prompts
 * that are not drawn. Cells, sources and what was drawn go to scan/coverage.json. Under --tables
 * without --sample-prompts there is nothing to do. */
ckvc_status run_setup_set_edges(const run_setup_options *o, run_setup *j,
                                ckvc_err *err) CKVC_MUST_CHECK;
/* Serves a scan by itself: finds edges and cells of what this run scanned, and publishes them as
 * scan/coverage.json. The caller releases *out with coverage_fini; it is zero when every prompt
 * is held out. */
ckvc_status run_setup_scan_coverage(run_setup *j, coverage *out, ckvc_err *err) CKVC_MUST_CHECK;
/* Measures what one logging pass costs. */
ckvc_status run_setup_dry_run(const run_setup_options *o, run_setup *j, dry_run *out,
                              ckvc_err *err) CKVC_MUST_CHECK;
json_t *run_setup_cost_json(const run_setup *j, const dry_run *d); /* a new reference */
/* Returns the table that a run starts under: that of --tables, or the start table. It is j's. */
ckvc_table *run_setup_table(const run_setup *j);
void run_setup_close(run_setup *j);
/* Prints the numbers of a dry run to stdout, as JSON or as text for people. Takes o, which has
 * the member hours. Unless m is NULL, people also read which prompts go together and what it
 * costs to copy the weights that do not stay. copy_s is the seconds of one pass's copies, and
 * compute_s those in which a prompt's prefill computes. */
void forecast_print(json_t *o, bool json, const memory_plan *m, double copy_s, double compute_s);
