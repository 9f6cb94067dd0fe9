/* The pipeline that makes records: from prompts to statistics, risk bins, actions, rollouts and
 * records in a run directory. Beside it stands the pass without rollouts: from prompts to what a
 * repeat pass attends to, and so to the demand of heads.
 *
 * A prompt's records depend on the prompt, the table and the seed alone, so a run that is stopped
 * and resumed, on any number of threads, makes the same shards. Memory is sized for the longest
 * prompt before the first one is begun. */
#pragma once

#include "calib/log/pass_options.h"
#include "calib/rollout/memory_plan.h"
#include "lib/stats/gate_binding.h"
#include "formats/run/run_dir.h"
#include "lib/policy/policy_parts.h"

/* Returns the setting that a pass of o->kind is made with. What the pass does not use is neutral: a
 * pass of SHARD_SCORE, for instance, has no budgets, no floor and no recent positions. */
setting calibrate_setting(const calibrate_options *o, const model_shape *shape);
/* Returns the options of the workers of a pass that is made with `o`. */
worker_options calibrate_worker(const calibrate_options *o);
/* Returns the name that --side has for what is logged. */
const char *calibrate_sides(const calibrate_options *o);

/* Runs pass 0, which logs the statistics of every prompt (paper.md section 8). The status is
 * CKVC_E_STOPPED after a clean stop. */
ckvc_status calibrate_scan(run_dir *run, const calibrate_inputs *in, const calibrate_options *o,
                           pass_counts *counts, ckvc_err *err) CKVC_MUST_CHECK;
/* Runs one pass that logs rewards under `table`, as pass `name` of the run ("pass-01-head").
 * Prompts that are held out leave their baseline rows and no records. Prompts that a sample passed
 * over leave nothing: the pass consists of the others alone. */
ckvc_status calibrate_pass(run_dir *run, const char *name, const calibrate_inputs *in,
                           const calibrate_options *o, const ckvc_table *table, pass_counts *counts,
                           ckvc_err *err) CKVC_MUST_CHECK;

/* Runs one pass over what prompts' continuations and repetitions attend to, as pass `name` of the
 * run; o->kind says what it logs. A demand pass ("pass-01-demand") logs demand under the setting's
 * budgets, floor and recent, and also targets and features where the setting has positions. A score
 * pass ("pass-01-score") logs targets and features alone. Held-out prompts are logged too, and
 * marked as such: o->judges of them, and none of those that choose. */
ckvc_status calibrate_repeat(run_dir *run, const char *name, const calibrate_inputs *in,
                             const calibrate_options *o, pass_counts *counts,
                             ckvc_err *err) CKVC_MUST_CHECK;
/* What --dry-run finds out about calibrate_repeat or about a scan (o->kind says which): it takes
 * the longest prompt once. */
typedef struct repeat_dry_run {
    uint32_t n_tokens, n_continuation;
    /* Seconds of the prefill and of the continuation alone, which are timed first; and of
     * everything, where the prompt is one of a batch. */
    double prefill_s, single_s, prompt_s;
    double copy_s;    /* seconds of a pass through the layers that go into copies of weights */
    double compute_s; /* seconds of a prefill without these copies */
    size_t bytes;     /* bytes that the prompt logs, before they are compressed */
    memory_plan memory;
    /* Upper bounds for all prompts; query_bytes is the part of disk_bytes that queries take. */
    double hours, disk_bytes, query_bytes;
    /* bytes of memory that are held beside the plan's while a shard is written */
    double shard_bytes;
} repeat_dry_run;
ckvc_status calibrate_repeat_dry_run(const calibrate_inputs *in, const calibrate_options *o,
                                     repeat_dry_run *out, ckvc_err *err) CKVC_MUST_CHECK;

/* Where the gate can act, budget by budget. */
typedef struct pass_binding {
    /* 0 when nothing is published, and when the pass has no thresholds (--operator no-threshold).
     */
    uint32_t n_budgets;
    double budgets[PROMPT_SETS_MAX_BUDGETS];
    double top; /* the highest threshold of the grid */
    gate_binding by_budget[PROMPT_SETS_MAX_BUDGETS];
} pass_binding;
/* Computes where the gate can act from a pass's published baseline rows, those of held-out prompts
 * included. */
ckvc_status calibrate_binding(const run_dir *run, const char *pass, pass_binding *out,
                              ckvc_err *err) CKVC_MUST_CHECK;

/* What --dry-run finds out about calibrate_pass: it takes the longest prompt once (prefill, sets,
 * and a batch of rollouts), and writes nothing. */
typedef struct dry_run {
    uint32_t n_tokens, n_continuation;
    uint64_t actions, distinct; /* of that prompt, both sides together */
    /* These times are those of a prompt of a batch that goes through the layers together. */
    double prefill_s;
    double rollout_s; /* seconds of one rollout among many, made the way that is asked for */
    double single_s;  /* seconds of one rollout alone, as a scan makes it */
    double copy_s;    /* seconds of a pass through the layers that go into copies of weights */
    double compute_s; /* seconds of a prefill without these copies */
    uint64_t timed;   /* how many rollouts were timed for rollout_s */
    memory_plan memory;
    /* How many prompts are logged; then what these cost. The costs are upper bounds where prompts
     * differ in length. */
    size_t logged;
    double scan_hours, pass_hours, records, disk_bytes;
} dry_run;
/* `sample` is the number of prompts that are drawn, 0 for all. `scans` says that all prompts are
 * scanned before. */
ckvc_status calibrate_dry_run(const calibrate_inputs *in, const calibrate_options *o,
                              const ckvc_table *table, size_t sample, bool scans, dry_run *out,
                              ckvc_err *err) CKVC_MUST_CHECK;
