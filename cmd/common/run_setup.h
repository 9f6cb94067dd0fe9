/* A run in the making, as scan, calibrate and compile share it: options -> model, prompts, start
 * table, bin edges, budgets, plan, run directory. */
#pragma once

#include "calib/actions/prompt_sets.h"
#include "calib/log/calibrate.h"
#include "calib/log/plan.h"
#include "cmd/common/opened_inputs.h"
#include "cmd/common/fit_options.h"
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
    run_dir *run;
} run_setup;

/* Model, prompts, options of every pass. Names the prompts on stderr. Points into itself: a job
 * stays where it was opened. */
ckvc_status run_setup_open(const run_setup_options *o, run_setup *j, ckvc_err *err) CKVC_MUST_CHECK;
/* --bins, --bin-edges, --min-cell into the plan; part of run_setup_open_start. */
ckvc_status run_setup_open_bins(const run_setup_options *o, run_setup *j,
                                ckvc_err *err) CKVC_MUST_CHECK;
/* What logging needs besides: budgets, operator, sides, behaviour, the start table and where its
 * edges come from. */
ckvc_status run_setup_open_start(const run_setup_options *o, run_setup *j,
                                 ckvc_err *err) CKVC_MUST_CHECK;
/* In place of it what --side demand and score need: budgets, what heads keep anyway, how prompts
 * are repeated. */
ckvc_status run_setup_open_repeat(const run_setup_options *o, run_setup *j,
                                  ckvc_err *err) CKVC_MUST_CHECK;
json_t *run_setup_repeat_json(const run_setup *j, const repeat_dry_run *d); /* a new reference */
/* Makes the run directory, or goes on with it; from here on a signal stops cleanly. whole: run.json
 * (borrowed); NULL: of j->plan. */
ckvc_status run_setup_begin_run(const run_setup_options *o, run_setup *j, const json_t *whole,
                                ckvc_err *err) CKVC_MUST_CHECK;
/* This run's own scan or another run's -> the start table's edges, published as scan/edges.json
 * with the occupancy of the cells; with --sample-prompts the ones that are not drawn are marked.
 * Cells, sources and what was drawn go to scan/coverage.json. Nothing to do under --tables without
 * --sample-prompts. */
ckvc_status run_setup_set_edges(const run_setup_options *o, run_setup *j,
                                ckvc_err *err) CKVC_MUST_CHECK;
/* For a scan by itself: edges and cells of what this run scanned, as scan/coverage.json; *out is
 * the caller's to coverage_fini, zero when every prompt is held out. */
ckvc_status run_setup_scan_coverage(run_setup *j, coverage *out, ckvc_err *err) CKVC_MUST_CHECK;
/* What one logging pass costs. */
ckvc_status run_setup_dry_run(const run_setup_options *o, run_setup *j, dry_run *out,
                              ckvc_err *err) CKVC_MUST_CHECK;
json_t *run_setup_cost_json(const run_setup *j, const dry_run *d); /* a new reference */
/* The table that a run starts under. Borrowed. */
ckvc_table *run_setup_table(const run_setup *j);
void run_setup_close(run_setup *j);
/* The numbers of a dry run on stdout, as JSON or for people, to whom which prompts go together and
 * what copies of weights that do not stay cost is said, too (m NULL: not). Takes o, which has the
 * member hours; compute_s: of a prompt's prefill. */
void forecast_print(json_t *o, bool json, const memory_plan *m, double copy_s, double compute_s);
