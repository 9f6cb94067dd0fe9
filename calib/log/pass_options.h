/* What a pass over prompts is asked for, and what it counts. */
#pragma once

#include "calib/rollout/worker.h"
#include "formats/run/run_dir.h"
#include "formats/side/reward.h"

struct calibrate_options;
/* Judges what a logging pass of heads has published, and may end it early (cql/rounds/stable.h). */
typedef struct pass_watch {
    /* Opens a judge of what is logged under `table`, which is borrowed. It reads the until_*
     * members and the seed from the options. memory_max is in bytes. */
    ckvc_status (*open)(const ckvc_table *table, const struct calibrate_options *o,
                        size_t memory_max, void **self, ckvc_err *err);
    /* Called before a prompt of the next shard is begun, so that nothing shows whether a run was
     * stopped in between. *reliability becomes the reliability at the newest shard, and is left
     * alone where there is no shard. *end becomes true where the pass has ended early, now or
     * before. */
    ckvc_status (*look)(void *self, run_dir *run, const char *pass, double *reliability, bool *end,
                        ckvc_err *err);
    void (*close)(void *self);
} pass_watch;

typedef struct calibrate_options {
    /* Its lists are borrowed. Where layers have budgets of their own, each layer's goes under the
     * block of the table whose budget is nearest to it (prompt_sets.h). */
    setting setting;
    bool sides[CKVC_SIDE_COUNT];
    /* SHARD_LOGGED logs actions of these sides. The other kinds log neither side's: they log what
     * heads ask for, or what a learned ranking is fitted to. */
    shard_kind kind;
    /* For demand and score passes: the token ids of setting.repeat behind a blank line, borrowed.
     * Without any there is no repeat pass. */
    const int32_t *instruction;
    uint32_t n_instruction;
    /* For demand and score passes: how many held-out prompts are measured, to judge what is fitted.
     */
    uint32_t judges;
    behaviour_kind behaviour;
    int64_t variants; /* distinct rollouts per prompt and side; < 0: the full grid */
    rollout_way rollouts;
    /* share of the rollouts that are repeated the plain way, to check them */
    double check_rollouts;
    size_t memory; /* in bytes; 0 stands for three quarters of what is free */
    uint32_t shard_prompts;
    int64_t max_failures;
    const pass_watch *watch; /* used where until_stable is above 0 */
    /* A logging pass of heads ends with the shard at which its reliability reaches this; 0: it
     * never ends early. */
    double until_stable;
    /* The reliability is that of a fit with this alpha and, below, this reward. */
    double until_cql_alpha;
    fit_reward until_reward;
    rollout_savings *savings; /* counts what this process logs; borrowed, or NULL */
} calibrate_options;

typedef struct pass_counts {
    /* done by this process, found done by an earlier one, failed */
    uint32_t prompts, resumed, skipped;
    uint64_t rollouts, records;
    uint64_t actions_equal; /* records of actions that kept the same set as the baseline */
    uint64_t checked;       /* rollouts that were repeated the plain way */
    double seconds, rollout_seconds;
    bool stable;        /* whether --until-stable ended the pass */
    double reliability; /* at the last shard; NaN where it is undefined or was not asked for */
} pass_counts;
