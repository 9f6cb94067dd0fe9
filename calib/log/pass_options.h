/* What a pass over prompts is asked for, and what it counts. */
#pragma once

#include "calib/rollout/worker.h"
#include "formats/run/run_dir.h"
#include "formats/side/reward.h"

struct calibrate_options;
/* Judges what a logging pass of heads has published, and may end it early (cql/rounds/stable.h). */
typedef struct pass_watch {
    /* table: of what is logged, borrowed; the options' until_* and seed; memory_max in bytes. */
    ckvc_status (*open)(const ckvc_table *table, const struct calibrate_options *o,
                        size_t memory_max, void **self, ckvc_err *err);
    /* Called before a prompt of the next shard is begun, so that it shows nowhere whether a run was
     * stopped in between. *reliability: at the newest shard (left alone without one); *end: the
     * pass has ended early, now or before. */
    ckvc_status (*look)(void *self, run_dir *run, const char *pass, double *reliability, bool *end,
                        ckvc_err *err);
    void (*close)(void *self);
} pass_watch;

typedef struct calibrate_options {
    setting setting; /* borrows; each layer's own budget goes under the table's block nearest to it
                        (prompt_sets.h) */
    bool sides[CKVC_SIDE_COUNT];
    /* SHARD_LOGGED: actions of these sides; or neither's: what heads ask for, what a learned
     * ranking is fitted to. */
    shard_kind kind;
    /* Of the last two of those: ids of setting.repeat behind a blank line; none: no repeat pass.
     * Borrowed. */
    const int32_t *instruction;
    uint32_t n_instruction;
    uint32_t judges; /* likewise: held-out prompts that are measured, to judge what is fitted */
    behaviour_kind behaviour;
    int64_t variants; /* distinct rollouts per prompt and side; < 0: the full grid */
    rollout_way rollouts;
    double check_rollouts; /* share of the rollouts that is done again the plain way */
    size_t memory;         /* bytes; 0: three quarters of what is free */
    uint32_t shard_prompts;
    int64_t max_failures;
    const pass_watch *watch; /* looks where until_stable is over 0 */
    double until_stable;     /* a logging pass of heads ends with the shard at which its reliability
                                reaches this; 0: never */
    double until_cql_alpha;  /* of the fit that it is the reliability of */
    fit_reward until_reward;
    rollout_savings *savings; /* counts what is logged now; borrowed, or NULL */
} calibrate_options;

typedef struct pass_counts {
    uint32_t prompts, resumed, skipped; /* done now, found done, failed */
    uint64_t rollouts, records;
    uint64_t actions_equal; /* records of actions that kept the baseline's set */
    uint64_t checked;       /* rollouts done again the plain way */
    double seconds, rollout_seconds;
    bool stable;        /* ended by --until-stable */
    double reliability; /* at the last shard; NaN: undefined, or not asked for */
} pass_counts;
