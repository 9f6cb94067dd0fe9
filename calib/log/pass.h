/* A pass while it runs, and what a kind of pass is: which prompts it takes, how it measures them,
 * and which rows it logs. The runner in calibrate.c knows no kind by name. Internal to calib/log.
 */
#pragma once

#include "calib/demand/demand_meter.h"
#include "calib/demand/position_sampler.h"
#include "calib/demand/query_log.h"
#include "calib/log/pass_options.h"

typedef struct pass_type pass_type;

/* A pass while it runs. */
typedef struct pass {
    run_dir *run;
    const char *name;
    const calibrate_inputs *in;
    const calibrate_options *o;
    const pass_type *kind;
    const ckvc_table *table; /* NULL where no actions are logged */
    pass_counts *counts;
    workers all;
    worker *w;            /* the worker of the prompt in hand */
    demand_meter *demand; /* [all.n] in demand and score passes */
    position_sampler sampler;
    query_log *queries; /* [all.n] in demand passes that log queries, else NULL */
    shard *rows;        /* rows of one prompt */
    /* how many prompts the pass takes; how many of them fall to this part of a run */
    uint32_t n, n_ours;
    uint32_t *prompts; /* [n] indices of these prompts in in->prompts */
    bool *done;        /* [n] whether a prompt was done before this process began */
    /* prompts that leave records; how many of them come before the one in hand */
    size_t n_logged, logged;
    int64_t failures; /* failed prompts, those of earlier processes included */
    void *until;      /* state of o->watch under --until-stable, or NULL */
    double start_s;
} pass;

/* A kind of pass: a constant with its functions, in a file of its own. */
struct pass_type {
    shard_kind rows; /* the rows that its shards hold */
    /* Whether the kind takes only calibrate_options.judges of the held-out prompts, which judge
     * what is fitted, and none of those that choose. Other kinds take all held-out prompts. */
    bool judged;
    bool budgets; /* its shards have the setting's budgets, although they have no table */
    int forwards; /* how often a prompt passes through the layers, rollouts not counted */
    /* `need` is called before the workers are opened, and says in `options` what they must provide.
     * `open` is called after that, and opens what observes the workers. Both are NULL where nothing
     * observes them. */
    void (*need)(pass *s, worker_options *options);
    ckvc_status (*open)(pass *s, ckvc_err *err);
    /* Measures n prompts, from their tokens to all that is logged of them. Prompt i has the worker
     * w[i]. Does not allocate. */
    ckvc_status (*measure)(pass *s, worker *const *w, const prompt *const *p, int64_t n,
                           ckvc_err *err);
    /* Appends the rows of the prompt that s->w has measured to s->rows. Where a value is not
     * finite, *bad becomes a text that names it, and the prompt leaves no rows. */
    ckvc_status (*log)(pass *s, const prompt *p, const char **bad, ckvc_err *err);
};
extern const pass_type pass_scan, pass_demand, pass_score, pass_rewards;
/* Returns the kind of pass whose shards hold these rows. */
const pass_type *pass_type_of(shard_kind rows);

/* ---- what kinds share ---- */
/* Returns the prompt's row, with the members that its prefill determines. */
struct shard_prompt pass_prompt_row(const prompt *p, const prefill_stats *stats);
/* Writes the statistics of heads, by which tables are transferred, into row `at` of the prompts. */
void pass_put_statistics(const worker *w, size_t at, shard *rows);
bool pass_finite_risks(const worker *w);
