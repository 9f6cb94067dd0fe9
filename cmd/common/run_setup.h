/* A run in the making, as scan, calibrate and compile share it: options -> model, prompts, start
 * table, bin edges, budgets, plan, run directory. */
#ifndef CKVC_RUN_SETUP_H
#define CKVC_RUN_SETUP_H

#include "calib/log/calibrate.h"
#include "calib/log/plan.h"
#include "cmd/common/opened_inputs.h"
#include "cmd/common/leak_guard.h"
#include "formats/run/coverage.h"
#include "formats/table/table_file.h"

typedef struct run_setup_options {
    inputs_options inputs;
    const char *out, *side, *tables, *scan, *behaviour, *variants, *bin_edges, *rollouts,
        *operator_name, *layer_budgets, *leak_check;
    opt_list budget, bins, head_grid, gate_grid;
    int64_t shard_prompts, max_failures, min_cell, limit_time, sample;
    double check_rollouts, until_stable, beta_bud;
    const char *reduction;
    double cql_alpha; /* these two: the fit that until_stable judges by */
    const char *reward;
    bool resume, dry_run;
} run_setup_options;

run_setup_options run_setup_defaults(void);

#define OPTS_BINS(o)                                                                               \
    {OPT_TITLE, "risk bins", 0, NULL, NULL, NULL, 0, 0},                                           \
        {OPT_LIST, "bins", 0, &(o).bins, "E,P", "entropy and perplexity bins", 0, 0},              \
        {OPT_CHOICE,                                                                               \
         "bin-edges",                                                                              \
         0,                                                                                        \
         &(o).bin_edges,                                                                           \
         "quantile|uniform",                                                                       \
         "equal mass or equal steps",                                                              \
         0,                                                                                        \
         0},                                                                                       \
    {                                                                                              \
        OPT_INT, "min-cell", 0, &(o).min_cell, "N", "risk cells with fewer prompts are listed", 0, \
            1e9                                                                                    \
    }

#define OPTS_ACTIONS(o)                                                                              \
    {OPT_LIST,    "budget", 'B',                                                                     \
     &(o).budget, "N,...",  "tokens kept per layer; below 1: a share of the prompt",                 \
     0,           0},                                                                                \
        {OPT_LIST,                                                                                   \
         "head-grid",                                                                                \
         0,                                                                                          \
         &(o).head_grid,                                                                             \
         "LO:HI:STEP",                                                                               \
         "head weights to try, or a list; 1 is one of them",                                         \
         0,                                                                                          \
         0},                                                                                         \
        {OPT_LIST,                                                                                   \
         "gate-grid",                                                                                \
         0,                                                                                          \
         &(o).gate_grid,                                                                             \
         "LO:HI:STEP",                                                                               \
         "thresholds to try, or a list; starts nearest to 0.9",                                      \
         0,                                                                                          \
         0},                                                                                         \
        {OPT_DOUBLE, "beta-bud",                                                                     \
         0,          &(o).beta_bud,                                                                  \
         "X",        "the gate pays X/T for each candidate over the budget",                         \
         0,          1e6},                                                                           \
        {OPT_CHOICE, "loss-reduction",                                                               \
         0,          &(o).reduction,                                                                 \
         "mean|sum", "of the continuation's losses, in a reward",                                    \
         0,          0},                                                                             \
        {OPT_CHOICE,                                                                                 \
         "behaviour",                                                                                \
         0,                                                                                          \
         &(o).behaviour,                                                                             \
         "balanced|uniform|epsilon-greedy",                                                          \
         "which actions are logged",                                                                 \
         0,                                                                                          \
         0},                                                                                         \
        {OPT_TEXT, "variants", 0, &(o).variants, "N|all", "distinct rollouts per prompt and side",   \
         0,        0},                                                                               \
        {OPT_CHOICE,                                                                                 \
         "rollouts",                                                                                 \
         0,                                                                                          \
         &(o).rollouts,                                                                              \
         "sweep|plain",                                                                              \
         "many rollouts at once, or one by one (the same losses)",                                   \
         0,                                                                                          \
         0},                                                                                         \
        {OPT_DOUBLE, "check-rollouts",                                                               \
         0,          &(o).check_rollouts,                                                            \
         "SHARE",    "do this share again one by one; exit 1 if they differ",                        \
         0,          1},                                                                             \
        {OPT_TEXT, "tables", 0, &(o).tables, "T.ckvt", "start from this table in place of identity", \
         0,        0},                                                                               \
        OPT_LEAK_CHECK((o).leak_check),                                                              \
        {OPT_DOUBLE, "until-stable",                                                                 \
         0,          &(o).until_stable,                                                              \
         "RHO",      "end a pass of heads when its table's split-half reliability is RHO; 0: never", \
         0,          1},                                                                             \
        OPTS_BINS(o),                                                                                \
        {OPT_TEXT, "scan", 0, &(o).scan, "RUN", "bin edges from another run's scan", 0, 0}, {        \
        OPT_INT, "sample-prompts", 0, &(o).sample, "N",                                              \
            "log N prompts, drawn evenly over the risk cells; 0: all", 0, 1e9                        \
    }

