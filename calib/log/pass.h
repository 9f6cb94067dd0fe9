/* A pass over prompts in the making, and what a kind of pass is: which prompts it takes, how it
 * measures them, and which rows it logs. The runner in calibrate.c knows no kind by name. Internal
 * to calib/log. */
#pragma once

#include "calib/demand/demand_meter.h"
#include "calib/demand/position_sampler.h"
#include "calib/log/pass_options.h"

typedef struct pass_type pass_type;

/* A pass in the making. */
typedef struct pass {
    run_dir *run;
    const char *name;
    const calibrate_inputs *in;
    const calibrate_options *o;
    const pass_type *kind;
    const ckvc_table *table; /* NULL: nothing is logged */
    pass_counts *counts;
    workers all;
    worker *w;            /* the prompt's in hand */
    demand_meter *demand; /* [all.n] of demand and score */
    position_sampler sampler;
    shard *rows;             /* one prompt's */
    uint32_t n, n_ours;      /* prompts that the pass takes; of them this part of a run */
    uint32_t *prompts;       /* [n] their places in in->prompts */
    bool *done;              /* [n] before this process began */
    size_t n_logged, logged; /* prompts that leave records; of these, before the one in hand */
    int64_t failures;        /* of the runs before this one too */
    void *until;             /* of --until-stable: o->watch's, or NULL */
    double start_s;
} pass;

/* A kind of pass: a constant with its functions, in a file of its own. */
struct pass_type {
    shard_kind rows; /* that its shards hold */
    /* Of the held-out prompts it takes calibrate_options.judges, which judge what is fitted, and
     * none of those that choose. Other kinds take all of them. */
    bool judged;
    bool budgets; /* its shards have the setting's budgets, though no table's */
    int forwards; /* passes of a prompt through the layers, beside rollouts */
    /* Before the workers are opened: says in `options` what they must provide. Then: opens what
     * looks at them. NULL where nothing looks. */
    void (*need)(pass *s, worker_options *options);
    ckvc_status (*open)(pass *s, ckvc_err *err);
    /* From n prompts' tokens to all that is measured of them; each has a worker w[i]. No
     * allocation. */
    ckvc_status (*measure)(pass *s, worker *const *w, const prompt *const *p, int64_t n,
                           ckvc_err *err);
    /* Rows of a prompt that s->w has measured, appended to s->rows. *bad names a value that is not
     * finite, if any: then the prompt leaves no rows. */
    ckvc_status (*log)(pass *s, const prompt *p, const char **bad, ckvc_err *err);
};
extern const pass_type pass_scan, pass_demand, pass_score, pass_rewards;
/* The kind whose shards hold these rows. */
const pass_type *pass_type_of(shard_kind rows);

/* ---- what kinds share ---- */
/* The prompt's row, as far as its prefill says. */
struct shard_prompt pass_prompt_row(const prompt *p, const prefill_stats *stats);
/* Statistics of heads, by which tables are transferred, into row `at` of the prompts. */
void pass_put_statistics(const worker *w, size_t at, shard *rows);
bool pass_finite_risks(const worker *w);
