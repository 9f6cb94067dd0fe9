/* The pipeline: prompts -> statistics -> risk bins -> actions -> rollouts -> records, into a run
 * directory; and the pass without rollouts: prompts -> what a repeat attends to -> demand of heads.
 *
 * A prompt's records depend on the prompt, the table and the seed alone, so a run that is stopped
 * and resumed, on any number of threads, makes the same shards. Memory is sized for the longest
 * prompt before the first one. */
#pragma once

#include "calib/log/pass_options.h"
#include "calib/rollout/memory_plan.h"
#include "lib/stats/gate_binding.h"
#include "formats/run/run_dir.h"
#include "lib/policy/policy_parts.h"

/* What a pass of o->kind is made with, the rest neutral: of score no budget, floor and recent. */
setting calibrate_setting(const calibrate_options *o, const model_shape *shape);
/* The worker of a pass with these options. */
worker_options calibrate_worker(const calibrate_options *o);
/* The sides that are logged, as --side names them. */
const char *calibrate_sides(const calibrate_options *o);

/* Pass 0: statistics of every prompt (paper.md section 8). CKVC_E_STOPPED after a clean stop. */
ckvc_status calibrate_scan(run_dir *run, const calibrate_inputs *in, const calibrate_options *o,
                           pass_counts *counts, ckvc_err *err) CKVC_MUST_CHECK;
/* One logging pass under `table` into run's pass `name` ("pass-01-head"). Held-out prompts leave
 * their baseline rows and no records, prompts that a sample passed over leave nothing: the pass is
 * of the others alone. */
ckvc_status calibrate_pass(run_dir *run, const char *name, const calibrate_inputs *in,
                           const calibrate_options *o, const ckvc_table *table, pass_counts *counts,
                           ckvc_err *err) CKVC_MUST_CHECK;

/* One pass into run's pass `name`, by o->kind: of demand under the setting's budgets, floor and
 * recent, and of targets and features where it has positions ("pass-01-demand"); or of these alone
 * ("pass-01-score"). Held-out prompts are in it, marked. */
ckvc_status calibrate_repeat(run_dir *run, const char *name, const calibrate_inputs *in,
                             const calibrate_options *o, pass_counts *counts,
                             ckvc_err *err) CKVC_MUST_CHECK;
/* For --dry-run of it, or of a scan (o->kind): the longest prompt done once. */
typedef struct repeat_dry_run {
    uint32_t n_tokens, n_continuation;
    double prefill_s, single_s, prompt_s; /* prefill and continuation alone, which are done first;
                                             all of it, as a prompt of a batch */
    double copy_s;    /* of these: what a pass through the layers spends on copies of weights */
    double compute_s; /* what a prompt's prefill takes without them */
    size_t bytes;     /* that it logs, before they are compressed */
    memory_plan memory;
    double hours, disk_bytes; /* of all prompts: upper bounds */
    double shard_bytes;       /* of memory, beside the plan's: while a shard is written */
} repeat_dry_run;
ckvc_status calibrate_repeat_dry_run(const calibrate_inputs *in, const calibrate_options *o,
                                     repeat_dry_run *out, ckvc_err *err) CKVC_MUST_CHECK;

/* Where the gate can act, budget by budget. */
typedef struct pass_binding {
    uint32_t n_budgets; /* 0 when nothing is published, and when the pass has no thresholds
                           (--operator no-threshold) */
    double budgets[PROMPT_SETS_MAX_BUDGETS];
    double top; /* the highest threshold of the grid */
    gate_binding by_budget[PROMPT_SETS_MAX_BUDGETS];
} pass_binding;
/* From a pass's published baseline rows, held-out prompts included. */
ckvc_status calibrate_binding(const run_dir *run, const char *pass, pass_binding *out,
                              ckvc_err *err) CKVC_MUST_CHECK;

/* For --dry-run: the longest prompt done once (prefill, sets, a batch of rollouts, nothing
 * written). */
typedef struct dry_run {
    uint32_t n_tokens, n_continuation;
    uint64_t actions, distinct; /* of that prompt, both sides */
    /* as a prompt of a batch that goes through the layers together: */
    double prefill_s;
    double rollout_s; /* one of many, the way that is asked for */
    double single_s;  /* one alone, as in a scan */
    double copy_s;    /* what a pass through the layers spends on copies of weights */
    double compute_s; /* what a prompt's prefill takes without them */
    uint64_t timed;   /* rollouts behind rollout_s */
    memory_plan memory;
    size_t logged; /* prompts; what these cost: upper bounds where prompts differ in length */
    double scan_hours, pass_hours, records, disk_bytes;
} dry_run;
/* sample: prompts that are drawn, 0 for all; scans: all are scanned before. */
ckvc_status calibrate_dry_run(const calibrate_inputs *in, const calibrate_options *o,
                              const ckvc_table *table, size_t sample, bool scans, dry_run *out,
                              ckvc_err *err) CKVC_MUST_CHECK;