#define OPT_OPERATOR(o)                                                                            \
    {                                                                                              \
        OPT_CHOICE, "operator", 0, &(o).operator_name, "paper|no-utility|no-threshold|mean-pool",  \
            "how sets are kept: as in the paper; without value norms; without thresholds; by the " \
            "mean "                                                                                \
            "over heads",                                                                          \
            0, 0                                                                                   \
    }

#define OPTS_RUN(o)                                                                                \
    {OPT_TITLE, "run", 0, NULL, NULL, NULL, 0, 0},                                                 \
        {OPT_TEXT, "out", 'o', &(o).out, "RUN", "run directory to make", 0, 0},                    \
        {OPT_FLAG, "resume", 0, &(o).resume, "", "go on with a run of the same plan", 0, 0},       \
        {OPT_INT, "shard-prompts", 0, &(o).shard_prompts, "N", "prompts per shard file", 1, 1e6},  \
        {OPT_INT, "max-failures",                                                                  \
         0,       &(o).max_failures,                                                               \
         "N",     "prompts that may fail (non-finite loss) before the run stops",                  \
         0,       1e9},                                                                            \
    {                                                                                              \
        OPT_INT, "limit-time", 0, &(o).limit_time, "S",                                            \
            "stop cleanly after S seconds (exit 75); 0: no limit", 0, 1e9                          \
    }

#define OPT_DRY_RUN(o)                                                                             \
    {                                                                                              \
        OPT_FLAG, "dry-run", 0, &(o).dry_run, "",                                                  \
            "check everything, time the longest prompt, write nothing", 0, 0                       \
    }

typedef struct run_setup {
    opened_inputs e;
    calibrate_inputs inputs;
    calibrate_options options;
    plan plan;                          /* all but its verb */
    action_grid grids[CKVC_SIDE_COUNT]; /* of a start table of our own */
    double budgets[256];
    uint32_t n_budgets;
    double *layer_budgets; /* [L], --layer-budgets, or NULL */
    table_file *tables;    /* --tables, or NULL */
    ckvc_table *start;     /* own table, when there is no --tables */
    run_dir *scan_run;     /* --scan */
    run_dir *run;
} run_setup;

/* Model, prompts, options of every pass. Names the prompts on stderr. Points into itself: a job
 * stays where it was opened. */
ckvc_status run_setup_open(const run_setup_options *o, run_setup *j, ckvc_err *err) CKVC_MUST_CHECK;
/* --bins, --bin-edges, --min-cell into the plan; part of run_setup_open_start. */
ckvc_status run_setup_open_bins(const run_setup_options *o, run_setup *j,
                                ckvc_err *err) CKVC_MUST_CHECK;
/* What logging needs besides: budgets, operator, sides, behaviour, the start table and where its
 * edges come from. opts tells what was given. */
ckvc_status run_setup_open_start(const run_setup_options *o, const opt *opts, run_setup *j,
                                 ckvc_err *err) CKVC_MUST_CHECK;
/* Makes the run directory, or goes on with it; from here on a signal stops cleanly. whole: run.json
 * (borrowed); NULL: of j->plan. */
ckvc_status run_setup_begin_run(const run_setup_options *o, run_setup *j, const json_t *whole,
                                ckvc_err *err) CKVC_MUST_CHECK;
/* This run's own scan or another run's -> the start table's edges, published as scan/edges.json
 * with the occupancy of the cells; with
 * --sample-prompts the ones that are not drawn are marked. Cells, sources and what was drawn go to
 * scan/coverage.json. Nothing to do under --tables without --sample-prompts. */
ckvc_status run_setup_set_edges(const run_setup_options *o, run_setup *j,
                                ckvc_err *err) CKVC_MUST_CHECK;
/* For a scan by itself: edges and cells of what this run scanned, as scan/coverage.json; *out is
 * the caller's to coverage_fini, zero when every prompt is held out. */
ckvc_status run_setup_scan_coverage(run_setup *j, coverage *out, ckvc_err *err) CKVC_MUST_CHECK;
/* What one logging pass costs, from the longest prompt done once: an upper bound where prompts
 * differ in length. */
typedef struct run_cost {
    dry_run longest;
    size_t logged;                 /* prompts */
    double scan_hours, pass_hours; /* scan_hours 0 where nothing is scanned */
    double records, disk_bytes;    /* of the pass */
} run_cost;
ckvc_status run_setup_dry_run(const run_setup_options *o, run_setup *j, run_cost *out,
                              ckvc_err *err) CKVC_MUST_CHECK;
/* Prompts, the longest one's times, rollouts and memory, on stdout. */
void run_setup_print_cost(const run_setup *j, const run_cost *cost);
/* The table that a run starts under. Borrowed. */
ckvc_table *run_setup_table(const run_setup *j);
void run_setup_close(run_setup *j);

#endif
